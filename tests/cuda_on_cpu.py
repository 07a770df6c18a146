"""CUDA kernels without a GPU: the same sources compiled by g++, each thread of a block a coroutine.

Slow, and blind to races between blocks; but it runs every kernel's arithmetic, indexing and barriers without a device.
An access to an address that is no multiple of its type's alignment stops the kernel with an error, as on a device.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

COMPILER = shutil.which("g++")

# The standard C++ headers take longer to read than most kernels to compile, and so does what is static here and in use:
# the rest is in `RUNTIME`.
HEADER = r"""
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS  // those of C itself
#include <math.h>
#include <stdlib.h>
#include <string.h>
#undef isfinite
#undef isnan
struct dim3 { unsigned x, y, z; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) double2 { double x, y; };
namespace emulator {
    extern dim3 gridDim, blockDim, blockIdx, threadIdx;
    extern size_t current;
    enum { FRESH, WAITING, WAITING_IN_WARP, DONE };
    void wait(char how);
    int put_lane(const void* value, size_t size);
    extern unsigned long long shared_lanes[2][1024];
    const char* run(void (*kernel)(void**), const long long* launch);
}
using emulator::gridDim, emulator::blockDim, emulator::blockIdx, emulator::threadIdx;

#define INLINE inline __attribute__((always_inline))  // also where nothing is optimised
#define __global__ static
#define __device__
#define __constant__
#define __host__
#define __shared__ static
#define __restrict__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
INLINE float fma(float a, float b, float c) { return fmaf(a, b, c); }
INLINE float sqrt(float x) { return sqrtf(x); }
INLINE float fabs(float x) { return fabsf(x); }
INLINE float log(float x) { return logf(x); }
template <class T> INLINE bool isfinite(T x) { return __builtin_isfinite(x); }
template <class T> INLINE bool isnan(T x) { return __builtin_isnan(x); }
template <class T> INLINE const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> INLINE const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> INLINE T __ldg(const T* p) { return *p; }
template <class T> INLINE T __ldcs(const T* p) { return *p; }
template <class T> INLINE void __stcs(T* p, const T& v) { *p = v; }
INLINE double2 make_double2(double x, double y) { return {x, y}; }
INLINE int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
INLINE int2 make_int2(int x, int y) { return {x, y}; }

// Dynamic shared memory: kernels declare theirs by this macro.
#define SHARED_VALUES(name) static real name[1 << 15]

#define __syncthreads() emulator::wait(emulator::WAITING)
#define __syncwarp() emulator::wait(emulator::WAITING_IN_WARP)  // by all threads of a warp equally often
#define __threadfence()
#define __threadfence_block()
// One thread runs at a time, and to its next barrier.
template <class T, class V> INLINE T exchanged(T* p, V v) { const T old = *p; *p = v; return old; }
template <class T> INLINE T atomicAdd(T* p, T v) { return exchanged(p, *p + v); }
template <class T> INLINE T atomicMax(T* p, T v) { return exchanged(p, *p < v ? v : *p); }
template <class T> INLINE T atomicMin(T* p, T v) { return exchanged(p, v < *p ? v : *p); }
template <class T> INLINE T atomicCAS(T* p, T seen, T v) { return exchanged(p, *p == seen ? v : *p); }
INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
INLINE unsigned long long __double2ull_rn(double x) { return (unsigned long long)nearbyint(x); }
template <class To, class From> INLINE To bits_as(From x) { To y; memcpy(&y, &x, sizeof y); return y; }
INLINE int __float_as_int(float x) { return bits_as<int>(x); }
INLINE float __int_as_float(int x) { return bits_as<float>(x); }
INLINE long long __double_as_longlong(double x) { return bits_as<long long>(x); }
INLINE double __longlong_as_double(long long x) { return bits_as<double>(x); }
// Of values of 8 bytes; for kernels in which all threads of a warp come here together.
template <class T> INLINE T lane_value(int turn, size_t thread)
{
    T value;
    memcpy(&value, &emulator::shared_lanes[turn][thread], sizeof value);
    return value;
}
template <class T> INLINE T __shfl_xor_sync(unsigned, T value, int step)
{
    return lane_value<T>(emulator::put_lane(&value, sizeof value), emulator::current ^ step);
}
template <class T> INLINE T __shfl_up_sync(unsigned, T value, int step)
{
    const int turn = emulator::put_lane(&value, sizeof value);
    return (int)emulator::current % 32 >= step ? lane_value<T>(turn, emulator::current - step) : value;
}
template <class T> INLINE T __shfl_sync(unsigned, T value, int lane, int width = 32)
{
    return lane_value<T>(emulator::put_lane(&value, sizeof value), emulator::current / width * width + lane);
}
void mma_16_8_4(double* c, double a0, double a1, double b);

