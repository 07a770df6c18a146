// Many small systems by Gaussian elimination, one per thread; what is computed stands in small.py.

// All indices are known to the compiler: the matrix stays in registers. Which rows were exchanged is kept as bits.
template <int N>
__global__ void __launch_bounds__(THREADS)
    small_solve(const real* __restrict__ A, const real* __restrict__ b, real* __restrict__ x, int k, int64 count)
{
    const int64 at = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    real m[N][N];
    unsigned exchanged = 0;
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
        for (int j = 0; j < N; ++j) m[i][j] = A[(i * N + j) * count + at];
#pragma unroll
    for (int c = 0; c < N; ++c) {
#pragma unroll
        for (int i = c + 1; i < N; ++i) {
            const bool larger = fabs(m[i][c]) > fabs(m[c][c]);
            exchanged |= (unsigned)larger << (i * (i - 1) / 2 + c);
#pragma unroll
            for (int j = c; j < N; ++j) {
                const real top = m[c][j], low = m[i][j];
                m[c][j] = larger ? low : top, m[i][j] = larger ? top : low;
            }
        }
        m[c][c] = m[c][c] == 0 ? (real)NAN : m[c][c];
#pragma unroll
        for (int i = c + 1; i < N; ++i) {
            m[i][c] = m[i][c] / m[c][c];
#pragma unroll
            for (int j = c + 1; j < N; ++j) m[i][j] = m[i][j] - m[i][c] * m[c][j];
        }
    }
    for (int side = 0; side < k; ++side) {
        real y[N];
#pragma unroll
        for (int i = 0; i < N; ++i) y[i] = b[((int64)i * k + side) * count + at];
#pragma unroll
        for (int c = 0; c < N; ++c) {
#pragma unroll
            for (int i = c + 1; i < N; ++i) {
                const bool larger = exchanged >> (i * (i - 1) / 2 + c) & 1;
                const real top = y[c], low = y[i];
                y[c] = larger ? low : top, y[i] = larger ? top : low;
            }
#pragma unroll
            for (int i = c + 1; i < N; ++i) y[i] = y[i] - m[i][c] * y[c];
        }
#pragma unroll
        for (int i = N - 1; i >= 0; --i) {
#pragma unroll
            for (int c = i + 1; c < N; ++c) y[i] = y[i] - m[i][c] * y[c];
            y[i] = y[i] / m[i][i];
            x[((int64)i * k + side) * count + at] = y[i];
        }
    }
}

// Any size: in place on A and b.
__global__ void __launch_bounds__(THREADS) small_solve_in_memory(real* A, real* b, int n, int k, int64 count)
{
    const int64 at = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    A += at, b += at;
    for (int c = 0; c < n; ++c) {
        real *a_top = A + (int64)c * n * count, *b_top = b + (int64)c * k * count;
        for (int i = c + 1; i < n; ++i) {
            real *a_low = A + (int64)i * n * count, *b_low = b + (int64)i * k * count;
            if (!(fabs(a_low[c * count]) > fabs(a_top[c * count]))) continue;
            for (int j = c; j < n; ++j) {
                const real top = a_top[j * count];
                a_top[j * count] = a_low[j * count], a_low[j * count] = top;
            }
            for (int j = 0; j < k; ++j) {
                const real top = b_top[j * count];
                b_top[j * count] = b_low[j * count], b_low[j * count] = top;
            }
        }
        const real pivot = a_top[c * count] == 0 ? (real)NAN : a_top[c * count];
        a_top[c * count] = pivot;
        for (int i = c + 1; i < n; ++i) {
            real *a_low = A + (int64)i * n * count, *b_low = b + (int64)i * k * count;
            const real factor = a_low[c * count] / pivot;
            for (int j = c + 1; j < n; ++j) a_low[j * count] = a_low[j * count] - factor * a_top[j * count];
            for (int j = 0; j < k; ++j) b_low[j * count] = b_low[j * count] - factor * b_top[j * count];
        }
    }
    for (int i = n - 1; i >= 0; --i) {
        const real* row = A + (int64)i * n * count;
        for (int j = 0; j < k; ++j) {
            real value = b[((int64)i * k + j) * count];
            for (int c = i + 1; c < n; ++c) value = value - row[c * count] * b[((int64)c * k + j) * count];
            b[((int64)i * k + j) * count] = value / row[i * count];
        }
    }
}
