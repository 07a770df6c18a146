// Reciprocal pivots, and what their samples report.

#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

#define MOST_THREADS 512

__device__ __forceinline__ real reciprocal(real pivot)
{
    const real inverse = real(1) / pivot;
    return inverse - inverse != 0 || !(inverse != 0) ? real(NAN) : inverse;
}

// NaN in `broken` where any thread of the sample met a number that is not finite.
__device__ __forceinline__ void report(real check, real* broken, int s, bool inside)
{
    __shared__ char marks[MOST_THREADS];
    const int at = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();
    marks[at] = check != check;
    __syncthreads();
    if (threadIdx.y != 0 || !inside) return;
    bool any = false;
    for (int t = threadIdx.x; t < blockDim.x * blockDim.y; t += blockDim.x) any = any || marks[t];
    broken[s] = any ? real(NAN) : real(0);
}
