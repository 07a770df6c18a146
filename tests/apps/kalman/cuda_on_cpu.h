// Just enough of CUDA for g++ to run the kernels: a block is 128 threads, blocks run one after another.
#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(n)
#define __shared__ static

struct Place { int x = 0, y = 0; };
static thread_local Place threadIdx, blockIdx;
static Place gridDim;
static pthread_barrier_t block_barrier, warp_barrier[4];
static double passed[128];

using std::max;
using std::min;
using std::fabs;
using std::log;

static void __syncthreads() { pthread_barrier_wait(&block_barrier); }

template <class T> T __shfl_up_sync(unsigned, T value, int distance) {
    const int me = threadIdx.x, lane = me % 32;
    pthread_barrier_wait(&warp_barrier[me / 32]);
    passed[me] = value;
    pthread_barrier_wait(&warp_barrier[me / 32]);
    return lane >= distance ? (T)passed[me - distance] : value;
}

template <class T> T __shfl_sync(unsigned, T value, int from) {
    const int me = threadIdx.x;
    pthread_barrier_wait(&warp_barrier[me / 32]);
    passed[me] = value;
    pthread_barrier_wait(&warp_barrier[me / 32]);
    return (T)passed[me / 32 * 32 + from];
}

static void __syncwarp() { pthread_barrier_wait(&warp_barrier[threadIdx.x / 32]); }
static void __threadfence() {}
static int atomicAdd(int* place, int more) { return __sync_fetch_and_add(place, more); }

#define STAGES alignas(16) static char stages[STAGE_BYTES + 16];

#include "kalman_problem.cuh"
#include "kalman_matrices.cuh"
#include "kalman_elements.cuh"
#include "kalman_steps.cuh"
#include "kalman_feed.cuh"
#include "kalman_scan.cuh"
#include "kalman_recursion.cuh"
#include FAMILY

template <class... A, std::size_t... I>
static void run(void (*kernel)(A...), int gx, int gy, void** arguments, std::index_sequence<I...>) {
    pthread_barrier_init(&block_barrier, nullptr, 128);
    for (auto& barrier : warp_barrier) pthread_barrier_init(&barrier, nullptr, 32);
    gridDim.x = gx;
    for (int y = 0; y < gy; ++y)
        for (int x = 0; x < gx; ++x) {
            std::vector<std::thread> threads;
            for (int t = 0; t < 128; ++t)
                threads.emplace_back([=] {
                    threadIdx.x = t;
                    blockIdx.x = x;
                    blockIdx.y = y;
                    kernel(*(A*)arguments[I]...);
                });
            for (auto& thread : threads) thread.join();
        }
}

#define LAUNCH(name)                                                                  \
    template <class... A> static void start_##name(void (*k)(A...), int gx, int gy, void** a) { \
        run(k, gx, gy, a, std::index_sequence_for<A...>{});                           \
    }                                                                                 \
    extern "C" void launch_##name(int gx, int gy, void** a) { start_##name(name, gx, gy, a); }

KERNELS
