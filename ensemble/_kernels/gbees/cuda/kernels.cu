// The kernels: `advance`, a run of steps, and what is done to one large grid at a time, behind prune.cuh.

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
#if SECOND_ORDER && TIME_VARYING
        velocity_time = t + 0.5 * dt;
#endif
        // 3
        EACH(c, n) transverse(g, c, scale, velocity_time, dt);
        if (group.rank == 0) shared.masses[next] = shared.clips[next] = 0;
        wait_for_all(group);
        // 4
        u64 sum = 0, clipped = 0;
        EACH(c, n) {
            const real unclipped = changed(g, c, scale, velocity_time, dt), p = positive(unclipped);
            g.q[c] = p;
            sum += fixed((double)p), clipped += fixed((double)positive(-unclipped));
        }
        add(&shared.masses[turn], sum);
        add(&shared.clips[turn], clipped);
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
        if (group.rank == 0) {
            double* const told = g.log + 4 * taken;
            told[0] = dt, told[1] = (double)n, told[2] = mass, told[3] = floating(latest(&shared.clips[turn]));
        }
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
        const u64 wanted = neighbour_key(g, g.keys[c], i, 1);
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
