// The smoother of Rauch, Tung and Striebel over chunks of time, one chunk per thread, in one launch: as `filter_chunks`, backwards,
// with elements (E, g, L). Chunk 0 is the last in time, and steps run backwards inside.

extern "C" __global__ void __launch_bounds__(THREADS)
smooth_chunks(MODEL, int* flags, real* totals, const real* mean, const real* covariance, real* smooth_mean,
              real* smooth_covariance) {
    UNPACK
    STAGES
    __shared__ SmootherElement scratch[WARPS];
    __shared__ PartPointers from;
    const int ticket = take_ticket(flags), block = ticket % n_blocks;
    const int64 series = ticket / n_blocks, c = (int64)block * THREADS + threadIdx.x;
    if (threadIdx.x == 0) point_to_smoother_parts(from, series, n_steps, F, Q, u, mean, covariance, strides);
    __syncthreads();
    const Rows rows(n_steps - 2, -1, c - threadIdx.x % WARP, chunk, n_steps - 1);
    StepLoader loader(from, rows, stages, false);
    const int lane = threadIdx.x % WARP;
    SmootherElement e, total;
    identity(e);
    loader.prefetch(0);
#pragma unroll 1
    for (int group = 0; group < loader.groups(); ++group) {
        loader.prefetch(group + 1);
        loader.wait();
        EACH_STEP(i, group) if (loader.is_active(lane, i)) {
            Transition s;
            State x;
            SmootherElement one;
            load(s, loader, i, false);
            load(x, loader, i);
            smoother_element(s, x, one);
            combine(one, e, e);
        }
        loader.finish_group();
    }
    block_scan(true, true, THREADS, e, total, scratch);
    publish_total(totals, flags, ticket, total);
    StepLoader replay(from, rows, stages, true);
    replay.prefetch(0);
    const int64 last = series * n_steps + n_steps - 1;
    State later;
    load_state(later, mean, covariance, last);
    if (c == 0) {
        write<NX>(smooth_mean + last * NX, later.m);
        write_symmetric(smooth_covariance + last * NX * NX, later.P);
    }
    if (block > 0) {
        combine_totals(true, totals, flags, ticket - block, 1, block, total, scratch);
        advance(total, later);
    }
    advance(e, later);
    smooth_mean += series * n_steps * NX;
    smooth_covariance += series * n_steps * NX * NX;
    StateWriter writer(replay, smooth_mean, smooth_covariance, nullptr);
    for_each_step(replay, writer, [&](int i) {
        Transition s;
        State x;
        load(s, replay, i, false);
        load(x, replay, i);
        if (replay.is_active(lane, i)) {
            SmootherElement one;
            smoother_element(s, x, one);
            advance(one, later);
        }
        writer.buffer(i, later);
    });
}
