// Small matrices in registers, compiled for one size: -DREAL=float -DNX=4 -DNY=2.

#define WARP 32
#define THREADS 128
#define WARPS (THREADS / WARP)
#define SYM (NX * (NX + 1) / 2)
#define TWO_PI 6.283185307179586476925286766559

typedef long long Index;

template <int N> struct Sym {
    REAL s[N * (N + 1) / 2];
    __device__ __forceinline__ REAL& operator()(int i, int j) {
        return s[i <= j ? i * N - i * (i - 1) / 2 + j - i : j * N - j * (j - 1) / 2 + i - j];
    }
    __device__ __forceinline__ REAL operator()(int i, int j) const {
        return s[i <= j ? i * N - i * (i - 1) / 2 + j - i : j * N - j * (j - 1) / 2 + i - j];
    }
};

// Small matrices live in registers, so every loop over them is unrolled; large ones in local memory, so none is.
#if NX <= 5 && NY <= 5
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("unroll 1")
#endif
#define EACH(i, n) UNROLL for (int i = 0; i < (n); ++i)
#define FROM(j, i, n) UNROLL for (int j = (i); j < (n); ++j)
#define DOWN(i, from, to) UNROLL for (int i = (from); i > (to); --i)

template <int N> __device__ __forceinline__ void read(REAL* to, const REAL* from) {
    constexpr int bytes = N * sizeof(REAL);
    if constexpr (bytes % 16 == 0) {
        struct alignas(16) Line { REAL x[16 / sizeof(REAL)]; };
        EACH(i, bytes / 16) {
            const Line line = ((const Line*)from)[i];
            EACH(j, (int)(16 / sizeof(REAL))) to[i * (16 / sizeof(REAL)) + j] = line.x[j];
        }
    } else if constexpr (bytes % 8 == 0 && sizeof(REAL) == 4) {
        struct alignas(8) Pair { REAL x[2]; };
        EACH(i, bytes / 8) {
            const Pair pair = ((const Pair*)from)[i];
            EACH(j, 2) to[2 * i + j] = pair.x[j];
        }
    } else {
        EACH(i, N) to[i] = from[i];
    }
}

template <int N> __device__ __forceinline__ void write(REAL* to, const REAL* from) {
    constexpr int bytes = N * sizeof(REAL);
    if constexpr (bytes % 16 == 0) {
        struct alignas(16) Line { REAL x[16 / sizeof(REAL)]; };
        EACH(i, bytes / 16) {
            Line line;
            EACH(j, (int)(16 / sizeof(REAL))) line.x[j] = from[i * (16 / sizeof(REAL)) + j];
            ((Line*)to)[i] = line;
        }
    } else {
        EACH(i, N) to[i] = from[i];
    }
}

template <int N> __device__ __forceinline__ void read_symmetric(Sym<N>& to, const REAL* from) {
    REAL full[N * N];
    read<N * N>(full, from);
    EACH(i, N) FROM(j, i, N) to(i, j) = full[i * N + j];
}

template <int N> __device__ __forceinline__ void write_symmetric(REAL* to, const Sym<N>& from) {
    REAL full[N * N];
    EACH(i, N) EACH(j, N) full[i * N + j] = from(i, j);
    write<N * N>(to, full);
}

// out = A S A' + B, S symmetric
__device__ __forceinline__ void congruence(const REAL A[NX][NX], const Sym<NX>& S, const Sym<NX>& B, Sym<NX>& out) {
    Sym<NX> sum = B;
    EACH(i, NX) {
        REAL row[NX];
        EACH(k, NX) { row[k] = 0; EACH(l, NX) row[k] += A[i][l] * S(l, k); }
        FROM(j, i, NX) EACH(k, NX) sum(i, j) += row[k] * A[j][k];
    }
    out = sum;
}

// (I + C J) X = right, by elimination with row exchange; X overwrites right
template <int K> __device__ __forceinline__ void solve_sum(const Sym<NX>& C, const Sym<NX>& J, REAL right[NX][K]) {
    REAL M[NX][NX];
    EACH(i, NX) EACH(j, NX) {
        REAL sum = i == j;
        EACH(k, NX) sum += C(i, k) * J(k, j);
        M[i][j] = sum;
    }
    EACH(c, NX) {
        FROM(i, c + 1, NX) {
            const bool swap = fabs(M[i][c]) > fabs(M[c][c]);
            FROM(j, c, NX) {
                const REAL a = M[c][j], b = M[i][j];
                M[c][j] = swap ? b : a;
                M[i][j] = swap ? a : b;
            }
            EACH(j, K) {
                const REAL a = right[c][j], b = right[i][j];
                right[c][j] = swap ? b : a;
                right[i][j] = swap ? a : b;
            }
        }
        const REAL inverse = REAL(1) / M[c][c];
        FROM(j, c + 1, NX) M[c][j] *= inverse;
        EACH(j, K) right[c][j] *= inverse;
        FROM(i, c + 1, NX) {
            const REAL f = M[i][c];
            FROM(j, c + 1, NX) M[i][j] -= f * M[c][j];
            EACH(j, K) right[i][j] -= f * right[c][j];
        }
    }
    DOWN(c, NX - 1, 0) EACH(i, c) EACH(j, K) right[i][j] -= M[i][c] * right[c][j];
}
// What a stretch of time says: states, elements of the filter, links of the smoother, and how they join.

struct Gauss { REAL m[NX]; Sym<NX> P; };
struct Information { REAL eta[NX]; Sym<NX> J; };
struct Element { REAL A[NX][NX]; REAL b[NX]; Sym<NX> C; REAL eta[NX]; Sym<NX> J; };
struct Link { REAL E[NX][NX]; REAL g[NX]; Sym<NX> L; };

