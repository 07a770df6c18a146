// Sums of element matrices of few numbers; what the kernel computes stands in row_sums.py.
//
// A block copies the rows of element matrices that its rows of the matrix add into shared memory, all at once, and the
// places of each entry's numbers among them. A thread then adds those of one number of an entry, elements ascending.
#ifndef SHARED_VALUES
#define SHARED_VALUES(name) extern __shared__ __align__(16) char name##_bytes[]; real* const name = (real*)name##_bytes
#endif
#define ROW_THREADS 256
#define AT_ONCE 4                                     // pairs whose numbers a thread reads before it copies
#define ROW_NUMBERS (4 * WIDTH)                       // of a row of an element matrix
#define WHOLE (16 / (int)sizeof(real))                // numbers of a copy
#define PIECES (ROW_NUMBERS / WHOLE)                  // copies of such a row
#define PLACES (16 / (int)sizeof(unsigned short))     // places of a copy

__global__ void __launch_bounds__(ROW_THREADS)
    row_sums(const int* __restrict__ pair_starts, const int* __restrict__ pairs, const int* __restrict__ place_starts,
             const unsigned short* __restrict__ places, const int* __restrict__ entry_starts,
             const int2* __restrict__ entries, const real* __restrict__ values, real* __restrict__ out, int capacity)
{
    SHARED_VALUES(staged);
    unsigned short* held = (unsigned short*)(staged + capacity * ROW_NUMBERS);
    const int block = blockIdx.x, t = threadIdx.x;
    const int first = pair_starts[block], n_copies = (pair_starts[block + 1] - first) * PIECES;
    for (int i = t; i < n_copies; i += AT_ONCE * ROW_THREADS) {
        int pair[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            const int at = i + u * ROW_THREADS;
            pair[u] = at < n_copies ? __ldg(pairs + first + at / PIECES) : -1;
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            const int at = i + u * ROW_THREADS;
            if (pair[u] >= 0)
                start_copy(staged + at * WHOLE, values + (int64)pair[u] * ROW_NUMBERS + at % PIECES * WHOLE);
        }
    }
    const int place = place_starts[block], n_places = place_starts[block + 1] - place;
    for (int i = PLACES * t; i < n_places; i += PLACES * ROW_THREADS) start_copy(held + i, places + place + i);
    const int begin = entry_starts[block], end = entry_starts[block + 1], s = t % WIDTH;
    int entry = begin + t / WIDTH;
    int2 next = entry < end ? __ldg(entries + entry) : int2{0, 0};
    finish_copies();
    __syncthreads();
    while (entry < end) {
        const int2 here = next;
        entry += ROW_THREADS / WIDTH;
        if (entry < end) next = __ldg(entries + entry);
        const unsigned short* from = held + (here.x & 0xffff);
        const int n = (int)((unsigned)here.x >> 16);
        real total = 0;
#pragma unroll 4
        for (int k = 0; k < n; ++k) total = total + staged[from[k] * WIDTH + s];
        __stcs(out + (int64)here.y * WIDTH + s, total);
    }
}
