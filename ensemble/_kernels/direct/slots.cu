// Factorisation and substitution with numbers in slots of shared memory; records and schedules are those of slots.py.
//
// A block carries 128 bytes of samples, a slot those of one number. In a step a group of 8 lanes subtracts up to four
// terms from a sum in a slot, 16 bytes of it a lane. One half of a block's warps does so. A warp of the other half copies
// numbers from memory for a warp of the first one, and records to a ring, both asynchronously and some steps ahead, and
// writes to memory what that warp made in the step before: the instructions of one warp, which wait for each other, bind
// a step. All wait for each other before each step. Sums have the order of the CPU.
// Longer than 400 lines: the roles of warps share the records, the ring and the barriers of one step.

#define WARP 32

// Steps whose records are in shared memory, where records name one copy, or more: at most GROUP + 2.
#ifndef FEW_RING
#define FEW_RING 8
#endif
#ifndef MANY_RING
#define MANY_RING 7
#endif

// Lanes that work on one chunk; each moves 16 bytes of a slot.
#define GROUP 8
#define MOST_SLOT_THREADS 384  // 56 registers and three blocks

// Flags of a record. The number of terms, 0, 1, 2 or 4, is the largest of the chunks of a warp; flags of a warp are set
// where one of its chunks has them.
#define TERMS 7
#define WARP_BUSY 8
#define SCALED 16
#define PIVOT 32
#define FINAL 64
#define OUT 128
#define WARP_SCALED 256
#define WARP_PIVOT 512
#define FLAG_BITS 10
#define SLOT_BITS 10

// Samples of a thread, and of a block. A piece is what one copy moves: one sample alone where rows of memory do not begin
// at multiples of 16 bytes.
constexpr int OWN = 16 / sizeof(real), TILE = GROUP * OWN;
#ifdef ALONE
constexpr int WIDTH = 1;
#else
constexpr int WIDTH = OWN;
#endif
constexpr int PIECES = OWN / WIDTH;
using Number = PackOf<real, OWN>;
using Piece = PackOf<real, WIDTH>;

// Bytes of a slot: 1 << SLOT_SHIFT.
constexpr int SLOT_SHIFT = 7;
constexpr unsigned SLOT_MASK = ((1u << SLOT_BITS) - 1) << SLOT_SHIFT;

// The same number, which the compiler does not compute again in each step.
__device__ __forceinline__ unsigned kept(unsigned value)
{
    return __shfl_sync(0xffffffff, value, threadIdx.x % WARP);
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

// Writes the samples of a piece.
#ifdef __CUDA_ARCH__
__device__ __forceinline__ void store(char* to, const PackOf<double, 1>& own)
{
    asm volatile("st.global.f64 [%0], %1;" ::"l"(to), "d"(own.lane[0]) : "memory");
}
__device__ __forceinline__ void store(char* to, const PackOf<double, 2>& own)
{
    asm volatile("st.global.v2.f64 [%0], {%1, %2};" ::"l"(to), "d"(own.lane[0]), "d"(own.lane[1]) : "memory");
}
__device__ __forceinline__ void store(char* to, const PackOf<float, 1>& own)
{
    asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(own.lane[0]) : "memory");
}
__device__ __forceinline__ void store(char* to, const PackOf<float, 4>& own)
{
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(own.lane[0]), "f"(own.lane[1]),
                 "f"(own.lane[2]), "f"(own.lane[3])
                 : "memory");
}
#else
template <class T> __device__ void store(char* to, const T& own) { *(T*)to = own; }
#endif

// The sample of the block that is number i of a thread: lanes have pieces side by side.
__device__ __forceinline__ int sample_of(int i)
{
    return i / WIDTH * GROUP * WIDTH + threadIdx.x % GROUP * WIDTH + i % WIDTH;
}

// A thread's pieces of a row: where the first begins, and how many bytes behind it each.
struct Pieces {
    unsigned begin;
    int64 behind[PIECES];
    bool inside[PIECES];

