// Sums of chosen rows; what each kernel computes stands in gather_sums.py.

__global__ void __launch_bounds__(THREADS)
    gather_sums(const offset* __restrict__ starts, const int* __restrict__ sources, const real* __restrict__ values,
                real* out, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    Pack total = spread(0);
    const offset end = starts[row + 1];
#pragma unroll 4
    for (offset t = starts[row]; t < end; ++t)
        total = total + load_shared(values + (int64)__ldg(sources + t) * n_samples + s);
    store(out + row * n_samples + s, total);
}
