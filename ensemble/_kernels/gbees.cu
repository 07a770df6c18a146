// Grid-based Bayesian estimation: a sparse grid of cells that follows the probability on it.
//
// A run of steps is one kernel: `advance` grows the grid, links what is new, and carries the probability on, step after
// step, until the span is over or the host is needed. Its threads wait for each other between the phases of a step: those
// of a cluster of blocks where one cluster works on one instance (CLUSTER blocks of it), else all blocks of the launch.
//
// No bit depends on the order in which cells got their places in memory: sums are sums of integers (mass in units of
// 2^-60), time steps come from a maximum, and every other result of a cell comes from its neighbours in a fixed order.
// Contraction to FMA is off: which cells are kept hangs on the exact zeros of velocities.
//
// In front of this text stand `struct Instance` (one grid, as the host described it), `drift` and, where BOUNDED,
// `bounds`. Told by the compiler: N dimensions, REAL of probabilities, LIMITER, CLUSTER, THREADS, BLOCKS (a
// multiprocessor's share), SCANNED (cells a
// thread looks at together), AT_ONCE (dimensions that a thread loads for together), and the flags ROTATED, BOUNDED, TIME_VARYING, PERIODIC and DIFFUSIVE.

typedef REAL real;
typedef unsigned long long u64;
typedef long long i64;

#define EMPTY 0xffffffffffffffffULL
#define UNIT 1152921504606846976.0  // 2^60
#define MOST_TRIES 4096
#define PACE 32

enum Reason { RUNNING, FINISHED, PAUSED, PRUNE, FULL, RIM, NOT_FINITE, NOTHING_LEFT, STUCK };
enum Limiter { MC, SUPERBEE, VAN_LEER, MINMOD, NONE };
enum Growth { UNGROWN, GROWN, DOOMED };

struct Group {
    i64 rank, size;  // of this thread among those that work on the instance
    unsigned blocks, waits;
    u64* arrivals;
};

__device__ inline i64 latest(const i64* p) { return *const_cast<const volatile i64*>(p); }
__device__ inline u64 latest(const u64* p) { return *const_cast<const volatile u64*>(p); }

// What the block wrote before is seen by whoever sees the arrival.
__device__ inline void arrive(u64* arrivals)
{
#ifdef __CUDA_ARCH__
    asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(arrivals) : "memory");
#else
    *arrivals += 1;
#endif
}

__device__ inline u64 arrived(const u64* arrivals)
{
#ifdef __CUDA_ARCH__
    u64 count;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(count) : "l"(arrivals) : "memory");
    return count;
#else
    return *arrivals;
#endif
}

// All threads of the group have come here, and see what each of them wrote before.
__device__ inline void wait_for_all(Group& group)
{
#if CLUSTER > 1
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
    if (group.blocks > 1) {
        if (threadIdx.x == 0) {
            const u64 everyone = (u64)++group.waits * group.blocks;
            arrive(group.arrivals);
            while (arrived(group.arrivals) < everyone) {}
        }
        __syncthreads();
    }
#endif
}

// --- sums without an order
__device__ inline u64 fixed(double mass) { return __double2ull_rn(mass * UNIT); }

__device__ inline double floating(u64 sum) { return (double)sum / UNIT; }

__device__ inline real over(u64 sum) { return (real)(UNIT / (double)sum); }

// Adds the values of all threads of the block; every thread calls it.
__device__ inline void add(u64* target, u64 value)
{
    __shared__ u64 sums[32];
    for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    __syncthreads();  // the last sum has been read
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x) return;
    for (int warp = 1; warp < (int)blockDim.x / 32; ++warp) value += sums[warp];
    if (value) atomicAdd(target, value);
}

__device__ inline void raise_to(u64* target, double value)
{
    const u64 bits = (u64)__double_as_longlong(value);  // of numbers that are not negative, in their order
    if (bits > latest(target)) atomicMax(target, bits);
}

// --- where a cell lies, and how it moves
__device__ __forceinline__ void unpack(const Instance& g, u64 key, int (&s)[N])
{
#pragma unroll
    for (int i = 0; i < N; ++i) s[i] = (int)((key >> g.shifts[i]) & (u64)g.masks[i]) + (int)g.lows[i];
}

__device__ __forceinline__ void place(const Instance& g, const double (&z)[N], double (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; ++i) {
#if ROTATED
        double sum = g.rotation[i * N] * z[0];
#pragma unroll
        for (int k = 1; k < N; ++k) sum = sum + g.rotation[i * N + k] * z[k];
#else
        const double sum = z[i];
#endif
        x[i] = sum + g.origin[i];
    }
}

