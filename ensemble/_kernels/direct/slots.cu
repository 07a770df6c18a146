// Factorisation and substitution with numbers in slots of shared memory; records and schedules are those of slots.py.
//
// A block carries 32 samples, one for each lane. In a step a warp subtracts up to four terms from a sum in a slot, so that
// what it does is the same for all its lanes; then the block's warps wait for each other. Numbers are copied from memory to
// their slots, and records to a ring, asynchronously and RING - 2 steps ahead. Sums have the order of the CPU.

#ifndef SHARED_VALUES
#define SHARED_VALUES(name) extern __shared__ __align__(16) char name##_bytes[]; real* const name = (real*)name##_bytes
#endif

#define WARP 32

// Flags of a record, behind the number of its terms.
#define TERMS 7
#define BUSY 8
#define SCALED 16
#define PIVOT 32
#define KEPT 64
#define CHECKED 128
#define OUT 256
#define FLAG_BITS 10
#define SLOT_BITS 10

__device__ __forceinline__ void wait_for_warps()
{
    if (blockDim.y > 1)
        __syncthreads();
    else
        __syncwarp();
}

// Rows of two arrays one behind another: those of the second begin at row `end`. Pitches in bytes.
struct Rows {
    char *first, *second;
    unsigned pitch, second_pitch, end;

    __device__ __forceinline__ char* operator[](unsigned row) const
    {
        return row < end ? first + (uint64)row * pitch : second + (uint64)(row - end) * second_pitch;
    }
};

// What a launch goes through: n_steps records for each warp, and copies that come before them.
struct Program {
    const int4* records;
    const int* first_copies;
    int n_steps;
};

template <int COPIES> struct Record {
    int4 part[COPIES > 2 ? 3 : 2];

    __device__ __forceinline__ void read(const int4* from)
    {
        constexpr int parts = sizeof(Record) / sizeof(int4);
#pragma unroll
        for (int i = 0; i < parts; ++i) part[i] = from[i];
    }
    __device__ __forceinline__ const int4& pairs() const { return part[sizeof(Record) / sizeof(int4) - 1]; }
};

// A warp's share of a program: returns zero, or NaN where a lane met a number that is not finite.
template <int RING, int COPIES>
__device__ __forceinline__ real run(real* shared, const Program& program, const Rows& from, const Rows& to, bool inside)
{
    constexpr int PARTS = sizeof(Record<COPIES>) / sizeof(int4), AHEAD = RING - 2;
    const unsigned height = blockDim.y, lane = threadIdx.x, warp = threadIdx.y, thread = warp * WARP + lane;
    int4* const ring = (int4*)shared;
    char* const slots = (char*)(ring + RING * height * PARTS) + lane * sizeof(real);
    const auto slot = [&](unsigned e) -> real& { return *(real*)(slots + e * (unsigned)(WARP * sizeof(real))); };
    const auto copy = [&](unsigned word) {
        copy_async<sizeof(real)>(&slot(word & ((1 << SLOT_BITS) - 1)), from[word >> SLOT_BITS]);
    };
    const bool copies_records = thread < PARTS * height;
    const int4* next_records = program.records + thread;
    const auto copy_records = [&](int step) {
        if (copies_records) copy_async<sizeof(int4)>(ring + (step & (RING - 1)) * (PARTS * height) + thread, next_records);
        next_records += PARTS * height;
    };
    if (warp == 0) slot(0) = 0;
    copy_records(0);
    int word = 0;
#pragma unroll 1
    for (int i = 0; i < AHEAD * COPIES; ++i) {
        if (i % WARP == 0)
            word = __ldg(program.first_copies + warp * ((AHEAD * COPIES + WARP - 1) / WARP * WARP) + i + lane);
        const unsigned own = __shfl_sync(0xffffffff, word, i % WARP);
        if (own) copy(own);
        if (i % COPIES == COPIES - 1) {
            copy_records(i / COPIES + 1);
            close_group();
        }
    }
    wait_for_groups<RING - 3>();
    wait_for_warps();
    Record<COPIES> next;
    next.read(ring + warp * PARTS);
    real check = 0;
#pragma unroll 1
    for (int step = 0; step < program.n_steps; ++step) {
        wait_for_groups<RING - 3>();
        wait_for_warps();
        const Record<COPIES> own = next;
        const unsigned flags = own.part[0].x, places = own.part[0].y;
        const int4 pairs = own.pairs();
        next.read(ring + (((step + 1) & (RING - 1)) * height + warp) * PARTS);
        real total = 0, a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
        const int n_terms = flags & TERMS;
        if (flags & BUSY) total = slot(places >> 2 * SLOT_BITS);
        if (n_terms > 0) a0 = slot(pairs.x & 0xffff), b0 = slot((unsigned)pairs.x >> 16);
        if (n_terms > 1) a1 = slot(pairs.y & 0xffff), b1 = slot((unsigned)pairs.y >> 16);
        if (n_terms > 2) {
            a2 = slot(pairs.z & 0xffff), b2 = slot((unsigned)pairs.z >> 16);
            a3 = slot(pairs.w & 0xffff), b3 = slot((unsigned)pairs.w >> 16);
        }
        if (own.part[0].z) {
            copy(own.part[0].z);
            if constexpr (COPIES > 2)
                if (own.part[0].w) {
                    copy(own.part[0].w);
                    if (own.part[1].x) {
                        copy(own.part[1].x);
                        if (own.part[1].y) copy(own.part[1].y);
                        if (own.part[1].z) copy(own.part[1].z);
                        if (own.part[1].w) copy(own.part[1].w);
                    }
                }
        }
        copy_records(step + RING - 1);
        close_group();
        if (flags & BUSY) {
            if (n_terms > 0) total = total - a0 * b0;
            if (n_terms > 1) total = total - a1 * b1;
            if (n_terms > 2) total = total - a2 * b2;
            if (n_terms > 3) total = total - a3 * b3;
            if (flags & SCALED) total = total * slot(places >> SLOT_BITS & ((1 << SLOT_BITS) - 1));
            if (flags & PIVOT) total = reciprocal(total);
            if (flags & KEPT) slot(places & ((1 << SLOT_BITS) - 1)) = total;
            if (flags & CHECKED) check = check + (total - total);
            if (flags & OUT && inside) *(real*)to[flags >> FLAG_BITS] = total;
        }
    }
    wait_for_groups<0>();
    return check;
}

