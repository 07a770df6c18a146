// Prefetch of each step's matrices into shared memory, double-buffered.
// Longer than 400 lines: loads and stores of one protocol within a warp.
//
// Thread t of a warp takes the steps of an interval of its own, row t, GROUP steps at a time. While it computes on one group, the
// warp copies the next group of all its rows into shared memory, 16 bytes a thread and coalesced wherever a row is that long,
// so that no thread waits for memory and no sector is fetched twice. Parts that are constant in time are copied with the first
// two groups only. States are written through the same memory, in place of parts that their step has read. Definitions of the
// compiler: ROW, the bytes of one group of a row; GROUP; PARTS, with bit p set where the kernels of the file read part p.

enum Part { PART_F, PART_Q, PART_H, PART_R, PART_U, PART_D, PART_Y, PART_M, PART_P, N_PARTS };

__host__ __device__ constexpr int entries(int part) {
    return part == PART_F || part == PART_Q || part == PART_P ? NX * NX
        : part == PART_H                                      ? NY * NX
        : part == PART_R                                      ? NY * NY
        : part == PART_U || part == PART_M                    ? NX
                                                              : NY;
}
__host__ __device__ constexpr int bytes_of(int part) { return entries(part) * (int)sizeof(real); }
// Where a part begins in a row
__host__ __device__ constexpr int part_offset(int part) {
    int at = 0;
    for (int p = 0; p <= part; ++p)
        if (PARTS >> p & 1) {
            const int size = packet_bytes(GROUP * bytes_of(p));
            at = (at + size - 1) / size * size;
            if (p < part) at += GROUP * bytes_of(p);
        }
    return at;
}

// Parts of one series in global memory: the address of step 0, and the bytes from step to step
struct PartPointers {
    const char* from[N_PARTS];
    int64 step_bytes[N_PARTS];

    __device__ __forceinline__ void set(int part, const real* array, int64 offset, int64 stride) {
        from[part] = (const char*)(array + offset);
        step_bytes[part] = stride * (int64)sizeof(real);
    }
    template <int PART> __device__ __forceinline__ const real* at(int64 k) const {
        return (const real*)(from[PART] + step_bytes[PART] * k);
    }
};

__device__ __forceinline__ void point_to_model(
    PartPointers& s, int64 series, const real* F, const real* Q, const real* H, const real* R, const real* u, const real* d,
    const real* y, const int64* strides) {
    const real* const arrays[] = {F, Q, H, R, u, d, y};
    EACH(p, 7) s.set(p, arrays[p], strides[2 * p] * series, strides[2 * p + 1]);
}

__device__ __forceinline__ void point_to_states(PartPointers& s, int64 series, int64 n_steps, const real* m, const real* P) {
    s.set(PART_M, m, series * n_steps * NX, NX);
    s.set(PART_P, P, series * n_steps * NX * NX, NX * NX);
}

// Parts of the smoother's step k: the transition from k to k + 1, and the filter's state at k
__device__ __forceinline__ void point_to_smoother_parts(
    PartPointers& s, int64 series, int64 n_steps, const real* F, const real* Q, const real* u, const real* mean,
    const real* covariance, const int64* strides) {
    s.set(PART_F, F, strides[0] * series + strides[1], strides[1]);
    s.set(PART_Q, Q, strides[2] * series + strides[3], strides[3]);
    s.set(PART_U, u, strides[8] * series + strides[9], strides[9]);
    point_to_states(s, series, n_steps, mean, covariance);
}

template <int SIZE, bool REPEATED = false> __device__ __forceinline__ void copy_async(char* to, const char* from) {
#ifdef __CUDA_ARCH__  // L2 prefetches the whole line, which the next steps read
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (SIZE == 16 && !REPEATED)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(SIZE) : "memory");
#else
    for (int i = 0; i < SIZE; ++i) to[i] = from[i];
#endif
}

__device__ __forceinline__ void close_group() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_all_but_one() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

// Rows of one warp. The i-th step of row r is step k0 + r * row + direction * i of the series. Rows from lo to hi take `length`
// steps; row `partial` only those from partial_from to partial_to.
struct Rows {
    int64 k0, row;
    int direction, lo, hi, partial, partial_from, partial_to, length;