// The velocity through the upper face along j of the cell `offset` cells along j from s.
__device__ __forceinline__ double velocity(const Instance& g, const int (&s)[N], int j, int offset, double t)
{
    double z[N], x[N], f[N];
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
    place(g, z, x);
    drift_at(x, t, g.parameters, f);
#if ROTATED
    double sum = g.rotation[j] * f[0];
#pragma unroll
    for (int i = 1; i < N; ++i) sum = sum + g.rotation[i * N + j] * f[i];
    return sum;
#else
    return f[j];
#endif
}

__device__ __noinline__ void velocities(const Instance& g, u64 key, double t, double (&v)[N])
{
    int s[N];
    unpack(g, key, s);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = velocity(g, s, i, 0, t);
}

__device__ inline bool spreads(const Instance& g, int i)
{
#if DIFFUSIVE
    return g.diffusion[i] > 0;
#else
    return false;
#endif
}

// Whether what is in a cell with velocity v along i goes to its neighbour above (up) or below.
__device__ inline bool goes(const Instance& g, int i, double v, int up) { return (up ? v > 0 : v < 0) || spreads(g, i); }

// One over the largest stable time step of a cell.
__device__ inline double rate_of(const Instance& g, u64 key, double t)
{
    double v[N], rate = 0;
    velocities(g, key, t, v);
#pragma unroll
    for (int i = 0; i < N; ++i) rate = rate + fabs(v[i]) / g.widths[i];
#if DIFFUSIVE
#pragma unroll
    for (int i = 0; i < N; ++i) rate = rate + g.diffusion[i] / (g.widths[i] * g.widths[i]);
#endif
    return rate;
}

// The rate of a cell enters the maximum; of cells that have none, the first key is kept.
__device__ inline void judge(Instance& shared, const Instance& g, u64 key, double t, u64* maximum)
{
    const double rate = rate_of(g, key, t);
    if (rate < 1.7e308) raise_to(maximum, rate);
    else atomicMin(&shared.bad_key, key);
}

// --- keys and the table of them
__device__ inline u64 slot_of(u64 key, i64 slots)
{
    u64 h = key * 0x9e3779b97f4a7c15ULL;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ULL;
    return __umul64hi(h, (u64)slots);
}

// The key of the neighbour above or below along i of any cell that is not on the rim of its keys.
__device__ inline u64 beside(const Instance& g, u64 key, int i, int up)
{
    const u64 step = 1ULL << g.shifts[i];
#if PERIODIC
    if (g.periods[i]) {
        const i64 at = (i64)((key >> g.shifts[i]) & (u64)g.masks[i]);
        if (up && at == g.periods[i] - 1) return key - step * (u64)at;
        if (!up && at == 0) return key + step * (u64)(g.periods[i] - 1);
    }
#endif
    return up ? key + step : key - step;
}

__device__ inline bool on_rim(const Instance& g, u64 key, int i)
{
#if PERIODIC
    if (g.periods[i]) return false;
#endif
    const u64 at = (key >> g.shifts[i]) & (u64)g.masks[i];
    return at == 0 || at == (u64)g.masks[i];
}

__device__ inline int find(const Instance& g, u64 key)
{
    for (u64 slot = slot_of(key, g.slots);; slot = slot + 1 == (u64)g.slots ? 0 : slot + 1) {
        const u64 seen = g.table[slot];
        if (seen == key) return g.places[slot];
        if (seen == EMPTY) return -1;
    }
}

__device__ inline bool allowed(const Instance& g, u64 key)
{
#if BOUNDED
    int s[N];
    double z[N], x[N];
    unpack(g, key, s);
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] = g.widths[i] * (double)s[i];
    place(g, z, x);
    const double value = bounds_at(x);
    return g.lower <= value && value <= g.upper;
#else
    return true;
#endif
}

// Makes a cell, unless it is there or may not be. The key in a slot is the claim on it: of several threads that want one
// cell, exactly one makes it. Where there is no room the host learns of it, and what was claimed in vain is swept away.
__device__ __noinline__ void insert(Instance& shared, const Instance& g, u64 key)
{
    if (!allowed(g, key)) return;
    u64 slot = slot_of(key, g.slots);
    for (int tries = 0; tries < MOST_TRIES; ++tries) {
        const u64 seen = atomicCAS(&g.table[slot], EMPTY, key);
        if (seen == EMPTY) {
            const i64 c = (i64)atomicAdd((u64*)&shared.n, 1ULL);
            if (c >= g.capacity) break;
            g.keys[c] = key, g.places[slot] = (int)c;
            g.p[c] = 0, g.marks[c] = UNGROWN;
            return;
        }
        if (seen == key) return;
        slot = slot + 1 == (u64)g.slots ? 0 : slot + 1;
    }
    shared.full = FULL;
}

