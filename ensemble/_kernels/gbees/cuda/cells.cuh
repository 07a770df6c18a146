// Grid-based Bayesian estimation on a sparse, moving grid of cells.
//
// Many steps run in one kernel: `advance` grows the grid, links new cells and advects the probability, until the span is
// over or the host has to act. A barrier separates the phases of a step: of the CLUSTER blocks of a cluster where one
// cluster works on one grid, else of all blocks of the launch.
//
// Results do not depend on the order of cells in memory: sums are integer sums (mass in units of 2^-60), the time step
// comes from a maximum, and every other result of a cell is computed from its neighbours in a fixed order. Contraction to
// FMA is off: the cells that are kept depend on exact zeros of velocities.
//
// The generated code in front of this file defines `struct Instance` (the record of one grid), `velocity_at`, `limited`
// and, where BOUNDED, `bounds_at`. Compile-time definitions: N dimensions, REAL of probabilities, CLUSTER, THREADS, BLOCKS (a
// multiprocessor's share), SCANNED (cells that a thread scans at once), DIMENSIONS_AT_ONCE (dimensions that it
// loads at once), and the flags BOUNDED, TIME_VARYING, PERIODIC, DIFFUSIVE, MIXING and
// SECOND_ORDER (in time).

#define EMPTY 0xffffffffffffffffULL
#define UNIT 1152921504606846976.0  // 2^60
#define MAX_PROBES 4096
#define LINK_STRIDE 32

enum Reason { RUNNING, FINISHED, PAUSED, PRUNE, FULL, KEY_OVERFLOW, NOT_FINITE, NOTHING_LEFT, STEP_TOO_SHORT };
enum Growth { UNGROWN, GROWN, TO_DELETE };

struct Group {
    int64 rank, size;  // of this thread among those that work on the instance
    unsigned blocks, waits;
    uint64* arrivals;
};

__device__ inline int64 volatile_load(const int64* p) { return *const_cast<const volatile int64*>(p); }
__device__ inline uint64 volatile_load(const uint64* p) { return *const_cast<const volatile uint64*>(p); }

// Release: writes of the block before it are visible after the matching acquire.
__device__ inline void arrive(uint64* arrivals)
{
#ifdef __CUDA_ARCH__
    asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(arrivals) : "memory");
#else
    *arrivals += 1;
#endif
}

__device__ inline uint64 arrived(const uint64* arrivals)
{
#ifdef __CUDA_ARCH__
    uint64 count;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(count) : "l"(arrivals) : "memory");
    return count;
#else
    return *arrivals;
#endif
}

// Barrier of all threads of the group; writes before it are visible after it.
__device__ inline void barrier(Group& group)
{
#if CLUSTER > 1
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
    if (group.blocks > 1) {
        if (threadIdx.x == 0) {
            const uint64 everyone = (uint64)++group.waits * group.blocks;
            arrive(group.arrivals);
            while (arrived(group.arrivals) < everyone) {}
        }
        __syncthreads();
    }
#endif
}

#define EACH(c, n) for (int64 c = group.rank; c < (n); c += group.size)

template <class V> __device__ inline void swap_values(V& a, V& b)
{
    const V c = a;
    a = b, b = c;
}

// --- sums in fixed point
__device__ inline uint64 to_fixed(double mass) { return __double2ull_rn(mass * UNIT); }

__device__ inline double to_double(uint64 sum) { return (double)sum / UNIT; }

__device__ inline real reciprocal(uint64 sum) { return (real)(UNIT / (double)sum); }

// Adds the values of all threads of the block to *target. All threads of the block must call it.
__device__ inline void block_add(uint64* target, uint64 value)
{
    __shared__ uint64 sums[32];
    for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    __syncthreads();  // the previous sum has been read
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x) return;
    for (int warp = 1; warp < (int)blockDim.x / 32; ++warp) value += sums[warp];
    if (value) atomicAdd(target, value);
}

__device__ inline void atomic_maximum(uint64* target, double value)
{
    const uint64 bits = (uint64)__double_as_longlong(value);  // bits of non-negative numbers are in the order of the numbers
    if (bits > volatile_load(target)) atomicMax(target, bits);
}

// --- positions and velocities
__device__ __forceinline__ void unpack(const Instance& g, uint64 key, int (&s)[N])
{
#pragma unroll
    for (int i = 0; i < N; ++i) s[i] = (int)((key >> g.shifts[i]) & (uint64)g.masks[i]) + (int)g.lows[i];
}

// The velocity through the upper face along j of the cell `offset` cells along j from s.
__device__ __forceinline__ double velocity(const Instance& g, const int (&s)[N], int j, int offset, double t)
{
    double z[N], v[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        int at = s[i];
        if (i == j) {
            at += offset;
#if PERIODIC
            if (g.periods[i]) {
                if (at < g.lows[i]) at += (int)g.periods[i];
                if (at >= g.lows[i] + g.periods[i]) at -= (int)g.periods[i];
            }
#endif
        }
        z[i] = g.widths[i] * (double)at;
        if (i == j) z[i] = z[i] + 0.5 * g.widths[i];
    }
    velocity_at(g, z, t, v);
    return v[j];
}

