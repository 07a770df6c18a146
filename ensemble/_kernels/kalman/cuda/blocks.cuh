// Filter and smoothers for states and observations of any size: time is divided into chunks, one block of threads each.
//
// A first kernel reduces each chunk to one element, `combine_*_elements` scan the elements, and a last kernel runs the recursion
// in every chunk from the state before it (or, backwards, from the information of the later observations). Arrays are those of
// `SeriesLayout`. A block works in dynamic shared memory, or in `space` entries of `scratch` where that is not null.
//
// Element of the filter: A (nx, nx), b, C (nx, nx), eta, J (nx, nx): x_last | x_before = N(A x + b, C), and the likelihood of
// x_before given the interval's observations is exp(eta' x - x' J x / 2). Element of the disturbance smoother: E (nx, nx), c,
// M (nx, nx): lambda and N after the interval become E lambda + c and E N E' + M before it.

struct Sizes { int nx, ny; real* scratch; int64 space; };

#define BLOCK                                                                                            \
    UNPACK                                                                                               \
    const int nx = sizes.nx, ny = sizes.ny;                                                              \
    const int64 series = blockIdx.x / n_chunks;                                                          \
    const int64 chunk_at = blockIdx.x % n_chunks, start = chunk_at * chunk, stop = min(start + chunk, n_steps); \
    WORKSPACE

#ifndef WORKSPACE
#define WORKSPACE                                                                   \
    extern __shared__ __align__(16) char shared_memory[];                           \
    Workspace work{sizes.scratch != nullptr ? sizes.scratch + blockIdx.x * sizes.space : (real*)shared_memory};
#endif

__device__ __forceinline__ int64 filter_element_size(int nx) { return 3 * nx * nx + 2 * nx; }
__device__ __forceinline__ int64 smoother_element_size(int nx) { return 2 * nx * nx + nx; }

struct State { real* m; Matrix P; };
struct Information { real* eta; Matrix J; };
struct FilterElement { Matrix A; real* b; Matrix C; real* eta; Matrix J; };
struct SmootherElement { Matrix E; real* c; Matrix M; };

__device__ __forceinline__ State take_state(Workspace& work, int nx) { return State{work.vector(nx), work.matrix(nx, nx)}; }
__device__ __forceinline__ Information take_information(Workspace& work, int nx) {
    return Information{work.vector(nx), work.matrix(nx, nx)};
}
// eta, then J, of the state before a range; null for none
__device__ __forceinline__ void load(const Information& x, const real* from, int nx) {
    if (from != nullptr) {
        load(x.eta, from, nx);
        load(x.J, from + nx, nx, nx);
    } else {
        fill(x.eta, nx, 0);
        fill(x.J, nx, nx, 0, 0);
    }
}

__device__ __forceinline__ FilterElement take_filter_element(Workspace& work, int nx) {
    return FilterElement{work.matrix(nx, nx), work.vector(nx), work.matrix(nx, nx), work.vector(nx), work.matrix(nx, nx)};
}
__device__ __forceinline__ SmootherElement take_smoother_element(Workspace& work, int nx) {
    return SmootherElement{work.matrix(nx, nx), work.vector(nx), work.matrix(nx, nx)};
}

__device__ __noinline__ void load(const FilterElement& e, const real* from, int nx) {
    const int nn = nx * nx;
    load(e.A, from, nx, nx);
    load(e.b, from + nn, nx);
    load(e.C, from + nn + nx, nx, nx);
    load(e.eta, from + 2 * nn + nx, nx);
    load(e.J, from + 2 * nn + 2 * nx, nx, nx);
}

__device__ __noinline__ void store(real* to, const FilterElement& e, int nx) {
    const int nn = nx * nx;
    store(to, e.A, nx, nx);
    store(to + nn, e.b, nx);
    store(to + nn + nx, e.C, nx, nx);
    store(to + 2 * nn + nx, e.eta, nx);
    store(to + 2 * nn + 2 * nx, e.J, nx, nx);
}

