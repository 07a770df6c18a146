// Prefetch of each step's matrices into shared memory, double-buffered.
//
// Thread t of a warp walks over a interval of steps of its own, row t, GROUP steps at a time. While it works on one group, the
// warp copies the next group of all its rows into shared memory, 16 bytes a thread and neighbours together wherever a row is
// that long, so that no thread waits for memory and no sector is fetched twice. -DROW=... is what one group of a row takes
// there, in bytes. Parts that do not change stay there from the first two groups on. States go out the same way, in the place
// of parts that their step has read. -DPARTS=... has bit p set where kernels need part p.

enum Part { PART_F, PART_Q, PART_H, PART_R, PART_U, PART_D, PART_Y, PART_M, PART_P, N_PARTS };

__host__ __device__ constexpr int entries(int part) {
    return part == PART_F || part == PART_Q || part == PART_P ? NX * NX
        : part == PART_H                                      ? NY * NX
        : part == PART_R                                      ? NY * NY
        : part == PART_U || part == PART_M                    ? NX
                                                              : NY;
}
__host__ __device__ constexpr int bytes_of(int part) { return entries(part) * (int)sizeof(REAL); }
// What one copy carries of so many bytes: arrays are laid out so that every step's entries start at a multiple of it
__host__ __device__ constexpr int piece(int bytes) {
    return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : (int)sizeof(REAL);
}
__host__ __device__ constexpr int place(int part) {
    int at = 0;
    for (int p = 0; p <= part; ++p)
        if (PARTS >> p & 1) {
            const int size = piece(GROUP * bytes_of(p));
            at = (at + size - 1) / size * size;
            if (p < part) at += GROUP * bytes_of(p);
        }
    return at;
}

// Parts of one series in global memory: where step 0 lies, and bytes from step to step
struct Sources {
    const char* from[N_PARTS];
    Index by[N_PARTS];

    __device__ __forceinline__ void set(int part, const REAL* array, Index offset, Index stride) {
        from[part] = (const char*)(array + offset);
        by[part] = stride * (Index)sizeof(REAL);
    }
    template <int PART> __device__ __forceinline__ const REAL* at(Index k) const {
        return (const REAL*)(from[PART] + by[PART] * k);
    }
};

__device__ __forceinline__ void model_of(
    Sources& s, Index series, const REAL* F, const REAL* Q, const REAL* H, const REAL* R, const REAL* u, const REAL* d,
    const REAL* y, const Index* places) {
    const REAL* const arrays[] = {F, Q, H, R, u, d, y};
    EACH(p, 7) s.set(p, arrays[p], places[2 * p] * series, places[2 * p + 1]);
}

__device__ __forceinline__ void states_of(Sources& s, Index series, Index n_steps, const REAL* m, const REAL* P) {
    s.set(PART_M, m, series * n_steps * NX, NX);
    s.set(PART_P, P, series * n_steps * NX * NX, NX * NX);
}

// Step k links k to k + 1: the transition that leads there, and the filter's state at k
__device__ __forceinline__ void links_of(
    Sources& s, Index series, Index n_steps, const REAL* F, const REAL* Q, const REAL* u, const REAL* mean,
    const REAL* covariance, const Index* places) {
    s.set(PART_F, F, places[0] * series + places[1], places[1]);
    s.set(PART_Q, Q, places[2] * series + places[3], places[3]);
    s.set(PART_U, u, places[8] * series + places[9], places[9]);
    states_of(s, series, n_steps, mean, covariance);
}