__device__ __forceinline__ void identity(Element& e) {
    EACH(i, NX) { EACH(j, NX) e.A[i][j] = i == j; e.b[i] = e.eta[i] = 0; }
    EACH(i, SYM) e.C.s[i] = e.J.s[i] = 0;
}

__device__ __forceinline__ void identity(Link& e) {
    EACH(i, NX) { EACH(j, NX) e.E[i][j] = i == j; e.g[i] = 0; }
    EACH(i, SYM) e.L.s[i] = 0;
}

// --- associative operations; the results may be the operands
__device__ __forceinline__ void combine(const Element& i, const Element& j, Element& out) {
    REAL right[NX][2 * NX + 1];
    EACH(r, NX) {
        EACH(c, NX) { right[r][c] = i.A[r][c]; right[r][NX + c] = i.C(r, c); }
        REAL sum = i.b[r];
        EACH(c, NX) sum += i.C(r, c) * j.eta[c];
        right[r][2 * NX] = sum;
    }
    solve_sum<2 * NX + 1>(i.C, j.J, right);
    REAL gap[NX];
    EACH(r, NX) { REAL sum = j.eta[r]; EACH(c, NX) sum -= j.J(r, c) * i.b[c]; gap[r] = sum; }
    Sym<NX> J = i.J;
    REAL eta[NX];
    EACH(c, NX) {
        REAL JA[NX];
        EACH(r, NX) { JA[r] = 0; EACH(k, NX) JA[r] += j.J(r, k) * i.A[k][c]; }
        EACH(r, c + 1) EACH(k, NX) J(r, c) += right[k][r] * JA[k];
        REAL sum = i.eta[c];
        EACH(k, NX) sum += right[k][c] * gap[k];
        eta[c] = sum;
    }
    Sym<NX> C = j.C;
    REAL A[NX][NX], b[NX];
    EACH(r, NX) {
        EACH(c, NX) { A[r][c] = 0; EACH(k, NX) A[r][c] += j.A[r][k] * right[k][c]; }
        REAL sum = j.b[r], row[NX];
        EACH(c, NX) { sum += j.A[r][c] * right[c][2 * NX]; row[c] = 0; EACH(k, NX) row[c] += j.A[r][k] * right[k][NX + c]; }
        b[r] = sum;
        FROM(c, r, NX) EACH(k, NX) C(r, c) += row[k] * j.A[c][k];
    }
    EACH(r, NX) { EACH(c, NX) out.A[r][c] = A[r][c]; out.b[r] = b[r]; out.eta[r] = eta[r]; }
    out.C = C;
    out.J = J;
}

__device__ __forceinline__ void combine(const Link& i, const Link& j, Link& out) {
    Link both;
    EACH(r, NX) {
        EACH(c, NX) { both.E[r][c] = 0; EACH(k, NX) both.E[r][c] += i.E[r][k] * j.E[k][c]; }
        REAL sum = i.g[r];
        EACH(k, NX) sum += i.E[r][k] * j.g[k];
        both.g[r] = sum;
    }
    congruence(i.E, j.L, i.L, both.L);
    out = both;
}

// The state behind a stretch of time from the state before it
__device__ __forceinline__ void advance(const Element& e, Gauss& x) {
    REAL right[NX][NX + 1];
    EACH(r, NX) {
        REAL sum = x.m[r];
        EACH(c, NX) { right[r][c] = x.P(r, c); sum += x.P(r, c) * e.eta[c]; }
        right[r][NX] = sum;
    }
    solve_sum<NX + 1>(x.P, e.J, right);
    Sym<NX> P = e.C;
    REAL m[NX];
    EACH(r, NX) {
        REAL sum = e.b[r], row[NX];
        EACH(c, NX) { sum += e.A[r][c] * right[c][NX]; row[c] = 0; EACH(k, NX) row[c] += e.A[r][k] * right[k][c]; }
        m[r] = sum;
        FROM(c, r, NX) EACH(k, NX) P(r, c) += row[k] * e.A[c][k];
    }
    EACH(r, NX) x.m[r] = m[r];
    x.P = P;
}

// What the observations from before a stretch of time on say of the state there
__device__ __forceinline__ void retreat(const Element& e, Information& x) {
    REAL right[NX][NX], gap[NX], eta[NX];
    EACH(r, NX) {
        EACH(c, NX) right[r][c] = e.A[r][c];
        REAL sum = x.eta[r];
        EACH(c, NX) sum -= x.J(r, c) * e.b[c];
        gap[r] = sum;
    }
    solve_sum<NX>(e.C, x.J, right);
    Sym<NX> J = e.J;
    EACH(c, NX) {
        REAL JA[NX];
        EACH(r, NX) { JA[r] = 0; EACH(k, NX) JA[r] += x.J(r, k) * e.A[k][c]; }
        EACH(r, c + 1) EACH(k, NX) J(r, c) += right[k][r] * JA[k];
        REAL sum = e.eta[c];
        EACH(k, NX) sum += right[k][c] * gap[k];
        eta[c] = sum;
    }
    EACH(r, NX) x.eta[r] = eta[r];
    x.J = J;
}

__device__ __forceinline__ void advance(const Link& e, Gauss& x) {
    REAL m[NX];
    EACH(r, NX) { REAL sum = e.g[r]; EACH(c, NX) sum += e.E[r][c] * x.m[c]; m[r] = sum; }
    Sym<NX> P;
    congruence(e.E, x.P, e.L, P);
    EACH(r, NX) x.m[r] = m[r];
    x.P = P;
}

