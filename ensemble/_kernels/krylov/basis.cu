// Inner products with a Krylov basis and sums of its vectors; the references are in basis.py.
//
// A thread keeps its QUAD rows of w in registers while it goes over the basis.

__device__ inline void load_quad(Pack (&quad)[QUAD], const real* from, const Share& share, int n_samples)
{
#pragma unroll
    for (int i = 0; i < QUAD; ++i)
        quad[i] = share.begin + i < share.end ? load(from + (share.begin + i) * n_samples + share.s) : spread(0);
}

// Partial sums k of the products of basis vector k with w, whose share is `own`.
__device__ inline void dots_with(const Pack (&own)[QUAD], const real* __restrict__ basis, int n_vectors, real* partials,
                                 const Share& share, int64 n_rows, int n_samples)
{
    const int64 n_chunks = (n_rows + QUAD * QUADS - 1) / (QUAD * QUADS);
    Pack other[QUAD];
    for (int k = 0; k < n_vectors; ++k) {
        load_quad(other, basis + k * n_rows * n_samples, share, n_samples);
        Pack inner = spread(0);
#pragma unroll
        for (int i = 0; i < QUAD; ++i) inner = inner + conjugate(other[i]) * own[i];
        __syncthreads();  // the sums of the last vector have been read
        add_quads<0>(share, inner, partials + k * n_chunks * n_samples, n_samples);
    }
}

__global__ void __launch_bounds__(CHUNK_THREADS)
    basis_dots(const real* __restrict__ basis, const real* __restrict__ w, int n_vectors, real* partials,
               int64 n_rows, int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    Pack own[QUAD];
    load_quad(own, w, share, n_samples);
    dots_with(own, basis, n_vectors, partials, share, n_rows, n_samples);
}

// own += the sum of the basis vectors times their coefficients.
__device__ inline void add_vectors(Pack (&own)[QUAD], const real* __restrict__ h, const real* __restrict__ basis,
                                   int n_vectors, const Share& share, int64 n_rows, int n_samples)
{
    Pack other[QUAD];
    for (int k = 0; k < n_vectors && share.inside; ++k) {
        const Pack factor = load_shared(h + (int64)k * n_samples + share.s);
        load_quad(other, basis + k * n_rows * n_samples, share, n_samples);
#pragma unroll
        for (int i = 0; i < QUAD; ++i) own[i] = where_nonzero(factor, own[i] + factor * other[i], own[i]);
    }
}

// w = own, and the sum of its squares over this thread's rows.
__device__ inline Pack store_quad(const Pack (&own)[QUAD], real* w, const Share& share, int n_samples)
{
    Pack inner = spread(0);
#pragma unroll
    for (int i = 0; i < QUAD; ++i) {
        if (share.begin + i < share.end) store(w + (share.begin + i) * n_samples + share.s, own[i]);
        inner = inner + conjugate(own[i]) * own[i];
    }
    return inner;
}

__global__ void __launch_bounds__(CHUNK_THREADS)
    basis_add(const real* __restrict__ h, const real* __restrict__ basis, real* w, int n_vectors, real* partials,
              int64 n_rows, int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    Pack own[QUAD];
    load_quad(own, w, share, n_samples);
    add_vectors(own, h, basis, n_vectors, share, n_rows, n_samples);
    add_quads<0>(share, store_quad(own, w, share, n_samples), partials, n_samples);
}

__global__ void __launch_bounds__(THREADS) scale(const real* __restrict__ alpha, real* x, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const Pack factor = load_shared(alpha + s), old = load(x + row * n_samples + s);
    store(x + row * n_samples + s, where_nonzero(factor, old * factor, old));
}

#ifndef COMPLEX
// --- GMRES whose scalars stay on the device. `made` holds the columns that the cycle has (the basis is one vector
// longer), those it will have after this iteration, and whether any sample needs a second orthogonalisation: one
// recorded iteration serves every length of the basis.
enum { COLUMNS, COLUMNS_NEXT, AGAIN };

