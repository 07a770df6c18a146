// Sums of element matrices by rows: a thread carries a row of the matrix and keeps its entries in shared memory.
#ifndef UNROLLED
#define UNROLLED 4
#endif
#define SLICE 32
#ifndef LOAD
#define LOAD __ldg
#endif

// The table has for pair p of a row's elements {row of element matrices, four places in the row}, 32 rows side by side.
__global__ void __launch_bounds__(BLOCK)
    v_row_sums(const int* __restrict__ slices, const int2* __restrict__ table, const int* __restrict__ offsets,
               const int* __restrict__ bases, const real* __restrict__ values, real* __restrict__ out)
{
    extern __shared__ __align__(16) char memory[];
    real* entries = (real*)memory;
    const int base = bases[blockIdx.x], n = bases[blockIdx.x + 1] - base, t = threadIdx.x;
    for (int i = t; i < n; i += BLOCK) entries[i] = 0;
    __syncthreads();
    const int slice = blockIdx.x * (BLOCK / SLICE) + t / SLICE, begin = slices[slice], end = slices[slice + 1];
    real* mine = entries + offsets[blockIdx.x * BLOCK + t];
    for (int p = begin + t % SLICE; p < end; p += SLICE * UNROLLED) {
        int2 item[UNROLLED];
        double2 low[UNROLLED], high[UNROLLED];
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) {
            item[u] = make_int2(-1, 0);
            if (p + u * SLICE < end) item[u] = __ldcs(table + p + u * SLICE);
        }
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) {
            const double2* from = (const double2*)values + 2 * (int64)max(item[u].x, 0);
            low[u] = __ldg(from), high[u] = __ldg(from + 1);
        }
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) {
            if (item[u].x < 0) continue;
            const unsigned at = item[u].y;
            real *a = mine + (at & 255), *b = mine + (at >> 8 & 255), *c = mine + (at >> 16 & 255), *d = mine + (at >> 24);
            const real x = *a, y = *b, z = *c, w = *d;
            *a = x + low[u].x, *b = y + low[u].y, *c = z + high[u].x, *d = w + high[u].y;
        }
    }
    __syncthreads();
    for (int i = t; i < n; i += BLOCK) __stcs(out + base + i, entries[i]);
}

// WIDTH lanes a row, a sample each.
template <int WIDTH>
__global__ void __launch_bounds__(BLOCK)
    v_row_sums_of(const int* __restrict__ slices, const int2* __restrict__ table, const int* __restrict__ offsets,
                  const int* __restrict__ bases, const real* __restrict__ values, real* __restrict__ out)
{
    extern __shared__ __align__(16) char memory[];
    real* entries = (real*)memory;
    constexpr int ROWS_HERE = BLOCK / WIDTH, SIDE = 32 / WIDTH;
    const int base = bases[blockIdx.x], n = (bases[blockIdx.x + 1] - base) * WIDTH, t = threadIdx.x, s = t % WIDTH;
    for (int i = t; i < n; i += BLOCK) entries[i] = 0;
    __syncthreads();
    const int slice = blockIdx.x * (BLOCK / 32) + t / 32, begin = slices[slice], end = slices[slice + 1];
    real* mine = entries + offsets[blockIdx.x * ROWS_HERE + t / WIDTH] * WIDTH + s;
    for (int p = begin + t % 32 / WIDTH; p < end; p += SIDE * UNROLLED) {
        int2 item[UNROLLED];
        real v[UNROLLED][4];
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) {
            item[u] = make_int2(-1, 0);
            if (p + u * SIDE < end) item[u] = __ldg(table + p + u * SIDE);
        }
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u)
#pragma unroll
            for (int b = 0; b < 4; ++b) v[u][b] = __ldg(values + ((int64)max(item[u].x, 0) * 4 + b) * WIDTH + s);
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) {
            if (item[u].x < 0) continue;
            const unsigned at = item[u].y;
            real *a = mine + (at & 255) * WIDTH, *b = mine + (at >> 8 & 255) * WIDTH,
                 *c = mine + (at >> 16 & 255) * WIDTH, *d = mine + (at >> 24) * WIDTH;
            const real x = *a, y = *b, z = *c, w = *d;
            *a = x + v[u][0], *b = y + v[u][1], *c = z + v[u][2], *d = w + v[u][3];
        }
    }
    __syncthreads();
    for (int i = t; i < n; i += BLOCK) __stcs(out + (int64)base * WIDTH + i, entries[i]);
}

