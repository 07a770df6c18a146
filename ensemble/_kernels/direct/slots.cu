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
#define VECTOR_ROWS (-3)

__device__ __forceinline__ void wait_for_rows()
{
    if (blockDim.y * WIDTH > 32)
        __syncthreads();
    else
        __syncwarp();
}

// Where a block keeps its records, its ring of numbers, ENTRIES for each step and thread, and its slots.
template <int RING, int ENTRIES> struct Memory {
    int4* records;
    real *ring, *slots;
    int height, threads, thread;

    __device__ __forceinline__ Memory(real* shared)
        : records((int4*)shared), height(blockDim.y), threads(WIDTH * blockDim.y), thread(threadIdx.y * WIDTH + threadIdx.x)
    {
        real* const numbers = (real*)(records + 2 * RING * height);
        ring = numbers + thread, slots = numbers + RING * ENTRIES * threads + threadIdx.x;
    }
    __device__ __forceinline__ real& entry(int step, int e) const
    {
        return ring[((step & (RING - 1)) * ENTRIES + e) * threads];
    }
    __device__ __forceinline__ real& slot(int e) const { return slots[e * WIDTH]; }
    __device__ __forceinline__ const int4* record(int step) const
    {
        return records + ((step & (RING - 1)) * height + threadIdx.y) * 2;
    }
    __device__ __forceinline__ void fetch_record(const int4* __restrict__ program, int step) const
    {
        if (thread < 2 * height)
            copy_async<16>(records + (step & (RING - 1)) * 2 * height + thread, program + (int64)step * 2 * height + thread);
    }
};

// One pass of a substitution: records {out and flags, slot, four sources of the step RING - 1 later, four slots}. The first
// number of a task is its row of `from`, the last one a reciprocal pivot where it is scaled.
template <int RING>
__device__ __forceinline__ void substitute(real* shared, const real* __restrict__ values, int64 stride, int at,
                                           const real* from, real* x, int64 row_size, int64 here, bool inside,
                                           const int4* __restrict__ program, const int4* __restrict__ first_sources,
                                           int n_steps)
{
    const Memory<RING, 4> memory(shared);
    const auto fetch = [&](int step, int e, int source) {
        real* const to = &memory.entry(step, e);
        if (source >= 0)
            copy_async<sizeof(real)>(to, values + source * stride + at);
        else if (source <= VECTOR_ROWS)
            copy_async<sizeof(real)>(to, from + (VECTOR_ROWS - source) * row_size + here);
        else if (source == ZERO)
            *to = 0;
    };
#pragma unroll 1
    for (int step = 0; step < RING - 1; ++step) {
        if (step < n_steps) {
            memory.fetch_record(program, step);
            const int4 sources = __ldg(first_sources + step * memory.height + threadIdx.y);
            fetch(step, 0, sources.x), fetch(step, 1, sources.y), fetch(step, 2, sources.z), fetch(step, 3, sources.w);
        }
        close_group();
    }
    if (threadIdx.y == 0) memory.slot(0) = 0;
    wait_for_groups<RING - 2>();
    wait_for_rows();
    int4 head = memory.record(0)[0], tail = memory.record(0)[1];
    real total = 0;
#pragma unroll 1
    for (int step = 0; step < n_steps; ++step) {
        wait_for_groups<RING - 3>();
        wait_for_rows();
        const int4 first = head, second = tail;
        const int flags = first.x;
        head = memory.record(step + 1)[0], tail = memory.record(step + 1)[1];
        const real e0 = memory.entry(step, 0), e1 = memory.entry(step, 1);
        const unsigned low = second.z, high = second.w;
        if (flags & START)
            total = e0;
        else
            total = total - e0 * memory.slot(low & 0xffff);
        total = total - e1 * memory.slot(low >> 16);
        real pivot = 1;
        if (flags & SECOND_PAIR) {
            const real e2 = memory.entry(step, 2), e3 = memory.entry(step, 3);
            total = total - e2 * memory.slot(high & 0xffff);
            if (flags & SCALED)
                pivot = e3;
            else
                total = total - e3 * memory.slot(high >> 16);
        }
        const int later = step + RING - 1;
        if (later < n_steps) {
            memory.fetch_record(program, later);
            fetch(later, 0, first.z), fetch(later, 1, first.w), fetch(later, 2, second.x), fetch(later, 3, second.y);
        }
        close_group();
        if (flags & FINISH) {
            const real scaled = flags & SCALED ? total * pivot : total;
            if (flags & KEPT) memory.slot(first.y) = scaled;
            const int64 out = flags >> FLAG_BITS;
            if (inside) x[out * row_size + here] = flags & SLOT_SCALED ? total : scaled;
        }
    }
    wait_for_groups<0>();
    __syncthreads();
}