#define BELOW(i) (g.neighbours + (2 * (i)) * g.capacity)
#define ABOVE(i) (g.neighbours + (2 * (i) + 1) * g.capacity)
#define BESIDE(i, up) (g.neighbours + (2 * (i) + (up)) * g.capacity)

// --- phase 1: an active cell makes the neighbours that it flows to, faces and edges
#if DIFFUSIVE
#define SIDES 2
#else
#define SIDES 1
#endif
#define SIGNS (SIDES * SIDES)
#define TARGETS (N * (N + 1) / 2 * SIGNS)

// Target k of a cell: a pair of dimensions, the same one twice for a face; where it diffuses, also a pair of sides.
__device__ inline void make_target(Instance& shared, const Instance& g, i64 c, int k, double t)
{
    int i = 0, j = k / SIGNS;
    while (j >= N - i) j -= N - i++;
    j += i;
    const u64 key = g.keys[c];
    int s[N];
    unpack(g, key, s);
    const double v_i = velocity(g, s, i, 0, t), v_j = velocity(g, s, j, 0, t);
    const int up = SIGNS == 4 ? k % 2 : v_i > 0, over = SIGNS == 4 ? k / 2 % 2 : v_j > 0;
    if (!goes(g, i, v_i, up) || !goes(g, j, v_j, over) || (i == j && over != up)) return;
    const int face = BESIDE(i, up)[c];
    u64 wanted = beside(g, key, i, up);
    if (on_rim(g, wanted, i)) {
        shared.full = RIM;
        return;
    }
    if (i == j) {
        if (face >= 0) return;
    } else {
        const int other = BESIDE(j, over)[c];
        if (face >= 0 && BESIDE(j, over)[face] >= 0) return;
        if (face < 0 && other >= 0 && BESIDE(i, up)[other] >= 0) return;
        wanted = beside(g, wanted, j, over);
        if (on_rim(g, wanted, j)) {
            shared.full = RIM;
            return;
        }
    }
    insert(shared, g, wanted);
}

// Few cells grow at a time: each block lists those that do, and gives every target of each a thread of its own. A cell
// is marked before its targets are there: when there is no room for them, the host takes the marks off again.
__device__ inline void grow_all(Instance& shared, const Instance& g, const Group& group, i64 n, real scale, double t)
{
    __shared__ int listed[SCANNED * THREADS];
    __shared__ int n_listed[2];
    int turn = 0;
    if (threadIdx.x < 2) n_listed[threadIdx.x] = 0;
    __syncthreads();
    for (i64 first = 0; first < n; first += SCANNED * group.size, turn ^= 1) {
        bool grows[SCANNED];
#pragma unroll
        for (int k = 0; k < SCANNED; ++k) {
            const i64 c = first + k * group.size + group.rank;
            const unsigned char mark = c < n ? g.marks[c] : GROWN;
            const real p = c < n ? g.p[c] : real(0);
            grows[k] = mark == UNGROWN && (double)(p * scale) >= g.threshold;
        }
#pragma unroll
        for (int k = 0; k < SCANNED; ++k)
            if (grows[k]) {
                const i64 c = first + k * group.size + group.rank;
                listed[atomicAdd(&n_listed[turn], 1)] = (int)c;
                if (!TIME_VARYING) g.marks[c] = GROWN;
            }
        __syncthreads();
        const int items = n_listed[turn] * TARGETS;
        if (threadIdx.x == 0) n_listed[turn ^ 1] = 0;
        for (int item = threadIdx.x; item < items; item += blockDim.x)
            make_target(shared, g, listed[item / TARGETS], item % TARGETS, t);
        __syncthreads();
    }
}

// --- phase 2: a new cell finds its neighbours, and they it
__device__ inline void link(const Instance& g, i64 c, int way, i64 before)
{
    const int i = way / 2, up = way % 2, found = find(g, beside(g, g.keys[c], i, up));
    BESIDE(i, up)[c] = found;
    if (found >= 0 && found < before) BESIDE(i, !up)[found] = (int)c;
}

// The link along i of a cell, and back, where no cell has a neighbour below yet.
__device__ inline void link_above(const Instance& g, i64 c, int i, i64 n)
{
    const u64 wanted = beside(g, g.keys[c], i, 1);
    const int found = i == N - 1 && c + 1 < n && g.keys[c + 1] == wanted ? (int)c + 1 : find(g, wanted);
    ABOVE(i)[c] = found;
    if (found >= 0) BELOW(i)[found] = (int)c;
}

