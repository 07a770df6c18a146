// A row of a sparse matrix times a vector: what products, smoothers and the power method share.

template <bool SHARED>
__device__ inline Pack row_product(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                   const real* __restrict__ values, const real* __restrict__ x, int64 row, int s,
                                   int n_samples)
{
    Pack total = spread(0);
    const offset end = indptr[row + 1];
    for (offset k = indptr[row]; k < end; k += UNROLL) {
        Pack a[UNROLL], b[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {  // all loads of a batch are in flight before the first use
            if (k + u < end) {
                a[u] = SHARED ? spread(__ldg(values + k + u)) : load_once(values + (int64)(k + u) * n_samples + s);
                b[u] = load_shared(x + (int64)__ldg(indices + k + u) * n_samples + s);
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (k + u < end) total = total + a[u] * b[u];
    }
    return total;
}
