// Kalman filter and smoothers over chunks of time, for one size: compile with -DREAL=float -DNX=4 -DNY=2.
//
// A series is cut into chunks of `chunk` steps, one a thread.
//   reduce: each thread sums up its chunk as one element (A, b, C, eta, J), by ordinary filter steps, which need no inverse
//           larger than NY; a block scans its elements by warp shuffles, keeps what stands before (or behind) each chunk
//           inside the block, and the block's total.
//   starts: one block a series scans the totals and leaves the state at the start (or end) of every block.
//   replay: each thread carries the block's state through the elements before its chunk and runs the plain recursion.
// The smoother does the same backwards with (E, g, L). Arrays are (series, steps, ...), entries of a step together; strides
// over series and steps are in entries of REAL, 0 where something is shared or constant. `places` holds them in pairs.

#define WARP 32
#define THREADS 128
#define SYM (NX * (NX + 1) / 2)
#define TWO_PI 6.283185307179586476925286766559

typedef long long Index;

// --- small matrices in registers
template <int N> struct Sym {
    REAL s[N * (N + 1) / 2];
    __device__ __forceinline__ REAL& operator()(int i, int j) {
        return s[i <= j ? i * N - i * (i - 1) / 2 + j - i : j * N - j * (j - 1) / 2 + i - j];
    }
    __device__ __forceinline__ REAL operator()(int i, int j) const {
        return s[i <= j ? i * N - i * (i - 1) / 2 + j - i : j * N - j * (j - 1) / 2 + i - j];
    }
};

struct Gauss { REAL m[NX]; Sym<NX> P; };
struct Information { REAL eta[NX]; Sym<NX> J; };
struct Element { REAL A[NX][NX]; REAL b[NX]; Sym<NX> C; REAL eta[NX]; Sym<NX> J; };
struct Link { REAL E[NX][NX]; REAL g[NX]; Sym<NX> L; };
struct Step { REAL F[NX][NX]; Sym<NX> Q; REAL u[NX]; };
struct Look { REAL H[NY][NX]; Sym<NY> R; REAL r[NY]; bool gone[NY]; };

// Small matrices live in registers, so every loop over them is unrolled; large ones in local memory, so none is.
#if NX <= 5 && NY <= 5
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("unroll 1")
#endif
#define EACH(i, n) UNROLL for (int i = 0; i < (n); ++i)
#define FROM(j, i, n) UNROLL for (int j = (i); j < (n); ++j)
#define DOWN(i, from, to) UNROLL for (int i = (from); i > (to); --i)

__device__ __forceinline__ void identity(Element& e) {
    EACH(i, NX) { EACH(j, NX) e.A[i][j] = i == j; e.b[i] = e.eta[i] = 0; }
    EACH(i, SYM) e.C.s[i] = e.J.s[i] = 0;
}

__device__ __forceinline__ void identity(Link& e) {
    EACH(i, NX) { EACH(j, NX) e.E[i][j] = i == j; e.g[i] = 0; }
    EACH(i, SYM) e.L.s[i] = 0;
}

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

// --- one step
struct Model {  // of one series
    const REAL *F, *Q, *H, *R, *u, *d, *y;
    int by[7];  // strides over steps
    int predict_first;

    __device__ __forceinline__ Model(
        const REAL* F, const REAL* Q, const REAL* H, const REAL* R, const REAL* u, const REAL* d, const REAL* y,
        const Index* places, Index series, int predict_first)
        : F(F + places[0] * series), Q(Q + places[2] * series), H(H + places[4] * series), R(R + places[6] * series),
          u(u + places[8] * series), d(d + places[10] * series), y(y + places[12] * series), predict_first(predict_first) {
        EACH(i, 7) by[i] = (int)places[2 * i + 1];
    }

