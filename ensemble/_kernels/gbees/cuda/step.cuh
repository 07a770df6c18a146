// The phases of a step. Included after cells.cuh.

// --- phase 1: growth: active cells insert their downwind neighbours over faces and edges
#if DIFFUSIVE
#define SIDES 2
#else
#define SIDES 1
#endif
#define SIGNS (SIDES * SIDES)
#define TARGETS (N * (N + 1) / 2 * SIGNS)

// Inserts target k of a cell: k counts pairs of dimensions, twice the same one for a face, and with diffusion also pairs
// of sides.
__device__ inline void make_target(Instance& shared, const Instance& g, int64 c, int k, double t)
{
    int i = 0, j = k / SIGNS;
    while (j >= N - i) j -= N - i++;
    j += i;
    const uint64 key = g.keys[c];
    int s[N];
    unpack(g, key, s);
    const double v_i = velocity(g, s, i, 0, t), v_j = velocity(g, s, j, 0, t);
    const int up = SIGNS == 4 ? k % 2 : v_i > 0, over = SIGNS == 4 ? k / 2 % 2 : v_j > 0;
    if (!flows(g, i, v_i, up) || !flows(g, j, v_j, over) || (i == j && over != up)) return;
    const int face = NEIGHBOUR(i, up)[c];
    uint64 wanted = neighbour_key(g, key, i, up);
    if (at_key_limit(g, wanted, i)) {
        shared.full = KEY_OVERFLOW;
        return;
    }
    if (i == j) {
        if (face >= 0) return;
    } else {
        const int other = NEIGHBOUR(j, over)[c];
        if (face >= 0 && NEIGHBOUR(j, over)[face] >= 0) return;
        if (face < 0 && other >= 0 && NEIGHBOUR(i, up)[other] >= 0) return;
        wanted = neighbour_key(g, wanted, j, over);
        if (at_key_limit(g, wanted, j)) {
            shared.full = KEY_OVERFLOW;
            return;
        }
    }
    insert(shared, g, wanted);
}

// Few cells grow in a step: each block lists its growing cells, then takes one thread per target. A cell is marked before
// its targets are inserted: where the arrays are full, the host resets the marks.
__device__ inline void grow_all(Instance& shared, const Instance& g, const Group& group, int64 n, real scale, double t)
{
    __shared__ int listed[SCANNED * THREADS];
    __shared__ int n_listed[2];
    int parity = 0;
    if (threadIdx.x < 2) n_listed[threadIdx.x] = 0;
    __syncthreads();
    for (int64 first = 0; first < n; first += SCANNED * group.size, parity ^= 1) {
        bool grows[SCANNED];
#pragma unroll
        for (int k = 0; k < SCANNED; ++k) {
            const int64 c = first + k * group.size + group.rank;
            const unsigned char mark = c < n ? g.marks[c] : GROWN;
            const real p = c < n ? g.p[c] : real(0);
            grows[k] = mark == UNGROWN && (double)(p * scale) >= g.threshold;
        }
#pragma unroll
        for (int k = 0; k < SCANNED; ++k)
            if (grows[k]) {
                const int64 c = first + k * group.size + group.rank;
                listed[atomicAdd(&n_listed[parity], 1)] = (int)c;
                if (!TIME_VARYING) g.marks[c] = GROWN;
            }
        __syncthreads();
        const int items = n_listed[parity] * TARGETS;
        if (threadIdx.x == 0) n_listed[parity ^ 1] = 0;
        for (int item = threadIdx.x; item < items; item += blockDim.x)
            make_target(shared, g, listed[item / TARGETS], item % TARGETS, t);
        __syncthreads();
    }
}

// --- phase 2: links of new cells, in both directions
__device__ inline void link(const Instance& g, int64 c, int side, int64 before)
{
    const int i = side / 2, up = side % 2, found = find(g, neighbour_key(g, g.keys[c], i, up));
    NEIGHBOUR(i, up)[c] = found;
    if (found >= 0 && found < before) NEIGHBOUR(i, !up)[found] = (int)c;
}

