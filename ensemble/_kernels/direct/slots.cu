// Factorisation and substitution with numbers in slots of shared memory; records and schedules are those of slots.py.
//
// A block carries 32 samples, one for each lane. In a step a warp subtracts up to four terms from a sum in a slot, so that
// what it does is the same for all its lanes; the block's warps wait for each other before each step. Instructions bind, so
// words hold places as they are needed. Numbers are copied from memory to
// their slots, and records to a ring, asynchronously and AHEAD steps ahead. Sums have the order of the CPU.

#ifndef SHARED_VALUES
#define SHARED_VALUES(name) extern __shared__ __align__(16) char name##_bytes[]; real* const name = (real*)name##_bytes
#endif

#define WARP 32
#define RING 8
#define AHEAD (RING - 2)

// The number of terms of a record is 0, 1, 2 or 4; behind it stand flags.
#define TERMS 7
#define BUSY 8
#define SCALED 16
#define PIVOT 32
#define FINAL 64
#define OUT 128
#define FLAG_BITS 10
#define SLOT_BITS 10

// Bytes of a slot: 1 << SLOT_SHIFT.
constexpr int SLOT_SHIFT = sizeof(real) == 8 ? 8 : 7;
constexpr unsigned SLOT_MASK = ((1u << SLOT_BITS) - 1) << SLOT_SHIFT;

// A number that the compiler keeps in a register, instead of computing it again in each step.
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

// first + row * pitch in one instruction.
__device__ __forceinline__ char* row_at(const char* first, unsigned row, unsigned pitch)
{
#ifdef __CUDA_ARCH__
    uint64 place;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(place) : "r"(row), "r"(pitch), "l"((uint64)first));
    return (char*)place;
#else
    return (char*)first + (uint64)row * pitch;
#endif
}

__device__ __forceinline__ void store(char* to, double value)
{
#ifdef __CUDA_ARCH__
    asm volatile("st.global.f64 [%0], %1;" ::"l"(to), "d"(value) : "memory");
#else
    *(double*)to = value;
#endif
}

__device__ __forceinline__ void store(char* to, float value)
{
#ifdef __CUDA_ARCH__
    asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
#else
    *(float*)to = value;
#endif
}

// Rows of two arrays, their pitches in bytes: those of the second come behind the `end` rows of the first.
struct Rows {
    const char *first, *second;
    unsigned pitch, second_pitch, end;

    __device__ __forceinline__ char* operator[](unsigned row) const
    {
        const bool low = row < end;
        return row_at(low ? first : second, low ? row : row - end, low ? pitch : second_pitch);
    }
};

// What a launch goes through: n_steps records for each warp, an even number, and copies that come before them.
struct Program {
    const int4* records;
    const int* first_copies;
    int n_steps;
};

template <int COPIES> struct Record {
    int4 part[COPIES > 1 ? 3 : 2];

    __device__ __forceinline__ void read(const char* from)
    {
        constexpr int parts = sizeof(Record) / sizeof(int4);
#pragma unroll
        for (int i = 0; i < parts; ++i) part[i] = ((const int4*)from)[i];
    }
};

