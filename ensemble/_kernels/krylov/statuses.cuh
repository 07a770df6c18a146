// State of each sample in a Krylov method with scalars on the device; device_scalars/scalars.py defines the names.

enum {
    RUNNING, CONVERGED, BREAKDOWN, LIMITED, STAGNATED,
    CANDIDATE, CANDIDATE_HALF, EXHAUSTED, BROKEN, AT_LIMIT, UPDATED
};

struct SampleState {
    double *latest, *target, *history;
    double *check, *reference, *misses, *fall, *best, *least;  // as in krylov/host_scalars
    int *status, *iterations;
    int limit, n_samples;
};

// The last arguments of a kernel that takes it.
#define STATE double *numbers, double *history, int limit, int n_samples

__device__ inline SampleState state_of(double* numbers, double* history, int limit, int n_samples)
{
    double* const rest = numbers + 2 * n_samples;
    int* counts = reinterpret_cast<int*>(numbers + 8 * n_samples);
    return {numbers,
            numbers + n_samples,
            history,
            rest,
            rest + n_samples,
            rest + 2 * n_samples,
            rest + 3 * n_samples,
            rest + 4 * n_samples,
            rest + 5 * n_samples,
            counts,
            counts + n_samples,
            limit,
            n_samples};
}

__device__ inline void record(const SampleState& state, int s, double norm)
{
    state.latest[s] = norm;
    state.history[(int64)state.iterations[s] * state.n_samples + s] = norm;
}

// Status of a sample that continues.
__device__ inline int next_status(const SampleState& state, int s)
{
    return state.iterations[s] >= state.limit ? LIMITED : RUNNING;
}

// After a miss the recurrence has to reach a tenth of the true norm before it is verified again.
__device__ inline void lower_check(const SampleState& state, int s, double norm)
{
    if (0.1 * norm < state.check[s]) state.check[s] = 0.1 * norm;
}

// Status of a candidate by its true norm, and whether x is to be kept (`keep`). RUNNING, or LIMITED, where the sample goes
// on from the true residual.
__device__ inline int verified_status(const SampleState& state, int s, double norm, bool& keep)
{
    keep = false;
    if (norm <= state.target[s]) return CONVERGED;
    if (!isfinite(norm)) return BREAKDOWN;
    const double reference = state.reference[s];
    state.misses[s] = norm > 0.5 * reference ? state.misses[s] + 1 : 0;
    state.reference[s] = norm < reference ? norm : reference;
    if (state.misses[s] >= (norm <= 2 * state.target[s] ? 5 : 1)) return STAGNATED;
    keep = !isfinite(reference) || norm < state.best[s];
    if (keep) state.best[s] = norm;
    state.least[s] = norm;
    lower_check(state, s, norm);
    return next_status(state, s);
}

// A coefficient as the vector kernels take it: zero, which freezes, where it is not meant or not finite.
__device__ inline real coefficient(double value, bool where) { return where && isfinite(value) ? (real)value : (real)0; }
