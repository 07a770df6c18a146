// Factorisation and substitution by levels of the elimination tree; the lists are those of levels.py.
//
// A block carries blockDim.x samples, one per threadIdx.x; its rows of threads (threadIdx.y) share the tasks of a level,
// an entry or a row each, and wait for each other after it. Every sum belongs to one thread and has the order of the CPU.

#define AHEAD 4

// The values of one sample.
struct Values {
    real* first;
    int64 stride;
    __device__ __forceinline__ real& operator[](int e) const { return first[e * stride]; }
};

// total - products of the pairs [begin, end), in their order. The loads of several pairs are in flight at once.
template <bool SYMMETRIC>
__device__ __forceinline__ real reduced(real total, const Values& values, const int2* __restrict__ pairs,
                                        const int* __restrict__ scales, int begin, int end)
{
    int p = begin;
    for (; p + AHEAD <= end; p += AHEAD) {
        real a[AHEAD], b[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int2 pair = __ldg(pairs + p + i);
            a[i] = values[pair.x], b[i] = values[pair.y];
            if constexpr (SYMMETRIC) a[i] = a[i] * values[__ldg(scales + p + i)];
        }
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) total = total - a[i] * b[i];
    }
    for (; p < end; ++p) {
        const int2 pair = __ldg(pairs + p);
        real a = values[pair.x];
        if constexpr (SYMMETRIC) a = a * values[__ldg(scales + p)];
        total = total - a * values[pair.y];
    }
    return total;
}

// What a value begins as: an entry of the matrix, one of the right-hand side behind them, or zero.
__device__ __forceinline__ real source_of(const real* __restrict__ A, const real* __restrict__ b, int source, int nnz,
                                          int64 n_samples, int s)
{
    if (source < 0) return 0;
    return source < nnz ? A[source * n_samples + s] : b[(source - nnz) * n_samples + s];
}

// Tasks {place, source, begin, end}: the place of a pivot is complemented. With a right-hand side, its entries are values
// from n_values on, and the values of the array as many more.
template <bool SYMMETRIC>
__global__ void __launch_bounds__(MOST_THREADS)
    factor(const real* __restrict__ A, const real* __restrict__ b, real* values, real* x, real* broken,
           const int* __restrict__ starts, const int4* __restrict__ tasks, const int2* __restrict__ pairs,
           const int* __restrict__ scales, const int* __restrict__ scaled_starts, const int2* __restrict__ scaled,
           const int* __restrict__ back_starts, const int4* __restrict__ back_tasks, const int* __restrict__ back_rows,
           const int2* __restrict__ terms, int nnz, int n_values, int n_levels, int n_samples)
{
    const int lanes = blockDim.x, own = blockIdx.x * lanes + threadIdx.x;
    const bool inside = own < n_samples;
    const int s = inside ? own : n_samples - 1;  // an idle thread reads what its neighbour does
    const Values v{values + s, n_samples};
    real check = 0, ahead = 0;
    int4 next;
    if (threadIdx.y < __ldg(starts + 1)) {
        next = __ldg(tasks + threadIdx.y);
        ahead = source_of(A, b, next.y, nnz, n_samples, s);
    }
    for (int level = 0; level < n_levels; ++level) {
        const int first = __ldg(starts + level) + threadIdx.y, end = __ldg(starts + level + 1);
        int4 task = next;
        real total = ahead;
        const bool more = level + 1 < n_levels && end + threadIdx.y < __ldg(starts + level + 2);
        if (more) {  // of the next level: loads that depend on nothing of this one
            next = __ldg(tasks + end + threadIdx.y);
            ahead = source_of(A, b, next.y, nnz, n_samples, s);
        }
        for (int t = first; t < end; t += blockDim.y) {
            if (t != first) {
                task = __ldg(tasks + t);
                total = source_of(A, b, task.y, nnz, n_samples, s);
            }
            const bool pivot = task.x < 0;
            const int place = pivot ? ~task.x : task.x;
            total = reduced<SYMMETRIC>(total, v, pairs, scales, task.z, task.w);
            if (pivot) total = reciprocal(total);
            check = check + (place < n_values ? total - total : real(0));
            if (inside) v[place] = total;
        }
        __syncthreads();
        if constexpr (!SYMMETRIC) {
            const int low = __ldg(scaled_starts + level), high = __ldg(scaled_starts + level + 1);
            for (int t = low + threadIdx.y; t < high; t += blockDim.y) {
                const int2 pair = __ldg(scaled + t);
                const real factor = v[pair.x] * v[pair.y];
                check = check + (factor - factor);
                if (inside) v[pair.x] = factor;
            }
            if (low < high) __syncthreads();
        }
    }
    for (int level = x != nullptr ? n_levels - 1 : -1; level >= 0; --level) {
        const int high = __ldg(back_starts + level + 1);
        for (int t = __ldg(back_starts + level) + threadIdx.y; t < high; t += blockDim.y) {
            const int4 task = __ldg(back_tasks + t);  // {row of x, begin, end, pivot}
            const int row = n_values + __ldg(back_rows + t);
            const real total = reduced<false>(v[row], v, terms, nullptr, task.y, task.z) * v[task.w];
            if (inside) v[row] = total;
            if (inside) x[task.x * (int64)n_samples + s] = total;
        }
        __syncthreads();
    }
    report(check, broken, s, inside);
}

