// What becomes of a row's product with an affine matrix: `total` is one pack of it, at `here` in vectors and `s` in a row.

enum { SET, RESIDUAL };

template <int ENDING>
__device__ inline void end_product(const Pack& total, int64 here, const real* b, real* y)
{
    store(y + here, ENDING == RESIDUAL ? load(b + here) - total : total);
}

enum { FIRST, STEP, LAST };

template <int KIND>
__device__ inline void end_step(const Pack& total, int64 here, int s, const real* __restrict__ dinv,
                                const real* __restrict__ b, const real* __restrict__ x, const real* __restrict__ a,
                                const real* __restrict__ c, real* w, real* out)
{
    Pack step = load_shared(c + s) * (load_once(dinv + here) * (load_once(b + here) - total));
    if (KIND != FIRST) step = load_shared(a + s) * load(w + here) + step;
    if (KIND != LAST) store(w + here, step);
    store(out + here, load(x + here) + step);
}
