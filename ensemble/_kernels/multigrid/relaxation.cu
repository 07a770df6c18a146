// Smoothers and the power method; the references are in relaxation.py.

enum { FIRST, STEP, LAST };

template <bool SHARED>
__device__ inline Pack inverse_at(const real* __restrict__ dinv, int64 row, int s, int n_samples)
{
    return SHARED ? spread(read_only(dinv + row)) : load_once(dinv + row * n_samples + s);
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
    const Pack total = product_here<SHARED>(indptr, indices, values, x, n_rows, n_samples);
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    Pack step = load_shared(c + s) * (inverse_at<SHARED>(dinv, row, s, n_samples) * (load_once(b + here) - total));
    if (KIND != FIRST) step = load_shared(a + s) * load(w + here) + step;
    if (KIND != LAST) store(w + here, step);
    store(out + here, load(x + here) + step);
}

template <bool SHARED>
__global__ void __launch_bounds__(CHUNK_THREADS)
    power_step(const offset* __restrict__ indptr, const int* __restrict__ indices, const real* __restrict__ values,
               const real* __restrict__ dinv, const real* __restrict__ q, const real* __restrict__ scale, real* z,
               real* quotients, real* squares, int64 n_rows, int n_samples)
{
    __shared__ RowSums quotient, square;
    const int s = sample_here();
    const Pack factor = s < n_samples ? load_shared(scale + s) : spread(0);
    for (int pass = 0; pass < QUAD; ++pass) {
        const int64 row = pass_begin(pass) + threadIdx.x / LANES, here = row * n_samples + s;
        const bool inside = row < n_rows && s < n_samples;
        const Pack total =
            inside ? row_product<SHARED>(indptr, indices, values, q, row, s, n_samples) : spread(0);
        Pack next = spread(0), before = spread(0);
        if (inside) {
            next = factor * (inverse_at<SHARED>(dinv, row, s, n_samples) * total);
            store(z + here, next);
            before = factor * load(q + here);
        }
        add_row(quotient, pass, conjugate(before) * next);
        add_row(square, pass, conjugate(next) * next);
    }
    store_chunks(quotient, quotients, n_rows, n_samples);
    store_chunks(square, squares, n_rows, n_samples);
}
