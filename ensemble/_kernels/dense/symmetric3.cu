// Symmetric 3 x 3 matrices by cyclic Jacobi rotations, one per thread; what is computed stands in symmetric3.py.

#define SWEEPS 16

__device__ inline bool negligible(real app, real aqq, real apq)
{
    const real tiny = sizeof(real) == 8 ? (real)1.1102230246251565e-16 : (real)5.9604644775390625e-08;
    const real x = fabs(app), y = fabs(aqq);
    return fabs(apq) <= (y < x ? y : x) * tiny;
}

__device__ inline void turn(real& x, real& y, real s, real tau)
{
    const real before = x;
    x = before - s * (y + tau * before), y = y + s * (before - tau * y);
}

// What a matrix with this largest entry is multiplied by, as `Scales` of symmetric3.py has it.
__device__ inline real scale_of(real largest)
{
    const bool wide = sizeof(real) == 8;
    const real most = (real)(wide ? 0x1p1021 : 0x1p125), up = (real)(wide ? 0x1p512 : 0x1p64);
    return largest > most ? (real)0.0625 : largest < 1 / up ? up : (real)1;
}

__device__ inline real larger(real x, real y)
{
    const real size = fabs(y);
    return size > x ? size : x;
}

// Eigenvalues w and vectors v of a matrix times `scale`.
struct Decomposition {
    real w[3], v[3][3], scale;

    // Entry (P, Q) is made zero; arp and arq are the others of the two rows.
    template <int P, int Q> __device__ inline void rotate(real& apq, real& arp, real& arq)
    {
        if (negligible(w[P], w[Q], apq)) return;
        const real theta = (w[Q] - w[P]) / (apq + apq);
        real t = 1 / (fabs(theta) + sqrt(theta * theta + 1));
        t = theta < 0 ? -t : t;
        const real c = 1 / sqrt(t * t + 1), s = t * c, tau = s / (c + 1);
        w[P] = w[P] - t * apq, w[Q] = w[Q] + t * apq, apq = 0;
        turn(arp, arq, s, tau);
#pragma unroll
        for (int i = 0; i < 3; ++i) turn(v[i][P], v[i][Q], s, tau);
    }

    template <int I, int J> __device__ inline void order()
    {
        if (!(w[J] < w[I])) return;
        exchange(w[I], w[J]);
#pragma unroll
        for (int i = 0; i < 3; ++i) exchange(v[i][I], v[i][J]);
    }

    __device__ static inline void exchange(real& x, real& y)
    {
        const real before = x;
        x = y, y = before;
    }

    __device__ inline Decomposition(const real* __restrict__ A, int64 at, int64 count)
    {
        real a01 = A[3 * count + at], a02 = A[6 * count + at], a12 = A[7 * count + at];
        w[0] = A[at], w[1] = A[4 * count + at], w[2] = A[8 * count + at];
        scale = scale_of(larger(larger(larger(larger(larger(fabs(w[0]), w[1]), w[2]), a01), a02), a12));
        w[0] = w[0] * scale, w[1] = w[1] * scale, w[2] = w[2] * scale;
        a01 = a01 * scale, a02 = a02 * scale, a12 = a12 * scale;
        const real spoilt = w[0] * 0 + a01 * 0 + a02 * 0 + w[1] * 0 + a12 * 0 + w[2] * 0;
        a01 = a01 + spoilt, a02 = a02 + spoilt, a12 = a12 + spoilt;
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            w[i] = w[i] + spoilt;
#pragma unroll
            for (int j = 0; j < 3; ++j) v[i][j] = spoilt + (i == j ? 1 : 0);
        }
        for (int sweep = 0; sweep < SWEEPS; ++sweep) {
            if (negligible(w[0], w[1], a01) && negligible(w[0], w[2], a02) && negligible(w[1], w[2], a12)) break;
            rotate<0, 1>(a01, a02, a12);
            rotate<0, 2>(a02, a01, a12);
            rotate<1, 2>(a12, a01, a02);
        }
        order<0, 1>();
        order<1, 2>();
        order<0, 1>();
    }
};

__global__ void __launch_bounds__(THREADS) small_eigh3(const real* __restrict__ A, real* __restrict__ out, int64 count)
{
    const int64 at = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    const Decomposition made(A, at, count);
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        out[i * count + at] = made.w[i] * (1 / made.scale);
#pragma unroll
        for (int j = 0; j < 3; ++j) out[(3 + 3 * i + j) * count + at] = made.v[i][j];
    }
}

template <bool INVERSE>
__global__ void __launch_bounds__(THREADS) small_root3(const real* __restrict__ A, real* __restrict__ out, int64 count)
{
    const int64 at = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    const Decomposition made(A, at, count);
    const real unit = INVERSE ? sqrt(made.scale) : 1 / sqrt(made.scale);
    real f[3];
#pragma unroll
    for (int k = 0; k < 3; ++k) f[k] = INVERSE ? 1 / sqrt(made.w[k]) : sqrt(made.w[k]);
#pragma unroll
    for (int i = 0; i < 3; ++i)
#pragma unroll
        for (int j = 0; j <= i; ++j) {
            const real *a = made.v[i], *b = made.v[j];
            const real total = a[0] * f[0] * b[0] + a[1] * f[1] * b[1] + a[2] * f[2] * b[2];
            out[(3 * i + j) * count + at] = total * unit;
            out[(3 * j + i) * count + at] = total * unit;
        }
}
