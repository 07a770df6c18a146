// Factorisation and substitution by levels of the elimination tree; the lists are those of levels.py.
//
// A block carries blockDim.x samples, one per threadIdx.x; its rows of threads (threadIdx.y) share the tasks of a level,
// an entry or a row each, and wait for each other after it. Every sum belongs to one thread and has the order of the CPU.

#ifndef SHARED_VALUES
#define SHARED_VALUES(name) extern __shared__ __align__(16) char name##_bytes[]; real* const name = (real*)name##_bytes
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

#define MOST_THREADS 512
#ifndef BOUNDS
#define BOUNDS __launch_bounds__(MOST_THREADS, 2)  // 64 registers: loads in flight need threads more than registers
#endif
#define AHEAD 4

// The values of one sample: in shared memory, or in the array itself.
template <bool STAGED> struct Values {
    real* first;
    int64 stride;
    __device__ __forceinline__ real& operator[](int e) const
    {
        if constexpr (STAGED)
            return first[e * (int)stride];
        else
            return first[e * stride];
    }
};

__device__ __forceinline__ real reciprocal(real pivot)
{
    const real inverse = real(1) / pivot;
    return inverse - inverse == 0 && inverse != 0 ? inverse : real(NAN);
}

// The first operands of a sum, loaded before they can be used; an empty place holds the pair (0, 0).
struct Pairs {
    int2 at[AHEAD];
};

__device__ __forceinline__ Pairs pairs_from(const int2* __restrict__ pairs, int begin, int end)
{
    Pairs found;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) found.at[i] = begin + i < end ? __ldg(pairs + begin + i) : int2{0, 0};
    return found;
}

