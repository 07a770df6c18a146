// Scans over the threads of a block and over the blocks of a launch. `backward`: thread 0 and block 0 hold the last
// interval of time.

template <class E> __host__ __device__ constexpr int size_of() { return (int)(sizeof(E) / sizeof(REAL)); }

template <class E> __device__ __forceinline__ E shifted(const E& e, int distance) {
    E out;
    const REAL* from = (const REAL*)&e;
    REAL* to = (REAL*)&out;
    EACH(i, size_of<E>()) to[i] = __shfl_up_sync(0xffffffffu, from[i], distance);
    return out;
}

template <class E> __device__ __forceinline__ void join(bool backward, const E& before, const E& after, E& out) {
    if (backward) combine(after, before, out);
    else combine(before, after, out);
}

template <class E> __device__ __forceinline__ E of_lane(const E& e, int lane) {
    E out;
    const REAL* from = (const REAL*)&e;
    REAL* to = (REAL*)&out;
    EACH(i, size_of<E>()) to[i] = __shfl_sync(0xffffffffu, from[i], lane);
    return out;
}

// The exclusive scan over the first `count` threads; `total` on all threads. Without `each`, total alone.
template <class E> __device__ void block_scan(bool backward, bool each, int count, E& e, E& total, E* room) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n_warps = (count + WARP - 1) / WARP;
#pragma unroll 1
    for (int distance = 1; distance < min(WARP, count); distance *= 2) {
        const E other = shifted(e, distance);
        if (lane >= distance) join(backward, other, e, e);
    }
    if (lane == min(WARP, count - warp * WARP) - 1) room[warp] = e;
    e = shifted(e, 1);
    if (lane == 0) identity(e);
    __syncthreads();
    E warps;  // lane w of every warp has the total of warp w, then of all up to it
    warps = room[min(lane, n_warps - 1)];
#pragma unroll 1
    for (int distance = 1; distance < n_warps; distance *= 2) {
        const E other = shifted(warps, distance);
        if (lane >= distance && lane < n_warps) join(backward, other, warps, warps);
    }
    total = of_lane(warps, n_warps - 1);
    const E before = of_lane(warps, max(0, warp - 1));
    if (each && warp > 0 && warp < n_warps) join(backward, before, e, e);
    __syncthreads();
}

// Components apart, threads side by side: for what threads leave for threads of a later launch
template <class E> __device__ __forceinline__ void keep(REAL* to, Index stride, Index at, const E& e) {
    const REAL* from = (const REAL*)&e;
    EACH(i, size_of<E>()) to[i * stride + at] = from[i];
}

template <class E> __device__ __forceinline__ E kept(const REAL* from, Index stride, Index at) {
    E e;
    REAL* to = (REAL*)&e;
    EACH(i, size_of<E>()) to[i] = from[i * stride + at];
    return e;
}

// --- memory that other blocks write while this one runs
#ifdef __CUDA_ARCH__
__device__ __forceinline__ void raise(int* flag) { *(volatile int*)flag = 1; }
__device__ __forceinline__ void await(const int* flag) {
    while (*(const volatile int*)flag == 0) {}
    __threadfence();
}
__device__ __forceinline__ REAL fresh(const REAL* from) { return __ldcg(from); }
#else
inline void raise(int* flag) { *flag = 1; }
inline void await(const int*) {}
inline REAL fresh(const REAL* from) { return *from; }
#endif

// --- what blocks tell each other within one launch: `flags` is zero at the start; its first entry hands out places in the
// order in which blocks begin, so that nobody waits for a block that has none yet
__device__ __forceinline__ int turn(int* flags) {
    __shared__ int mine;
    if (threadIdx.x == 0) mine = atomicAdd(flags, 1);
    __syncthreads();
    return mine;
}

template <class E> __device__ __forceinline__ void tell(REAL* totals, int* flags, int place, const E& total) {
    if (threadIdx.x != 0) return;
    write<size_of<E>()>(totals + (Index)place * size_of<E>(), (const REAL*)&total);
    __threadfence();
    raise(flags + 1 + place);
}

template <class E> __device__ __forceinline__ E told(const REAL* totals, int place) {
    E e;
    REAL* to = (REAL*)&e;
    EACH(i, size_of<E>()) to[i] = fresh(totals + (Index)place * size_of<E>() + i);
    return e;
}

// What the blocks at first, first + way, ... have told, `n` of them, in one element; with flags, waits until they have
template <class E>
__device__ __forceinline__ void joined(
    bool backward, const REAL* totals, const int* flags, int first, int way, int n, E& total, E* room) {
    const int each = (n + THREADS - 1) / THREADS, start = (int)threadIdx.x * each;
    E e;
    identity(e);
#pragma unroll 1
    for (int j = start; j < min(n, start + each); ++j) {
        if (flags != nullptr) await(flags + 1 + first + way * j);
        if (j == start) e = told<E>(totals, first + way * j);
        else join(backward, e, told<E>(totals, first + way * j), e);
    }
    block_scan(backward, false, (n + each - 1) / each, e, total, room);
}
