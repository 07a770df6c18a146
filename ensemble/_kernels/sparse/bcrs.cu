// Products of matrices of BLOCK_ROWS by BLOCK_COLUMNS blocks; what each computes stands in bcrs.py.
//
// LANES threads carry a scalar row. The BLOCK_ROWS rows of a block row read the same columns of x, and of few samples
// also the same lines of values, which the first-level cache serves.

#define BLOCK (BLOCK_ROWS * BLOCK_COLUMNS)
#define STAGED_LANES 4
#define STAGE_BYTES 14336
#define STAGED_FIT (STAGE_BYTES / (BLOCK * (int)sizeof(Pack) * LANES))
#define STAGED (STAGED_FIT > 0 ? STAGED_FIT : 1)

enum { SET, RESIDUAL, FIRST, STEP, LAST };

template <bool SHARED>
__device__ inline Pack block_row_product(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                         const real* __restrict__ values, const real* __restrict__ x, int64 row, int s,
                                         int n_samples)
{
    const int64 block_row = row / BLOCK_ROWS;
    const int inside = (int)(row - block_row * BLOCK_ROWS) * BLOCK_COLUMNS;
    Pack total = spread(0);
    const offset end = indptr[block_row + 1];
#pragma unroll 4
    for (offset k = indptr[block_row]; k < end; ++k) {
        const int64 entry = (int64)k * BLOCK + inside;
        const real* column = x + (int64)__ldg(indices + k) * BLOCK_COLUMNS * n_samples + s;
#pragma unroll
        for (int q = 0; q < BLOCK_COLUMNS; ++q) {
            const Pack a = SHARED ? spread(__ldg(values + entry + q)) : load_once(values + (entry + q) * n_samples + s);
            total = total + a * load_shared(column + (int64)q * n_samples);
        }
    }
    return total;
}

// The same for a thread block that holds few samples: all its threads make the products of the entries in the order in
// which these lie in memory, and each thread adds those of its row, in the order of the plain loop.
__device__ inline Pack staged_blocks(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                     const real* __restrict__ values, const real* __restrict__ x, int64 first,
                                     int64 last, int64 row, int s, int n_samples)
{
    __shared__ Pack products[STAGED * BLOCK * LANES];
    const int lane = threadIdx.x % LANES, step = blockDim.x;
    const int64 block_row = row / BLOCK_ROWS;
    const int inside = (int)(row - block_row * BLOCK_ROWS) * BLOCK_COLUMNS;
    const offset finish = indptr[(last - 1) / BLOCK_ROWS + 1];
    offset k = row < last ? indptr[block_row] : finish;
    const offset end = row < last ? indptr[block_row + 1] : finish;
    Pack total = spread(0);
    for (offset from = indptr[first / BLOCK_ROWS]; from < finish; from += STAGED) {
        const int count = finish - from < STAGED ? (int)(finish - from) : STAGED;
        __syncthreads();
        if (s < n_samples) {
            const real* entry = values + (int64)from * BLOCK * n_samples + s;
#pragma unroll 4
            for (int item = threadIdx.x; item < count * BLOCK * LANES; item += step) {
                const int e = item / LANES, block = e / BLOCK, q = e % BLOCK_COLUMNS;
                const int64 column = (int64)__ldg(indices + from + block) * BLOCK_COLUMNS + q;
                products[item] = load_once(entry + (int64)e * n_samples) * load_shared(x + column * n_samples + s);
            }
        }
        __syncthreads();
        const offset stop = end < from + count ? end : (offset)(from + count);
        for (; k < stop; ++k) {
            const Pack* product = products + ((int)(k - from) * BLOCK + inside) * LANES + lane;
#pragma unroll
            for (int q = 0; q < BLOCK_COLUMNS; ++q) total = total + product[q * LANES];
        }
    }
    return total;
}

// The product of this thread's row. Every thread of the block calls this.
template <bool SHARED>
__device__ inline Pack block_product_here(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                          const real* __restrict__ values, const real* __restrict__ x, int64 n_rows,
                                          int n_samples)
{
    const int s = sample_here();
    const int64 row = row_here();
    if constexpr (SHARED || LANES > STAGED_LANES) {
        if (row >= n_rows || s >= n_samples) return spread(0);
        return block_row_product<SHARED>(indptr, indices, values, x, row, s, n_samples);
    } else {
        const int64 first = (int64)blockIdx.x * ROWS, last = first + ROWS < n_rows ? first + ROWS : n_rows;
        if (first >= last) return spread(0);
        return staged_blocks(indptr, indices, values, x, first, last, row, s, n_samples);
    }
}

template <int KIND, bool SHARED>
__global__ void __launch_bounds__(THREADS)
    block_step(const offset* __restrict__ indptr, const int* __restrict__ indices, const real* __restrict__ values,
               const real* __restrict__ dinv, const real* __restrict__ b, const real* __restrict__ x,
               const real* __restrict__ a, const real* __restrict__ c, real* w, real* out, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    const Pack total = block_product_here<SHARED>(indptr, indices, values, x, n_rows, n_samples);
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    if (KIND == SET) {
        store(out + here, total);
    } else if (KIND == RESIDUAL) {
        store(out + here, load(b + here) - total);
    } else {
        const Pack inverse = SHARED ? spread(__ldg(dinv + row)) : load_once(dinv + here);
        Pack change = load_shared(c + s) * (inverse * (load_once(b + here) - total));
        if (KIND != FIRST) change = load_shared(a + s) * load(w + here) + change;
        if (KIND != LAST) store(w + here, change);
        store(out + here, load(x + here) + change);
    }
}

template <bool SHARED>
__global__ void __launch_bounds__(THREADS)
    block_transpose(const offset* __restrict__ indptr, const int* __restrict__ indices,
                    const offset* __restrict__ entries, const real* __restrict__ values, const real* __restrict__ x,
                    real* out, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 block_row = row / BLOCK_COLUMNS;
    const int inside = (int)(row - block_row * BLOCK_COLUMNS);
    Pack total = spread(0);
    const offset end = indptr[block_row + 1];
    for (offset k = indptr[block_row]; k < end; ++k) {
        const int64 entry = (int64)__ldg(entries + k) * BLOCK + inside;
        const real* column = x + (int64)__ldg(indices + k) * BLOCK_ROWS * n_samples + s;
#pragma unroll
        for (int p = 0; p < BLOCK_ROWS; ++p) {
            const int64 at = entry + p * BLOCK_COLUMNS;
            const Pack a = SHARED ? spread(__ldg(values + at)) : load_once(values + at * n_samples + s);
            total = total + a * load_shared(column + (int64)p * n_samples);
        }
    }
    store(out + row * n_samples + s, total);
}