    __device__ __forceinline__ int64 step(int r, int i) const { return k0 + r * row + direction * i; }
    __device__ __forceinline__ bool is_active(int r, int i) const {
        return (r >= lo && r < hi) || (r == partial && i >= partial_from && i < partial_to);
    }
    __device__ __forceinline__ bool takes_step(int r, int i) const { return i < length && is_active(r, i); }

    // The position of a row's i-th step in its group, in the order of memory
    __device__ __forceinline__ int slot(int i) const {
        return GROUP == 1 ? 0 : direction < 0 ? GROUP - 1 - i % GROUP : i % GROUP;
    }

    // Chunks c, c + 1, ... of n steps in all, the short one last; the first step of chunk 0 is `start`
    __device__ __forceinline__ Rows(int64 start, int direction, int64 c, int chunk, int64 n)
        : k0(start + direction * c * chunk), row((int64)direction * chunk), direction(direction), lo(0), partial_from(0) {
        const int64 left = max((int64)0, n - c * chunk);
        hi = (int)min((int64)WARP, left / chunk);
        partial = hi;
        partial_to = hi < WARP ? (int)(left - (int64)hi * chunk) : 0;
        length = hi ? chunk : partial_to;
    }

    // Chunks c, c - 1, ... of the same n steps, each from its end to its start
    __device__ __forceinline__ Rows(int64 c, int chunk, int64 n, int n_chunks)
        : k0((c + 1) * chunk - 1), row(-(int64)chunk), direction(-1), partial_to(chunk) {
        const int64 past = max((int64)-1, min((int64)WARP, c - (n_chunks - 1)));  // the row of the last chunk
        partial = (int)past;
        partial_from = (int)((int64)n_chunks * chunk - n);
        lo = partial + 1;
        hi = (int)max((int64)0, min((int64)WARP, c + 1));
        length = partial < hi ? chunk : 0;
    }
};

#ifndef STAGES
#define STAGES extern __shared__ __align__(16) char stages[];
#endif
#define STAGE_BYTES (2 * THREADS * ROW)

static_assert(ROW % 16 == 0 && ROW >= part_offset(N_PARTS), "ROW is too small for the parts");

// Parts in whose place states and log-densities are written
#define OUT_M (PARTS >> PART_M & 1 ? PART_M : PART_U)
#define OUT_P (PARTS >> PART_P & 1 ? PART_P : PART_F)
#define OUT_TERM PART_Y

// Copies of a part for one group of all rows of a warp, where its entries are no whole number of packets of a row or some rows
// take no step; and of a part that is constant in time. Not inlined: they are rarely called.
__device__ __forceinline__ void copy_packet(char* to, const char* from, int size) {
    if (size == 16) copy_async<16, true>(to, from);
    else if (size == 8) copy_async<8>(to, from);
    else copy_async<4>(to, from);
}

__device__ __noinline__ void copy_singly(char* stage, const char* source, int bytes, Rows rows, int step, int lane) {
    const int size = packet_bytes(bytes), n = bytes / size;
#pragma unroll 1
    for (int each = lane; each < WARP * GROUP * n; each += WARP) {
        const int r = each / (GROUP * n), at = each % (GROUP * n), i = step + rows.slot(at / n);
        if (rows.takes_step(r, i)) copy_packet(stage + r * ROW + at * size, source + bytes * rows.step(r, i) + at % n * size, size);
    }
}

__device__ __noinline__ void copy_repeated(char* stage, const char* source, int bytes, int lane) {
    const int size = packet_bytes(bytes), n = bytes / size;
#pragma unroll 1
    for (int each = lane; each < WARP * GROUP * n; each += WARP) {
        const int r = each / (GROUP * n), at = each % (GROUP * n);
        copy_packet(stage + r * ROW + at * size, source + at % n * size, size);
    }
}

// Steps of a group, in the order of a row; not unrolled, so that the code stays in the instruction cache
#define EACH_STEP(i, group) _Pragma("unroll 1") for (int i = GROUP * (group); i < GROUP * (group) + GROUP; ++i)

