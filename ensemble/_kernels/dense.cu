// The coarsest level: dense matrices of shape (n, n, n_samples), their products and their inverses.

#define SHARES 16

// One block a row and tile of samples: SHARES groups of threads add up a run of columns each.
template <bool SHARED>
__global__ void dense_product(const real* __restrict__ matrix, const real* __restrict__ x, real* y, int n_columns,
                              int n_samples)
{
    __shared__ Pack sums[SHARES][LANES];
    const int64 row = blockIdx.x;
    const int s = sample_here(), lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const int length = (n_columns + SHARES - 1) / SHARES, begin = group * length;
    const int end = begin + length < n_columns ? begin + length : n_columns;
    Pack total = spread(0);
    if (s < n_samples) {
#pragma unroll UNROLL
        for (int j = begin; j < end; ++j) {
            const int64 k = row * n_columns + j;
            const Pack a = SHARED ? spread(__ldg(matrix + k)) : load_shared(matrix + k * n_samples + s);
            total = total + a * load_shared(x + (int64)j * n_samples + s);
        }
    }
    sums[group][lane] = total;
    __syncthreads();
    if (group == 0 && s < n_samples) {
        for (int g = 1; g < SHARES; ++g) total = total + sums[g][lane];
        store(y + row * n_samples + s, total);
    }
}

// out[rows[k], columns[k]] = values[k], the rest of `out` being zero already.
__global__ void __launch_bounds__(THREADS)
    scatter(const int* __restrict__ rows, const int* __restrict__ columns, const real* __restrict__ values, real* out,
            int n, int64 n_rows, int n_samples)
{
    const int64 k = row_here();
    const int s = sample_here();
    if (k >= n_rows || s >= n_samples) return;
    store(out + ((int64)rows[k] * n + columns[k]) * n_samples + s, load(values + k * n_samples + s));
}

// --- the inverse by block Gauss-Jordan elimination in place, without pivoting: for positive definite matrices.
// Step by step a block of PIVOT rows and columns is swapped from "given" to "inverted"; the pivots are those of the
// Cholesky factorisation, and their extremes tell which samples cannot be trusted.
#define PIVOT 16
#define TOGETHER 8
#define TILE 4

// Invert the diagonal block at `first` into `block` (PIVOT, PIVOT, n_samples): PIVOT * TOGETHER threads for TOGETHER
// samples; a thread owns a column.
__global__ void __launch_bounds__(PIVOT * TOGETHER)
    invert_pivot(const real* __restrict__ matrix, real* block, real* smallest, real* largest, int n, int first,
                 int n_samples)
{
    __shared__ real m[PIVOT][PIVOT][TOGETHER];
    const int t = threadIdx.x % TOGETHER, c = threadIdx.x / TOGETHER;
    const int s = blockIdx.x * TOGETHER + t;
    const int width = n - first < PIVOT ? n - first : PIVOT;
    for (int i = 0; i < PIVOT; ++i) {
        const bool inside = i < width && c < width && s < n_samples;
        m[i][c][t] = inside ? matrix[((int64)(first + i) * n + first + c) * n_samples + s] : real(i == c);
    }
    real least = 0, most = 0;
    for (int p = 0; p < width; ++p) {
        __syncthreads();
        const real pivot = m[p][p][t], inverse = 1 / pivot;
        // A pivot that is not a number must not get lost in a comparison.
        least = p == 0 || !(pivot >= least) ? pivot : least;
        most = p == 0 || !(pivot <= most) ? pivot : most;
        if (c != p) {
            const real factor = m[p][c][t] * inverse;
            for (int i = 0; i < PIVOT; ++i)
                if (i != p) m[i][c][t] -= m[i][p][t] * factor;
            m[p][c][t] = factor;
        }
        __syncthreads();
        if (c == p) {
            for (int i = 0; i < PIVOT; ++i) m[i][p][t] *= -inverse;
            m[p][p][t] = inverse;
        }
    }
    __syncthreads();
    if (s >= n_samples) return;
    for (int i = 0; i < PIVOT; ++i) block[((int64)i * PIVOT + c) * n_samples + s] = m[i][c][t];
    if (c == 0) {
        if (first == 0 || !(least >= smallest[s])) smallest[s] = least;
        if (first == 0 || !(most <= largest[s])) largest[s] = most;
    }
}