    __device__ __forceinline__ void load(Step& s, Index k) const {
        if (k == 0 && !predict_first) {  // the prior stands at the first observation: nothing moves
            EACH(i, NX) { EACH(j, NX) s.F[i][j] = i == j; s.u[i] = 0; }
            EACH(i, SYM) s.Q.s[i] = 0;
            return;
        }
        read<NX * NX>(&s.F[0][0], F + by[0] * k);
        read_symmetric(s.Q, Q + by[1] * k);
        read<NX>(s.u, u + by[4] * k);
    }

    // r holds y - d; missing entries have zero rows in H and the identity in R
    __device__ __forceinline__ void load(Look& l, Index k) const {
        REAL offset[NY];
        read<NY>(l.r, y + by[6] * k);
        read<NY>(offset, d + by[5] * k);
        read<NY * NX>(&l.H[0][0], H + by[2] * k);
        read_symmetric(l.R, R + by[3] * k);
        EACH(i, NY) l.gone[i] = l.r[i] != l.r[i];
        EACH(i, NY) {
            l.r[i] = l.gone[i] ? REAL(0) : l.r[i] - offset[i];
            EACH(j, NX) l.H[i][j] = l.gone[i] ? REAL(0) : l.H[i][j];
            l.R(i, i) = l.gone[i] ? REAL(1) : l.R(i, i);
            FROM(j, i + 1, NY) l.R(i, j) = l.gone[i] || l.gone[j] ? REAL(0) : l.R(i, j);
        }
    }
};

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

// --- scan of a block; `backward`, thread 0 holds the last stretch of time
template <class E> __device__ __forceinline__ E shifted(const E& e, int distance) {
    constexpr int n = sizeof(E) / sizeof(REAL);
    E out;
    const REAL* from = (const REAL*)&e;
    REAL* to = (REAL*)&out;
    EACH(i, n) to[i] = __shfl_up_sync(0xffffffffu, from[i], distance);
    return out;
}

template <class E> __device__ __forceinline__ void join(bool backward, const E& before, const E& after, E& out) {
    if (backward) combine(after, before, out);
    else combine(before, after, out);
}

// The exclusive scan over the block's threads; `total` on all threads
template <class E> __device__ void block_scan(bool backward, E& e, E& total, E* room) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll 1
    for (int distance = 1; distance < WARP; distance *= 2) {
        const E other = shifted(e, distance);
        if (lane >= distance) join(backward, other, e, e);
    }
    if (lane == WARP - 1) room[warp] = e;
    e = shifted(e, 1);
    if (lane == 0) identity(e);
    __syncthreads();
    E before;
    identity(before);
    total = room[0];
#pragma unroll 1
    for (int w = 1; w < THREADS / WARP; ++w) {
        if (w == warp) before = total;
        join(backward, total, room[w], total);
    }
    if (warp > 0) join(backward, before, e, e);
    __syncthreads();
}

template <class E> __device__ __forceinline__ void keep(REAL* to, Index stride, Index at, const E& e) {
    constexpr int n = sizeof(E) / sizeof(REAL);
    const REAL* from = (const REAL*)&e;
    EACH(i, n) to[i * stride + at] = from[i];
}

template <class E> __device__ __forceinline__ E kept(const REAL* from, Index stride, Index at) {
    constexpr int n = sizeof(E) / sizeof(REAL);
    E e;
    REAL* to = (REAL*)&e;
    EACH(i, n) to[i] = from[i * stride + at];
    return e;
}

#define MODEL const REAL *F, const REAL *Q, const REAL *H, const REAL *R, const REAL *u, const REAL *d, const REAL *y, \
    const REAL *m0, const REAL *P0, const Index *places, int predict_first, Index n_steps, int chunk, int n_chunks

#define N_BLOCKS ((n_chunks + THREADS - 1) / THREADS)

