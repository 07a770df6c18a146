// Tridiagonal matrices in elimination order, one sample per thread: values lie as l, 1 / pivot, u of each row, for LDL^T
// without l. Rows come by asynchronous copies (RING - 1) GROUP ahead of the recurrence; operations and bits are those of levels.cu.

#define THREADS_OF_BLOCK 32
#define RING 8
#define GROUP 4
#define PARTS 4

// An index, or the number itself where the list is that of all numbers.
__device__ __forceinline__ int64 index_at(const int* __restrict__ list, int64 i) { return list != nullptr ? __ldg(list + i) : i; }

template <bool SYMMETRIC> __device__ __forceinline__ int64 pivot_of(int64 row) { return SYMMETRIC ? 2 * row : 3 * row; }

// A thread's numbers of the next rows: PARTS of each row, GROUP rows in a group of copies, RING groups. A place has the
// size of `Widest`, the wider type of factors and vectors.
template <class Widest> struct Ahead {
    Widest* first;

    template <class T> __device__ __forceinline__ T* at(int i, int part) const
    {
        static_assert(sizeof(T) <= sizeof(Widest), "a number is larger than its place in the ring");
        return (T*)(first + ((i & (RING * GROUP - 1)) * PARTS + part) * THREADS_OF_BLOCK);
    }
};

template <bool> struct WiderOf {
    typedef real type;
};
template <> struct WiderOf<true> {
    typedef double type;
};
template <class F> using Widest = typename WiderOf<(sizeof(F) > sizeof(real))>::type;

#define THREAD_RING(name, T)                                           \
    __shared__ T name##_numbers[RING * GROUP * PARTS * THREADS_OF_BLOCK]; \
    const Ahead<T> name{name##_numbers + threadIdx.x}

// Parts of a row.
#define LEFT 0
#define OWN_PIVOT 1
#define RIGHT 2
#define RHS 3

__device__ __forceinline__ void fetch(real* to, const real* __restrict__ from, int64 row, int64 n_samples, int s)
{
    if (row >= 0)
        copy_async<sizeof(real)>(to, from + row * n_samples + s);
    else
        *to = 0;
}

template <bool SYMMETRIC>
__device__ __forceinline__ void fetch_row(const Ahead<real>& ring, const real* __restrict__ A, const real* __restrict__ b,
                                          const int* __restrict__ sources, const int* __restrict__ rows, int i, int n,
                                          int64 n_samples, int s)
{
    if (i >= n) return;
    const int64 own = pivot_of<SYMMETRIC>(i);
    if (!SYMMETRIC && i > 0) fetch(ring.at<real>(i, LEFT), A, index_at(sources, own - 1), n_samples, s);
    fetch(ring.at<real>(i, OWN_PIVOT), A, index_at(sources, own), n_samples, s);
    if (i + 1 < n) fetch(ring.at<real>(i, RIGHT), A, index_at(sources, own + 1), n_samples, s);
    if (b != nullptr) fetch(ring.at<real>(i, RHS), b, index_at(rows, i), n_samples, s);
}

// One right-hand side: y, of the forward substitution, in x where b is given.
template <bool SYMMETRIC>
__global__ void __launch_bounds__(THREADS_OF_BLOCK)
    chain_factor(const real* __restrict__ A, const real* __restrict__ b, real* __restrict__ values, real* __restrict__ x,
                 real* __restrict__ broken, const int* __restrict__ sources, const int* __restrict__ rows,
                 const int* __restrict__ columns, int n, int n_samples)
{
    THREAD_RING(ring, real);
    const int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= n_samples) return;
    const int64 stride = n_samples;
    real inverse = 0, right = 0, y = 0, check = 0;
    for (int g = 0; g < RING - 1; ++g) {
        for (int k = 0; k < GROUP; ++k) fetch_row<SYMMETRIC>(ring, A, b, sources, rows, g * GROUP + k, n, stride, s);
        close_group();
    }
#pragma unroll 1
    for (int begin = 0; begin < n; begin += GROUP) {
        wait_for_groups<RING - 2>();
#pragma unroll
        for (int k = 0; k < GROUP; ++k) {
            const int i = begin + k;
            fetch_row<SYMMETRIC>(ring, A, b, sources, rows, i + (RING - 1) * GROUP, n, stride, s);
            if (i < n) {
                const int64 own = pivot_of<SYMMETRIC>(i);
                real pivot = *ring.at<real>(i, OWN_PIVOT), next = b != nullptr ? *ring.at<real>(i, RHS) : real(0);
                if (i > 0) {
                    const real factor = (SYMMETRIC ? right : *ring.at<real>(i, LEFT)) * inverse;
                    pivot = pivot - factor * right;
                    next = next - (SYMMETRIC ? right * (y * inverse) : factor * y);
                    if (!SYMMETRIC) {
                        check = check + (factor - factor);
                        values[(own - 1) * stride + s] = factor;
                    }
                }
                inverse = reciprocal(pivot), right = i + 1 < n ? *ring.at<real>(i, RIGHT) : real(0), y = next;
                check = check + (inverse - inverse);
                values[own * stride + s] = inverse;
                if (i + 1 < n) {
                    check = check + (right - right);
                    values[(own + 1) * stride + s] = right;
                }
                if (x != nullptr) x[index_at(columns, i) * stride + s] = y;
            }
        }
        close_group();
    }
    broken[s] = check;
}

