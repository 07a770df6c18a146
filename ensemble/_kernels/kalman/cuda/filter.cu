// The filter over chunks of time, one chunk per thread, in one launch.
//
// Each thread reduces its chunk to one element (A, b, C, eta, J) by ordinary filter steps, which need no inverse larger than NY;
// a block scans its elements by warp shuffles and publishes its total; once the totals of all earlier blocks are there, each
// thread advances the prior through them and through the earlier chunks of its block, and runs the recursion over its chunk.
// Arrays are (series, steps, ...), the entries of a step contiguous; strides as in `SeriesLayout`.

// What a launch does: the whole filter, or one half of it where several devices share a series. REDUCE stops after the scan over
// the block, whose prefixes are kept in `chunk_prefixes`; REPLAY continues from there once the state before the range is known.
// In WHOLE and REDUCE_FIRST the first chunk's element starts from the prior, which may make its observations regular.
// WHOLE_BY_CHUNKS is WHOLE without the recursion for series whose elements do not exist, for tests.
enum Pass { WHOLE, REDUCE, REPLAY, REDUCE_FIRST, WHOLE_BY_CHUNKS };

// `chunk_elements`, if not null, keeps the element of every chunk for the information filter that runs backwards. `flags` is zero
// at the start: one ticket, one flag per block, one counter per series.
extern "C" __global__ void __launch_bounds__(THREADS)
filter_chunks(MODEL, int* flags, real* totals, real* chunk_elements, real* chunk_prefixes, int pass, real* mean,
              real* covariance, real* terms, double* partials, double* sums) {
    UNPACK
    STAGES
    __shared__ FilterElement scratch[WARPS];
    __shared__ PartPointers from;
    const int ticket = pass == REPLAY ? (int)blockIdx.x : take_ticket(flags), block = ticket % n_blocks;
    const int64 series = ticket / n_blocks, c = (int64)block * THREADS + threadIdx.x;
    if (threadIdx.x == 0) point_to_model(from, series, F, Q, H, R, u, d, y, strides);
    __syncthreads();
    const Rows rows(0, 1, c - threadIdx.x % WARP, chunk, n_steps);
    StepLoader loader(from, rows, stages, false);
    const int lane = threadIdx.x % WARP;
    const bool at_prior = c == 0 && !predict_first;
    FilterElement e, total;
    identity(e);
    if (c == 0 && pass != REDUCE && pass != REPLAY) {
        State prior;
        load_state(prior, m0 + strides[14] * series, P0 + strides[16] * series, 0);
        prior_element(prior, e);
    }
#pragma unroll 1
    for (int group = -1; group < loader.groups() && pass != REPLAY; ++group) {
        loader.prefetch(group + 1);
        if (group < 0) continue;
        loader.wait();
        EACH_STEP(i, group) if (loader.is_active(lane, i)) {
            Transition s;
            Observation o;
            load(o, loader, i);
            load(s, loader, i, at_prior && i == 0);
            extend(e, s, o);
        }
        loader.finish_group();
    }
    const int64 all = (int64)n_blocks * THREADS;
    if (chunk_elements != nullptr && pass != REPLAY)
        store_components(chunk_elements + series * all * size_of<FilterElement>(), all, c, e);
    if (pass != REPLAY) {
        block_scan(false, true, THREADS, e, total, scratch);
        publish_total(totals, flags, ticket, total);
    }
    if (pass == REDUCE || pass == REDUCE_FIRST) {
        store_components(chunk_prefixes + series * all * size_of<FilterElement>(), all, c, e);
        return;
    }
    if (pass == REPLAY) e = load_components<FilterElement>(chunk_prefixes + series * all * size_of<FilterElement>(), all, c);
    StepLoader replay(from, rows, stages, true);
    replay.prefetch(0);
    State x;
    load_state(x, m0 + strides[14] * series, P0 + strides[16] * series, 0);
    if (block > 0) {
        combine_totals(false, totals, pass == REPLAY ? nullptr : flags, ticket - block, 1, block, total, scratch);
        advance(total, x);
    }
    advance(e, x);
    StateWriter writer(replay, mean + series * n_steps * NX, covariance + series * n_steps * NX * NX, terms + series * n_steps);
    double log_likelihood = 0;
    for_each_step(replay, writer, [&](int i) {
        Transition s;
        Observation o;
        Gain g;
        load(o, replay, i);
        load(s, replay, i, at_prior && i == 0);
        if (replay.is_active(lane, i)) {
            predict(s, x);
            update(o, x, g);
            const real term = log_density(g);
            writer.buffer(i, term);
            log_likelihood += term;
        }
        writer.buffer(i, x);
    });
    double sum;
    int* const counter = flags + 1 + gridDim.x + series;
    if (sum_of_blocks(log_likelihood, n_blocks, block, counter, partials + series * n_blocks, sum)) {
        sums[series] = sum;
        // where elements do not exist (see `extend`) the last mean is NaN
        const real last = load_from_l2(mean + (series * n_steps + n_steps - 1) * NX);
        if (pass == WHOLE && last != last)
            filter_one_series(F, Q, H, R, u, d, y, m0, P0, layout, series, mean, covariance, terms, sums);
    }
}
