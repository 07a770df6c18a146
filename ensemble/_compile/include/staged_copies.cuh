// Copies of 16 bytes from memory to shared memory that wait for no register; both addresses are multiples of 16.

#ifdef __CUDA_ARCH__
__device__ inline void start_copy(void* to, const void* from)
{
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}

__device__ inline void finish_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }  // of this thread
#else
__device__ inline void start_copy(void* to, const void* from) { *(int4*)to = *(const int4*)from; }

__device__ inline void finish_copies() {}
#endif
