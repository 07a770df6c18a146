// Vector updates and inner products; vectors.py defines each.

#ifndef COMPLEX
__device__ inline Pack larger(const Pack& most, const Pack& x)
{
    Pack pack;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) {
        const real size = x.lane[v] < 0 ? -x.lane[v] : x.lane[v];
        pack.lane[v] = size > most.lane[v] ? size : most.lane[v];
    }
    return pack;
}
#endif

__global__ void __launch_bounds__(CHUNK_THREADS)
    dot(const real* __restrict__ x, const real* __restrict__ y, real* partials, int64 n_rows, int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    Pack inner = spread(0);
    for (int64 row = share.begin; row < share.end; ++row) {
        const int64 here = row * n_samples + share.s;
        inner = inner + conjugate(load(x + here)) * load(y + here);
    }
    add_quads<0>(share, inner, partials, n_samples);
}

#ifndef COMPLEX
// The largest magnitude of each chunk; NaN counts as zero.
__global__ void __launch_bounds__(CHUNK_THREADS)
    largest(const real* __restrict__ x, real* partials, int64 n_rows, int n_samples)
{
    __shared__ Pack terms[CHUNKS * QUADS][LANES];
    const Share share = share_here(n_rows, n_samples);
    Pack most = spread(0);
    for (int64 row = share.begin; row < share.end; ++row) most = larger(most, load(x + row * n_samples + share.s));
    terms[share.group][threadIdx.x % LANES] = most;
    __syncthreads();
    if (share.group % QUADS || !share.inside) return;
    for (int quad = 1; quad < QUADS; ++quad) most = larger(most, terms[share.group + quad][threadIdx.x % LANES]);
    store(partials + share.chunk * n_samples + share.s, most);
}

// A block for each sample: the power of two that scales its largest magnitude into [1, 2), and `unit` over it.
#define UNIT_THREADS 128

__global__ void __launch_bounds__(UNIT_THREADS)
    units_from(const real* __restrict__ partials, const real* __restrict__ unit, real* out, int64 n_chunks,
               int n_samples)
{
    __shared__ real terms[UNIT_THREADS];
    const int s = blockIdx.x;
    real most = 0;
    for (int64 i = threadIdx.x; i < n_chunks; i += UNIT_THREADS) {
        const real size = partials[i * n_samples + s];
        most = size > most ? size : most;
    }
    terms[threadIdx.x] = most;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < UNIT_THREADS; ++i) most = terms[i] > most ? terms[i] : most;
    const int lowest = sizeof(real) == 8 ? -1022 : -126;
    int exponent = 0;
    if (most > 0 && most - most == 0) {  // a finite number
        frexp(most, &exponent);
        exponent = exponent - 1 < lowest ? lowest : exponent - 1;
    }
    out[s] = ldexp((real)1, -exponent);
    out[n_samples + s] = ldexp(unit[s], exponent);
}
#endif

__global__ void __launch_bounds__(CHUNK_THREADS)
    cg_update(const real* __restrict__ alpha, const real* __restrict__ p, const real* __restrict__ q, real* x, real* r,
              real* partials, int64 n_rows, int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    Pack inner = spread(0);
    const Pack step = share.inside ? load(alpha + share.s) : spread(0);
    for (int64 row = share.begin; row < share.end; ++row) {
        const int64 here = row * n_samples + share.s;
        const Pack old_x = load(x + here), old_r = load(r + here);
        store(x + here, where_nonzero(step, old_x + step * load(p + here), old_x));
        const Pack new_r = where_nonzero(step, old_r - step * load(q + here), old_r);
        store(r + here, new_r);
        inner = inner + conjugate(new_r) * new_r;
    }
    add_quads<0>(share, inner, partials, n_samples);
}

__global__ void __launch_bounds__(THREADS)
    cg_direction(const real* __restrict__ beta, const real* __restrict__ z, real* p, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    const Pack factor = load_shared(beta + s), next = load(z + here), old = load(p + here);
    store(p + here, where_nonzero(factor, next + factor * old, next));
}

#ifndef COMPLEX
// As cg_direction, but where beta is no number p stays. Before p moves, kept = x - alpha p where `keep` is not zero: the
// iterate before the last step.
__global__ void __launch_bounds__(THREADS)
    cg_direction_keep(const real* __restrict__ beta, const real* __restrict__ z, real* p, const real* __restrict__ keep,
            const real* __restrict__ alpha, const real* __restrict__ x, real* kept, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    const Pack factor = load_shared(beta + s), next = load(z + here), old = load(p + here), chosen = load_shared(keep + s);
    Pack moved = where_nonzero(factor, next + factor * old, next);
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) {
        if (isnan(factor.lane[v])) moved.lane[v] = old.lane[v];
        if (chosen.lane[v] != 0) kept[here + v] = x[here + v] - alpha[s + v] * old.lane[v];
    }
    store(p + here, moved);
}
#endif

