// Factorisation and substitution with values in slots of shared memory; records and schedules are those of slots.py.
//
// A block carries WIDTH samples, one for each threadIdx.x. In a step a row of threads (threadIdx.y) adds up to four terms
// of its task, all rows wait for each other, and a value is written to its slot. What is read from memory, numbers and
// records alike, comes by asynchronous copies into a ring, RING - 1 steps before it is used. Sums have the order of the CPU.

#ifndef SHARED_VALUES
#define SHARED_VALUES(name) extern __shared__ __align__(16) char name##_bytes[]; real* const name = (real*)name##_bytes
#endif

#define WIDTH 8

// Flags of a record.
#define START 1
#define FROM_SLOT 2
#define FIRST_PAIR 4
#define SECOND_PAIR 8
#define SCALED 16
#define FINISH 32
#define PIVOT 64
#define KEPT 128
#define SLOT_SCALED 256
#define FLAG_BITS 9

// Sources of a number that a step reads, below the rows of an array.
#define ZERO (-1)
#define NOTHING (-2)

__device__ __forceinline__ void wait_for_rows()
{
    if (blockDim.y * WIDTH > 32)
        __syncthreads();
    else
        __syncwarp();
}

// A number that the compiler keeps in a register, instead of reading or computing it again in each step.
template <class T> __device__ __forceinline__ T kept(T value)
{
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(T) == 8)
        asm volatile("" : "+l"(value));
    else
        asm volatile("" : "+r"(value));
#endif
    return value;
}

// A place in the ring of a block: PITCH bytes further with each step.
struct Turn {
    unsigned at, pitch, mask;
    __device__ __forceinline__ void advance() { at = (at + pitch) & mask; }
    __device__ __forceinline__ unsigned next() const { return (at + pitch) & mask; }
    __device__ __forceinline__ unsigned last() const { return (at - pitch) & mask; }
};

// Where a thread finds its records, its ring of numbers, ENTRIES for each step, and its slots: bytes from the block's memory.
template <int RING, int ENTRIES> struct Memory {
    char* all;
    const char* program;
    unsigned records, fetched, ring, slots, entry;
    bool fetches;
    Turn record, number;

    __device__ __forceinline__ Memory(real* shared, const int4* from) : all((char*)shared)
    {
        const unsigned height = blockDim.y, threads = WIDTH * height, thread = threadIdx.y * WIDTH + threadIdx.x;
        entry = kept(threads * (unsigned)sizeof(real));
        record = Turn{0, kept(32 * height), RING * 32 * height - 1};
        number = Turn{0, ENTRIES * entry, RING * ENTRIES * entry - 1};
        records = kept(32 * threadIdx.y), fetched = 16 * thread, fetches = thread < 2 * height;
        ring = kept(RING * 32 * height + thread * (unsigned)sizeof(real));
        slots = kept(RING * (32 * height + ENTRIES * entry) + threadIdx.x * (unsigned)sizeof(real));
        program = (const char*)from + 16 * thread;
    }
    __device__ __forceinline__ void advance() { record.advance(), number.advance(); }
    __device__ __forceinline__ const int4* record_at(unsigned place) const { return (const int4*)(all + (records + place)); }
    __device__ __forceinline__ real at(int e) const { return *(const real*)(all + (ring + number.at + e * entry)); }
    __device__ __forceinline__ real& slot(unsigned e) const { return *(real*)(all + (slots + e * (WIDTH * (unsigned)sizeof(real)))); }
    __device__ __forceinline__ real product(unsigned pair) const { return slot(pair & 0xffff) * slot(pair >> 16); }

    // Of the step RING - 1 from here on: its record, and where its numbers go.
    __device__ __forceinline__ void fetch_record()
    {
        if (fetches) copy_async<16>(all + (fetched + record.last()), program);
        program += record.pitch;
    }
    __device__ __forceinline__ real* place(int e) const { return (real*)(all + (ring + number.last() + e * entry)); }
};

