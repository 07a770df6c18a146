// Pruning, and the table and links of the cells that are kept. Included after step.cuh.

// Marks the downwind neighbours of an active cell, over faces, and over edges past a stored face: one byte per cell, in
// the memory of T. Several threads may write the same value to one byte.
__device__ __forceinline__ void mark_downwind(const Instance& g, int64 c, real scale, double t)
{
    if ((double)(g.p[c] * scale) < g.threshold) return;
    unsigned char* const downwind = reinterpret_cast<unsigned char*>(g.T);
    int s[N], faces[N][SIDES];
    bool given[N][SIDES], ups[N][SIDES];
    unpack(g, g.keys[c], s);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const double v = velocity(g, s, i, 0, t);
#pragma unroll
        for (int side = 0; side < SIDES; ++side) {
            ups[i][side] = SIDES == 2 ? side : v > 0;
            given[i][side] = flows(g, i, v, ups[i][side]);
            faces[i][side] = given[i][side] ? NEIGHBOUR(i, ups[i][side])[c] : -1;
            if (faces[i][side] >= 0) downwind[faces[i][side]] = 1;
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
                const int edge = faces[i][a] >= 0 ? NEIGHBOUR(j, ups[j][b])[faces[i][a]]
                    : faces[j][b] >= 0            ? NEIGHBOUR(i, ups[i][a])[faces[j][b]]
                                                  : -1;
                if (edge >= 0) downwind[edge] = 1;
            }
}

// The mark of a cell after a prune. An active cell keeps its mark: its downwind neighbours are kept, too. With bounds an
// edge neighbour may be stored without a face neighbour beside it, so such cells grow again.
__device__ inline unsigned char mark_of(const Instance& g, int64 c, real scale)
{
    const unsigned char* const downwind = reinterpret_cast<const unsigned char*>(g.T);
    if ((double)(g.p[c] * scale) < g.threshold) return downwind[c] ? UNGROWN : TO_DELETE;
    return BOUNDED ? (unsigned char)UNGROWN : g.marks[c];
}

// Enters a cell in the empty table, clears its links below and updates the maximum rate.
__device__ inline void insert_in_table(Instance& shared, const Instance& g, int64 c, double t, uint64* maximum)
{
    const uint64 key = g.keys[c];
    uint64 slot = slot_of(key, g.slots);
    while (atomicCAS(&g.table[slot], EMPTY, key) != EMPTY) slot = slot + 1 == (uint64)g.slots ? 0 : slot + 1;
    g.places[slot] = (int)c;
#pragma unroll
    for (int i = 0; i < N; ++i) BELOW(i)[c] = -1;
#if !TIME_VARYING
    update_maximum_rate(shared, g, key, t, maximum);
#endif
}

// The prune, by the threads of the group. True: done, with g's buffers exchanged and n, scale and the maximum rate updated.
// False: nothing changed, as more than `list_limit` cells are close to where the deletion stops, or none would be kept.
__device__ bool prune(Instance& shared, Instance& g, Group& group, int64& n, real& scale, double t)
{
    if (group.rank == 0) {
        shared.candidates = shared.deleted_below = shared.deleted_listed = shared.kept_mass = 0;
        shared.listed = shared.kept = 0;
        if (!TIME_VARYING) shared.rates[0] = 0;
    }
    EACH(c, n) reinterpret_cast<unsigned char*>(g.T)[c] = 0;
    barrier(group);
    EACH(c, n) mark_downwind(g, c, scale, t);
    barrier(group);
    uint64 sum = 0;
    EACH(c, n) {
        g.marks[c] = mark_of(g, c, scale);
        if (g.marks[c] == TO_DELETE) sum += to_fixed((double)(g.p[c] * scale));
    }
    block_add(&shared.candidates, sum);
    barrier(group);
    double left;
    if (g.sequential) {  // in ascending order, while the next one's share of the rest is below the threshold
        const double safe = g.threshold * (1 - to_double(volatile_load(&shared.candidates)));
        int* const list = reinterpret_cast<int*>(g.T);
        sum = 0;
        EACH(c, n) if (g.marks[c] == TO_DELETE) {
            if ((double)(g.p[c] * scale) < safe) {
                sum += to_fixed((double)(g.p[c] * scale));
            } else {
                const int64 k = (int64)atomicAdd((uint64*)&shared.listed, 1ULL);
                if (k < g.list_limit) list[k] = (int)c;
            }
        }
        block_add(&shared.deleted_below, sum);
        barrier(group);
        const int64 listed = volatile_load(&shared.listed);
        if (listed > g.list_limit) return false;
        const uint64 before = volatile_load(&shared.deleted_below);
        EACH(k, listed) {
            const int c = list[k];
            const real p = g.p[c] * scale;
            uint64 deleted = before;
            for (int64 other = 0; other < listed; ++other) {
                const int o = list[other];
                const real q = g.p[o] * scale;
                if (q < p || (q == p && g.keys[o] <= g.keys[c])) deleted += to_fixed((double)q);
            }
            if (!((double)p < g.threshold * (1 - to_double(deleted)))) g.marks[c] = UNGROWN;
            else atomicAdd(&shared.deleted_listed, to_fixed((double)p));
        }
        barrier(group);
        left = 1 - to_double(before + volatile_load(&shared.deleted_listed));
    } else {
        left = 1 - to_double(volatile_load(&shared.candidates));
    }
    if (!(left > 0.5 * g.threshold)) return false;  // an active cell that is kept has more
    unsigned char* const marks = reinterpret_cast<unsigned char*>(g.T);
    sum = 0;
    EACH(c, n) if (g.marks[c] != TO_DELETE) {
        const int64 k = (int64)atomicAdd((uint64*)&shared.kept, 1ULL);
        const real p = (real)((double)(g.p[c] * scale) / left);
        g.other_keys[k] = g.keys[c], g.q[k] = p, marks[k] = g.marks[c];
        sum += to_fixed((double)p);
    }
    block_add(&shared.kept_mass, sum);
    EACH(slot, g.slots) g.table[slot] = EMPTY;
    __syncthreads();
    if (threadIdx.x == 0) swap_values(g.keys, g.other_keys), swap_values(g.p, g.q);
    barrier(group);
    n = volatile_load(&shared.kept), scale = reciprocal(volatile_load(&shared.kept_mass));
    EACH(c, n) {
        g.marks[c] = marks[c];
        insert_in_table(shared, g, c, t, &shared.rates[0]);
    }
    barrier(group);
    EACH(item, n * N) link_above(g, item % n, (int)(item / n), n);
    if (group.rank == 0) shared.n = n, shared.n_sorted = 0;
    barrier(group);
    return true;
}