// --- phase 3: half a step of upwind transverse transport, summed over the dimensions
__device__ __forceinline__ real positive(real x) { return x > 0 ? x : real(0); }
__device__ __forceinline__ real negative(real x) { return x < 0 ? x : real(0); }

// Loads come first and without conditions, so that they wait for memory together: what is missing is read from the cell
// itself, and not used.
__device__ __forceinline__ void transverse(const Instance& g, i64 c, real scale, double t, double dt)
{
    int lo[N], hi[N], s[N];
    real below[N], above[N];
    const u64 key = g.keys[c];
    const real here = g.p[c] * scale;
#pragma unroll
    for (int i = 0; i < N; ++i) lo[i] = BELOW(i)[c], hi[i] = ABOVE(i)[c];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        below[i] = g.p[lo[i] < 0 ? (int)c : lo[i]] * scale;
        above[i] = g.p[hi[i] < 0 ? (int)c : hi[i]] * scale;
    }
    unpack(g, key, s);
    real sum = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const real h = (real)(dt / (2 * g.widths[i]));
        const real in = positive((real)velocity(g, s, i, -1, t)) * (here - below[i]);
        sum = sum + h * (in + negative((real)velocity(g, s, i, 0, t)) * (above[i] - here));
    }
    g.T[c] = sum;
}

// --- phase 4: fluxes through all faces of a cell
__device__ __forceinline__ real absolute(real x) { return x < 0 ? -x : x; }
__device__ __forceinline__ real smaller(real a, real b) { return a < b ? a : b; }
__device__ __forceinline__ real larger(real a, real b) { return a < b ? b : a; }

// d phi(a / d) without the division: LeVeque, Finite Volume Methods for Hyperbolic Problems (2002), eqs. 6.34-6.39.
__device__ __forceinline__ real limited(real a, real d)
{
    if (!((a > 0 && d > 0) || (a < 0 && d < 0))) return 0;
    const real one = absolute(a), other = absolute(d), least = smaller(one, other), most = larger(one, other);
    real size = 0;
    if (LIMITER == MC) size = smaller(real(0.5) * (one + other), 2 * least);
    if (LIMITER == SUPERBEE) size = smaller(most, 2 * least);
    if (LIMITER == VAN_LEER) size = 2 * least / (1 + least / most);
    if (LIMITER == MINMOD) size = least;
    return d < 0 ? -size : size;
}

