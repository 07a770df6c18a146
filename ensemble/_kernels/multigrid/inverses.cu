// Inverses of dense symmetric matrices, one a sample, by sweeping blocks of PIVOT rows and columns, without pivoting: for
// positive definite ones. Work is on matrices of their own, (n_samples, size, size), `size` a multiple of TILE, the
// identity in what pads them; tiles below the block diagonal represent those above.
//
// With D the inverse of the block (p, p), a step turns it into -D, (i, p) into (i, p) D, and (i, j) into (i, j) -
// (i, p) D (p, j), which keeps the matrix symmetric; when all are swept, it is minus the inverse. The pivots inside the
// blocks are those of the Cholesky factorisation: their extremes decide which samples are inverted by LAPACK.

#define PIVOT 32
#define TILE 64
#define TILE_THREADS 128
#define HIGH 8  // entries of a tile that a thread carries: HIGH rows, BROAD columns
#define BROAD 4

struct Corner {
    int i, j;  // of a tile, in tiles
};

__device__ inline Corner corner_of(int tile)
{
    int i = 0;
    while ((i + 1) * (i + 2) / 2 <= tile) ++i;
    return {i, tile - i * (i + 1) / 2};
}

// matrix[s, rows[k], columns[k]] = values[k, s], and ones on the diagonal of the padding; the rest is zero already.
__global__ void __launch_bounds__(TILE_THREADS)
    spread_entries(const int* __restrict__ rows, const int* __restrict__ columns, const real* __restrict__ values,
                   real* matrix, int n, int size, int64 nnz, int n_samples)
{
    const int64 item = (int64)blockIdx.x * TILE_THREADS + threadIdx.x, k = item / n_samples, s = item % n_samples;
    if (k >= nnz + size - n) return;
    const int64 row = k < nnz ? rows[k] : n + (k - nnz), column = k < nnz ? columns[k] : row;
    matrix[(s * size + row) * size + column] = k < nnz ? values[item] : 1;
}

__device__ inline real larger(real a, real b) { return a <= b || b != b ? b : a; }  // NaN counts as the largest

// skew[tile, s]: the largest |a_ij - a_ji| / sqrt(|a_ii a_jj|), infinite where only the divisor is zero.
__global__ void __launch_bounds__(TILE_THREADS)
    measure_skew(const real* __restrict__ matrix, real* skew, int size, int n_samples)
{
    __shared__ real mirror[PIVOT][PIVOT + 1], found[TILE_THREADS];
    const Corner tile = corner_of(blockIdx.x);
    const int x = threadIdx.x % PIVOT, y = threadIdx.x / PIVOT;
    const real* here = matrix + (int64)blockIdx.y * size * size;
    real most = 0;
    for (int part = 0; part < 4; ++part) {
        const int i0 = tile.i * TILE + part / 2 * PIVOT, j0 = tile.j * TILE + part % 2 * PIVOT;
        const real column = here[(int64)(j0 + x) * size + j0 + x];
        __syncthreads();
        for (int i = y; i < PIVOT; i += TILE_THREADS / PIVOT) mirror[i][x] = here[(int64)(j0 + i) * size + i0 + x];
        __syncthreads();
        for (int i = y; i < PIVOT; i += TILE_THREADS / PIVOT) {
            const real value = here[(int64)(i0 + i) * size + j0 + x], other = mirror[x][i];
            const real row = here[(int64)(i0 + i) * size + i0 + i];
            const real scale = sqrt(row < 0 ? -row : row) * sqrt(column < 0 ? -column : column);
            if (value != other) most = larger((value < other ? other - value : value - other) / scale, most);
        }
    }
    found[threadIdx.x] = most;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int t = 0; t < TILE_THREADS; ++t) most = larger(found[t], most);
    skew[(int64)blockIdx.x * n_samples + blockIdx.y] = most;
}

