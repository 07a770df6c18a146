// How samples lie on a GPU, and sums over rows.
//
// LANES neighbouring threads carry one row, VECTOR samples each: a row of values is one coalesced transaction, and a sum
// over rows needs no exchange between the threads of different samples. Compile-time definitions: REAL (see types.cuh),
// LANES (a power of two up to 32), VECTOR, OFFSET (int or long long) and THREADS (a block of the row kernels).
//
// Contraction to FMA is off and every sum has one order, whatever the number of samples: a sample on the device has the
// bits of its own scalar run there, and all arithmetic but that of inner products has the bits of the CPU kernels.

typedef OFFSET offset;

#define ROWS (THREADS / LANES)
#define UNROLL 9

typedef PackOf<real, VECTOR> Pack;

__device__ inline Pack spread(real value)
{
    Pack pack;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) pack.lane[v] = value;
    return pack;
}

#define LANEWISE(op)                                                                              \
    __device__ inline Pack operator op(const Pack& a, const Pack& b)                              \
    {                                                                                             \
        Pack pack;                                                                                \
        _Pragma("unroll") for (int v = 0; v < VECTOR; ++v) pack.lane[v] = a.lane[v] op b.lane[v]; \
        return pack;                                                                              \
    }
LANEWISE(+)
LANEWISE(-)
LANEWISE(*)

__device__ inline bool is_tiny(double x) { return x < 2.2250738585072014e-308 && x > -2.2250738585072014e-308; }

__device__ inline bool is_tiny(float x) { return x < 1.17549435e-38f && x > -1.17549435e-38f; }

// What the first factor of an inner product is: its complex conjugate. Real numbers are their own.
#ifdef COMPLEX
__device__ inline Pack conjugate(Pack pack)
{
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) pack.lane[v].im = -pack.lane[v].im;
    return pack;
}

__device__ inline real read_only(const real* from) { return {__ldg(&from->re), __ldg(&from->im)}; }

// Store a number that nothing reads again soon.
__device__ inline void store_once(real* to, const real& number) { __stcs(&to->re, number.re), __stcs(&to->im, number.im); }

// Whether a number is zero or subnormal, of complex ones both parts.
__device__ inline bool is_tiny(const real& number) { return is_tiny(number.re) && is_tiny(number.im); }
#else
__device__ inline const Pack& conjugate(const Pack& pack) { return pack; }

__device__ inline real read_only(const real* from) { return __ldg(from); }

__device__ inline void store_once(real* to, real number) { __stcs(to, number); }
#endif

__device__ inline Pack load(const real* from) { return *reinterpret_cast<const Pack*>(from); }

__device__ inline void store(real* to, const Pack& pack) { *reinterpret_cast<Pack*>(to) = pack; }

__device__ inline Pack where_nonzero(const Pack& factor, const Pack& yes, const Pack& no)
{
    Pack pack;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) pack.lane[v] = factor.lane[v] != 0 ? yes.lane[v] : no.lane[v];
    return pack;
}

// Through the read-only cache: for data that other threads read too.
__device__ inline Pack load_shared(const real* from)
{
    if constexpr (sizeof(Pack) == 16) {
        const int4 raw = __ldg(reinterpret_cast<const int4*>(from));
        return *reinterpret_cast<const Pack*>(&raw);
    } else if constexpr (sizeof(Pack) == 8) {
        const int2 raw = __ldg(reinterpret_cast<const int2*>(from));
        return *reinterpret_cast<const Pack*>(&raw);
    } else {
        return load(from);
    }
}

// Past the caches: what is read once.
__device__ inline Pack load_once(const real* from)
{
    if constexpr (sizeof(Pack) == 16) {
        const int4 raw = __ldcs(reinterpret_cast<const int4*>(from));
        return *reinterpret_cast<const Pack*>(&raw);
    } else if constexpr (sizeof(Pack) == 8) {
        const int2 raw = __ldcs(reinterpret_cast<const int2*>(from));
        return *reinterpret_cast<const Pack*>(&raw);
    } else {
        return load(from);
    }
}

// --- one row per LANES threads; blockIdx.y counts tiles of LANES * VECTOR samples
__device__ inline int64 row_here() { return (int64)blockIdx.x * ROWS + threadIdx.x / LANES; }

__device__ inline int sample_here() { return (blockIdx.y * LANES + threadIdx.x % LANES) * VECTOR; }

// --- sums over rows: QUAD consecutive rows are added, QUADS of those sums make a chunk, `total_of` adds the chunks
#define QUAD 4
#define QUADS 16
#define CHUNKS (LANES >= 8 ? 1 : 8 / LANES)
#define CHUNK_THREADS (QUADS * CHUNKS * LANES)

// Vectors alone: a thread carries a quad.

struct Share {
    int64 chunk, begin, end;  // end == begin where there is nothing to add
    int group, s;
    bool inside;
};

