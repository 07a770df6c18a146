// Products with matrices that are affine in a few parameters; what each computes stands in affine.py.
//
// TERMS is the number of shared terms. A row keeps one sum for each and combines them at its end: a chain of fused
// multiply-adds in the order of the entries, as on the CPU. The terms of a block's rows are staged in shared memory, read
// there once by all threads together: asking for them lane by lane took twice as long. Keeping rows that share columns
// together (bricks, aggregates) brought nothing.

__device__ inline real fused(real a, real b, real c)
{
    if constexpr (sizeof(real) == 8) return fma(a, b, c);
    else return fmaf(a, b, c);
}

struct alignas(TERMS % 2 == 0 ? 2 * sizeof(real) : sizeof(real)) Terms {
    real value[TERMS];
};

// What a thread moves at once: an entry's terms are a whole number of words, and begin at one.
template <int BYTES> struct WordOf { typedef int type; };
template <> struct WordOf<8> { typedef int2 type; };
template <> struct WordOf<16> { typedef int4 type; };
typedef typename WordOf<(TERMS % 2 == 0 ? 2 : 1) * (int)sizeof(real)>::type Word;

#define BYTES_STAGED 40000
#define ENTRY_BYTES ((int)sizeof(Terms) + 4)
#define STAGED (ROWS * 28 * ENTRY_BYTES < BYTES_STAGED ? ROWS * 28 : BYTES_STAGED / ENTRY_BYTES)

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

__device__ inline void clear(Pack (&sums)[TERMS])
{
#pragma unroll
    for (int i = 0; i < TERMS; ++i) sums[i] = spread(0);
}

// A x for the row and the samples of this thread. Every thread of the block calls this; what those without a row or a
// sample get is of no use.
__device__ inline Pack term_product(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                    const real* __restrict__ terms, const real* __restrict__ coefficients,
                                    const real* __restrict__ x, int64 n_rows, int n_samples)
{
    __shared__ Terms staged[STAGED];
    __shared__ int columns[STAGED];
    const int64 first = (int64)blockIdx.x * ROWS, last = first + ROWS < n_rows ? first + ROWS : n_rows;
    const int64 row = row_here();
    const int s = sample_here();
    const bool inside = row < n_rows && s < n_samples;
    const int64 begin = inside ? indptr[row] : 0, end = inside ? indptr[row + 1] : 0;
    const int64 finish = indptr[last];
    const real* column = x + s;
    Pack sums[TERMS];
    clear(sums);
    for (int64 from = indptr[first]; from < finish; from += STAGED) {
        const int count = finish - from < STAGED ? (int)(finish - from) : STAGED;
        __syncthreads();
        const int words = count * TERMS * (int)sizeof(real) / (int)sizeof(Word);
        const Word* source = reinterpret_cast<const Word*>(terms + from * TERMS);
        for (int i = threadIdx.x; i < words; i += THREADS) reinterpret_cast<Word*>(staged)[i] = __ldcs(source + i);
        for (int i = threadIdx.x; i < count; i += THREADS) columns[i] = __ldcs(indices + from + i);
        __syncthreads();
        const int k0 = begin > from ? (int)(begin - from) : 0;
        const int k1 = end - from < count ? (int)(end - from) : count;
#pragma unroll 3
        for (int k = k0; k < k1; ++k) add_entry(sums, staged[k], load_shared(column + (int64)columns[k] * n_samples));
    }
    return inside ? combined(sums, coefficients, s, n_samples) : spread(0);
}

template <int ENDING>
__global__ void __launch_bounds__(THREADS)
    affine_product(const offset* __restrict__ indptr, const int* __restrict__ indices, const real* __restrict__ terms,
                   const real* __restrict__ coefficients, const real* __restrict__ x, const real* b, real* y,
                   int64 n_rows, int n_samples)
{
    const Pack total = term_product(indptr, indices, terms, coefficients, x, n_rows, n_samples);
    if (row_here() >= n_rows || sample_here() >= n_samples) return;
    end_product<ENDING>(total, row_here() * n_samples + sample_here(), b, y);
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
    clear(sums);
    for (offset k = indptr[row]; k < indptr[row + 1]; ++k) {
        Terms entry;
        for (int i = 0; i < TERMS; ++i) entry.value[i] = __ldg(terms + (int64)entries[k] * TERMS + i);
        add_entry(sums, entry, load_shared(x + (int64)__ldg(indices + k) * n_samples + s));
    }
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
#pragma unroll
    for (int i = 0; i < TERMS; ++i) sums[i] = spread(__ldg(terms + k * TERMS + i));
    store(values + k * n_samples + s, combined(sums, coefficients, s, n_samples));
}

template <int KIND>
__global__ void __launch_bounds__(THREADS)
    affine_chebyshev(const offset* __restrict__ indptr, const int* __restrict__ indices,
                     const real* __restrict__ terms, const real* __restrict__ coefficients,
                     const real* __restrict__ dinv, const real* __restrict__ b, const real* __restrict__ x,
                     const real* __restrict__ a, const real* __restrict__ c, real* w, real* out, int64 n_rows,
                     int n_samples)
{
    const Pack total = term_product(indptr, indices, terms, coefficients, x, n_rows, n_samples);
    if (row_here() >= n_rows || sample_here() >= n_samples) return;
    end_step<KIND>(total, row_here() * n_samples + sample_here(), sample_here(), dinv, b, x, a, c, w, out);
}
