// The vector work of BiCGSTAB; the references are in bicgstab.py.

__global__ void __launch_bounds__(CHUNK_THREADS)
    dot_and_square(const real* __restrict__ x, const real* __restrict__ y, real* inners, real* squares, int64 n_rows,
                   int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    Pack inner = spread(0), square = spread(0);
    for (int64 row = share.begin; row < share.end; ++row) {
        const int64 here = row * n_samples + share.s;
        const Pack a = load(x + here), b = load(y + here);
        inner = inner + conjugate(a) * b;
        square = square + conjugate(b) * b;
    }
    add_quads<0>(share, inner, inners, n_samples);
    add_quads<1>(share, square, squares, n_samples);
}

__global__ void __launch_bounds__(CHUNK_THREADS)
    bicgstab_update(const real* __restrict__ omega, const real* __restrict__ shadow, const real* __restrict__ z,
                    const real* __restrict__ t, real* x, real* r, real* squares, real* inners, int64 n_rows,
                    int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    const Pack step = share.inside ? load(omega + share.s) : spread(0);
    Pack square = spread(0), inner = spread(0);
    for (int64 row = share.begin; row < share.end; ++row) {
        const int64 here = row * n_samples + share.s;
        const Pack old_x = load(x + here), old_r = load(r + here);
        store(x + here, where_nonzero(step, old_x + step * load(z + here), old_x));
        const Pack new_r = where_nonzero(step, old_r - step * load(t + here), old_r);
        store(r + here, new_r);
        square = square + conjugate(new_r) * new_r;
        inner = inner + conjugate(load(shadow + here)) * new_r;
    }
    add_quads<0>(share, square, squares, n_samples);
    add_quads<1>(share, inner, inners, n_samples);
}

__global__ void __launch_bounds__(THREADS)
    bicgstab_direction(const real* __restrict__ beta, const real* __restrict__ omega, const real* __restrict__ r,
                       const real* __restrict__ v, real* p, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    const Pack factor = load_shared(beta + s), step = load_shared(omega + s), next = load(r + here);
    const Pack moved = next + factor * (load(p + here) - step * load(v + here));
    store(p + here, where_nonzero(factor, moved, next));
}

// p as above; where `renew` is not zero the shadow vector becomes r, too, and where `keep` is not zero kept = x.
__global__ void __launch_bounds__(THREADS)
    bicgstab_direction_keep(const real* __restrict__ beta, const real* __restrict__ omega, const real* __restrict__ renew,
                  const real* __restrict__ r, const real* __restrict__ v, real* p, real* shadow,
                  const real* __restrict__ keep, const real* __restrict__ x, real* kept, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    const Pack factor = load_shared(beta + s), step = load_shared(omega + s), next = load(r + here);
    const Pack moved = next + factor * (load(p + here) - step * load(v + here));
    store(p + here, where_nonzero(factor, moved, next));
    const Pack begins = load_shared(renew + s), chosen = load_shared(keep + s);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) {
        if (begins.lane[i] != 0) shadow[here + i] = next.lane[i];
        if (chosen.lane[i] != 0) kept[here + i] = x[here + i];
    }
}

#ifndef COMPLEX
// --- the scalars, one thread per sample, in blocks as `totals_of` requires them
struct Recurrence {
    double &rho, &shadow_norm, &alpha, &omega;
    double &fresh, &good, &steep, &replaced;  // 0 or 1
    double& half;  // 1 where only the second half of an iteration is missing, -1 where the next half is not for it
};

__device__ inline Recurrence recurrence_of(double* rows, int n, int s)
{
    return {rows[s],         rows[n + s],     rows[2 * n + s], rows[3 * n + s], rows[4 * n + s],
            rows[5 * n + s], rows[6 * n + s], rows[7 * n + s], rows[8 * n + s]};
}

// Whether an inner product holds more than the roundoff of its own sum; `norms`: of one vector by the other.
__device__ inline bool usable(double inner, double norms, double eps)
{
    return isfinite(inner) && fabs(inner) > eps * norms;
}

__device__ inline void both_totals(const real* first, const real* second, int64 n_partials, int n_samples, int s,
                                   double& one, double& other)
{
    const real* const both[2] = {first, second};
    real totals[2];
    totals_of<2>(both, totals, n_partials, n_samples, s);
    one = totals[0];
    other = totals[1];
}

// A recurrence that begins from a residual of this norm.
__device__ inline void begin(const Recurrence& now, double norm)
{
    now.rho = norm * norm;
    now.shadow_norm = sqrt(norm * norm);
    now.fresh = 1;
}

// Count the iteration, and the step along M p. A candidate of the last half that missed its target has taken it already.
__global__ void __launch_bounds__(SUM_THREADS)
    bicgstab_alpha(const real* inners, const real* squares, int64 n_partials, double* rows, double eps, real* moving,
                   STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block();
    double rv, vv;
    both_totals(inners, squares, n_partials, n_samples, s, rv, vv);
    if (threadIdx.y != 0 || s >= n_samples) return;
    const Recurrence now = recurrence_of(rows, n_samples, s);
    moving[s] = 0;
    if (now.half < 0) now.half = 0;
    if (state.status[s] != RUNNING || now.half != 0) return;
    state.iterations[s] += 1;
    now.replaced = 0;
    if (!isfinite(rv)) {
        record(state, s, state.latest[s]);
        state.status[s] = BREAKDOWN;
        return;
    }
    now.good = usable(rv, now.shadow_norm * sqrt(vv), eps);
    now.alpha = now.good != 0 ? now.rho / rv : 0;
    moving[s] = coefficient(now.alpha, now.good != 0);
}