// As `basis_dots` with all basis vectors there are; the first time (not SECOND) w . w comes last.
template <bool SECOND>
__global__ void __launch_bounds__(CHUNK_THREADS)
    arnoldi_dots(const real* __restrict__ basis, const real* __restrict__ w, const int* made, real* partials,
                 int64 n_rows, int n_samples)
{
    if (SECOND && !made[AGAIN]) return;
    const int n_vectors = made[COLUMNS] + 1;
    const Share share = share_here(n_rows, n_samples);
    Pack own[QUAD];
    load_quad(own, w, share, n_samples);
    dots_with(own, basis, n_vectors, partials, share, n_rows, n_samples);
    if (SECOND) return;
    Pack inner = spread(0);
#pragma unroll
    for (int i = 0; i < QUAD; ++i) inner = inner + conjugate(own[i]) * own[i];
    __syncthreads();
    const int64 n_chunks = (n_rows + QUAD * QUADS - 1) / (QUAD * QUADS);
    add_quads<0>(share, inner, partials + n_vectors * n_chunks * n_samples, n_samples);
}

// As `basis_add` with all basis vectors there are.
template <bool SECOND>
__global__ void __launch_bounds__(CHUNK_THREADS)
    arnoldi_add(const real* __restrict__ h, const real* __restrict__ basis, real* w, const int* made, real* partials,
                int64 n_rows, int n_samples)
{
    if (SECOND && !made[AGAIN]) return;
    const Share share = share_here(n_rows, n_samples);
    Pack own[QUAD];
    load_quad(own, w, share, n_samples);
    add_vectors(own, h, basis, made[COLUMNS] + 1, share, n_rows, n_samples);
    add_quads<0>(share, store_quad(own, w, share, n_samples), partials, n_samples);
}

// w = (ANEW) or w += the sum over the columns of the cycle.
template <bool ANEW>
__global__ void __launch_bounds__(CHUNK_THREADS)
    cycle_sum(const real* __restrict__ y, const real* __restrict__ basis, real* w, const int* made, real* partials,
              int64 n_rows, int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    Pack own[QUAD];
    if (ANEW) {
#pragma unroll
        for (int i = 0; i < QUAD; ++i) own[i] = spread(0);
    } else {
        load_quad(own, w, share, n_samples);
    }
    add_vectors(own, y, basis, made[COLUMNS], share, n_rows, n_samples);
    add_quads<0>(share, store_quad(own, w, share, n_samples), partials, n_samples);
}

// The newest basis vector: w times alpha, or w itself where that is zero; u gets it, too.
__global__ void __launch_bounds__(THREADS)
    append(const real* __restrict__ alpha, const real* __restrict__ w, real* basis, real* u, const int* made,
           int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    const Pack factor = load_shared(alpha + s), old = load(w + here);
    const Pack scaled = where_nonzero(factor, old * factor, old);
    store(basis + made[COLUMNS] * n_rows * n_samples + here, scaled);
    store(u + here, scaled);
}

// Place COLUMNS of `kept` becomes z.
__global__ void __launch_bounds__(THREADS)
    keep(const real* __restrict__ z, real* kept, const int* made, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    store(kept + made[COLUMNS] * n_rows * n_samples + here, load(z + here));
}

// --- its scalars, one thread per sample, in blocks as `totals_of` requires them
#define ROUNDOFF 64  // as in gmres.py

// Numbers of one sample within a cycle, each of `n` apart from the next; `restart` columns at most.
struct Cycle {
    double *R, *cosines, *sines, *g, *column;
    double &initial, &before, &after, &length, &again;
    int restart, n;
};

__device__ inline Cycle cycle_of(double* rows, int restart, int n, int s)
{
    double* cosines = rows + (int64)restart * restart * n + s;
    double* sines = cosines + restart * n;
    double* g = sines + restart * n;
    double* column = g + (restart + 1) * n;
    double* rest = column + (restart + 1) * n;
    return {rows + s, cosines, sines, g, column, rest[0], rest[n], rest[2 * n], rest[3 * n], rest[4 * n], restart, n};
}

__device__ inline double& entry(const Cycle& cycle, int i, int j)
{
    return cycle.R[((int64)i * cycle.restart + j) * cycle.n];
}

#define CYCLE double *rows, int restart, int *made

