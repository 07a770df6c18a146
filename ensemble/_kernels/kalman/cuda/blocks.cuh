// Filter and smoothers for states and observations of any size: time is cut into chunks, one block of threads each.
//
// A first kernel sums up each chunk as one element, `join_*` scan the elements, and a last kernel replays the recursion in
// every chunk from the state before it (or, backwards, from what later observations say of the state behind it). Arrays are
// those of `Cut`. A block works in dynamic shared memory, or in `space` entries of `scratch` where that is not null.
//
// Element of the filter: A (nx, nx), b, C (nx, nx), eta, J (nx, nx): x_last | x_before = N(A x + b, C), and the observations
// inside say exp(eta' x - x' J x / 2) of x_before. Element of the disturbance smoother: E (nx, nx), c, M (nx, nx): what later
// observations say, lambda and N, becomes E lambda + c and E N E' + M.

struct Sizes { int nx, ny; REAL* scratch; Index space; };

#define BLOCK                                                                                            \
    UNPACK                                                                                               \
    const int nx = sizes.nx, ny = sizes.ny;                                                              \
    const Index series = blockIdx.x / n_chunks;                                                          \
    const Index chunk_at = blockIdx.x % n_chunks, start = chunk_at * chunk, stop = min(start + chunk, n_steps); \
    WORKSPACE

#ifndef WORKSPACE
#define WORKSPACE                                                                   \
    extern __shared__ __align__(16) char shared_memory[];                           \
    Workspace work{sizes.scratch != nullptr ? sizes.scratch + blockIdx.x * sizes.space : (REAL*)shared_memory};
#endif

__device__ __forceinline__ Index element_size(int nx) { return 3 * nx * nx + 2 * nx; }
__device__ __forceinline__ Index link_size(int nx) { return 2 * nx * nx + nx; }

__device__ __forceinline__ REAL rounding(int n) {
    return REAL(8 * n) * (sizeof(REAL) == 4 ? REAL(1.1920928955078125e-7) : REAL(2.220446049250313e-16));
}

// The part of its diagonal entry below which a pivot of a predicted covariance leaves no gain for the smoother
__device__ __forceinline__ REAL nearly_singular(int n) { return sizeof(REAL) == 4 ? 8 * rounding(n) : REAL(1e-8); }

struct State { REAL* m; Matrix P; };
struct Information { REAL* eta; Matrix J; };
struct Element { Matrix A; REAL* b; Matrix C; REAL* eta; Matrix J; };
struct Link { Matrix E; REAL* c; Matrix M; };

__device__ __forceinline__ State take_state(Workspace& work, int nx) { return State{work.vector(nx), work.matrix(nx, nx)}; }
__device__ __forceinline__ Information take_information(Workspace& work, int nx) {
    return Information{work.vector(nx), work.matrix(nx, nx)};
}
__device__ __forceinline__ Element take_element(Workspace& work, int nx) {
    return Element{work.matrix(nx, nx), work.vector(nx), work.matrix(nx, nx), work.vector(nx), work.matrix(nx, nx)};
}
__device__ __forceinline__ Link take_link(Workspace& work, int nx) {
    return Link{work.matrix(nx, nx), work.vector(nx), work.matrix(nx, nx)};
}

__device__ __noinline__ void load(const Element& e, const REAL* from, int nx) {
    const int nn = nx * nx;
    load(e.A, from, nx, nx);
    load(e.b, from + nn, nx);
    load(e.C, from + nn + nx, nx, nx);
    load(e.eta, from + 2 * nn + nx, nx);
    load(e.J, from + 2 * nn + 2 * nx, nx, nx);
}

__device__ __noinline__ void store(REAL* to, const Element& e, int nx) {
    const int nn = nx * nx;
    store(to, e.A, nx, nx);
    store(to + nn, e.b, nx);
    store(to + nn + nx, e.C, nx, nx);
    store(to + 2 * nn + nx, e.eta, nx);
    store(to + 2 * nn + 2 * nx, e.J, nx, nx);
}

__device__ __noinline__ void load(const Link& e, const REAL* from, int nx) {
    load(e.E, from, nx, nx);
    load(e.c, from + nx * nx, nx);
    load(e.M, from + nx * nx + nx, nx, nx);
}

__device__ __noinline__ void store(REAL* to, const Link& e, int nx) {
    store(to, e.E, nx, nx);
    store(to + nx * nx, e.c, nx);
    store(to + nx * nx + nx, e.M, nx, nx);
}

__device__ __noinline__ void load(const State& x, const REAL* mean, const REAL* covariance, int nx) {
    load(x.m, mean, nx);
    load(x.P, covariance, nx, nx, true);
}

