// Entry to and exit from a V-cycle of type `real` for vectors of type WIDE; the references are in scaling.py.

typedef WIDE outer;

__device__ inline Pack narrow(const outer* from, const outer* factor)
{
    Pack pack;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) pack.lane[v] = (real)(__ldg(factor + v) * from[v]);
    return pack;
}

__global__ void __launch_bounds__(THREADS)
    narrowed(const outer* __restrict__ values, const outer* __restrict__ unit, real* out, int64 n_rows, int n_samples)
{
    const int64 row = row_here(), here = row * n_samples + sample_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    store(out + here, narrow(values + here, unit + s));
}

template <bool SHARED>
__device__ inline Pack inverse_at(const real* __restrict__ dinv, int64 row, int s, int n_samples)
{
    return SHARED ? spread(read_only(dinv + row)) : load_once(dinv + row * n_samples + s);
}

template <bool SHARED, bool SCALED>
__global__ void __launch_bounds__(THREADS)
    scaled_start(const real* __restrict__ scale, const outer* __restrict__ enter, const outer* __restrict__ r,
                 const real* __restrict__ dinv, const real* __restrict__ c, real* b, real* x, int64 n_rows, int n_samples)
{
    const int64 row = row_here(), here = row * n_samples + sample_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    Pack entered = narrow(r + here, enter + s);
    if (SCALED) entered = load_once(scale + here) * entered;
    store(b + here, entered);
    store(x + here, load_shared(c + s) * (inverse_at<SHARED>(dinv, row, s, n_samples) * entered));
}

template <bool SHARED, bool SCALED>
__global__ void __launch_bounds__(THREADS)
    scaled_finish(const real* __restrict__ scale, const outer* __restrict__ leave, const offset* __restrict__ indptr,
                  const int* __restrict__ indices, const real* __restrict__ values, const real* __restrict__ dinv,
                  const real* __restrict__ b, const real* __restrict__ x, const real* __restrict__ a,
                  const real* __restrict__ c, const real* __restrict__ w, outer* out, int64 n_rows, int n_samples)
{
    const int64 row = row_here(), here = row * n_samples + sample_here();
    const int s = sample_here();
    const Pack total = product_here<SHARED>(indptr, indices, values, x, n_rows, n_samples);
    if (row >= n_rows || s >= n_samples) return;
    Pack step = load_shared(c + s) * (inverse_at<SHARED>(dinv, row, s, n_samples) * (load_once(b + here) - total));
    step = load_shared(a + s) * load(w + here) + step;
    Pack next = load(x + here) + step;
    if (SCALED) next = load_once(scale + here) * next;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) out[here + v] = __ldg(leave + s + v) * (outer)next.lane[v];
}
