// The smoother in disturbance form over chunks of time, a block of threads each: Bryson and Frazier's lambda and N at the
// filtered states, recursively from the last step to the first.

struct Backward { Matrix V, T, HE, product; real *next, *K_lambda; };

__device__ __forceinline__ Backward take_backward(Workspace& work, int nx, int ny) {
    return Backward{work.matrix(nx, ny), work.matrix(ny, ny), work.matrix(ny, nx), work.matrix(nx, nx), work.vector(nx),
                    work.vector(ny)};
}

// lambda and N from step k to step k - 1, over transition and observation k. x is the filtered state at k - 1 and is replaced by
// the predicted one. `element` has c = lambda, M = N and, with `with_map`, the map E.
__device__ __noinline__ void step_back(const SmootherElement& element, bool with_map, const State& x, const Transition& s, const Observation& o, const Gain& g,
                     const Backward& b, int nx, int ny) {
    predict(s, x, b.product, b.next, nx);
    factor_innovation(o, x, g, nx, ny);
    copy(b.HE, o.H, ny, nx);
    whiten(g.S, b.HE, ny, nx);  // L^-1 H
    multiply(b.V, element.M, g.K, nx, nx, ny);
    multiply<SET, true, false>(b.T, g.K, b.V, ny, nx, ny);
    BLOCK_STRIDE(i, ny) {  // K' lambda
        real sum = 0;
        FOR(k, 0, nx) sum += g.K(k, i) * element.c[k];
        b.K_lambda[i] = sum;
    }
    BLOCK_STRIDE(e, nx * ny) {
        const int i = e / ny, j = e - i * ny;
        real sum = 0;
        FOR(l, 0, ny) sum += o.H(l, i) * b.T(l, j);
        b.V(i, j) -= real(0.5) * sum;
    }
    __syncthreads();
    BLOCK_STRIDE(e, nx * nx) {
        const int i = e / nx, j = e - i * nx;
        if (j < i) continue;
        real sum = element.M(i, j);
        FOR(l, 0, ny) sum -= b.V(i, l) * o.H(l, j) + o.H(l, i) * b.V(j, l);
        FOR(l, 0, ny) sum += b.HE(l, i) * (g.inverse[l] * b.HE(l, j));
        element.M(i, j) = element.M(j, i) = sum;
    }
    BLOCK_STRIDE(i, nx) {
        real sum = element.c[i];
        FOR(l, 0, ny) {
            sum += b.HE(l, i) * (g.inverse[l] * g.white(l, nx));
            sum -= o.H(l, i) * b.K_lambda[l];
        }
        b.next[i] = sum;
    }
    __syncthreads();
    apply<SET, true>(element.c, s.F, b.next, nx, nx);
    multiply<SET, true, false>(b.product, s.F, element.M, nx, nx, nx);
    BLOCK_STRIDE(e, nx * nx) {
        const int i = e / nx, j = e - i * nx;
        if (j < i) continue;
        real sum = 0;
        for (int l = 0; l < nx; ++l) sum += b.product(i, l) * s.F(l, j);
        element.M(i, j) = element.M(j, i) = sum;
    }
    __syncthreads();
    if (!with_map) return;
    multiply<SET, true, false>(b.HE, g.K, element.E, ny, nx, nx);
    multiply<MINUS, true, false>(element.E, o.H, b.HE, nx, ny, nx);
    multiply<SET, true, false>(b.product, s.F, element.E, nx, nx, nx);
    copy(element.E, b.product, nx, nx);
}