// The change by fluxes along the dimensions from FIRST on, as many as there are registers to load for at once.
template <int FIRST> __device__ __forceinline__ real change_along(
    const Instance& g, i64 c, const int (&s)[N], real here, real T, real scale, double t, double dt)
{
    constexpr int END = FIRST + AT_ONCE < N ? FIRST + AT_ONCE : N;
    int los[AT_ONCE], his[AT_ONCE], lolos[AT_ONCE], hihis[AT_ONCE];
    real ps[AT_ONCE][4], Ts[AT_ONCE][2];
#pragma unroll
    for (int j = FIRST; j < END; ++j) los[j - FIRST] = BELOW(j)[c], his[j - FIRST] = ABOVE(j)[c];
#pragma unroll
    for (int j = FIRST; j < END; ++j) {
        const int k = j - FIRST, lo = los[k] < 0 ? (int)c : los[k], hi = his[k] < 0 ? (int)c : his[k];
        lolos[k] = BELOW(j)[lo], ps[k][1] = g.p[lo] * scale, Ts[k][0] = g.T[lo];
        hihis[k] = ABOVE(j)[hi], ps[k][2] = g.p[hi] * scale, Ts[k][1] = g.T[hi];
    }
#pragma unroll
    for (int j = FIRST; j < END; ++j) {
        const int k = j - FIRST;
        ps[k][0] = g.p[lolos[k] < 0 ? (int)c : lolos[k]] * scale;
        ps[k][3] = g.p[hihis[k] < 0 ? (int)c : hihis[k]] * scale;
    }
    real change = 0;
#pragma unroll
    for (int j = FIRST; j < END; ++j) {
        const int k = j - FIRST, lo = los[k], hi = his[k];
        const int lolo = lo < 0 ? -1 : lolos[k], hihi = hi < 0 ? -1 : hihis[k];
        const real p_lo = lo < 0 ? real(0) : ps[k][1], T_lo = lo < 0 ? real(0) : Ts[k][0];
        const real p_hi = hi < 0 ? real(0) : ps[k][2], T_hi = hi < 0 ? real(0) : Ts[k][1];
        const real p_lolo = lolo < 0 ? real(0) : ps[k][0], p_hihi = hihi < 0 ? real(0) : ps[k][3];
        const real v = (real)velocity(g, s, j, 0, t), v_lo = (real)velocity(g, s, j, -1, t);
        const real v_hi = (real)velocity(g, s, j, 1, t), v_lolo = (real)velocity(g, s, j, -2, t);
        const real h = (real)(dt / (2 * g.widths[j])), ratio = (real)(dt / g.widths[j]);
        const real up = hi < 0 ? real(0) : p_hi - here, down = lo < 0 ? real(0) : here - p_lo;
        const real further_up = hihi < 0 ? real(0) : p_hihi - p_hi, further_down = lolo < 0 ? real(0) : p_lo - p_lolo;
        // each without what it owes to transport along j
        const real own = here - (T - h * (positive(v_lo) * down + negative(v) * up));
        const real theirs_hi = hi < 0 ? real(0) : p_hi - (T_hi - h * (positive(v) * up + negative(v_hi) * further_up));
        const real theirs_lo =
            lo < 0 ? real(0) : p_lo - (T_lo - h * (positive(v_lolo) * further_down + negative(v_lo) * down));
        real out = positive(v) * own + negative(v) * theirs_hi;
        if (hi >= 0) {
            const real size = absolute(v);
            out = out + real(0.5) * size * (1 - size * ratio) * limited(v > 0 ? here - p_lo : p_hihi - p_hi, up);
        }
        real in = 0;
        if (lo >= 0) {
            const real size = absolute(v_lo);
            in = positive(v_lo) * theirs_lo + negative(v_lo) * own;
            in = in + real(0.5) * size * (1 - size * ratio) * limited(v_lo > 0 ? p_lo - p_lolo : p_hi - here, down);
        }
#if DIFFUSIVE
        const real slope = (real)(0.5 * g.diffusion[j] / g.widths[j]);
        out = out - slope * up, in = in - slope * down;
#endif
        change = change + ratio * (out - in);
    }
    if constexpr (END < N) change = change + change_along<END>(g, c, s, here, T, scale, t, dt);
    return change;
}

__device__ __forceinline__ real changed(const Instance& g, i64 c, real scale, double t, double dt)
{
    int s[N];
    const u64 key = g.keys[c];
    const real here = g.p[c] * scale, T = g.T[c];
    unpack(g, key, s);
    return positive(here - change_along<0>(g, c, s, here, T, scale, t, dt));
}

// --- pruning
// Which cells an active neighbour flows into, over a face or over an edge past a face that is there: one byte a cell,
// where T was. Many may write the same byte, all of them the same.
__device__ __forceinline__ void feed(const Instance& g, i64 c, real scale, double t)
{
    if ((double)(g.p[c] * scale) < g.threshold) return;
    unsigned char* const fed = reinterpret_cast<unsigned char*>(g.T);
    int s[N], faces[N][SIDES];
    bool given[N][SIDES], ups[N][SIDES];
    unpack(g, g.keys[c], s);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const double v = velocity(g, s, i, 0, t);
#pragma unroll
        for (int side = 0; side < SIDES; ++side) {
            ups[i][side] = SIDES == 2 ? side : v > 0;
            given[i][side] = goes(g, i, v, ups[i][side]);
            faces[i][side] = given[i][side] ? BESIDE(i, ups[i][side])[c] : -1;
            if (faces[i][side] >= 0) fed[faces[i][side]] = 1;
        }
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
        for (int j = i + 1; j < N; ++j)
#pragma unroll
            for (int k = 0; k < SIDES * SIDES; ++k) {
                const int a = k % SIDES, b = k / SIDES;
                if (!given[i][a] || !given[j][b]) continue;
                const int edge = faces[i][a] >= 0 ? BESIDE(j, ups[j][b])[faces[i][a]]
                    : faces[j][b] >= 0            ? BESIDE(i, ups[i][a])[faces[j][b]]
                                                  : -1;
                if (edge >= 0) fed[edge] = 1;
            }
}

// What becomes of a cell: of those that stay, an active one needs no second look for what it flows to. Its targets are fed
// by it, so they stay as well; only bounds can part an edge from the cell that made it.
__device__ inline unsigned char fate(const Instance& g, i64 c, real scale)
{
    if ((double)(g.p[c] * scale) < g.threshold) return reinterpret_cast<const unsigned char*>(g.T)[c] ? UNGROWN : DOOMED;
    return BOUNDED ? (unsigned char)UNGROWN : g.marks[c];
}

