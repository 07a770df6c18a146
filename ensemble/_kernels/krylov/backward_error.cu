// Residuals and backward errors: a block carries blockDim.x samples, its rows of threads share the rows of the matrix. What
// is computed stands in backward_error.py; the largest of numbers has no order.

#define MOST_THREADS 512

// The largest over the threads of one sample, and the sum of `check`, which is zero or NaN.
__device__ __forceinline__ real largest_of_block(real largest, real& check)
{
    __shared__ real most[MOST_THREADS], checks[MOST_THREADS];
    const int at = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();
    most[at] = largest, checks[at] = check;
    __syncthreads();
    largest = 0, check = 0;
    for (int t = threadIdx.x; t < blockDim.x * blockDim.y; t += blockDim.x) {
        largest = most[t] > largest ? most[t] : largest;
        check = check + checks[t];
    }
    return largest;
}

__global__ void __launch_bounds__(MOST_THREADS)
    backward_error(const offset* __restrict__ indptr, const int* __restrict__ indices, const real* __restrict__ values,
                   const real* __restrict__ x, const real* __restrict__ b, const real* __restrict__ inverse, real* r,
                   real* by_rows, real* by_entries, real* cancelled, int n_rows, int shared, int n_samples, int pivots)
{
    const int own = blockIdx.x * blockDim.x + threadIdx.x;
    const bool inside = own < n_samples;
    const int s = inside ? own : n_samples - 1, at = shared ? 0 : s;
    const int64 stride = shared ? 1 : n_samples, wide = n_samples;
    real largest = 0, most = 0, worst = 0, least = 0, check = 0, none = 0;
    for (int i = threadIdx.y; i < n_rows; i += blockDim.y) {
        const real value = fabs(x[i * wide + s]);
        largest = value > largest ? value : largest;
    }
    largest = largest_of_block(largest, check);
    for (int i = threadIdx.y; i < n_rows; i += blockDim.y) {
        real total = 0, size = 0, weight = 0;
        const offset end = __ldg(indptr + i + 1);
#pragma unroll 4
        for (offset k = __ldg(indptr + i); k < end; ++k) {
            const real entry = values[k * stride + at];
            const real part = x[__ldg(indices + k) * wide + s];
            total = total + entry * part;
            size = size + fabs(entry);
            weight = weight + fabs(entry) * fabs(part);
        }
        const real right = b[i * wide + s];
        total = right - total;
        if (inside) r[i * wide + s] = total;
        if (pivots) {
            const real ratio = size * fabs(inverse[i * stride + at]);
            least = ratio > least ? ratio : least;
        }
        size = size * largest + fabs(right);
        check = check + ((total - total) + (size - size));
        total = fabs(total);
        const real by_row = total == 0 ? real(0) : total / size;
        most = by_row > most ? by_row : most;
        const real by_entry = total == 0 ? real(0) : total / (weight + fabs(right));
        worst = by_entry > worst ? by_entry : worst;
    }
    most = largest_of_block(most, check);
    worst = largest_of_block(worst, none);
    least = largest_of_block(least, none);
    if (inside && threadIdx.y == 0) by_rows[s] = most + check, by_entries[s] = worst + check, cancelled[s] = least;
}