// A right-hand side: the rows of a block are sorted, so they are written through shared memory.
__global__ void __launch_bounds__(BLOCK)
    v_vector_sums(const int* __restrict__ slices, const int* __restrict__ table, const int* __restrict__ rows,
                  const real* __restrict__ values, real* __restrict__ out, int n_rows)
{
    const int t = threadIdx.x, slice = blockIdx.x * (BLOCK / SLICE) + t / SLICE, begin = slices[slice], end = slices[slice + 1];
    __shared__ real sums[BLOCK];
    real total = 0;
    for (int p = begin + t % SLICE; p < end; p += SLICE * UNROLLED) {
        int item[UNROLLED];
        real v[UNROLLED];
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) item[u] = p + u * SLICE < end ? __ldcs(table + p + u * SLICE) : -1;
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) v[u] = __ldg(values + max(item[u], 0));
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u)
            if (item[u] >= 0) total = total + v[u];
    }
    sums[rows[blockIdx.x * BLOCK + t]] = total;
    __syncthreads();
    const int64 row = (int64)blockIdx.x * BLOCK + t;
    if (row < n_rows) out[row] = sums[t];
}

// Entry e of the row of a lane lies at [e][lane] of its warp: no two lanes meet in a bank. Two lanes load a row of an
// element matrix together, for one of them at a time.
__global__ void __launch_bounds__(BLOCK)
    v_row_sums_t(const int* __restrict__ slices, const int2* __restrict__ table, const int* __restrict__ heights,
                 const int* __restrict__ begins, const int* __restrict__ lengths, const real* __restrict__ values,
                 real* __restrict__ out)
{
    extern __shared__ __align__(16) char memory[];
    real* entries = (real*)memory;
    const int t = threadIdx.x, lane = t % 32, here = blockIdx.x * BLOCK + t, slice = here / 32;
    const int begin = slices[slice], end = slices[slice + 1];
    const int first = begins[here], length = lengths[here];
    real* mine = entries + (heights[slice] - heights[blockIdx.x * (BLOCK / 32)]) * 32 + lane;
    for (int e = 0; e < length; ++e) mine[e * 32] = 0;
    const int half = lane & 1;
    for (int p = begin + lane; p < end; p += 32 * UNROLLED) {
        int2 item[UNROLLED];
        double2 a[UNROLLED], b[UNROLLED];
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) {
            item[u] = make_int2(-1, 0);
            if (p + u * 32 < end) item[u] = __ldcs(table + p + u * 32);
        }
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) {
            const int other = __shfl_xor_sync(0xffffffff, item[u].x, 1);
            const int64 even = max(half ? other : item[u].x, 0), odd = max(half ? item[u].x : other, 0);
            a[u] = LOAD((const double2*)values + 2 * even + half), b[u] = LOAD((const double2*)values + 2 * odd + half);
        }
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) {
            const double sx = half ? a[u].x : b[u].x, sy = half ? a[u].y : b[u].y;
            const double rx = __shfl_xor_sync(0xffffffff, sx, 1), ry = __shfl_xor_sync(0xffffffff, sy, 1);
            const double v0 = half ? rx : a[u].x, v1 = half ? ry : a[u].y, v2 = half ? b[u].x : rx, v3 = half ? b[u].y : ry;
            if (item[u].x >= 0) {
                const unsigned at = item[u].y;
                real *i = mine + (at & 255) * 32, *j = mine + (at >> 8 & 255) * 32, *k = mine + (at >> 16 & 255) * 32,
                     *l = mine + (at >> 24) * 32;
                const real x = *i, y = *j, z = *k, w = *l;
                *i = x + v0, *j = y + v1, *k = z + v2, *l = w + v3;
            }
        }
    }
    for (int e = 0; e < length; ++e) out[first + e] = mine[e * 32];
}

// Four lanes a row of the matrix, one for each column of element matrices: after every row of one, they wait for each other.
__global__ void __launch_bounds__(BLOCK)
    v_row_sums_4(const int* __restrict__ slices, const int2* __restrict__ table, const int* __restrict__ offsets,
                 const int* __restrict__ bases, const real* __restrict__ values, real* __restrict__ out)
{
    extern __shared__ __align__(16) char memory[];
    real* entries = (real*)memory;
    const int base = bases[blockIdx.x], n = bases[blockIdx.x + 1] - base, t = threadIdx.x, b = t % 4;
    for (int i = t; i < n; i += BLOCK) entries[i] = 0;
    __syncthreads();
    const int slice = blockIdx.x * (BLOCK / 32) + t / 32, begin = slices[slice], end = slices[slice + 1];
    real* mine = entries + offsets[blockIdx.x * (BLOCK / 4) + t / 4];
    for (int p = begin + t % 32 / 4; p < end; p += 8 * UNROLLED) {
        int2 item[UNROLLED];
        real v[UNROLLED];
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) {
            item[u] = make_int2(-1, 0);
            if (p + u * 8 < end) item[u] = __ldg(table + p + u * 8);
        }
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) v[u] = LOAD(values + 4 * (int64)max(item[u].x, 0) + b);
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) {
            real* at = mine + (item[u].y >> 8 * b & 255);
            if (item[u].x >= 0) *at = *at + v[u];
            __syncwarp();
        }
    }
    __syncthreads();
    for (int i = t; i < n; i += BLOCK) __stcs(out + base + i, entries[i]);
}
