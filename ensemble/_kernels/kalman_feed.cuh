// What a step needs of the model, brought near before it is needed.
//
// Thread t of a warp walks over a stretch of steps of its own, row t. While it works on one step, the warp copies the next
// step of all its rows into shared memory, 16 bytes a thread and neighbours together wherever a row is that long, so that
// nobody waits for memory and no sector is fetched twice. -DROW=... is what one row takes there, in bytes; 0 for sizes that
// do not fit: those read global memory where they need it. Parts that do not change stay there from the first two steps on.
// With -DPUT=1 a row has room for the state on its way out too. -DPARTS=... has bit p set where kernels need part p.

enum Part { PART_F, PART_Q, PART_H, PART_R, PART_U, PART_D, PART_Y, PART_M, PART_P, N_PARTS };

__host__ __device__ constexpr int entries(int part) {
    return part == PART_F || part == PART_Q || part == PART_P ? NX * NX
        : part == PART_H                                      ? NY * NX
        : part == PART_R                                      ? NY * NY
        : part == PART_U || part == PART_M                    ? NX
                                                              : NY;
}
__host__ __device__ constexpr int bytes_of(int part) { return entries(part) * (int)sizeof(REAL); }
// What one copy carries: arrays are laid out so that every step's entries start at a multiple of it
__host__ __device__ constexpr int piece(int part) {
    return bytes_of(part) % 16 == 0 ? 16 : bytes_of(part) % 8 == 0 ? 8 : (int)sizeof(REAL);
}
__host__ __device__ constexpr int place(int part) {
    int at = 0;
    for (int p = 0; p <= part; ++p)
        if (PARTS >> p & 1) {
            at = (at + piece(p) - 1) / piece(p) * piece(p);
            if (p < part) at += bytes_of(p);
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

#define MODEL const REAL *F, const REAL *Q, const REAL *H, const REAL *R, const REAL *u, const REAL *d, const REAL *y, \
    const REAL *m0, const REAL *P0, const Index *places, int predict_first, Index n_steps, int chunk, int n_chunks

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

template <int SIZE> __device__ __forceinline__ void copy_async(char* to, const char* from) {
#ifdef __CUDA_ARCH__  // the second level of cache takes in the whole line, which the next steps will ask for
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (SIZE == 16) asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
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

// Where a row keeps a state on its way out
__host__ __device__ constexpr int aligned(int at, int size) { return (at + size - 1) / size * size; }
#define OUT_M aligned(place(N_PARTS), 16)
#define OUT_P aligned(OUT_M + bytes_of(PART_M), 16)

#if ROW
static_assert(ROW % 16 == 0 && ROW >= (PUT ? OUT_P + bytes_of(PART_P) : place(N_PARTS)), "a row is longer than its room");
#endif

struct Feed {
    const Sources& source;
    const Rows& rows;
    char* stage;  // of this warp: two of them, one being filled while the other is read
    int lane;
    bool whole, plain;            // all rows take all steps; and no part is the same at all of them
    const char* from[N_PARTS];    // this lane's first piece of the next step, and where it goes
    int to[N_PARTS];

    __device__ __forceinline__ Feed(const Sources& source, const Rows& rows, char* stages)
        : source(source), rows(rows), stage(stages + (threadIdx.x / WARP) * 2 * WARP * ROW), lane(threadIdx.x % WARP),
          whole(rows.lo == 0 && rows.hi == WARP), plain(whole) {
#if ROW
        start<0>();
#endif
    }

    template <int PART> __device__ __forceinline__ void start() {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) {
                constexpr int size = piece(PART), n = bytes_of(PART) / size;
                if constexpr (WARP % n == 0) {  // a warp's copies are as many whole rows
                    from[PART] = source.from[PART] + source.by[PART] * rows.step(lane / n, 0) + lane % n * size;
                    to[PART] = lane / n * ROW + place(PART) + lane % n * size;
                    plain = plain && source.by[PART] != 0;
                } else {
                    plain = false;
                }
            }
            start<PART + 1>();
        }
    }

    __device__ __forceinline__ bool on(int r, int i) const { return whole || rows.on(r, i); }

    __device__ __forceinline__ char* row_of(int r, int i) const { return stage + ((i & 1) * WARP + r) * ROW; }

    template <int PART> __device__ __forceinline__ void ask_part(int i) {
        constexpr int size = piece(PART), n = bytes_of(PART) / size;
        const bool steady = source.by[PART] == 0;
        if (steady && i > 1) return;  // it stays where it was put
        if constexpr (WARP % n == 0) {
            const Index leap = steady ? 0 : (Index)(WARP * size) * rows.row;
            EACH(q, n) {
                const int r = q * (WARP / n) + lane / n;
                if (steady || on(r, i)) copy_async<size>(row_of(q * (WARP / n), i) + to[PART], from[PART] + q * leap);
            }
            if (!steady) from[PART] += rows.way * bytes_of(PART);
        } else {
            const char* const start = source.from[PART] + source.by[PART] * rows.step(0, i);
            const Index by = source.by[PART] * rows.row;
            EACH(q, n) {
                const int each = q * WARP + lane, r = each / n, at = each % n * size;
                if (steady || on(r, i)) copy_async<size>(row_of(r, i) + place(PART) + at, start + r * by + at);
            }
        }
    }

    template <int PART> __device__ __forceinline__ void ask_plainly(int i) {
        constexpr int size = piece(PART), n = bytes_of(PART) / size;
        const Index leap = (Index)(WARP * size) * rows.row;
        EACH(q, n) copy_async<size>(row_of(q * (WARP / n), i) + to[PART], from[PART] + q * leap);
        from[PART] += rows.way * bytes_of(PART);
    }

    template <int PART> __device__ __forceinline__ void ask_parts(int i) {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) ask_part<PART>(i);
            ask_parts<PART + 1>(i);
        }
    }

    template <int PART> __device__ __forceinline__ void ask_all_plainly(int i) {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) ask_plainly<PART>(i);
            ask_all_plainly<PART + 1>(i);
        }
    }

    // Begin to bring the i-th step of every row; called with 0, 1, 2, ...
    __device__ __forceinline__ void ask(int i) {
#if ROW
        if (i < rows.length) {
            if (plain) ask_all_plainly<0>(i);
            else ask_parts<0>(i);
        }
        close_group();
#endif
    }

    // Wait until the i-th step is here, the one after it perhaps under way
    __device__ __forceinline__ void take(int i) const {
#if ROW
        wait_for_all_but_one();
        __syncwarp();
#endif
    }

    // Everyone has read the i-th step
    __device__ __forceinline__ void release() const {
#if ROW
        __syncwarp();
#endif
    }

    template <int PART> __device__ __forceinline__ const REAL* at(int i) const {
#if ROW
        return (const REAL*)(row_of(lane, i) + place(PART));
#else
        return source.at<PART>(rows.step(lane, i));
#endif
    }

    // Leave a state where `Exit` finds it, or write it at once where there is no room
    __device__ __forceinline__ void put(int i, const Gauss& x, REAL* mean, REAL* covariance) const {
#if ROW && PUT
        write<NX>((REAL*)(row_of(lane, i) + OUT_M), x.m);
        write_symmetric((REAL*)(row_of(lane, i) + OUT_P), x.P);
#else
        if (!on(lane, i)) return;
        const Index k = rows.step(lane, i);
        write<NX>(mean + k * NX, x.m);
        write_symmetric(covariance + k * NX * NX, x.P);
#endif
    }
};