// Whether a number is none of those that lost elements leave; all threads read it before any of them goes on
__device__ __noinline__ bool is_known(const REAL* number) {
    const REAL value = *number;
    __syncthreads();
    return value == value;
}

// --- one step
struct Transition { Matrix F, Q; REAL* u; };

struct Observation { Matrix H, R; REAL *r, *missing; };  // r holds y - d; missing entries have zero rows, and unit noise

// Factors of the innovation covariance S = H P H' + R = L D L', L^-1 H P and behind it L^-1 (y - d - H m), the gain and below it
// S^-1 (y - d - H m)
struct Gain { Matrix S, white, K, G, T; REAL *inverse; };

__device__ __forceinline__ Transition take_transition(Workspace& work, int nx) {
    return Transition{work.matrix(nx, nx), work.matrix(nx, nx), work.vector(nx)};
}
__device__ __forceinline__ Observation take_observation(Workspace& work, int nx, int ny) {
    return Observation{work.matrix(ny, nx), work.matrix(ny, ny), work.vector(ny), work.vector(ny)};
}
__device__ __forceinline__ Gain take_gain(Workspace& work, int nx, int ny) {
    return Gain{work.matrix(ny, ny), work.matrix(ny, nx + 1), work.matrix(nx + 1, ny), work.matrix(nx, ny), work.matrix(ny, ny),
                work.vector(ny)};
}

__device__ __noinline__ void load(const Transition& s, Index k, Index series, int nx, const REAL* F, const REAL* Q, const REAL* u,
                     const Index* places) {
    load(s.F, F + places[0] * series + places[1] * k, nx, nx);
    load(s.Q, Q + places[2] * series + places[3] * k, nx, nx, true);
    load(s.u, u + places[8] * series + places[9] * k, nx);
}

__device__ __noinline__ void load(const Observation& o, Index k, Index series, int nx, int ny, const REAL* H, const REAL* R,
                     const REAL* d, const REAL* y, const Index* places) {
    const REAL *const value = y + places[12] * series + places[13] * k, *const offset = d + places[10] * series + places[11] * k;
    const REAL *const design = H + places[4] * series + places[5] * k, *const noise = R + places[6] * series + places[7] * k;
    EACH(i, ny) {
        const bool gone = value[i] != value[i];
        o.missing[i] = gone;
        o.r[i] = gone ? REAL(0) : value[i] - offset[i];
    }
    __syncthreads();
    EACH(e, ny * nx) { const int i = e / nx, j = e - i * nx; o.H(i, j) = o.missing[i] != 0 ? REAL(0) : design[e]; }
    EACH(e, ny * ny) {
        const int i = e / ny, j = e - i * ny;
        const bool gone = o.missing[i] != 0 || o.missing[j] != 0;
        if (j >= i) o.R(i, j) = o.R(j, i) = gone ? REAL(i == j) : noise[e];
    }
    __syncthreads();
}

// Mean and covariance one transition on; `product` and `next` are work space
__device__ __noinline__ void predict(const Transition& s, const State& x, const Matrix product, REAL* next, int nx) {
    EACH(i, nx) {
        REAL sum = s.u[i];
        FOR(j, 0, nx) sum += s.F(i, j) * x.m[j];
        next[i] = sum;
    }
    multiply(product, s.F, x.P, nx, nx, nx);
    EACH(i, nx) x.m[i] = next[i];
    symmetric_product(x.P, product, s.F, nx, nx, s.Q.entries, s.Q.stride);
}

// S, its factors, L^-1 H P, the innovation and the gain, for the predicted state x. True where a pivot is lost in rounding.
__device__ __noinline__ bool innovate(const Observation& o, const State& x, const Gain& g, int nx, int ny) {
    EACH(e, ny * (nx + 1)) {
        const int i = e / (nx + 1), j = e - i * (nx + 1);
        REAL sum = 0;
        if (j < nx)
            for (int k = 0; k < nx; ++k) sum += o.H(i, k) * x.P(k, j);
        else {
            sum = o.r[i];
            FOR(k, 0, nx) sum -= o.H(i, k) * x.m[k];
            if (o.missing[i] != 0) sum = 0;
        }
        g.white(i, j) = sum;
    }
    __syncthreads();
    symmetric_product(g.S, o.H, g.white, ny, nx, o.R.entries, o.R.stride);
    EACH(i, ny) {  // what the rounding of S is in proportion to: its terms may cancel
        REAL sum = 0;
        FOR(k, 0, nx) sum += o.H(i, k) * o.H(i, k) * x.P(k, k);
        g.T(i, 0) = nx * sum + o.R(i, i);
    }
    factor(g.S, g.inverse, ny);
    bool lost = false;
    FOR(i, 0, ny) lost = lost || g.S(i, i) <= rounding(ny) * g.T(i, 0);
    solve(g.S, g.inverse, g.white, g.K, ny, nx + 1);
    return lost;
}