// A factorisation, with the right-hand side b or without, and a second program that reads values and x, or none.
template <int RING>
__global__ void __launch_bounds__(MOST_THREADS)
    slot_factor(const real* __restrict__ A, const real* __restrict__ b, real* values, real* x, real* broken,
                const int4* __restrict__ records, const int* __restrict__ copies, const int4* __restrict__ back_records,
                const int* __restrict__ back_copies, int nnz, int n_values, int n_steps, int n_back_steps, int n_samples)
{
    SHARED_VALUES(shared);
    const int own = blockIdx.x * WARP + threadIdx.x;
    const bool inside = own < n_samples;
    const int s = inside ? own : n_samples - 1;  // an idle lane reads what its neighbour does
    const unsigned pitch = n_samples * (unsigned)sizeof(real);
    const Rows from{(char*)(A + s), (char*)(b + s), pitch, pitch, (unsigned)nnz};
    const Rows to{(char*)(values + s), (char*)(x + s), pitch, pitch, (unsigned)n_values};
    const real check = run<RING, 1>(shared, Program{records, copies, n_steps}, from, to, inside);
    report(check, broken, s, inside);
    if (n_back_steps) {
        __syncthreads();
        run<RING, 6>(shared, Program{back_records, back_copies, n_back_steps}, to, to, inside);
    }
}

// b and x of shape (n, k, n_samples), blockIdx.y counts the columns; values of shape (n_values, n_samples), or 1 for all.
template <int RING>
__global__ void __launch_bounds__(MOST_THREADS)
    slot_solve(const real* __restrict__ values, const real* __restrict__ b, real* x, const int4* __restrict__ records,
               const int* __restrict__ copies, const int4* __restrict__ back_records, const int* __restrict__ back_copies,
               int n_values, int n_steps, int n_back_steps, int n_columns, int shared_values, int n_samples)
{
    SHARED_VALUES(shared);
    const int own = blockIdx.x * WARP + threadIdx.x;
    const bool inside = own < n_samples;
    const int s = inside ? own : n_samples - 1;
    const int64 here = (int64)blockIdx.y * n_samples + s;
    const unsigned pitch = (shared_values ? 1u : n_samples) * (unsigned)sizeof(real);
    const unsigned row_pitch = (unsigned)n_columns * n_samples * (unsigned)sizeof(real);
    const Rows from{(char*)(shared_values ? values : values + s), (char*)(b + here), pitch, row_pitch, (unsigned)n_values};
    const Rows to{from.first, (char*)(x + here), pitch, row_pitch, (unsigned)n_values};
    run<RING, 6>(shared, Program{records, copies, n_steps}, from, to, inside);
    if (n_back_steps) {
        __syncthreads();
        run<RING, 6>(shared, Program{back_records, back_copies, n_back_steps}, to, to, inside);
    }
}