// `local`: what stands before each chunk in its block; `ends`, if not null: what stands behind it. `totals` of the blocks.
extern "C" __global__ void __launch_bounds__(THREADS) filter_reduce(MODEL, REAL* local, REAL* ends, REAL* totals) {
    __shared__ Element room[THREADS / WARP];
    const Index series = blockIdx.y, stride = (Index)N_BLOCKS * THREADS;
    const Model model(F, Q, H, R, u, d, y, places, series, predict_first);
    // Forward scans number threads along time; the scan from the end runs over the same elements in reverse.
    const Index c = (Index)blockIdx.x * THREADS + threadIdx.x;
    Element e, total;
    identity(e);
    const Index first = c * chunk, last = min(first + chunk, n_steps);
#pragma unroll 1
    for (Index k = first; k < last; ++k) {
        Step s;
        Look l;
        model.load(s, k);
        model.load(l, k);
        extend(e, s, l);
    }
    const Element own = e;
    block_scan(false, e, total, room);
    keep(local + series * stride * (Index)(sizeof(Element) / sizeof(REAL)), stride, c, e);
    if (threadIdx.x == 0)
        keep(totals + series * N_BLOCKS * (Index)(sizeof(Element) / sizeof(REAL)), N_BLOCKS, blockIdx.x, total);
    if (ends != nullptr) {
        // Turn the block round through global memory: thread t takes the element of thread THREADS - 1 - t.
        REAL* turned = ends + series * stride * (Index)(sizeof(Element) / sizeof(REAL));
        const Index mirror = (Index)blockIdx.x * THREADS + (THREADS - 1 - threadIdx.x);
        keep(turned, stride, mirror, own);
        __syncthreads();
        e = kept<Element>(turned, stride, c);
        __syncthreads();
        block_scan(true, e, total, room);
        keep(turned, stride, mirror, e);
    }
}

// States before each block from the totals, and with `infos` what the observations behind each block say of its end
extern "C" __global__ void __launch_bounds__(THREADS)
filter_starts(const REAL* totals, int n_blocks, const REAL* m0, const REAL* P0, const Index* places, REAL* starts, REAL* infos) {
    __shared__ Element room[THREADS / WARP];
    const Index series = blockIdx.x;
    totals += series * n_blocks * (Index)(sizeof(Element) / sizeof(REAL));
    const int each = (n_blocks + THREADS - 1) / THREADS;
    Element e, total;
    if (starts != nullptr) {
        const int first = min(n_blocks, (int)threadIdx.x * each), last = min(n_blocks, first + each);
        identity(e);
#pragma unroll 1
        for (int k = first; k < last; ++k) combine(e, kept<Element>(totals, n_blocks, k), e);
        block_scan(false, e, total, room);
        Gauss x;
        read<NX>(x.m, m0 + places[14] * series);
        read_symmetric(x.P, P0 + places[16] * series);
        advance(e, x);
        starts += series * n_blocks * (Index)(sizeof(Gauss) / sizeof(REAL));
#pragma unroll 1
        for (int k = first; k < last; ++k) {
            keep(starts, n_blocks, k, x);
            advance(kept<Element>(totals, n_blocks, k), x);
        }
    }
    if (infos != nullptr) {
        const int last = n_blocks - min(n_blocks, (int)threadIdx.x * each), first = max(0, last - each);
        identity(e);
#pragma unroll 1
        for (int k = last - 1; k >= first; --k) combine(kept<Element>(totals, n_blocks, k), e, e);
        block_scan(true, e, total, room);
        Information x;
        EACH(i, NX) x.eta[i] = e.eta[i];
        x.J = e.J;
        infos += series * n_blocks * (Index)(sizeof(Information) / sizeof(REAL));
#pragma unroll 1
        for (int k = last - 1; k >= first; --k) {
            keep(infos, n_blocks, k, x);
            retreat(kept<Element>(totals, n_blocks, k), x);
        }
    }
}

