// Matrices of any size, run-time arguments, processed by all threads of a block.
//
// They are stored by rows in shared memory, or in a piece of global memory where that is too small, with an odd number of
// entries from row to row, so that a column falls on different banks. Every function ends with a barrier.

// Entries shared out over the threads of a block, and a loop of each thread; unrolled code would take long to compile
#define BLOCK_STRIDE(e, n) _Pragma("unroll 1") for (int e = threadIdx.x; e < (n); e += blockDim.x)
#define FOR(i, from, to) _Pragma("unroll 1") for (int i = (from); i < (to); ++i)

struct Matrix {
    real* entries;
    int stride;
    __device__ __forceinline__ real& operator()(int i, int j) const { return entries[i * stride + j]; }
};

// Work space of one block: arrays are taken from it in the same order by all threads
struct Workspace {
    real* next;
    __device__ __forceinline__ real* vector(int n) {
        real* const taken = next;
        next += n;
        return taken;
    }
    __device__ __forceinline__ Matrix matrix(int rows, int columns) {
        return Matrix{vector(rows * (columns | 1)), columns | 1};
    }
};

// Products: out = A B, or with A or B transposed; (m, k) times (k, n). PLUS adds to `out`, MINUS subtracts from it.
enum Mode { SET, PLUS, MINUS };

template <Mode MODE = SET, bool A_TRANSPOSED = false, bool B_TRANSPOSED = false>
__device__ __noinline__ void multiply(const Matrix out, const Matrix A, const Matrix B, int m, int k, int n) {
    BLOCK_STRIDE(e, m * n) {
        const int i = e / n, j = e - i * n;
        const real* a = A.entries + (A_TRANSPOSED ? i : i * A.stride);
        const real* b = B.entries + (B_TRANSPOSED ? j * B.stride : j);
        const int step_a = A_TRANSPOSED ? A.stride : 1, step_b = B_TRANSPOSED ? 1 : B.stride;
        real sum = 0;
        for (int l = 0; l < k; ++l, a += step_a, b += step_b) sum += *a * *b;
        if (MODE == SET) out(i, j) = sum;
        else if (MODE == PLUS) out(i, j) += sum;
        else out(i, j) -= sum;
    }
    __syncthreads();
}

// y = A x, added to or subtracted from y; A is (m, n), transposed (n, m)
template <Mode MODE = SET, bool TRANSPOSED = false>
__device__ __noinline__ void apply(real* y, const Matrix A, const real* x, int m, int n) {
    BLOCK_STRIDE(i, m) {
        real sum = 0;
        FOR(j, 0, n) sum += (TRANSPOSED ? A(j, i) : A(i, j)) * x[j];
        if (MODE == SET) y[i] = sum;
        else if (MODE == PLUS) y[i] += sum;
        else y[i] -= sum;
    }
    __syncthreads();
}

// out = T B' + C for a product that is known to be symmetric; C may be null, or `out`. T and B are (n, k).
__device__ __noinline__ void symmetric_product(const Matrix out, const Matrix T, const Matrix B, int n, int k, const real* C, int stride) {
    BLOCK_STRIDE(e, n * n) {
        const int i = e / n, j = e - i * n;
        if (j < i) continue;
        real sum = C == nullptr ? real(0) : C[i * stride + j];
        for (int l = 0; l < k; ++l) sum += T(i, l) * B(j, l);
        out(i, j) = out(j, i) = sum;
    }
    __syncthreads();
}

// out = A S A' + C, S and C symmetric; `product` holds A S
__device__ void congruence(
    const Matrix out, const Matrix A, const Matrix S, const Matrix product, int m, int n, const real* C, int stride) {
    multiply(product, A, S, m, n, n);
    symmetric_product(out, product, A, m, n, C, stride);
}

__device__ __noinline__ void copy(const Matrix to, const Matrix from, int m, int n) {
    BLOCK_STRIDE(e, m * n) { const int i = e / n, j = e - i * n; to(i, j) = from(i, j); }
    __syncthreads();
}

__device__ __noinline__ void fill(const Matrix A, int m, int n, real value, real diagonal) {
    BLOCK_STRIDE(e, m * n) { const int i = e / n, j = e - i * n; A(i, j) = i == j ? diagonal : value; }
    __syncthreads();
}

__device__ __noinline__ void fill(real* x, int n, real value) {
    BLOCK_STRIDE(i, n) x[i] = value;
    __syncthreads();
}

