// Sums of element matrices or vectors of few numbers; what the kernel computes stands in staged_sums.py.
//
// A block copies the pieces that its sums read into shared memory, all at once. A warp then takes a slice of sums, a
// thread for each of their WIDTH numbers, and reads eight places of a sum at a time; the places after the last of a sum
// are those of a zero.
#define AT_ONCE 8                                      // pieces whose numbers a thread reads before it copies
#define PIECE (UNKNOWNS * WIDTH)                       // numbers of a piece
#define WHOLE (16 / (int)sizeof(real))                 // numbers of a copy
#define COPIES (PIECE / WHOLE)                         // of a piece
#define SLICE (32 / WIDTH)                             // sums of a warp

struct Slice {
    int begin, end, target;
    int4 places[ROUNDS_AHEAD];
};

__device__ inline Slice slice_at(const int* __restrict__ starts, const int4* __restrict__ places,
                                 const int* __restrict__ targets, int slice, int sum)
{
    Slice made = {__ldg(starts + slice), __ldg(starts + slice + 1), __ldg(targets + slice * SLICE + sum)};
#pragma unroll
    for (int i = 0; i < ROUNDS_AHEAD; ++i)
        if (made.begin + i < made.end) made.places[i] = __ldg(places + (made.begin + i) * SLICE + sum);
    return made;
}

__device__ inline real with_eight(real total, const int4& places, const real* held)
{
    const int pairs[4] = {places.x, places.y, places.z, places.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        total = total + held[(pairs[i] & 0xffff) * WIDTH];
        total = total + held[(int)((unsigned)pairs[i] >> 16) * WIDTH];
    }
    return total;
}

__global__ void __launch_bounds__(BLOCK)
    staged_sums(const int4* __restrict__ heads, const int* __restrict__ pieces, const int* __restrict__ slice_starts,
                const int4* __restrict__ places, const int* __restrict__ targets, const real* __restrict__ values,
                real* __restrict__ out, int capacity)
{
    SHARED_VALUES(staged);
    const int t = threadIdx.x;
    const int4 head = __ldg(heads + blockIdx.x);
    const int n_copies = head.y * COPIES;
    for (int i = t; i < n_copies; i += AT_ONCE * BLOCK) {
        int piece[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            const int at = i + u * BLOCK;
            piece[u] = at < n_copies ? __ldg(pieces + head.x + at / COPIES) : -1;
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            const int at = i + u * BLOCK;
            if (piece[u] >= 0)
                copy_async_once<16>(staged + at * WHOLE, values + (int64)piece[u] * PIECE + at % COPIES * WHOLE);
        }
    }
    const int sum = t % 32 / WIDTH, s = t % WIDTH, end = head.z + head.w;
    const real* held = staged + s;
    int slice = head.z + t / 32;
    Slice ahead[SLICES_AHEAD];
#pragma unroll
    for (int u = 0; u < SLICES_AHEAD; ++u)
        if (slice + u * (BLOCK / 32) < end)
            ahead[u] = slice_at(slice_starts, places, targets, slice + u * (BLOCK / 32), sum);
    if (t < WIDTH) staged[capacity * PIECE + t] = 0;
    wait_for_copies();
    __syncthreads();
    while (slice < end) {
#pragma unroll
        for (int u = 0; u < SLICES_AHEAD; ++u) {
            if (slice >= end) continue;
            const Slice& here = ahead[u];
            real total = 0;
#pragma unroll
            for (int i = 0; i < ROUNDS_AHEAD; ++i)
                if (here.begin + i < here.end) total = with_eight(total, here.places[i], held);
            for (int i = here.begin + ROUNDS_AHEAD; i < here.end; ++i)
                total = with_eight(total, __ldg(places + i * SLICE + sum), held);
            if (here.target >= 0) store_once(out + (int64)here.target * WIDTH + s, total);
            slice += BLOCK / 32;
        }
#pragma unroll
        for (int u = 0; u < SLICES_AHEAD; ++u)
            if (slice + u * (BLOCK / 32) < end)
                ahead[u] = slice_at(slice_starts, places, targets, slice + u * (BLOCK / 32), sum);
    }
}
