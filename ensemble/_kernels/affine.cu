// Products with matrices that are affine in a few parameters; what each computes stands in affine.py.
//
// TERMS is the number of shared terms. A row keeps one sum for each and combines them at its end: a chain of fused
// multiply-adds in the order of the entries, as on the CPU.
//
// Double precision has a second form on the matrix units: a row's terms times its columns of x is a small dense product,
// whose loads spread over the lanes of a warp instead of being repeated by each.

__device__ inline real fused(real a, real b, real c)
{
    if constexpr (sizeof(real) == 8) return fma(a, b, c);
    else return fmaf(a, b, c);
}

struct Terms {
    real value[TERMS];
};

__device__ inline Terms load_terms(const real* __restrict__ from)
{
    Terms terms;
    if constexpr (TERMS % 2 == 0 && sizeof(real) == 8) {
#pragma unroll
        for (int i = 0; i < TERMS; i += 2) {
            const int4 raw = __ldg(reinterpret_cast<const int4*>(from + i));
            const real* pair = reinterpret_cast<const real*>(&raw);
            terms.value[i] = pair[0], terms.value[i + 1] = pair[1];
        }
    } else if constexpr (TERMS % 2 == 0) {
#pragma unroll
        for (int i = 0; i < TERMS; i += 2) {
            const int2 raw = __ldg(reinterpret_cast<const int2*>(from + i));
            const real* pair = reinterpret_cast<const real*>(&raw);
            terms.value[i] = pair[0], terms.value[i + 1] = pair[1];
        }
    } else {
#pragma unroll
        for (int i = 0; i < TERMS; ++i) terms.value[i] = __ldg(from + i);
    }
    return terms;
}

// Sum 0 plus each further sum times its sample's coefficient.
__device__ inline Pack combined(const Pack (&sums)[TERMS], const real* __restrict__ coefficients, int s, int n_samples)
{
    Pack total = sums[0];
#pragma unroll
    for (int i = 1; i < TERMS; ++i) {
        const Pack factor = load_shared(coefficients + (i - 1) * n_samples + s);
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) total.lane[v] = fused(factor.lane[v], sums[i].lane[v], total.lane[v]);
    }
    return total;
}

__device__ inline void add_entry(Pack (&sums)[TERMS], const Terms& terms, const Pack& x)
{
#pragma unroll
    for (int i = 0; i < TERMS; ++i)
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) sums[i].lane[v] = fused(terms.value[i], x.lane[v], sums[i].lane[v]);
}

__device__ inline Pack term_product(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                    const real* __restrict__ terms, const real* __restrict__ coefficients,
                                    const real* __restrict__ x, int64 row, int s, int n_samples)
{
    Pack sums[TERMS];
#pragma unroll
    for (int i = 0; i < TERMS; ++i) sums[i] = spread(0);
    const offset begin = indptr[row], end = indptr[row + 1];
    const real* column = x + s;
#pragma unroll 3
    for (offset k = begin; k < end; ++k)
        add_entry(sums, load_terms(terms + (int64)k * TERMS),
                  load_shared(column + (int64)__ldg(indices + k) * n_samples));
    return combined(sums, coefficients, s, n_samples);
}

enum { SET, RESIDUAL };

template <int ENDING>
__global__ void __launch_bounds__(THREADS)
    affine_product(const offset* __restrict__ indptr, const int* __restrict__ indices,
                   const real* __restrict__ terms, const real* __restrict__ coefficients, const real* __restrict__ x,
                   const real* b, real* y, int64 n_rows, int n_samples)
{
    const int64 row = row_here(), here = row * n_samples + sample_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    Pack total = term_product(indptr, indices, terms, coefficients, x, row, s, n_samples);
    if (ENDING == RESIDUAL) total = load(b + here) - total;
    store(y + here, total);
}

__global__ void __launch_bounds__(THREADS)
    affine_transpose(const offset* __restrict__ indptr, const int* __restrict__ indices,
                     const offset* __restrict__ entries, const real* __restrict__ terms,
                     const real* __restrict__ coefficients, const real* __restrict__ x, real* y, int64 n_rows,
                     int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    Pack sums[TERMS];
#pragma unroll
    for (int i = 0; i < TERMS; ++i) sums[i] = spread(0);
    for (offset k = indptr[row]; k < indptr[row + 1]; ++k)
        add_entry(sums, load_terms(terms + (int64)__ldg(entries + k) * TERMS),
                  load_shared(x + (int64)__ldg(indices + k) * n_samples + s));
    store(y + row * n_samples + s, combined(sums, coefficients, s, n_samples));
}

__global__ void __launch_bounds__(THREADS)
    affine_values(const real* __restrict__ terms, const real* __restrict__ coefficients, real* values, int64 n_rows,
                  int n_samples)
{
    const int64 k = row_here();
    const int s = sample_here();
    if (k >= n_rows || s >= n_samples) return;
    Pack sums[TERMS];
    const Terms row = load_terms(terms + k * TERMS);
#pragma unroll
    for (int i = 0; i < TERMS; ++i) sums[i] = spread(row.value[i]);
    store(values + k * n_samples + s, combined(sums, coefficients, s, n_samples));
}