// Records {out and flags, slot and slot of the scale, source of the step RING - 1 later, slot of the start, four pairs of
// slots}. Values from n_values on are rows of x. With `back_program`, backward substitution follows.
template <int RING>
__global__ void __launch_bounds__(MOST_THREADS)
    slot_factor(const real* __restrict__ A, const real* __restrict__ b, real* values, real* x, real* broken,
                const int4* __restrict__ program, const int* __restrict__ first_sources,
                const int4* __restrict__ back_program, const int4* __restrict__ back_sources, int nnz, int n_values,
                int n_steps, int n_back_steps, int n_samples)
{
    SHARED_VALUES(shared);
    const Memory<RING, 1> memory(shared);
    const int own = blockIdx.x * WIDTH + threadIdx.x;
    const bool inside = own < n_samples;
    const int s = inside ? own : n_samples - 1;  // an idle thread reads what its neighbour does
    const int64 stride = n_samples;
    const auto fetch = [&](int step, int source) {
        real* const to = &memory.entry(step, 0);
        if (source >= 0)
            copy_async<sizeof(real)>(to, source < nnz ? A + source * stride + s : b + (source - nnz) * stride + s);
        else if (source == ZERO)
            *to = 0;
    };
#pragma unroll 1
    for (int step = 0; step < RING - 1; ++step) {
        if (step < n_steps) {
            memory.fetch_record(program, step);
            fetch(step, __ldg(first_sources + step * memory.height + threadIdx.y));
        }
        close_group();
    }
    if (threadIdx.y == 0) memory.slot(0) = 0;
    wait_for_groups<RING - 2>();
    wait_for_rows();
    int4 head = memory.record(0)[0], tail = memory.record(0)[1];
    real total = 0, check = 0;
#pragma unroll 1
    for (int step = 0; step < n_steps; ++step) {
        wait_for_groups<RING - 3>();
        wait_for_rows();
        const int4 first = head, pairs = tail;
        const int flags = first.x;
        head = memory.record(step + 1)[0], tail = memory.record(step + 1)[1];
        if (flags & START) total = flags & FROM_SLOT ? memory.slot(first.w) : memory.entry(step, 0);
        const int later = step + RING - 1;
        if (later < n_steps) {
            memory.fetch_record(program, later);
            fetch(later, first.z);
        }
        close_group();
        if (flags & FIRST_PAIR) {
            const unsigned p = pairs.x, q = pairs.y;
            const real a = memory.slot(p & 0xffff), c = memory.slot(p >> 16);
            const real d = memory.slot(q & 0xffff), e = memory.slot(q >> 16);
            total = total - a * c;
            total = total - d * e;
        }
        if (flags & SECOND_PAIR) {
            const unsigned p = pairs.z, q = pairs.w;
            const real a = memory.slot(p & 0xffff), c = memory.slot(p >> 16);
            const real d = memory.slot(q & 0xffff), e = memory.slot(q >> 16);
            total = total - a * c;
            total = total - d * e;
        }
        if (flags & SCALED) total = total * memory.slot((unsigned)first.y >> 16);
        if (flags & PIVOT) total = reciprocal(total);
        if (flags & KEPT) memory.slot(first.y & 0xffff) = total;
        const int64 out = flags >> FLAG_BITS;
        if (flags & FINISH && out >= 0) {
            if (out < n_values) {
                check = check + (total - total);
                if (inside) values[out * stride + s] = total;
            } else if (inside)
                x[(out - n_values) * stride + s] = total;
        }
    }
    wait_for_groups<0>();
    report(check, broken, s, inside);
    if (n_back_steps) {
        __syncthreads();
        substitute<RING / 2>(shared, values, stride, s, x, x, stride, s, inside, back_program, back_sources, n_back_steps);
    }
}

// b and x of shape (n, k, n_samples), blockIdx.y counts the columns; values of shape (n_values, n_samples), or 1 for all.
template <int RING>
__global__ void __launch_bounds__(MOST_THREADS)
    slot_solve(const real* __restrict__ values, const real* __restrict__ b, real* x, const int4* __restrict__ program,
               const int4* __restrict__ sources, const int4* __restrict__ back_program,
               const int4* __restrict__ back_sources, int n_steps, int n_back_steps, int n_columns, int shared_values,
               int n_samples)
{
    SHARED_VALUES(shared);
    const int own = blockIdx.x * WIDTH + threadIdx.x;
    const bool inside = own < n_samples;
    const int s = inside ? own : n_samples - 1, at = shared_values ? 0 : s;
    const int64 row_size = (int64)n_columns * n_samples, here = (int64)blockIdx.y * n_samples + s;
    const int64 stride = shared_values ? 1 : n_samples;
    substitute<RING>(shared, values, stride, at, b, x, row_size, here, inside, program, sources, n_steps);
    substitute<RING>(shared, values, stride, at, x, x, row_size, here, inside, back_program, back_sources, n_back_steps);
}
