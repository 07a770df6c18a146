// The filter and smoothers by scans that join many pairs of elements at a time: elements lie packed, as many entries each as
// the structure has, those of all series at one step together, and every level of every scan is one launch of `join`.

template <class E> __device__ __forceinline__ E packed(const REAL* from, Index at) {
    E e;
    read<size_of<E>()>((REAL*)&e, from + at * size_of<E>());
    return e;
}

template <class E> __device__ __forceinline__ void pack(REAL* to, Index at, const E& e) {
    write<size_of<E>()>(to + at * size_of<E>(), (const REAL*)&e);
}

// A thread for each of n steps of every series: `row` is where its element stands
#define THREAD(n)                                                      \
    const Index row = (Index)blockIdx.x * THREADS + threadIdx.x;       \
    if (row >= (n) * n_series) return;                                 \
    const Index k = n_series == 1 ? row : row / n_series;              \
    const Index series = n_series == 1 ? 0 : row - k * n_series;

// The element of every step, the first holding the prior, and the neutral one behind the last
extern "C" __global__ void __launch_bounds__(THREADS) filter_elements(MODEL, Index n_series, REAL* elements) {
    UNPACK
    THREAD(n_steps + 1)
    Element e;
    identity(e);
    if (k == n_steps) {
        pack(elements, row, e);
        return;
    }
    Sources from;
    model_of(from, series, F, Q, H, R, u, d, y, places);
    const Direct steps{from};
    Step s;
    Look l;
    load(l, steps, k);
    load(s, steps, k, k == 0 && !predict_first);
    ask_at_once();
    if (k == 0) {
        Gauss x;
        Gain g;
        load_state(x, m0 + places[14] * series, P0 + places[16] * series, 0);
        move(s, x);
        look(l, x, g);
        forget(x, e);
    } else {
        extend(e, s, l);
    }
    pack(elements, row, e);
}

// The link of every step from the filter's states, the last of them the filter's last state, and the neutral one
extern "C" __global__ void __launch_bounds__(THREADS)
smoother_links(MODEL, Index n_series, const REAL* filtered, const REAL* spread, REAL* links) {
    UNPACK
    THREAD(n_steps + 1)
    Link one;
    if (k == n_steps) {
        identity(one);
        pack(links, row, one);
        return;
    }
    Gauss x;
    load_state(x, filtered, spread, series * n_steps + k);
    if (k == n_steps - 1) {
        EACH(i, NX) { EACH(j, NX) one.E[i][j] = 0; one.g[i] = x.m[i]; }
        one.L = x.P;
    } else {
        Sources from;
        model_of(from, series, F, Q, H, R, u, d, y, places);
        const Direct steps{from};
        Step s;
        load(s, steps, k + 1, false);
        link(s, x, one);
    }
    pack(links, row, one);
}

template <class E> __device__ __forceinline__ void join_level(
    Index n, Index n_series, const REAL* earlier, Index step_i, const REAL* later, Index step_j, REAL* out, Index step) {
    THREAD(n)
    E e = packed<E>(earlier, k * step_i + series);
    combine(e, packed<E>(later, k * step_j + series), e);
    pack(out, k * step + series, e);
}

// From one entry to the next it is so many elements, negative for scans from the end; `out` may be one of the operands
extern "C" __global__ void __launch_bounds__(THREADS) join_elements(
    Index n, Index n_series, const REAL* earlier, Index step_i, const REAL* later, Index step_j, REAL* out, Index step) {
    join_level<Element>(n, n_series, earlier, step_i, later, step_j, out, step);
}

extern "C" __global__ void __launch_bounds__(THREADS) join_links(
    Index n, Index n_series, const REAL* earlier, Index step_i, const REAL* later, Index step_j, REAL* out, Index step) {
    join_level<Link>(n, n_series, earlier, step_i, later, step_j, out, step);
}

// --- states out of prefix sums
__device__ __forceinline__ void put_state(Index at, const REAL m[NX], const Sym<NX>& P, REAL* mean, REAL* covariance) {
    write<NX>(mean + at * NX, m);
    write_symmetric(covariance + at * NX * NX, P);
}

// With the density of each observation given those before it, from the state one step before
extern "C" __global__ void __launch_bounds__(THREADS)
element_states(MODEL, Index n_series, const REAL* elements, REAL* mean, REAL* covariance, REAL* terms) {
    UNPACK
    THREAD(n_steps)
    const Element e = packed<Element>(elements, row);
    put_state(series * n_steps + k, e.b, e.C, mean, covariance);
    Sources from;
    model_of(from, series, F, Q, H, R, u, d, y, places);
    const Direct steps{from};
    Step s;
    Look l;
    Gain g;
    Gauss x;
    load(l, steps, k);
    load(s, steps, k, k == 0 && !predict_first);
    if (k == 0) {
        load_state(x, m0 + places[14] * series, P0 + places[16] * series, 0);
    } else {
        const Element before = packed<Element>(elements, row - n_series);
        EACH(i, NX) x.m[i] = before.b[i];
        x.P = before.C;
    }
    move(s, x);
    look(l, x, g);
    terms[series * n_steps + k] = log_density(l, g);
}

extern "C" __global__ void __launch_bounds__(THREADS)
link_states(MODEL, Index n_series, const REAL* links, REAL* mean, REAL* covariance) {
    UNPACK
    THREAD(n_steps)
    const Link e = packed<Link>(links, row);
    put_state(series * n_steps + k, e.g, e.L, mean, covariance);
}

// The filter's states and `behind`, prefix sums from the end, each of the steps after its own
extern "C" __global__ void __launch_bounds__(THREADS)
combined_states(MODEL, Index n_series, const REAL* filtered, const REAL* spread, const REAL* behind, REAL* mean,
           REAL* covariance) {
    UNPACK
    THREAD(n_steps)
    const Element later = packed<Element>(behind, row);
    Gauss x;
    Information said;
    load_state(x, filtered, spread, series * n_steps + k);
    EACH(i, NX) said.eta[i] = later.eta[i];
    said.J = later.J;
    combine_information(said, x);
    put_state(series * n_steps + k, x.m, x.P, mean, covariance);
}
