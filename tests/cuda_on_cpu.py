"""CUDA kernels without a GPU: the same sources compiled by g++, each thread of a block a coroutine.

Slow, and blind to races between blocks; but it runs every kernel's arithmetic, indexing and barriers without a device.
An access to an address that is no multiple of its type's alignment stops the kernel with an error, as on a device.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

COMPILER = shutil.which("g++")

HEADER = r"""
#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <utility>
#include <vector>
using std::fma;
using std::isfinite;
using std::fabs;
using std::isnan;
using std::log;
using std::max;
using std::min;
using std::sqrt;
struct dim3 { unsigned x, y, z; };
static dim3 gridDim, blockDim, blockIdx, threadIdx;
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) double2 { double x, y; };

#define __global__ static
#define __device__
#define __constant__
#define __host__
#define __shared__ static
#define __restrict__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
template <class T> static T __ldg(const T* p) { return *p; }
template <class T> static T __ldcs(const T* p) { return *p; }
template <class T> static void __stcs(T* p, const T& v) { *p = v; }
static double2 make_double2(double x, double y) { return {x, y}; }
static int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static int2 make_int2(int x, int y) { return {x, y}; }

// Dynamic shared memory: kernels declare theirs by this macro.
#define SHARED_VALUES(name) static real name[1 << 15]