// One pass of a substitution: records {out and flags, slot, four sources of the step RING - 1 later, four slots}. Sources from
// n_values on are rows of `from`. The first number of a task is such a row, the last one a reciprocal pivot where it is
// scaled. The program ends with RING - 1 steps that do nothing.
template <int RING>
__device__ __forceinline__ void substitute(real* shared, const real* __restrict__ values, int64 stride, int at,
                                           const real* from, real* x, int64 row_size, int64 here, bool inside,
                                           const int4* __restrict__ program, const int4* __restrict__ first_sources,
                                           int n_values, int n_steps)
{
    Memory<RING, 4> memory(shared, program);
    const unsigned pitch = kept((unsigned)(stride * sizeof(real))), row_pitch = kept((unsigned)(row_size * sizeof(real)));
    const char* const values_here = kept((const char*)(values + at));
    const char* const from_here = kept((const char*)(from + here));
    char* const x_here = kept((char*)(x + here));
    n_values = kept(n_values), n_steps = kept(n_steps);
    const auto fetch_value = [&](int e, int source) {
        if (source > NOTHING)
            copy_async_or_zero<sizeof(real)>(memory.place(e), values_here + (uint64)(unsigned)max(source, 0) * pitch, source >= 0);
    };
    const auto fetch = [&](const int4& sources) {
        const int row = sources.x - n_values;
        if (row >= 0)
            copy_async<sizeof(real)>(memory.place(0), from_here + (uint64)(unsigned)row * row_pitch);
        else
            fetch_value(0, sources.x);
        fetch_value(1, sources.y), fetch_value(2, sources.z), fetch_value(3, sources.w);
    };
    memory.advance();
#pragma unroll 1
    for (int step = 0; step < RING - 1; ++step) {
        memory.fetch_record();
        fetch(__ldg(first_sources + step * blockDim.y + threadIdx.y));
        close_group();
        memory.advance();
    }
    if (threadIdx.y == 0) memory.slot(0) = 0;
    wait_for_groups<RING - 2>();
    wait_for_rows();
    const int4* own = memory.record_at(memory.record.at);
    int4 head = own[0], tail = own[1];
    real total = 0;
#pragma unroll 1
    for (int step = 0; step < n_steps; ++step) {
        wait_for_groups<RING - 3>();
        wait_for_rows();
        const int4 first = head, second = tail;
        const int flags = first.x;
        own = memory.record_at(memory.record.next());
        head = own[0], tail = own[1];
        const unsigned low = second.z, high = second.w;
        const real e0 = memory.at(0), e1 = memory.at(1), e2 = memory.at(2), e3 = memory.at(3);
        const real f0 = memory.slot(low & 0xffff), f1 = memory.slot(low >> 16);
        const real f2 = memory.slot(high & 0xffff), f3 = memory.slot(high >> 16);
        memory.fetch_record();
        fetch(make_int4(first.z, first.w, second.x, second.y));
        close_group();
        total = flags & START ? e0 : total - e0 * f0;
        total = total - e1 * f1;
        if (flags & SECOND_PAIR) {
            total = total - e2 * f2;
            if (!(flags & SCALED)) total = total - e3 * f3;
        }
        if (flags & FINISH) {
            const real scaled = flags & SCALED ? total * e3 : total;
            if (flags & KEPT) memory.slot(first.y) = scaled;
            const unsigned out = flags >> FLAG_BITS;
            if (inside) *(real*)(x_here + (uint64)out * row_pitch) = flags & SLOT_SCALED ? total : scaled;
        }
        memory.advance();
    }
    wait_for_groups<0>();
    __syncthreads();
}

