// Full bands in elimination order: values lie row by row, left of the diagonal (not for LDL^T), reciprocal pivot, right of
// it. Operations and bits are those of levels.cu.

#define WARP 32
#define RING 6

#define LU 0
#define TRANSPOSED 1
#define LDLT 2

// Places of the values of a band of half-width `half`.
template <bool SYMMETRIC> struct Band {
    int n, half;

    // The first value of a row.
    __device__ __forceinline__ int begin(int row) const
    {
        const int top = min(row, half), bottom = max(row - (n - half), 0);
        const int left = SYMMETRIC ? 0 : top * (top - 1) / 2 + max(row - half, 0) * half;
        return left + row * (half + 1) - bottom * (bottom + 1) / 2;
    }
    __device__ __forceinline__ int pivot(int row) const { return begin(row) + (SYMMETRIC ? 0 : min(row, half)); }
    __device__ __forceinline__ int right(int row, int column) const { return pivot(row) + column - row; }
    __device__ __forceinline__ int left(int row, int column) const { return begin(row) + column - max(row - half, 0); }
    __device__ __forceinline__ bool has(int row, int column) const
    {
        return row < n && column < n && abs(row - column) <= half && (!SYMMETRIC || row <= column);
    }
    __device__ __forceinline__ int at(int row, int column) const
    {
        return row <= column ? right(row, column) : left(row, column);
    }
};

// The entries of the given matrix, or of b, for values and rows in elimination order; a list that is null names them in
// their order.
struct Given {
    const char* here;
    const int* list;
    unsigned pitch;

    __device__ __forceinline__ void copy(real* to, int place, bool there) const
    {
        int row = there ? place : 0;
        if (list != nullptr) row = __ldg(list + row), there = there && row >= 0, row = max(row, 0);
        copy_async_or_zero<sizeof(real)>(to, here + (uint64)(unsigned)row * pitch, there);
    }
};

// The factorisation, right-looking. P * P warps share the window of rows and columns k + 1 ... k + P R behind pivot k,
// R * R of its sums in registers of each: those of every P-th row and column. Warps pass row and column k + 1 to each other
// through shared memory while other sums of step k are still subtracted. What enters the window is copied RING - 1 steps
// ahead. With b, y of the forward substitution goes to x.
template <int P, int R, bool SYMMETRIC>
__global__ void __launch_bounds__(P * P * WARP, 1)
    band_factor(const real* __restrict__ A, const real* __restrict__ b, real* __restrict__ values, real* __restrict__ x,
                real* __restrict__ broken, const int* __restrict__ sources, const int* __restrict__ rows,
                const int* __restrict__ columns, int n, int half, int n_samples)
{
    constexpr int WIDE = P * R, CELL = 2 * WIDE + 2, STAGE = 2 * WIDE + 2;
    SHARED_VALUES(shared);
    const int lane = threadIdx.x, warp = threadIdx.y, tr = warp / P, tc = warp % P;
    const int sample = blockIdx.x * WARP + lane;
    const bool inside = sample < n_samples;
    const int s = inside ? sample : n_samples - 1;
    const unsigned pitch = (unsigned)n_samples * (unsigned)sizeof(real);
    const Band<SYMMETRIC> band{n, half};
    const Given entries{(const char*)(A + s), sources, pitch}, rhs{(const char*)(b + s), rows, pitch};
    const bool with_rhs = b != nullptr, has_y = with_rhs && tc == P - 1;
    real* const own = shared + lane;
    // A cell of the ring: row k + WIDE from column k on, column k + WIDE from row k on, and b.
    const auto cell = [&](int k, int e) -> real& { return own[((k % RING) * CELL + e) * WARP]; };
    // What pivot k needs, in one of two places: row k and column k from the diagonal on, reciprocal pivot and y.
    const auto stage = [&](int k, int e) -> real& { return own[(RING * CELL + (k & 1) * STAGE + e) * WARP]; };
    constexpr int COLUMN = WIDE, INVERSE = 2 * WIDE, Y = 2 * WIDE + 1;
    const auto store = [&](int place, real value) {
        if (inside) *(real*)((char*)(values + s) + (uint64)(unsigned)place * pitch) = value;
    };
    const auto enter = [&](int k) {
        const int wide = k + WIDE;
        if (k < n)
            for (int e = warp; e < CELL; e += P * P) {
                if (e <= WIDE)
                    entries.copy(&cell(k, e), band.at(wide, k + e), band.has(wide, k + e));
                else if (e <= 2 * WIDE)
                    entries.copy(&cell(k, e), band.at(k + e - WIDE - 1, wide), band.has(k + e - WIDE - 1, wide));
                else if (with_rhs)
                    rhs.copy(&cell(k, e), wide, wide < n);
            }
        close_group();
    };
    for (int k = 0; k < RING - 1; ++k) enter(k);
    real w[R][R], y[R], check = 0;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const int i = tr + P * r;
#pragma unroll
        for (int c = 0; c < R; ++c) {
            const int j = tc + P * c;
            const bool there = band.has(i, j);
            const int place = there ? band.at(i, j) : 0, source = sources == nullptr ? place : __ldg(sources + place);
            w[r][c] = there && source >= 0 ? A[(int64)source * n_samples + s] : real(0);
        }
        y[r] = has_y && i < n ? b[(int64)(rows == nullptr ? i : __ldg(rows + i)) * n_samples + s] : real(0);
    }
    if (tr == 0)