// The element of every chunk; that of the first is not used and stays the identity
extern "C" __global__ void __launch_bounds__(256)
chunk_smoother_elements(MODEL, const Sizes sizes, const real* mean, const real* covariance, real* elements) {
    BLOCK
    const SmootherElement e = take_smoother_element(work, nx);
    const State x = take_state(work, nx);
    const Transition s = take_transition(work, nx);
    const Observation o = take_observation(work, nx, ny);
    const Gain g = take_gain(work, nx, ny);
    const Backward b = take_backward(work, nx, ny);
    fill(e.E, nx, nx, 0, 1);
    fill(e.c, nx, 0);
    fill(e.M, nx, nx, 0, 0);
    _Pragma("unroll 1") for (int64 k = stop - 1; k >= start && start > 0; --k) {
        load(x, mean + (series * n_steps + k - 1) * nx, covariance + (series * n_steps + k - 1) * nx * nx, nx);
        load(s, k, series, nx, F, Q, u, strides);
        load(o, k, series, nx, ny, H, R, d, y, strides);
        step_back(e, true, x, s, o, g, b, nx, ny);
    }
    store(elements + (chunk_at * (gridDim.x / n_chunks) + series) * smoother_element_size(nx), e, nx);
}

// Smoothed states of every chunk, m + P lambda and P - P N P, from `suffixes`, the combined elements from each chunk to the last;
// null with one chunk per series. Steps whose smoothed variance is below `cancelled` times the filtered one, so that the
// difference has lost its digits, are marked in `marks` and counted per series in `counts`: see `repair_states`.
extern "C" __global__ void __launch_bounds__(256)
chunk_smoothed(MODEL, const Sizes sizes, const real* suffixes, real cancelled, const real* mean,
               const real* covariance, real* smooth_mean, real* smooth_covariance, int* counts, int* marks) {
    BLOCK
    const SmootherElement e = take_smoother_element(work, nx);
    const State x = take_state(work, nx);
    const Transition s = take_transition(work, nx);
    const Observation o = take_observation(work, nx, ny);
    const Gain g = take_gain(work, nx, ny);
    const Backward b = take_backward(work, nx, ny);
    if (chunk_at + 1 < n_chunks) {
        load(e, suffixes + ((chunk_at + 1) * (gridDim.x / n_chunks) + series) * smoother_element_size(nx), nx);
    } else {
        fill(e.c, nx, 0);
        fill(e.M, nx, nx, 0, 0);
    }
    load(x, mean + (series * n_steps + stop - 1) * nx, covariance + (series * n_steps + stop - 1) * nx * nx, nx);
    _Pragma("unroll 1") for (int64 k = stop - 1; k >= start; --k) {
        const int64 at = series * n_steps + k;
        real* const P = smooth_covariance + at * nx * nx;
        BLOCK_STRIDE(i, nx) {
            real sum = x.m[i];
            FOR(j, 0, nx) sum += x.P(i, j) * e.c[j];
            smooth_mean[at * nx + i] = sum;
        }
        multiply(b.product, x.P, e.M, nx, nx, nx);
        BLOCK_STRIDE(f, nx * nx) {
            const int i = f / nx, j = f - i * nx;
            if (j < i) continue;
            real sum = x.P(i, j);
            for (int l = 0; l < nx; ++l) sum -= b.product(i, l) * x.P(l, j);
            P[i * nx + j] = P[j * nx + i] = sum;
            if (i == j) b.next[i] = sum;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            bool lost = false;
            FOR(i, 0, nx) lost = lost || !(b.next[i] >= cancelled * x.P(i, i));
            marks[at] = lost && k + 1 < n_steps;
            if (lost && k + 1 < n_steps) atomicAdd(counts + series, 1);
        }
        __syncthreads();
        if (k == start) break;
        load(x, mean + (at - 1) * nx, covariance + (at - 1) * nx * nx, nx);
        load(s, k, series, nx, F, Q, u, strides);
        load(o, k, series, nx, ny, H, R, d, y, strides);
        step_back(e, false, x, s, o, g, b, nx, ny);
        load(x, mean + (at - 1) * nx, covariance + (at - 1) * nx * nx, nx);
    }
}

