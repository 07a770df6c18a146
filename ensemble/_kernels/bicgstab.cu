// The vector work of BiCGSTAB; what each kernel computes stands in bicgstab.py.

__global__ void __launch_bounds__(CHUNK_THREADS)
    dot_and_square(const real* __restrict__ x, const real* __restrict__ y, real* inners, real* squares, int64 n_rows,
                   int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    Pack inner = spread(0), square = spread(0);
    for (int64 row = share.begin; row < share.end; ++row) {
        const int64 here = row * n_samples + share.s;
        const Pack a = load(x + here), b = load(y + here);
        inner = inner + a * b;
        square = square + b * b;
    }
    add_quads<0>(share, inner, inners, n_samples);
    add_quads<1>(share, square, squares, n_samples);
}

__global__ void __launch_bounds__(CHUNK_THREADS)
    bicgstab_update(const real* __restrict__ omega, const real* __restrict__ shadow, const real* __restrict__ z,
                    const real* __restrict__ t, real* x, real* r, real* squares, real* inners, int64 n_rows,
                    int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    const Pack step = share.inside ? load(omega + share.s) : spread(0);
    Pack square = spread(0), inner = spread(0);
    for (int64 row = share.begin; row < share.end; ++row) {
        const int64 here = row * n_samples + share.s;
        const Pack old_x = load(x + here), old_r = load(r + here);
        store(x + here, where_nonzero(step, old_x + step * load(z + here), old_x));
        const Pack new_r = where_nonzero(step, old_r - step * load(t + here), old_r);
        store(r + here, new_r);
        square = square + new_r * new_r;
        inner = inner + load(shadow + here) * new_r;
    }
    add_quads<0>(share, square, squares, n_samples);
    add_quads<1>(share, inner, inners, n_samples);
}

__global__ void __launch_bounds__(THREADS)
    bicgstab_direction(const real* __restrict__ beta, const real* __restrict__ omega, const real* __restrict__ r,
                       const real* __restrict__ v, real* p, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    const Pack factor = load_shared(beta + s), step = load_shared(omega + s), next = load(r + here);
    const Pack moved = next + factor * (load(p + here) - step * load(v + here));
    store(p + here, where_nonzero(factor, moved, next));
}
