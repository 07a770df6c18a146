// The filter over chunks of time, one a thread, in one launch.
//
// Each thread sums up its chunk as one element (A, b, C, eta, J) by ordinary filter steps, which need no inverse larger than
// NY; a block scans its elements by warp shuffles and tells its total; once all blocks before it have told theirs, each
// thread carries the prior through them and through the chunks before its own, and runs the plain recursion over its chunk.
// Arrays are (series, steps, ...), entries of a step together; strides over series and steps are in entries of REAL, 0 where
// something is shared or constant. `places` holds them in pairs.

// Likelihoods of one row, written four at a time where steps allow it
struct Terms {
    REAL* to;
    REAL four[4];
    Index last;
    bool fours;

    __device__ __forceinline__ Terms(REAL* to, int chunk)
        : to(to), last(-1), fours(chunk % 4 == 0 && (size_t)to % (4 * sizeof(REAL)) == 0) {}

    __device__ __forceinline__ void say(Index k, REAL term) {
        if (!fours) {
            to[k] = term;
            return;
        }
        EACH(j, 4) four[j] = (k & 3) == j ? term : four[j];
        if ((k & 3) == 3) write<4>(to + k - 3, four);
        last = k;
    }

    // What is left when a row ends
    __device__ __forceinline__ void rest() {
        if (fours) EACH(j, 3) if (last >= 0 && (last & 3) != 3 && j <= (last & 3)) to[(last & ~(Index)3) + j] = four[j];
    }
};

// The first chunk's element starts with the prior, which may say what makes its observations regular.
// Where several devices share a series, `pass` is 1 to sum up and stop, `local` then keeping what stands before each chunk
// in its block, and 2 to go on from there once the state before the first chunk is known; 3 is 1 where it is known; else 0. `own`, if not null, keeps
// the element of every chunk: the start of a filter that runs backwards.
extern "C" __global__ void __launch_bounds__(THREADS)
filter_chunks(MODEL, int n_blocks, int* flags, REAL* totals, REAL* own, REAL* local, int pass, REAL* mean,
              REAL* covariance, REAL* terms) {
    STAGES
    __shared__ Element room[WARPS];
    __shared__ Sources from;
    const int place = pass == 2 ? (int)blockIdx.x : turn(flags), block = place % n_blocks;
    const Index series = place / n_blocks, c = (Index)block * THREADS + threadIdx.x;
    if (threadIdx.x == 0) model_of(from, series, F, Q, H, R, u, d, y, places);
    __syncthreads();
    const Rows rows(0, 1, c - threadIdx.x % WARP, chunk, n_steps);
    Feed feed(from, rows, stages);
    const int lane = threadIdx.x % WARP;
    const bool stands = c == 0 && !predict_first;
    Element e, total;
    identity(e);
    if (c == 0 && (pass == 0 || pass == 3)) {
        Gauss prior;
        load_state(prior, m0 + places[14] * series, P0 + places[16] * series, 0);
        forget(prior, e);
    }
    if (pass != 2) feed.ask(0);
#pragma unroll 1
    for (int i = 0; i < rows.length && pass != 2; ++i) {
        feed.ask(i + 1);
        feed.take(i);
        if (feed.on(lane, i)) {
            Step s;
            Look l;
            load(l, feed, i);
            load(s, feed, i, stands && i == 0);
            extend(e, s, l);
        }
        feed.release();
    }
    const Index all = (Index)n_blocks * THREADS;
    if (own != nullptr && pass != 2) keep(own + series * all * size_of<Element>(), all, c, e);
    if (pass != 2) {
        block_scan(false, THREADS, e, total, room);
        tell(totals, flags, place, total);
    }
    if (pass % 2 == 1) {
        keep(local + series * all * size_of<Element>(), all, c, e);
        return;
    }
    if (pass == 2) e = kept<Element>(local + series * all * size_of<Element>(), all, c);
    Feed again(from, rows, stages);
    again.ask(0);
    Gauss x;
    load_state(x, m0 + places[14] * series, P0 + places[16] * series, 0);
    if (block > 0) {
        joined(false, totals, pass == 2 ? nullptr : flags, place - block, 1, block, total, room);
        advance(total, x);
    }
    advance(e, x);
    Exit exit(again, mean + series * n_steps * NX, covariance + series * n_steps * NX * NX);
    Terms said(terms == nullptr ? nullptr : terms + series * n_steps, chunk);
#pragma unroll 1
    for (int i = 0; i < rows.length; ++i) {
        again.ask(i + 1);
        again.take(i);
        if (i > 0) exit.give(i - 1);
        Step s;
        Look l;
        Gain g;
        load(l, again, i);
        load(s, again, i, stands && i == 0);
        again.release();
        if (again.on(lane, i)) {
            move(s, x);
            look(l, x, g);
            if (terms != nullptr) said.say(rows.step(lane, i), log_density(l, g));
        }
        again.put(i, x, mean + series * n_steps * NX, covariance + series * n_steps * NX * NX);
    }
    again.release();
    if (rows.length > 0) exit.give(rows.length - 1);
    if (terms != nullptr) said.rest();
}