// The filter's state given what all later observations say of it
__device__ __forceinline__ void meet(const Information& later, Gauss& x) {
    REAL right[NX][NX + 1];
    EACH(r, NX) {
        REAL sum = x.m[r];
        EACH(c, NX) { right[r][c] = x.P(r, c); sum += x.P(r, c) * later.eta[c]; }
        right[r][NX] = sum;
    }
    solve_sum<NX + 1>(x.P, later.J, right);
    EACH(r, NX) { x.m[r] = right[r][NX]; FROM(c, r, NX) x.P(r, c) = REAL(0.5) * (right[r][c] + right[c][r]); }
}
// One step of time: prediction, update, what a step adds to an element, the link of the smoother.

struct Step { REAL F[NX][NX]; Sym<NX> Q; REAL u[NX]; };
struct Look { REAL H[NY][NX]; Sym<NY> R; REAL r[NY]; bool gone[NY]; };
struct Gain { REAL K[NX][NY]; REAL lower[NY][NY]; REAL inverse[NY]; REAL pivot[NY]; REAL r[NY]; };

__device__ __forceinline__ void move(const Step& s, Gauss& x) {
    REAL m[NX];
    EACH(i, NX) { REAL sum = s.u[i]; EACH(j, NX) sum += s.F[i][j] * x.m[j]; m[i] = sum; }
    Sym<NX> P;
    congruence(s.F, x.P, s.Q, P);
    EACH(i, NX) x.m[i] = m[i];
    x.P = P;
}

__device__ __forceinline__ void forward(const Gain& g, REAL x[NY]) {
    EACH(i, NY) EACH(j, i) x[i] -= g.lower[i][j] * x[j];
}

// Mean and covariance given an observation, in Joseph's form
__device__ __forceinline__ void look(const Look& l, Gauss& x, Gain& g) {
    REAL PHt[NX][NY];
    EACH(a, NX) EACH(i, NY) { PHt[a][i] = 0; EACH(k, NX) PHt[a][i] += x.P(a, k) * l.H[i][k]; }
    Sym<NY> S = l.R;
    EACH(i, NY) FROM(j, i, NY) EACH(k, NX) S(i, j) += l.H[i][k] * PHt[k][j];
    EACH(j, NY) {
        g.pivot[j] = S(j, j);
        g.inverse[j] = REAL(1) / g.pivot[j];
        FROM(i, j + 1, NY) {
            g.lower[i][j] = S(j, i) * g.inverse[j];
            FROM(k, i, NY) S(i, k) -= g.lower[i][j] * S(j, k);
        }
    }
    EACH(a, NX) {
        EACH(i, NY) g.K[a][i] = PHt[a][i];
        forward(g, g.K[a]);
        EACH(i, NY) g.K[a][i] *= g.inverse[i];
        DOWN(i, NY - 1, -1) FROM(j, i + 1, NY) g.K[a][i] -= g.lower[j][i] * g.K[a][j];
    }
    EACH(i, NY) { REAL sum = l.r[i]; EACH(k, NX) sum -= l.H[i][k] * x.m[k]; g.r[i] = l.gone[i] ? REAL(0) : sum; }
    EACH(a, NX) EACH(i, NY) x.m[a] += g.K[a][i] * g.r[i];
    REAL A[NX][NX];
    EACH(a, NX) EACH(c, NX) { A[a][c] = a == c; EACH(i, NY) A[a][c] -= g.K[a][i] * l.H[i][c]; }
    Sym<NX> noise;
    EACH(a, NX) {
        REAL row[NY];
        EACH(i, NY) { row[i] = 0; EACH(j, NY) row[i] += g.K[a][j] * l.R(j, i); }
        FROM(c, a, NX) { noise(a, c) = 0; EACH(i, NY) noise(a, c) += row[i] * g.K[c][i]; }
    }
    Sym<NX> P;
    congruence(A, x.P, noise, P);
    x.P = P;
}

// log p(y[k] | y[:k]) from the gain
__device__ __forceinline__ REAL log_density(const Look& l, Gain& g) {
    forward(g, g.r);
    REAL sum = 0;
    EACH(i, NY) sum += g.r[i] * g.r[i] * g.inverse[i] + (l.gone[i] ? REAL(0) : log(g.pivot[i] * REAL(TWO_PI)));
    return REAL(-0.5) * sum;
}

// One more step at the end of a stretch of time
__device__ __forceinline__ void extend(Element& e, const Step& s, const Look& l) {
    Gauss x;
    EACH(i, NX) x.m[i] = e.b[i];
    x.P = e.C;
    move(s, x);
    REAL FA[NX][NX], G[NY][NX];
    EACH(i, NX) EACH(j, NX) { FA[i][j] = 0; EACH(k, NX) FA[i][j] += s.F[i][k] * e.A[k][j]; }
    EACH(i, NY) EACH(j, NX) { G[i][j] = 0; EACH(k, NX) G[i][j] += l.H[i][k] * FA[k][j]; }
    Gain g;
    look(l, x, g);
    EACH(i, NX) EACH(j, NX) { REAL sum = FA[i][j]; EACH(k, NY) sum -= g.K[i][k] * G[k][j]; e.A[i][j] = sum; }
    EACH(i, NY) EACH(j, i) EACH(c, NX) G[i][c] -= g.lower[i][j] * G[j][c];
    forward(g, g.r);
    EACH(c, NX) EACH(i, NY) {
        const REAL weighted = G[i][c] * g.inverse[i];
        e.eta[c] += weighted * g.r[i];
        FROM(a, c, NX) e.J(c, a) += weighted * G[i][a];
    }
    EACH(i, NX) e.b[i] = x.m[i];
    e.C = x.P;
}