    // A piece without samples stands where the last ones are.
    __device__ __forceinline__ Pieces(unsigned n_samples)
    {
        unsigned places[PIECES];
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const unsigned own = blockIdx.x * TILE + sample_of(i * WIDTH);
            inside[i] = own < n_samples;
            places[i] = (inside[i] ? own : n_samples - WIDTH) * (unsigned)sizeof(real);
        }
        begin = places[0];
#pragma unroll
        for (int i = 0; i < PIECES; ++i) behind[i] = i ? (int64)places[i] - (int64)begin : 0;
    }

    // Those of values that all samples share.
    __device__ __forceinline__ Pieces shared(bool all) const
    {
        Pieces own = *this;
        if (all) own.begin = 0;
#pragma unroll
        for (int i = 0; i < PIECES; ++i)
            if (all) own.behind[i] = 0;
        return own;
    }
};

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

// What a launch goes through: n_steps records for each group of lanes, an even number, and copies that come before them.
// Where records have more copies than one, the first of them is a row of the second array, as results are, and the others
// are rows of the first.
struct Program {
    const int4* records;
    const int* first_copies;
    int n_steps;
};

// Multiplies where `flag` is set, without a choice between two numbers.
__device__ __forceinline__ void scale_if(unsigned flag, double& number, double factor)
{
#ifdef __CUDA_ARCH__
    asm("{.reg .pred p; setp.ne.u32 p, %1, 0; @p mul.rn.f64 %0, %0, %2;}" : "+d"(number) : "r"(flag), "d"(factor));
#else
    if (flag) number = number * factor;
#endif
}
__device__ __forceinline__ void scale_if(unsigned flag, float& number, float factor)
{
#ifdef __CUDA_ARCH__
    asm("{.reg .pred p; setp.ne.u32 p, %1, 0; @p mul.rn.f32 %0, %0, %2;}" : "+f"(number) : "r"(flag), "f"(factor));
#else
    if (flag) number = number * factor;
#endif
}

// Reciprocal pivots of all samples of a thread: the instructions that the compiler makes for one, side by side, as
// each of them waits for the one before.
__device__ __forceinline__ void invert(real (&pivots)[OWN])
{
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(real) == 8) {
        double guess[OWN];
        bool plain = true;  // no pivot is as small or as large as takes other instructions
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            const int low = __double2hiint(pivots[i]) + 0x300402;
            plain = plain && (low & 0x7fffffff) >= 0x400000;
            asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(guess[i]) : "d"((double)pivots[i]));
            guess[i] = __hiloint2double(__double2hiint(guess[i]), low);
        }
        if (plain) {
#pragma unroll
            for (int i = 0; i < OWN; ++i) {
                const double error = __fma_rn(-pivots[i], guess[i], 1.0);
                guess[i] = __fma_rn(guess[i], __fma_rn(error, error, error), guess[i]);
            }
#pragma unroll
            for (int i = 0; i < OWN; ++i)
                pivots[i] = __fma_rn(guess[i], __fma_rn(-pivots[i], guess[i], 1.0), guess[i]);
            return;
        }
    }
#endif
#pragma unroll
    for (int i = 0; i < OWN; ++i) pivots[i] = reciprocal(pivots[i]);
}

// The places of a block in its shared memory: slots, and behind them a ring of records.
template <int COPIES> struct Shared {
    static constexpr int PARTS = COPIES > 1 ? 3 : 2, STEPS = COPIES > 1 ? MANY_RING : FEW_RING;
    char* bytes;
    unsigned height, pitch, ring, ring_end, own_lane;

    __device__ __forceinline__ Shared(real* shared, int n_slots)
        : bytes((char*)shared), height(blockDim.y / 2 * (WARP / GROUP)),
          pitch(PARTS * (unsigned)sizeof(int4) * height), ring((unsigned)n_slots << SLOT_SHIFT),
          ring_end(ring + STEPS * pitch), own_lane(kept(threadIdx.x % GROUP * (unsigned)sizeof(Number)))
    {
    }

    // A thread's place in a slot takes one instruction where the slot stands at SLOT_SHIFT in a word.
    __device__ __forceinline__ Number& slot(unsigned word) const
    {
        return *(Number*)(bytes + ((word & SLOT_MASK) | own_lane));
    }
    __device__ __forceinline__ unsigned next(unsigned at) const { return at + pitch == ring_end ? ring : at + pitch; }
};