// total - products of the pairs [begin, end), in their order; `now` are the first of them. The loads of several pairs are
// in flight at once.
template <bool SYMMETRIC, class V>
__device__ __forceinline__ real reduced(real total, const V& values, const int2* __restrict__ pairs,
                                        const int* __restrict__ scales, int begin, int end, Pairs now)
{
    for (int p = begin; p < end; p += AHEAD) {
        real a[AHEAD], b[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; ++i)
            if (p + i < end) {
                a[i] = values[now.at[i].x], b[i] = values[now.at[i].y];
                if constexpr (SYMMETRIC) a[i] = a[i] * values[__ldg(scales + p + i)];
            }
        now = pairs_from(pairs, p + AHEAD, end);
#pragma unroll
        for (int i = 0; i < AHEAD; ++i)
            if (p + i < end) total = total - a[i] * b[i];
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

// NaN in `broken` where any thread of the sample met a number that is not finite.
__device__ __forceinline__ void report(real check, real* broken, int s, bool inside)
{
    __shared__ char marks[MOST_THREADS];
    const int at = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();
    marks[at] = check != check;
    __syncthreads();
    if (threadIdx.y != 0 || !inside) return;
    bool any = false;
    for (int t = threadIdx.x; t < blockDim.x * blockDim.y; t += blockDim.x) any = any || marks[t];
    broken[s] = any ? real(NAN) : real(0);
}

// Tasks {place, source, begin, end}: the place of a pivot is complemented; `pivots` has the place of the reciprocal pivot
// that a value left of the diagonal is multiplied by, else -1. With a right-hand side, its entries are values from n_values
// on, and the values of the array as many more.
template <bool STAGED, bool SYMMETRIC>
__global__ void BOUNDS
    factor(const real* __restrict__ A, const real* __restrict__ b, real* values, real* x, real* broken,
           const int* __restrict__ starts, const int4* __restrict__ tasks, const int2* __restrict__ pairs,
           const int* __restrict__ scales, const int* __restrict__ pivots, const int* __restrict__ back_starts,
           const int4* __restrict__ back_tasks, const int* __restrict__ back_rows, const int2* __restrict__ terms,
           int nnz, int n_values, int n_levels, int n_samples)
{
    SHARED_VALUES(staged);
    const int lanes = blockDim.x, own = blockIdx.x * lanes + threadIdx.x, step = blockDim.y;
    const bool inside = own < n_samples;
    const int s = inside ? own : n_samples - 1;  // an idle thread reads what its neighbour does
    const Values<STAGED> v = STAGED ? Values<STAGED>{staged + threadIdx.x, lanes} : Values<STAGED>{values + s, n_samples};
    if constexpr (STAGED) {
        const int n_tasks = __ldg(starts + n_levels);
#pragma unroll 4
        for (int t = threadIdx.y; t < n_tasks; t += step) {
            const int4 task = __ldg(tasks + t);
            v[task.x < 0 ? ~task.x : task.x] = source_of(A, b, task.y, nnz, n_samples, s);
        }
        __syncthreads();
    }
    // The first task of the next level, its source and its first pairs are loaded while this one is worked on.
    real check = 0, ahead = 0;
    int4 next = {0, 0, 0, 0};
    int next_pivot = -1, first = 0, end = 0, next_end = __ldg(starts + 1);
    Pairs next_pairs;
    if (threadIdx.y < next_end) {
        next = __ldg(tasks + threadIdx.y);
        next_pivot = SYMMETRIC ? -1 : __ldg(pivots + threadIdx.y);
        if constexpr (!STAGED) ahead = source_of(A, b, next.y, nnz, n_samples, s);
    }
    next_pairs = pairs_from(pairs, next.z, next.w);
    for (int level = 0; level < n_levels; ++level) {
        first = end + threadIdx.y, end = next_end;
        int4 task = next;
        int pivot = next_pivot, held_place = 0, held_pivot = -1;
        real total = ahead, held = 0;
        Pairs now = next_pairs;
        next = {0, 0, 0, 0};
        if (level + 1 < n_levels) {
            next_end = __ldg(starts + level + 2);
            const int t = end + threadIdx.y;
            if (t < next_end) {
                next = __ldg(tasks + t);
                next_pivot = SYMMETRIC ? -1 : __ldg(pivots + t);
                if constexpr (!STAGED) ahead = source_of(A, b, next.y, nnz, n_samples, s);
            }
        }
        next_pairs = pairs_from(pairs, next.z, next.w);
        for (int t = first; t < end; t += step) {
            if (t != first) {
                task = __ldg(tasks + t);
                pivot = SYMMETRIC ? -1 : __ldg(pivots + t);
                now = pairs_from(pairs, task.z, task.w);
                if constexpr (!STAGED) total = source_of(A, b, task.y, nnz, n_samples, s);
            }
            const int place = task.x < 0 ? ~task.x : task.x;
            if constexpr (STAGED) total = v[place];
            total = reduced<SYMMETRIC>(total, v, pairs, scales, task.z, task.w, now);
            if (task.x < 0) total = reciprocal(total);
            if (t == first && pivot >= 0) {
                held = total, held_place = place, held_pivot = pivot;
                continue;
            }
            check = check + (place < n_values ? total - total : real(0));
            if (STAGED || inside) v[place] = total;
        }
        __syncthreads();
        if constexpr (!SYMMETRIC) {
            if (held_pivot >= 0) {
                held = held * v[held_pivot];
                check = check + (held - held);
                if (STAGED || inside) v[held_place] = held;
            }
            for (int t = first + step; t < end; t += step) {
                const int own_pivot = __ldg(pivots + t);
                if (own_pivot < 0) continue;
                const int place = __ldg(tasks + t).x;
                const real factor = v[place] * v[own_pivot];
                check = check + (factor - factor);
                if (STAGED || inside) v[place] = factor;
            }
            __syncthreads();
        }
    }
    if constexpr (STAGED)
        if (inside)
            for (int e = threadIdx.y; e < n_values; e += blockDim.y) values[e * (int64)n_samples + s] = v[e];
    for (int level = x != nullptr ? n_levels - 1 : -1; level >= 0; --level) {
        const int high = __ldg(back_starts + level + 1);
        for (int t = __ldg(back_starts + level) + threadIdx.y; t < high; t += blockDim.y) {
            const int4 task = __ldg(back_tasks + t);  // {row of x, begin, end, pivot}
            const int row = n_values + __ldg(back_rows + t);
            const Pairs now = pairs_from(terms, task.y, task.z);
            const real total = reduced<false>(v[row], v, terms, nullptr, task.y, task.z, now) * v[task.w];
            if (STAGED || inside) v[row] = total;
            if (inside) x[task.x * (int64)n_samples + s] = total;
        }
        __syncthreads();
    }
    report(check, broken, s, inside);
}

// One pass of a substitution. Tasks {row of x, begin, end, pivot} and the row of b; terms {value, row of x}. With `pivots`,
// a term's x is multiplied by the reciprocal pivot of its row first; with `scaled`, a sum by that of its own.
template <class F> struct Pass {
    const F* __restrict__ values;
    int64 stride;
    int at;
    const real* b;
    real* x;
    int64 row_size, here;
    const int4* __restrict__ tasks;
    const int* __restrict__ rows;
    const int2* __restrict__ terms;
    const int* __restrict__ pivots;
    bool scaled;

    // Values are read before the threads wait for each other: they do not depend on other rows.
    struct Task {
        int4 task;
        int2 terms[AHEAD];
        real factors[AHEAD], pivot, total;
    };

    __device__ __forceinline__ real value(int e) const { return real(values[e * stride + at]); }

    __device__ __forceinline__ void load_terms(Task& own, int begin) const
    {
#pragma unroll
        for (int i = 0; i < AHEAD; ++i)
            if (begin + i < own.task.z) own.terms[i] = __ldg(terms + begin + i);
#pragma unroll
        for (int i = 0; i < AHEAD; ++i)
            if (begin + i < own.task.z) own.factors[i] = value(own.terms[i].x);
    }

    __device__ __forceinline__ Task load(int t, int end) const
    {
        Task own;
        own.task = {0, 0, 0, 0};
        if (t >= end) return own;
        own.task = __ldg(tasks + t);
        own.pivot = scaled ? value(own.task.w) : real(0);
        if (b != nullptr) own.total = b[__ldg(rows + t) * row_size + here];
        load_terms(own, own.task.y);
        return own;
    }

    __device__ __forceinline__ void finish(Task& own, bool inside) const
    {
        real* const place = x + own.task.x * row_size + here;
        real total = b != nullptr ? own.total : *place;
        for (int p = own.task.y; p < own.task.z; p += AHEAD) {
            if (p != own.task.y) load_terms(own, p);
            real source[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; ++i)
                if (p + i < own.task.z) {
                    source[i] = x[own.terms[i].y * row_size + here];
                    if (pivots != nullptr) source[i] = source[i] * value(__ldg(pivots + p + i));
                }
#pragma unroll
            for (int i = 0; i < AHEAD; ++i)
                if (p + i < own.task.z) total = total - own.factors[i] * source[i];
        }
        if (scaled) total = total * own.pivot;
        if (inside) *place = total;
    }

    __device__ __forceinline__ void run(const int* __restrict__ starts, int n_levels, bool down, bool inside) const
    {
        const int step = blockDim.y;
        int level = down ? 0 : n_levels - 1;
        int begin = __ldg(starts + level), end = __ldg(starts + level + 1);
        Task next = load(begin + threadIdx.y, end);
        for (int done = 0; done < n_levels; ++done) {
            Task own = next;
            int next_begin = 0, next_end = 0;
            if (done + 1 < n_levels) {
                const int following = down ? level + 1 : level - 1;
                next_begin = __ldg(starts + following), next_end = __ldg(starts + following + 1);
                level = following;
            }
            next = load(next_begin + threadIdx.y, next_end);
            for (int t = begin + threadIdx.y; t < end; t += step) {
                if (t != begin + threadIdx.y) own = load(t, end);
                finish(own, inside);
            }
            begin = next_begin, end = next_end;
            __syncthreads();
        }
    }
};

// b and x of shape (n, k, n_samples), blockIdx.y counts the columns; values of shape (n_values, n_samples), or 1 for all.
template <class F>
__global__ void BOUNDS
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
    const Pass<F> forward{values, stride, at, b, x, row_size, here, tasks, rows, terms, pivots, scaled != 0};
    forward.run(starts, n_levels, true, inside);
    const Pass<F> backward{values,     stride, at,      nullptr, x, row_size, here, back_tasks, nullptr,
                           back_terms, nullptr, back_scaled != 0};
    backward.run(back_starts, n_levels, false, inside);
}