enum { FIRST, STEP, LAST };

template <int KIND>
__global__ void __launch_bounds__(THREADS)
    affine_chebyshev(const offset* __restrict__ indptr, const int* __restrict__ indices,
                     const real* __restrict__ terms, const real* __restrict__ coefficients,
                     const real* __restrict__ dinv, const real* __restrict__ b, const real* __restrict__ x,
                     const real* __restrict__ a, const real* __restrict__ c, real* w, real* out, int64 n_rows,
                     int n_samples)
{
    const int64 row = row_here(), here = row * n_samples + sample_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const Pack total = term_product(indptr, indices, terms, coefficients, x, row, s, n_samples);
    Pack step = load_shared(c + s) * (load_once(dinv + here) * (load_once(b + here) - total));
    if (KIND != FIRST) step = load_shared(a + s) * load(w + here) + step;
    if (KIND != LAST) store(w + here, step);
    store(out + here, load(x + here) + step);
}

// --- the matrix units: one warp a row and tile of COLUMNS samples
#define COLUMNS 32
#define WARPS 8

// c += a b for a of (8, 4) and b of (4, 8): each lane holds a[lane / 4][lane % 4], b[lane % 4][lane / 4], and
// c[lane / 4][lane % 4 * 2] with its right neighbour.
__device__ inline void multiply_add(double (&c)[2], double a, double b)
{
#ifdef __CUDA_ARCH__
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(c[0]), "+d"(c[1])
                 : "d"(a), "d"(b));
#endif
}

__device__ inline double from_lane(double value, int distance)
{
#ifdef __CUDA_ARCH__
    return __shfl_xor_sync(0xffffffffu, value, distance);
#else
    return value;
#endif
}

// The rows' sums for each term in the lanes of a warp, term lane / 4, combined with the samples' coefficients: every
// lane gets samples s0 + 8 t + lane % 4 * 2 and the next, for t = 0, 1, 2, 3.
__device__ inline void warp_product(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                    const double* __restrict__ terms, const double* __restrict__ coefficients,
                                    const double* __restrict__ x, int64 row, int s0, int n_samples,
                                    double (&total)[COLUMNS / 8][2])
{
    const int lane = threadIdx.x % 32, term = lane / 4, step = lane % 4;
    const offset begin = indptr[row], end = indptr[row + 1];
#pragma unroll
    for (int t = 0; t < COLUMNS / 8; ++t) total[t][0] = total[t][1] = 0;
#pragma unroll 2
    for (offset k = begin; k < end; k += 4) {
        const bool inside = k + step < end;
        const offset entry = inside ? k + step : begin;
        const double a = inside && term < TERMS ? __ldcs(terms + (int64)entry * TERMS + term) : 0;
        const double* column = x + (int64)__ldg(indices + entry) * n_samples + s0 + term;
#pragma unroll
        for (int t = 0; t < COLUMNS / 8; ++t)
            multiply_add(total[t], a, inside && s0 + 8 * t < n_samples ? __ldg(column + 8 * t) : 0);
    }
#pragma unroll
    for (int t = 0; t < COLUMNS / 8; ++t) {
#pragma unroll
        for (int v = 0; v < 2; ++v) {
            const int s = s0 + 8 * t + step * 2 + v;
            double part = total[t][v];
            if (term > 0) part = term < TERMS && s < n_samples ? __ldg(coefficients + (term - 1) * n_samples + s) * part : 0;
            part = part + from_lane(part, 4);
            part = part + from_lane(part, 8);
            total[t][v] = part + from_lane(part, 16);
        }
    }
}

// A x, or b - A x; n_samples a multiple of 8.
template <int ENDING>
__global__ void __launch_bounds__(32 * WARPS)
    affine_warps(const offset* __restrict__ indptr, const int* __restrict__ indices, const double* __restrict__ terms,
                 const double* __restrict__ coefficients, const double* __restrict__ x, const double* b, double* y,
                 int64 n_rows, int n_samples)
{
    const int64 row = (int64)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= n_rows) return;
    const int s0 = blockIdx.y * COLUMNS, lane = threadIdx.x % 32;
    double total[COLUMNS / 8][2];
    warp_product(indptr, indices, terms, coefficients, x, row, s0, n_samples, total);
#pragma unroll
    for (int t = 0; t < COLUMNS / 8; ++t) {
        const int s = s0 + 8 * t + lane % 4 * 2;
        if (lane / 4 != t || s >= n_samples) continue;  // each tile is written by four lanes
        const int64 here = row * n_samples + s;
        double2 result = make_double2(total[t][0], total[t][1]);
        if (ENDING == RESIDUAL) {
            const double2 given = *reinterpret_cast<const double2*>(b + here);
            result = make_double2(given.x - result.x, given.y - result.y);
        }
        *reinterpret_cast<double2*>(y + here) = result;
    }
}