struct StepLoader {
    const PartPointers& source;
    const Rows& rows;
    char* stage;  // the two stages of this warp: one is filled while the other is read
    int lane;
    bool out;                   // whether states are written in place of parts
    bool whole;                 // whether all rows take all steps
    bool aligned;               // whether groups start at multiples of a packet
    bool has_constant;          // whether a part is constant in time
    int low, high;              // rows that take all steps of the group being prefetched or used
    const char* from[N_PARTS];  // this lane's first packet of the next group, and its offset in a row
    int to[N_PARTS];

    __device__ __forceinline__ StepLoader(const PartPointers& source, const Rows& rows, char* stages, bool out)
        : source(source), rows(rows), stage(stages + (threadIdx.x / WARP) * 2 * WARP * ROW), lane(threadIdx.x % WARP),
          out(out), whole(rows.lo == 0 && rows.hi == WARP), aligned(rows.length % GROUP == 0 || rows.lo >= rows.hi),
          has_constant(false), low(0), high(WARP) {
        whole = whole && aligned;
        point_to_first<0>();
    }

    __device__ __forceinline__ int groups() const { return (rows.length + GROUP - 1) / GROUP; }

    __device__ __forceinline__ int slot(int i) const { return rows.slot(i); }

    // The first step in memory of a row's first group
    __device__ __forceinline__ int64 first(int r) const { return rows.step(r, rows.direction < 0 ? GROUP - 1 : 0); }

    // Whether all groups of an array start at multiples of `size`
    __device__ __forceinline__ bool is_aligned_to(const char* array, int bytes, int size) const {
        return (((size_t)array + (size_t)(bytes * first(0))) | (size_t)(bytes * rows.row)) % size == 0;
    }

    template <int PART> __device__ __forceinline__ void point_to_first() {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) {
                constexpr int size = packet_bytes(GROUP * bytes_of(PART)), n = GROUP * bytes_of(PART) / size;
                if (source.step_bytes[PART] == 0) {
                    has_constant = true;
                } else if constexpr (WARP % n == 0) {  // one copy of a warp covers whole rows
                    from[PART] = source.from[PART] + bytes_of(PART) * first(lane / n) + lane % n * size;
                    to[PART] = lane / n * ROW + part_offset(PART) + lane % n * size;
                    if constexpr (GROUP > 1) aligned = aligned && is_aligned_to(source.from[PART], bytes_of(PART), size);
                } else {
                    aligned = false;
                }
            }
            point_to_first<PART + 1>();
        }
    }

    __device__ __forceinline__ bool is_active(int r, int i) const {
        return whole || rows.takes_step(r, i);
    }

    // Find the rows that take all steps of a group; false where one takes some
    __device__ __forceinline__ bool find_full_rows(int group) {
        const int i = GROUP * group;
        const bool here = i < rows.partial_to && i + GROUP > rows.partial_from;
        low = rows.lo - (here && rows.partial == rows.lo - 1);
        high = rows.hi + (here && rows.partial == rows.hi);
        return !here || (i >= rows.partial_from && i + GROUP <= rows.partial_to);
    }

    __device__ __forceinline__ char* row_of(int r, int group) const { return stage + ((group & 1) * WARP + r) * ROW; }

    template <int PART, bool ALL> __device__ __forceinline__ void prefetch_aligned(int group) {
        constexpr int size = packet_bytes(GROUP * bytes_of(PART)), n = GROUP * bytes_of(PART) / size;
        if constexpr (WARP % n == 0) {
            const int64 stride = (int64)(WARP * size / GROUP) * rows.row;
            EACH(q, n) {
                const int r = q * (WARP / n) + lane / n;
                if (ALL || (r >= low && r < high))
                    copy_async<size>(row_of(q * (WARP / n), group) + to[PART], from[PART] + q * stride);
            }
            from[PART] += rows.direction * GROUP * bytes_of(PART);
        }
    }

    template <int PART> __device__ __forceinline__ void prefetch_constant(int group) {
        if (group > 1 && !(out && (PART == OUT_P || PART == OUT_M || PART == OUT_TERM))) return;  // nothing has overwritten it
        copy_repeated(row_of(0, group) + part_offset(PART), source.from[PART], bytes_of(PART), lane);
    }

    template <int PART> __device__ __forceinline__ void prefetch_singly(int group) {
        copy_singly(row_of(0, group) + part_offset(PART), source.from[PART], bytes_of(PART), rows, GROUP * group, lane);
        from[PART] += rows.direction * GROUP * bytes_of(PART);
    }

    template <int PART> __device__ __forceinline__ void prefetch_part(int group, bool full) {
        if (source.step_bytes[PART] == 0) prefetch_constant<PART>(group);
        else if (aligned && full) prefetch_aligned<PART, false>(group);
        else prefetch_singly<PART>(group);
    }

    template <int PART> __device__ __forceinline__ void prefetch_parts(int group, bool full) {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) prefetch_part<PART>(group, full);
            prefetch_parts<PART + 1>(group, full);
        }
    }

    template <int PART> __device__ __forceinline__ void prefetch_all(int group) {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) prefetch_aligned<PART, true>(group);
            prefetch_all<PART + 1>(group);
        }
    }

    // Start the copies of a group of every row; called with 0, 1, 2, ...
    __device__ __forceinline__ void prefetch(int group) {
        if (group < groups()) {
            if (whole && aligned && !has_constant) prefetch_all<0>(group);
            else prefetch_parts<0>(group, find_full_rows(group));
        }
        close_group();
    }

    // Wait for the copies of a group; those of the next may be in flight
    __device__ __forceinline__ void wait() const {
        wait_for_all_but_one();
        __syncwarp();
    }

    // All lanes have read the group and buffered their results in its place
    __device__ __forceinline__ void finish_group() const {
        __syncwarp();
    }

    template <int PART> __device__ __forceinline__ const real* at(int i) const {
        return (const real*)(row_of(lane, i / GROUP) + part_offset(PART) + slot(i) * bytes_of(PART));
    }
};

