// Products with affine matrices on the matrix units for doubles; what each computes stands in affine.py.
//
// One instruction multiplies 16 samples of 4 or 8 rows of x with 8 terms of the entries that meet them: terms and samples
// are spread over the lanes, so that nothing is broadcast, and broadcasts from shared memory or the first-level cache are
// what the plain kernel waits for. The unit adds its products one after another, each rounded once: the chain of fused
// multiply-adds that the plain kernel and the CPU form (checked on compute capability 9.0 alone, where alone it is used).
//
// A warp takes a row, WIDTH samples of it. Lane 4 g + t brings entry t of a step: of x its OWN samples from OWN g on, of
// the terms number g of each group of 8. It gets the sums of these samples for terms 2 t and 2 t + 1 of each group. A row
// is done in pieces of STEPS steps. Registers that a step has read are filled at once for the warp's next piece, so that
// there is always a whole piece on its way. One block a multiprocessor processes a range of consecutive rows, so that
// rows of x are still in its first-level cache for the next line of a mesh.

#define WIDTH (16 * PACKS)
#define PIECE (4 * STEPS)
#define GROUPS ((TERMS + 7) / 8)
#define OWN (2 * PACKS)  // samples of a lane

__device__ inline double2 load_two(const double* from)
{
    return __ldg(reinterpret_cast<const double2*>(from));
}

// c += a b, where a is (16, 4), b is (4, 8), and each lane brings and holds what stands above.
__device__ inline void multiply_add(double (&c)[4], double a0, double a1, double b)
{
#ifdef __CUDA_ARCH__
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a0), "d"(a1), "d"(b));
#else
    mma_16_8_4(c, a0, a1, b);
#endif
}

// The same for two steps at once, the first one first: fewer instructions, and the same sums.
__device__ inline void multiply_add(double (&c)[4], double a0, double a1, double a2, double a3, double b0, double b1)
{
#ifdef __CUDA_ARCH__
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a0), "d"(a1), "d"(a2), "d"(a3), "d"(b0), "d"(b1));
#else
    mma_16_8_4(c, a0, a1, b0);
    mma_16_8_4(c, a2, a3, b1);
#endif
}

// Rows of x lie in the same banks, and the unit takes the same samples of four of them from neighbouring lanes: each of
// these loads another one first, and all put them in order when they have come.
__device__ inline int turned(int i, int t) { return i ^ t % OWN; }

__device__ inline void turn_back(double (&values)[OWN], int t)
{
#pragma unroll
    for (int bit = 1; bit < OWN; bit *= 2)
#pragma unroll
        for (int i = 0; i < OWN; ++i)
            if (!(i & bit)) {
                const double low = values[i], high = values[i | bit];
                values[i] = t & bit ? high : low;
                values[i | bit] = t & bit ? low : high;
            }
}

// A part of a row: its first entry, and how many of the row's are left there.
struct Piece {
    offset from;
    int left, row;
};

struct Rows {
    const offset* __restrict__ indptr;
    int last;
    offset begin, end;  // of the row after the current one
};

__device__ inline void look_up(Rows& rows, int row)
{
    rows.begin = row < rows.last ? __ldg(rows.indptr + row) : 0;
    rows.end = row < rows.last ? __ldg(rows.indptr + row + 1) : 0;
}

__device__ inline Piece following(Rows& rows, const Piece& piece)
{
    if (piece.left > PIECE) return {piece.from + PIECE, piece.left - PIECE, piece.row};
    const Piece next = {rows.begin, (int)(rows.end - rows.begin), piece.row + WARPS};
    look_up(rows, next.row + WARPS);
    return next;
}

__device__ inline void clear(double (&sums)[PACKS][GROUPS][4])
{
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
#pragma unroll
        for (int q = 0; q < GROUPS; ++q)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[p][q][i] = 0;
}

template <class Ending>
__device__ inline void walk(const offset* __restrict__ indptr, const int* __restrict__ indices,
                            const double* __restrict__ terms, const double* __restrict__ coefficients,
                            const double* __restrict__ x, int64 n_rows, int n_samples, Ending ending)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int tiles = n_samples / WIDTH, sample = blockIdx.x % tiles * WIDTH + OWN * g;
    const int ranges = gridDim.x / tiles, share = ((int)n_rows + ranges - 1) / ranges, range = blockIdx.x / tiles;
    const int first = range * share + threadIdx.x / 32, end = (range + 1) * share;

    // Factors of this lane's terms; the sum of term 0 counts as it is.
    double2 factors[PACKS][GROUPS][2];
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
#pragma unroll
        for (int q = 0; q < GROUPS; ++q)
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const int i = 8 * q + 2 * t + n;
                factors[p][q][n] = {1, 1};
                if (i > 0 && i < TERMS) factors[p][q][n] = load_two(coefficients + (i - 1) * n_samples + sample + 2 * p);
            }

    Rows rows = {indptr, end < n_rows ? end : (int)n_rows, 0, 0};
    look_up(rows, first);
    Piece now = {0, 0, first - WARPS}, next = following(rows, now), later = following(rows, next);
    int columns[STEPS];
    double values[STEPS][OWN], entries[STEPS][GROUPS], sums[PACKS][GROUPS][4];
    clear(sums);

    const char* samples[OWN];
