// The filter's recursion over one series on one thread, and sums of log-densities over many blocks.

__device__ __forceinline__ bool is_known(const real* mean, int64 at) { return mean[at * NX] == mean[at * NX]; }

__device__ void filter_one_series(MODEL, int64 series, real* mean, real* covariance, real* terms, double* totals) {
    UNPACK
    PartPointers from;
    point_to_model(from, series, F, Q, H, R, u, d, y, strides);
    const GlobalLoader steps{from};
    State x;
    double total = 0;
    load_state(x, m0 + strides[14] * series, P0 + strides[16] * series, 0);
#pragma unroll 1
    for (int64 k = 0; k < n_steps; ++k) {
        Transition s;
        Observation o;
        Gain g;
        load(o, steps, k);
        load(s, steps, k, false);
        issue_all_loads();
        if (k > 0 || predict_first) predict(s, x);
        update(o, x, g);
        const int64 at = series * n_steps + k;
        write<NX>(mean + at * NX, x.m);
        write_symmetric(covariance + at * NX * NX, x.P);
        const real term = log_density(g);
        terms[at] = term;
        total += term;
    }
    totals[series] = total;
}

// The sum over the threads of a block, on thread 0, always in the same order
__device__ __forceinline__ double block_sum(double value, double* scratch) {
    scratch[threadIdx.x] = value;
#pragma unroll 1
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
    }
    return scratch[0];
}

// The sum of `value` over all threads of a series' `parts` blocks, in the order of the blocks. The last block to arrive adds the
// sums of all; true on its thread 0, which has the result. `counter` is zero at the start.
__device__ __forceinline__ bool sum_of_blocks(double value, int parts, int part, int* counter, double* partials, double& sum) {
    __shared__ double scratch[THREADS];
    __shared__ int done;
    sum = block_sum(value, scratch);
    if (threadIdx.x == 0) {
        partials[part] = sum;
        __threadfence();
        done = atomicAdd(counter, 1);
    }
    __syncthreads();
    if (done < parts - 1) return false;
    __threadfence();
    sum = 0;
    for (int p = threadIdx.x; p < parts; p += THREADS) sum += ((volatile double*)partials)[p];
    sum = block_sum(sum, scratch);
    return threadIdx.x == 0;
}