// Coalesced writes of the states of a warp's rows, and of log-densities unless `terms` is null
struct StateWriter {
    StepLoader& loader;
    real *mean, *covariance, *terms;
    bool aligned;
    char *m, *P, *term;  // this lane's first packet of the next group

    __device__ __forceinline__ StateWriter(StepLoader& loader, real* mean, real* covariance, real* terms)
        : loader(loader), mean(mean), covariance(covariance), terms(terms), aligned(loader.aligned), m(point_to_first<bytes_of(PART_M)>(mean)),
          P(point_to_first<bytes_of(PART_P)>(covariance)), term(point_to_first<(int)sizeof(real)>(terms)) {}

    template <int BYTES> __device__ __forceinline__ char* point_to_first(real* to) {
        constexpr int size = packet_bytes(GROUP * BYTES), n = GROUP * BYTES / size;
        if (to == nullptr) return nullptr;
        if (WARP % n != 0 || !loader.is_aligned_to((const char*)to, BYTES, size)) aligned = false;
        return (char*)to + BYTES * loader.first(loader.lane / n) + loader.lane % n * size;
    }

    // Store the state of a step in shared memory, for `flush`
    __device__ __forceinline__ void buffer(int i, const State& x) const {
        write<NX>((real*)loader.at<OUT_M>(i), x.m);
        write_symmetric((real*)loader.at<OUT_P>(i), x.P);
    }

    __device__ __forceinline__ void buffer(int i, real value) const {
        ((real*)(loader.row_of(loader.lane, i / GROUP) + part_offset(OUT_TERM)))[loader.slot(i)] = value;
    }

    // Write a buffered group to global memory, after `finish_group`; called with 0, 1, 2, ... The next copies may then overwrite it.
    __device__ __forceinline__ void flush(int group) {
        if (loader.whole && aligned) flush_all<true>(group);
        else if (loader.find_full_rows(group) && aligned) flush_all<false>(group);
        else {
            flush_singly<bytes_of(PART_M), part_offset(OUT_M)>(group, mean, m);
            flush_singly<bytes_of(PART_P), part_offset(OUT_P)>(group, covariance, P);
            if (terms != nullptr) flush_singly<(int)sizeof(real), part_offset(OUT_TERM)>(group, terms, term);
        }
        __syncwarp();
    }

    template <bool ALL> __device__ __forceinline__ void flush_all(int group) {
        flush_aligned<bytes_of(PART_M), part_offset(OUT_M), ALL>(group, m);
        flush_aligned<bytes_of(PART_P), part_offset(OUT_P), ALL>(group, P);
        if (terms != nullptr) flush_aligned<(int)sizeof(real), part_offset(OUT_TERM), ALL>(group, term);
    }