#pragma unroll
        for (int c = 0; c < R; ++c) stage(0, tc + P * c) = w[0][c];
    if (tc == 0)
#pragma unroll
        for (int r = 0; r < R; ++r) stage(0, COLUMN + tr + P * r) = w[r][0];
    if (warp == 0) stage(0, INVERSE) = reciprocal(w[0][0]);
    if (tr == 0 && has_y) stage(0, Y) = y[0];
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        wait_for_groups<RING - 2>();
        __syncthreads();
        const bool row_leaves = tr == k % P, column_leaves = tc == k % P;
        const int low = (tr - k - 1) & (P - 1), across = (tc - k - 1) & (P - 1);  // rows k + 1 + low + P r
        const real inverse = stage(k, INVERSE);
        real l[R], given[R], u[R];
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const int d = 1 + low + P * r;
            if (r == R - 1 && row_leaves)
                given[r] = SYMMETRIC ? cell(k, WIDE + 1) : cell(k, 0);
            else
                given[r] = stage(k, SYMMETRIC ? d : COLUMN + d);
            l[r] = given[r] * inverse;
        }
#pragma unroll
        for (int c = 0; c < R; ++c)
            u[c] = c == R - 1 && column_leaves ? cell(k, WIDE + 1) : stage(k, 1 + across + P * c);
        if (row_leaves) {
#pragma unroll
            for (int r = 0; r + 1 < R; ++r) {
                y[r] = y[r + 1];
#pragma unroll
                for (int c = 0; c < R; ++c) w[r][c] = w[r + 1][c];
            }
        }
        if (column_leaves) {
#pragma unroll
            for (int r = 0; r < R; ++r) {
#pragma unroll
                for (int c = 0; c + 1 < R; ++c) w[r][c] = w[r][c + 1];
                if (r + 1 < R || !row_leaves) w[r][R - 1] = cell(k, WIDE + 1 + 1 + low + P * r);
            }
        }
        if (row_leaves) {
#pragma unroll
            for (int c = 0; c < R; ++c) w[R - 1][c] = cell(k, 1 + across + P * c);
            if (has_y) y[R - 1] = cell(k, 2 * WIDE + 1);
        }
        // Within the band is all but the last row and column, perhaps.
        const bool last_row = 1 + low + P * (R - 1) <= half, last_column = 1 + across + P * (R - 1) <= half;
        const auto subtract = [&](int r, int c) {
            if ((r + 1 < R || last_row) && (c + 1 < R || last_column)) w[r][c] = w[r][c] - l[r] * u[c];
        };
#pragma unroll
        for (int c = 0; c < R; ++c) subtract(0, c);
#pragma unroll
        for (int r = 1; r < R; ++r) subtract(r, 0);
        const real y_k = has_y ? stage(k, Y) : real(0);
        if (has_y) {
#pragma unroll
            for (int r = 0; r < R; ++r)
                if (r + 1 < R || last_row) y[r] = y[r] - (SYMMETRIC ? given[r] * (y_k * inverse) : l[r] * y_k);
        }
        if (low == 0) {
            if (across == 0) stage(k + 1, INVERSE) = reciprocal(w[0][0]);
#pragma unroll
            for (int c = 0; c < R; ++c) stage(k + 1, across + P * c) = w[0][c];
            if (has_y) stage(k + 1, Y) = y[0];
        }
        if (across == 0)
#pragma unroll
            for (int r = 0; r < R; ++r) stage(k + 1, COLUMN + low + P * r) = w[r][0];
        enter(k + RING - 1);
#pragma unroll
        for (int r = 1; r < R; ++r)
#pragma unroll
            for (int c = 1; c < R; ++c) subtract(r, c);
        if (tr == 0) {
            const int place = band.pivot(k);
#pragma unroll
            for (int c = 0; c < R; ++c) {
                const int d = 1 + across + P * c;
                if (d <= half && k + d < n) store(place + d, u[c]), check = check + (u[c] - u[c]);
            }
        }
        if (tc == 0 && !SYMMETRIC) {
#pragma unroll
            for (int r = 0; r < R; ++r) {
                const int d = 1 + low + P * r;
                if (d <= half && k + d < n) store(band.left(k + d, k), l[r]), check = check + (l[r] - l[r]);
            }
        }
        if (warp == P * P - 1) store(band.pivot(k), inverse), check = check + (inverse - inverse);
        if (has_y && tr == 0 && inside) x[(int64)(columns == nullptr ? k : __ldg(columns + k)) * n_samples + s] = y_k;
    }
    wait_for_groups<0>();
    report(check, broken, s, inside);
}