// x[k] given x[k+1] and the observations up to k; a pivot lost in rounding drops out
__device__ __forceinline__ void link(const Step& s, const Gauss& x, Link& e) {
    const REAL tiny = REAL(8 * NX) * (sizeof(REAL) == 4 ? REAL(1.1920928955078125e-7) : REAL(2.220446049250313e-16));
    REAL FP[NX][NX], inverse[NX], lower[NX][NX];
    EACH(i, NX) EACH(j, NX) { FP[i][j] = 0; EACH(k, NX) FP[i][j] += s.F[i][k] * x.P(k, j); }
    Sym<NX> S = s.Q;
    EACH(i, NX) FROM(j, i, NX) EACH(k, NX) S(i, j) += FP[i][k] * s.F[j][k];
    REAL whole[NX];
    EACH(j, NX) whole[j] = S(j, j);
    EACH(j, NX) {
        const REAL pivot = S(j, j);
        inverse[j] = pivot <= tiny * whole[j] ? REAL(0) : REAL(1) / pivot;
        FROM(i, j + 1, NX) {
            lower[i][j] = S(j, i) * inverse[j];
            FROM(k, i, NX) S(i, k) -= lower[i][j] * S(j, k);
        }
    }
    EACH(a, NX) {
        EACH(i, NX) { e.E[a][i] = FP[i][a]; EACH(j, i) e.E[a][i] -= lower[i][j] * e.E[a][j]; }
        EACH(i, NX) e.E[a][i] *= inverse[i];
        DOWN(i, NX - 1, -1) FROM(j, i + 1, NX) e.E[a][i] -= lower[j][i] * e.E[a][j];
    }
    REAL ahead[NX], A[NX][NX];
    EACH(i, NX) { REAL sum = s.u[i]; EACH(j, NX) sum += s.F[i][j] * x.m[j]; ahead[i] = sum; }
    EACH(a, NX) {
        REAL sum = x.m[a];
        EACH(i, NX) sum -= e.E[a][i] * ahead[i];
        e.g[a] = sum;
        EACH(c, NX) { A[a][c] = a == c; EACH(i, NX) A[a][c] -= e.E[a][i] * s.F[i][c]; }
    }
    Sym<NX> zero, noise;
    EACH(i, SYM) zero.s[i] = 0;
    congruence(e.E, s.Q, zero, noise);
    congruence(A, x.P, noise, e.L);
}
// What a step needs of the model, brought near before it is needed.
//
// Thread t of a warp walks over a stretch of steps of its own, row t. While it works on one step, the warp copies the next
// step of all its rows into shared memory, 16 bytes a thread and neighbours together wherever a row is that long, so that
// nobody waits for memory and no sector is fetched twice. -DROW=... is what one row takes there, in bytes; 0 for sizes that
// do not fit: those read global memory where they need it. Parts that do not change stay there from the first two steps on.
// With -DPUT=1 a row has room for the state on its way out too. -DPARTS=... has bit p set where kernels need part p.

enum Part { PART_F, PART_Q, PART_H, PART_R, PART_U, PART_D, PART_Y, PART_M, PART_P, N_PARTS };

__host__ __device__ constexpr int entries(int part) {
    return part == PART_F || part == PART_Q || part == PART_P ? NX * NX
        : part == PART_H                                      ? NY * NX
        : part == PART_R                                      ? NY * NY
        : part == PART_U || part == PART_M                    ? NX
                                                              : NY;
}
__host__ __device__ constexpr int bytes_of(int part) { return entries(part) * (int)sizeof(REAL); }
// What one copy carries: arrays are laid out so that every step's entries start at a multiple of it
__host__ __device__ constexpr int piece(int part) {
    return bytes_of(part) % 16 == 0 ? 16 : bytes_of(part) % 8 == 0 ? 8 : (int)sizeof(REAL);
}
__host__ __device__ constexpr int place(int part) {
    int at = 0;
    for (int p = 0; p <= part; ++p)
        if (PARTS >> p & 1) {
            at = (at + piece(p) - 1) / piece(p) * piece(p);
            if (p < part) at += bytes_of(p);
        }
    return at;
}

// Parts of one series in global memory: where step 0 lies, and bytes from step to step
struct Sources {
    const char* from[N_PARTS];
    Index by[N_PARTS];

    __device__ __forceinline__ void set(int part, const REAL* array, Index offset, Index stride) {
        from[part] = (const char*)(array + offset);
        by[part] = stride * (Index)sizeof(REAL);
    }
    template <int PART> __device__ __forceinline__ const REAL* at(Index k) const {
        return (const REAL*)(from[PART] + by[PART] * k);
    }
};

#define MODEL const REAL *F, const REAL *Q, const REAL *H, const REAL *R, const REAL *u, const REAL *d, const REAL *y, \
    const REAL *m0, const REAL *P0, const Index *places, int predict_first, Index n_steps, int chunk, int n_chunks

__device__ __forceinline__ void model_of(
    Sources& s, Index series, const REAL* F, const REAL* Q, const REAL* H, const REAL* R, const REAL* u, const REAL* d,
    const REAL* y, const Index* places) {
    const REAL* const arrays[] = {F, Q, H, R, u, d, y};
    EACH(p, 7) s.set(p, arrays[p], places[2 * p] * series, places[2 * p + 1]);
}

__device__ __forceinline__ void states_of(Sources& s, Index series, Index n_steps, const REAL* m, const REAL* P) {
    s.set(PART_M, m, series * n_steps * NX, NX);
    s.set(PART_P, P, series * n_steps * NX * NX, NX * NX);
}

