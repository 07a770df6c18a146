// Inner products with a Krylov basis and sums of its vectors; what each computes stands in basis.py.
//
// A thread keeps its QUAD rows of w in registers while it goes over the basis.

__device__ inline void load_quad(Pack (&quad)[QUAD], const real* from, const Share& share, int n_samples)
{
#pragma unroll
    for (int i = 0; i < QUAD; ++i)
        quad[i] = share.begin + i < share.end ? load(from + (share.begin + i) * n_samples + share.s) : spread(0);
}

__global__ void __launch_bounds__(CHUNK_THREADS)
    basis_dots(const real* __restrict__ basis, const real* __restrict__ w, int n_vectors, real* partials,
               int64 n_rows, int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    const int64 n_chunks = (n_rows + QUAD * QUADS - 1) / (QUAD * QUADS);
    Pack own[QUAD], other[QUAD];
    load_quad(own, w, share, n_samples);
    for (int k = 0; k < n_vectors; ++k) {
        load_quad(other, basis + k * n_rows * n_samples, share, n_samples);
        Pack inner = spread(0);
#pragma unroll
        for (int i = 0; i < QUAD; ++i) inner = inner + other[i] * own[i];
        __syncthreads();  // the sums of the last vector have been read
        add_quads<0>(share, inner, partials + k * n_chunks * n_samples, n_samples);
    }
}

__global__ void __launch_bounds__(CHUNK_THREADS)
    basis_add(const real* __restrict__ h, const real* __restrict__ basis, real* w, int n_vectors, real* partials,
              int64 n_rows, int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    Pack own[QUAD], other[QUAD];
    load_quad(own, w, share, n_samples);
    for (int k = 0; k < n_vectors && share.inside; ++k) {
        const Pack factor = load_shared(h + (int64)k * n_samples + share.s);
        load_quad(other, basis + k * n_rows * n_samples, share, n_samples);
#pragma unroll
        for (int i = 0; i < QUAD; ++i) own[i] = where_nonzero(factor, own[i] + factor * other[i], own[i]);
    }
    Pack inner = spread(0);
#pragma unroll
    for (int i = 0; i < QUAD; ++i) {
        if (share.begin + i < share.end) store(w + (share.begin + i) * n_samples + share.s, own[i]);
        inner = inner + own[i] * own[i];
    }
    add_quads<0>(share, inner, partials, n_samples);
}

__global__ void __launch_bounds__(THREADS) scale(const real* __restrict__ alpha, real* x, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const Pack factor = load_shared(alpha + s), old = load(x + row * n_samples + s);
    store(x + row * n_samples + s, where_nonzero(factor, old * factor, old));
}
