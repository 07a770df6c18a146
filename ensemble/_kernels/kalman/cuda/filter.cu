// The filter over chunks of time, one per thread, in one launch.
//
// Each thread sums up its chunk as one element (A, b, C, eta, J) by ordinary filter steps, which need no inverse larger than
// NY; a block scans its elements by warp shuffles and tells its total; once all blocks before it have told theirs, each
// thread carries the prior through them and through the chunks before its own, and runs the plain recursion over its chunk.
// Arrays are (series, steps, ...), entries of a step together; strides over series and steps are in entries of REAL, 0 where
// something is shared or constant.

// The first chunk's element starts with the prior, which may say what makes its observations regular.
// Where several devices share a series, `pass` is 1 to sum up and stop, `local` then keeping what stands before each chunk
// in its block, and 2 to go on from there once the state before the first chunk is known; 3 is 1 where it is known; else 0,
// or 4 where no recursion takes over. `own`, if not null, keeps the element of every chunk: the start of a filter that runs
// backwards. `flags` is zero at the start: one, one for each block, one for each series.
extern "C" __global__ void __launch_bounds__(THREADS)
filter_chunks(MODEL, int* flags, REAL* totals, REAL* own, REAL* local, int pass, REAL* mean, REAL* covariance, REAL* terms,
              double* partials, double* sums) {
    UNPACK
    STAGES
    __shared__ Element room[WARPS];
    __shared__ Sources from;
    const int place = pass == 2 ? (int)blockIdx.x : turn(flags), block = place % n_blocks;
    const Index series = place / n_blocks, c = (Index)block * THREADS + threadIdx.x;
    if (threadIdx.x == 0) model_of(from, series, F, Q, H, R, u, d, y, places);
    __syncthreads();
    const Rows rows(0, 1, c - threadIdx.x % WARP, chunk, n_steps);
    Feed feed(from, rows, stages, false);
    const int lane = threadIdx.x % WARP;
    const bool stands = c == 0 && !predict_first;
    Element e, total;
    identity(e);
    if (c == 0 && pass != 1 && pass != 2) {
        Gauss prior;
        load_state(prior, m0 + places[14] * series, P0 + places[16] * series, 0);
        forget(prior, e);
    }
#pragma unroll 1
    for (int group = -1; group < feed.groups() && pass != 2; ++group) {
        feed.ask(group + 1);
        if (group < 0) continue;
        feed.take();
        EACH_STEP(i, group) if (feed.on(lane, i)) {
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
        block_scan(false, true, THREADS, e, total, room);
        tell(totals, flags, place, total);
    }
    if (pass % 2 == 1) {
        keep(local + series * all * size_of<Element>(), all, c, e);
        return;
    }
    if (pass == 2) e = kept<Element>(local + series * all * size_of<Element>(), all, c);
    Feed again(from, rows, stages, true);
    again.ask(0);
    Gauss x;
    load_state(x, m0 + places[14] * series, P0 + places[16] * series, 0);
    if (block > 0) {
        joined(false, totals, pass == 2 ? nullptr : flags, place - block, 1, block, total, room);
        advance(total, x);
    }
    advance(e, x);
    Exit exit(again, mean + series * n_steps * NX, covariance + series * n_steps * NX * NX, terms + series * n_steps);
    double said = 0;
#pragma unroll 1
    for (int group = 0; group < again.groups(); ++group) {
        again.ask(group + 1);
        again.take();
        EACH_STEP(i, group) {
            Step s;
            Look l;
            Gain g;
            load(l, again, i);
            load(s, again, i, stands && i == 0);
            if (again.on(lane, i)) {
                move(s, x);
                look(l, x, g);
                const REAL term = log_density(l, g);
                exit.put(i, term);
                said += term;
            }
            exit.put(i, x);
        }
        again.release();
        exit.give(group);
    }
    double sum;
    int* const ticket = flags + 1 + gridDim.x + series;
    if (sum_of_blocks(said, n_blocks, block, ticket, partials + series * n_blocks, sum)) {
        sums[series] = sum;
        // where the elements of a series said nothing (see `extend`) its last state is NaN, and the recursion takes over
        const REAL last = fresh(mean + (series * n_steps + n_steps - 1) * NX);
        if (pass == 0 && last != last)
            filter_one(F, Q, H, R, u, d, y, m0, P0, cut, series, mean, covariance, terms, sums);
    }
}