template <int SIZE> __device__ __forceinline__ void copy_async(char* to, const char* from) {
#ifdef __CUDA_ARCH__  // the second level of cache takes in the whole line, which the next steps will ask for
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (SIZE == 16) asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(SIZE) : "memory");
#else
    for (int i = 0; i < SIZE; ++i) to[i] = from[i];
#endif
}

__device__ __forceinline__ void close_group() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_all_but_one() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

// Rows of one warp. Row r is at step k0 + r * row + way * i when it takes its i-th step. Rows from lo to hi take `length`
// steps; row `odd` only those from odd_from to odd_to.
struct Rows {
    Index k0, row;
    int way, lo, hi, odd, odd_from, odd_to, length;

    __device__ __forceinline__ Index step(int r, int i) const { return k0 + r * row + way * i; }
    __device__ __forceinline__ bool on(int r, int i) const {
        return (r >= lo && r < hi) || (r == odd && i >= odd_from && i < odd_to);
    }

    // Chunks c, c + 1, ... of n steps in all, the short one last; the first step of chunk 0 is `start`
    __device__ __forceinline__ Rows(Index start, int way, Index c, int chunk, Index n)
        : k0(start + way * c * chunk), row((Index)way * chunk), way(way), lo(0), odd_from(0) {
        const Index left = max((Index)0, n - c * chunk);
        hi = (int)min((Index)WARP, left / chunk);
        odd = hi;
        odd_to = hi < WARP ? (int)(left - (Index)hi * chunk) : 0;
        length = hi ? chunk : odd_to;
    }

    // Chunks c, c - 1, ... of the same n steps, each from its end to its start
    __device__ __forceinline__ Rows(Index c, int chunk, Index n, int n_chunks)
        : k0((c + 1) * chunk - 1), row(-(Index)chunk), way(-1), odd_to(chunk) {
        const Index past = max((Index)-1, min((Index)WARP, c - (n_chunks - 1)));  // the row of the last chunk
        odd = (int)past;
        odd_from = (int)((Index)n_chunks * chunk - n);
        lo = odd + 1;
        hi = (int)max((Index)0, min((Index)WARP, c + 1));
        length = odd < hi ? chunk : 0;
    }
};

#ifndef STAGES
#define STAGES extern __shared__ __align__(16) char stages[];
#endif
#define STAGE_BYTES (2 * THREADS * ROW)

// Where a row keeps a state on its way out
__host__ __device__ constexpr int aligned(int at, int size) { return (at + size - 1) / size * size; }
#define OUT_M aligned(place(N_PARTS), 16)
#define OUT_P aligned(OUT_M + bytes_of(PART_M), 16)

#if ROW
static_assert(ROW % 16 == 0 && ROW >= (PUT ? OUT_P + bytes_of(PART_P) : place(N_PARTS)), "a row is longer than its room");
#endif

struct Feed {
    const Sources& source;
    const Rows& rows;
    char* stage;  // of this warp: two of them, one being filled while the other is read
    int lane;
    bool whole, plain;            // all rows take all steps; and no part is the same at all of them
    const char* from[N_PARTS];    // this lane's first piece of the next step, and where it goes
    int to[N_PARTS];

    __device__ __forceinline__ Feed(const Sources& source, const Rows& rows, char* stages)
        : source(source), rows(rows), stage(stages + (threadIdx.x / WARP) * 2 * WARP * ROW), lane(threadIdx.x % WARP),
          whole(rows.lo == 0 && rows.hi == WARP), plain(whole) {
#if ROW
        start<0>();
#endif
    }

    template <int PART> __device__ __forceinline__ void start() {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) {
                constexpr int size = piece(PART), n = bytes_of(PART) / size;
                if constexpr (WARP % n == 0) {  // a warp's copies are as many whole rows
                    from[PART] = source.from[PART] + source.by[PART] * rows.step(lane / n, 0) + lane % n * size;
                    to[PART] = lane / n * ROW + place(PART) + lane % n * size;
                    plain = plain && source.by[PART] != 0;
                } else {
                    plain = false;
                }
            }
            start<PART + 1>();
        }
    }

    __device__ __forceinline__ bool on(int r, int i) const { return whole || rows.on(r, i); }

    __device__ __forceinline__ char* row_of(int r, int i) const { return stage + ((i & 1) * WARP + r) * ROW; }

    template <int PART> __device__ __forceinline__ void ask_part(int i) {
        constexpr int size = piece(PART), n = bytes_of(PART) / size;
        const bool steady = source.by[PART] == 0;
        if (steady && i > 1) return;  // it stays where it was put
        if constexpr (WARP % n == 0) {
            const Index leap = steady ? 0 : (Index)(WARP * size) * rows.row;
            EACH(q, n) {
                const int r = q * (WARP / n) + lane / n;
                if (steady || on(r, i)) copy_async<size>(row_of(q * (WARP / n), i) + to[PART], from[PART] + q * leap);
            }
            if (!steady) from[PART] += rows.way * bytes_of(PART);
        } else {
            const char* const start = source.from[PART] + source.by[PART] * rows.step(0, i);
            const Index by = source.by[PART] * rows.row;
            EACH(q, n) {
                const int each = q * WARP + lane, r = each / n, at = each % n * size;
                if (steady || on(r, i)) copy_async<size>(row_of(r, i) + place(PART) + at, start + r * by + at);
            }
        }
    }

    template <int PART> __device__ __forceinline__ void ask_plainly(int i) {
        constexpr int size = piece(PART), n = bytes_of(PART) / size;
        const Index leap = (Index)(WARP * size) * rows.row;
        EACH(q, n) copy_async<size>(row_of(q * (WARP / n), i) + to[PART], from[PART] + q * leap);
        from[PART] += rows.way * bytes_of(PART);
    }

    template <int PART> __device__ __forceinline__ void ask_parts(int i) {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) ask_part<PART>(i);
            ask_parts<PART + 1>(i);
        }
    }

    template <int PART> __device__ __forceinline__ void ask_all_plainly(int i) {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) ask_plainly<PART>(i);
            ask_all_plainly<PART + 1>(i);
        }
    }

    // Begin to bring the i-th step of every row; called with 0, 1, 2, ...
    __device__ __forceinline__ void ask(int i) {
#if ROW
        if (i < rows.length) {
            if (plain) ask_all_plainly<0>(i);
            else ask_parts<0>(i);
        }
        close_group();
#endif
    }

    // Wait until the i-th step is here, the one after it perhaps under way
    __device__ __forceinline__ void take(int i) const {
#if ROW
        wait_for_all_but_one();
        __syncwarp();
#endif
    }

    // Everyone has read the i-th step
    __device__ __forceinline__ void release() const {
#if ROW
        __syncwarp();
#endif
    }

    template <int PART> __device__ __forceinline__ const REAL* at(int i) const {
#if ROW
        return (const REAL*)(row_of(lane, i) + place(PART));
#else
        return source.at<PART>(rows.step(lane, i));
#endif
    }

    // Leave a state where `Exit` finds it, or write it at once where there is no room
    __device__ __forceinline__ void put(int i, const Gauss& x, REAL* mean, REAL* covariance) const {
#if ROW && PUT
        write<NX>((REAL*)(row_of(lane, i) + OUT_M), x.m);
        write_symmetric((REAL*)(row_of(lane, i) + OUT_P), x.P);
#else
        if (!on(lane, i)) return;
        const Index k = rows.step(lane, i);
        write<NX>(mean + k * NX, x.m);
        write_symmetric(covariance + k * NX * NX, x.P);
#endif
    }
};