#define LU 0
#define TRANSPOSED 1
#define LDLT 2

// What row i of a pass reads: the factor of its neighbour, a reciprocal pivot, and its own y.
template <int KIND, bool DOWN, class F>
__device__ __forceinline__ void fetch_step(const Ahead<Widest<F>>& ring, const F* __restrict__ values, int64 stride, int at,
                                           const real* from, int64 row_size, int64 here, const int* __restrict__ rows,
                                           int j, int n)
{
    if (j >= n) return;
    const int i = DOWN ? j : n - 1 - j;
    const int64 own = pivot_of<KIND == LDLT>(i), above = pivot_of<KIND == LDLT>(i - 1);
    const int64 factor = DOWN ? (KIND == LU ? own - 1 : above + 1) : KIND == TRANSPOSED ? own + 2 : own + 1;
    const int64 pivot = DOWN && KIND == LDLT ? above : own;
    if (j > 0) copy_async<sizeof(F)>(ring.template at<F>(j, LEFT), values + factor * stride + at);
    if (DOWN ? KIND == TRANSPOSED || (KIND == LDLT && j > 0) : KIND != TRANSPOSED)
        copy_async<sizeof(F)>(ring.template at<F>(j, OWN_PIVOT), values + pivot * stride + at);
    copy_async<sizeof(real)>(ring.template at<real>(j, RHS), from + index_at(rows, i) * row_size + here);
}

template <int KIND, bool DOWN, class F>
__device__ __forceinline__ void chain_pass(const Ahead<Widest<F>>& ring, const F* __restrict__ values, int64 stride, int at,
                                           const real* from, real* x, int64 row_size, int64 here,
                                           const int* __restrict__ rows, const int* __restrict__ columns, int n)
{
    real y = 0;
    for (int g = 0; g < RING - 1; ++g) {
        for (int k = 0; k < GROUP; ++k)
            fetch_step<KIND, DOWN, F>(ring, values, stride, at, from, row_size, here, rows, g * GROUP + k, n);
        close_group();
    }
#pragma unroll 1
    for (int begin = 0; begin < n; begin += GROUP) {
        wait_for_groups<RING - 2>();
#pragma unroll
        for (int k = 0; k < GROUP; ++k) {
            const int j = begin + k, i = DOWN ? j : n - 1 - j;
            fetch_step<KIND, DOWN, F>(ring, values, stride, at, from, row_size, here, rows, j + (RING - 1) * GROUP, n);
            if (j < n) {
                real total = *ring.template at<real>(j, RHS);
                const real pivot = real(*ring.template at<F>(j, OWN_PIVOT));
                if (j > 0) {
                    const real factor = real(*ring.template at<F>(j, LEFT));
                    total = total - factor * (DOWN && KIND == LDLT ? y * pivot : y);
                }
                y = (DOWN ? KIND == TRANSPOSED : KIND != TRANSPOSED) ? total * pivot : total;
                x[index_at(columns, i) * row_size + here] = y;
            }
        }
        close_group();
    }
    wait_for_groups<0>();
}

// The second pass of a solve with a fresh factorisation.
template <bool SYMMETRIC>
__global__ void __launch_bounds__(THREADS_OF_BLOCK)
    chain_back(const real* __restrict__ values, real* x, const int* __restrict__ columns, int n, int n_samples)
{
    THREAD_RING(ring, real);
    const int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s < n_samples)
        chain_pass<SYMMETRIC ? LDLT : LU, false, real>(ring, values, n_samples, s, x, x, n_samples, s, columns, columns, n);
}

// b and x of shape (n, k, n_samples), blockIdx.y counts the columns; values of shape (n_values, n_samples), or 1 for all.
template <int KIND, class F>
__global__ void __launch_bounds__(THREADS_OF_BLOCK)
    chain_solve(const F* __restrict__ values, const real* b, real* x, const int* __restrict__ rows,
                const int* __restrict__ columns, int n, int n_columns, int shared, int n_samples)
{
    THREAD_RING(ring, Widest<F>);
    const int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= n_samples) return;
    const int64 row_size = (int64)n_columns * n_samples, here = (int64)blockIdx.y * n_samples + s;
    const int64 stride = shared ? 1 : n_samples;
    const int at = shared ? 0 : s;
    chain_pass<KIND, true, F>(ring, values, stride, at, b, x, row_size, here, rows, columns, n);
    __threadfence_block();
    chain_pass<KIND, false, F>(ring, values, stride, at, x, x, row_size, here, columns, columns, n);
}
