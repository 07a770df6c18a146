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
    UNPACK
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
    UNPACK
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

// The filter's states and `behind`, prefix sums from the end, each of the steps after its own
extern "C" __global__ void __launch_bounds__(THREADS)
met_states(Index n, const REAL* filtered, const REAL* spread, const REAL* behind, REAL* mean, REAL* covariance) {
    THREAD(n)
    const Element later = packed<Element>(behind, k);
    Gauss x;
    Information said;
    load_state(x, filtered, spread, k);
    EACH(i, NX) said.eta[i] = later.eta[i];
    said.J = later.J;
    meet(said, x);
    put_state(k, x.m, x.P, mean, covariance);
}

// --- the operations on whole arrays, for scans that join many pairs at a time; `step_i`, `step_j` count elements
extern "C" __global__ void __launch_bounds__(THREADS)
combine_pairs(Index n, Index step_i, Index step_j, const REAL* Ai, const REAL* bi, const REAL* Ci, const REAL* ei,
              const REAL* Ji, const REAL* Aj, const REAL* bj, const REAL* Cj, const REAL* ej, const REAL* Jj,
              REAL* A, REAL* b, REAL* C, REAL* eta, REAL* J) {
    const Index k = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (k >= n) return;
    Element x, z;
    Index at = k * step_i;
    read<NX * NX>(&x.A[0][0], Ai + at * NX * NX);
    read<NX>(x.b, bi + at * NX);
    read_symmetric(x.C, Ci + at * NX * NX);
    read<NX>(x.eta, ei + at * NX);
    read_symmetric(x.J, Ji + at * NX * NX);
    at = k * step_j;
    read<NX * NX>(&z.A[0][0], Aj + at * NX * NX);
    read<NX>(z.b, bj + at * NX);
    read_symmetric(z.C, Cj + at * NX * NX);
    read<NX>(z.eta, ej + at * NX);
    read_symmetric(z.J, Jj + at * NX * NX);
    combine(x, z, x);
    write<NX * NX>(A + k * NX * NX, &x.A[0][0]);
    write<NX>(b + k * NX, x.b);
    write_symmetric(C + k * NX * NX, x.C);
    write<NX>(eta + k * NX, x.eta);
    write_symmetric(J + k * NX * NX, x.J);
}

extern "C" __global__ void __launch_bounds__(THREADS)
combine_links(Index n, Index step_i, Index step_j, const REAL* Ei, const REAL* gi, const REAL* Li, const REAL* Ej,
              const REAL* gj, const REAL* Lj, REAL* E, REAL* g, REAL* L) {
    const Index k = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (k >= n) return;
    Link x, z;
    Index at = k * step_i;
    read<NX * NX>(&x.E[0][0], Ei + at * NX * NX);
    read<NX>(x.g, gi + at * NX);
    read_symmetric(x.L, Li + at * NX * NX);
    at = k * step_j;
    read<NX * NX>(&z.E[0][0], Ej + at * NX * NX);
    read<NX>(z.g, gj + at * NX);
    read_symmetric(z.L, Lj + at * NX * NX);
    combine(x, z, x);
    write<NX * NX>(E + k * NX * NX, &x.E[0][0]);
    write<NX>(g + k * NX, x.g);
    write_symmetric(L + k * NX * NX, x.L);
}