// The way out: the states of a warp's rows, one step after they were put, neighbours together
struct Exit {
    const Feed& feed;
    char *mean, *covariance;  // this lane's first piece of the next state

    __device__ __forceinline__ Exit(const Feed& feed, REAL* mean, REAL* covariance)
        : feed(feed), mean(start<PART_M>(mean)), covariance(start<PART_P>(covariance)) {}

    template <int PART> __device__ __forceinline__ char* start(REAL* to) const {
        constexpr int size = piece(PART), n = bytes_of(PART) / size;
        constexpr bool even = WARP % n == 0;
        return (char*)to + bytes_of(PART) * feed.rows.step(even ? feed.lane / n : 0, 0) + (even ? feed.lane % n * size : 0);
    }

    // Write what was put as the i-th step; the warp has met since. Called with 0, 1, 2, ...
    __device__ __forceinline__ void give(int i) {
#if ROW && PUT
        give_part<PART_M, OUT_M>(i, mean);
        give_part<PART_P, OUT_P>(i, covariance);
#endif
    }

    template <int PART, int PLACE> __device__ __forceinline__ void give_part(int i, char*& to) const {
        constexpr int size = piece(PART), n = bytes_of(PART) / size;
        struct alignas(size) Piece { REAL x[size / sizeof(REAL)]; };
        if constexpr (WARP % n == 0) {
            const Index leap = (Index)(WARP * size) * feed.rows.row;
            const int at = feed.lane / n * ROW + PLACE + feed.lane % n * size;
            Piece pieces[n];
            EACH(q, n) pieces[q] = *(const Piece*)(feed.row_of(q * (WARP / n), i) + at);
            EACH(q, n) if (feed.on(q * (WARP / n) + feed.lane / n, i)) *(Piece*)(to + q * leap) = pieces[q];
        } else {
            const Index by = bytes_of(PART) * feed.rows.row;
            EACH(q, n) {
                const int each = q * WARP + feed.lane, r = each / n, at = each % n * size;
                if (feed.on(r, i)) *(Piece*)(to + r * by + at) = *(const Piece*)(feed.row_of(r, i) + PLACE + at);
            }
        }
        to += feed.rows.way * bytes_of(PART);
    }
};

// Everything that was asked for so far is asked for before anything is used: a thread on its own then waits but once
__device__ __forceinline__ void ask_at_once() {
#ifdef __CUDA_ARCH__
    __syncwarp(__activemask());
#endif
}

// --- steps out of a feed, or out of global memory
struct Direct {  // one row, a step at a time
    const Sources& from;
    template <int PART> __device__ __forceinline__ const REAL* at(Index k) const { return from.at<PART>(k); }
};

// `still`: the prior stands at the first observation, nothing moves
template <class From, class I> __device__ __forceinline__ void load(Step& s, const From& from, I i, bool still) {
    read<NX * NX>(&s.F[0][0], from.template at<PART_F>(i));
    read_symmetric(s.Q, from.template at<PART_Q>(i));
    read<NX>(s.u, from.template at<PART_U>(i));
    if (still) {
        asm volatile("");  // a branch that is hardly ever taken, not a choice for every number
        EACH(a, NX) { EACH(b, NX) s.F[a][b] = a == b; s.u[a] = 0; }
        EACH(a, SYM) s.Q.s[a] = 0;
    }
}