static ucontext_t scheduler;
static jmp_buf back;  // swapping contexts asks the system each time, jumping does not
static std::vector<ucontext_t> fibers;
struct Mark { jmp_buf at; };
static std::vector<Mark> marks;
static std::vector<char> state, started;
enum { FRESH, WAITING, WAITING_IN_WARP, DONE };
static size_t current;
static void (*launched)(void**);  // what `enter` runs in each thread
static void** arguments;
static void wait(char how)
{
    state[current] = how;
    if (!_setjmp(marks[current].at)) _longjmp(back, 1);
}
static void __syncthreads() { wait(WAITING); }
static void __syncwarp() { wait(WAITING_IN_WARP); }  // by all threads of a warp equally often
static void __threadfence() {}
static void __threadfence_block() {}
// One thread runs at a time, and to its next barrier.
template <class T, class V> static T exchanged(T* p, V v) { const T old = *p; *p = v; return old; }
template <class T> static T atomicAdd(T* p, T v) { return exchanged(p, *p + v); }
template <class T> static T atomicMax(T* p, T v) { return exchanged(p, *p < v ? v : *p); }
template <class T> static T atomicMin(T* p, T v) { return exchanged(p, v < *p ? v : *p); }
template <class T> static T atomicCAS(T* p, T seen, T v) { return exchanged(p, *p == seen ? v : *p); }
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static unsigned long long __double2ull_rn(double x) { return (unsigned long long)std::nearbyint(x); }
static int __float_as_int(float x) { int y; std::memcpy(&y, &x, 4); return y; }
static float __int_as_float(int x) { float y; std::memcpy(&y, &x, 4); return y; }
static long long __double_as_longlong(double x) { long long y; std::memcpy(&y, &x, 8); return y; }
static double __longlong_as_double(long long x) { double y; std::memcpy(&y, &x, 8); return y; }
// Of values of 8 bytes; for kernels in which all threads of a warp come here together.
static unsigned long long shared_lanes[2][1024];
static std::vector<char> parity;
static int put_lane(const void* value, size_t size)
{
    const int turn = parity[current] ^= 1;
    std::memcpy(&shared_lanes[turn][current], value, size);
    __syncwarp();
    return turn;
}
template <class T> static T __shfl_xor_sync(unsigned, T value, int step)
{
    const int turn = put_lane(&value, sizeof value);
    T other;
    std::memcpy(&other, &shared_lanes[turn][current ^ step], sizeof value);
    return other;
}
template <class T> static T __shfl_up_sync(unsigned, T value, int step)
{
    const int turn = put_lane(&value, sizeof value);
    T other = value;
    if ((int)current % 32 >= step) std::memcpy(&other, &shared_lanes[turn][current - step], sizeof value);
    return other;
}
template <class T> static T __shfl_sync(unsigned, T value, int lane, int width = 32)
{
    const int turn = put_lane(&value, sizeof value);
    T other;
    std::memcpy(&other, &shared_lanes[turn][current / width * width + lane], sizeof value);
    return other;
}
// The matrix unit: c += a b of (16, 4) and (4, 8), a chain of fused multiply-adds.
static double shared_factors[3][2][1024];
static void mma_16_8_4(double* c, double a0, double a1, double b)
{
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
static jmp_buf stopped;
static char misaligned[256];
extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1_abort(void* access, void* address)
{
    const Access& at = *static_cast<Access*>(access);
    std::snprintf(misaligned, sizeof misaligned, "%u:%d:%zu", at.line, 1 << at.log_alignment, (size_t)address);
    _longjmp(stopped, 1);
}

static void enter()  // a context goes on with the next block: making one takes longer than most kernels
{
    for (;;) {
        launched(arguments);
        wait(DONE);
    }
}

static const char* run(void (*kernel)(void**), void** given, dim3 grid, dim3 block)
{
    misaligned[0] = 0;
    if (_setjmp(stopped)) {  // the contexts are left within the kernel
        started.assign(fibers.size(), 0), fibers.clear(), marks.clear();
        return misaligned;
    }
    // Stacks that lie a power of two apart would share the same lines of the caches.
    const size_t n = block.x * block.y * block.z, stack = (1 << 16) + 17 * 64;
    static char* stacks = static_cast<char*>(std::malloc(1024 * stack));
    launched = kernel, arguments = given, gridDim = grid, blockDim = block;
    const size_t made = fibers.size();
    if (made < n) fibers.resize(n), marks.resize(n), started.resize(n, 0);
    for (size_t t = made; t < n; ++t) {
        getcontext(&fibers[t]);
        fibers[t].uc_stack.ss_sp = &stacks[t * stack], fibers[t].uc_stack.ss_size = stack;
        fibers[t].uc_link = &scheduler;
        makecontext(&fibers[t], enter, 0);
    }
    for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
        state.assign(n, FRESH), parity.assign(n, 0);
        for (bool running = true, among_warps = true; running;) {
            running = false;
            const bool block_waits = !among_warps;  // every thread has come to the block's barrier, or is done
            among_warps = false;
            for (current = 0; current < n; ++current) {
                if (state[current] == DONE) continue;
                running = true;
                if (state[current] == WAITING && !block_waits) continue;
                among_warps = true;
                const unsigned t = (unsigned)current;
                threadIdx = {t % block.x, t / block.x % block.y, t / (block.x * block.y)};
                if (_setjmp(back)) continue;
                if (!started[current]) started[current] = 1, setcontext(&fibers[current]);
                _longjmp(marks[current].at, 1);
            }
        }
    }
    return misaligned;
}

