// Copies to shared memory that wait for no register; addresses are multiples of their size.

template <int SIZE> __device__ __forceinline__ void copy_async(void* to, const void* from)
{
#ifdef __CUDA_ARCH__
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(SIZE) : "memory");
#else
    for (int i = 0; i < SIZE; ++i) ((char*)to)[i] = ((const char*)from)[i];
#endif
}

// The same, past the first-level cache where that can be: for what one block alone reads, once.
template <int SIZE> __device__ __forceinline__ void copy_async_once(void* to, const void* from)
{
#ifdef __CUDA_ARCH__
    if constexpr (SIZE == 16) {
        const unsigned at = (unsigned)__cvta_generic_to_shared(to);
        asm volatile("cp.async.cg.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(SIZE) : "memory");
        return;
    }
#endif
    copy_async<SIZE>(to, from);
}

// As the first one, or zero unless `there`.
template <int SIZE> __device__ __forceinline__ void copy_async_or_zero(void* to, const void* from, bool there)
{
#ifdef __CUDA_ARCH__
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    const int size = there ? SIZE : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(SIZE), "r"(size) : "memory");
#else
    for (int i = 0; i < SIZE; ++i) ((char*)to)[i] = there ? ((const char*)from)[i] : 0;
#endif
}

__device__ __forceinline__ void close_group()
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Until this thread's groups but the last COUNT are there.
template <int COUNT> __device__ __forceinline__ void wait_for_groups()
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
#endif
}

__device__ __forceinline__ void wait_for_copies()  // all that this thread started
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