// row[b, j] = sum over c of block[b, c] matrix[first + c, j], and column[i, b] = matrix[i, first + b].
__global__ void __launch_bounds__(THREADS)
    invert_panels(const real* __restrict__ matrix, const real* __restrict__ block, real* row, real* column, int n,
                  int first, int64 n_rows, int n_samples)
{
    const int64 item = row_here();  // b * n + j
    const int s = sample_here();
    if (item >= n_rows || s >= n_samples) return;
    const int b = (int)(item / n), j = (int)(item % n);
    const int width = n - first < PIVOT ? n - first : PIVOT;
    Pack total = spread(0);
    if (b < width) {
        for (int c = 0; c < width; ++c)
            total = total + load_shared(block + ((int64)b * PIVOT + c) * n_samples + s) *
                                load_shared(matrix + ((int64)(first + c) * n + j) * n_samples + s);
    }
    store(row + ((int64)b * n + j) * n_samples + s, total);
    store(column + ((int64)j * PIVOT + b) * n_samples + s,
          b < width ? load_shared(matrix + ((int64)j * n + first + b) * n_samples + s) : spread(0));
}

// The step itself, TILE x TILE entries a thread.
__global__ void __launch_bounds__(THREADS)
    invert_update(real* matrix, const real* __restrict__ block, const real* __restrict__ row,
                  const real* __restrict__ column, int n, int first, int64 n_rows, int n_samples)
{
    const int64 item = row_here();
    const int s = sample_here();
    if (item >= n_rows || s >= n_samples) return;
    const int n_tiles = (n + TILE - 1) / TILE;
    const int i0 = (int)(item / n_tiles) * TILE, j0 = (int)(item % n_tiles) * TILE;
    const int last = first + PIVOT < n ? first + PIVOT : n;
    Pack sums[TILE][TILE];
#pragma unroll
    for (int i = 0; i < TILE; ++i)
#pragma unroll
        for (int j = 0; j < TILE; ++j) sums[i][j] = spread(0);
    for (int b = 0; b < last - first; ++b) {
        Pack left[TILE], right[TILE];
#pragma unroll
        for (int t = 0; t < TILE; ++t) {
            const int i = i0 + t < n ? i0 + t : n - 1, j = j0 + t < n ? j0 + t : n - 1;
            const bool pivotal = j >= first && j < last;
            left[t] = load_shared(column + ((int64)i * PIVOT + b) * n_samples + s);
            right[t] = pivotal ? load_shared(block + ((int64)b * PIVOT + j - first) * n_samples + s)
                               : load_shared(row + ((int64)b * n + j) * n_samples + s);
        }
#pragma unroll
        for (int i = 0; i < TILE; ++i)
#pragma unroll
            for (int j = 0; j < TILE; ++j) sums[i][j] = sums[i][j] + left[i] * right[j];
    }
#pragma unroll
    for (int ti = 0; ti < TILE; ++ti) {
#pragma unroll
        for (int tj = 0; tj < TILE; ++tj) {
            const int i = i0 + ti, j = j0 + tj;
            if (i >= n || j >= n) continue;
            const bool in_rows = i >= first && i < last, in_columns = j >= first && j < last;
            real* here = matrix + ((int64)i * n + j) * n_samples + s;
            if (in_rows && in_columns)
                store(here, load(block + ((int64)(i - first) * PIVOT + j - first) * n_samples + s));
            else if (in_rows)
                store(here, load(row + ((int64)(i - first) * n + j) * n_samples + s));
            else if (in_columns)
                store(here, spread(0) - sums[ti][tj]);
            else
                store(here, load(here) - sums[ti][tj]);
        }
    }
}
