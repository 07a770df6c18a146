// What a Krylov method that stays on the device knows of each sample; resident.py tells what the names mean.

enum { RUNNING, CONVERGED, BREAKDOWN, LIMITED, STAGNATED, CLAIMED, CLAIMED_HALF, EXHAUSTED, BROKEN, SPENT, SETTLED };

struct Book {
    double *latest, *target, *history;
    double *check, *reference, *misses, *fall, *best, *least;  // as in _run.py, which decides likewise
    int *status, *iterations;
    int limit, n_samples;
};

// How a kernel is given it, last of its arguments.
#define BOOK double *numbers, double *history, int limit, int n_samples

__device__ inline Book book_of(double* numbers, double* history, int limit, int n_samples)
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

__device__ inline void record(const Book& book, int s, double norm)
{
    book.latest[s] = norm;
    book.history[(int64)book.iterations[s] * book.n_samples + s] = norm;
}

// Where a sample goes on from whose claim has been judged, or that has none.
__device__ inline int next_status(const Book& book, int s)
{
    return book.iterations[s] >= book.limit ? LIMITED : RUNNING;
}

// After a disproved claim the recurrence has to reach a tenth of the true norm before it is judged again.
__device__ inline void lower_check(const Book& book, int s, double norm)
{
    if (0.1 * norm < book.check[s]) book.check[s] = 0.1 * norm;
}

// A claim judged by the true norm: a status, and whether x is to be kept (`keep`). RUNNING, or LIMITED, where the sample
// goes on from the true residual.
__device__ inline int judged(const Book& book, int s, double norm, bool& keep)
{
    keep = false;
    if (norm <= book.target[s]) return CONVERGED;
    if (!isfinite(norm)) return BREAKDOWN;
    const double reference = book.reference[s];
    book.misses[s] = norm > 0.5 * reference ? book.misses[s] + 1 : 0;
    book.reference[s] = norm < reference ? norm : reference;
    if (book.misses[s] >= (norm <= 2 * book.target[s] ? 5 : 1)) return STAGNATED;
    keep = !isfinite(reference) || norm < book.best[s];
    if (keep) book.best[s] = norm;
    book.least[s] = norm;
    lower_check(book, s, norm);
    return next_status(book, s);
}

// A coefficient as the vector kernels take it: zero, which freezes, where it is not meant or not finite.
__device__ inline real coefficient(double value, bool where) { return where && isfinite(value) ? (real)value : (real)0; }
