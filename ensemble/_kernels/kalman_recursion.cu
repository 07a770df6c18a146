// The plain recursions, a thread a series, and what is left to do once chunks or a scan have given a filter's states: where
// the elements of a series say nothing (see `extend`), all states from some step on are NaN, before it for the smoother, and
// the recursion takes over; the terms of every likelihood are added up.

__device__ __forceinline__ bool known(const REAL* mean, Index at) { return mean[at * NX] == mean[at * NX]; }

__device__ void filter_one(MODEL, Index series, REAL* mean, REAL* covariance, REAL* terms, double* totals) {
    Sources from;
    model_of(from, series, F, Q, H, R, u, d, y, places);
    const Direct steps{from};
    Gauss x;
    double total = 0;
    load_state(x, m0 + places[14] * series, P0 + places[16] * series, 0);
#pragma unroll 1
    for (Index k = 0; k < n_steps; ++k) {
        Step s;
        Look l;
        Gain g;
        load(l, steps, k);
        load(s, steps, k, false);
        ask_at_once();
        if (k > 0 || predict_first) move(s, x);
        look(l, x, g);
        const Index at = series * n_steps + k;
        write<NX>(mean + at * NX, x.m);
        write_symmetric(covariance + at * NX * NX, x.P);
        const REAL term = log_density(l, g);
        terms[at] = term;
        total += term;
    }
    totals[series] = total;
}

extern "C" __global__ void __launch_bounds__(THREADS)
filter_series(MODEL, Index n_series, REAL* mean, REAL* covariance, REAL* terms, double* totals) {
    const Index series = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (series >= n_series) return;
    filter_one(F, Q, H, R, u, d, y, m0, P0, places, predict_first, n_steps, chunk, n_chunks, series, mean, covariance, terms,
               totals);
}

// The sum over the threads of a block, on thread 0, always in the same order
__device__ __forceinline__ double block_sum(double mine, double* room) {
    room[threadIdx.x] = mine;
#pragma unroll 1
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) room[threadIdx.x] += room[threadIdx.x + half];
    }
    return room[0];
}

// `parts` blocks a series, each for LEAVES terms; the last of them to be done adds up what they have found. `tickets` is zero
// at the start. Without `again` no recursion takes over.
#define LEAVES (32 * THREADS)
extern "C" __global__ void __launch_bounds__(THREADS)
settle_series(MODEL, int parts, int again, int* tickets, double* partials, REAL* mean, REAL* covariance, REAL* terms,
              double* totals) {
    __shared__ double room[THREADS];
    __shared__ int done;
    const Index series = blockIdx.x / parts, part = blockIdx.x % parts;
    if (threadIdx.x == 0) done = again && !known(mean, series * n_steps + n_steps - 1) ? -1 : 0;
    __syncthreads();  // before the recursion writes what was asked for
    if (done < 0) {
        if (part == 0 && threadIdx.x == 0)
            filter_one(F, Q, H, R, u, d, y, m0, P0, places, predict_first, n_steps, chunk, n_chunks, series, mean, covariance,
                       terms, totals);
        return;
    }
    const REAL* mine = terms + series * n_steps;
    double sum = 0;
#pragma unroll 4
    for (Index k = part * LEAVES + threadIdx.x; k < min(n_steps, (part + 1) * LEAVES); k += THREADS) sum += mine[k];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sum;
        __threadfence();
        done = atomicAdd(tickets + series, 1);
    }
    __syncthreads();
    if (done < parts - 1) return;
    __threadfence();
    sum = 0;
    for (int p = threadIdx.x; p < parts; p += THREADS) sum += ((volatile double*)partials)[series * parts + p];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) totals[series] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
smooth_series(MODEL, Index n_series, int again, const REAL* mean, const REAL* covariance, REAL* smooth_mean,
              REAL* smooth_covariance) {
    const Index series = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (series >= n_series || (again && known(smooth_mean, series * n_steps))) return;
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