// Records {out and flags, slot and slot of the scale, source of the step RING - 1 later, slot of the start, four pairs of
// slots}. Sources from nnz on are rows of b, values from n_values on rows of x. The program ends with RING - 1 steps that do
// nothing. With n_back_steps, backward substitution follows.
template <int RING>
__global__ void __launch_bounds__(MOST_THREADS)
    slot_factor(const real* __restrict__ A, const real* __restrict__ b, real* values, real* x, real* broken,
                const int4* __restrict__ program, const int* __restrict__ first_sources,
                const int4* __restrict__ back_program, const int4* __restrict__ back_sources, int nnz, int n_values,
                int n_steps, int n_back_steps, int n_samples)
{
    SHARED_VALUES(shared);
    Memory<RING, 1> memory(shared, program);
    const int own = blockIdx.x * WIDTH + threadIdx.x;
    const bool inside = own < n_samples;
    const int s = inside ? own : n_samples - 1;  // an idle thread reads what its neighbour does
    const int64 stride = n_samples;
    const unsigned pitch = kept((unsigned)(n_samples * sizeof(real)));
    const char* const A_here = kept((const char*)(A + s));
    const char* const b_here = kept((const char*)b + s * sizeof(real) - (uint64)nnz * pitch);
    char* const values_here = kept((char*)(values + s));
    char* const x_here = kept((char*)x + s * sizeof(real) - (uint64)n_values * pitch);
    const int first_row = kept(nnz), first_x = kept(n_values), end = kept(n_steps);
    const auto fetch = [&](int source) {
        if (source > NOTHING)
            copy_async_or_zero<sizeof(real)>(memory.place(0),
                                             (source < first_row ? A_here : b_here) + (uint64)(unsigned)max(source, 0) * pitch,
                                             source >= 0);
    };
    memory.advance();
#pragma unroll 1
    for (int step = 0; step < RING - 1; ++step) {
        memory.fetch_record();
        fetch(__ldg(first_sources + step * blockDim.y + threadIdx.y));
        close_group();
        memory.advance();
    }
    if (threadIdx.y == 0) memory.slot(0) = 0;
    wait_for_groups<RING - 2>();
    wait_for_rows();
    const int4* record = memory.record_at(memory.record.at);
    int4 head = record[0], tail = record[1];
    real total = 0, check = 0;
#pragma unroll 1
    for (int step = 0; step < end; ++step) {
        wait_for_groups<RING - 3>();
        wait_for_rows();
        const int4 first = head, pairs = tail;
        const int flags = first.x;
        record = memory.record_at(memory.record.next());
        head = record[0], tail = record[1];
        const real begin = flags & FROM_SLOT ? memory.slot(first.w) : memory.at(0);
        if (flags & START) total = begin;
        memory.fetch_record();
        fetch(first.z);
        close_group();
        if (flags & FIRST_PAIR) {
            const real p = memory.product(pairs.x), q = memory.product(pairs.y);
            total = total - p;
            total = total - q;
        }
        if (flags & SECOND_PAIR) {
            const real p = memory.product(pairs.z), q = memory.product(pairs.w);
            total = total - p;
            total = total - q;
        }
        if (flags & SCALED) total = total * memory.slot((unsigned)first.y >> 16);
        if (flags & PIVOT) total = reciprocal(total);
        if (flags & KEPT) memory.slot(first.y & 0xffff) = total;
        const int out = flags >> FLAG_BITS;
        if (flags & FINISH && out >= 0) {
            const bool value = out < first_x;
            if (value) check = check + (total - total);
            if (inside) *(real*)((value ? values_here : x_here) + (uint64)(unsigned)out * pitch) = total;
        }
        memory.advance();
    }
    wait_for_groups<0>();
    report(check, broken, s, inside);
    if (n_back_steps) {
        __syncthreads();
        substitute<RING / 2>(shared, values, stride, s, x, x, stride, s, inside, back_program, back_sources, n_values, n_back_steps);
    }
}

// b and x of shape (n, k, n_samples), blockIdx.y counts the columns; values of shape (n_values, n_samples), or 1 for all.
template <int RING>
__global__ void __launch_bounds__(MOST_THREADS)
    slot_solve(const real* __restrict__ values, const real* __restrict__ b, real* x, const int4* __restrict__ program,
               const int4* __restrict__ sources, const int4* __restrict__ back_program,
               const int4* __restrict__ back_sources, int n_values, int n_steps, int n_back_steps, int n_columns,
               int shared_values, int n_samples)
{
    SHARED_VALUES(shared);
    const int own = blockIdx.x * WIDTH + threadIdx.x;
    const bool inside = own < n_samples;
    const int s = inside ? own : n_samples - 1, at = shared_values ? 0 : s;
    const int64 row_size = (int64)n_columns * n_samples, here = (int64)blockIdx.y * n_samples + s;
    const int64 stride = shared_values ? 1 : n_samples;
    substitute<RING>(shared, values, stride, at, b, x, row_size, here, inside, program, sources, n_values, n_steps);
    substitute<RING>(shared, values, stride, at, x, x, row_size, here, inside, back_program, back_sources, n_values, n_back_steps);
}