template <class... A, size_t... I>
static void unpack(void (*kernel)(A...), void** given, std::index_sequence<I...>)
{
    kernel(*reinterpret_cast<std::remove_const_t<A>*>(given[I])...);
}
template <class... A> static void call(void (*kernel)(A...), void** given)
{
    unpack(kernel, given, std::index_sequence_for<A...>());
}
"""

ENTRY = r"""
extern "C" const char* launch_{k}(void** given, const unsigned* g, const unsigned* b)
{{
    return run([](void** a) {{ call({name}, a); }}, given, {{g[0], g[1], g[2]}}, {{b[0], b[1], b[2]}});
}}
"""


# Without -fno-gnu-unique the shared memory of a function template is one array in all libraries of a process,
# as long as the first one needs it.
CHECKS = ["-fsanitize=alignment", "-fno-sanitize-recover=alignment"]
COMMAND = [str(COMPILER), "-O1", "-w", "-ffp-contract=off", "-fno-gnu-unique", "-fPIC", *CHECKS]


def built(name: str, text: str, options: list[str]) -> Path:
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
    """Stands in for ``cupy.RawModule``."""

    def __init__(self, source: str, options: tuple[str, ...], instances: tuple[str, ...]) -> None:
        entries = "".join(ENTRY.format(k=k, name=name) for k, name in enumerate(instances))
        text = source.replace('extern "C" __global__', "__global__") + entries
        flags = [option for option in options if option.startswith(("-D", "-std"))]
        standard = [flag for flag in flags if flag.startswith("-std")]
        # Where the compiled header does not go with the options, the compiler reads its text.
        header = built(".hpp.gch", HEADER, ["-x", "c++-header", *standard]).with_suffix("")
        library = built(".cpp.so", text, ["-shared", "-include", str(header), *flags, "-x", "c++"])
        self.library, self.lines = ctypes.CDLL(str(library)), text.splitlines()
        self.names = {name: k for k, name in enumerate(instances)}

    def get_function(self, name: str) -> Any:
        launch = getattr(self.library, f"launch_{self.names[name]}")
        launch.restype = ctypes.c_char_p

        def run(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...], shared_mem: int = 0) -> None:
            guarded = Guarded(a for a in arguments if isinstance(a, np.ndarray) and a.ndim and a.size)
            held = [
                np.array([guarded.address(a)], np.uint64) if isinstance(a, np.ndarray) and a.ndim else np.asarray(a)
                for a in arguments
            ]
            given = (ctypes.c_void_p * len(held))(*(a.ctypes.data for a in held))
            sizes = [np.array([*size, 1, 1][:3], np.uint32) for size in (grid, block)]
            misaligned = launch(given, *(ctypes.c_void_p(size.ctypes.data) for size in sizes))
            if misaligned:
                line, alignment, address = map(int, misaligned.split(b":"))
                raise AssertionError(
                    f"{name}: address {address:#x} is no multiple of {alignment} in line {line}: "
                    f"{self.lines[line - 1].strip() if line <= len(self.lines) else ''}"
                )
            guarded.copy_back(name)

        return run


MARGIN = 4096
"""Bytes before and behind every array that a kernel is given."""


class Guarded:
    """Copies of arrays between margins whose bytes are NaN for every floating type: what is read there shows.

    Views of one array keep their places in one copy of it.
    """

    def __init__(self, arrays: Any) -> None:
        self.roots: dict[int, tuple[Any, int, int]] = {}
        self.copies: dict[int, Any] = {}
        for a in arrays:
            root = self._root(a)
            low, high = np.lib.array_utils.byte_bounds(root)
            if id(root) not in self.roots:
                buffer = np.empty(high - low + 2 * MARGIN + 64, np.uint8)
                shift = -buffer.ctypes.data % 64 + low % 64  # as the array itself is aligned
                buffer[: MARGIN + shift] = buffer[MARGIN + shift + high - low :] = 0xFF
                self.roots[id(root)] = root, low, MARGIN + shift
                self.copies[id(root)] = buffer
                ctypes.memmove(buffer.ctypes.data + MARGIN + shift, low, high - low)

    @staticmethod
    def _root(a: Any) -> Any:
        while isinstance(a.base, np.ndarray):
            a = a.base
        return a

    def address(self, a: Any) -> int:
        """Where the kernel finds the array."""
        if a.size == 0:
            return 0
        root = self._root(a)
        _, low, start = self.roots[id(root)]
        return self.copies[id(root)].ctypes.data + start + a.ctypes.data - low

    def copy_back(self, kernel: str) -> None:
        """What the kernel wrote into the arrays themselves; an error where it wrote into a margin."""
        for key, (root, low, start) in self.roots.items():
            buffer, size = self.copies[key], np.lib.array_utils.byte_bounds(root)[1] - low
            clean = (buffer[:start] == 0xFF).all() and (buffer[start + size :] == 0xFF).all()
            assert clean, f"{kernel} wrote outside an array of shape {root.shape}"
            ctypes.memmove(low, buffer.ctypes.data + start, size)