// From global memory, where rows are contiguous; with `symmetric` the triangle above the diagonal counts
__device__ __noinline__ void load(const Matrix to, const real* from, int m, int n, bool symmetric = false) {
    BLOCK_STRIDE(e, m * n) {
        const int i = e / n, j = e - i * n;
        if (!symmetric) to(i, j) = from[e];
        else if (j >= i) to(i, j) = to(j, i) = from[e];
    }
    __syncthreads();
}

__device__ __noinline__ void load(real* to, const real* from, int n) {
    BLOCK_STRIDE(i, n) to[i] = from[i];
    __syncthreads();
}

__device__ __noinline__ void store(real* to, const Matrix from, int m, int n) {
    BLOCK_STRIDE(e, m * n) { const int i = e / n, j = e - i * n; to[e] = from(i, j); }
    __syncthreads();
}

__device__ __noinline__ void store(real* to, const real* from, int n) {
    BLOCK_STRIDE(i, n) to[i] = from[i];
    __syncthreads();
}

// S = L D L' of a symmetric matrix in its place: L below the diagonal, pivots on it, and their inverses
__device__ __noinline__ void factor(const Matrix S, real* inverse, int n) {
    FOR(j, 0, n) {
        if (threadIdx.x == 0) inverse[j] = real(1) / S(j, j);
        __syncthreads();
        const int left = n - 1 - j;
        BLOCK_STRIDE(i, left) S(j + 1 + i, j) = S(j, j + 1 + i) * inverse[j];
        __syncthreads();
        BLOCK_STRIDE(e, left * left) {
            const int i = j + 1 + e / left, k = j + 1 + e % left;
            if (k >= i) S(i, k) -= S(i, j) * S(j, k);
        }
        __syncthreads();
    }
}

// (I + C J) X = right by elimination with row exchange; X overwrites `right`, (n, columns). M is work space, (n, n).
__device__ __noinline__ void solve_sum(const Matrix C, const Matrix J, const Matrix right, const Matrix M, int n, int columns) {
    BLOCK_STRIDE(e, n * n) {
        const int i = e / n, j = e - i * n;
        real sum = i == j;
        for (int k = 0; k < n; ++k) sum += C(i, k) * J(k, j);
        M(i, j) = sum;
    }
    __syncthreads();
    FOR(c, 0, n) {
        int row = c;  // every thread finds it
        FOR(i, c + 1, n)
            if (fabs(M(i, c)) > fabs(M(row, c))) row = i;
        __syncthreads();
        const int left = n - c, width = left + columns;
        if (row != c)
            BLOCK_STRIDE(j, width) {
                real &a = j < left ? M(c, c + j) : right(c, j - left), &b = j < left ? M(row, c + j) : right(row, j - left);
                const real kept = a;
                a = b;
                b = kept;
            }
        __syncthreads();
        const real inverse = real(1) / M(c, c);
        BLOCK_STRIDE(e, (left - 1) * (width - 1)) {
            const int i = c + 1 + e / (width - 1), j = 1 + e % (width - 1);
            const real f = M(i, c) * inverse;
            if (j < left) M(i, c + j) -= f * M(c, c + j);
            else right(i, j - left) -= f * right(c, j - left);
        }
        __syncthreads();
    }
    BLOCK_STRIDE(j, columns)
        _Pragma("unroll 1") for (int i = n - 1; i >= 0; --i) {
            real sum = right(i, j);
            FOR(k, i + 1, n) sum -= M(i, k) * right(k, j);
            right(i, j) = sum / M(i, i);
        }
    __syncthreads();
}

// X' for S X = right, (n, columns), from the factors of S; `right` becomes L^-1 right
__device__ __noinline__ void solve(const Matrix S, const real* inverse, const Matrix right, const Matrix Xt, int n, int columns) {
    BLOCK_STRIDE(c, columns) {
        FOR(i, 0, n) {
            real sum = right(i, c);
            FOR(j, 0, i) sum -= S(i, j) * right(j, c);
            right(i, c) = sum;
        }
        _Pragma("unroll 1") for (int i = n - 1; i >= 0; --i) {
            real sum = right(i, c) * inverse[i];
            FOR(j, i + 1, n) sum -= S(j, i) * Xt(c, j);
            Xt(c, i) = sum;
        }
    }
    __syncthreads();
}