template <size_t... I> struct Indices {};
template <class... A, size_t... I> INLINE void unpack(void (*kernel)(A...), void** given, Indices<I...>)
{
    kernel(*reinterpret_cast<A*>(given[I])...);
}
template <class... A> INLINE void call(void (*kernel)(A...), void** given)
{
    unpack(kernel, given, Indices<__integer_pack(sizeof...(A))...>());
}
"""

# The threads of a block, and what they exchange: one library for all modules.
RUNTIME = r"""
#include <setjmp.h>
#include <stdio.h>
#include <ucontext.h>
namespace emulator {
enum { MOST_THREADS = 1024, MOST_ARGUMENTS = 256, MARGIN = 4096 };
dim3 gridDim, blockDim, blockIdx, threadIdx;
size_t current;
unsigned long long shared_lanes[2][MOST_THREADS];
static ucontext_t fibers[MOST_THREADS];
static jmp_buf back, stopped;  // swapping contexts asks the system each time, jumping does not
static struct { jmp_buf at; } marks[MOST_THREADS];
static char state[MOST_THREADS], started[MOST_THREADS], parity[MOST_THREADS];
static void (*launched)(void**);  // what `enter` runs in each thread
static void* given[MOST_ARGUMENTS];
static char message[256];
void wait(char how)
{
    state[current] = how;
    if (!_setjmp(marks[current].at)) _longjmp(back, 1);
}
int put_lane(const void* value, size_t size)
{
    const int turn = parity[current] ^= 1;
    memcpy(&shared_lanes[turn][current], value, size);
    __syncwarp();
    return turn;
}
static void enter()  // a context goes on with the next block: making one takes longer than most kernels
{
    for (;;) {
        launched(given);
        wait(DONE);
    }
}
static void start(size_t t)
{
    // Stacks that lie a power of two apart would share the same lines of the caches.
    const size_t size = (1 << 18) + 17 * 64;
    static char* stacks = static_cast<char*>(malloc(MOST_THREADS * size));
    getcontext(&fibers[t]);
    fibers[t].uc_stack.ss_sp = &stacks[t * size], fibers[t].uc_stack.ss_size = size;
    makecontext(&fibers[t], enter, 0);
    started[t] = 1;
    setcontext(&fibers[t]);
}
static void __attribute__((noinline)) resume()
{
    if (_setjmp(back)) return;
    if (!started[current]) start(current);
    _longjmp(marks[current].at, 1);
}
static void run_block(size_t n)
{
    memset(state, FRESH, n), memset(parity, 0, n);
    for (bool running = true, among_warps = true; running;) {
        running = false;
        const bool block_waits = !among_warps;  // every thread has come to the block's barrier, or is done
        among_warps = false;
        current = 0;
        for (unsigned z = 0; z < blockDim.z; ++z)
            for (unsigned y = 0; y < blockDim.y; ++y)
                for (unsigned x = 0; x < blockDim.x; ++x, ++current) {
                    if (state[current] == DONE) continue;
                    running = true;
                    if (state[current] == WAITING && !block_waits) continue;
                    among_warps = true;
                    threadIdx = {x, y, z};
                    resume();
                }
    }
}
static bool is_clean(const char* margin, size_t size)
{
    while (size && *margin == (char)0xFF) ++margin, --size;
    return !size;
}
// Kernels get copies of memory, between margins whose bytes are NaN for every floating type: what is read there shows.
struct Memory {
    char *place, *copy;
    size_t size, before;
};
// `launch`: numbers of pieces of memory and of arguments, grid, block; address and size of each piece; a piece and a
// position in it for each argument that is an array, -1 and the address of its value for the others.
const char* run(void (*kernel)(void**), const long long* launch)
{
    static Memory pieces[MOST_ARGUMENTS];
    static long long addresses[MOST_ARGUMENTS], reserved;
    static char* buffer;
    const size_t n_pieces = launch[0], n_arguments = launch[1];
    gridDim = {(unsigned)launch[2], (unsigned)launch[3], (unsigned)launch[4]};
    blockDim = {(unsigned)launch[5], (unsigned)launch[6], (unsigned)launch[7]};
    const long long *from = launch + 8, *of_arguments = from + 2 * n_pieces;
    long long wanted = 64;
    for (size_t i = 0; i < n_pieces; ++i) wanted += from[2 * i + 1] + 2 * MARGIN + 128;
    if (wanted > reserved) free(buffer), reserved = 2 * wanted, buffer = static_cast<char*>(malloc(reserved));
    char* at = buffer;
    for (size_t i = 0; i < n_pieces; ++i) {
        Memory& m = pieces[i];
        m.place = reinterpret_cast<char*>(from[2 * i]), m.size = from[2 * i + 1];
        m.before = MARGIN + ((size_t)m.place - (size_t)at - MARGIN) % 64;  // as the array itself is aligned
        m.copy = at + m.before;
        memset(at, 0xFF, m.before), memcpy(m.copy, m.place, m.size), memset(m.copy + m.size, 0xFF, MARGIN);
        at = m.copy + m.size + MARGIN;
    }
    for (size_t i = 0; i < n_arguments; ++i) {
        const long long piece = of_arguments[2 * i], position = of_arguments[2 * i + 1];
        addresses[i] = piece < 0 ? 0 : (long long)(pieces[piece].copy + position);
        given[i] = piece < 0 ? reinterpret_cast<void*>(position) : &addresses[i];
    }
    launched = kernel;
    if (_setjmp(stopped)) {
        memset(started, 0, sizeof started);  // the contexts are left within the kernel
        return message;
    }
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
                run_block(blockDim.x * blockDim.y * blockDim.z);
    for (size_t i = 0; i < n_pieces; ++i) {
        const Memory& m = pieces[i];
        if (is_clean(m.copy - m.before, m.before) && is_clean(m.copy + m.size, MARGIN)) continue;
        snprintf(message, sizeof message, "%zu", i);
        return message;
    }
    for (size_t i = 0; i < n_pieces; ++i) memcpy(pieces[i].place, pieces[i].copy, pieces[i].size);
    return nullptr;
}
}  // namespace emulator
using namespace emulator;

