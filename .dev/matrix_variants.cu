// Variants of element_matrices.cu, after it.
#ifndef STREAM
#define STREAM 0
#endif
#ifndef BLOCK
#define BLOCK 192
#endif
__device__ inline void put(real* to, real value)
{
    if (STREAM) __stcs(to, value);
    else *to = value;
}
__device__ inline void put_two(real* to, real a, real b)
{
    if (STREAM) __stcs((double2*)to, make_double2(a, b));
    else *(double2*)to = make_double2(a, b);
}

// A thread has one derivative of an element; threadIdx.x counts elements within a third of the block.
template <int U>
__global__ void __launch_bounds__(BLOCK)
    v_shape_dshape(const real* __restrict__ shape, const real* __restrict__ dshape, const real* __restrict__ detwei,
                   real* __restrict__ out, int n_points, int64 count)
{
    const int d = threadIdx.x / (BLOCK / 3);
    const int64 at = (int64)blockIdx.x * (BLOCK / 3) + threadIdx.x % (BLOCK / 3);
    if (at >= count) return;
    real total[4][4] = {};
    const real* from = dshape + d * count + at;
    const real* weights = detwei + at;
    for (int q = 0; q < n_points; q += U) {
        real slope[U][4], weight[U];
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (q + u < n_points) {
                weight[u] = __ldg(weights + (q + u) * count);
#pragma unroll
                for (int j = 0; j < 4; ++j) slope[u][j] = __ldcs(from + ((q + u) * 12 + 3 * j) * count);
            }
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (q + u < n_points) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const real scaled = __ldg(shape + 4 * (q + u) + i) * weight[u];
#pragma unroll
                    for (int j = 0; j < 4; ++j) total[i][j] = total[i][j] + scaled * slope[u][j];
                }
            }
    }
    real* to = out + 16 * d * count + at;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) put(to + (4 * i + j) * count, total[i][j]);
}

// PER elements a thread, U points at once.
template <int PER, int U>
__global__ void __launch_bounds__(BLOCK)
    v_shape_shape(const real* __restrict__ products, const real* __restrict__ detwei, real* __restrict__ out,
                  int n_points, int64 count)
{
    const int64 at = ((int64)blockIdx.x * BLOCK + threadIdx.x) * PER;
    if (at >= count) return;
    real total[4][4][PER] = {};
    for (int q = 0; q < n_points; q += U) {
        real weight[U][PER];
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (q + u < n_points) {
                if (PER == 2) {
                    const double2 both = __ldcs((const double2*)(detwei + (q + u) * count + at));
                    weight[u][0] = both.x, weight[u][PER - 1] = both.y;
                } else {
                    weight[u][0] = __ldcs(detwei + (q + u) * count + at);
                }
            }
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (q + u < n_points)
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int j = 0; j <= i; ++j)
#pragma unroll
                        for (int p = 0; p < PER; ++p)
                            total[i][j][p] = total[i][j][p] + __ldg(products + 16 * (q + u) + 4 * i + j) * weight[u][p];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int a = i < j ? j : i, b = i < j ? i : j;
            real* to = out + (4 * i + j) * count + at;
            if (PER == 2) put_two(to, total[a][b][0], total[a][b][PER - 1]);
            else put(to, total[a][b][0]);
        }
}
