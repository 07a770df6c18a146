// The filter over chunks of time, a block of threads each.

// The element of every chunk, the first holding the prior unless that is `open`: not known yet
extern "C" __global__ void __launch_bounds__(256)
chunk_elements(MODEL, const Sizes sizes, int open, REAL* elements) {
    BLOCK
    const Element e = take_element(work, nx);
    const Transition s = take_transition(work, nx);
    const Observation o = take_observation(work, nx, ny);
    const Gain g = take_gain(work, nx, ny);
    const Matrix HA = work.matrix(ny, nx), product = work.matrix(nx, nx);
    REAL* const next = work.vector(nx);
    fill(e.eta, nx, 0);
    fill(e.J, nx, nx, 0, 0);
    if (start == 0 && !open) {
        fill(e.A, nx, nx, 0, 0);
        load(State{e.b, e.C}, m0 + places[14] * series, P0 + places[16] * series, nx);
    } else {
        fill(e.A, nx, nx, 0, 1);
        fill(e.b, nx, 0);
        fill(e.C, nx, nx, 0, 0);
    }
    _Pragma("unroll 1") for (Index k = start; k < stop; ++k) {
        const bool stands = k == 0 && !predict_first;
        if (!stands) load(s, k, series, nx, F, Q, u, places);
        load(o, k, series, nx, ny, H, R, d, y, places);
        extend(e, s, stands, o, g, HA, product, next, nx, ny);
    }
    store(elements + (chunk_at * (gridDim.x / n_chunks) + series) * element_size(nx), e, nx);
}

// The recursion over every chunk, from the prefix sums of all chunks before it; `prefixes` may be null with one chunk a
// series, and does not hold the prior where it is `open`. With `again` only series whose last mean is NaN, as lost elements
// leave it, have their turn.
extern "C" __global__ void __launch_bounds__(256)
chunk_states(MODEL, const Sizes sizes, const REAL* prefixes, int open, int again, REAL* mean, REAL* covariance, REAL* terms) {
    BLOCK
    if (again && is_known(mean + (series * n_steps + n_steps - 1) * nx)) return;
    const State x = take_state(work, nx);
    const Transition s = take_transition(work, nx);
    const Observation o = take_observation(work, nx, ny);
    const Gain g = take_gain(work, nx, ny);
    const Matrix product = work.matrix(nx, nx);
    REAL* const next = work.vector(nx);
    const REAL* before = prefixes + ((chunk_at - 1) * (gridDim.x / n_chunks) + series) * element_size(nx);
    if (start == 0 || open) {
        load(x, m0 + places[14] * series, P0 + places[16] * series, nx);
        if (start > 0) {
            const Element e = take_element(work, nx);
            const Matrix right = work.matrix(nx, nx + 1), M = work.matrix(nx, nx);
            load(e, before, nx);
            advance(e, x, right, M, nx);
        }
    } else {
        load(x, before + nx * nx, before + nx * nx + nx, nx);
    }
    _Pragma("unroll 1") for (Index k = start; k < stop; ++k) {
        if (k > 0 || predict_first) {
            load(s, k, series, nx, F, Q, u, places);
            predict(s, x, product, next, nx);
        }
        load(o, k, series, nx, ny, H, R, d, y, places);
        innovate(o, x, g, nx, ny);
        if (threadIdx.x == 0) terms[series * n_steps + k] = log_density(o, g, nx, ny);
        update(o, x, g, nx, ny);
        store(mean + (series * n_steps + k) * nx, x.m, nx);
        store(covariance + (series * n_steps + k) * nx * nx, x.P, nx, nx);
    }
}

// The sum of every series' terms, always in the same order; one block per series
extern "C" __global__ void __launch_bounds__(256)
sum_terms(Index n_steps, const REAL* terms, double* sums) {
    __shared__ double partial[256];
    double sum = 0;
    _Pragma("unroll 1") for (Index k = threadIdx.x; k < n_steps; k += blockDim.x) sum += terms[blockIdx.x * n_steps + k];
    partial[threadIdx.x] = sum;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

extern "C" __global__ void __launch_bounds__(256)
join_elements(const Sizes sizes, Index n_series, const REAL* earlier, Index step_i, const REAL* later, Index step_j, REAL* out,
              Index step) {
    PAIR
    const Element i = take_element(work, nx), j = take_element(work, nx);
    const Matrix right = work.matrix(nx, 2 * nx + 1), M = work.matrix(nx, nx), product = work.matrix(nx, nx);
    REAL* const gap = work.vector(nx);
    load(i, earlier + (k * step_i + series) * element_size(nx), nx);
    load(j, later + (k * step_j + series) * element_size(nx), nx);
    combine(i, j, right, M, product, gap, out + (k * step + series) * element_size(nx), nx);
}
