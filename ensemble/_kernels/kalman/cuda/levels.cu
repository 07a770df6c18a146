// Filter and smoothers by scans that combine many pairs of elements at a time: an array of elements is (steps, series, entries of
// the structure), and every level of every scan is one launch of `combine_filter_elements` or `combine_smoother_elements`.

template <class E> __device__ __forceinline__ E packed(const real* from, int64 at) {
    E e;
    read<size_of<E>()>((real*)&e, from + at * size_of<E>());
    return e;
}

template <class E> __device__ __forceinline__ void pack(real* to, int64 at, const E& e) {
    write<size_of<E>()>(to + at * size_of<E>(), (const real*)&e);
}

// A thread for each of n steps of every series: `row` is the position of its element
#define THREAD(n)                                                      \
    const int64 row = (int64)blockIdx.x * THREADS + threadIdx.x;       \
    if (row >= (n) * n_series) return;                                 \
    const int64 k = n_series == 1 ? row : row / n_series;              \
    const int64 series = n_series == 1 ? 0 : row - k * n_series;

// The element of every step, the first including the prior, and the identity element after the last
extern "C" __global__ void __launch_bounds__(THREADS) filter_elements(MODEL, int64 n_series, real* elements) {
    UNPACK
    THREAD(n_steps + 1)
    FilterElement e;
    identity(e);
    if (k == n_steps) {
        pack(elements, row, e);
        return;
    }
    PartPointers from;
    point_to_model(from, series, F, Q, H, R, u, d, y, strides);
    const GlobalLoader steps{from};
    Transition s;
    Observation o;
    load(o, steps, k);
    load(s, steps, k, k == 0 && !predict_first);
    issue_all_loads();
    if (k == 0) {
        State x;
        Gain g;
        load_state(x, m0 + strides[14] * series, P0 + strides[16] * series, 0);
        predict(s, x);
        update(o, x, g);
        prior_element(x, e);
    } else {
        extend(e, s, o);
    }
    pack(elements, row, e);
}

// The element of every step, the last being the filter's last state, and the identity element after it
extern "C" __global__ void __launch_bounds__(THREADS)
smoother_elements(MODEL, int64 n_series, const real* filtered_mean, const real* filtered_covariance, real* elements) {
    UNPACK
    THREAD(n_steps + 1)
    SmootherElement one;
    if (k == n_steps) {
        identity(one);
        pack(elements, row, one);
        return;
    }
    State x;
    load_state(x, filtered_mean, filtered_covariance, series * n_steps + k);
    if (k == n_steps - 1) {
        EACH(i, NX) { EACH(j, NX) one.E[i][j] = 0; one.g[i] = x.m[i]; }
        one.L = x.P;
    } else {
        PartPointers from;
        point_to_model(from, series, F, Q, H, R, u, d, y, strides);
        const GlobalLoader steps{from};
        Transition s;
        load(s, steps, k + 1, false);
        smoother_element(s, x, one);
    }
    pack(elements, row, one);
}

template <class E> __device__ __forceinline__ void combine_level(
    int64 n, int64 n_series, const real* earlier, int64 step_i, const real* later, int64 step_j, real* out, int64 step) {
    THREAD(n)
    E e = packed<E>(earlier, k * step_i + series);
    combine(e, packed<E>(later, k * step_j + series), e);
    pack(out, k * step + series, e);
}

// Steps between entries are in elements, negative for scans from the end; `out` may be one of the operands
extern "C" __global__ void __launch_bounds__(THREADS) combine_filter_elements(
    int64 n, int64 n_series, const real* earlier, int64 step_i, const real* later, int64 step_j, real* out, int64 step) {
    combine_level<FilterElement>(n, n_series, earlier, step_i, later, step_j, out, step);
}

extern "C" __global__ void __launch_bounds__(THREADS) combine_smoother_elements(
    int64 n, int64 n_series, const real* earlier, int64 step_i, const real* later, int64 step_j, real* out, int64 step) {
    combine_level<SmootherElement>(n, n_series, earlier, step_i, later, step_j, out, step);
}

// --- states out of prefix sums
__device__ __forceinline__ void write_state(int64 at, const real m[NX], const Sym<NX>& P, real* mean, real* covariance) {
    write<NX>(mean + at * NX, m);
    write_symmetric(covariance + at * NX * NX, P);
}

// With the density of each observation given those before it, from the state one step before
extern "C" __global__ void __launch_bounds__(THREADS)
filter_states(MODEL, int64 n_series, const real* elements, real* mean, real* covariance, real* terms) {
    UNPACK
    THREAD(n_steps)
    const FilterElement e = packed<FilterElement>(elements, row);
    write_state(series * n_steps + k, e.b, e.C, mean, covariance);
    PartPointers from;
    point_to_model(from, series, F, Q, H, R, u, d, y, strides);
    const GlobalLoader steps{from};
    Transition s;
    Observation o;
    Gain g;
    State x;
    load(o, steps, k);
    load(s, steps, k, k == 0 && !predict_first);
    if (k == 0) {
        load_state(x, m0 + strides[14] * series, P0 + strides[16] * series, 0);
    } else {
        const FilterElement before = packed<FilterElement>(elements, row - n_series);
        EACH(i, NX) x.m[i] = before.b[i];
        x.P = before.C;
    }
    predict(s, x);
    update(o, x, g);
    terms[series * n_steps + k] = log_density(g);
}

extern "C" __global__ void __launch_bounds__(THREADS)
smoother_states(MODEL, int64 n_series, const real* elements, real* mean, real* covariance) {
    UNPACK
    THREAD(n_steps)
    const SmootherElement e = packed<SmootherElement>(elements, row);
    write_state(series * n_steps + k, e.g, e.L, mean, covariance);
}

// Smoothed states from the filter's and from `later_elements`, the scan from the end of the elements after each step
extern "C" __global__ void __launch_bounds__(THREADS)
combined_states(MODEL, int64 n_series, const real* filtered_mean, const real* filtered_covariance, const real* later_elements, real* mean,
                real* covariance) {
    UNPACK
    THREAD(n_steps)
    const FilterElement later = packed<FilterElement>(later_elements, row);
    State x;
    Information information;
    load_state(x, filtered_mean, filtered_covariance, series * n_steps + k);
    EACH(i, NX) information.eta[i] = later.eta[i];
    information.J = later.J;
    combine_information(information, x);
    write_state(series * n_steps + k, x.m, x.P, mean, covariance);
}
