// The recursions, a thread per series; and the end of a filter by a scan: the recursion for series whose elements do not exist
// (see `extend`), whose states are NaN from some step on, and the sum of the log-densities of every series.

extern "C" __global__ void __launch_bounds__(THREADS)
filter_series(MODEL, int64 n_series, real* mean, real* covariance, real* terms, double* totals) {
    UNPACK
    const int64 series = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (series >= n_series) return;
    filter_one_series(F, Q, H, R, u, d, y, m0, P0, layout, series, mean, covariance, terms, totals);
}

// `parts` blocks per series, each for TERMS_PER_BLOCK terms; the last to arrive adds their sums. `counters` is zero at the start. With
// `redo_failed`, series whose last mean is NaN are filtered by the recursion.
#define TERMS_PER_BLOCK (32 * THREADS)
extern "C" __global__ void __launch_bounds__(THREADS)
finish_filter(MODEL, int parts, int redo_failed, int* counters, double* partials, real* mean, real* covariance, real* terms,
              double* totals) {
    UNPACK
    const int64 series = blockIdx.x / parts, part = blockIdx.x % parts;
    __shared__ bool lost;
    if (threadIdx.x == 0) lost = redo_failed && !is_known(mean, series * n_steps + n_steps - 1);
    __syncthreads();  // before the recursion overwrites what was prefetched
    if (lost) {
        if (part == 0 && threadIdx.x == 0)
            filter_one_series(F, Q, H, R, u, d, y, m0, P0, layout, series, mean, covariance, terms, totals);
        return;
    }
    const real* own_terms = terms + series * n_steps;
    double sum = 0;
#pragma unroll 4
    for (int64 k = part * TERMS_PER_BLOCK + threadIdx.x; k < min(n_steps, (part + 1) * TERMS_PER_BLOCK); k += THREADS) sum += own_terms[k];
    if (sum_of_blocks(sum, parts, (int)part, counters + series, partials + series * parts, sum)) totals[series] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
smooth_series(MODEL, int64 n_series, const real* mean, const real* covariance, real* smooth_mean,
              real* smooth_covariance) {
    UNPACK
    const int64 series = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (series >= n_series) return;
    PartPointers from;
    point_to_smoother_parts(from, series, n_steps, F, Q, u, mean, covariance, strides);
    const GlobalLoader steps{from};
    const int64 start = series * n_steps;
    State later;
    load_state(later, mean, covariance, start + n_steps - 1);
    write<NX>(smooth_mean + (start + n_steps - 1) * NX, later.m);
    write_symmetric(smooth_covariance + (start + n_steps - 1) * NX * NX, later.P);
#pragma unroll 1
    for (int64 k = n_steps - 2; k >= 0; --k) {
        Transition s;
        State x;
        SmootherElement one;
        load(s, steps, k, false);
        load(x, steps, k);
        issue_all_loads();
        smoother_element(s, x, one);
        advance(one, later);
        write<NX>(smooth_mean + (start + k) * NX, later.m);
        write_symmetric(smooth_covariance + (start + k) * NX * NX, later.P);
    }
}