template <bool> struct WiderOf {
    typedef real type;
};
template <> struct WiderOf<true> {
    typedef double type;
};
template <class F> using Widest = typename WiderOf<(sizeof(F) > sizeof(real))>::type;

#define SOLVE_RING 4

// One pass of a substitution, one sample per lane; rows of values are copied SOLVE_RING - 1 rows ahead. Shared memory of a
// lane: cells of half + 2 numbers, values of the terms in their order, reciprocal pivot and right-hand side; and the last
// rows of the solution.
template <int KIND, bool DOWN, class F>
__device__ __forceinline__ void band_pass(Widest<F>* ring, real* window, int mask, const F* __restrict__ values,
                                          int64 stride, int at, const real* from, real* x, int64 row_size, int64 here,
                                          const int* __restrict__ rows, const int* __restrict__ columns, int n, int half)
{
    const Band<KIND == LDLT> band{n, half};
    const int pitch = half + 2;
    const bool scaled = DOWN ? KIND == TRANSPOSED : KIND != TRANSPOSED;
    const auto terms_of = [&](int j) { return min(j, half); };
    // Row of the t-th term of row i, of m.
    const auto row_of = [&](int i, int t, int m) { return DOWN ? i - m + t : KIND == TRANSPOSED ? i + m - t : i + 1 + t; };
    const auto fetch = [&](int j) {
        if (j < n) {
            Widest<F>* const cell = ring + (j % SOLVE_RING) * pitch * WARP;
            const int i = DOWN ? j : n - 1 - j, m = terms_of(j);
            for (int t = 0; t < m; ++t) {
                const int k = row_of(i, t, m);
                const int place = KIND == LU || (KIND == LDLT && !DOWN) ? band.at(i, k) : band.at(k, i);
                copy_async<sizeof(F)>((F*)(cell + t * WARP), values + place * stride + at);
            }
            copy_async<sizeof(F)>((F*)(cell + half * WARP), values + band.pivot(i) * stride + at);
            const int64 row = rows == nullptr ? i : __ldg(rows + i);
            copy_async<sizeof(real)>((real*)(cell + (half + 1) * WARP), from + row * row_size + here);
        }
        close_group();
    };
    for (int j = 0; j < SOLVE_RING - 1; ++j) fetch(j);
#pragma unroll 1
    for (int j = 0; j < n; ++j) {
        wait_for_groups<SOLVE_RING - 2>();
        fetch(j + SOLVE_RING - 1);
        const Widest<F>* const cell = ring + (j % SOLVE_RING) * pitch * WARP;
        const int i = DOWN ? j : n - 1 - j, m = terms_of(j);
        real total = *(const real*)(cell + (half + 1) * WARP);
        const real pivot = real(*(const F*)(cell + half * WARP));
#pragma unroll 4
        for (int t = 0; t < m; ++t)
            total = total - real(*(const F*)(cell + t * WARP)) * window[(row_of(i, t, m) & mask) * WARP];
        if (scaled) total = total * pivot;
        window[(i & mask) * WARP] = DOWN && KIND == LDLT ? total * pivot : total;
        x[(columns == nullptr ? i : (int64)__ldg(columns + i)) * row_size + here] = total;
    }
    wait_for_groups<0>();
}

// b and x of shape (n, k, n_samples), blockIdx.y counts the columns; values of shape (n_values, n_samples), or 1 for all.
// Without b x holds y, and the second pass follows alone.
template <int KIND, class F>
__global__ void __launch_bounds__(WARP)
    band_solve(const F* __restrict__ values, const real* b, real* x, const int* __restrict__ rows,
               const int* __restrict__ columns, int n, int half, int mask, int n_columns, int shared_values, int n_samples)
{
    SHARED_VALUES(shared);
    Widest<F>* const ring = (Widest<F>*)shared + threadIdx.x;
    real* const window = (real*)((Widest<F>*)shared + SOLVE_RING * (half + 2) * WARP) + threadIdx.x;
    const int s = blockIdx.x * WARP + threadIdx.x;
    if (s >= n_samples) return;
    const int64 row_size = (int64)n_columns * n_samples, here = (int64)blockIdx.y * n_samples + s;
    const int64 stride = shared_values ? 1 : n_samples;
    const int at = shared_values ? 0 : s;
    if (b != nullptr) {
        band_pass<KIND, true, F>(ring, window, mask, values, stride, at, b, x, row_size, here, rows, columns, n, half);
        __threadfence_block();
    }
    band_pass<KIND, false, F>(ring, window, mask, values, stride, at, x, x, row_size, here, columns, columns, n, half);
}