    template <int BYTES, int OFFSET_IN_ROW, bool ALL> __device__ __forceinline__ void flush_aligned(int group, char*& to) const {
        constexpr int size = packet_bytes(GROUP * BYTES), n = GROUP * BYTES / size;
        if constexpr (WARP % n == 0) {
            const int64 stride = (int64)(WARP * size / GROUP) * loader.rows.row;
            const int at = loader.lane / n * ROW + OFFSET_IN_ROW + loader.lane % n * size;
            Packet<size> packets[n];
            EACH(q, n) packets[q] = *(const Packet<size>*)(loader.row_of(q * (WARP / n), group) + at);
            EACH(q, n) {
                const int r = q * (WARP / n) + loader.lane / n;
                if (ALL || (r >= loader.low && r < loader.high)) *(Packet<size>*)(to + q * stride) = packets[q];
            }
            to += loader.rows.direction * GROUP * BYTES;
        }
    }

    template <int BYTES, int OFFSET_IN_ROW> __device__ __forceinline__ void flush_singly(int group, real* array, char*& to) const {
        constexpr int size = packet_bytes(BYTES), n = GROUP * BYTES / size;
#pragma unroll 1
        for (int q = 0; q < n; ++q) {
            const int each = q * WARP + loader.lane, r = each / n, at = each % n;
            const int i = GROUP * group + loader.slot(at / (n / GROUP));
            char* const there = (char*)array + BYTES * loader.rows.step(r, i) + at % (n / GROUP) * size;
            if (loader.is_active(r, i)) *(Packet<size>*)there = *(const Packet<size>*)(loader.row_of(r, group) + OFFSET_IN_ROW + at * size);
        }
        to += loader.rows.direction * GROUP * BYTES;
    }
};

// All steps of a warp's rows, a group at a time while the next is prefetched: `step(i)` buffers the results of the i-th step
template <class StepFunction>
__device__ __forceinline__ void for_each_step(StepLoader& loader, StateWriter& writer, StepFunction step) {
#pragma unroll 1
    for (int group = 0; group < loader.groups(); ++group) {
        loader.prefetch(group + 1);
        loader.wait();
        EACH_STEP(i, group) step(i);
        loader.finish_group();
        writer.flush(group);
    }
}

// All loads before it are issued before any is used: a thread without prefetch then waits once
__device__ __forceinline__ void issue_all_loads() {
#ifdef __CUDA_ARCH__
    __syncwarp(__activemask());
#endif
}

// --- steps out of a `StepLoader`, or directly out of global memory
struct GlobalLoader {
    const PartPointers& from;
    template <int PART> __device__ __forceinline__ const real* at(int64 k) const { return from.at<PART>(k); }
};

// With `at_prior`, the identity instead of step 0: the prior is at the first observation
template <class From, class I> __device__ __forceinline__ void load(Transition& s, const From& from, I i, bool at_prior) {
    read<NX * NX>(&s.F[0][0], from.template at<PART_F>(i));
    read_symmetric(s.Q, from.template at<PART_Q>(i));
    read<NX>(s.u, from.template at<PART_U>(i));
    if (at_prior) {
        asm volatile("");  // keeps a branch, rarely taken, instead of a select for every entry
        EACH(a, NX) { EACH(b, NX) s.F[a][b] = a == b; s.u[a] = 0; }
        EACH(a, SYM) s.Q.s[a] = 0;
    }
}

template <class From, class I> __device__ __forceinline__ void load(Observation& o, const From& from, I i) {
    read<NY>(o.y, from.template at<PART_Y>(i));
    read<NY>(o.d, from.template at<PART_D>(i));
    read<NY * NX>(&o.H[0][0], from.template at<PART_H>(i));
    read_symmetric(o.R, from.template at<PART_R>(i));
}

template <class From, class I> __device__ __forceinline__ void load(State& x, const From& from, I i) {
    read<NX>(x.m, from.template at<PART_M>(i));
    read_symmetric(x.P, from.template at<PART_P>(i));
}

__device__ __forceinline__ void load_state(State& x, const real* mean, const real* covariance, int64 at) {
    read<NX>(x.m, mean + at * NX);
    read_symmetric(x.P, covariance + at * NX * NX);
}