// Tasks {row of x, begin, end, pivot} and the row of b; terms {value, row of x}. With `pivots`, a term's x is multiplied by
// the reciprocal pivot of its row first; with `scaled`, a sum by that of its own.
template <class F>
__device__ __forceinline__ void substitute(const F* __restrict__ values, int64 stride, int at,
                                           const real* __restrict__ b, real* x, int64 row_size, int64 here, bool inside,
                                           const int4* __restrict__ tasks, const int* __restrict__ rows,
                                           const int2* __restrict__ terms, const int* __restrict__ pivots, bool scaled,
                                           int begin, int end)
{
    for (int t = begin + threadIdx.y; t < end; t += blockDim.y) {
        const int4 task = __ldg(tasks + t);
        real* const own = x + task.x * row_size + here;
        real total = b != nullptr ? b[__ldg(rows + t) * row_size + here] : *own;
        int p = task.y;
        for (; p + AHEAD <= task.z; p += AHEAD) {
            real factor[AHEAD], source[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                const int2 term = __ldg(terms + p + i);
                factor[i] = real(values[term.x * stride + at]), source[i] = x[term.y * row_size + here];
                if (pivots != nullptr) source[i] = source[i] * real(values[__ldg(pivots + p + i) * stride + at]);
            }
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) total = total - factor[i] * source[i];
        }
        for (; p < task.z; ++p) {
            const int2 term = __ldg(terms + p);
            real source = x[term.y * row_size + here];
            if (pivots != nullptr) source = source * real(values[__ldg(pivots + p) * stride + at]);
            total = total - real(values[term.x * stride + at]) * source;
        }
        if (scaled) total = total * real(values[task.w * stride + at]);
        if (inside) *own = total;
    }
    __syncthreads();
}

// b and x of shape (n, k, n_samples), blockIdx.y counts the columns; values of shape (n_values, n_samples), or 1 for all.
template <class F>
__global__ void __launch_bounds__(MOST_THREADS)
    substitutions(const F* __restrict__ values, const real* __restrict__ b, real* x, const int* __restrict__ starts,
                  const int4* __restrict__ tasks, const int* __restrict__ rows, const int2* __restrict__ terms,
                  const int* __restrict__ pivots, const int* __restrict__ back_starts,
                  const int4* __restrict__ back_tasks, const int2* __restrict__ back_terms, int scaled, int back_scaled,
                  int n_levels, int n_columns, int shared, int n_samples)
{
    const int own = blockIdx.x * blockDim.x + threadIdx.x;
    const bool inside = own < n_samples;
    const int s = inside ? own : n_samples - 1, at = shared ? 0 : s;
    const int64 row_size = (int64)n_columns * n_samples, here = (int64)blockIdx.y * n_samples + s;
    const int64 stride = shared ? 1 : n_samples;
    for (int level = 0; level < n_levels; ++level)
        substitute(values, stride, at, b, x, row_size, here, inside, tasks, rows, terms, pivots, scaled != 0,
                   __ldg(starts + level), __ldg(starts + level + 1));
    for (int level = n_levels - 1; level >= 0; --level)
        substitute(values, stride, at, (const real*)nullptr, x, row_size, here, inside, back_tasks,
                   (const int*)nullptr, back_terms, (const int*)nullptr, back_scaled != 0, __ldg(back_starts + level),
                   __ldg(back_starts + level + 1));
}