// Invert m in place, by all threads of the block; pivots from `count` on are padding.
__device__ inline void invert_pivot(real (*m)[PIVOT + 1], int count, bool first, real* smallest, real* largest)
{
    constexpr int SPAN = PIVOT * PIVOT / TILE_THREADS;
    const int c = threadIdx.x % PIVOT, i0 = threadIdx.x / PIVOT * SPAN;
    real least = 0, most = 0;
#pragma unroll 1  // unrolled, this loop and the one over `c` below take the compiler seconds
    for (int p = 0; p < PIVOT; ++p) {
        __syncthreads();
        const real pivot = m[p][p], inverse = 1 / pivot, row = m[p][c], factor = row * inverse;
        real left[SPAN];
#pragma unroll
        for (int i = 0; i < SPAN; ++i) left[i] = m[i0 + i][p];
        if (p < count) {  // a pivot that is not a number must not get lost in a comparison
            least = p == 0 || !(pivot >= least) ? pivot : least;
            most = p == 0 || !(pivot <= most) ? pivot : most;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SPAN; ++i) {
            real& entry = m[i0 + i][c];
            if (i0 + i == p)
                entry = c == p ? inverse : factor;
            else
                entry = c == p ? -left[i] * inverse : fma(-left[i], factor, entry);
        }
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (first || !(least >= *smallest)) *smallest = least;
    if (first || !(most <= *largest)) *largest = most;
}

// Columns 0 to PIVOT of each matrix as the first panel, (n_samples, PIVOT, size), and the inverse of the first block.
__global__ void __launch_bounds__(TILE_THREADS)
    sweep_start(const real* __restrict__ matrix, real* panel, real* block, real* smallest, real* largest, int n,
                int size)
{
    __shared__ real m[PIVOT][PIVOT + 1];
    const int64 s = blockIdx.y;
    const int c = threadIdx.x % PIVOT, rows = TILE_THREADS / PIVOT;
    const real* here = matrix + s * size * size;
    for (int i = blockIdx.x * TILE + threadIdx.x / PIVOT; i < (blockIdx.x + 1) * TILE; i += rows)
        panel[(s * PIVOT + c) * size + i] = here[(int64)i * size + c];
    if (blockIdx.x != 0) return;
    for (int i = threadIdx.x / PIVOT; i < PIVOT; i += rows) m[i][c] = here[(int64)i * size + c];
    invert_pivot(m, n < PIVOT ? n : PIVOT, true, smallest + s, largest + s);
    for (int i = threadIdx.x / PIVOT; i < PIVOT; i += rows) block[(s * PIVOT + i) * PIVOT + c] = m[i][c];
}

struct Parts {
    alignas(16) real left[PIVOT][TILE];   // (i, p), transposed
    alignas(16) real right[PIVOT][TILE];  // (p, j), then D (p, j)
    real d[PIVOT][PIVOT + 1];
};

// Sweep the block at `first`, a tile a block of threads. `panel` holds the columns of the block as rows, `block` its
// inverse; those of the next step go to `next_panel` and `next_block`. The tile that the next step waits for comes first.
__global__ void __launch_bounds__(TILE_THREADS, 4)
    sweep(real* matrix, const real* __restrict__ panel, real* next_panel, const real* __restrict__ block,
          real* next_block, real* smallest, real* largest, int n, int size, int first)
{
    __shared__ Parts parts;
    real(*left)[TILE] = parts.left, (*right)[TILE] = parts.right, (*d)[PIVOT + 1] = parts.d;
    const int64 s = blockIdx.y;
    const int next = first + PIVOT, urgent = next / TILE, wanted = urgent * (urgent + 1) / 2 + urgent;
    const bool last = next >= n;
    const Corner tile =
        corner_of(last ? blockIdx.x : blockIdx.x == 0 ? wanted : blockIdx.x <= wanted ? blockIdx.x - 1 : blockIdx.x);
    for (int item = threadIdx.x; item < PIVOT * TILE; item += TILE_THREADS) {
        const real* from = panel + (s * PIVOT + item / TILE) * size + item % TILE;
        left[item / TILE][item % TILE] = from[tile.i * TILE];
        right[item / TILE][item % TILE] = from[tile.j * TILE];
    }
    for (int item = threadIdx.x; item < PIVOT * PIVOT; item += TILE_THREADS)
        d[item / PIVOT][item % PIVOT] = block[s * PIVOT * PIVOT + item];
    const int x = threadIdx.x % (TILE / BROAD) * BROAD, y = threadIdx.x / (TILE / BROAD) * HIGH;
    const int i0 = tile.i * TILE + y, j0 = tile.j * TILE + x;
    real* here = matrix + (s * size + i0) * size + j0;
    real entries[HIGH][BROAD];
#pragma unroll
    for (int i = 0; i < HIGH; ++i)
#pragma unroll
        for (int j = 0; j < BROAD; ++j) entries[i][j] = here[(int64)i * size + j];
    __syncthreads();
    {  // D times the panel's part
        constexpr int DEEP = PIVOT / (TILE_THREADS / (TILE / BROAD));
        const int c0 = threadIdx.x / (TILE / BROAD) * DEEP;
        real sums[DEEP][BROAD] = {};
#pragma unroll 8
        for (int b = 0; b < PIVOT; ++b)
#pragma unroll
            for (int c = 0; c < DEEP; ++c)
#pragma unroll
                for (int j = 0; j < BROAD; ++j) sums[c][j] = fma(d[c0 + c][b], right[b][x + j], sums[c][j]);
        __syncthreads();
#pragma unroll
        for (int c = 0; c < DEEP; ++c)
#pragma unroll
            for (int j = 0; j < BROAD; ++j) right[c0 + c][x + j] = sums[c][j];
        __syncthreads();
    }
    const bool crosses_i = first / TILE == tile.i, crosses_j = first / TILE == tile.j;
#pragma unroll 4
    for (int c = 0; c < PIVOT; ++c) {
        real above[BROAD], beside[HIGH];
#pragma unroll
        for (int j = 0; j < BROAD; ++j) above[j] = right[c][x + j];
#pragma unroll
        for (int i = 0; i < HIGH; ++i) beside[i] = -left[c][y + i];
#pragma unroll
        for (int i = 0; i < HIGH; ++i)
#pragma unroll
            for (int j = 0; j < BROAD; ++j) entries[i][j] = fma(beside[i], above[j], entries[i][j]);
    }
    if (crosses_i || crosses_j) {  // rows and columns of the block that is swept
#pragma unroll
        for (int i = 0; i < HIGH; ++i)
#pragma unroll
            for (int j = 0; j < BROAD; ++j) {
                const int a = i0 + i - first, b = j0 + j - first;
                const bool in_rows = a >= 0 && a < PIVOT, in_columns = b >= 0 && b < PIVOT;
                if (in_rows && in_columns)
                    entries[i][j] = -d[a][b];
                else if (in_rows)
                    entries[i][j] = right[a][x + j];
                else if (in_columns) {
                    real sum = 0;
#pragma unroll 4
                    for (int c = 0; c < PIVOT; ++c) sum = fma(left[c][y + i], d[c][b], sum);
                    entries[i][j] = sum;
                }
            }
    }
#pragma unroll
    for (int i = 0; i < HIGH; ++i)
#pragma unroll
        for (int j = 0; j < BROAD; ++j) here[(int64)i * size + j] = entries[i][j];
    if (last || (urgent != tile.i && urgent != tile.j)) return;
    real* to = next_panel + s * PIVOT * size;
#pragma unroll
    for (int i = 0; i < HIGH; ++i)
#pragma unroll
        for (int j = 0; j < BROAD; ++j) {
            const int a = i0 + i - next, b = j0 + j - next;
            if (urgent == tile.j) {
                if (b >= 0 && b < PIVOT) to[(int64)b * size + i0 + i] = entries[i][j];
            } else if (a >= 0 && a < PIVOT) {
                to[(int64)a * size + j0 + j] = entries[i][j];
            }
        }
    if (tile.i != tile.j) return;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < HIGH; ++i)
#pragma unroll
        for (int j = 0; j < BROAD; ++j) {
            const int a = i0 + i - next, b = j0 + j - next;
            if (a >= 0 && a < PIVOT && b >= 0 && b < PIVOT) d[a][b] = entries[i][j];
        }
    invert_pivot(d, n - next < PIVOT ? n - next : PIVOT, false, smallest + s, largest + s);
    for (int item = threadIdx.x; item < PIVOT * PIVOT; item += TILE_THREADS)
        next_block[s * PIVOT * PIVOT + item] = d[item / PIVOT][item % PIVOT];
}

