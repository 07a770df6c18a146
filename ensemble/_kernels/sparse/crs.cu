// Compressed-row-storage products; what each computes stands in crs.py.

enum { SET, ADD, RESIDUAL };

template <int ENDING, bool SHARED>
__global__ void __launch_bounds__(THREADS)
    product(const offset* __restrict__ indptr, const int* __restrict__ indices, const real* __restrict__ values,
            const real* __restrict__ x, const real* b, real* y, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    Pack total = product_here<SHARED>(indptr, indices, values, x, n_rows, n_samples);
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    if (ENDING == ADD) total = load(y + here) + total;
    if (ENDING == RESIDUAL) total = load(b + here) - total;
    store(y + here, total);
}

template <bool SHARED>
__global__ void __launch_bounds__(CHUNK_THREADS)
    product_dot(const offset* __restrict__ indptr, const int* __restrict__ indices, const real* __restrict__ values,
                const real* __restrict__ x, real* y, real* partials, int64 n_rows, int n_samples)
{
    __shared__ RowSums inner;
    const int s = sample_here();
    for (int pass = 0; pass < QUAD; ++pass) {
        const int64 row = pass_begin(pass) + threadIdx.x / LANES, here = row * n_samples + s;
        const bool inside = row < n_rows && s < n_samples;
        const Pack total =
            inside ? row_product<SHARED>(indptr, indices, values, x, row, s, n_samples) : spread(0);
        if (inside) store(y + here, total);
        add_row(inner, pass, inside ? conjugate(load(x + here)) * total : spread(0));
    }
    store_chunks(inner, partials, n_rows, n_samples);
}

template <bool SHARED>
__global__ void __launch_bounds__(THREADS)
    product_transpose(const offset* __restrict__ indptr, const int* __restrict__ indices,
                      const offset* __restrict__ entries, const real* __restrict__ values,
                      const real* __restrict__ x, real* y, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    Pack total = spread(0);
    const offset end = indptr[row + 1];
#pragma unroll UNROLL
    for (offset k = indptr[row]; k < end; ++k) {
        const int64 entry = __ldg(entries + k);
        const Pack a = SHARED ? spread(read_only(values + entry)) : load_once(values + entry * n_samples + s);
        total = total + a * load_shared(x + (int64)__ldg(indices + k) * n_samples + s);
    }
    store(y + row * n_samples + s, total);
}

__global__ void __launch_bounds__(THREADS)
    diagonal(const offset* __restrict__ entries, const real* __restrict__ values, real* out, int64 n_rows,
             int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 entry = entries[row];
    store(out + row * n_samples + s, entry < 0 ? spread(0) : load(values + entry * n_samples + s));
}

// Blocks as `totals_of` requires them; blockIdx.y counts the sums.
__global__ void __launch_bounds__(SUM_THREADS) sum_partials(const real* partials, real* sums, int64 n_partials, int n_samples)
{
    const int s = sample_of_block();
    const real total = total_of(partials + blockIdx.y * n_partials * n_samples, n_partials, n_samples, s);
    if (threadIdx.y == 0 && s < n_samples) sums[blockIdx.y * n_samples + s] = total;
}