template <int SIZE, bool AGAIN = false> __device__ __forceinline__ void copy_async(char* to, const char* from) {
#ifdef __CUDA_ARCH__  // the second level of cache takes in the whole line, which the next steps will ask for
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (SIZE == 16 && !AGAIN)
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

// Rows of one warp. Row r is at step k0 + r * row + way * i when it takes its i-th step. Rows from lo to hi take `length`
// steps; row `odd` only those from odd_from to odd_to.
struct Rows {
    Index k0, row;
    int way, lo, hi, odd, odd_from, odd_to, length;

    __device__ __forceinline__ Index step(int r, int i) const { return k0 + r * row + way * i; }
    __device__ __forceinline__ bool on(int r, int i) const {
        return (r >= lo && r < hi) || (r == odd && i >= odd_from && i < odd_to);
    }
    __device__ __forceinline__ bool takes(int r, int i) const { return i < length && on(r, i); }

    // Where a row's i-th step stands in its group: memory runs forward
    __device__ __forceinline__ int slot(int i) const {
        return GROUP == 1 ? 0 : way < 0 ? GROUP - 1 - i % GROUP : i % GROUP;
    }

    // Chunks c, c + 1, ... of n steps in all, the short one last; the first step of chunk 0 is `start`
    __device__ __forceinline__ Rows(Index start, int way, Index c, int chunk, Index n)
        : k0(start + way * c * chunk), row((Index)way * chunk), way(way), lo(0), odd_from(0) {
        const Index left = max((Index)0, n - c * chunk);
        hi = (int)min((Index)WARP, left / chunk);
        odd = hi;
        odd_to = hi < WARP ? (int)(left - (Index)hi * chunk) : 0;
        length = hi ? chunk : odd_to;
    }

    // Chunks c, c - 1, ... of the same n steps, each from its end to its start
    __device__ __forceinline__ Rows(Index c, int chunk, Index n, int n_chunks)
        : k0((c + 1) * chunk - 1), row(-(Index)chunk), way(-1), odd_to(chunk) {
        const Index past = max((Index)-1, min((Index)WARP, c - (n_chunks - 1)));  // the row of the last chunk
        odd = (int)past;
        odd_from = (int)((Index)n_chunks * chunk - n);
        lo = odd + 1;
        hi = (int)max((Index)0, min((Index)WARP, c + 1));
        length = odd < hi ? chunk : 0;
    }
};

#ifndef STAGES
#define STAGES extern __shared__ __align__(16) char stages[];
#endif
#define STAGE_BYTES (2 * THREADS * ROW)

static_assert(ROW % 16 == 0 && ROW >= place(N_PARTS), "a row is longer than its room");

// States leave in the place of what they come from, likelihoods in that of the observations
#define OUT_M (PARTS >> PART_M & 1 ? PART_M : PART_U)
#define OUT_P (PARTS >> PART_P & 1 ? PART_P : PART_F)
#define OUT_TERM PART_Y

// Copies of a part for one group of all rows of a warp, where its entries are no whole number of pieces of a row, or where some
// rows take no part; and of a part that is the same at all steps. They are not compiled into each place.
__device__ __forceinline__ void copy_piece(char* to, const char* from, int size) {
    if (size == 16) copy_async<16, true>(to, from);
    else if (size == 8) copy_async<8>(to, from);
    else copy_async<4>(to, from);
}

__device__ __noinline__ void copy_singly(char* stage, const char* source, int bytes, Rows rows, int step, int lane) {
    const int size = piece(bytes), n = bytes / size;
#pragma unroll 1
    for (int each = lane; each < WARP * GROUP * n; each += WARP) {
        const int r = each / (GROUP * n), at = each % (GROUP * n), i = step + rows.slot(at / n);
        if (rows.takes(r, i)) copy_piece(stage + r * ROW + at * size, source + bytes * rows.step(r, i) + at % n * size, size);
    }
}

__device__ __noinline__ void copy_repeated(char* stage, const char* source, int bytes, int lane) {
    const int size = piece(bytes), n = bytes / size;
#pragma unroll 1
    for (int each = lane; each < WARP * GROUP * n; each += WARP) {
        const int r = each / (GROUP * n), at = each % (GROUP * n);
        copy_piece(stage + r * ROW + at * size, source + at % n * size, size);
    }
}

// Steps of a group, in the order of a row; code that is short stays in its cache
#define EACH_STEP(i, group) _Pragma("unroll 1") for (int i = GROUP * (group); i < GROUP * (group) + GROUP; ++i)

struct Feed {
    const Sources& source;
    const Rows& rows;
    char* stage;  // of this warp: two of them, one being filled while the other is read
    int lane;
    bool out;                    // whether states leave in the place of parts
    bool whole, even, steady;    // all rows take all steps; groups start where large pieces may; a part is the same at all steps
    int low, high;               // rows that take all steps of a group, the group being prefetched or used
    const char* from[N_PARTS];   // this lane's first piece of the next group, and where it goes
    int to[N_PARTS];

    __device__ __forceinline__ Feed(const Sources& source, const Rows& rows, char* stages, bool out)
        : source(source), rows(rows), stage(stages + (threadIdx.x / WARP) * 2 * WARP * ROW), lane(threadIdx.x % WARP),
          out(out), whole(rows.lo == 0 && rows.hi == WARP), even(rows.length % GROUP == 0 || rows.lo >= rows.hi),
          steady(false), low(0), high(WARP) {
        whole = whole && even;
        start<0>();
    }

    __device__ __forceinline__ int groups() const { return (rows.length + GROUP - 1) / GROUP; }

    __device__ __forceinline__ int slot(int i) const { return rows.slot(i); }

    // The first step in memory of a row's first group
    __device__ __forceinline__ Index first(int r) const { return rows.step(r, rows.way < 0 ? GROUP - 1 : 0); }

    // Whether all groups of an array start where pieces of `size` may
    __device__ __forceinline__ bool fits(const char* array, int bytes, int size) const {
        return (((size_t)array + (size_t)(bytes * first(0))) | (size_t)(bytes * rows.row)) % size == 0;
    }

    template <int PART> __device__ __forceinline__ void start() {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) {
                constexpr int size = piece(GROUP * bytes_of(PART)), n = GROUP * bytes_of(PART) / size;
                if (source.by[PART] == 0) {
                    steady = true;
                } else if constexpr (WARP % n == 0) {  // a warp's copies are as many whole rows
                    from[PART] = source.from[PART] + bytes_of(PART) * first(lane / n) + lane % n * size;
                    to[PART] = lane / n * ROW + place(PART) + lane % n * size;
                    if constexpr (GROUP > 1) even = even && fits(source.from[PART], bytes_of(PART), size);
                } else {
                    even = false;
                }
            }
            start<PART + 1>();
        }
    }

    __device__ __forceinline__ bool on(int r, int i) const {
        return whole || rows.takes(r, i);
    }

    // Find the rows that take all steps of a group; false where one takes some
    __device__ __forceinline__ bool range(int group) {
        const int i = GROUP * group;
        const bool here = i < rows.odd_to && i + GROUP > rows.odd_from;
        low = rows.lo - (here && rows.odd == rows.lo - 1);
        high = rows.hi + (here && rows.odd == rows.hi);
        return !here || (i >= rows.odd_from && i + GROUP <= rows.odd_to);
    }

    __device__ __forceinline__ char* row_of(int r, int group) const { return stage + ((group & 1) * WARP + r) * ROW; }

    template <int PART, bool ALL> __device__ __forceinline__ void ask_evenly(int group) {
        constexpr int size = piece(GROUP * bytes_of(PART)), n = GROUP * bytes_of(PART) / size;
        if constexpr (WARP % n == 0) {
            const Index leap = (Index)(WARP * size / GROUP) * rows.row;
            EACH(q, n) {
                const int r = q * (WARP / n) + lane / n;
                if (ALL || (r >= low && r < high))
                    copy_async<size>(row_of(q * (WARP / n), group) + to[PART], from[PART] + q * leap);
            }
            from[PART] += rows.way * GROUP * bytes_of(PART);
        }
    }

    template <int PART> __device__ __forceinline__ void ask_steadily(int group) {
        if (group > 1 && !(out && (PART == OUT_P || PART == OUT_M || PART == OUT_TERM))) return;  // it stays where it was put
        copy_repeated(row_of(0, group) + place(PART), source.from[PART], bytes_of(PART), lane);
    }

    template <int PART> __device__ __forceinline__ void ask_singly(int group) {
        copy_singly(row_of(0, group) + place(PART), source.from[PART], bytes_of(PART), rows, GROUP * group, lane);
        from[PART] += rows.way * GROUP * bytes_of(PART);
    }

    template <int PART> __device__ __forceinline__ void ask_part(int group, bool full) {
        if (source.by[PART] == 0) ask_steadily<PART>(group);
        else if (even && full) ask_evenly<PART, false>(group);
        else ask_singly<PART>(group);
    }

    template <int PART> __device__ __forceinline__ void ask_parts(int group, bool full) {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) ask_part<PART>(group, full);
            ask_parts<PART + 1>(group, full);
        }
    }

    template <int PART> __device__ __forceinline__ void ask_all(int group) {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) ask_evenly<PART, true>(group);
            ask_all<PART + 1>(group);
        }
    }

    // Begin to bring a group of every row; called with 0, 1, 2, ...
    __device__ __forceinline__ void ask(int group) {
        if (group < groups()) {
            if (whole && even && !steady) ask_all<0>(group);
            else ask_parts<0>(group, range(group));
        }
        close_group();
    }

    // Wait until a group is here, the one after it perhaps under way
    __device__ __forceinline__ void take() const {
        wait_for_all_but_one();
        __syncwarp();
    }

    // Everyone has read the group, and put what leaves in its place
    __device__ __forceinline__ void release() const {
        __syncwarp();
    }

    template <int PART> __device__ __forceinline__ const REAL* at(int i) const {
        return (const REAL*)(row_of(lane, i / GROUP) + place(PART) + slot(i) * bytes_of(PART));
    }
};

