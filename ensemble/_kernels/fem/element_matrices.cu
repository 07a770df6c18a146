// Element matrices of linear tetrahedra, one pair of element and sample per thread; see element_matrices.py.

// Where an operand is read: its rows are `stride` apart, and `at` is the place of this thread in a row.
struct Operand {
    const real* from;
    int64 stride;

    __device__ inline Operand(const real* array, bool own, offset at, int n_samples, int64 count)
        : from(array + (own ? at : at / n_samples)), stride(own ? count : count / n_samples)
    {
    }

    __device__ inline real next()  // of a row, which is read once
    {
        const real value = __ldcs(from);
        from += stride;
        return value;
    }
};

// The products of functions at a point are added; of (i, j) and (j, i) one is.
template <int PER>
__device__ inline void add_products(real (&total)[16][PER], const real* __restrict__ products, const real (&weight)[PER])
{
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
        for (int p = 0; p < PER; ++p)
            if (n % 4 <= n / 4) total[n][p] = total[n][p] + __ldg(products + n) * weight[p];
}

// The other one is its copy.
template <int PER> __device__ inline void complete(real (&total)[16][PER])
{
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
        for (int p = 0; p < PER; ++p)
            if (n % 4 > n / 4) total[n][p] = total[n % 4 * 4 + n / 4][p];
}

// Products of functions; PER neighbouring values a thread, of which two are one access.
#define WEIGHTS_AT_ONCE 6

template <int PER>
__global__ void __launch_bounds__(THREADS)
    tet_shape_shape(const real* __restrict__ products, const real* __restrict__ detwei, real* __restrict__ out, int own,
                    int n_points, int n_samples, int64 count)
{
    __shared__ real heads[16][THREADS / 32 + 1][SECTOR];
    const int64 first = (int64)blockIdx.x * own, at = min(first + threadIdx.x * PER, count - PER);
    real total[16][PER] = {};
    for (int q = 0; q < n_points; q += WEIGHTS_AT_ONCE) {
        real weight[WEIGHTS_AT_ONCE][PER];
#pragma unroll
        for (int u = 0; u < WEIGHTS_AT_ONCE; ++u) {
            if (q + u >= n_points) continue;
            if (PER == 2) {
                const double2 both = __ldcs((const double2*)(detwei + (q + u) * count + at));
                weight[u][0] = both.x, weight[u][PER - 1] = both.y;
            } else {
                weight[u][0] = __ldcs(detwei + (q + u) * count + at);
            }
        }
#pragma unroll
        for (int u = 0; u < WEIGHTS_AT_ONCE; ++u)
            if (q + u < n_points) add_products(total, products + 16 * (q + u), weight[u]);
    }
    complete(total);
    const RowWriter<16, PER, THREADS> rows(total, heads, first, count, own);
#pragma unroll
    for (int n = 0; n < 16; ++n) rows.store(n, out + n * count, 1);
}

// The same for POINTS points and even `count`: blocks stay, each goes through tiles of `own` pairs. The copy engine brings
// the weights of the next tiles and writes the sums of the last one, long pieces of each row, while those of a tile are
// added. A row that begins within a sector has the pairs that follow it at the end of a tile: pieces are whole sectors.
#define STREAM_THREADS 96
#define STREAM_TILES 3

template <int POINTS>
__global__ void __launch_bounds__(STREAM_THREADS, 3)
    tet_shape_shape_streamed(const real* __restrict__ products, const real* __restrict__ detwei, real* __restrict__ out,
                             int own, int n_samples, int64 count)
{
    SHARED_VALUES(tiles);
    constexpr int WIDTH = 2 * STREAM_THREADS;
    real* const sums = tiles + STREAM_TILES * POINTS * WIDTH;
    __shared__ unsigned long long arrived[STREAM_TILES];
    const int n_tiles = (int)((count + own - 1) / own);
    auto start = [&](int tile, int slot) {
        if (tile >= n_tiles) return;
        const int64 first = (int64)tile * own;
        const int n_bytes = (int)(min((int64)WIDTH, count - first) * sizeof(real));
        expect(arrived + slot, POINTS * n_bytes);
        for (int q = 0; q < POINTS; ++q)
            fetch(tiles + (slot * POINTS + q) * WIDTH, detwei + q * count + first, n_bytes, arrived + slot);
    };
    auto write = [&](int64 first, int n) {
        const real* from = sums + n * WIDTH;
        real* to = out + n * count + first;
        const int shift = to_sector(to), n_written = (int)min((int64)own, count - first - shift);
        if (first == 0)
            for (int i = 0; i < shift; ++i) to[i] = from[i];
        if (n_written > 0) put(to + shift, from + shift, n_written * (int)sizeof(real));
        close_puts();
    };
    if (threadIdx.x == 0)
        for (int slot = 0; slot < STREAM_TILES; ++slot) start_arrivals(arrived + slot);
    __syncthreads();
    if (threadIdx.x == 0)
        for (int slot = 0; slot < STREAM_TILES; ++slot) start(blockIdx.x + slot * gridDim.x, slot);
    int slot = 0, parity = 0;
    for (int tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        wait_for(arrived + slot, parity);
        real total[16][2] = {};
        const real* weights = tiles + slot * POINTS * WIDTH + 2 * threadIdx.x;
#pragma unroll
        for (int q = 0; q < POINTS; ++q) {
            const double2 both = *(const double2*)(weights + q * WIDTH);
            const real weight[2] = {both.x, both.y};
            add_products(total, products + 16 * q, weight);
        }
        complete(total);
        wait_until_read();
        __syncthreads();
        if (threadIdx.x == 0) start(tile + STREAM_TILES * gridDim.x, slot);
#pragma unroll
        for (int n = 0; n < 16; ++n)
            *(double2*)(sums + n * WIDTH + 2 * threadIdx.x) = make_double2(total[n][0], total[n][1]);
        publish();
        __syncthreads();
        if (threadIdx.x < 16) write((int64)tile * own, threadIdx.x);
        if (++slot == STREAM_TILES) slot = 0, parity ^= 1;
    }
    wait_for_puts();
}

