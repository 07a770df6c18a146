// Smoothers and the power method; what each computes stands in relaxation.py.

enum { FIRST, STEP, LAST };

template <bool SHARED>
__device__ inline Pack inverse_at(const real* __restrict__ dinv, int64 row, int s, int n_samples)
{
    return SHARED ? spread(__ldg(dinv + row)) : load_once(dinv + row * n_samples + s);
}

template <bool SHARED>
__global__ void __launch_bounds__(THREADS)
    chebyshev_start(const real* __restrict__ dinv, const real* __restrict__ b, const real* __restrict__ c, real* x,
                    int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    store(x + here, load_shared(c + s) * (inverse_at<SHARED>(dinv, row, s, n_samples) * load(b + here)));
}

template <int KIND, bool SHARED>
__global__ void __launch_bounds__(THREADS)
    chebyshev_step(const offset* __restrict__ indptr, const int* __restrict__ indices,
                   const real* __restrict__ values, const real* __restrict__ dinv, const real* __restrict__ b,
                   const real* __restrict__ x, const real* __restrict__ a, const real* __restrict__ c, real* w,
                   real* out, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    const Pack total = row_product<SHARED>(indptr, indices, values, x, row, s, n_samples);
    Pack step = load_shared(c + s) * (inverse_at<SHARED>(dinv, row, s, n_samples) * (load_once(b + here) - total));
    if (KIND != FIRST) step = load_shared(a + s) * load(w + here) + step;
    if (KIND != LAST) store(w + here, step);
    store(out + here, load(x + here) + step);
}

template <bool SHARED>
__global__ void power_step(const offset* __restrict__ indptr, const int* __restrict__ indices,
                           const real* __restrict__ values, const real* __restrict__ dinv,
                           const real* __restrict__ q, const real* __restrict__ scale, real* z, real* quotients,
                           real* squares, int64 n_rows, int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    Pack quotient = spread(0), square = spread(0);
    const Pack factor = share.inside ? load(scale + share.s) : spread(0);
    for (int64 row = share.begin; row < share.end; ++row) {
        const Pack total = row_product<SHARED>(indptr, indices, values, q, row, share.s, n_samples);
        const int64 here = row * n_samples + share.s;
        const Pack next = factor * (inverse_at<SHARED>(dinv, row, share.s, n_samples) * total);
        store(z + here, next);
        quotient = quotient + (factor * load(q + here)) * next;
        square = square + next * next;
    }
    add_quads<0>(share, quotient, quotients, n_samples);
    add_quads<1>(share, square, squares, n_samples);
}