// The plain filter of each chunk. One chunk a series (`starts` null): threads are series.
extern "C" __global__ void __launch_bounds__(THREADS)
filter_replay(MODEL, Index n_series, const REAL* local, const REAL* starts, REAL* mean, REAL* covariance, REAL* terms) {
    const Index id = (Index)blockIdx.x * THREADS + threadIdx.x, stride = (Index)N_BLOCKS * THREADS;
    const Index series = starts == nullptr ? id : blockIdx.y, c = starts == nullptr ? 0 : id;
    if (series >= n_series || c >= n_chunks) return;
    const Model model(F, Q, H, R, u, d, y, places, series, predict_first);
    Gauss x;
    if (starts == nullptr) {
        read<NX>(x.m, m0 + places[14] * series);
        read_symmetric(x.P, P0 + places[16] * series);
    } else {
        x = kept<Gauss>(starts + series * N_BLOCKS * (Index)(sizeof(Gauss) / sizeof(REAL)), N_BLOCKS, blockIdx.x);
        advance(kept<Element>(local + series * stride * (Index)(sizeof(Element) / sizeof(REAL)), stride, c), x);
    }
    const Index first = c * chunk, last = min(first + chunk, n_steps);
#pragma unroll 1
    for (Index k = first; k < last; ++k) {
        Step s;
        Look l;
        Gain g;
        model.load(s, k);
        model.load(l, k);
        move(s, x);
        look(l, x, g);
        const Index at = series * n_steps + k;
        write<NX>(mean + at * NX, x.m);
        write_symmetric(covariance + at * NX * NX, x.P);
        if (terms != nullptr) terms[at] = log_density(l, g);
    }
}

// Two filters that meet: runs back over each chunk and turns filtered into smoothed means and covariances in place
extern "C" __global__ void __launch_bounds__(THREADS)
meet_replay(MODEL, const REAL* ends, const REAL* infos, REAL* mean, REAL* covariance) {
    const Index series = blockIdx.y, stride = (Index)N_BLOCKS * THREADS;
    const Index c = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (c >= n_chunks) return;
    const Model model(F, Q, H, R, u, d, y, places, series, predict_first);
    Information x = kept<Information>(
        infos + series * N_BLOCKS * (Index)(sizeof(Information) / sizeof(REAL)), N_BLOCKS, blockIdx.x);
    retreat(kept<Element>(ends + series * stride * (Index)(sizeof(Element) / sizeof(REAL)), stride, c), x);
    const Index first = c * chunk, last = min(first + chunk, n_steps);
#pragma unroll 1
    for (Index k = last - 1; k >= first; --k) {
        const Index at = series * n_steps + k;
        Gauss f;
        read<NX>(f.m, mean + at * NX);
        read_symmetric(f.P, covariance + at * NX * NX);
        REAL right[NX][NX + 1];
        EACH(r, NX) {
            REAL sum = f.m[r];
            EACH(j, NX) { right[r][j] = f.P(r, j); sum += f.P(r, j) * x.eta[j]; }
            right[r][NX] = sum;
        }
        solve_sum<NX + 1>(f.P, x.J, right);
        EACH(r, NX) { f.m[r] = right[r][NX]; FROM(j, r, NX) f.P(r, j) = REAL(0.5) * (right[r][j] + right[j][r]); }
        write<NX>(mean + at * NX, f.m);
        write_symmetric(covariance + at * NX * NX, f.P);
        if (k > first) {
            Step s;
            Look l;
            Element e;
            model.load(s, k);
            model.load(l, k);
            identity(e);
            extend(e, s, l);
            retreat(e, x);
        }
    }
}

// --- the smoother of Rauch, Tung and Striebel; chunk 0 is the last one, and steps run back inside
extern "C" __global__ void __launch_bounds__(THREADS)
smooth_reduce(MODEL, const REAL* mean, const REAL* covariance, REAL* local, REAL* totals) {
    __shared__ Link room[THREADS / WARP];
    const Index series = blockIdx.y, stride = (Index)N_BLOCKS * THREADS;
    const Model model(F, Q, H, R, u, d, y, places, series, 1);
    const Index c = (Index)blockIdx.x * THREADS + threadIdx.x;
    Link e, total;
    identity(e);
    const Index last = n_steps - 1 - c * chunk, first = max((Index)0, last - chunk);
#pragma unroll 1
    for (Index k = last - 1; k >= first; --k) {
        const Index at = series * n_steps + k;
        Step s;
        Gauss x;
        Link one;
        model.load(s, k + 1);
        read<NX>(x.m, mean + at * NX);
        read_symmetric(x.P, covariance + at * NX * NX);
        link(s, x, one);
        combine(one, e, e);
    }
    block_scan(true, e, total, room);
    keep(local + series * stride * (Index)(sizeof(Link) / sizeof(REAL)), stride, c, e);
    if (threadIdx.x == 0)
        keep(totals + series * N_BLOCKS * (Index)(sizeof(Link) / sizeof(REAL)), N_BLOCKS, blockIdx.x, total);
}