// The link to the upper neighbour along i, and back; links to lower neighbours are empty before.
__device__ inline void link_above(const Instance& g, int64 c, int i, int64 n)
{
    const uint64 wanted = neighbour_key(g, g.keys[c], i, 1);
    const int found = i == N - 1 && c + 1 < n && g.keys[c + 1] == wanted ? (int)c + 1 : find(g, wanted);
    ABOVE(i)[c] = found;
    if (found >= 0) BELOW(i)[found] = (int)c;
}

// --- phase 3: half a step of upwind transverse transport, summed over the dimensions
__device__ __forceinline__ real positive(real x) { return x > 0 ? x : real(0); }
__device__ __forceinline__ real negative(real x) { return x < 0 ? x : real(0); }

// Loads come first and without conditions, so that their latencies overlap: for a missing neighbour the cell itself is
// read, and the value is not used.
__device__ __forceinline__ void transverse(const Instance& g, int64 c, real scale, double t, double dt)
{
    int lo[N], hi[N], s[N];
    real below[N], above[N];
    const uint64 key = g.keys[c];
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
#if SECOND_ORDER
    real divergence = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const real change = (real)velocity(g, s, i, 0, t) - (real)velocity(g, s, i, -1, t);
        divergence = divergence + (lo[i] < 0 ? real(0) : change) / (real)g.widths[i];
    }
    sum = sum + (real)(0.5 * dt) * (here * divergence);
#endif
    g.T[c] = sum;
}

// --- phase 4: fluxes through all faces of a cell
__device__ __forceinline__ real absolute(real x) { return x < 0 ? -x : x; }

// The change by fluxes along the dimensions from FIRST on; DIMENSIONS_AT_ONCE of them are loaded at once.
template <int FIRST> __device__ __forceinline__ real change_along(
    const Instance& g, int64 c, const int (&s)[N], real here, real T, real scale, double t, double dt)
{
    constexpr int END = FIRST + DIMENSIONS_AT_ONCE < N ? FIRST + DIMENSIONS_AT_ONCE : N;
    int los[DIMENSIONS_AT_ONCE], his[DIMENSIONS_AT_ONCE], lolos[DIMENSIONS_AT_ONCE], hihis[DIMENSIONS_AT_ONCE];
    real ps[DIMENSIONS_AT_ONCE][4], Ts[DIMENSIONS_AT_ONCE][2];
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
        // states without the transverse correction along j
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
        const real slope = (real)(0.5 * g.faces[j] / g.widths[j]);
        out = out - slope * up, in = in - slope * down;
#endif
        change = change + ratio * (out - in);
    }
    if constexpr (END < N) change = change + change_along<END>(g, c, s, here, T, scale, t, dt);
    return change;
}

#if MIXING
// Twice the exchange in unit time with the neighbours over edges that are reached over a stored face neighbour.
__device__ inline real over_edges(const Instance& g, int64 c, real here, real scale)
{
    real sum = 0;
    for (int i = 0; i < N; ++i)
        for (int j = i + 1; j < N; ++j)
            for (int k = 0; k < 4; ++k) {
                const int up = k & 1, over = k < 2 ? up : !up;
                const int first = NEIGHBOUR(i, up)[c], other = NEIGHBOUR(j, over)[c];
                const int corner = first >= 0 ? NEIGHBOUR(j, over)[first] : other >= 0 ? NEIGHBOUR(i, up)[other] : -1;
                const real share = (real)g.corners[k < 2 ? i * N + j : j * N + i];
                if (corner >= 0) sum = sum + share * (g.p[corner] * scale - here);
            }
    return sum;
}
#endif

// The probability of a cell after the step; it may be negative.
__device__ __forceinline__ real updated(const Instance& g, int64 c, real scale, double t, double dt)
{
    int s[N];
    const uint64 key = g.keys[c];
    const real here = g.p[c] * scale, T = g.T[c];
    unpack(g, key, s);
    const real after = here - change_along<0>(g, c, s, here, T, scale, t, dt);
#if MIXING
    return after + (real)(0.5 * dt) * over_edges(g, c, here, scale);
#else
    return after;
#endif
}