// How numbers come from memory to their slots and go back.
template <int COPIES> struct Transfers {
    const Shared<COPIES>& at;
    const Rows &from, &to;
    const Pieces &first_pieces, &second_pieces;

    __device__ __forceinline__ void copy(unsigned word, int k) const
    {
        const unsigned source = word >> SLOT_BITS;
        const bool of_second = COPIES > 1 && k == 0;
        const char* const given = COPIES == 1 ? from[source]
                                  : of_second ? row_at(from.second, source, from.second_pitch)
                                              : row_at(from.first, source, from.pitch);
        const Pieces& pieces = of_second ? second_pieces : first_pieces;
        real* const target = at.slot(word << SLOT_SHIFT).lane;
#pragma unroll
        for (int i = 0; i < PIECES; ++i) copy_async_once<sizeof(Piece)>(target + i * WIDTH, given + pieces.behind[i]);
    }

    // `bad` marks samples that met a number that is not finite.
    __device__ __forceinline__ void deliver(unsigned flags, unsigned places, bool (&bad)[OWN]) const
    {
        const Number total = at.slot(places << SLOT_SHIFT);
        if (COPIES == 1) {
#pragma unroll
            for (int i = 0; i < OWN; ++i) bad[i] = bad[i] || !(fabs(total.lane[i]) < INFINITY);
        }
        if (!(flags & OUT)) return;
        const unsigned result = flags >> FLAG_BITS;
        char* const target = COPIES == 1 ? to[result] : row_at(to.second, result, to.second_pitch);
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            Piece piece;
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) piece.lane[k] = total.lane[i * WIDTH + k];
            if (second_pieces.inside[i]) store(target + second_pieces.behind[i], piece);
        }
    }
};

// A warp that copies numbers to their slots, and records to the ring, AHEAD steps ahead, and writes numbers to memory
// one step after the last chunk of each.
template <int COPIES>
__device__ __forceinline__ void transfer(const Transfers<COPIES>& numbers, const Program& program, bool (&bad)[OWN])
{
    constexpr int PARTS = Shared<COPIES>::PARTS, AHEAD = Shared<COPIES>::STEPS - 2;
    const Shared<COPIES>& at = numbers.at;
    const unsigned thread = threadIdx.y * WARP + threadIdx.x - at.height * GROUP, own = kept(thread / GROUP);
    const unsigned part = kept(thread * (unsigned)sizeof(int4));
    const unsigned own_record = kept(own * (PARTS * (unsigned)sizeof(int4)));
    const char* next_records = (const char*)program.records + part;
    unsigned read_at = at.ring, write_at = at.ring;
    const auto copy_records = [&]() {
        if (part < at.pitch) copy_async<sizeof(int4)>(at.bytes + write_at + part, next_records);
        next_records += at.pitch;
        write_at = at.next(write_at);
        close_group();
    };
    unsigned first[COPIES];  // lane i of a group has the copies of step i
#pragma unroll
    for (int k = 0; k < COPIES; ++k)
        first[k] = __ldg(program.first_copies + (own * COPIES + k) * GROUP + thread % GROUP);
    if (own == 0) at.slot(0) = Number{};
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
#pragma unroll
        for (int k = 0; k < COPIES; ++k) {
            const unsigned word = __shfl_sync(0xffffffff, first[k], i, GROUP);
            if (word) numbers.copy(word, k);
        }
        copy_records();
    }
    wait_for_groups<AHEAD - 2>();
    __syncthreads();
    unsigned flags = 0, places = 0;