// What a rebuilt grid starts from: a cell's key in the table, no neighbours below, its rate in the maximum.
__device__ inline void enter(Instance& shared, const Instance& g, i64 c, double t, u64* maximum)
{
    const u64 key = g.keys[c];
    u64 slot = slot_of(key, g.slots);
    while (atomicCAS(&g.table[slot], EMPTY, key) != EMPTY) slot = slot + 1 == (u64)g.slots ? 0 : slot + 1;
    g.places[slot] = (int)c;
#pragma unroll
    for (int i = 0; i < N; ++i) BELOW(i)[c] = -1;
#if !TIME_VARYING
    judge(shared, g, key, t, maximum);
#endif
}

#define EACH(c, n) for (i64 c = group.rank; c < (n); c += group.size)

template <class V> __device__ inline void exchange(V& a, V& b)
{
    const V c = a;
    a = b, b = c;
}

// The whole prune by the group's own threads: true where it was done, with g's buffers changed over and n, mass and the
// maximum rate new; false, and nothing done, where too many cells lie close to where the deletion stops or none would stay.
__device__ bool prune(Instance& shared, Instance& g, Group& group, i64& n, real& scale, double t)
{
    if (group.rank == 0) {
        shared.candidates = shared.surely = shared.dead = shared.carried = 0;
        shared.listed = shared.kept = 0;
        if (!TIME_VARYING) shared.rates[0] = 0;
    }
    EACH(c, n) reinterpret_cast<unsigned char*>(g.T)[c] = 0;
    wait_for_all(group);
    EACH(c, n) feed(g, c, scale, t);
    wait_for_all(group);
    u64 sum = 0;
    EACH(c, n) {
        g.marks[c] = fate(g, c, scale);
        if (g.marks[c] == DOOMED) sum += fixed((double)(g.p[c] * scale));
    }
    add(&shared.candidates, sum);
    wait_for_all(group);
    double left;
    if (g.sequential) {  // in ascending order while the next one, of what is left, stays below the threshold
        const double safe = g.threshold * (1 - floating(latest(&shared.candidates)));
        int* const list = reinterpret_cast<int*>(g.T);
        sum = 0;
        EACH(c, n) if (g.marks[c] == DOOMED) {
            if ((double)(g.p[c] * scale) < safe) {
                sum += fixed((double)(g.p[c] * scale));
            } else {
                const i64 k = (i64)atomicAdd((u64*)&shared.listed, 1ULL);
                if (k < g.list_limit) list[k] = (int)c;
            }
        }
        add(&shared.surely, sum);
        wait_for_all(group);
        const i64 listed = latest(&shared.listed);
        if (listed > g.list_limit) return false;
        const u64 before = latest(&shared.surely);
        EACH(k, listed) {
            const int c = list[k];
            const real p = g.p[c] * scale;
            u64 deleted = before;
            for (i64 other = 0; other < listed; ++other) {
                const int o = list[other];
                const real q = g.p[o] * scale;
                if (q < p || (q == p && g.keys[o] <= g.keys[c])) deleted += fixed((double)q);
            }
            if (!((double)p < g.threshold * (1 - floating(deleted)))) g.marks[c] = UNGROWN;
            else atomicAdd(&shared.dead, fixed((double)p));
        }
        wait_for_all(group);
        left = 1 - floating(before + latest(&shared.dead));
    } else {
        left = 1 - floating(latest(&shared.candidates));
    }
    if (!(left > 0)) return false;
    unsigned char* const marks = reinterpret_cast<unsigned char*>(g.T);
    sum = 0;
    EACH(c, n) if (g.marks[c] != DOOMED) {
        const i64 k = (i64)atomicAdd((u64*)&shared.kept, 1ULL);
        const real p = (real)((double)(g.p[c] * scale) / left);
        g.other_keys[k] = g.keys[c], g.q[k] = p, marks[k] = g.marks[c];
        sum += fixed((double)p);
    }
    add(&shared.carried, sum);
    EACH(slot, g.slots) g.table[slot] = EMPTY;
    __syncthreads();
    if (threadIdx.x == 0) exchange(g.keys, g.other_keys), exchange(g.p, g.q);
    wait_for_all(group);
    n = latest(&shared.kept), scale = over(latest(&shared.carried));
    EACH(c, n) {
        g.marks[c] = marks[c];
        enter(shared, g, c, t, &shared.rates[0]);
    }
    wait_for_all(group);
    EACH(item, n * N) link_above(g, item % n, (int)(item / n), n);
    if (group.rank == 0) shared.n = n, shared.in_order = 0;
    wait_for_all(group);
    return true;
}