__device__ inline Share share_here(int64 n_rows, int n_samples)
{
    Share share;
    share.group = threadIdx.x / LANES;
    share.chunk = (int64)blockIdx.x * CHUNKS + share.group / QUADS;
    share.s = sample_here();
    const int64 n_chunks = (n_rows + QUAD * QUADS - 1) / (QUAD * QUADS);
    share.inside = share.s < n_samples && share.chunk < n_chunks;
    share.begin = (share.chunk * QUADS + share.group % QUADS) * QUAD;
    share.end = share.begin + QUAD < n_rows ? share.begin + QUAD : n_rows;
    if (!share.inside || share.begin > n_rows) share.end = share.begin;
    return share;
}

// Every thread of the block calls this once for each sum of its kernel, WHICH counting them.
template <int WHICH>
__device__ inline void add_quads(const Share& share, const Pack& sum, real* partials, int n_samples)
{
    __shared__ Pack terms[CHUNKS * QUADS][LANES];
    const int lane = threadIdx.x % LANES;
    terms[share.group][lane] = sum;
    __syncthreads();
    if (share.group % QUADS == 0 && share.inside) {
        Pack total = spread(0);
        for (int quad = 0; quad < QUADS; ++quad) total = total + terms[share.group + quad][lane];
        store(partials + share.chunk * n_samples + share.s, total);
    }
}

// With a matrix: the block goes over its chunks in QUAD passes of consecutive rows, a thread for each, which suits the
// memory better; the sums keep their order.
#define PASS_ROWS (QUADS * CHUNKS)

struct RowSums {
    Pack rows[PASS_ROWS][LANES], quads[QUADS * CHUNKS][LANES];
};

__device__ inline int64 pass_begin(int pass) { return ((int64)blockIdx.x * QUAD + pass) * PASS_ROWS; }

// What a row adds; zero where there is none. Every thread of the block calls this.
__device__ inline void add_row(RowSums& sums, int pass, const Pack& term)
{
    const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    __syncthreads();
    sums.rows[group][lane] = term;
    __syncthreads();
    if (group % QUAD) return;
    Pack quad = spread(0);
    for (int row = group; row < group + QUAD; ++row) quad = quad + sums.rows[row][lane];
    sums.quads[(pass * PASS_ROWS + group) / QUAD][lane] = quad;
}

__device__ inline void store_chunks(const RowSums& sums, real* partials, int64 n_rows, int n_samples)
{
    const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int64 chunk = (int64)blockIdx.x * CHUNKS + group / QUADS;
    __syncthreads();
    if (group % QUADS || sample_here() >= n_samples || chunk * QUAD * QUADS >= n_rows) return;
    Pack total = spread(0);
    for (int quad = 0; quad < QUADS; ++quad) total = total + sums.quads[group + quad][lane];
    store(partials + chunk * n_samples + sample_here(), total);
}

// Sums over all chunks, N of them interleaved so that their loads are in flight at once: blocks of (SUM_SAMPLES, SUM_SEGMENTS)
// threads, a few samples each, because one multiprocessor alone is slow to read. Valid where threadIdx.y is 0.
#define SUM_SAMPLES 4
#define SUM_SEGMENTS 128
#define SUM_THREADS (SUM_SAMPLES * SUM_SEGMENTS)

__device__ inline int sample_of_block() { return blockIdx.x * SUM_SAMPLES + threadIdx.x; }

template <int N>
__device__ inline void totals_of(const real* const (&partials)[N], real (&totals)[N], int64 n_partials, int n_samples,
                                 int s)
{
    __shared__ real shares[N][SUM_SEGMENTS][SUM_SAMPLES];
    const int64 length = (n_partials + SUM_SEGMENTS - 1) / SUM_SEGMENTS;
    const int64 begin = threadIdx.y * length;
    const int64 end = begin + length < n_partials ? begin + length : n_partials;
    real sums[N];
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] = 0;
    if (s < n_samples) {
#pragma unroll 16
        for (int64 i = begin; i < end; ++i)
#pragma unroll
            for (int k = 0; k < N; ++k) sums[k] = sums[k] + partials[k][i * n_samples + s];
    }
#pragma unroll
    for (int k = 0; k < N; ++k) shares[k][threadIdx.y][threadIdx.x] = sums[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; ++k) {
        totals[k] = 0;
        if (threadIdx.y == 0)
#pragma unroll 16
            for (int y = 0; y < SUM_SEGMENTS; ++y) totals[k] = totals[k] + shares[k][y][threadIdx.x];
    }
}

__device__ inline real total_of(const real* partials, int64 n_partials, int n_samples, int s)
{
    const real* const one[1] = {partials};
    real total[1];
    totals_of<1>(one, total, n_partials, n_samples, s);
    return total[0];
}
