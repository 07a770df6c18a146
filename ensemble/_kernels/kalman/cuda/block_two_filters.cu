// The two-filter smoother over chunks of time, a block of threads each: the information of the observations after every chunk, a
// scan from the end in `suffixes`, is combined with the filter's states. `later_information`, if not null, is that of the
// observations after the last chunk of each series: eta, then J.
extern "C" __global__ void __launch_bounds__(256)
chunk_two_filters(MODEL, const Sizes sizes, const real* suffixes, const real* later_information, const real* mean, const real* covariance,
                  real* smooth_mean, real* smooth_covariance) {
    BLOCK
    const State x = take_state(work, nx);
    const Information later = take_information(work, nx);
    const FilterElement e = take_filter_element(work, nx);
    const Transition s = take_transition(work, nx);
    const Observation o = take_observation(work, nx, ny);
    const Gain g = take_gain(work, nx, ny);
    const Matrix HA = work.matrix(ny, nx), product = work.matrix(nx, nx), right = work.matrix(nx, nx + 1);
    const Matrix M = work.matrix(nx, nx);
    real* const next = work.vector(nx);
    load(later, later_information == nullptr ? nullptr : later_information + series * (nx + nx * nx), nx);
    if (chunk_at + 1 < n_chunks) {
        load(e, suffixes + ((chunk_at + 1) * (gridDim.x / n_chunks) + series) * filter_element_size(nx), nx);
        advance_backward(e, later, right, M, product, next, nx);
    }
    _Pragma("unroll 1") for (int64 k = stop - 1; k >= start; --k) {
        load(x, mean + (series * n_steps + k) * nx, covariance + (series * n_steps + k) * nx * nx, nx);
        condition(x, later.eta, later.J, right, M, nx);
        BLOCK_STRIDE(r, nx) smooth_mean[(series * n_steps + k) * nx + r] = right(r, nx);
        BLOCK_STRIDE(f, nx * nx) {
            const int r = f / nx, c = f - r * nx;
            smooth_covariance[(series * n_steps + k) * nx * nx + f] = real(0.5) * (right(r, c) + right(c, r));
        }
        __syncthreads();
        if (k == start) break;
        fill(e.A, nx, nx, 0, 1);
        fill(e.b, nx, 0);
        fill(e.C, nx, nx, 0, 0);
        fill(e.eta, nx, 0);
        fill(e.J, nx, nx, 0, 0);
        load(s, k, series, nx, F, Q, u, strides);
        load(o, k, series, nx, ny, H, R, d, y, strides);
        extend(e, s, false, o, g, HA, product, next, nx, ny);
        advance_backward(e, later, right, M, product, next, nx);
    }
}

// --- a range of steps as a whole, for the devices that hold the adjacent ranges: the state after it from the one before it, and
// the information of its observations and of all later ones (`later`, null for none) on the state before it
extern "C" __global__ void __launch_bounds__(256)
state_after_range(const Sizes sizes, const real* element, const real* m0, const real* P0, real* m, real* P) {
    const int nx = sizes.nx;
    WORKSPACE
    const FilterElement e = take_filter_element(work, nx);
    const State x = take_state(work, nx);
    const Matrix right = work.matrix(nx, nx + 1), M = work.matrix(nx, nx);
    load(e, element, nx);
    load(x, m0, P0, nx);
    advance(e, x, right, M, nx);
    store(m, x.m, nx);
    store(P, x.P, nx, nx);
}

extern "C" __global__ void __launch_bounds__(256)
information_before_range(const Sizes sizes, const real* element, const real* later, real* information) {
    const int nx = sizes.nx;
    WORKSPACE
    const FilterElement e = take_filter_element(work, nx);
    const Information x = take_information(work, nx);
    const Matrix right = work.matrix(nx, nx + 1), M = work.matrix(nx, nx), product = work.matrix(nx, nx);
    real* const gap = work.vector(nx);
    load(e, element, nx);
    load(x, later, nx);
    advance_backward(e, x, right, M, product, gap, nx);
    store(information, x.eta, nx);
    store(information + nx, x.J, nx, nx);
}

// The state before each of n ranges from that before the first, by block 0, and the information of all observations after each
// range on the state at its end, by block 1
extern "C" __global__ void __launch_bounds__(256)
states_between_ranges(const Sizes sizes, const real* elements, int n, real* mean, real* covariance, real* information) {
    const int nx = sizes.nx;
    WORKSPACE
    const FilterElement e = take_filter_element(work, nx);
    const Matrix right = work.matrix(nx, nx + 1), M = work.matrix(nx, nx), product = work.matrix(nx, nx);
    real* const gap = work.vector(nx);
    if (blockIdx.x == 0) {
        const State x = take_state(work, nx);
        load(x, mean, covariance, nx);
        _Pragma("unroll 1") for (int k = 0; k + 1 < n; ++k) {
            load(e, elements + k * filter_element_size(nx), nx);
            advance(e, x, right, M, nx);
            store(mean + (k + 1) * nx, x.m, nx);
            store(covariance + (k + 1) * nx * nx, x.P, nx, nx);
            __syncthreads();
        }
        return;
    }
    const Information x = take_information(work, nx);
    load(x, nullptr, nx);
    __syncthreads();
    _Pragma("unroll 1") for (int k = n - 1; k >= 0; --k) {
        store(information + k * (nx + nx * nx), x.eta, nx);
        store(information + k * (nx + nx * nx) + nx, x.J, nx, nx);
        __syncthreads();
        if (k == 0) break;
        load(e, elements + k * filter_element_size(nx), nx);
        advance_backward(e, x, right, M, product, gap, nx);
    }
}