// A block a vector: its coefficient h, and how much of it is to be taken out of w.
template <bool SECOND>
__global__ void __launch_bounds__(SUM_THREADS)
    gmres_dots(const real* partials, int64 n_partials, real* h, CYCLE, STATE)
{
    const int k = blockIdx.y, columns = made[COLUMNS], s = sample_of_block();
    if (SECOND ? k > columns || !made[AGAIN] : k > columns + 1) return;
    const real total = total_of(partials + k * n_partials * n_samples, n_partials, n_samples, s);
    if (!SECOND && k == 0 && blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) {
        made[COLUMNS_NEXT] = columns + 1;
        made[AGAIN] = 0;
    }
    if (threadIdx.y != 0 || s >= n_samples) return;
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const Cycle cycle = cycle_of(rows, restart, n_samples, s);
    if (k > columns) {
        cycle.before = total;
        return;
    }
    const bool wanted = state.status[s] == RUNNING && (!SECOND || cycle.again != 0);
    h[(int64)k * n_samples + s] = -coefficient(total, wanted);
    if (!SECOND)
        cycle.column[k * n_samples] = total;
    else if (wanted)
        cycle.column[k * n_samples] = cycle.column[k * n_samples] + (double)total;
}

// What is left of w after the basis has been taken out once.
__global__ void __launch_bounds__(SUM_THREADS) gmres_left(const real* partials, int64 n_partials, CYCLE, STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block(), columns = made[COLUMNS];
    const double after = total_of(partials, n_partials, n_samples, s);
    if (threadIdx.y != 0 || s >= n_samples) return;
    const Cycle cycle = cycle_of(rows, restart, n_samples, s);
    cycle.again = 0;
    if (state.status[s] != RUNNING) return;
    bool valid = isfinite(after) && isfinite(cycle.before), below = false;
    for (int k = 0; k <= columns; ++k) {
        valid = valid && isfinite(cycle.column[k * n_samples]);
        below = below || cycle.column[k * n_samples] != 0;
    }
    cycle.after = after;
    if (!valid || (below && cycle.before == 0)) {  // in the second case the square of w is below all numbers
        state.iterations[s] += 1;
        record(state, s, __longlong_as_double(0x7ff8000000000000LL));
        state.status[s] = BROKEN;
    } else if (after < 0.5 * cycle.before) {
        cycle.again = 1;
        made[AGAIN] = 1;
    }
}

// Reduce column j of the Hessenberg matrix to triangular form by the old rotations and a new one; the residual norm.
__device__ inline double rotate(const Cycle& cycle, int j, double low, double before, double eps)
{
    const int n = cycle.n;
    double *column = cycle.column, *g = cycle.g;
    double next = column[0];
    for (int i = 0; i < j; ++i) {
        const double c = cycle.cosines[i * n], s = cycle.sines[i * n], below = column[(i + 1) * n];
        entry(cycle, i, j) = c * next + s * below;
        next = c * below - s * next;
    }
    const double larger = fabs(next) > low ? fabs(next) : low, smaller = fabs(next) > low ? low : fabs(next);
    const double ratio = larger > 0 ? smaller / larger : 0;
    const double radius = larger * sqrt(1 + ratio * ratio);
    const double c = next / radius, s = low / radius;
    entry(cycle, j, j) = radius;
    cycle.cosines[j * n] = c;
    cycle.sines[j * n] = s;
    const bool kept = radius > ROUNDOFF * eps * before;  // else the column adds nothing to the space's image
    g[(j + 1) * n] = kept ? -s * g[j * n] : g[j * n];
    g[j * n] = kept ? c * g[j * n] : g[j * n];
    if (kept) cycle.length = j + 1;
    return fabs(g[(j + 1) * n]);
}

// The end of an iteration: the new column and the new norm; `alpha` scales w to unit length.
__global__ void __launch_bounds__(SUM_THREADS)
    gmres_rotate(const real* partials, int64 n_partials, double eps, real* alpha, CYCLE, STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block(), j = made[COLUMNS_NEXT] - 1;
    double second = 0;
    if (made[AGAIN]) second = total_of(partials, n_partials, n_samples, s);
    if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) made[COLUMNS] = made[COLUMNS_NEXT];
    if (threadIdx.y != 0 || s >= n_samples) return;
    alpha[s] = 0;
    if (state.status[s] != RUNNING) return;
    const Cycle cycle = cycle_of(rows, restart, n_samples, s);
    const double length = sqrt(cycle.again != 0 ? second : cycle.after), before = sqrt(cycle.before);
    const bool exhausted = length <= ROUNDOFF * eps * before;
    alpha[s] = coefficient(1 / length, !exhausted);
    const double norm = rotate(cycle, j, exhausted ? 0 : length, before, eps);
    state.iterations[s] += 1;
    record(state, s, norm);
    if (norm <= state.check[s])
        state.status[s] = CANDIDATE;
    else if (exhausted)
        state.status[s] = EXHAUSTED;
    else if (state.iterations[s] >= limit)
        state.status[s] = AT_LIMIT;
}