// The way out: the states of a warp's rows, one step after they were put, neighbours together
struct Exit {
    const Feed& feed;
    char *mean, *covariance;  // this lane's first piece of the next state

    __device__ __forceinline__ Exit(const Feed& feed, REAL* mean, REAL* covariance)
        : feed(feed), mean(start<PART_M>(mean)), covariance(start<PART_P>(covariance)) {}

    template <int PART> __device__ __forceinline__ char* start(REAL* to) const {
        constexpr int size = piece(PART), n = bytes_of(PART) / size;
        constexpr bool even = WARP % n == 0;
        return (char*)to + bytes_of(PART) * feed.rows.step(even ? feed.lane / n : 0, 0) + (even ? feed.lane % n * size : 0);
    }

    // Write what was put as the i-th step; the warp has met since. Called with 0, 1, 2, ...
    __device__ __forceinline__ void give(int i) {
#if ROW && PUT
        give_part<PART_M, OUT_M>(i, mean);
        give_part<PART_P, OUT_P>(i, covariance);
#endif
    }

    template <int PART, int PLACE> __device__ __forceinline__ void give_part(int i, char*& to) const {
        constexpr int size = piece(PART), n = bytes_of(PART) / size;
        struct alignas(size) Piece { REAL x[size / sizeof(REAL)]; };
        if constexpr (WARP % n == 0) {
            const Index leap = (Index)(WARP * size) * feed.rows.row;
            const int at = feed.lane / n * ROW + PLACE + feed.lane % n * size;
            Piece pieces[n];
            EACH(q, n) pieces[q] = *(const Piece*)(feed.row_of(q * (WARP / n), i) + at);
            EACH(q, n) if (feed.on(q * (WARP / n) + feed.lane / n, i)) *(Piece*)(to + q * leap) = pieces[q];
        } else {
            const Index by = bytes_of(PART) * feed.rows.row;
            EACH(q, n) {
                const int each = q * WARP + feed.lane, r = each / n, at = each % n * size;
                if (feed.on(r, i)) *(Piece*)(to + r * by + at) = *(const Piece*)(feed.row_of(r, i) + PLACE + at);
            }
        }
        to += feed.rows.way * bytes_of(PART);
    }
};

// Everything that was asked for so far is asked for before anything is used: a thread on its own then waits but once
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