// --- kernels
#if CLUSTER > 1
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTERED
#endif

__device__ inline Group group_of(Instance& shared, unsigned blocks)
{
    Group group;
    group.blocks = blocks, group.waits = 0, group.arrivals = &shared.arrivals;
    group.rank = (i64)(blockIdx.x % blocks) * blockDim.x + threadIdx.x;
    group.size = (i64)blocks * blockDim.x;
    return group;
}

// A run of steps for each instance: one for each CLUSTER blocks, or one for all blocks where CLUSTER is 0.
__global__ void __launch_bounds__(THREADS, BLOCKS) CLUSTERED advance(Instance* instances)
{
    const unsigned blocks = CLUSTER ? CLUSTER : gridDim.x;
    Instance& shared = instances[blockIdx.x / blocks];
    __shared__ Instance g;
    if (threadIdx.x == 0) g = shared;
    __syncthreads();
    Group group = group_of(shared, blocks);
    wait_for_all(group);  // nobody writes to `shared` before all have their copy
    i64 n = g.n, taken = 0, work = 0, count = g.count;
    int turn = 0;
    double elapsed = g.elapsed, velocity_time = g.velocity_time;
    real scale = (real)g.scale;  // stored probabilities times this add up to 1
    i64 reason = RUNNING;
    if (g.only_prune)
        reason = n <= g.own_prune && prune(shared, g, group, n, scale, velocity_time) ? FINISHED : PRUNE;
    while (reason == RUNNING) {
        const double t = g.time + elapsed;
        const int next = turn ^ 1;
        u64* const rate = &shared.rates[TIME_VARYING ? turn : 0];
        // 1: growth, by the velocities of the step before
        grow_all(shared, g, group, n, scale, velocity_time);
#if TIME_VARYING
        EACH(c, n) judge(shared, g, g.keys[c], t, rate);
#endif
        wait_for_all(group);
        if (latest(&shared.full)) {  // the host makes room; growth begins again and finds what is already there
            reason = latest(&shared.full);
            break;
        }
        // 2: links and rates of what is new
        const i64 total = latest(&shared.n);
        if (total > n) {
            const i64 added = total - n;
            EACH(item, added * (2 * N + 1)) {
                const i64 c = n + item % added, way = item / added;
                if (way < 2 * N) link(g, c, (int)way, n);
                else judge(shared, g, g.keys[c], t, rate);
            }
            wait_for_all(group);
            n = total;
        }
        if (latest(&shared.bad_key) != EMPTY) {
            reason = NOT_FINITE;
            break;
        }
        velocity_time = t;
        const double left = g.span - elapsed;
        const double stable = g.cfl / __longlong_as_double((i64)latest(rate));
        const bool last = !(stable < left);
        const double dt = last ? left : stable;
        if (!last && t + dt == t) {
            reason = STUCK;
            break;
        }
        // 3
        EACH(c, n) transverse(g, c, scale, t, dt);
        if (group.rank == 0) shared.masses[next] = 0;
        wait_for_all(group);
        // 4
        u64 sum = 0;
        EACH(c, n) {
            const real p = changed(g, c, scale, t, dt);
            g.q[c] = p;
            sum += fixed((double)p);
        }
        add(&shared.masses[turn], sum);
#if TIME_VARYING
        if (group.rank == 0) shared.rates[next] = 0;
#endif
        wait_for_all(group);
        const double mass = floating(latest(&shared.masses[turn]));
        if (!(mass > 0)) {
            reason = NOTHING_LEFT;
            break;
        }
        scale = over(latest(&shared.masses[turn]));
        if (threadIdx.x == 0) exchange(g.p, g.q);
        __syncthreads();
        if (group.rank == 0) g.log[3 * taken] = dt, g.log[3 * taken + 1] = (double)n, g.log[3 * taken + 2] = mass;
        elapsed = last ? g.span : elapsed + dt;
        ++taken, ++count, work += n;
        turn = next;
        if (count % g.prune_every == 0) {
            if (n > g.own_prune || !prune(shared, g, group, n, scale, velocity_time)) {
                reason = PRUNE;
                break;
            }
        }
        if (last) {
            reason = FINISHED;
            break;
        }
        if (taken == g.most_steps || work >= g.most_work) {
            reason = PAUSED;
            break;
        }
    }
    wait_for_all(group);
    if (group.rank == 0) {
        shared.keys = g.keys, shared.other_keys = g.other_keys, shared.p = g.p, shared.q = g.q;
        shared.whole = n, shared.taken = taken, shared.count = count;
        shared.elapsed = elapsed, shared.scale = (double)scale, shared.velocity_time = velocity_time, shared.reason = reason;
    }
}