__device__ __noinline__ void load(const SmootherElement& e, const real* from, int nx) {
    load(e.E, from, nx, nx);
    load(e.c, from + nx * nx, nx);
    load(e.M, from + nx * nx + nx, nx, nx);
}

__device__ __noinline__ void store(real* to, const SmootherElement& e, int nx) {
    store(to, e.E, nx, nx);
    store(to + nx * nx, e.c, nx);
    store(to + nx * nx + nx, e.M, nx, nx);
}

__device__ __noinline__ void load(const State& x, const real* mean, const real* covariance, int nx) {
    load(x.m, mean, nx);
    load(x.P, covariance, nx, nx, true);
}

// Whether a number is not NaN; all threads read it before any of them continues
__device__ __noinline__ bool is_known(const real* number) {
    const real value = *number;
    __syncthreads();
    return value == value;
}

// --- one step
struct Transition { Matrix F, Q; real* u; };

struct Observation { Matrix H, R; real *r, *missing; };  // r holds y - d; missing entries have zero rows, and unit noise

// Factors of the innovation covariance S = H P H' + R = L D L'; [L^-1 H P, L^-1 (y - d - H m)]; the transposes of their solutions
// with S, of which the first nx rows are the gain; work space
struct Gain { Matrix S, white, K, G, T; real *inverse; };

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

__device__ __noinline__ void load(const Transition& s, int64 k, int64 series, int nx, const real* F, const real* Q, const real* u,
                     const int64* strides) {
    load(s.F, F + strides[0] * series + strides[1] * k, nx, nx);
    load(s.Q, Q + strides[2] * series + strides[3] * k, nx, nx, true);
    load(s.u, u + strides[8] * series + strides[9] * k, nx);
}

__device__ __noinline__ void load(const Observation& o, int64 k, int64 series, int nx, int ny, const real* H, const real* R,
                     const real* d, const real* y, const int64* strides) {
    const real *const value = y + strides[12] * series + strides[13] * k, *const offset = d + strides[10] * series + strides[11] * k;
    const real *const design = H + strides[4] * series + strides[5] * k, *const noise = R + strides[6] * series + strides[7] * k;
    BLOCK_STRIDE(i, ny) {
        const bool is_missing = value[i] != value[i];
        o.missing[i] = is_missing;
        o.r[i] = is_missing ? real(0) : value[i] - offset[i];
    }
    __syncthreads();
    BLOCK_STRIDE(e, ny * nx) { const int i = e / nx, j = e - i * nx; o.H(i, j) = o.missing[i] != 0 ? real(0) : design[e]; }
    BLOCK_STRIDE(e, ny * ny) {
        const int i = e / ny, j = e - i * ny;
        const bool is_missing = o.missing[i] != 0 || o.missing[j] != 0;
        if (j >= i) o.R(i, j) = o.R(j, i) = is_missing ? real(i == j) : noise[e];
    }
    __syncthreads();
}

// Mean and covariance one transition on; `product` and `next` are work space
__device__ __noinline__ void predict(const Transition& s, const State& x, const Matrix product, real* next, int nx) {
    BLOCK_STRIDE(i, nx) {
        real sum = s.u[i];
        FOR(j, 0, nx) sum += s.F(i, j) * x.m[j];
        next[i] = sum;
    }
    multiply(product, s.F, x.P, nx, nx, nx);
    BLOCK_STRIDE(i, nx) x.m[i] = next[i];
    symmetric_product(x.P, product, s.F, nx, nx, s.Q.entries, s.Q.stride);
}