// The residual after the first half of an iteration.
__global__ void __launch_bounds__(SUM_THREADS) bicgstab_half(const real* partials, int64 n_partials, double* rows, STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block();
    const double square = total_of(partials, n_partials, n_samples, s);
    if (threadIdx.y != 0 || s >= n_samples || state.status[s] != RUNNING) return;
    if (recurrence_of(rows, n_samples, s).half != 0) return;
    const double norm = sqrt(square);
    record(state, s, norm);
    if (!isfinite(square))
        state.status[s] = BREAKDOWN;
    else if (norm <= state.check[s])
        state.status[s] = CANDIDATE_HALF;
}

// The step along M r that makes the residual smallest.
__global__ void __launch_bounds__(SUM_THREADS)
    bicgstab_omega(const real* inners, const real* squares, int64 n_partials, double* rows, double eps, real* moving,
                   STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block();
    double ts, tt;
    both_totals(inners, squares, n_partials, n_samples, s, ts, tt);
    if (threadIdx.y != 0 || s >= n_samples) return;
    const Recurrence now = recurrence_of(rows, n_samples, s);
    moving[s] = 0;
    if (state.status[s] != RUNNING || now.half < 0) return;
    if (!isfinite(ts) || (tt == 0 && ts != 0)) {  // in the second case the square of t is below all numbers
        state.status[s] = BREAKDOWN;
        return;
    }
    const double norm = state.latest[s];
    now.steep = usable(ts, sqrt(norm * norm * tt), eps);
    now.omega = now.steep != 0 ? ts / tt : 0;
    moving[s] = coefficient(now.omega, now.steep != 0);
}

// The end of an iteration: how the next direction is made, or that a recurrence restarts (`renew`).
__global__ void __launch_bounds__(SUM_THREADS)
    bicgstab_beta(const real* squares, const real* inners, int64 n_partials, double* rows, double eps, real* beta,
                  real* omega, real* renew, real* keep, STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block();
    double square, rho;
    both_totals(squares, inners, n_partials, n_samples, s, square, rho);
    if (threadIdx.y != 0 || s >= n_samples) return;
    beta[s] = omega[s] = renew[s] = keep[s] = 0;
    const Recurrence now = recurrence_of(rows, n_samples, s);
    if (state.status[s] != RUNNING || now.half < 0) return;
    const double norm = sqrt(square);
    now.half = 0;
    record(state, s, norm);
    if (!isfinite(square))
        state.status[s] = BREAKDOWN;
    else if (norm <= state.check[s])
        state.status[s] = CANDIDATE;
    else if (now.fresh != 0 && now.good == 0 && now.steep == 0)
        state.status[s] = BREAKDOWN;  // neither half moved from a recurrence as new as can be
    else
        state.status[s] = next_status(state, s);
    if (state.status[s] != RUNNING) return;
    const int iteration = state.iterations[s];
    if ((iteration % 16 == 0 || (iteration & (iteration - 1)) == 0) && norm < state.best[s]) {  // `kept_at`
        state.best[s] = norm;
        keep[s] = 1;
    }
    const double factor = (rho / now.rho) * (now.alpha / now.omega);
    const bool continues = now.good != 0 && now.steep != 0 && now.replaced == 0 && isfinite(factor) && factor != 0 &&
                         usable(rho, now.shadow_norm * sqrt(norm * norm), eps);
    beta[s] = coefficient(factor, continues);
    omega[s] = coefficient(now.omega, continues);
    if (continues) {
        now.rho = rho;
        now.fresh = 0;
    } else {
        begin(now, norm);
        renew[s] = 1;
    }
}

// Decide on candidates by the true residual's norm. Where it misses the target, r becomes the true residual (`adopt`); a
// candidate of the first half continues with the second, one of the second with a new recurrence (`renew`), which begins
// with a first half, whichever is queued next.
__global__ void __launch_bounds__(SUM_THREADS)
    bicgstab_verify(const real* partials, int64 n_partials, double* rows, real* adopt, real* renew, real* keep, STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block();
    const double square = total_of(partials, n_partials, n_samples, s);
    if (threadIdx.y != 0 || s >= n_samples) return;
    adopt[s] = renew[s] = keep[s] = 0;
    const int candidate = state.status[s];
    if (candidate != CANDIDATE && candidate != CANDIDATE_HALF) return;
    const Recurrence now = recurrence_of(rows, n_samples, s);
    const double norm = sqrt(square);
    record(state, s, norm);
    bool best;
    const int outcome = verified_status(state, s, norm, best);
    keep[s] = best ? 1 : 0;
    state.status[s] = outcome;
    if (outcome != RUNNING && outcome != LIMITED) return;
    adopt[s] = 1;
    if (candidate == CANDIDATE_HALF) {
        state.status[s] = RUNNING;
        now.replaced = now.half = 1;
        return;
    }
    const bool breakdown = now.fresh != 0 && now.good == 0 && now.steep == 0;
    state.status[s] = breakdown ? BREAKDOWN : outcome;
    begin(now, norm);
    renew[s] = 1;
    now.half = -1;
}
#endif