#pragma unroll 1
    for (int i = 0; i < program.n_steps; ++i) {
        wait_for_groups<AHEAD - 2>();
        __syncthreads();
        const char* const record = at.bytes + (read_at + own_record);
        const int4 words = *(const int4*)record;
        if (flags & FINAL) numbers.deliver(flags, places, bad);
        if (words.z) numbers.copy(words.z, 0);
        if constexpr (COPIES > 1)
            if (words.w) {
                const int4 others = *(const int4*)(record + sizeof(int4));
                numbers.copy(words.w, 1);
                if (others.x) numbers.copy(others.x, 2);
                if (others.y) numbers.copy(others.y, 3);
                if (others.z) numbers.copy(others.z, 4);
                if (others.w) numbers.copy(others.w, 5);
            }
        copy_records();
        read_at = at.next(read_at), flags = words.x, places = words.y;
    }
    wait_for_groups<0>();
}

// A warp that subtracts the terms of its chunks.
template <int COPIES> __device__ __forceinline__ void subtract(const Shared<COPIES>& at, int n_steps)
{
    constexpr int PARTS = Shared<COPIES>::PARTS;
    const unsigned own_record = kept((threadIdx.y * WARP + threadIdx.x) / GROUP * (PARTS * (unsigned)sizeof(int4)));
    unsigned read_at = at.ring;
    struct Record {
        int2 head;
        int4 pairs;
    };
    const auto read = [&](Record& record) {
        const char* const from = at.bytes + (read_at + own_record);
        record.head = *(const int2*)from;
        record.pairs = *(const int4*)(from + (PARTS - 1) * sizeof(int4));
    };
    __syncthreads();
    Record even, odd;
    read(even);
    const auto step = [&](const Record& own, Record& next) {
        __syncthreads();
        const unsigned flags = own.head.x, places = own.head.y;
        const int4& pairs = own.pairs;
        read_at = at.next(read_at);
        read(next);
        if (flags & WARP_BUSY) {
            Number total = at.slot(places >> (2 * SLOT_BITS) << SLOT_SHIFT), a, b, c, d;
            const auto load = [&](int pair, Number& left, Number& right) {
                left = at.slot(pair), right = at.slot((unsigned)pair >> SLOT_BITS);
            };
            const auto less = [&](const Number& left, const Number& right) {
#pragma unroll
                for (int i = 0; i < OWN; ++i) total.lane[i] = total.lane[i] - left.lane[i] * right.lane[i];
            };
            // Terms that another chunk of the warp has are 0 * 0 here.
            if (flags & TERMS) {
                load(pairs.x, a, b);
                if (flags & (TERMS - 1)) {
                    load(pairs.y, c, d);
                    less(a, b);
                    if (flags & 4) {
                        load(pairs.z, a, b);
                        less(c, d);
                        load(pairs.w, c, d);
                        less(a, b);
                    }
                    less(c, d);
                } else
                    less(a, b);
            }
            if (flags & WARP_SCALED) {
                a = at.slot(places >> SLOT_BITS << SLOT_SHIFT);
#pragma unroll
                for (int i = 0; i < OWN; ++i) scale_if(flags & SCALED, total.lane[i], a.lane[i]);
            }
            if (flags & WARP_PIVOT) {
#pragma unroll
                for (int i = 0; i < OWN; ++i) a.lane[i] = flags & PIVOT ? total.lane[i] : real(1);
                invert(a.lane);
#pragma unroll
                for (int i = 0; i < OWN; ++i) total.lane[i] = flags & PIVOT ? a.lane[i] : total.lane[i];
            }
            at.slot(places << SLOT_SHIFT) = total;
        }
    };
#pragma unroll 1
    for (int i = 0; i < n_steps; i += 2) {
        step(even, odd);
        step(odd, even);
    }
}

