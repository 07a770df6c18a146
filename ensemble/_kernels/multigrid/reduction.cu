// Relaxation of marked rows; the reference is in reduction.py.

template <bool SHARED>
__global__ void __launch_bounds__(THREADS)
    relax_rows(const unsigned char* __restrict__ marks, int mark, const offset* __restrict__ indptr,
               const int* __restrict__ indices, const real* __restrict__ values, const real* __restrict__ dinv,
               const real* __restrict__ b, const real* __restrict__ x, real* out, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    Pack relaxed = load(x + here);
    if (marks[row] == mark) {
        const Pack total = row_product<SHARED>(indptr, indices, values, x, row, s, n_samples);
        const Pack inverse = SHARED ? spread(read_only(dinv + row)) : load_once(dinv + here);
        relaxed = relaxed + inverse * (load_once(b + here) - total);
    }
    store(out + here, relaxed);
}