// The state given the observation, from what `innovate` found. The covariance is P - W' D^-1 W with W = L^-1 H P, less what
// the rounding of it leaves of P H' - K R, which is zero otherwise: as accurate as Joseph's form.
__device__ __noinline__ void update(const Observation& o, const State& x, const Gain& g, int nx, int ny) {
    EACH(e, nx * nx) {
        const int i = e / nx, j = e - i * nx;
        if (j < i) continue;
        REAL sum = x.P(i, j);
        FOR(l, 0, ny) sum -= g.white(l, i) * (g.inverse[l] * g.white(l, j));
        x.P(i, j) = x.P(j, i) = sum;
    }
    EACH(i, nx) {
        REAL sum = x.m[i];
        FOR(l, 0, ny) sum += g.white(l, i) * (g.inverse[l] * g.white(l, nx));
        x.m[i] = sum;
    }
    __syncthreads();
    multiply<SET, false, true>(g.G, x.P, o.H, nx, nx, ny);
    multiply<MINUS>(g.G, g.K, o.R, nx, ny, ny);
    multiply(g.T, o.H, g.G, ny, nx, ny);
    EACH(e, nx * ny) {
        const int i = e / ny, j = e - i * ny;
        REAL sum = 0;
        FOR(l, 0, ny) sum += g.K(i, l) * g.T(l, j);
        g.G(i, j) -= REAL(0.5) * sum;
    }
    __syncthreads();
    EACH(e, nx * nx) {
        const int i = e / nx, j = e - i * nx;
        if (j < i) continue;
        REAL sum = x.P(i, j);
        FOR(l, 0, ny) sum -= g.G(i, l) * g.K(j, l) + g.K(i, l) * g.G(j, l);
        x.P(i, j) = x.P(j, i) = sum;
    }
    __syncthreads();
}

// log p(y[k] | y[:k])
__device__ __noinline__ REAL log_density(const Observation& o, const Gain& g, int nx, int ny) {
    REAL sum = 0;
    FOR(i, 0, ny) {
        const REAL w = g.white(i, nx);
        sum += w * w * g.inverse[i] + (o.missing[i] != 0 ? REAL(0) : log(g.S(i, i) * REAL(TWO_PI)));
    }
    return REAL(-0.5) * sum;
}

// L^-1 A in place of A, (ny, columns), by the triangle in S
__device__ __noinline__ void whiten(const Matrix S, const Matrix A, int ny, int columns) {
    EACH(c, columns)
        FOR(i, 0, ny) {
            REAL sum = A(i, c);
            FOR(j, 0, i) sum -= S(i, j) * A(j, c);
            A(i, c) = sum;
        }
    __syncthreads();
}

// One more step at the end of a interval of time. Where its innovation covariance is singular given the state before the
// interval, an observation can fix that state exactly, which no J says: NaN, until the recursion takes over.
__device__ __noinline__ void extend(const Element& e, const Transition& s, bool stands, const Observation& o, const Gain& g,
                       const Matrix HA, const Matrix product, REAL* next, int nx, int ny) {
    const State x{e.b, e.C};
    if (!stands) {
        predict(s, x, product, next, nx);
        multiply(product, s.F, e.A, nx, nx, nx);
        copy(e.A, product, nx, nx);
    }
    const bool lost = innovate(o, x, g, nx, ny);
    multiply(HA, o.H, e.A, ny, nx, nx);
    multiply<MINUS>(e.A, g.K, HA, nx, ny, nx);
    whiten(g.S, HA, ny, nx);
    EACH(c, nx) {
        REAL sum = e.eta[c];
        FOR(i, 0, ny) sum += HA(i, c) * (g.inverse[i] * g.white(i, nx));
        e.eta[c] = sum;
    }
    EACH(f, nx * nx) {
        const int a = f / nx, c = f - a * nx;
        if (c < a) continue;
        REAL sum = e.J(a, c);
        FOR(i, 0, ny) sum += HA(i, a) * (g.inverse[i] * HA(i, c));
        e.J(a, c) = e.J(c, a) = lost ? log(REAL(-1)) : sum;
    }
    update(o, x, g, nx, ny);
}

