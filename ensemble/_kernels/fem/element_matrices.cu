// Element matrices of linear tetrahedra, one pair of element and sample per thread; see element_matrices.py.

// Where an operand is read: its rows are `stride` apart, and `at` is the place of this thread in a row.
struct Operand {
    const real* from;
    int64 stride;

    __device__ inline Operand(const real* array, bool own, offset at, int n_samples, int64 count)
        : from(array + (own ? at : at / n_samples)), stride(own ? count : count / n_samples)
    {
    }

    __device__ inline real next()  // of a row, which is read once
    {
        const real value = __ldcs(from);
        from += stride;
        return value;
    }
};

__global__ void __launch_bounds__(THREADS)
    tet_shape_shape(const real* __restrict__ products, const real* __restrict__ detwei, real* __restrict__ out,
                    int n_points, int n_samples, int64 count)
{
    const offset at = (offset)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    real total[4][4] = {};
#pragma unroll 11
    for (int q = 0; q < n_points; ++q) {
        const real weight = __ldcs(detwei + q * count + at);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j <= i; ++j) total[i][j] = total[i][j] + __ldg(products + 16 * q + 4 * i + j) * weight;
    }
    out += at;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) out[(4 * i + j) * count] = i < j ? total[j][i] : total[i][j];
}

__global__ void __launch_bounds__(THREADS)
    tet_shape_dshape(const real* __restrict__ shape, const real* __restrict__ dshape, const real* __restrict__ detwei,
                     real* __restrict__ out, int own, int n_points, int n_samples, int64 count)
{
    const offset at = (offset)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    Operand gradient(dshape, own, at, n_samples, count);
    real total[3][4][4] = {};
    for (int q = 0; q < n_points; ++q) {
        const real weight = __ldcs(detwei + q * count + at);
        real slope[4][3];
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int d = 0; d < 3; ++d) slope[j][d] = gradient.next();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const real scaled = __ldg(shape + 4 * q + i) * weight;
#pragma unroll
            for (int d = 0; d < 3; ++d)
#pragma unroll
                for (int j = 0; j < 4; ++j) total[d][i][j] = total[d][i][j] + scaled * slope[j][d];
        }
    }
    out += at;
#pragma unroll
    for (int d = 0; d < 3; ++d)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) out[(16 * d + 4 * i + j) * count] = total[d][i][j];
}

template <bool SAME>
__global__ void __launch_bounds__(THREADS)
    tet_gradient_tensor(const real* __restrict__ a, const real* __restrict__ tensor, const real* __restrict__ b,
                        const real* __restrict__ detwei, real* __restrict__ out, int own, int n_points, int n_samples,
                        int64 count)
{
    const offset at = (offset)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    Operand left(a, own & 1, at, n_samples, count), middle(tensor, own >> 1 & 1, at, n_samples, count);
    Operand right(b, own >> 2 & 1, at, n_samples, count), weights(detwei, own >> 3 & 1, at, n_samples, count);
    real total[4][4] = {};
    for (int q = 0; q < n_points; ++q) {
        real g[4][3], G[4][3], T[3][3];
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int d = 0; d < 3; ++d) {
                g[i][d] = left.next();
                if (!SAME) G[i][d] = right.next();
            }
#pragma unroll
        for (int k = 0; k < 3; ++k)
#pragma unroll
            for (int m = 0; m < 3; ++m) T[k][m] = middle.next();
        const real weight = weights.next();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            real h[3];
#pragma unroll
            for (int m = 0; m < 3; ++m) h[m] = (g[i][0] * T[0][m] + g[i][1] * T[1][m] + g[i][2] * T[2][m]) * weight;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const real* other = SAME ? g[j] : G[j];
                total[i][j] = total[i][j] + (h[0] * other[0] + h[1] * other[1] + h[2] * other[2]);
            }
        }
    }
    out += at;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) out[(4 * i + j) * count] = total[i][j];
}