extern "C" __global__ void __launch_bounds__(THREADS)
smooth_starts(const REAL* totals, int n_blocks, Index n_steps, const REAL* mean, const REAL* covariance, REAL* starts) {
    __shared__ Link room[THREADS / WARP];
    const Index series = blockIdx.x, at = series * n_steps + n_steps - 1;
    totals += series * n_blocks * (Index)(sizeof(Link) / sizeof(REAL));
    const int each = (n_blocks + THREADS - 1) / THREADS;
    const int first = min(n_blocks, (int)threadIdx.x * each), last = min(n_blocks, first + each);
    Link e, total;
    identity(e);
#pragma unroll 1
    for (int k = first; k < last; ++k) combine(kept<Link>(totals, n_blocks, k), e, e);
    block_scan(true, e, total, room);
    Gauss x;
    read<NX>(x.m, mean + at * NX);
    read_symmetric(x.P, covariance + at * NX * NX);
    advance(e, x);
    starts += series * n_blocks * (Index)(sizeof(Gauss) / sizeof(REAL));
#pragma unroll 1
    for (int k = first; k < last; ++k) {
        keep(starts, n_blocks, k, x);
        advance(kept<Link>(totals, n_blocks, k), x);
    }
}

// `smooth_mean`, `smooth_covariance` may not be the filter's arrays: neighbours read them
extern "C" __global__ void __launch_bounds__(THREADS)
smooth_replay(MODEL, Index n_series, const REAL* mean, const REAL* covariance, const REAL* local, const REAL* starts,
              REAL* smooth_mean, REAL* smooth_covariance) {
    const Index id = (Index)blockIdx.x * THREADS + threadIdx.x, stride = (Index)N_BLOCKS * THREADS;
    const Index series = starts == nullptr ? id : blockIdx.y, c = starts == nullptr ? 0 : id;
    if (series >= n_series || c >= n_chunks) return;
    const Model model(F, Q, H, R, u, d, y, places, series, 1);
    const Index last = n_steps - 1 - c * chunk, first = max((Index)0, last - chunk);
    Gauss later;
    if (c == 0) {
        const Index at = series * n_steps + n_steps - 1;
        read<NX>(later.m, mean + at * NX);
        read_symmetric(later.P, covariance + at * NX * NX);
        write<NX>(smooth_mean + at * NX, later.m);
        write_symmetric(smooth_covariance + at * NX * NX, later.P);
    }
    if (starts != nullptr) {
        later = kept<Gauss>(starts + series * N_BLOCKS * (Index)(sizeof(Gauss) / sizeof(REAL)), N_BLOCKS, blockIdx.x);
        advance(kept<Link>(local + series * stride * (Index)(sizeof(Link) / sizeof(REAL)), stride, c), later);
    }
#pragma unroll 1
    for (Index k = last - 1; k >= first; --k) {
        const Index at = series * n_steps + k;
        Step s;
        Gauss x;
        Link one;
        model.load(s, k + 1);
        read<NX>(x.m, mean + at * NX);
        read_symmetric(x.P, covariance + at * NX * NX);
        link(s, x, one);
        advance(one, later);
        write<NX>(smooth_mean + at * NX, later.m);
        write_symmetric(smooth_covariance + at * NX * NX, later.P);
    }
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
