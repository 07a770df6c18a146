// Tridiagonal matrices in elimination order, one sample per thread: values lie as l, 1 / pivot, u of each row, for LDL^T
// without l. Rows are read DEPTH ahead of the recurrence; operations and bits are those of levels.cu.

#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

#define DEPTH 16

// An index, or the number itself where the list is that of all numbers.
__device__ __forceinline__ int64 index_at(const int* __restrict__ list, int64 i) { return list != nullptr ? __ldg(list + i) : i; }

__device__ __forceinline__ real reciprocal(real pivot)
{
    const real inverse = real(1) / pivot;
    return inverse - inverse == 0 && inverse != 0 ? inverse : real(NAN);
}

template <bool SYMMETRIC> __device__ __forceinline__ int64 pivot_of(int64 row) { return SYMMETRIC ? 2 * row : 3 * row; }

struct Row {
    real left, pivot, right, b;
};

template <bool SYMMETRIC>
__device__ __forceinline__ Row row_of(const real* __restrict__ A, const real* __restrict__ b,
                                      const int* __restrict__ sources, const int* __restrict__ rows, int i, int n,
                                      int64 n_samples, int s)
{
    Row row{0, 0, 0, 0};
    if (i >= n) return row;
    const int64 own = pivot_of<SYMMETRIC>(i);
    const int64 left = SYMMETRIC || i == 0 ? -1 : index_at(sources, own - 1), pivot = index_at(sources, own);
    const int64 right = i + 1 == n ? -1 : index_at(sources, own + 1);
    if (left >= 0) row.left = A[left * n_samples + s];
    if (pivot >= 0) row.pivot = A[pivot * n_samples + s];
    if (right >= 0) row.right = A[right * n_samples + s];
    if (b != nullptr) row.b = b[index_at(rows, i) * n_samples + s];
    return row;
}

// One right-hand side: the solution x where b is given.
template <bool SYMMETRIC>
__global__ void __launch_bounds__(32)
    chain_factor(const real* __restrict__ A, const real* __restrict__ b, real* __restrict__ values, real* __restrict__ x,
                 real* __restrict__ broken, const int* __restrict__ sources, const int* __restrict__ rows,
                 const int* __restrict__ columns, int n, int n_samples)
{
    const int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= n_samples) return;
    const int64 stride = n_samples;
    real inverse = 0, right = 0, y = 0, check = 0;
    Row ahead[DEPTH];
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) ahead[k] = row_of<SYMMETRIC>(A, b, sources, rows, k, n, stride, s);
    for (int begin = 0; begin < n; begin += DEPTH) {
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            const int i = begin + k;
            const Row now = ahead[k];
            ahead[k] = row_of<SYMMETRIC>(A, b, sources, rows, i + DEPTH, n, stride, s);
            if (i < n) {
                const int64 own = pivot_of<SYMMETRIC>(i);
                real pivot = now.pivot, next = now.b;
                if (i > 0) {
                    const real factor = (SYMMETRIC ? right : now.left) * inverse;
                    pivot = pivot - factor * right;
                    next = next - (SYMMETRIC ? right * (y * inverse) : factor * y);
                    if (!SYMMETRIC) {
                        check = check + (factor - factor);
                        values[(own - 1) * stride + s] = factor;
                    }
                }
                inverse = reciprocal(pivot), right = now.right, y = next;
                check = check + (inverse - inverse);
                values[own * stride + s] = inverse;
                if (i + 1 < n) {
                    check = check + (right - right);
                    values[(own + 1) * stride + s] = right;
                }
                if (x != nullptr) x[index_at(columns, i) * stride + s] = y;
            }
        }
    }
    broken[s] = check;
}

#define LU 0
#define TRANSPOSED 1
#define LDLT 2

struct Step {
    real factor, pivot, y;
};

// What row i of a pass needs: the factor of its neighbour, a reciprocal pivot, and its own y.
template <int KIND, bool DOWN, class F>
__device__ __forceinline__ Step step_of(const F* __restrict__ values, int64 stride, int at, const real* y, int64 row_size,
                                        int64 here, const int* __restrict__ rows, int i, int n)
{
    Step step{0, 0, 0};
    if (i < 0 || i >= n) return step;
    const int64 own = pivot_of<KIND == LDLT>(i), above = pivot_of<KIND == LDLT>(i - 1);
    const bool first = DOWN ? i == 0 : i + 1 == n;
    int64 factor, pivot = own;
    if (DOWN) {
        factor = KIND == LU ? own - 1 : above + 1;
        if (KIND == LDLT) pivot = above;
    } else
        factor = KIND == TRANSPOSED ? own + 2 : own + 1;
    if (!first) step.factor = real(values[factor * stride + at]);
    if ((DOWN ? KIND == TRANSPOSED || (KIND == LDLT && !first) : KIND != TRANSPOSED))
        step.pivot = real(values[pivot * stride + at]);
    step.y = y[index_at(rows, i) * row_size + here];
    return step;
}

template <int KIND, bool DOWN, class F>
__device__ __forceinline__ void chain_pass(const F* __restrict__ values, int64 stride, int at, const real* from, real* x,
                                           int64 row_size, int64 here, const int* __restrict__ rows,
                                           const int* __restrict__ columns, int n)
{
    real y = 0;
    Step ahead[DEPTH];
#pragma unroll
    for (int k = 0; k < DEPTH; ++k)
        ahead[k] = step_of<KIND, DOWN, F>(values, stride, at, from, row_size, here, rows, DOWN ? k : n - 1 - k, n);
    for (int begin = 0; begin < n; begin += DEPTH) {
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            const int j = begin + DEPTH + k, i = DOWN ? begin + k : n - 1 - begin - k;
            const Step now = ahead[k];
            ahead[k] = step_of<KIND, DOWN, F>(values, stride, at, from, row_size, here, rows, DOWN ? j : n - 1 - j, n);
            if (i >= 0 && i < n) {
                real total = now.y;
                if (DOWN ? i > 0 : i + 1 < n) total = total - now.factor * (DOWN && KIND == LDLT ? y * now.pivot : y);
                y = (DOWN ? KIND == TRANSPOSED : KIND != TRANSPOSED) ? total * now.pivot : total;
                x[index_at(columns, i) * row_size + here] = y;
            }
        }
    }
}

// The second pass of a solve with a fresh factorisation.
template <bool SYMMETRIC>
__global__ void __launch_bounds__(32)
    chain_back(const real* __restrict__ values, real* x, const int* __restrict__ columns, int n, int n_samples)
{
    const int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s < n_samples)
        chain_pass<SYMMETRIC ? LDLT : LU, false, real>(values, n_samples, s, x, x, n_samples, s, columns, columns, n);
}

// b and x of shape (n, k, n_samples), blockIdx.y counts the columns; values of shape (n_values, n_samples), or 1 for all.
template <int KIND, class F>
__global__ void __launch_bounds__(32)
    chain_solve(const F* __restrict__ values, const real* b, real* x, const int* __restrict__ rows,
                const int* __restrict__ columns, int n, int n_columns, int shared, int n_samples)
{
    const int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= n_samples) return;
    const int64 row_size = (int64)n_columns * n_samples, here = (int64)blockIdx.y * n_samples + s;
    const int64 stride = shared ? 1 : n_samples;
    const int at = shared ? 0 : s;
    chain_pass<KIND, true, F>(values, stride, at, b, x, row_size, here, rows, columns, n);
    chain_pass<KIND, false, F>(values, stride, at, x, x, row_size, here, columns, columns, n);
}