__device__ __noinline__ void velocities(const Instance& g, uint64 key, double t, double (&v)[N])
{
    int s[N];
    unpack(g, key, s);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = velocity(g, s, i, 0, t);
}

__device__ inline bool diffuses(const Instance& g, int i)
{
#if DIFFUSIVE
    return g.diffusion[i] > 0;
#else
    return false;
#endif
}

// Whether probability flows from a cell with velocity v along i to its neighbour above (up) or below.
__device__ inline bool flows(const Instance& g, int i, double v, int up) { return (up ? v > 0 : v < 0) || diffuses(g, i); }

// One over the largest stable time step of a cell.
__device__ inline double rate_of(const Instance& g, uint64 key, double t)
{
    double v[N], rate = 0;
    velocities(g, key, t, v);
#pragma unroll
    for (int i = 0; i < N; ++i) rate = rate + fabs(v[i]) / g.widths[i];
#if DIFFUSIVE
#pragma unroll
    for (int i = 0; i < N; ++i) rate = rate + g.diffusion[i] / (g.widths[i] * g.widths[i]);
#endif
#if MIXING
    rate = rate + g.corner_rate;
#endif
    return rate;
}

// Updates the maximum by the rate of a cell; of cells whose rate is not finite, the smallest key is kept.
__device__ inline void update_maximum_rate(Instance& shared, const Instance& g, uint64 key, double t, uint64* maximum)
{
    const double rate = rate_of(g, key, t);
    if (rate < 1.7e308) atomic_maximum(maximum, rate);
    else atomicMin(&shared.bad_key, key);
}

// --- keys and the hash table
__device__ inline uint64 slot_of(uint64 key, int64 slots)
{
    uint64 h = key * 0x9e3779b97f4a7c15ULL;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ULL;
    return __umul64hi(h, (uint64)slots);
}

// The key of the neighbour above or below along i, of a cell that is not at the limit of its keys.
__device__ inline uint64 neighbour_key(const Instance& g, uint64 key, int i, int up)
{
    const uint64 step = 1ULL << g.shifts[i];
#if PERIODIC
    if (g.periods[i]) {
        const int64 at = (int64)((key >> g.shifts[i]) & (uint64)g.masks[i]);
        if (up && at == g.periods[i] - 1) return key - step * (uint64)at;
        if (!up && at == 0) return key + step * (uint64)(g.periods[i] - 1);
    }
#endif
    return up ? key + step : key - step;
}

__device__ inline bool at_key_limit(const Instance& g, uint64 key, int i)
{
#if PERIODIC
    if (g.periods[i]) return false;
#endif
    const uint64 at = (key >> g.shifts[i]) & (uint64)g.masks[i];
    return at == 0 || at == (uint64)g.masks[i];
}

__device__ inline int find(const Instance& g, uint64 key)
{
    for (uint64 slot = slot_of(key, g.slots);; slot = slot + 1 == (uint64)g.slots ? 0 : slot + 1) {
        const uint64 seen = g.table[slot];
        if (seen == key) return g.places[slot];
        if (seen == EMPTY) return -1;
    }
}

__device__ inline bool in_bounds(const Instance& g, uint64 key)
{
#if BOUNDED
    int s[N];
    double z[N];
    unpack(g, key, s);
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] = g.widths[i] * (double)s[i];
    const double value = bounds_at(g, z);
    return g.lower <= value && value <= g.upper;
#else
    return true;
#endif
}

// Inserts a cell, unless it is stored or out of bounds. The compare-and-swap of the key decides which of several threads
// inserts it. Where the arrays are full, `full` is set, and the host rebuilds the table without the surplus keys.
__device__ __noinline__ void insert(Instance& shared, const Instance& g, uint64 key)
{
    if (!in_bounds(g, key)) return;
    uint64 slot = slot_of(key, g.slots);
    for (int tries = 0; tries < MAX_PROBES; ++tries) {
        const uint64 seen = atomicCAS(&g.table[slot], EMPTY, key);
        if (seen == EMPTY) {
            const int64 c = (int64)atomicAdd((uint64*)&shared.n, 1ULL);
            if (c >= g.capacity) break;
            g.keys[c] = key, g.places[slot] = (int)c;
            g.p[c] = 0, g.marks[c] = UNGROWN;
            return;
        }
        if (seen == key) return;
        slot = slot + 1 == (uint64)g.slots ? 0 : slot + 1;
    }
    shared.full = FULL;
}

#define BELOW(i) (g.neighbours + (2 * (i)) * g.capacity)
#define ABOVE(i) (g.neighbours + (2 * (i) + 1) * g.capacity)
#define NEIGHBOUR(i, up) (g.neighbours + (2 * (i) + (up)) * g.capacity)