// r holds y - d; missing entries have zero rows in H and the identity in R
template <class From, class I> __device__ __forceinline__ void load(Look& l, const From& from, I i) {
    REAL offset[NY];
    read<NY>(l.r, from.template at<PART_Y>(i));
    read<NY>(offset, from.template at<PART_D>(i));
    read<NY * NX>(&l.H[0][0], from.template at<PART_H>(i));
    read_symmetric(l.R, from.template at<PART_R>(i));
    EACH(a, NY) l.gone[a] = l.r[a] != l.r[a];
    EACH(a, NY) {
        l.r[a] = l.gone[a] ? REAL(0) : l.r[a] - offset[a];
        EACH(b, NX) l.H[a][b] = l.gone[a] ? REAL(0) : l.H[a][b];
        l.R(a, a) = l.gone[a] ? REAL(1) : l.R(a, a);
        FROM(b, a + 1, NY) l.R(a, b) = l.gone[a] || l.gone[b] ? REAL(0) : l.R(a, b);
    }
}

template <class From, class I> __device__ __forceinline__ void load(Gauss& x, const From& from, I i) {
    read<NX>(x.m, from.template at<PART_M>(i));
    read_symmetric(x.P, from.template at<PART_P>(i));
}

__device__ __forceinline__ void load_state(Gauss& x, const REAL* mean, const REAL* covariance, Index at) {
    read<NX>(x.m, mean + at * NX);
    read_symmetric(x.P, covariance + at * NX * NX);
}
// Scans over the threads of a block and over the blocks of a launch. `backward`: thread 0 and block 0 hold the last
// stretch of time.

template <class E> __host__ __device__ constexpr int size_of() { return (int)(sizeof(E) / sizeof(REAL)); }

template <class E> __device__ __forceinline__ E shifted(const E& e, int distance) {
    E out;
    const REAL* from = (const REAL*)&e;
    REAL* to = (REAL*)&out;
    EACH(i, size_of<E>()) to[i] = __shfl_up_sync(0xffffffffu, from[i], distance);
    return out;
}

template <class E> __device__ __forceinline__ void join(bool backward, const E& before, const E& after, E& out) {
    if (backward) combine(after, before, out);
    else combine(before, after, out);
}

// The exclusive scan over the first `count` threads, the others holding the neutral element; `total` on all threads
template <class E> __device__ void block_scan(bool backward, int count, E& e, E& total, E* room) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll 1
    for (int distance = 1; distance < min(WARP, count); distance *= 2) {
        const E other = shifted(e, distance);
        if (lane >= distance) join(backward, other, e, e);
    }
    if (lane == min(WARP, count - warp * WARP) - 1) room[warp] = e;
    e = shifted(e, 1);
    if (lane == 0) identity(e);
    __syncthreads();
    E before;
    identity(before);
    total = room[0];
#pragma unroll 1
    for (int w = 1; w < WARPS && w * WARP < count; ++w) {
        if (w == warp) before = total;
        join(backward, total, room[w], total);
    }
    if (warp > 0 && warp * WARP < count) join(backward, before, e, e);
    __syncthreads();
}

// Components apart, threads side by side: for what threads leave for threads of a later launch
template <class E> __device__ __forceinline__ void keep(REAL* to, Index stride, Index at, const E& e) {
    const REAL* from = (const REAL*)&e;
    EACH(i, size_of<E>()) to[i * stride + at] = from[i];
}

template <class E> __device__ __forceinline__ E kept(const REAL* from, Index stride, Index at) {
    E e;
    REAL* to = (REAL*)&e;
    EACH(i, size_of<E>()) to[i] = from[i * stride + at];
    return e;
}

// --- memory that other blocks write while this one runs
#ifdef __CUDA_ARCH__
__device__ __forceinline__ void raise(int* flag) { *(volatile int*)flag = 1; }
__device__ __forceinline__ void await(const int* flag) {
    while (*(const volatile int*)flag == 0) {}
    __threadfence();
}
__device__ __forceinline__ REAL fresh(const REAL* from) { return __ldcg(from); }
#else
inline void raise(int* flag) { *flag = 1; }
inline void await(const int*) {}
inline REAL fresh(const REAL* from) { return *from; }
#endif

// --- what blocks tell each other within one launch: `flags` is zero at the start; its first entry hands out places in the
// order in which blocks begin, so that nobody waits for a block that has none yet
__device__ __forceinline__ int turn(int* flags) {
    __shared__ int mine;
    if (threadIdx.x == 0) mine = atomicAdd(flags, 1);
    __syncthreads();
    return mine;
}

template <class E> __device__ __forceinline__ void tell(REAL* totals, int* flags, int place, const E& total) {
    if (threadIdx.x != 0) return;
    write<size_of<E>()>(totals + (Index)place * size_of<E>(), (const REAL*)&total);
    __threadfence();
    raise(flags + 1 + place);
}

template <class E> __device__ __forceinline__ E told(const REAL* totals, int place) {
    E e;
    REAL* to = (REAL*)&e;
    EACH(i, size_of<E>()) to[i] = fresh(totals + (Index)place * size_of<E>() + i);
    return e;
}

// What the blocks at first, first + way, ... have told, `n` of them, in one element; with flags, waits until they have
template <class E>
__device__ __forceinline__ void joined(
    bool backward, const REAL* totals, const int* flags, int first, int way, int n, E& total, E* room) {
    const int each = (n + THREADS - 1) / THREADS;
    E e;
    identity(e);
#pragma unroll 1
    for (int j = (int)threadIdx.x * each; j < min(n, (int)(threadIdx.x + 1) * each); ++j) {
        if (flags != nullptr) await(flags + 1 + first + way * j);
        join(backward, e, told<E>(totals, first + way * j), e);
    }
    block_scan(backward, (n + each - 1) / each, e, total, room);
}
// The filter over chunks of time, one a thread, in one launch.
//
// Each thread sums up its chunk as one element (A, b, C, eta, J) by ordinary filter steps, which need no inverse larger than
// NY; a block scans its elements by warp shuffles and tells its total; once all blocks before it have told theirs, each
// thread carries the prior through them and through the chunks before its own, and runs the plain recursion over its chunk.
// Arrays are (series, steps, ...), entries of a step together; strides over series and steps are in entries of REAL, 0 where
// something is shared or constant. `places` holds them in pairs.

