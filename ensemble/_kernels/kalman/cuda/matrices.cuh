// Small matrices in registers, compiled for one size: -DREAL=float -DNX=4 -DNY=2.

#define WARP 32
#define THREADS 128
#define WARPS (THREADS / WARP)
#define SYM (NX * (NX + 1) / 2)

template <int N> struct Sym {
    REAL s[N * (N + 1) / 2];
    __device__ __forceinline__ REAL& operator()(int i, int j) {
        return s[i <= j ? i * N - i * (i - 1) / 2 + j - i : j * N - j * (j - 1) / 2 + i - j];
    }
    __device__ __forceinline__ REAL operator()(int i, int j) const {
        return s[i <= j ? i * N - i * (i - 1) / 2 + j - i : j * N - j * (j - 1) / 2 + i - j];
    }
};

#define UNROLL _Pragma("unroll")
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
