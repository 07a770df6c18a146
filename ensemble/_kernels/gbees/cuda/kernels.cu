// The kernels: `advance`, many steps, and the operations on one large grid. Included after prune.cuh.

#if CLUSTER > 1
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTERED
#endif

__device__ inline Group group_of(Instance& shared, unsigned blocks)
{
    Group group;
    group.blocks = blocks, group.waits = 0, group.arrivals = &shared.arrivals;
    group.rank = (int64)(blockIdx.x % blocks) * blockDim.x + threadIdx.x;
    group.size = (int64)blocks * blockDim.x;
    return group;
}

// Many steps of each instance: CLUSTER blocks work on one instance, or all blocks where CLUSTER is 0.
__global__ void __launch_bounds__(THREADS, BLOCKS) CLUSTERED advance(Instance* instances)
{
    const unsigned blocks = CLUSTER ? CLUSTER : gridDim.x;
    Instance& shared = instances[blockIdx.x / blocks];
    __shared__ Instance g;
    if (threadIdx.x == 0) g = shared;
    __syncthreads();
    Group group = group_of(shared, blocks);
    barrier(group);  // no write to `shared` before all blocks have copied it
    int64 n = g.n, taken = 0, work = 0, count = g.count;
    int parity = 0;
    double elapsed = g.elapsed, velocity_time = g.velocity_time;
    real scale = (real)g.scale;  // stored probabilities times this add up to 1
    int64 reason = RUNNING;
    if (g.only_prune)
        reason = n <= g.prune_limit && prune(shared, g, group, n, scale, velocity_time) ? FINISHED : PRUNE;
    while (reason == RUNNING) {
        const double t = g.time + elapsed;
        const int next = parity ^ 1;
        uint64* const rate = &shared.rates[TIME_VARYING ? parity : 0];
        // 1: growth, by the velocities of the previous step
        grow_all(shared, g, group, n, scale, velocity_time);
#if TIME_VARYING
        EACH(c, n) update_maximum_rate(shared, g, g.keys[c], t, rate);
#endif
        barrier(group);
        if (volatile_load(&shared.full)) {  // the host enlarges the arrays; growth starts again
            reason = volatile_load(&shared.full);
            break;
        }
        // 2: links and rates of new cells
        const int64 total = volatile_load(&shared.n);
        if (total > n) {
            const int64 added = total - n;
            EACH(item, added * (2 * N + 1)) {
                const int64 c = n + item % added, side = item / added;
                if (side < 2 * N) link(g, c, (int)side, n);
                else update_maximum_rate(shared, g, g.keys[c], t, rate);
            }
            barrier(group);
            n = total;
        }
        if (volatile_load(&shared.bad_key) != EMPTY) {
            reason = NOT_FINITE;
            break;
        }
        velocity_time = t;
        const double left = g.span - elapsed;
        const double stable = g.cfl / __longlong_as_double((int64)volatile_load(rate));
        const bool last = !(stable < left);
        const double dt = last ? left : stable;
        if (!last && t + dt == t) {
            reason = STEP_TOO_SHORT;
            break;
        }
#if SECOND_ORDER && TIME_VARYING
        velocity_time = t + 0.5 * dt;
#endif
        // 3: transverse corrections
        EACH(c, n) transverse(g, c, scale, velocity_time, dt);
        if (group.rank == 0) shared.masses[next] = shared.clips[next] = 0;
        barrier(group);
        // 4: fluxes, clipping and mass
        uint64 sum = 0, clipped = 0;
        EACH(c, n) {
            const real unclipped = updated(g, c, scale, velocity_time, dt), p = positive(unclipped);
            g.q[c] = p;
            sum += to_fixed((double)p), clipped += to_fixed((double)positive(-unclipped));
        }
        block_add(&shared.masses[parity], sum);
        block_add(&shared.clips[parity], clipped);
#if TIME_VARYING
        if (group.rank == 0) shared.rates[next] = 0;
#endif
        barrier(group);
        const double mass = to_double(volatile_load(&shared.masses[parity]));
        if (!(mass > 0)) {
            reason = NOTHING_LEFT;
            break;
        }
        scale = reciprocal(volatile_load(&shared.masses[parity]));
        if (threadIdx.x == 0) swap_values(g.p, g.q);
        __syncthreads();
        if (group.rank == 0) {
            double* const row = g.log + 4 * taken;
            row[0] = dt, row[1] = (double)n, row[2] = mass, row[3] = to_double(volatile_load(&shared.clips[parity]));
        }
        elapsed = last ? g.span : elapsed + dt;
        ++taken, ++count, work += n;
        parity = next;
        if (count % g.prune_every == 0) {
            if (n > g.prune_limit || !prune(shared, g, group, n, scale, velocity_time)) {
                reason = PRUNE;
                break;
            }
        }
        if (last) {
            reason = FINISHED;
            break;
        }
        if (taken == g.max_steps || work >= g.max_cell_steps) {
            reason = PAUSED;
            break;
        }
    }
    barrier(group);
    if (group.rank == 0) {
        shared.keys = g.keys, shared.other_keys = g.other_keys, shared.p = g.p, shared.q = g.q;
        shared.n_complete = n, shared.taken = taken, shared.count = count;
        shared.elapsed = elapsed, shared.scale = (double)scale, shared.velocity_time = velocity_time, shared.reason = reason;
    }
}