// Likelihoods of one row, written four at a time where steps allow it
struct Terms {
    REAL* to;
    REAL four[4];
    Index last;
    bool fours;

    __device__ __forceinline__ Terms(REAL* to, int chunk)
        : to(to), last(-1), fours(chunk % 4 == 0 && (size_t)to % (4 * sizeof(REAL)) == 0) {}

    __device__ __forceinline__ void say(Index k, REAL term) {
        if (!fours) {
            to[k] = term;
            return;
        }
        EACH(j, 4) four[j] = (k & 3) == j ? term : four[j];
        if ((k & 3) == 3) write<4>(to + k - 3, four);
        last = k;
    }

    // What is left when a row ends
    __device__ __forceinline__ void rest() {
        if (fours) EACH(j, 3) if (last >= 0 && (last & 3) != 3 && j <= (last & 3)) to[(last & ~(Index)3) + j] = four[j];
    }
};

// Where several devices share a series, `pass` is 1 to sum up and stop, `local` then keeping what stands before each chunk
// in its block, and 2 to go on from there once the state before the first chunk is known; else 0. `own`, if not null, keeps
// the element of every chunk: the start of a filter that runs backwards.
extern "C" __global__ void __launch_bounds__(THREADS)
filter_chunks(MODEL, int n_blocks, int* flags, REAL* totals, REAL* own, REAL* local, int pass, REAL* mean,
              REAL* covariance, REAL* terms) {
    STAGES
    __shared__ Element room[WARPS];
    __shared__ Sources from;
    const int place = pass == 2 ? (int)blockIdx.x : turn(flags), block = place % n_blocks;
    const Index series = place / n_blocks, c = (Index)block * THREADS + threadIdx.x;
    if (threadIdx.x == 0) model_of(from, series, F, Q, H, R, u, d, y, places);
    __syncthreads();
    const Rows rows(0, 1, c - threadIdx.x % WARP, chunk, n_steps);
    Feed feed(from, rows, stages);
    const int lane = threadIdx.x % WARP;
    const bool stands = c == 0 && !predict_first;
    Element e, total;
    identity(e);
    if (pass != 2) feed.ask(0);
#pragma unroll 1
    for (int i = 0; i < rows.length && pass != 2; ++i) {
        feed.ask(i + 1);
        feed.take(i);
        if (feed.on(lane, i)) {
            Step s;
            Look l;
            load(l, feed, i);
            load(s, feed, i, stands && i == 0);
            extend(e, s, l);
        }
        feed.release();
    }
    const Index all = (Index)n_blocks * THREADS;
    if (own != nullptr && pass != 2) keep(own + series * all * size_of<Element>(), all, c, e);
    if (pass != 2) {
        block_scan(false, THREADS, e, total, room);
        tell(totals, flags, place, total);
    }
    if (pass == 1) {
        keep(local + series * all * size_of<Element>(), all, c, e);
        return;
    }
    if (pass == 2) e = kept<Element>(local + series * all * size_of<Element>(), all, c);
    Feed again(from, rows, stages);
    again.ask(0);
    Gauss x;
    load_state(x, m0 + places[14] * series, P0 + places[16] * series, 0);
    if (block > 0) {
        joined(false, totals, pass == 2 ? nullptr : flags, place - block, 1, block, total, room);
        advance(total, x);
    }
    advance(e, x);
    Exit exit(again, mean + series * n_steps * NX, covariance + series * n_steps * NX * NX);
    Terms said(terms == nullptr ? nullptr : terms + series * n_steps, chunk);
#pragma unroll 1
    for (int i = 0; i < rows.length; ++i) {
        again.ask(i + 1);
        again.take(i);
        if (i > 0) exit.give(i - 1);
        Step s;
        Look l;
        Gain g;
        load(l, again, i);
        load(s, again, i, stands && i == 0);
        again.release();
        if (again.on(lane, i)) {
            move(s, x);
            look(l, x, g);
            if (terms != nullptr) said.say(rows.step(lane, i), log_density(l, g));
        }
        again.put(i, x, mean + series * n_steps * NX, covariance + series * n_steps * NX * NX);
    }
    again.release();
    if (rows.length > 0) exit.give(rows.length - 1);
    if (terms != nullptr) said.rest();
}

// The plain recursion, a thread a series
extern "C" __global__ void __launch_bounds__(THREADS)
filter_series(MODEL, Index n_series, REAL* mean, REAL* covariance, REAL* terms) {
    const Index series = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (series >= n_series) return;
    Sources from;
    model_of(from, series, F, Q, H, R, u, d, y, places);
    const Direct steps{from};
    Gauss x;
    load_state(x, m0 + places[14] * series, P0 + places[16] * series, 0);
#pragma unroll 1
    for (Index k = 0; k < n_steps; ++k) {
        Step s;
        Look l;
        Gain g;
        load(l, steps, k);
        load(s, steps, k, false);
        ask_at_once();
        if (k > 0 || predict_first) move(s, x);
        look(l, x, g);
        const Index at = series * n_steps + k;
        write<NX>(mean + at * NX, x.m);
        write_symmetric(covariance + at * NX * NX, x.P);
        if (terms != nullptr) terms[at] = log_density(l, g);
    }
}