// The way out, neighbours together: states of a warp's rows, and likelihoods where there are any
struct Exit {
    Feed& feed;
    REAL *mean, *covariance, *terms;
    bool even;
    char *m, *P, *term;  // this lane's first piece of the next group

    __device__ __forceinline__ Exit(Feed& feed, REAL* mean, REAL* covariance, REAL* terms)
        : feed(feed), mean(mean), covariance(covariance), terms(terms), even(feed.even), m(start<bytes_of(PART_M)>(mean)),
          P(start<bytes_of(PART_P)>(covariance)), term(start<(int)sizeof(REAL)>(terms)) {}

    template <int BYTES> __device__ __forceinline__ char* start(REAL* to) {
        constexpr int size = piece(GROUP * BYTES), n = GROUP * BYTES / size;
        if (to == nullptr) return nullptr;
        if (WARP % n != 0 || !feed.fits((const char*)to, BYTES, size)) even = false;
        return (char*)to + BYTES * feed.first(feed.lane / n) + feed.lane % n * size;
    }

    // Leave the state of a step, for `give`
    __device__ __forceinline__ void put(int i, const Gauss& x) const {
        write<NX>((REAL*)feed.at<OUT_M>(i), x.m);
        write_symmetric((REAL*)feed.at<OUT_P>(i), x.P);
    }

