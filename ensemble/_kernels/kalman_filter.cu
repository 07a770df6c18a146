// The filter over chunks of time, one a thread, in one launch.
//
// Each thread sums up its chunk as one element (A, b, C, eta, J) by ordinary filter steps, which need no inverse larger than
// NY; a block scans its elements by warp shuffles and tells its total; once all blocks before it have told theirs, each
// thread carries the prior through them and through the chunks before its own, and runs the plain recursion over its chunk.
// Arrays are (series, steps, ...), entries of a step together; strides over series and steps are in entries of REAL, 0 where
// something is shared or constant. `places` holds them in pairs.

// `own`, if not null, keeps the element of every chunk: the start of a filter that runs backwards.
extern "C" __global__ void __launch_bounds__(THREADS)
filter_chunks(MODEL, int n_blocks, int* flags, REAL* totals, REAL* own, REAL* mean, REAL* covariance, REAL* terms) {
    STAGES
    __shared__ Element room[WARPS];
    __shared__ Sources from;
    const int place = turn(flags), block = place % n_blocks;
    const Index series = place / n_blocks, c = (Index)block * THREADS + threadIdx.x;
    if (threadIdx.x == 0) model_of(from, series, F, Q, H, R, u, d, y, places);
    __syncthreads();
    const Rows rows(0, 1, c - threadIdx.x % WARP, chunk, n_steps);
    const Feed feed(from, rows, stages);
    const int lane = threadIdx.x % WARP;
    const bool stands = c == 0 && !predict_first;
    Element e, total;
    identity(e);
    feed.ask(0);
#pragma unroll 1
    for (int i = 0; i < rows.length; ++i) {
        feed.ask(i + 1);
        feed.take(i);
        if (rows.on(lane, i)) {
            Step s;
            Look l;
            load(l, feed, i);
            load(s, feed, i, stands && i == 0);
            extend(e, s, l);
        }
        feed.release();
    }
    if (own != nullptr) {
        const Index all = (Index)n_blocks * THREADS;
        keep(own + series * all * size_of<Element>(), all, c, e);
    }
    block_scan(false, THREADS, e, total, room);
    tell(totals, flags, place, total);
    feed.ask(0);
    Gauss x;
    load_state(x, m0 + places[14] * series, P0 + places[16] * series, 0);
    if (block > 0) {
        joined(false, totals, flags, place - block, 1, block, total, room);
        advance(total, x);
    }
    advance(e, x);
    mean += series * n_steps * NX;
    covariance += series * n_steps * NX * NX;
#pragma unroll 1
    for (int i = 0; i < rows.length; ++i) {
        feed.ask(i + 1);
        feed.take(i);
        Step s;
        Look l;
        Gain g;
        load(l, feed, i);
        load(s, feed, i, stands && i == 0);
        feed.release();
        if (rows.on(lane, i)) {
            move(s, x);
            look(l, x, g);
            if (terms != nullptr) terms[series * n_steps + rows.step(lane, i)] = log_density(l, g);
        }
        feed.put(i, x, mean, covariance);
    }
}

// The plain recursion, a thread a series
extern "C" __global__ void __launch_bounds__(THREADS)
filter_series(MODEL, Index n_series, REAL* mean, REAL* covariance, REAL* terms) {
    const Index series = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (series >= n_series) return;
    Sources from;
    model_of(from, series, F, Q, H, R, u, d, y, places);
    const Direct steps{from};
    Gauss x;
    load_state(x, m0 + places[14] * series, P0 + places[16] * series, 0);
#pragma unroll 1
    for (Index k = 0; k < n_steps; ++k) {
        Step s;
        Look l;
        Gain g;
        load(l, steps, k);
        load(s, steps, k, false);
        ask_at_once();
        if (k > 0 || predict_first) move(s, x);
        look(l, x, g);
        const Index at = series * n_steps + k;
        write<NX>(mean + at * NX, x.m);
        write_symmetric(covariance + at * NX * NX, x.P);
        if (terms != nullptr) terms[at] = log_density(l, g);
    }
}
