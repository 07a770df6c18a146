// Sums of chosen rows; what each kernel computes stands in gather_sums.py.

__global__ void __launch_bounds__(THREADS)
    gather_sums(const offset* __restrict__ starts, const int* __restrict__ sources, const real* __restrict__ values,
                real* out, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    Pack total = spread(0);
    const offset end = starts[row + 1];
#pragma unroll 4
    for (offset t = starts[row]; t < end; ++t)
        total = total + load_shared(values + (int64)__ldg(sources + t) * n_samples + s);
    store(out + row * n_samples + s, total);
}

// A block of threads reads the rows of element matrices that its rows of the matrix receive, each once and whole, and
// adds them up in shared memory, where their order costs nothing. ROW is the length of a row, WIDTH the numbers of an
// entry.
#define WHOLE (ROW % (16 / (int)sizeof(real)) == 0 ? 16 / (int)sizeof(real) : 1)
typedef PackOf<real, WHOLE> Part;

struct alignas(16) Staged {
    real at[CAPACITY * ROW];
};

__global__ void __launch_bounds__(256)
    staged_sums(const int* __restrict__ pairs, const int* __restrict__ entries, const int* __restrict__ incidences,
                const int* __restrict__ starts, const unsigned short* __restrict__ sources,
                const int* __restrict__ targets, const real* __restrict__ values, real* out)
{
    __shared__ Staged staged;
    real* stage = staged.at;
    constexpr int PARTS = ROW / WHOLE;
    const int begin = pairs[blockIdx.x], count = pairs[blockIdx.x + 1] - begin;
    const int first = entries[blockIdx.x], n_entries = entries[blockIdx.x + 1] - first;
#pragma unroll 4
    for (int item = threadIdx.x; item < count * PARTS; item += blockDim.x) {
        const int pair = item / PARTS, part = item % PARTS;
        const real* row = values + (int64)__ldg(incidences + begin + pair) * ROW;
        *reinterpret_cast<Part*>(stage + pair * ROW + part * WHOLE) =
            *reinterpret_cast<const Part*>(row + part * WHOLE);
    }
    __syncthreads();
    for (int item = threadIdx.x; item < n_entries * WIDTH; item += blockDim.x) {
        const int entry = first + item / WIDTH, lane = item % WIDTH;
        const int end = __ldg(starts + entry + 1);
        real total = 0;
#pragma unroll 4
        for (int t = __ldg(starts + entry); t < end; ++t) total = total + stage[(int)__ldg(sources + t) * WIDTH + lane];
        out[(int64)__ldg(targets + entry) * WIDTH + lane] = total;
    }
}
