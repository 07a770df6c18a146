// The filter and smoothers by scans that join many pairs of elements at a time: elements lie packed, one after another, as
// many entries each as the structure has, and every level of every scan is one launch of `join`.

template <class E> __device__ __forceinline__ E packed(const REAL* from, Index at) {
    E e;
    read<size_of<E>()>((REAL*)&e, from + at * size_of<E>());
    return e;
}

template <class E> __device__ __forceinline__ void pack(REAL* to, Index at, const E& e) {
    write<size_of<E>()>(to + at * size_of<E>(), (const REAL*)&e);
}

#define THREAD(n)                                                      \
    const Index k = (Index)blockIdx.x * THREADS + threadIdx.x;         \
    if (k >= (n)) return;

// The element of every step, the first holding the prior, and the neutral one behind the last
extern "C" __global__ void __launch_bounds__(THREADS) filter_elements(MODEL, REAL* elements) {
    THREAD(n_steps + 1)
    Element e;
    identity(e);
    if (k == n_steps) {
        pack(elements, k, e);
        return;
    }
    Sources from;
    model_of(from, 0, F, Q, H, R, u, d, y, places);
    const Direct steps{from};
    Step s;
    Look l;
    load(l, steps, k);
    load(s, steps, k, k == 0 && !predict_first);
    ask_at_once();
    if (k == 0) {
        Gauss x;
        Gain g;
        load_state(x, m0, P0, 0);
        move(s, x);
        look(l, x, g);
        EACH(i, NX) { EACH(j, NX) e.A[i][j] = 0; e.b[i] = x.m[i]; }
        e.C = x.P;
    } else {
        extend(e, s, l);
    }
    pack(elements, k, e);
}

// The link of every step from the filter's prefix sums, the last of them the filter's last state, and the neutral one
extern "C" __global__ void __launch_bounds__(THREADS) smoother_links(MODEL, const REAL* filtered, REAL* links) {
    THREAD(n_steps + 1)
    Link one;
    if (k == n_steps) {
        identity(one);
        pack(links, k, one);
        return;
    }
    const Element e = packed<Element>(filtered, k);
    if (k == n_steps - 1) {
        EACH(i, NX) { EACH(j, NX) one.E[i][j] = 0; one.g[i] = e.b[i]; }
        one.L = e.C;
    } else {
        Sources from;
        model_of(from, 0, F, Q, H, R, u, d, y, places);
        const Direct steps{from};
        Step s;
        Gauss x;
        load(s, steps, k + 1, false);
        EACH(i, NX) x.m[i] = e.b[i];
        x.P = e.C;
        link(s, x, one);
    }
    pack(links, k, one);
}

template <class E> __device__ __forceinline__ void join_level(
    Index n, const REAL* earlier, Index step_i, const REAL* later, Index step_j, REAL* out, Index step) {
    THREAD(n)
    E e = packed<E>(earlier, k * step_i);
    combine(e, packed<E>(later, k * step_j), e);
    pack(out, k * step, e);
}

// Steps between entries are in elements, negative for scans from the end; `out` may be one of the operands
extern "C" __global__ void __launch_bounds__(THREADS) join_elements(
    Index n, const REAL* earlier, Index step_i, const REAL* later, Index step_j, REAL* out, Index step) {
    join_level<Element>(n, earlier, step_i, later, step_j, out, step);
}

extern "C" __global__ void __launch_bounds__(THREADS) join_links(
    Index n, const REAL* earlier, Index step_i, const REAL* later, Index step_j, REAL* out, Index step) {
    join_level<Link>(n, earlier, step_i, later, step_j, out, step);
}

// --- states out of prefix sums
__device__ __forceinline__ void put_state(Index k, const REAL m[NX], const Sym<NX>& P, REAL* mean, REAL* covariance) {
    write<NX>(mean + k * NX, m);
    write_symmetric(covariance + k * NX * NX, P);
}

extern "C" __global__ void __launch_bounds__(THREADS)
element_states(Index n, const REAL* elements, REAL* mean, REAL* covariance) {
    THREAD(n)
    const Element e = packed<Element>(elements, k);
    put_state(k, e.b, e.C, mean, covariance);
}

extern "C" __global__ void __launch_bounds__(THREADS) link_states(Index n, const REAL* links, REAL* mean, REAL* covariance) {
    THREAD(n)
    const Link e = packed<Link>(links, k);
    put_state(k, e.g, e.L, mean, covariance);
}

// `behind`: prefix sums from the end, each of the steps after its own
extern "C" __global__ void __launch_bounds__(THREADS)
met_states(Index n, const REAL* elements, const REAL* behind, REAL* mean, REAL* covariance) {
    THREAD(n)
    const Element e = packed<Element>(elements, k), later = packed<Element>(behind, k);
    Gauss x;
    Information said;
    EACH(i, NX) { x.m[i] = e.b[i]; said.eta[i] = later.eta[i]; }
    x.P = e.C;
    said.J = later.J;
    meet(said, x);
    put_state(k, x.m, x.P, mean, covariance);
}
