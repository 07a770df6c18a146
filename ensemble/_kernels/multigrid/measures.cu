// Quantities of a matrix that the set-up of a hierarchy needs first; the references are in measures.py and aggregation.py.

// coupled[i] = true for each row i with an off-diagonal entry that is not zero in some sample; `coupled` is false before.
// `entries` renames the entries, where it is given. Threads of several samples may write the same byte, all the same.
__global__ void __launch_bounds__(THREADS)
    coupled_rows(const offset* __restrict__ indptr, const int* __restrict__ indices,
                 const offset* __restrict__ entries, const real* __restrict__ values, bool* coupled, int64 n_rows,
                 int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    for (offset k = indptr[row]; k < indptr[row + 1]; ++k) {
        if (indices[k] == row) continue;
        const Pack value = load(values + (int64)(entries ? entries[k] : k) * n_samples + s);
        for (int v = 0; v < VECTOR; ++v)
            if (value.lane[v] != 0) {
                coupled[row] = true;
                return;
            }
    }
}

// d = 1 / d; 0 where d is zero or subnormal.
__global__ void __launch_bounds__(THREADS) reciprocal(real* d, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    Pack pack = load(d + row * n_samples + s);
#pragma unroll
    for (int v = 0; v < VECTOR; ++v)
        pack.lane[v] = is_tiny(pack.lane[v]) ? real(0) : real(1) / pack.lane[v];
    store(d + row * n_samples + s, pack);
}

#ifndef COMPLEX

// found[s] = true for each sample s with a positive entry that is below `least` in its unit; `found` is false before.
__global__ void __launch_bounds__(THREADS)
    too_small(const real* __restrict__ size, const real* __restrict__ units, real least, bool* found, int64 n_rows,
              int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const Pack pack = load(size + row * n_samples + s);
#pragma unroll
    for (int v = 0; v < VECTOR; ++v)
        if (pack.lane[v] > 0 && pack.lane[v] * units[s + v] < least) found[s + v] = true;
}

#endif
