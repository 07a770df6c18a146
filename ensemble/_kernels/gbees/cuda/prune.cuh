// Pruning, and building up what is known of the cells that stay, behind step.cuh.

// Which cells an active neighbour flows into, over a face or over an edge past a face that is there: one byte per cell,
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

// The whole prune by the group's own threads: true where it was done, with g's buffers changed over and n, scale and
// the maximum rate new; false, and nothing done, where too many cells lie close to where the deletion stops or none would stay.
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
    if (!(left > 0.5 * g.threshold)) return false;  // an active cell that stays has more
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