#pragma unroll
    for (int i = 0; i < OWN; ++i) samples[i] = reinterpret_cast<const char*>(x + sample + turned(i, t));
    const int row_bytes = n_samples * (int)sizeof(double);
    // Nothing is added where no entry is: -0 times 0, whatever the sum. Only the last step of a `whole` piece can lack some.
    auto ask = [&](int j, bool whole) {
        const int e = 4 * j + t;
        const bool there = (whole && j < STEPS - 1) || columns[j] >= 0;
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            const char* const from = samples[i] + (int64)columns[j] * row_bytes;
            values[j][i] = there ? __ldg(reinterpret_cast<const double*>(from)) : 0.0;
        }
        const double* const own = terms + ((int64)next.from + t) * TERMS;
#pragma unroll
        for (int q = 0; q < GROUPS; ++q) {
            const double* const entry = own + (8 * q + g < TERMS ? 8 * q + g : TERMS - 1) + 4 * j * TERMS;
            entries[j][q] = (whole && j < STEPS - 1) || e < next.left ? __ldg(entry) : -0.0;
        }
    };
    auto ask_columns = [&](int j, bool whole, const Piece& piece) {
        columns[j] = (whole && j < STEPS - 1) || 4 * j + t < piece.left ? __ldg(indices + piece.from + t + 4 * j) : -1;
    };
    auto advance = [&](bool whole) {
#pragma unroll
        for (int j = 0; j < STEPS; j += 2) {
            turn_back(values[j], t);
            if (j + 1 < STEPS) turn_back(values[j + 1], t);
#pragma unroll
            for (int p = 0; p < PACKS; ++p)
#pragma unroll
                for (int q = 0; q < GROUPS; ++q) {
                    const double *a = values[j] + 2 * p, *b = values[(j + 1) % STEPS] + 2 * p;
                    if (j + 1 < STEPS)
                        multiply_add(sums[p][q], a[0], a[1], b[0], b[1], entries[j][q], entries[(j + 1) % STEPS][q]);
                    else
                        multiply_add(sums[p][q], a[0], a[1], entries[j][q]);
                }
#pragma unroll
            for (int i = j; i < j + 2 && i < STEPS; ++i) ask(i, whole), ask_columns(i, whole, later);
        }
    };
#pragma unroll
    for (int j = 0; j < STEPS; ++j) ask_columns(j, false, next);
#pragma unroll
    for (int j = 0; j < STEPS; ++j) ask(j, false), ask_columns(j, false, later);
    for (now = next; now.row < rows.last; now = next) {
        next = later, later = following(rows, later);
        if (next.left > PIECE - 4 && later.left > PIECE - 4) advance(true);
        else advance(false);
        if (now.left > PIECE) continue;
        // Sum 0 plus each further sum times its factor, from lane to lane: those with the last terms have the total.
        double2 total[PACKS];
#pragma unroll
        for (int p = 0; p < PACKS; ++p) total[p] = {-0.0, -0.0};
#pragma unroll
        for (int i = 0; i < TERMS; i += 2)
#pragma unroll
            for (int p = 0; p < PACKS; ++p) {
                const double(&sum)[4] = sums[p][i / 8];
                const double2(&factor)[2] = factors[p][i / 8];
                total[p].x = fma(factor[0].x, sum[0], total[p].x), total[p].y = fma(factor[0].y, sum[2], total[p].y);
                if (i + 1 < TERMS)
                    total[p].x = fma(factor[1].x, sum[1], total[p].x), total[p].y = fma(factor[1].y, sum[3], total[p].y);
                if (i + 2 >= TERMS) continue;
                total[p].x = __shfl_sync(0xffffffffu, total[p].x, i % 8 / 2, 4);
                total[p].y = __shfl_sync(0xffffffffu, total[p].y, i % 8 / 2, 4);
            }
        clear(sums);
        if (t == (TERMS - 1) % 8 / 2)
#pragma unroll
            for (int p = 0; p < PACKS; ++p) {
                const int s = sample + 2 * p;
                ending({total[p].x, total[p].y}, (int64)now.row * n_samples + s, s);
            }
    }
}

template <int ENDING>
__global__ void __launch_bounds__(32 * WARPS, 1)
    affine_product(const offset* __restrict__ indptr, const int* __restrict__ indices, const real* __restrict__ terms,
                   const real* __restrict__ coefficients, const real* __restrict__ x, const real* b, real* y,
                   int64 n_rows, int n_samples)
{
    walk(indptr, indices, terms, coefficients, x, n_rows, n_samples,
         [=](const Pack& total, int64 here, int) { end_product<ENDING>(total, here, b, y); });
}

template <int KIND>
__global__ void __launch_bounds__(32 * WARPS, 1)
    affine_chebyshev(const offset* __restrict__ indptr, const int* __restrict__ indices,
                     const real* __restrict__ terms, const real* __restrict__ coefficients,
                     const real* __restrict__ dinv, const real* __restrict__ b, const real* __restrict__ x,
                     const real* __restrict__ a, const real* __restrict__ c, real* w, real* out, int64 n_rows,
                     int n_samples)
{
    walk(indptr, indices, terms, coefficients, x, n_rows, n_samples, [=](const Pack& total, int64 here, int s) {
        end_step<KIND>(total, here, s, dinv, b, x, a, c, w, out);
    });
}
