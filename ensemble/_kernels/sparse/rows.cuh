// A row of a sparse matrix times a vector: what products, smoothers and the power method share.
//
// The loop is unrolled so that its loads are in flight together. Guarding each load of a batch instead, to spare the
// loop for the remainder, took a quarter of the bandwidth.

#define STAGED_LANES 4
#define STAGED_BYTES 14336
#define STAGED_MOST 896
#define STAGED_FIT (STAGED_BYTES / ((int)sizeof(Pack) * LANES))
#define STAGED (STAGED_FIT < STAGED_MOST ? STAGED_FIT : STAGED_MOST)

template <bool SHARED>
__device__ inline Pack row_product(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                   const real* __restrict__ values, const real* __restrict__ x, int64 row, int s,
                                   int n_samples)
{
    Pack total = spread(0);
    const offset begin = indptr[row], end = indptr[row + 1];
    const real* entry = SHARED ? values + begin : values + (int64)begin * n_samples + s;
    const real* column = x + s;
#pragma unroll UNROLL
    for (offset k = begin; k < end; ++k) {
        const Pack a = SHARED ? spread(read_only(entry)) : load_once(entry);
        total = total + a * load_shared(column + (int64)__ldg(indices + k) * n_samples);
        entry += SHARED ? 1 : n_samples;
    }
    return total;
}

// The same for the rows of a block that holds few samples, `first` to `last`: all threads together make the products of
// the entries, in the order in which these lie in memory, and each thread adds those of its row. Same products, same
// order of adding, same bits; but a warp reads one run of bytes where rows, read one by one, are far apart. Small stages
// are better, and values staged instead of products, or read by rows through the caches, are slower.
__device__ inline Pack staged_product(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                      const real* __restrict__ values, const real* __restrict__ x, int64 first,
                                      int64 last, int64 row, int s, int n_samples, Pack* products)
{
    const int lane = threadIdx.x % LANES, step = blockDim.x;  // a constant step would be unrolled in full, guards and all
    const offset finish = indptr[last];
    Pack total = spread(0);
    offset k = row < last ? indptr[row] : finish;
    const offset end = row < last ? indptr[row + 1] : finish;
    for (int64 from = indptr[first]; from < finish; from += STAGED) {
        const int count = finish - from < STAGED ? (int)(finish - from) : STAGED;
        __syncthreads();
        if (s < n_samples) {
            const real* entry = values + from * n_samples + s;
            const int* column = indices + from;
#pragma unroll UNROLL
            for (int item = threadIdx.x; item < count * LANES; item += step) {
                const int e = item / LANES;
                const Pack a = load_once(entry + (int64)e * n_samples);
                products[item] = a * load_shared(x + (int64)__ldg(column + e) * n_samples + s);
            }
        }
        __syncthreads();
        const offset stop = end < from + count ? end : (offset)(from + count);
#pragma unroll UNROLL
        for (; k < stop; ++k) total = total + products[(int)(k - from) * LANES + lane];
    }
    return total;
}

// Where a block's entries are one run of bytes, the copy engine brings values and columns in as few stages as its memory allows,
// all of the same length; other blocks on the multiprocessor compute meanwhile, which is better than two stages in flight
// and half as many blocks. Products and order are those of the plain loop.
#define ENTRY_BYTES ((int)sizeof(Pack) * LANES)
#define STREAM_BYTES (ENTRY_BYTES == 16 ? 36864 : ENTRY_BYTES == 32 ? 32768 : 30720)
#define STREAMED ((STREAM_BYTES - 80) / (ENTRY_BYTES + (int)sizeof(int)))
#define STAGE_BYTES (LANES > STAGED_LANES ? 16 : STREAM_BYTES)

struct Stage {
    alignas(128) unsigned char bytes[STAGE_BYTES];
};

// Bytes that begin at `from`, in whole units of 16: where the first one is, and how many there are.
struct Span {
    const char* begin;
    int skipped, bytes;
};

__device__ inline Span span_of(const void* from, int bytes)
{
    const int skipped = (int)((size_t)from & 15);
    return {(const char*)from - skipped, skipped, (skipped + bytes + 15) / 16 * 16};
}

__device__ inline Pack streamed_product(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                        const real* __restrict__ values, const real* __restrict__ x, int64 first,
                                        int64 last, int64 row, int s, int n_samples, unsigned char* stage)
{
    __shared__ unsigned long long arrived;
    constexpr int COLUMNS = (STREAMED * ENTRY_BYTES + 47) / 16 * 16;
    const int lane = threadIdx.x % LANES;
    const int64 start = indptr[first];
    const int n_entries = (int)(indptr[last] - start), n_stages = (n_entries + STREAMED - 1) / STREAMED;
    const int length = (n_entries + n_stages - 1) / (n_stages ? n_stages : 1);
    int k = row < last ? (int)(indptr[row] - start) : n_entries;
    const int end = row < last ? (int)(indptr[row + 1] - start) : n_entries;
    Pack total = spread(0);
    if (threadIdx.x == 0) start_arrivals(&arrived);
    __syncthreads();
    for (int from = 0, parity = 0; from < n_entries; from += length, parity ^= 1) {
        const int count = n_entries - from < length ? n_entries - from : length;
        const Span entries = span_of(values + (start + from) * n_samples, count * ENTRY_BYTES);
        const Span columns = span_of(indices + start + from, count * (int)sizeof(int));
        if (threadIdx.x == 0) {
            expect(&arrived, entries.bytes + columns.bytes);
            fetch(stage, entries.begin, entries.bytes, &arrived);
            fetch(stage + COLUMNS, columns.begin, columns.bytes, &arrived);
        }
        wait_for(&arrived, parity);
        const Pack* entry = (const Pack*)(stage + entries.skipped) + lane;
        const int* column = (const int*)(stage + COLUMNS + columns.skipped);
        const int stop = end < from + count ? end : from + count;
#pragma unroll UNROLL
        for (; k < stop; ++k)
            total = total + entry[(k - from) * LANES] * load_shared(x + (int64)column[k - from] * n_samples + s);
        __syncthreads();
    }
    return total;
}

// The product of this thread's row. Every thread of the block calls this; what those without a row or a sample get is
// of no use.
template <bool SHARED>
__device__ inline Pack product_here(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                    const real* __restrict__ values, const real* __restrict__ x, int64 n_rows,
                                    int n_samples)
{
    const int s = sample_here();
    const int64 row = row_here();
    if constexpr (SHARED || LANES > STAGED_LANES) {
        if (row >= n_rows || s >= n_samples) return spread(0);
        return row_product<SHARED>(indptr, indices, values, x, row, s, n_samples);
    } else {
        const int64 first = (int64)blockIdx.x * ROWS, last = first + ROWS < n_rows ? first + ROWS : n_rows;
        if (first >= last) return spread(0);
        __shared__ Stage stage;
        if (HAS_COPY_ENGINE && n_samples == LANES * VECTOR)
            return streamed_product(indptr, indices, values, x, first, last, row, s, n_samples, stage.bytes);
        return staged_product(indptr, indices, values, x, first, last, row, s, n_samples, (Pack*)stage.bytes);
    }
}
