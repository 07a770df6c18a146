// The filter's recursion over one series on one thread, and the sum of its terms by many blocks.

__device__ __forceinline__ bool known(const REAL* mean, Index at) { return mean[at * NX] == mean[at * NX]; }

__device__ void filter_one(MODEL, Index series, REAL* mean, REAL* covariance, REAL* terms, double* totals) {
    UNPACK
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

// Every thread brings `mine`: the last of a series' `parts` blocks to come here adds up what they all have
// found, in their order, and hands it out on its thread 0, where this is true. `ticket` is zero at the start.
__device__ __forceinline__ bool sum_of_blocks(double mine, int parts, int part, int* ticket, double* partials, double& sum) {
    __shared__ double room[THREADS];
    __shared__ int done;
    sum = block_sum(mine, room);
    if (threadIdx.x == 0) {
        partials[part] = sum;
        __threadfence();
        done = atomicAdd(ticket, 1);
    }
    __syncthreads();
    if (done < parts - 1) return false;
    __threadfence();
    sum = 0;
    for (int p = threadIdx.x; p < parts; p += THREADS) sum += ((volatile double*)partials)[p];
    sum = block_sum(sum, room);
    return threadIdx.x == 0;
}
