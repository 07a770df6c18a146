// Sums of element matrices of few numbers; what the kernel computes stands in row_sums.py.
//
// A row of the matrix has LANES_OF_ROW lanes, one for each number of a row of an element matrix: they load it as one piece
// and add it to the row's entries in shared memory. The entries of one row of an element matrix differ; after each the
// lanes wait for each other, so that every sum keeps its order. AT_ONCE rows of element matrices are on their way.
#define ROW_THREADS 128
#define AT_ONCE 8
#define LANES_OF_ROW (4 * WIDTH)
#define SIDE (32 / LANES_OF_ROW)  // rows of a warp
#define ROWS_OF_BLOCK (ROW_THREADS / LANES_OF_ROW)

__global__ void __launch_bounds__(ROW_THREADS)
    row_sums(const int* __restrict__ slices, const int2* __restrict__ table, const int* __restrict__ offsets,
             const int* __restrict__ bases, const real* __restrict__ values, real* __restrict__ out)
{
    __shared__ real entries[CAPACITY * WIDTH];
    const int t = threadIdx.x, lane = t % LANES_OF_ROW, column = lane / WIDTH, s = lane % WIDTH;
    const int base = bases[blockIdx.x], n = (bases[blockIdx.x + 1] - base) * WIDTH;
    for (int i = t; i < n; i += ROW_THREADS) entries[i] = 0;
    __syncthreads();
    const int slice = blockIdx.x * (ROW_THREADS / 32) + t / 32, begin = slices[slice], end = slices[slice + 1];
    real* row = entries + offsets[blockIdx.x * ROWS_OF_BLOCK + t / LANES_OF_ROW] * WIDTH + s;
    for (int p = begin; p < end; p += SIDE * AT_ONCE) {
        int2 pair[AT_ONCE];
        real value[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            const int at = p + u * SIDE + t % 32 / LANES_OF_ROW;
            pair[u] = at < end ? __ldg(table + at) : int2{-1, 0};
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u)
            value[u] = __ldg(values + (int64)(pair[u].x < 0 ? 0 : pair[u].x) * LANES_OF_ROW + lane);
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            real* entry = row + (pair[u].y >> 8 * column & 255) * WIDTH;
            if (pair[u].x >= 0) *entry = *entry + value[u];
            __syncwarp();
        }
    }
    __syncthreads();
    for (int i = t; i < n; i += ROW_THREADS) __stcs(out + (int64)base * WIDTH + i, entries[i]);
}
