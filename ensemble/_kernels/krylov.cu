// Vector updates and inner products; what each computes stands in krylov.py.

__global__ void __launch_bounds__(CHUNK_THREADS)
    dot(const real* __restrict__ x, const real* __restrict__ y, real* partials, int64 n_rows, int n_samples)
{
    const Share share = share_here(n_rows, n_samples);
    Pack inner = spread(0);
    for (int64 row = share.begin; row < share.end; ++row) {
        const int64 here = row * n_samples + share.s;
        inner = inner + load(x + here) * load(y + here);
    }
    add_quads<0>(share, inner, partials, n_samples);
}

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
        inner = inner + new_r * new_r;
    }
    add_quads<0>(share, inner, partials, n_samples);
}

// KEEP: where beta is zero p stays, else it becomes z.
template <bool KEEP>
__global__ void __launch_bounds__(THREADS)
    cg_direction(const real* __restrict__ beta, const real* __restrict__ z, real* p, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const int64 here = row * n_samples + s;
    const Pack factor = load_shared(beta + s), next = load(z + here), old = load(p + here);
    store(p + here, where_nonzero(factor, next + factor * old, KEEP ? old : next));
}

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

// --- the scalars of conjugate gradients, one thread a sample: blocks of (32, 32) threads for 32 samples
enum { RUNNING, CONVERGED, BREAKDOWN, CLAIMED };

__device__ inline bool positive(real value) { return isfinite(value) && value > 0; }

// alpha = rz / (p . A p) for running samples, else 0.
__global__ void __launch_bounds__(1024)
    cg_alpha(const real* partials, int64 n_partials, const real* rz, int* status, real* alpha, int n_samples)
{
    const int s = blockIdx.x * 32 + threadIdx.x;
    const real pq = total_of(partials, n_partials, n_samples, s);
    if (threadIdx.y != 0 || s >= n_samples) return;
    if (status[s] == RUNNING && !positive(pq)) status[s] = BREAKDOWN;
    alpha[s] = status[s] == RUNNING ? rz[s] / pq : 0;
}

// Count the iteration, record the norm, and tell which samples claim to have converged.
__global__ void __launch_bounds__(1024)
    cg_norm(const real* partials, int64 n_partials, const double* target, int* status, int* iterations,
            double* latest, double* history, int n_samples)
{
    const int s = blockIdx.x * 32 + threadIdx.x;
    const real rr = total_of(partials, n_partials, n_samples, s);
    if (threadIdx.y != 0 || s >= n_samples || status[s] != RUNNING) return;
    const double norm = sqrt((double)rr);
    iterations[s] += 1;
    latest[s] = norm;
    history[(int64)iterations[s] * n_samples + s] = norm;
    if (!isfinite(norm))
        status[s] = BREAKDOWN;
    else if (norm <= target[s])
        status[s] = CLAIMED;
}

// beta = (r . z) / rz for running samples, else 0; at the start (FRESH) p is to become z.
template <bool FRESH>
__global__ void __launch_bounds__(1024)
    cg_beta(const real* partials, int64 n_partials, real* rz, int* status, real* beta, int n_samples)
{
    const int s = blockIdx.x * 32 + threadIdx.x;
    const real next = total_of(partials, n_partials, n_samples, s);
    if (threadIdx.y != 0 || s >= n_samples) return;
    if (status[s] == RUNNING && !positive(next)) status[s] = BREAKDOWN;
    const bool running = status[s] == RUNNING;
    beta[s] = running && !FRESH ? next / rz[s] : 0;
    if (running) rz[s] = next;
}

// Believe a claim only from the true residual's norm; `adopt` is 1 where the iteration goes on from that residual.
__global__ void __launch_bounds__(1024)
    cg_prove(const real* partials, int64 n_partials, const double* target, int* status, const int* iterations,
             double* latest, double* history, real* adopt, int n_samples)
{
    const int s = blockIdx.x * 32 + threadIdx.x;
    const real rr = total_of(partials, n_partials, n_samples, s);
    if (threadIdx.y != 0 || s >= n_samples) return;
    adopt[s] = 0;
    if (status[s] != CLAIMED) return;
    const double norm = sqrt((double)rr);
    latest[s] = norm;
    history[(int64)iterations[s] * n_samples + s] = norm;
    status[s] = norm <= target[s] ? CONVERGED : RUNNING;
    if (status[s] == RUNNING) adopt[s] = 1;
}

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