#define ALONE(instance)                    \
    Instance& shared = *(instance);        \
    __shared__ Instance g;                 \
    if (threadIdx.x == 0) g = shared;      \
    __syncthreads();                       \
    const Group group = group_of(shared, gridDim.x);

// The table of all cells, and the fastest of them; the table was empty.
__global__ void __launch_bounds__(256) enter_all(Instance* instance)
{
    ALONE(instance)
    EACH(c, g.n) enter(shared, g, c, g.velocity_time, &shared.rates[0]);
}

__global__ void __launch_bounds__(256) link_all(Instance* instance)
{
    ALONE(instance)
    EACH(item, g.n * N) link_above(g, item % g.n, (int)(item / g.n), g.n);
}

// The same where cells are in the order of their keys: every PACE-th cell looks its neighbour up, those between it and the
// next one look close to where it found it.
__global__ void __launch_bounds__(256) link_some(Instance* instance)
{
    ALONE(instance)
    const i64 some = (g.n + PACE - 1) / PACE;
    EACH(item, some * N) link_above(g, item % some * PACE, (int)(item / some), g.n);
}

__global__ void __launch_bounds__(256) link_between(Instance* instance)
{
    ALONE(instance)
    EACH(item, g.n * N) {
        const i64 c = item % g.n, start = c / PACE * PACE;
        const int i = (int)(item / g.n);
        if (c == start) continue;
        const int first = ABOVE(i)[start];
        const u64 wanted = beside(g, g.keys[c], i, 1);
        i64 k = first + c - start;
        if (first < 0 || k >= g.n) {
            link_above(g, c, i, g.n);
            continue;
        }
        int tries = 0;
        u64 seen = g.keys[k];
        const bool up = seen < wanted;
        while ((up ? seen < wanted && k + 1 < g.n : seen > wanted && k > 0) && ++tries < 2 * PACE)
            seen = g.keys[up ? ++k : --k];
        if (seen == wanted || tries < 2 * PACE) {
            const int found = seen == wanted ? (int)k : -1;
            ABOVE(i)[c] = found;
            if (found >= 0) BELOW(i)[found] = (int)c;
        } else {
            link_above(g, c, i, g.n);
        }
    }
}

// What active cells flow into; nothing was.
__global__ void __launch_bounds__(256) feed_all(Instance* instance)
{
    ALONE(instance)
    EACH(c, g.n) feed(g, c, (real)g.scale, g.velocity_time);
}

// Marks, and the mass of the candidates for deletion.
__global__ void __launch_bounds__(256) mark_all(Instance* instance)
{
    ALONE(instance)
    const real scale = (real)g.scale;
    u64 sum = 0;
    EACH(c, g.n) {
        g.marks[c] = fate(g, c, scale);
        if (g.marks[c] == DOOMED) sum += fixed((double)(g.p[c] * scale));
    }
    add(&shared.candidates, sum);
}

__device__ inline i64 rank_of(const i64* sorted, i64 n, i64 key)
{
    i64 begin = 0, end = n;
    while (begin < end) {
        const i64 middle = (begin + end) / 2;
        if (sorted[middle] < key) begin = middle + 1;
        else end = middle;
    }
    return begin;
}

// The cells that stay, in the order of their keys, over `left`. The first `n_sorted` are in order, and `kept` counts those
// of them that stay up to each; `late` are the others that stay, in order of their keys `late_keys`.
__global__ void __launch_bounds__(256) carry(Instance* instance, const int* kept, i64 n_sorted, const i64* late,
    const i64* late_keys, i64 n_late, double left, i64* keys, real* p, unsigned char* marks)
{
    ALONE(instance)
    const i64* const old_keys = reinterpret_cast<const i64*>(g.keys);
    u64 sum = 0;
    EACH(item, n_sorted + n_late) {
        i64 c = item, at;
        if (item < n_sorted) {
            if (g.marks[c] == DOOMED) continue;
            at = kept[c] - 1 + rank_of(late_keys, n_late, old_keys[c]);
        } else {
            c = late[item - n_sorted];
            const i64 below = rank_of(old_keys, n_sorted, old_keys[c]);
            at = item - n_sorted + (below ? kept[below - 1] : 0);
        }
        const real share = (real)((double)(g.p[c] * (real)g.scale) / left);
        keys[at] = old_keys[c], p[at] = share, marks[at] = g.marks[c];
        sum += fixed((double)share);
    }
    add(&shared.carried, sum);
}
