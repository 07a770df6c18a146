// What a step needs of the model, brought near before it is needed.
//
// Thread t of a warp walks over a stretch of steps of its own, row t. While it works on one step, the warp copies the next
// step of all its rows into shared memory, 16 bytes a thread and neighbours together wherever a row is that long, so that
// nobody waits for memory and no sector is fetched twice. -DROW=... is what one row takes there, in bytes; 0 for sizes that
// do not fit: those read global memory where they need it. -DPARTS=... has bit p set where kernels need part p.

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

template <int SIZE> __device__ __forceinline__ void copy_async(char* to, const char* from) {
#ifdef __CUDA_ARCH__
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (SIZE == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
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

#if ROW
static_assert(ROW % 16 == 0 && ROW >= place(N_PARTS), "a row is longer than what the launch made room for");
#endif

struct Feed {
    const Sources& from;
    const Rows& rows;
    char* stage;  // of this warp: two of them, one being filled while the other is read
    int lane;

    __device__ __forceinline__ Feed(const Sources& from, const Rows& rows, char* stages)
        : from(from), rows(rows), stage(stages + (threadIdx.x / WARP) * 2 * WARP * ROW), lane(threadIdx.x % WARP) {}

    __device__ __forceinline__ char* row_of(int r, int i) const { return stage + ((i & 1) * WARP + r) * ROW; }

    template <int PART> __device__ __forceinline__ void ask_part(int i) const {
        constexpr int size = piece(PART), n = bytes_of(PART) / size;
        const char* const start = from.from[PART] + from.by[PART] * rows.step(0, i);
        const Index by = from.by[PART] * rows.row;
        EACH(q, n) {
            const int each = q * WARP + lane, r = each / n, at = each % n * size;
            if (rows.on(r, i)) copy_async<size>(row_of(r, i) + place(PART) + at, start + r * by + at);
        }
    }

    // Begin to bring the i-th step of every row
    __device__ __forceinline__ void ask(int i) const {
#if ROW
        if (i < rows.length) ask_parts<0>(i);
        close_group();
#endif
    }

    template <int PART> __device__ __forceinline__ void ask_parts(int i) const {
        if constexpr (PART < N_PARTS) {
            if constexpr (PARTS >> PART & 1) ask_part<PART>(i);
            ask_parts<PART + 1>(i);
        }
    }

    // Wait until the i-th step is here, the one after it perhaps under way
    __device__ __forceinline__ void take(int i) const {
#if ROW
        wait_for_all_but_one();
        __syncwarp();
#endif
    }

    // Everyone has read the i-th step, or what was put in its place
    __device__ __forceinline__ void release() const {
#if ROW
        __syncwarp();
#endif
    }

    template <int PART> __device__ __forceinline__ const REAL* at(int i) const {
#if ROW
        return (const REAL*)(row_of(lane, i) + place(PART));
#else
        return from.at<PART>(rows.step(lane, i));
#endif
    }

    // Write a state of every row; all threads of the warp call it, `release` between reading the step and this
    __device__ __forceinline__ void put(int i, const Gauss& x, REAL* mean, REAL* covariance) const {
#if ROW
        constexpr int after = (bytes_of(PART_M) + piece(PART_P) - 1) / piece(PART_P) * piece(PART_P);
        write<NX>((REAL*)row_of(lane, i), x.m);
        write_symmetric((REAL*)(row_of(lane, i) + after), x.P);
        __syncwarp();
        give<PART_M>(i, 0, (char*)mean);
        give<PART_P>(i, after, (char*)covariance);
        __syncwarp();
#else
        if (!rows.on(lane, i)) return;
        const Index k = rows.step(lane, i);
        write<NX>(mean + k * NX, x.m);
        write_symmetric(covariance + k * NX * NX, x.P);
#endif
    }

    template <int PART> __device__ __forceinline__ void give(int i, int place, char* to) const {
        constexpr int size = piece(PART), n = bytes_of(PART) / size;
        struct alignas(size) Piece { REAL x[size / sizeof(REAL)]; };
        char* const start = to + bytes_of(PART) * rows.step(0, i);
        const Index by = bytes_of(PART) * rows.row;
        EACH(q, n) {
            const int each = q * WARP + lane, r = each / n, at = each % n * size;
            if (rows.on(r, i)) *(Piece*)(start + r * by + at) = *(const Piece*)(row_of(r, i) + place + at);
        }
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
