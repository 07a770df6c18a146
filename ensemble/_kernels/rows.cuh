// A row of a sparse matrix times a vector: what products, smoothers and the power method share.
//
// The loop is unrolled so that its loads are in flight together. Guarding each load of a batch instead, to spare the
// loop for the remainder, took a quarter of the bandwidth.

#define STAGED_LANES 4
#define STAGED_BYTES 14336
#define STAGED_MOST 896
#define STAGED_FIT (STAGED_BYTES / ((int)sizeof(Pack) * LANES))
#define STAGED (STAGED_FIT < STAGED_MOST ? STAGED_FIT : STAGED_MOST)

template <bool SHARED>
__device__ inline Pack row_product(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                   const real* __restrict__ values, const real* __restrict__ x, int64 row, int s,
                                   int n_samples)
{
    Pack total = spread(0);
    const offset begin = indptr[row], end = indptr[row + 1];
    const real* entry = SHARED ? values + begin : values + (int64)begin * n_samples + s;
    const real* column = x + s;
#pragma unroll UNROLL
    for (offset k = begin; k < end; ++k) {
        const Pack a = SHARED ? spread(__ldg(entry)) : load_once(entry);
        total = total + a * load_shared(column + (int64)__ldg(indices + k) * n_samples);
        entry += SHARED ? 1 : n_samples;
    }
    return total;
}

// The same for the rows of a block that holds few samples, `first` to `last`: all threads together make the products of
// the entries, in the order in which these lie in memory, and each thread adds those of its row. Same products, same
// order of adding, same bits; but a warp reads one run of bytes where rows, read one by one, are far apart. Small stages
// are better, and values staged instead of products, or read by rows through the caches, are slower.
__device__ inline Pack staged_product(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                      const real* __restrict__ values, const real* __restrict__ x, int64 first,
                                      int64 last, int64 row, int s, int n_samples)
{
    __shared__ Pack products[STAGED * LANES];
    const int lane = threadIdx.x % LANES, step = blockDim.x;  // a constant step would be unrolled in full, guards and all
    const offset finish = indptr[last];
    Pack total = spread(0);
    offset k = row < last ? indptr[row] : finish;
    const offset end = row < last ? indptr[row + 1] : finish;
    for (int64 from = indptr[first]; from < finish; from += STAGED) {
        const int count = finish - from < STAGED ? (int)(finish - from) : STAGED;
        __syncthreads();
        if (s < n_samples) {
            const real* entry = values + from * n_samples + s;
            const int* column = indices + from;
#pragma unroll UNROLL
            for (int item = threadIdx.x; item < count * LANES; item += step) {
                const int e = item / LANES;
                const Pack a = load_once(entry + (int64)e * n_samples);
                products[item] = a * load_shared(x + (int64)__ldg(column + e) * n_samples + s);
            }
        }
        __syncthreads();
        const offset stop = end < from + count ? end : (offset)(from + count);
#pragma unroll UNROLL
        for (; k < stop; ++k) total = total + products[(int)(k - from) * LANES + lane];
    }
    return total;
}

// The product of this thread's row. Every thread of the block calls this; what those without a row or a sample get is
// of no use.
template <bool SHARED>
__device__ inline Pack product_here(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                    const real* __restrict__ values, const real* __restrict__ x, int64 n_rows,
                                    int n_samples)
{
    const int s = sample_here();
    const int64 row = row_here();
    if constexpr (SHARED || LANES > STAGED_LANES) {
        if (row >= n_rows || s >= n_samples) return spread(0);
        return row_product<SHARED>(indptr, indices, values, x, row, s, n_samples);
    } else {
        const int64 first = (int64)blockIdx.x * ROWS, last = first + ROWS < n_rows ? first + ROWS : n_rows;
        if (first >= last) return spread(0);
        return staged_product(indptr, indices, values, x, first, last, row, s, n_samples);
    }
}