// S, its factors, L^-1 H P, the innovation and the gain, for the predicted state x. True where a pivot is rounding error.
__device__ __noinline__ bool factor_innovation(const Observation& o, const State& x, const Gain& g, int nx, int ny) {
    BLOCK_STRIDE(e, ny * (nx + 1)) {
        const int i = e / (nx + 1), j = e - i * (nx + 1);
        real sum = 0;
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
    BLOCK_STRIDE(i, ny) {  // the rounding error of S is in proportion to it: the terms of S may cancel
        real sum = 0;
        FOR(k, 0, nx) sum += o.H(i, k) * o.H(i, k) * x.P(k, k);
        g.T(i, 0) = nx * sum + o.R(i, i);
    }
    factor(g.S, g.inverse, ny);
    bool lost = false;
    FOR(i, 0, ny) lost = lost || g.S(i, i) <= rounding(ny) * g.T(i, 0);
    __syncthreads();
    BLOCK_STRIDE(i, ny) if (g.S(i, i) <= lost_part() * g.T(i, 0)) g.S(i, i) = g.inverse[i] = real(0) / real(0);
    __syncthreads();
    solve(g.S, g.inverse, g.white, g.K, ny, nx + 1);
    __syncthreads();
    bool exact = false;
    FOR(l, 0, ny) exact = exact || o.R(l, l) <= 0;
    BLOCK_STRIDE(i, nx) {  // a variance that rounding of those before takes digits from, see `lost_part` of `step.py`
        real variance = x.P(i, i), noise = 0, total = 0;  // of two formulas for it the one that does not cancel
        FOR(l, 0, ny) variance -= g.white(l, i) * (g.inverse[l] * g.white(l, i));
        FOR(l, 0, ny) FOR(j, 0, ny) noise += g.K(i, l) * o.R(l, j) * g.K(i, j);
        FOR(k, 0, nx) {
            real left = i == k ? real(1) : real(0);
            FOR(l, 0, ny) left -= g.K(i, l) * o.H(l, k);
            total += left * left * x.P(k, k);
        }
        if (!exact && variance < lost_part() * (nx * total) && noise < lost_part() * (nx * total)) g.S(0, 0) = real(0) / real(0);
    }
    __syncthreads();
    return lost;
}

// The state given the observation, from the results of `factor_innovation`: P - W' D^-1 W with W = L^-1 H P, corrected by the
// residual G = P H' - K R, which is zero but for rounding. As accurate as Joseph's form.
__device__ __noinline__ void update(const Observation& o, const State& x, const Gain& g, int nx, int ny) {
    BLOCK_STRIDE(e, nx * nx) {
        const int i = e / nx, j = e - i * nx;
        if (j < i) continue;
        real sum = x.P(i, j);
        FOR(l, 0, ny) sum -= g.white(l, i) * (g.inverse[l] * g.white(l, j));
        if (i == j && sum <= known_part(nx) * x.P(i, i)) sum = 0;
        x.P(i, j) = x.P(j, i) = sum;
    }
    BLOCK_STRIDE(i, nx) {
        real sum = x.m[i];
        FOR(l, 0, ny) sum += g.white(l, i) * (g.inverse[l] * g.white(l, nx));
        x.m[i] = sum;
    }
    __syncthreads();
    multiply<SET, false, true>(g.G, x.P, o.H, nx, nx, ny);
    multiply<MINUS>(g.G, g.K, o.R, nx, ny, ny);
    multiply(g.T, o.H, g.G, ny, nx, ny);
    BLOCK_STRIDE(e, nx * ny) {
        const int i = e / ny, j = e - i * ny;
        real sum = 0;
        FOR(l, 0, ny) sum += g.K(i, l) * g.T(l, j);
        g.G(i, j) -= real(0.5) * sum;
    }
    __syncthreads();
    BLOCK_STRIDE(e, nx * nx) {
        const int i = e / nx, j = e - i * nx;
        if (j < i) continue;
        real sum = x.P(i, j);
        FOR(l, 0, ny) sum -= g.G(i, l) * g.K(j, l) + g.K(i, l) * g.G(j, l);
        x.P(i, j) = x.P(j, i) = sum;
    }
    __syncthreads();
}

// log p(y[k] | y[:k])
__device__ __noinline__ real log_density(const Observation& o, const Gain& g, int nx, int ny) {
    real sum = 0;
    FOR(i, 0, ny) {
        const real w = g.white(i, nx);
        sum += w * w * g.inverse[i] + (o.missing[i] != 0 ? real(0) : log(g.S(i, i) * real(TWO_PI)));
    }
    return real(-0.5) * sum;
}

// L^-1 A in place of A, (ny, columns), by the triangle in S
__device__ __noinline__ void whiten(const Matrix S, const Matrix A, int ny, int columns) {
    BLOCK_STRIDE(c, columns)
        FOR(i, 0, ny) {
            real sum = A(i, c);
            FOR(j, 0, i) sum -= S(i, j) * A(j, c);
            A(i, c) = sum;
        }
    __syncthreads();
}

// The element of an interval with one step more at its end. Where the innovation covariance of that step is singular given the
// state before the interval, the observation can fix that state exactly, which no J expresses: NaN.
__device__ __noinline__ void extend(const FilterElement& e, const Transition& s, bool at_prior, const Observation& o, const Gain& g,
                       const Matrix HA, const Matrix product, real* next, int nx, int ny) {
    const State x{e.b, e.C};
    if (!at_prior) {
        predict(s, x, product, next, nx);
        multiply(product, s.F, e.A, nx, nx, nx);
        copy(e.A, product, nx, nx);
    }
    const bool lost = factor_innovation(o, x, g, nx, ny);
    multiply(HA, o.H, e.A, ny, nx, nx);
    multiply<MINUS>(e.A, g.K, HA, nx, ny, nx);
    whiten(g.S, HA, ny, nx);
    BLOCK_STRIDE(c, nx) {
        real sum = e.eta[c];
        FOR(i, 0, ny) sum += HA(i, c) * (g.inverse[i] * g.white(i, nx));
        e.eta[c] = sum;
    }
    BLOCK_STRIDE(f, nx * nx) {
        const int a = f / nx, c = f - a * nx;
        if (c < a) continue;
        real sum = e.J(a, c);
        FOR(i, 0, ny) sum += HA(i, a) * (g.inverse[i] * HA(i, c));
        e.J(a, c) = e.J(c, a) = lost ? log(real(-1)) : sum;
    }
    update(o, x, g, nx, ny);
}

// --- associative operations
__device__ __noinline__ void combine(const FilterElement& i, const FilterElement& j, const Matrix right, const Matrix M, const Matrix product,
                        real* gap, real* to, int nx) {
    const int nn = nx * nx;
    BLOCK_STRIDE(f, nn) {
        const int r = f / nx, c = f - r * nx;
        right(r, c) = i.A(r, c);
        right(r, nx + c) = i.C(r, c);
    }
    BLOCK_STRIDE(r, nx) {
        real sum = i.b[r], rest = j.eta[r];
        FOR(c, 0, nx) { sum += i.C(r, c) * j.eta[c]; rest -= j.J(r, c) * i.b[c]; }
        right(r, 2 * nx) = sum;
        gap[r] = rest;
    }
    __syncthreads();
    solve_sum(i.C, j.J, right, M, nx, 2 * nx + 1);
    const Matrix XC{right.entries + nx, right.stride};
    multiply(M, j.A, right, nx, nx, nx);
    store(to, M, nx, nx);
    BLOCK_STRIDE(r, nx) {
        real mean = j.b[r], information = i.eta[r];
        FOR(k, 0, nx) { mean += j.A(r, k) * right(k, 2 * nx); information += right(k, r) * gap[k]; }
        to[nn + r] = mean;
        to[2 * nn + nx + r] = information;
    }
    multiply(M, j.A, XC, nx, nx, nx);
    symmetric_product(product, M, j.A, nx, nx, j.C.entries, j.C.stride);
    store(to + nn + nx, product, nx, nx);
    multiply(M, j.J, i.A, nx, nx, nx);
    BLOCK_STRIDE(f, nn) {
        const int a = f / nx, c = f - a * nx;
        if (c < a) continue;
        real sum = i.J(a, c);
        FOR(k, 0, nx) sum += right(k, a) * M(k, c);
        product(a, c) = product(c, a) = sum;
    }
    __syncthreads();
    store(to + 2 * nn + 2 * nx, product, nx, nx);
}

__device__ __noinline__ void combine(const SmootherElement& i, const SmootherElement& j, const Matrix product, const Matrix out, real* to, int nx) {
    const int nn = nx * nx;
    multiply(out, i.E, j.E, nx, nx, nx);
    store(to, out, nx, nx);
    BLOCK_STRIDE(r, nx) {
        real sum = i.c[r];
        FOR(k, 0, nx) sum += i.E(r, k) * j.c[k];
        to[nn + r] = sum;
    }
    congruence(out, i.E, j.M, product, nx, nx, i.M.entries, i.M.stride);
    store(to + nn + nx, out, nx, nx);
}

// right = (I + P J)^-1 [P, m + P eta], (nx, nx + 1): covariance and mean of the state x given information (eta, J) on it
__device__ __forceinline__ void condition(
    const State& x, const real* eta, const Matrix J, const Matrix right, const Matrix M, int nx) {
    BLOCK_STRIDE(f, nx * nx) { const int r = f / nx, c = f - r * nx; right(r, c) = x.P(r, c); }
    BLOCK_STRIDE(r, nx) {
        real sum = x.m[r];
        FOR(c, 0, nx) sum += x.P(r, c) * eta[c];
        right(r, nx) = sum;
    }
    __syncthreads();
    solve_sum(x.P, J, right, M, nx, nx + 1);
}

// The state after an interval from the state before it; `right` is (nx, nx + 1)
__device__ __noinline__ void advance(const FilterElement& e, const State& x, const Matrix right, const Matrix M, int nx) {
    condition(x, e.eta, e.J, right, M, nx);
    multiply(M, e.A, right, nx, nx, nx);
    BLOCK_STRIDE(r, nx) {
        real sum = e.b[r];
        FOR(c, 0, nx) sum += e.A(r, c) * right(c, nx);
        x.m[r] = sum;
    }
    symmetric_product(x.P, M, e.A, nx, nx, e.C.entries, e.C.stride);
}

// The information of an interval's observations, and of all later ones in x, on the state before it; `right` is (nx, nx + 1)
__device__ __noinline__ void advance_backward(const FilterElement& e, const Information& x, const Matrix right, const Matrix M, const Matrix product,
                        real* gap, int nx) {
    BLOCK_STRIDE(f, nx * nx) { const int r = f / nx, c = f - r * nx; right(r, c) = e.A(r, c); }
    BLOCK_STRIDE(r, nx) {
        real sum = x.eta[r];
        FOR(c, 0, nx) sum -= x.J(r, c) * e.b[c];
        gap[r] = sum;
    }
    __syncthreads();
    solve_sum(e.C, x.J, right, M, nx, nx);
    multiply(product, x.J, e.A, nx, nx, nx);
    BLOCK_STRIDE(r, nx) {
        real sum = e.eta[r];
        FOR(k, 0, nx) sum += right(k, r) * gap[k];
        x.eta[r] = sum;
    }
    BLOCK_STRIDE(f, nx * nx) {
        const int a = f / nx, c = f - a * nx;
        if (c < a) continue;
        real sum = e.J(a, c);
        FOR(k, 0, nx) sum += right(k, a) * product(k, c);
        x.J(a, c) = x.J(c, a) = sum;
    }
    __syncthreads();
}

// --- scans of elements: a block for each of n pairs of every series. Steps between entries are in elements, negative for scans
// from the end; `out` may be one of the operands
#define PAIR                                                                                     \
    const int nx = sizes.nx;                                                                     \
    const int64 k = blockIdx.x / n_series, series = blockIdx.x - k * n_series;                   \
    WORKSPACE