// A block's way through a program: each warp does its part, and all wait for each other before each step.
template <int COPIES>
__device__ __forceinline__ void run(real* shared, int n_slots, const Program& program, const Rows& from, const Rows& to,
                                    const Pieces& first_pieces, const Pieces& second_pieces, bool (&bad)[OWN])
{
    const Shared<COPIES> at(shared, n_slots);
    if (threadIdx.y * (WARP / GROUP) < at.height)
        subtract(at, program.n_steps);
    else
        transfer(Transfers<COPIES>{at, from, to, first_pieces, second_pieces}, program, bad);
}

// NaN in `broken` where any thread of the sample met a number that is not finite.
__device__ __forceinline__ void report(const bool (&bad)[OWN], real* broken, int n_samples)
{
    __shared__ char marks[TILE];
    const int thread = threadIdx.y * WARP + threadIdx.x, own = blockIdx.x * TILE + thread;
    if (thread < TILE) marks[thread] = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < OWN; ++i)
        if (bad[i]) marks[sample_of(i)] = 1;
    __syncthreads();
    if (thread < TILE && own < n_samples) broken[own] = marks[thread] ? real(NAN) : real(0);
}

// A factorisation, with the right-hand side b or without, and a second program that reads values and x, or none.
__global__ void __launch_bounds__(MOST_SLOT_THREADS, 3)
    slot_factor(const real* __restrict__ A, const real* __restrict__ b, real* values, real* x, real* broken,
                const int4* __restrict__ records, const int* __restrict__ copies,
                const int4* __restrict__ back_records, const int* __restrict__ back_copies, int nnz, int n_values,
                int n_steps, int n_back_steps, int n_slots, int n_samples)
{
    SHARED_VALUES(shared);
    const Pieces pieces(n_samples);
    const unsigned pitch = n_samples * (unsigned)sizeof(real);
    const auto at = [&](const real* array) { return (const char*)array + pieces.begin; };
    const Rows from{at(A), at(b), pitch, pitch, (unsigned)nnz};
    const Rows to{at(values), at(x), pitch, pitch, (unsigned)n_values};
    bool bad[OWN] = {};
    run<1>(shared, n_slots, Program{records, copies, n_steps}, from, to, pieces, pieces, bad);
    report(bad, broken, n_samples);
    if (n_back_steps) {
        __syncthreads();
        run<6>(shared, n_slots, Program{back_records, back_copies, n_back_steps}, to, to, pieces, pieces, bad);
    }
}

// b and x of shape (n, k, n_samples), blockIdx.y counts the columns; values of shape (n_values, n_samples), or 1 for all.
__global__ void __launch_bounds__(MOST_SLOT_THREADS, 3)
    slot_solve(const real* __restrict__ values, const real* __restrict__ b, real* x, const int4* __restrict__ records,
               const int* __restrict__ copies, const int4* __restrict__ back_records,
               const int* __restrict__ back_copies, int n_steps, int n_back_steps, int n_slots, int n_columns,
               int shared_values, int n_samples)
{
    SHARED_VALUES(shared);
    const Pieces pieces(n_samples), of_values = pieces.shared(shared_values);
    const int64 here = (int64)blockIdx.y * n_samples * sizeof(real) + pieces.begin;
    const unsigned pitch = (shared_values ? 1u : n_samples) * (unsigned)sizeof(real);
    const unsigned row_pitch = (unsigned)n_columns * n_samples * (unsigned)sizeof(real);
    const char* const own_values = (const char*)values + of_values.begin;
    const Rows from{own_values, (const char*)b + here, pitch, row_pitch, 0};
    const Rows to{own_values, (const char*)x + here, pitch, row_pitch, 0};
    bool bad[OWN] = {};
    run<6>(shared, n_slots, Program{records, copies, n_steps}, from, to, of_values, pieces, bad);
    if (n_back_steps) {
        __syncthreads();
        run<6>(shared, n_slots, Program{back_records, back_copies, n_back_steps}, to, to, of_values, pieces, bad);
    }
}