// The matrix unit: c += a b of (16, 4) and (4, 8), a chain of fused multiply-adds.
void mma_16_8_4(double* c, double a0, double a1, double b)
{
    static double shared_factors[3][2][MOST_THREADS];
    const int turn = parity[current] ^ 1;
    const double given[3] = {a0, a1, b};
    for (int i = 0; i < 3; ++i) shared_factors[i][turn][current] = given[i];
    put_lane(&b, sizeof b);
    const size_t warp = current / 32 * 32, g = current % 32 / 4, t = current % 4;
    for (int i = 0; i < 4; ++i) {
        const double *a = &shared_factors[i / 2][turn][warp + 4 * g], *column = &shared_factors[2][turn][warp + 8 * t];
        for (int k = 0; k < 4; ++k) c[i] = fma(a[k], column[i % 2 * 4 + k], c[i]);
    }
}
// Where the compiler checks the alignment of an access, this is called if it does not hold.
struct Access { const char* file; unsigned line, column; const void* type; unsigned char log_alignment, kind; };
extern "C" void __ubsan_handle_type_mismatch_v1_abort(void* access, void* address)
{
    const Access& at = *static_cast<Access*>(access);
    snprintf(message, sizeof message, "%u:%d:%zu", at.line, 1 << at.log_alignment, (size_t)address);
    _longjmp(stopped, 1);
}
"""

ENTRY = r"""
extern "C" const char* launch_{k}(const long long* launch)
{{
    return emulator::run([](void** given) {{ call({name}, given); }}, launch);
}}
"""


COMMAND = [str(COMPILER), "-w", "-std=c++17", "-ffp-contract=off", "-fno-exceptions", "-fPIC", "-U_FORTIFY_SOURCE"]

# Without -fno-gnu-unique the shared memory of a function template is one array in all libraries of a process,
# as long as the first one needs it.
CHECKED = ["-fno-gnu-unique", "-fsanitize=alignment", "-fno-sanitize-recover=alignment"]


def built(name: str, text: str, *options: str) -> Path:
    """The file that the compiler makes of `text`, kept on disk: one process compiles it, others wait for it.

    `name` is an ending: the compiler reads a file of that name less its last suffix, which stays beside the result.
    """
    folder = Path(tempfile.gettempdir()) / "cuda-on-cpu"
    folder.mkdir(exist_ok=True)
    path = folder / (hashlib.sha256("\0".join([text, *COMMAND, *options]).encode()).hexdigest()[:24] + name)
    if not path.exists():
        with open(path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                source, building = path.with_suffix(""), path.with_suffix(".building")
                source.write_text(text)
                subprocess.run([*COMMAND, *options, str(source), "-o", str(building)], check=True)
                building.rename(path)
    return path


class Module:
    """``cupy.RawModule`` on the CPU; compiled at the first launch, with the optimisation option `level`."""

    def __init__(self, source: str, options: tuple[str, ...], instances: tuple[str, ...], level: str = "-O0") -> None:
        self.level = level
        entries = "".join(ENTRY.format(k=k, name=name) for k, name in enumerate(instances))
        self.text = source.replace('extern "C" __global__', "__global__") + entries
        self.macros = [option for option in options if option.startswith("-D")]
        self.names = {name: k for k, name in enumerate(instances)}

    @functools.cached_property
    def library(self) -> ctypes.PyDLL:
        # Where the compiled header does not go with the options, the compiler reads its text.
        header = str(built(".hpp.gch", HEADER, "-x", "c++-header", self.level, *CHECKED).with_suffix(""))
        runtime = str(built(".cpp.so", HEADER + RUNTIME, "-O2", "-shared"))
        linked = ("-shared", "-nostdlib", "-include", header, "-Wl,--no-as-needed", runtime)
        return ctypes.PyDLL(str(built(".cpp.so", self.text, self.level, *CHECKED, *self.macros, *linked)))

    def get_function(self, name: str) -> Any:
        k = self.names[name]

        def run(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...], shared_mem: int = 0) -> None:
            launch = getattr(self.library, f"launch_{k}")
            launch.restype = ctypes.c_char_p
            memory, places, _held = arguments_of(arguments)
            sizes = [*grid, 1, 1][:3] + [*block, 1, 1][:3]
            words = [len(memory), len(arguments), *sizes, *(word for _, *words in memory for word in words), *places]
            failure = launch((ctypes.c_longlong * len(words))(*words))
            if failure:
                raise AssertionError(f"{name}{self.failure_of(failure, memory)}")

        return run

    def failure_of(self, message: bytes, memory: list[tuple[Any, int, int]]) -> str:
        """What the kernel did."""
        if b":" not in message:
            return f" wrote outside an array of shape {memory[int(message)][0].shape}"
        (line, alignment, address), lines = map(int, message.split(b":")), self.text.splitlines()
        text = lines[line - 1].strip() if line <= len(lines) else ""
        return f": address {address:#x} is no multiple of {alignment} in line {line}: {text}"


def arguments_of(arguments: tuple[Any, ...]) -> tuple[list[tuple[Any, int, int]], list[int], list[Any]]:
    """The memory that arrays lie in, each once with address and size; where each argument is; what holds its value."""
    memory: dict[int, tuple[int, Any, int, int]] = {}
    places, values = [], []
    for argument in arguments:
        if not (isinstance(argument, np.ndarray) and argument.ndim):
            values.append(np.asarray(argument))
            places += -1, values[-1].__array_interface__["data"][0]
        elif not argument.size:
            values.append(np.zeros(1, np.uint64))
            places += -1, values[-1].__array_interface__["data"][0]
        else:
            root = argument
            while isinstance(root.base, np.ndarray):
                root = root.base
            if id(root) not in memory:
                low, high = np.lib.array_utils.byte_bounds(root)
                memory[id(root)] = len(memory), root, low, high - low
            k, _, low, _ = memory[id(root)]
            places += k, argument.__array_interface__["data"][0] - low
    return [piece[1:] for piece in memory.values()], places, values
