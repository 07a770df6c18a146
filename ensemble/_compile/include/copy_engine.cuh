// Copies by the copy engine: whole units of 16 bytes from one place to one place. Of copies to shared memory, one thread
// starts them and says how many bytes are expected; all threads wait for them. A barrier of arrivals is used again with
// the other parity. What threads wrote to shared memory is published, and a barrier passed, before a thread puts it to
// memory; that thread waits until it is read before it is written again.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ inline void start_arrivals(unsigned long long* arrived)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrived)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void expect(unsigned long long* arrived, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(arrived)), "r"(bytes)
                 : "memory");
}

__device__ inline void fetch(void* to, const void* from, int bytes, unsigned long long* arrived)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(arrived))
                 : "memory");
}

__device__ inline void wait_for(unsigned long long* arrived, int parity)
{
    int done = 0;
    while (!done)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(shared_address(arrived)), "r"(parity)
            : "memory");
}

__device__ inline void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ inline void put(void* to, const void* from, int bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

__device__ inline void close_puts() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ inline void wait_until_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void wait_for_puts() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
#define HAS_COPY_ENGINE true
#elif defined(__CUDA_ARCH__)
__device__ inline void start_arrivals(unsigned long long*) {}
__device__ inline void expect(unsigned long long*, int) {}
__device__ inline void fetch(void*, const void*, int, unsigned long long*) {}
__device__ inline void wait_for(unsigned long long*, int) {}
__device__ inline void publish() {}
__device__ inline void put(void*, const void*, int) {}
__device__ inline void close_puts() {}
__device__ inline void wait_until_read() {}
__device__ inline void wait_for_puts() {}
#define HAS_COPY_ENGINE false
#else  // one thread at a time, in order
__device__ inline void start_arrivals(unsigned long long*) {}
__device__ inline void expect(unsigned long long*, int) {}
__device__ inline void fetch(void* to, const void* from, int bytes, unsigned long long*) { memcpy(to, from, bytes); }
__device__ inline void wait_for(unsigned long long*, int) {}
__device__ inline void publish() {}
__device__ inline void put(void* to, const void* from, int bytes) { memcpy(to, from, bytes); }
__device__ inline void close_puts() {}
__device__ inline void wait_until_read() {}
__device__ inline void wait_for_puts() {}
#define HAS_COPY_ENGINE true
#endif
