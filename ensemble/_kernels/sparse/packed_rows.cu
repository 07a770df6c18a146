// Chosen rows, one behind the other; what the kernel computes stands in packed_rows.py.

__global__ void __launch_bounds__(THREADS)
    packed_rows(const real* __restrict__ x, const offset* __restrict__ rows, real* out, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    store(out + row * n_samples + s, load_shared(x + (int64)__ldg(rows + row) * n_samples + s));
}
