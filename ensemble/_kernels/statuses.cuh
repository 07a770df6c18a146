// What a Krylov method that stays on the device knows of each sample; resident.py tells what the names mean.

enum { RUNNING, CONVERGED, BREAKDOWN, LIMITED, CLAIMED, CLAIMED_HALF, EXHAUSTED, BROKEN, SPENT, SETTLED };

struct Book {
    double *latest, *target, *history;
    int *status, *iterations;
    int limit, n_samples;
};

// How a kernel is given it, last of its arguments.
#define BOOK double *numbers, double *history, int limit, int n_samples

__device__ inline Book book_of(double* numbers, double* history, int limit, int n_samples)
{
    int* counts = reinterpret_cast<int*>(numbers + 2 * n_samples);
    return {numbers, numbers + n_samples, history, counts, counts + n_samples, limit, n_samples};
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

// A coefficient as the vector kernels take it: zero, which freezes, where it is not meant or not finite.
__device__ inline real coefficient(double value, bool where) { return where && isfinite(value) ? (real)value : (real)0; }
