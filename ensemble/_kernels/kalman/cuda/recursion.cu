// The plain recursions, a thread a series, and what is left to do once chunks or a scan have given a filter's states: where
// the elements of a series say nothing (see `extend`), all states from some step on are NaN, and the recursion takes over; the
// terms of every likelihood are added up.

extern "C" __global__ void __launch_bounds__(THREADS)
filter_series(MODEL, Index n_series, REAL* mean, REAL* covariance, REAL* terms, double* totals) {
    UNPACK
    const Index series = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (series >= n_series) return;
    filter_one(F, Q, H, R, u, d, y, m0, P0, cut, series, mean, covariance, terms, totals);
}

// `parts` blocks a series, each for LEAVES terms; the last of them to be done adds up what they have found. `tickets` is zero
// at the start. Without `again` no recursion takes over.
#define LEAVES (32 * THREADS)
extern "C" __global__ void __launch_bounds__(THREADS)
settle_series(MODEL, int parts, int again, int* tickets, double* partials, REAL* mean, REAL* covariance, REAL* terms,
              double* totals) {
    UNPACK
    const Index series = blockIdx.x / parts, part = blockIdx.x % parts;
    __shared__ bool lost;
    if (threadIdx.x == 0) lost = again && !known(mean, series * n_steps + n_steps - 1);
    __syncthreads();  // before the recursion overwrites what was prefetched
    if (lost) {
        if (part == 0 && threadIdx.x == 0)
            filter_one(F, Q, H, R, u, d, y, m0, P0, cut, series, mean, covariance, terms, totals);
        return;
    }
    const REAL* mine = terms + series * n_steps;
    double sum = 0;
#pragma unroll 4
    for (Index k = part * LEAVES + threadIdx.x; k < min(n_steps, (part + 1) * LEAVES); k += THREADS) sum += mine[k];
    if (sum_of_blocks(sum, parts, (int)part, tickets + series, partials + series * parts, sum)) totals[series] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
smooth_series(MODEL, Index n_series, const REAL* mean, const REAL* covariance, REAL* smooth_mean,
              REAL* smooth_covariance) {
    UNPACK
    const Index series = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (series >= n_series) return;
    Sources from;
    links_of(from, series, n_steps, F, Q, u, mean, covariance, places);
    const Direct steps{from};
    const Index start = series * n_steps;
    Gauss later;
    load_state(later, mean, covariance, start + n_steps - 1);
    write<NX>(smooth_mean + (start + n_steps - 1) * NX, later.m);
    write_symmetric(smooth_covariance + (start + n_steps - 1) * NX * NX, later.P);
#pragma unroll 1
    for (Index k = n_steps - 2; k >= 0; --k) {
        Step s;
        Gauss x;
        Link one;
        load(s, steps, k, false);
        load(x, steps, k);
        ask_at_once();
        link(s, x, one);
        advance(one, later);
        write<NX>(smooth_mean + (start + k) * NX, later.m);
        write_symmetric(smooth_covariance + (start + k) * NX * NX, later.P);
    }
}