// out[i, j, s] = out[j, i, s] = -matrix[s, i, j] for all entries of the tiles on and below the diagonal: for each row i,
// a block goes over 32 columns and 32 samples.
__global__ void __launch_bounds__(TILE_THREADS)
    collect(const real* __restrict__ matrix, real* out, int n, int size, int n_samples)
{
    __shared__ real turned[PIVOT][PIVOT + 1];
    const int i = blockIdx.z, j0 = blockIdx.x * PIVOT, s0 = blockIdx.y * PIVOT;
    const int x = threadIdx.x % PIVOT;
    if (j0 / TILE > i / TILE) return;
    for (int y = threadIdx.x / PIVOT; y < PIVOT; y += TILE_THREADS / PIVOT)
        if (s0 + y < n_samples) turned[y][x] = -matrix[((int64)(s0 + y) * size + i) * size + j0 + x];
    __syncthreads();
    for (int y = threadIdx.x / PIVOT; y < PIVOT; y += TILE_THREADS / PIVOT) {
        const int j = j0 + y, s = s0 + x;
        if (j >= n || s >= n_samples) continue;
        out[((int64)i * n + j) * n_samples + s] = turned[x][y];
        if (j0 / TILE < i / TILE) out[((int64)j * n + i) * n_samples + s] = turned[x][y];
    }
}