    __device__ __forceinline__ void put(int i, REAL value) const {
        ((REAL*)(feed.row_of(feed.lane, i / GROUP) + place(OUT_TERM)))[feed.slot(i)] = value;
    }

    // Write what was put of a group, once the warp has met; called with 0, 1, 2, ... The next copies may then take its place.
    __device__ __forceinline__ void give(int group) {
        if (feed.whole && even) give_all<true>(group);
        else if (feed.range(group) && even) give_all<false>(group);
        else {
            give_singly<bytes_of(PART_M), place(OUT_M)>(group, mean, m);
            give_singly<bytes_of(PART_P), place(OUT_P)>(group, covariance, P);
            if (terms != nullptr) give_singly<(int)sizeof(REAL), place(OUT_TERM)>(group, terms, term);
        }
        __syncwarp();
    }

    template <bool ALL> __device__ __forceinline__ void give_all(int group) {
        give_evenly<bytes_of(PART_M), place(OUT_M), ALL>(group, m);
        give_evenly<bytes_of(PART_P), place(OUT_P), ALL>(group, P);
        if (terms != nullptr) give_evenly<(int)sizeof(REAL), place(OUT_TERM), ALL>(group, term);
    }

    template <int BYTES, int PLACE, bool ALL> __device__ __forceinline__ void give_evenly(int group, char*& to) const {
        constexpr int size = piece(GROUP * BYTES), n = GROUP * BYTES / size;
        struct alignas(size) Piece { REAL x[size / sizeof(REAL)]; };
        if constexpr (WARP % n == 0) {
            const Index leap = (Index)(WARP * size / GROUP) * feed.rows.row;
            const int at = feed.lane / n * ROW + PLACE + feed.lane % n * size;
            Piece pieces[n];
            EACH(q, n) pieces[q] = *(const Piece*)(feed.row_of(q * (WARP / n), group) + at);
            EACH(q, n) {
                const int r = q * (WARP / n) + feed.lane / n;
                if (ALL || (r >= feed.low && r < feed.high)) *(Piece*)(to + q * leap) = pieces[q];
            }
            to += feed.rows.way * GROUP * BYTES;
        }
    }