// The marked steps, from the last to the first, by the recursion of Rauch, Tung and Striebel from the step after each; one block
// per series. Where a predicted covariance is nearly singular, rounding dominates the gain: the first mean becomes NaN.
extern "C" __global__ void __launch_bounds__(256)
repair_states(MODEL, const Sizes sizes, const real* mean, const real* covariance, real* smooth_mean, real* smooth_covariance,
              const int* counts, const int* marks) {
    UNPACK
    const int nx = sizes.nx;
    const int64 series = blockIdx.x;
    if (counts[series] == 0) return;
    WORKSPACE
    const State x = take_state(work, nx), later = take_state(work, nx);
    const Transition s = take_transition(work, nx);
    const Matrix FP = work.matrix(nx, nx), S = work.matrix(nx, nx), E = work.matrix(nx, nx), A = work.matrix(nx, nx);
    real *const gap = work.vector(nx), *const other = work.vector(nx);
    __shared__ int found;
    for (int64 top = n_steps - 1; top >= 0; top -= blockDim.x) {
        if (threadIdx.x == 0) found = 0;
        __syncthreads();
        const int64 mine = top - threadIdx.x;
        if (mine >= 0 && marks[series * n_steps + mine]) found = 1;
        __syncthreads();
        const bool some = found;
        __syncthreads();
        if (!some) continue;
        _Pragma("unroll 1") for (int64 k = top; k >= 0 && k > top - (int64)blockDim.x; --k) {
            const int64 at = series * n_steps + k;
            if (!marks[at]) continue;
            load(x, mean + at * nx, covariance + at * nx * nx, nx);
            load(later, smooth_mean + (at + 1) * nx, smooth_covariance + (at + 1) * nx * nx, nx);
            load(s, k + 1, series, nx, F, Q, u, strides);
            multiply(FP, s.F, x.P, nx, nx, nx);
            symmetric_product(S, FP, s.F, nx, nx, s.Q.entries, s.Q.stride);
            BLOCK_STRIDE(i, nx) gap[i] = S(i, i);
            factor(S, other, nx);
            bool lost = false;
            FOR(i, 0, nx) lost = lost || !(S(i, i) > nearly_singular(nx) * gap[i]);
            __syncthreads();
            if (lost) {
                if (threadIdx.x == 0) smooth_mean[series * n_steps * nx] = log(real(-1));
                return;
            }
            solve(S, other, FP, E, nx, nx);
            BLOCK_STRIDE(i, nx) {
                real sum = later.m[i] - s.u[i];
                FOR(j, 0, nx) sum -= s.F(i, j) * x.m[j];
                gap[i] = sum;
            }
            __syncthreads();
            apply<PLUS>(x.m, E, gap, nx, nx);
            fill(A, nx, nx, 0, 1);
            multiply<MINUS>(A, E, s.F, nx, nx, nx);
            BLOCK_STRIDE(f, nx * nx) { const int i = f / nx, j = f - i * nx; later.P(i, j) += s.Q(i, j); }
            __syncthreads();
            multiply(FP, E, later.P, nx, nx, nx);
            symmetric_product(S, FP, E, nx, nx, nullptr, 0);
            congruence(later.P, A, x.P, FP, nx, nx, S.entries, S.stride);
            store(smooth_mean + at * nx, x.m, nx);
            store(smooth_covariance + at * nx * nx, later.P, nx, nx);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
combine_smoother_elements(const Sizes sizes, int64 n_series, const real* earlier, int64 step_i, const real* later, int64 step_j, real* out,
           int64 step) {
    PAIR
    const SmootherElement i = take_smoother_element(work, nx), j = take_smoother_element(work, nx);
    const Matrix product = work.matrix(nx, nx), sum = work.matrix(nx, nx);
    load(i, earlier + (k * step_i + series) * smoother_element_size(nx), nx);
    load(j, later + (k * step_j + series) * smoother_element_size(nx), nx);
    combine(i, j, product, sum, out + (k * step + series) * smoother_element_size(nx), nx);
}