// --- associative operations
__device__ __noinline__ void combine(const Element& i, const Element& j, const Matrix right, const Matrix M, const Matrix product,
                        REAL* gap, REAL* to, int nx) {
    const int nn = nx * nx;
    EACH(f, nn) {
        const int r = f / nx, c = f - r * nx;
        right(r, c) = i.A(r, c);
        right(r, nx + c) = i.C(r, c);
    }
    EACH(r, nx) {
        REAL sum = i.b[r], rest = j.eta[r];
        FOR(c, 0, nx) { sum += i.C(r, c) * j.eta[c]; rest -= j.J(r, c) * i.b[c]; }
        right(r, 2 * nx) = sum;
        gap[r] = rest;
    }
    __syncthreads();
    solve_sum(i.C, j.J, right, M, nx, 2 * nx + 1);
    const Matrix XC{right.entries + nx, right.stride};
    multiply(M, j.A, right, nx, nx, nx);
    store(to, M, nx, nx);
    EACH(r, nx) {
        REAL mean = j.b[r], information = i.eta[r];
        FOR(k, 0, nx) { mean += j.A(r, k) * right(k, 2 * nx); information += right(k, r) * gap[k]; }
        to[nn + r] = mean;
        to[2 * nn + nx + r] = information;
    }
    multiply(M, j.A, XC, nx, nx, nx);
    symmetric_product(product, M, j.A, nx, nx, j.C.entries, j.C.stride);
    store(to + nn + nx, product, nx, nx);
    multiply(M, j.J, i.A, nx, nx, nx);
    EACH(f, nn) {
        const int a = f / nx, c = f - a * nx;
        if (c < a) continue;
        REAL sum = i.J(a, c);
        FOR(k, 0, nx) sum += right(k, a) * M(k, c);
        product(a, c) = product(c, a) = sum;
    }
    __syncthreads();
    store(to + 2 * nn + 2 * nx, product, nx, nx);
}

__device__ __noinline__ void combine(const Link& i, const Link& j, const Matrix product, const Matrix out, REAL* to, int nx) {
    const int nn = nx * nx;
    multiply(out, i.E, j.E, nx, nx, nx);
    store(to, out, nx, nx);
    EACH(r, nx) {
        REAL sum = i.c[r];
        FOR(k, 0, nx) sum += i.E(r, k) * j.c[k];
        to[nn + r] = sum;
    }
    congruence(out, i.E, j.M, product, nx, nx, i.M.entries, i.M.stride);
    store(to + nn + nx, out, nx, nx);
}

// The state behind a interval of time from the one before it; `right` is (nx, nx + 1)
__device__ __noinline__ void advance(const Element& e, const State& x, const Matrix right, const Matrix M, int nx) {
    EACH(f, nx * nx) { const int r = f / nx, c = f - r * nx; right(r, c) = x.P(r, c); }
    EACH(r, nx) {
        REAL sum = x.m[r];
        FOR(c, 0, nx) sum += x.P(r, c) * e.eta[c];
        right(r, nx) = sum;
    }
    __syncthreads();
    solve_sum(x.P, e.J, right, M, nx, nx + 1);
    multiply(M, e.A, right, nx, nx, nx);
    EACH(r, nx) {
        REAL sum = e.b[r];
        FOR(c, 0, nx) sum += e.A(r, c) * right(c, nx);
        x.m[r] = sum;
    }
    symmetric_product(x.P, M, e.A, nx, nx, e.C.entries, e.C.stride);
}

// What the observations from before a interval of time on say of the state there; `right` is (nx, nx + 1)
__device__ __noinline__ void retreat(const Element& e, const Information& x, const Matrix right, const Matrix M, const Matrix product,
                        REAL* gap, int nx) {
    EACH(f, nx * nx) { const int r = f / nx, c = f - r * nx; right(r, c) = e.A(r, c); }
    EACH(r, nx) {
        REAL sum = x.eta[r];
        FOR(c, 0, nx) sum -= x.J(r, c) * e.b[c];
        gap[r] = sum;
    }
    __syncthreads();
    solve_sum(e.C, x.J, right, M, nx, nx);
    multiply(product, x.J, e.A, nx, nx, nx);
    EACH(r, nx) {
        REAL sum = e.eta[r];
        FOR(k, 0, nx) sum += right(k, r) * gap[k];
        x.eta[r] = sum;
    }
    EACH(f, nx * nx) {
        const int a = f / nx, c = f - a * nx;
        if (c < a) continue;
        REAL sum = e.J(a, c);
        FOR(k, 0, nx) sum += right(k, a) * product(k, c);
        x.J(a, c) = x.J(c, a) = sum;
    }
    __syncthreads();
}

// --- joins: a block for each of n pairs of every series; from one entry to the next it is so many elements, negative for
// scans from the end, and `out` may be one of the operands
#define PAIR                                                                                     \
    const int nx = sizes.nx;                                                                     \
    const Index k = blockIdx.x / n_series, series = blockIdx.x - k * n_series;                   \
    WORKSPACE
