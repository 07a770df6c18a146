// A row of a sparse matrix times a vector: what products, smoothers and the power method share.
//
// The loop is unrolled so that its loads are in flight together. Guarding each load of a batch instead, to spare the
// loop for the remainder, took a quarter of the bandwidth.

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