// Whether x takes up what a sample's cycle has found: all of them at its end (ENDED), before that those that stopped.
template <bool ENDED> __device__ inline bool to_update(int status)
{
    return status == CANDIDATE || status == EXHAUSTED || status == BROKEN || status == AT_LIMIT ||
           (ENDED && status == RUNNING);
}

// y from R y = g, for the samples of `chosen`: each by the columns it has.
template <bool ENDED>
__global__ void gmres_solve(real* y, real* chosen, CYCLE, STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block(), columns = made[COLUMNS];
    if (s >= n_samples) return;
    const Cycle cycle = cycle_of(rows, restart, n_samples, s);
    const int length = to_update<ENDED>(state.status[s]) ? (int)cycle.length : 0;
    chosen[s] = length > 0 ? 1 : 0;  // M of a sample that found nothing may not even be finite
    for (int i = columns - 1; i >= length; --i) y[(int64)i * n_samples + s] = 0;
    for (int i = length - 1; i >= 0; --i) {
        double rest = cycle.g[i * n_samples];
        for (int k = length - 1; k > i; --k) rest = rest - entry(cycle, i, k) * cycle.column[k * n_samples];
        const double value = rest / entry(cycle, i, i);
        cycle.column[i * n_samples] = value;
        y[(int64)i * n_samples + s] = coefficient(value, true);
    }
}

// Whether the least-squares problems made the residual fall tenfold where its true norm has not halved.
__device__ inline bool stagnant(const SampleState& state, const Cycle& cycle, int s, double estimate, double norm)
{
    const double fall = state.fall[s] * estimate / cycle.initial;
    const bool stays = norm > 0.5 * state.reference[s];
    state.fall[s] = stays ? fall : 1;
    if (!stays) state.reference[s] = norm;
    return stays && fall <= 0.1;
}

// Decide on samples by their true residuals, of which the best are kept (`keep`); at the end of a cycle those that go on
// restart.
template <bool ENDED>
__global__ void __launch_bounds__(SUM_THREADS)
    gmres_verify(const real* partials, int64 n_partials, real* alpha, real* keep, CYCLE, STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block();
    const double square = total_of(partials, n_partials, n_samples, s);
    if (ENDED && blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) made[COLUMNS] = 0;
    if (threadIdx.y != 0 || s >= n_samples) return;
    const Cycle cycle = cycle_of(rows, restart, n_samples, s);
    if (ENDED) alpha[s] = 0;
    keep[s] = 0;
    const int before = state.status[s];
    if (to_update<ENDED>(before)) {
        const double norm = sqrt(square), estimate = state.latest[s];
        record(state, s, norm);
        const bool stays = stagnant(state, cycle, s, estimate, norm);
        if (norm <= state.target[s])
            state.status[s] = CONVERGED;
        else if (stays)
            state.status[s] = STAGNATED;
        else if (before == BROKEN || !isfinite(norm) || (before == EXHAUSTED && norm > 0.5 * cycle.initial))
            state.status[s] = BREAKDOWN;
        else
            state.status[s] = next_status(state, s) == LIMITED ? LIMITED : UPDATED;
        if (state.status[s] == UPDATED) {
            keep[s] = norm < state.best[s] ? 1 : 0;
            if (keep[s] != 0) state.best[s] = norm;
            if (before == CANDIDATE) lower_check(state, s, norm);
        }
    }
    if (!ENDED || state.status[s] != UPDATED) return;
    const double initial = sqrt(state.latest[s] * state.latest[s]);
    cycle.initial = initial;
    for (int k = 0; k <= restart; ++k) cycle.g[k * n_samples] = 0;
    cycle.g[0] = initial;
    cycle.length = 0;
    state.status[s] = RUNNING;
    alpha[s] = coefficient(1 / initial, true);
}
#endif