#define ONE_GRID(instance)                    \
    Instance& shared = *(instance);        \
    __shared__ Instance g;                 \
    if (threadIdx.x == 0) g = shared;      \
    __syncthreads();                       \
    const Group group = group_of(shared, gridDim.x);

// The hash table of all cells, and the largest rate; the table is empty before.
__global__ void __launch_bounds__(256) build_table(Instance* instance)
{
    ONE_GRID(instance)
    EACH(c, g.n) insert_in_table(shared, g, c, g.velocity_time, &shared.rates[0]);
}

__global__ void __launch_bounds__(256) link_all(Instance* instance)
{
    ONE_GRID(instance)
    EACH(item, g.n * N) link_above(g, item % g.n, (int)(item / g.n), g.n);
}

// The same where cells are sorted by key: every LINK_STRIDE-th cell looks its neighbour up in the table, the cells
// between search linearly from there.
__global__ void __launch_bounds__(256) link_some(Instance* instance)
{
    ONE_GRID(instance)
    const int64 some = (g.n + LINK_STRIDE - 1) / LINK_STRIDE;
    EACH(item, some * N) link_above(g, item % some * LINK_STRIDE, (int)(item / some), g.n);
}

__global__ void __launch_bounds__(256) link_between(Instance* instance)
{
    ONE_GRID(instance)
    EACH(item, g.n * N) {
        const int64 c = item % g.n, start = c / LINK_STRIDE * LINK_STRIDE;
        const int i = (int)(item / g.n);
        if (c == start) continue;
        const int first = ABOVE(i)[start];
        const uint64 wanted = neighbour_key(g, g.keys[c], i, 1);
        int64 k = first + c - start;
        if (first < 0 || k >= g.n) {
            link_above(g, c, i, g.n);
            continue;
        }
        int tries = 0;
        uint64 seen = g.keys[k];
        const bool up = seen < wanted;
        while ((up ? seen < wanted && k + 1 < g.n : seen > wanted && k > 0) && ++tries < 2 * LINK_STRIDE)
            seen = g.keys[up ? ++k : --k];
        if (seen == wanted || tries < 2 * LINK_STRIDE) {
            const int found = seen == wanted ? (int)k : -1;
            ABOVE(i)[c] = found;
            if (found >= 0) BELOW(i)[found] = (int)c;
        } else {
            link_above(g, c, i, g.n);
        }
    }
}

// Marks the downwind neighbours of active cells; all marks are zero before.
__global__ void __launch_bounds__(256) mark_downwind_all(Instance* instance)
{
    ONE_GRID(instance)
    EACH(c, g.n) mark_downwind(g, c, (real)g.scale, g.velocity_time);
}

// Marks the candidates for deletion and sums their mass.
__global__ void __launch_bounds__(256) mark_all(Instance* instance)
{
    ONE_GRID(instance)
    const real scale = (real)g.scale;
    uint64 sum = 0;
    EACH(c, g.n) {
        g.marks[c] = mark_of(g, c, scale);
        if (g.marks[c] == TO_DELETE) sum += to_fixed((double)(g.p[c] * scale));
    }
    block_add(&shared.candidates, sum);
}

__device__ inline int64 rank_of(const int64* sorted, int64 n, int64 key)
{
    int64 begin = 0, end = n;
    while (begin < end) {
        const int64 middle = (begin + end) / 2;
        if (sorted[middle] < key) begin = middle + 1;
        else end = middle;
    }
    return begin;
}

// Compacts the kept cells in the order of their keys and divides them by `left`. The first `n_sorted` cells are sorted,
// and `kept` is the running count of those kept; `late` are the other kept cells in the order of their keys `late_keys`.
__global__ void __launch_bounds__(256) compact(Instance* instance, const int* kept, int64 n_sorted, const int64* late,
    const int64* late_keys, int64 n_late, double left, int64* keys, real* p, unsigned char* marks)
{
    ONE_GRID(instance)
    const int64* const old_keys = reinterpret_cast<const int64*>(g.keys);
    uint64 sum = 0;
    EACH(item, n_sorted + n_late) {
        int64 c = item, at;
        if (item < n_sorted) {
            if (g.marks[c] == TO_DELETE) continue;
            at = kept[c] - 1 + rank_of(late_keys, n_late, old_keys[c]);
        } else {
            c = late[item - n_sorted];
            const int64 below = rank_of(old_keys, n_sorted, old_keys[c]);
            at = item - n_sorted + (below ? kept[below - 1] : 0);
        }
        const real share = (real)((double)(g.p[c] * (real)g.scale) / left);
        keys[at] = old_keys[c], p[at] = share, marks[at] = g.marks[c];
        sum += to_fixed((double)share);
    }
    block_add(&shared.kept_mass, sum);
}