// A thread has one derivative of an element, so that its sums fit registers; POINTS_AT_ONCE keep enough loads on the way.
#define DERIVATIVE_THREADS 192
#define OF_DERIVATIVE (DERIVATIVE_THREADS / 3)
#define POINTS_AT_ONCE 4

__global__ void __launch_bounds__(DERIVATIVE_THREADS)
    tet_shape_dshape(const real* __restrict__ shape, const real* __restrict__ dshape, const real* __restrict__ detwei,
                     real* __restrict__ out, int own, int n_points, int n_samples, int64 count)
{
    const int d = threadIdx.x / OF_DERIVATIVE;
    const offset at = (offset)blockIdx.x * OF_DERIVATIVE + threadIdx.x % OF_DERIVATIVE;
    if (at >= count) return;
    const Operand gradient(dshape, own, at, n_samples, count);
    const real* from = gradient.from + d * gradient.stride;
    real total[4][4] = {};
    for (int q = 0; q < n_points; q += POINTS_AT_ONCE) {
        real slope[POINTS_AT_ONCE][4], weight[POINTS_AT_ONCE];
#pragma unroll
        for (int u = 0; u < POINTS_AT_ONCE; ++u) {
            if (q + u >= n_points) continue;
            weight[u] = __ldg(detwei + (q + u) * count + at);
#pragma unroll
            for (int j = 0; j < 4; ++j) slope[u][j] = __ldcs(from + (12 * (q + u) + 3 * j) * gradient.stride);
        }
#pragma unroll
        for (int u = 0; u < POINTS_AT_ONCE; ++u) {
            if (q + u >= n_points) continue;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const real scaled = __ldg(shape + 4 * (q + u) + i) * weight[u];
#pragma unroll
                for (int j = 0; j < 4; ++j) total[i][j] = total[i][j] + scaled * slope[u][j];
            }
        }
    }
    out += 16 * d * count + at;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) out[(4 * i + j) * count] = total[i][j];
}

// WHOLE: rows begin with sectors of memory.
template <bool SAME, bool WHOLE>
__global__ void __launch_bounds__(THREADS)
    tet_gradient_tensor(const real* __restrict__ a, const real* __restrict__ tensor, const real* __restrict__ b,
                        const real* __restrict__ detwei, real* __restrict__ out, int owned, int own,
                        int n_points, int n_samples, int64 count)
{
    __shared__ real heads[16][THREADS / 32 + 1][SECTOR];
    const offset first = (offset)blockIdx.x * (WHOLE ? THREADS : owned);
    const offset at = WHOLE ? first + threadIdx.x : min(first + (offset)threadIdx.x, (offset)(count - 1));
    if (WHOLE && at >= count) return;
    Operand left(a, own & 1, at, n_samples, count), middle(tensor, own >> 1 & 1, at, n_samples, count);
    Operand right(b, own >> 2 & 1, at, n_samples, count), weights(detwei, own >> 3 & 1, at, n_samples, count);
    real total[16][1] = {};
    for (int q = 0; q < n_points; ++q) {
        real g[4][3], G[4][3], T[3][3];
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int d = 0; d < 3; ++d) {
                g[i][d] = left.next();
                if (!SAME) G[i][d] = right.next();
            }
#pragma unroll
        for (int k = 0; k < 3; ++k)
#pragma unroll
            for (int m = 0; m < 3; ++m) T[k][m] = middle.next();
        const real weight = weights.next();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            real h[3];
#pragma unroll
            for (int m = 0; m < 3; ++m) h[m] = (g[i][0] * T[0][m] + g[i][1] * T[1][m] + g[i][2] * T[2][m]) * weight;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const real* other = SAME ? g[j] : G[j];
                total[4 * i + j][0] = total[4 * i + j][0] + (h[0] * other[0] + h[1] * other[1] + h[2] * other[2]);
            }
        }
    }
    if (WHOLE) {
#pragma unroll
        for (int n = 0; n < 16; ++n) __stcs(out + n * count + at, total[n][0]);
        return;
    }
    const RowWriter<16, 1, THREADS> rows(total, heads, first, count, owned);
#pragma unroll
    for (int n = 0; n < 16; ++n) rows.store(n, out + n * count, 1);
}