    template <int BYTES, int PLACE> __device__ __forceinline__ void give_singly(int group, REAL* array, char*& to) const {
        constexpr int size = piece(BYTES), n = GROUP * BYTES / size;
        struct alignas(size) Piece { REAL x[size / sizeof(REAL)]; };
#pragma unroll 1
        for (int q = 0; q < n; ++q) {
            const int each = q * WARP + feed.lane, r = each / n, at = each % n;
            const int i = GROUP * group + feed.slot(at / (n / GROUP));
            char* const there = (char*)array + BYTES * feed.rows.step(r, i) + at % (n / GROUP) * size;
            if (feed.on(r, i)) *(Piece*)there = *(const Piece*)(feed.row_of(r, group) + PLACE + at * size);
        }
        to += feed.rows.way * GROUP * BYTES;
    }
};

// Everything is prefetched before anything is used: a thread on its own then waits but once
__device__ __forceinline__ void ask_at_once() {
#ifdef __CUDA_ARCH__
    __syncwarp(__activemask());
#endif
}

// --- steps out of a feed, or out of global memory
struct Direct {  // one row, a step at a time
    const Sources& from;
    template <int PART> __device__ __forceinline__ const REAL* at(Index k) const { return from.at<PART>(k); }
};

// `still`: the prior stands at the first observation, nothing moves
template <class From, class I> __device__ __forceinline__ void load(Step& s, const From& from, I i, bool still) {
    read<NX * NX>(&s.F[0][0], from.template at<PART_F>(i));
    read_symmetric(s.Q, from.template at<PART_Q>(i));
    read<NX>(s.u, from.template at<PART_U>(i));
    if (still) {
        asm volatile("");  // a branch that is hardly ever taken, not a choice for every number
        EACH(a, NX) { EACH(b, NX) s.F[a][b] = a == b; s.u[a] = 0; }
        EACH(a, SYM) s.Q.s[a] = 0;
    }
}

// r holds y - d; missing entries have zero rows in H and the identity in R
template <class From, class I> __device__ __forceinline__ void load(Look& l, const From& from, I i) {
    REAL offset[NY];
    read<NY>(l.r, from.template at<PART_Y>(i));
    read<NY>(offset, from.template at<PART_D>(i));
    read<NY * NX>(&l.H[0][0], from.template at<PART_H>(i));
    read_symmetric(l.R, from.template at<PART_R>(i));
    EACH(a, NY) l.gone[a] = l.r[a] != l.r[a];
    EACH(a, NY) {
        l.r[a] = l.gone[a] ? REAL(0) : l.r[a] - offset[a];
        EACH(b, NX) l.H[a][b] = l.gone[a] ? REAL(0) : l.H[a][b];
        l.R(a, a) = l.gone[a] ? REAL(1) : l.R(a, a);
        FROM(b, a + 1, NY) l.R(a, b) = l.gone[a] || l.gone[b] ? REAL(0) : l.R(a, b);
    }
}

template <class From, class I> __device__ __forceinline__ void load(Gauss& x, const From& from, I i) {
    read<NX>(x.m, from.template at<PART_M>(i));
    read_symmetric(x.P, from.template at<PART_P>(i));
}

__device__ __forceinline__ void load_state(Gauss& x, const REAL* mean, const REAL* covariance, Index at) {
    read<NX>(x.m, mean + at * NX);
    read_symmetric(x.P, covariance + at * NX * NX);
}
