// The coarsest level: products with dense matrices of shape (n, n, n_samples).

#define SHARES 16

// One block a row and tile of samples: SHARES groups of threads add up a run of columns each.
template <bool SHARED>
__global__ void dense_product(const real* __restrict__ matrix, const real* __restrict__ x, real* y, int n_columns,
                              int n_samples)
{
    __shared__ Pack sums[SHARES][LANES];
    const int64 row = blockIdx.x;
    const int s = sample_here(), lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const int length = (n_columns + SHARES - 1) / SHARES, begin = group * length;
    const int end = begin + length < n_columns ? begin + length : n_columns;
    Pack total = spread(0);
    if (s < n_samples) {
#pragma unroll UNROLL
        for (int j = begin; j < end; ++j) {
            const int64 k = row * n_columns + j;
            const Pack a = SHARED ? spread(read_only(matrix + k)) : load_shared(matrix + k * n_samples + s);
            total = total + a * load_shared(x + (int64)j * n_samples + s);
        }
    }
    sums[group][lane] = total;
    __syncthreads();
    if (group == 0 && s < n_samples) {
        for (int g = 1; g < SHARES; ++g) total = total + sums[g][lane];
        store(y + row * n_samples + s, total);
    }
}
