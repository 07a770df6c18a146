// The smoother of Rauch, Tung and Striebel over chunks of time, one a thread, in one launch: as the filter, backwards, with
// links (E, g, L). Chunk 0 is the last one, and steps run back inside.

extern "C" __global__ void __launch_bounds__(THREADS)
smooth_chunks(MODEL, int* flags, REAL* totals, const REAL* mean, const REAL* covariance, REAL* smooth_mean,
              REAL* smooth_covariance) {
    UNPACK
    STAGES
    __shared__ Link room[WARPS];
    __shared__ Sources from;
    const int place = turn(flags), block = place % n_blocks;
    const Index series = place / n_blocks, c = (Index)block * THREADS + threadIdx.x;
    if (threadIdx.x == 0) links_of(from, series, n_steps, F, Q, u, mean, covariance, places);
    __syncthreads();
    const Rows rows(n_steps - 2, -1, c - threadIdx.x % WARP, chunk, n_steps - 1);
    Feed feed(from, rows, stages, false);
    const int lane = threadIdx.x % WARP;
    Link e, total;
    identity(e);
    feed.ask(0);
#pragma unroll 1
    for (int group = 0; group < feed.groups(); ++group) {
        feed.ask(group + 1);
        feed.take();
        EACH_STEP(i, group) if (feed.on(lane, i)) {
            Step s;
            Gauss x;
            Link one;
            load(s, feed, i, false);
            load(x, feed, i);
            link(s, x, one);
            combine(one, e, e);
        }
        feed.release();
    }
    block_scan(true, true, THREADS, e, total, room);
    tell(totals, flags, place, total);
    Feed again(from, rows, stages, true);
    again.ask(0);
    const Index last = series * n_steps + n_steps - 1;
    Gauss later;
    load_state(later, mean, covariance, last);
    if (c == 0) {
        write<NX>(smooth_mean + last * NX, later.m);
        write_symmetric(smooth_covariance + last * NX * NX, later.P);
    }
    if (block > 0) {
        joined(true, totals, flags, place - block, 1, block, total, room);
        advance(total, later);
    }
    advance(e, later);
    smooth_mean += series * n_steps * NX;
    smooth_covariance += series * n_steps * NX * NX;
    Exit exit(again, smooth_mean, smooth_covariance, nullptr);
#pragma unroll 1
    for (int group = 0; group < again.groups(); ++group) {
        again.ask(group + 1);
        again.take();
        EACH_STEP(i, group) {
            Step s;
            Gauss x;
            load(s, again, i, false);
            load(x, again, i);
            if (again.on(lane, i)) {
                Link one;
                link(s, x, one);
                advance(one, later);
            }
            exit.put(i, later);
        }
        again.release();
        exit.give(group);
    }
}
