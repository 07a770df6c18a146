// Scans over the threads of a block and over the blocks of a launch. With `backward`, thread 0 and block 0 hold the last
// interval of time.

template <class E> __host__ __device__ constexpr int size_of() { return (int)(sizeof(E) / sizeof(real)); }

template <class E> __device__ __forceinline__ E shuffle_up(const E& e, int distance) {
    E out;
    const real* from = (const real*)&e;
    real* to = (real*)&out;
    EACH(i, size_of<E>()) to[i] = __shfl_up_sync(0xffffffffu, from[i], distance);
    return out;
}

template <class E> __device__ __forceinline__ void combine_ordered(bool backward, const E& before, const E& after, E& out) {
    if (backward) combine(after, before, out);
    else combine(before, after, out);
}

template <class E> __device__ __forceinline__ E broadcast_lane(const E& e, int lane) {
    E out;
    const real* from = (const real*)&e;
    real* to = (real*)&out;
    EACH(i, size_of<E>()) to[i] = __shfl_sync(0xffffffffu, from[i], lane);
    return out;
}

// The exclusive scan over the first `count` threads; `total` on all threads. Without `each`, only the total.
template <class E> __device__ void block_scan(bool backward, bool each, int count, E& e, E& total, E* scratch) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n_warps = (count + WARP - 1) / WARP;
#pragma unroll 1
    for (int distance = 1; distance < min(WARP, count); distance *= 2) {
        const E other = shuffle_up(e, distance);
        if (lane >= distance) combine_ordered(backward, other, e, e);
    }
    if (lane == min(WARP, count - warp * WARP) - 1) scratch[warp] = e;
    e = shuffle_up(e, 1);
    if (lane == 0) identity(e);
    __syncthreads();
    E warps;  // lane w of every warp has the total of warp w, then of all up to it
    warps = scratch[min(lane, n_warps - 1)];
#pragma unroll 1
    for (int distance = 1; distance < n_warps; distance *= 2) {
        const E other = shuffle_up(warps, distance);
        if (lane >= distance && lane < n_warps) combine_ordered(backward, other, warps, warps);
    }
    total = broadcast_lane(warps, n_warps - 1);
    const E before = broadcast_lane(warps, max(0, warp - 1));
    if (each && warp > 0 && warp < n_warps) combine_ordered(backward, before, e, e);
    __syncthreads();
}

// One element per thread in global memory, components apart and threads adjacent: for threads of a later launch
template <class E> __device__ __forceinline__ void store_components(real* to, int64 stride, int64 at, const E& e) {
    const real* from = (const real*)&e;
    EACH(i, size_of<E>()) to[i * stride + at] = from[i];
}

template <class E> __device__ __forceinline__ E load_components(const real* from, int64 stride, int64 at) {
    E e;
    real* to = (real*)&e;
    EACH(i, size_of<E>()) to[i] = from[i * stride + at];
    return e;
}

// --- memory that other blocks write while this one runs
#ifdef __CUDA_ARCH__
__device__ __forceinline__ void set_flag(int* flag) { *(volatile int*)flag = 1; }
__device__ __forceinline__ void wait_for_flag(const int* flag) {
    while (*(const volatile int*)flag == 0) {}
    __threadfence();
}
__device__ __forceinline__ real load_from_l2(const real* from) { return __ldcg(from); }
#else
inline void set_flag(int* flag) { *flag = 1; }
inline void wait_for_flag(const int*) {}
inline real load_from_l2(const real* from) { return *from; }
#endif

// --- totals that blocks pass to later blocks of the launch. `flags` is zero at the start; its first entry numbers the blocks in
// the order in which they start, so that no block waits for one that has not started
__device__ __forceinline__ int take_ticket(int* flags) {
    __shared__ int mine;
    if (threadIdx.x == 0) mine = atomicAdd(flags, 1);
    __syncthreads();
    return mine;
}

template <class E> __device__ __forceinline__ void publish_total(real* totals, int* flags, int place, const E& total) {
    if (threadIdx.x != 0) return;
    write<size_of<E>()>(totals + (int64)place * size_of<E>(), (const real*)&total);
    __threadfence();
    set_flag(flags + 1 + place);
}

template <class E> __device__ __forceinline__ E load_total(const real* totals, int place) {
    E e;
    real* to = (real*)&e;
    EACH(i, size_of<E>()) to[i] = load_from_l2(totals + (int64)place * size_of<E>() + i);
    return e;
}

// The totals of the `n` blocks first, first + direction, ..., combined; with flags, waits until they are published
template <class E>
__device__ __forceinline__ void combine_totals(
    bool backward, const real* totals, const int* flags, int first, int direction, int n, E& total, E* scratch) {
    const int each = (n + THREADS - 1) / THREADS, start = (int)threadIdx.x * each;
    E e;
    identity(e);
#pragma unroll 1
    for (int j = start; j < min(n, start + each); ++j) {
        if (flags != nullptr) wait_for_flag(flags + 1 + first + direction * j);
        if (j == start) e = load_total<E>(totals, first + direction * j);
        else combine_ordered(backward, e, load_total<E>(totals, first + direction * j), e);
    }
    block_scan(backward, false, (n + each - 1) / each, e, total, scratch);
}