// A warp's share of a program: returns zero, or NaN where a lane met a number that is not finite. Where records have more
// copies than one, the first of them is a row of the second array, as results are, and the others are rows of the first.
template <int COPIES>
__device__ __forceinline__ real run(real* shared, int n_slots, const Program& program, const Rows& from, const Rows& to,
                                    bool inside)
{
    constexpr int PARTS = sizeof(Record<COPIES>) / sizeof(int4);
    const unsigned height = blockDim.y, lane = threadIdx.x, warp = threadIdx.y, thread = warp * WARP + lane;
    char* const bytes = (char*)shared;
    const unsigned own_lane = kept(lane * (unsigned)sizeof(real)), pitch = kept(PARTS * (unsigned)sizeof(int4) * height);
    // A lane's place in a slot takes one instruction where the slot stands at SLOT_SHIFT in a word.
    const auto slot = [&](unsigned word) -> real& { return *(real*)(bytes + ((word & SLOT_MASK) | own_lane)); };
    const unsigned ring = kept((unsigned)n_slots << SLOT_SHIFT), ring_end = kept(ring + RING * pitch);
    const unsigned own_record = kept(warp * (PARTS * (unsigned)sizeof(int4))), own_part = kept(thread * (unsigned)sizeof(int4));
    const int n_steps = kept(program.n_steps);
    const bool copies_records = thread < PARTS * height;
    const char* next_records = (const char*)(program.records + thread);
    const auto copy_records = [&](unsigned at) {
        if (copies_records) copy_async<sizeof(int4)>(bytes + (at + own_part), next_records);
        next_records += pitch;
    };
    const auto copy = [&](unsigned word, int k) {
        const unsigned row = word >> SLOT_BITS;
        const char* const given = COPIES == 1 ? from[row]
                                  : k == 0    ? row_at(from.second, row, from.second_pitch)
                                              : row_at(from.first, row, from.pitch);
        copy_async<sizeof(real)>(&slot(word << SLOT_SHIFT), given);
    };
#pragma unroll
    for (int k = 0; k < COPIES; ++k) {
        const unsigned word = __ldg(program.first_copies + (warp * COPIES + k) * WARP + lane);
#pragma unroll 1
        for (int i = 0; i < AHEAD; ++i) {
            const unsigned own = __shfl_sync(0xffffffff, word, i);
            if (own) copy(own, k);
        }
    }
    if (warp == 0) slot(0) = 0;
    unsigned read_at = ring, write_at = ring;
    for (int i = 0; i < RING - 1; ++i) {
        copy_records(write_at);
        write_at += pitch;
        if (i > 0) close_group();
    }
    wait_for_groups<RING - 3>();
    __syncthreads();
    Record<COPIES> even, odd;
    even.read(bytes + (read_at + own_record));
    real check = 0;
    const auto step = [&](const Record<COPIES>& own, Record<COPIES>& next) {
        wait_for_groups<RING - 3>();
        __syncthreads();
        const unsigned flags = own.part[0].x, places = own.part[0].y;
        const int4& pairs = own.part[PARTS - 1];
        read_at = read_at + pitch == ring_end ? ring : read_at + pitch;
        next.read(bytes + (read_at + own_record));
        if (own.part[0].z) copy(own.part[0].z, 0);
        if constexpr (COPIES > 1)
            if (own.part[0].w) {
                copy(own.part[0].w, 1);
                if (own.part[1].x) {
                    copy(own.part[1].x, 2);
                    if (own.part[1].y) {
                        copy(own.part[1].y, 3);
                        if (own.part[1].z) copy(own.part[1].z, 4);
                        if (own.part[1].w) copy(own.part[1].w, 5);
                    }
                }
            }
        copy_records(write_at);
        write_at = write_at + pitch == ring_end ? ring : write_at + pitch;
        close_group();
        if (flags & BUSY) {
            real total = slot(places >> (2 * SLOT_BITS) << SLOT_SHIFT);
            if (flags & TERMS) {
                const real a0 = slot(pairs.x), b0 = slot((unsigned)pairs.x >> SLOT_BITS);
                if (flags & (TERMS - 1)) {
                    const real a1 = slot(pairs.y), b1 = slot((unsigned)pairs.y >> SLOT_BITS);
                    if (flags & 4) {
                        const real a2 = slot(pairs.z), b2 = slot((unsigned)pairs.z >> SLOT_BITS);
                        const real a3 = slot(pairs.w), b3 = slot((unsigned)pairs.w >> SLOT_BITS);
                        total = total - a0 * b0;
                        total = total - a1 * b1;
                        total = total - a2 * b2;
                        total = total - a3 * b3;
                    } else {
                        total = total - a0 * b0;
                        total = total - a1 * b1;
                    }
                } else
                    total = total - a0 * b0;
            }
            if (flags & (SCALED | PIVOT)) {
                if (flags & PIVOT)
                    total = reciprocal(total);
                else
                    total = total * slot(places >> SLOT_BITS << SLOT_SHIFT);
            }
            slot(places << SLOT_SHIFT) = total;
            if (flags & FINAL) {
                if (COPIES == 1) check = check + (total - total);
                if (flags & OUT && inside) {
                    const unsigned row = flags >> FLAG_BITS;
                    store(COPIES == 1 ? to[row] : row_at(to.second, row, to.second_pitch), total);
                }
            }
        }
    };
#pragma unroll 1
    for (int i = 0; i < n_steps; i += 2) {
        step(even, odd);
        step(odd, even);
    }
    wait_for_groups<0>();
    return check;
}

// A factorisation, with the right-hand side b or without, and a second program that reads values and x, or none.
__global__ void __launch_bounds__(MOST_THREADS)
    slot_factor(const real* __restrict__ A, const real* __restrict__ b, real* values, real* x, real* broken,
                const int4* __restrict__ records, const int* __restrict__ copies, const int4* __restrict__ back_records,
                const int* __restrict__ back_copies, int nnz, int n_values, int n_steps, int n_back_steps,
                int n_slots, int n_samples)
{
    SHARED_VALUES(shared);
    const int own = blockIdx.x * WARP + threadIdx.x;
    const bool inside = own < n_samples;
    const int s = inside ? own : n_samples - 1;  // an idle lane reads what its neighbour does
    const unsigned pitch = kept(n_samples * (unsigned)sizeof(real));
    const Rows from{kept((const char*)(A + s)), kept((const char*)(b + s)), pitch, pitch, kept((unsigned)nnz)};
    const Rows to{kept((const char*)(values + s)), kept((const char*)(x + s)), pitch, pitch, kept((unsigned)n_values)};
    const real check = run<1>(shared, n_slots, Program{records, copies, n_steps}, from, to, inside);
    report(check, broken, s, inside);
    if (n_back_steps) {
        __syncthreads();
        run<6>(shared, n_slots, Program{back_records, back_copies, n_back_steps}, to, to, inside);
    }
}

// b and x of shape (n, k, n_samples), blockIdx.y counts the columns; values of shape (n_values, n_samples), or 1 for all.
__global__ void __launch_bounds__(MOST_THREADS)
    slot_solve(const real* __restrict__ values, const real* __restrict__ b, real* x, const int4* __restrict__ records,
               const int* __restrict__ copies, const int4* __restrict__ back_records, const int* __restrict__ back_copies,
               int n_steps, int n_back_steps, int n_slots, int n_columns, int shared_values, int n_samples)
{
    SHARED_VALUES(shared);
    const int own = blockIdx.x * WARP + threadIdx.x;
    const bool inside = own < n_samples;
    const int s = inside ? own : n_samples - 1;
    const int64 here = (int64)blockIdx.y * n_samples + s;
    const unsigned pitch = kept((shared_values ? 1u : n_samples) * (unsigned)sizeof(real));
    const unsigned row_pitch = kept((unsigned)n_columns * n_samples * (unsigned)sizeof(real));
    const char* const own_values = kept((const char*)(shared_values ? values : values + s));
    const Rows from{own_values, kept((const char*)(b + here)), pitch, row_pitch, 0};
    const Rows to{own_values, kept((const char*)(x + here)), pitch, row_pitch, 0};
    run<6>(shared, n_slots, Program{records, copies, n_steps}, from, to, inside);
    if (n_back_steps) {
        __syncthreads();
        run<6>(shared, n_slots, Program{back_records, back_copies, n_back_steps}, to, to, inside);
    }
}
