// Small matrices in registers, compiled for one size. Compile-time definitions: REAL, NX, NY.

#define WARP 32
#define THREADS 128
#define WARPS (THREADS / WARP)
#define SYM (NX * (NX + 1) / 2)

template <int N> struct Sym {
    real s[N * (N + 1) / 2];
    __device__ __forceinline__ real& operator()(int i, int j) {
        return s[i <= j ? i * N - i * (i - 1) / 2 + j - i : j * N - j * (j - 1) / 2 + i - j];
    }
    __device__ __forceinline__ real operator()(int i, int j) const {
        return s[i <= j ? i * N - i * (i - 1) / 2 + j - i : j * N - j * (j - 1) / 2 + i - j];
    }
};

// Unrolled loops: up from 0, up from `i`, and down
#define FROM(j, i, n) _Pragma("unroll") for (int j = (i); j < (n); ++j)
#define EACH(i, n) FROM(i, 0, n)
#define DOWN(i, from, to) _Pragma("unroll") for (int i = (from); i > (to); --i)

// One load or store of so many bytes, and how many one may have in an array of `bytes` a step: every step starts at a multiple
__host__ __device__ constexpr int packet_bytes(int bytes) {
    return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : (int)sizeof(real);
}
template <int BYTES> using Packet = PackOf<real, BYTES / (int)sizeof(real)>;

template <int N> __device__ __forceinline__ void read(real* to, const real* from) {
    constexpr int bytes = N * sizeof(real);
    constexpr int size = packet_bytes(bytes), count = size / (int)sizeof(real);
    EACH(i, bytes / size) {
        const Packet<size> packet = ((const Packet<size>*)from)[i];
        EACH(j, count) to[i * count + j] = packet.lane[j];
    }
}

template <int N> __device__ __forceinline__ void write(real* to, const real* from) {
    constexpr int bytes = N * sizeof(real);
    constexpr int size = bytes % 16 == 0 ? 16 : (int)sizeof(real), count = size / (int)sizeof(real);
    EACH(i, bytes / size) {
        Packet<size> packet;
        EACH(j, count) packet.lane[j] = from[i * count + j];
        ((Packet<size>*)to)[i] = packet;
    }
}

template <int N> __device__ __forceinline__ void read_symmetric(Sym<N>& to, const real* from) {
    real full[N * N];
    read<N * N>(full, from);
    EACH(i, N) FROM(j, i, N) to(i, j) = full[i * N + j];
}

template <int N> __device__ __forceinline__ void write_symmetric(real* to, const Sym<N>& from) {
    real full[N * N];
    EACH(i, N) EACH(j, N) full[i * N + j] = from(i, j);
    write<N * N>(to, full);
}

// S = L D L' by elimination without pivoting: S keeps the pivots D on its diagonal. True where a pivot is no more than `part`
// of its entry of `scale`.
template <int N> __device__ __forceinline__ bool factor(
    Sym<N>& S, const real scale[N], real part, real lower[N][N], real inverse[N]) {
    bool lost = false;
    EACH(j, N) {
        lost = lost || !(S(j, j) > part * scale[j]);
        inverse[j] = real(1) / S(j, j);
        FROM(i, j + 1, N) {
            lower[i][j] = S(j, i) * inverse[j];
            FROM(k, i, N) S(i, k) -= lower[i][j] * S(j, k);
        }
    }
    return lost;
}

// out = A S A' + B, S symmetric
__device__ __forceinline__ void congruence(const real A[NX][NX], const Sym<NX>& S, const Sym<NX>& B, Sym<NX>& out) {
    Sym<NX> sum = B;
    EACH(i, NX) {
        real row[NX];
        EACH(k, NX) { row[k] = 0; EACH(l, NX) row[k] += A[i][l] * S(l, k); }
        FROM(j, i, NX) EACH(k, NX) sum(i, j) += row[k] * A[j][k];
    }
    out = sum;
}

// (I + C J) X = right, by elimination with row exchange; X overwrites right
template <int K> __device__ __forceinline__ void solve_sum(const Sym<NX>& C, const Sym<NX>& J, real right[NX][K]) {
    real M[NX][NX];
    EACH(i, NX) EACH(j, NX) {
        real sum = i == j;
        EACH(k, NX) sum += C(i, k) * J(k, j);
        M[i][j] = sum;
    }
    EACH(c, NX) {
        FROM(i, c + 1, NX) {
            const bool swap = fabs(M[i][c]) > fabs(M[c][c]);
            FROM(j, c, NX) {
                const real a = M[c][j], b = M[i][j];
                M[c][j] = swap ? b : a;
                M[i][j] = swap ? a : b;
            }
            EACH(j, K) {
                const real a = right[c][j], b = right[i][j];
                right[c][j] = swap ? b : a;
                right[i][j] = swap ? a : b;
            }
        }
        const real inverse = real(1) / M[c][c];
        FROM(j, c + 1, NX) M[c][j] *= inverse;
        EACH(j, K) right[c][j] *= inverse;
        FROM(i, c + 1, NX) {
            const real f = M[i][c];
            FROM(j, c + 1, NX) M[i][j] -= f * M[c][j];
            EACH(j, K) right[i][j] -= f * right[c][j];
        }
    }
    DOWN(c, NX - 1, 0) EACH(i, c) EACH(j, K) right[i][j] -= M[i][c] * right[c][j];
}