// One thread for each row and sample that moves.
__global__ void take_samples(const real* __restrict__ array, const int64* __restrict__ samples, real* out,
                             int64 n_rows, int width, int width_out, int n_moved)
{
    const int64 item = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (item >= n_rows * n_moved) return;
    out[item / n_moved * width_out + item % n_moved] = array[item / n_moved * width + samples[item % n_moved]];
}

__global__ void put_samples(const real* __restrict__ array, const int64* __restrict__ samples, real* out,
                            int64 n_rows, int width, int width_out, int n_moved)
{
    const int64 item = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (item >= n_rows * n_moved) return;
    out[item / n_moved * width_out + samples[item % n_moved]] = array[item / n_moved * width + item % n_moved];
}

#ifndef COMPLEX
// --- the scalars of conjugate gradients, one thread per sample, in blocks as `totals_of` requires them
__device__ inline bool positive(real value) { return isfinite(value) && value > 0; }

// alpha = rz / (p . A p) for running samples, else 0; `last` holds it while a sample waits.
__global__ void __launch_bounds__(SUM_THREADS)
    cg_alpha(const real* partials, int64 n_partials, const real* rz, real* alpha, real* last, real* keep, STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block();
    const real pq = total_of(partials, n_partials, n_samples, s);
    if (threadIdx.y != 0 || s >= n_samples) return;
    alpha[s] = 0;
    keep[s] = 0;
    if (state.status[s] != RUNNING) return;
    if (positive(pq) && isfinite(rz[s] / pq))
        last[s] = alpha[s] = rz[s] / pq;
    else
        state.status[s] = BREAKDOWN;
}

// Count the iteration, record the norm, and select the candidates for convergence and the samples whose previous iterate
// is to be kept: the norm leaves the neighbourhood of its least.
__global__ void __launch_bounds__(SUM_THREADS) cg_norm(const real* partials, int64 n_partials, real* keep, STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block();
    const real rr = total_of(partials, n_partials, n_samples, s);
    if (threadIdx.y != 0 || s >= n_samples || state.status[s] != RUNNING) return;
    const double norm = sqrt((double)rr), last = state.latest[s];
    const double least = state.least[s];
    if (!(norm <= 2 * least) && last <= 2 * least && last <= 0.5 * state.best[s]) {
        state.best[s] = last;
        keep[s] = 1;
    }
    if (norm < least) state.least[s] = norm;
    state.iterations[s] += 1;
    record(state, s, norm);
    state.status[s] = !isfinite(norm) ? BREAKDOWN : norm <= state.check[s] ? CANDIDATE : next_status(state, s);
}

// z . (r - old r) = -alpha z . q, for the flexible method.
__global__ void __launch_bounds__(SUM_THREADS)
    cg_change(const real* partials, int64 n_partials, const real* last, real* change, STATE)
{
    const int s = sample_of_block();
    const real zq = total_of(partials, n_partials, n_samples, s);
    if (threadIdx.y == 0 && s < n_samples) change[s] = -last[s] * zq;
}

// beta = (r . z) / rz for running samples, else NaN; at the start rz is infinite, so that p becomes z. `change`, where
// there is one, takes the place of r . z.
__global__ void __launch_bounds__(SUM_THREADS)
    cg_beta(const real* partials, int64 n_partials, real* rz, const real* change, real* beta, STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block();
    const real next = total_of(partials, n_partials, n_samples, s);
    if (threadIdx.y != 0 || s >= n_samples) return;
    const real factor = (change ? change[s] : next) / rz[s];
    if (state.status[s] == RUNNING && (!positive(next) || isnan(factor))) state.status[s] = BREAKDOWN;
    const bool running = state.status[s] == RUNNING;
    beta[s] = running ? factor : (real)__longlong_as_double(0x7ff8000000000000LL);
    if (running) rz[s] = next;
}

// Decide on candidates by the true residual's norm. Where the iteration continues from that residual `adopt` is 1, and
// rz infinite, which makes the next beta 0: the old direction belongs to another residual.
__global__ void __launch_bounds__(SUM_THREADS)
    cg_verify(const real* partials, int64 n_partials, real* rz, real* adopt, real* keep, STATE)
{
    const SampleState state = state_of(numbers, history, limit, n_samples);
    const int s = sample_of_block();
    const real rr = total_of(partials, n_partials, n_samples, s);
    if (threadIdx.y != 0 || s >= n_samples) return;
    adopt[s] = keep[s] = 0;
    if (state.status[s] != CANDIDATE) return;
    const double norm = sqrt((double)rr);
    record(state, s, norm);
    bool best;
    state.status[s] = verified_status(state, s, norm, best);
    keep[s] = best ? 1 : 0;
    if (state.status[s] != RUNNING) return;
    adopt[s] = 1;
    rz[s] = (real)__longlong_as_double(0x7ff0000000000000LL);
}

#endif

// to = from where `chosen` is not zero.
__global__ void __launch_bounds__(THREADS)
    copy_chosen(const real* __restrict__ chosen, const real* __restrict__ from, real* to, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    store(to + here, where_nonzero(load_shared(chosen + s), load(from + here), load(to + here)));
}
