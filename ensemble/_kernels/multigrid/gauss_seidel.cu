// One colour of a Gauss-Seidel sweep; the reference is in gauss_seidel.py.

// Rows of a colour do not read what others of it write; x is not read through the read-only cache all the same.
template <bool SHARED>
__global__ void __launch_bounds__(THREADS)
    gauss_seidel(const offset* __restrict__ indptr, const int* __restrict__ indices, const real* __restrict__ values,
                 const real* __restrict__ dinv, const int* __restrict__ rows, const real* __restrict__ b, real* x,
                 int64 n_rows, int n_samples)
{
    const int64 place = row_here();
    const int s = sample_here();
    if (place >= n_rows || s >= n_samples) return;
    const int64 row = rows[place], here = row * n_samples + s;
    Pack total = spread(0);
    const offset end = indptr[row + 1];
#pragma unroll UNROLL
    for (offset k = indptr[row]; k < end; ++k) {
        const Pack a = SHARED ? spread(read_only(values + k)) : load_once(values + (int64)k * n_samples + s);
        total = total + a * load(x + (int64)__ldg(indices + k) * n_samples + s);
    }
    const Pack inverse = SHARED ? spread(read_only(dinv + row)) : load_once(dinv + here);
    store(x + here, load(x + here) + inverse * (load_once(b + here) - total));
}
