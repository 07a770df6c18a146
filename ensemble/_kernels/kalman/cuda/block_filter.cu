// The filter over chunks of time, a block of threads each.

// The element of every chunk. The first includes the prior unless the series is `open`: then its prior is not known yet.
extern "C" __global__ void __launch_bounds__(256)
chunk_filter_elements(MODEL, const Sizes sizes, int open, real* elements) {
    BLOCK
    const FilterElement e = take_filter_element(work, nx);
    const Transition s = take_transition(work, nx);
    const Observation o = take_observation(work, nx, ny);
    const Gain g = take_gain(work, nx, ny);
    const Matrix HA = work.matrix(ny, nx), product = work.matrix(nx, nx);
    real* const next = work.vector(nx);
    fill(e.eta, nx, 0);
    fill(e.J, nx, nx, 0, 0);
    if (start == 0 && !open) {
        fill(e.A, nx, nx, 0, 0);
        load(State{e.b, e.C}, m0 + strides[14] * series, P0 + strides[16] * series, nx);
    } else {
        fill(e.A, nx, nx, 0, 1);
        fill(e.b, nx, 0);
        fill(e.C, nx, nx, 0, 0);
    }
    _Pragma("unroll 1") for (int64 k = start; k < stop; ++k) {
        const bool at_prior = k == 0 && !predict_first;
        if (!at_prior) load(s, k, series, nx, F, Q, u, strides);
        load(o, k, series, nx, ny, H, R, d, y, strides);
        extend(e, s, at_prior, o, g, HA, product, next, nx, ny);
    }
    store(elements + (chunk_at * (gridDim.x / n_chunks) + series) * filter_element_size(nx), e, nx);
}

// The recursion over every chunk, from the prefix sums of all earlier chunks; `prefixes` may be null with one chunk per series,
// and does not include the prior of an `open` series. With `only_failed`, only series whose last mean is NaN.
extern "C" __global__ void __launch_bounds__(256)
chunk_states(MODEL, const Sizes sizes, const real* prefixes, int open, int only_failed, real* mean, real* covariance, real* terms) {
    BLOCK
    if (only_failed && is_known(mean + (series * n_steps + n_steps - 1) * nx)) return;
    const State x = take_state(work, nx);
    const Transition s = take_transition(work, nx);
    const Observation o = take_observation(work, nx, ny);
    const Gain g = take_gain(work, nx, ny);
    const Matrix product = work.matrix(nx, nx);
    real* const next = work.vector(nx);
    const real* before = prefixes + ((chunk_at - 1) * (gridDim.x / n_chunks) + series) * filter_element_size(nx);
    if (start == 0 || open) {
        load(x, m0 + strides[14] * series, P0 + strides[16] * series, nx);
        if (start > 0) {
            const FilterElement e = take_filter_element(work, nx);
            const Matrix right = work.matrix(nx, nx + 1), M = work.matrix(nx, nx);
            load(e, before, nx);
            advance(e, x, right, M, nx);
        }
    } else {
        load(x, before + nx * nx, before + nx * nx + nx, nx);
    }
    _Pragma("unroll 1") for (int64 k = start; k < stop; ++k) {
        if (k > 0 || predict_first) {
            load(s, k, series, nx, F, Q, u, strides);
            predict(s, x, product, next, nx);
        }
        load(o, k, series, nx, ny, H, R, d, y, strides);
        factor_innovation(o, x, g, nx, ny);
        if (threadIdx.x == 0) terms[series * n_steps + k] = log_density(o, g, nx, ny);
        update(o, x, g, nx, ny);
        store(mean + (series * n_steps + k) * nx, x.m, nx);
        store(covariance + (series * n_steps + k) * nx * nx, x.P, nx, nx);
    }
}

// The sum of every series' terms, in a fixed order; one block per series
extern "C" __global__ void __launch_bounds__(256)
sum_terms(int64 n_steps, const real* terms, double* sums) {
    __shared__ double partial[256];
    double sum = 0;
    _Pragma("unroll 1") for (int64 k = threadIdx.x; k < n_steps; k += blockDim.x) sum += terms[blockIdx.x * n_steps + k];
    partial[threadIdx.x] = sum;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

extern "C" __global__ void __launch_bounds__(256)
combine_filter_elements(const Sizes sizes, int64 n_series, const real* earlier, int64 step_i, const real* later, int64 step_j, real* out,
              int64 step) {
    PAIR
    const FilterElement i = take_filter_element(work, nx), j = take_filter_element(work, nx);
    const Matrix right = work.matrix(nx, 2 * nx + 1), M = work.matrix(nx, nx), product = work.matrix(nx, nx);
    real* const gap = work.vector(nx);
    load(i, earlier + (k * step_i + series) * filter_element_size(nx), nx);
    load(j, later + (k * step_j + series) * filter_element_size(nx), nx);
    combine(i, j, right, M, product, gap, out + (k * step + series) * filter_element_size(nx), nx);
}
