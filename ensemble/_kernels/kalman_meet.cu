// Two filters that meet: one runs back over the chunks and joins what it knows with the filter's states.
//
// It starts from the elements that the filter's launch kept of every chunk and from its blocks' totals, all of them there.
// Block 0 and thread 0 hold the last chunks.

extern "C" __global__ void __launch_bounds__(THREADS)
meet_chunks(MODEL, int n_blocks, const REAL* totals, const REAL* own, const REAL* mean, const REAL* covariance,
            REAL* smooth_mean, REAL* smooth_covariance) {
    STAGES
    __shared__ Element room[WARPS];
    __shared__ Sources from;
    const Index series = blockIdx.y, all = (Index)n_blocks * THREADS;
    const int block = n_blocks - 1 - (int)blockIdx.x, lane = threadIdx.x % WARP;
    const Index c = (Index)(block + 1) * THREADS - 1 - threadIdx.x;
    if (threadIdx.x == 0) {
        model_of(from, series, F, Q, H, R, u, d, y, places);
        states_of(from, series, n_steps, mean, covariance);
    }
    __syncthreads();
    const Rows rows(c + lane, chunk, n_steps, n_chunks);
    const Feed feed(from, rows, stages);
    feed.ask(0);
    Element e = kept<Element>(own + series * all * size_of<Element>(), all, c), total;
    block_scan(true, THREADS, e, total, room);
    Information x;
    EACH(i, NX) x.eta[i] = 0;
    EACH(i, SYM) x.J.s[i] = 0;
    if (blockIdx.x > 0) {
        joined(true, totals, nullptr, (int)(series + 1) * n_blocks - 1, -1, (int)blockIdx.x, total, room);
        EACH(i, NX) x.eta[i] = total.eta[i];
        x.J = total.J;
    }
    retreat(e, x);
    smooth_mean += series * n_steps * NX;
    smooth_covariance += series * n_steps * NX * NX;
#pragma unroll 1
    for (int i = 0; i < rows.length; ++i) {
        feed.ask(i + 1);
        feed.take(i);
        Step s;
        Look l;
        Gauss f;
        load(l, feed, i);
        load(s, feed, i, rows.step(lane, i) == 0 && !predict_first);
        load(f, feed, i);
        feed.release();
        if (rows.on(lane, i)) {
            meet(x, f);
            Element one;
            identity(one);
            extend(one, s, l);
            retreat(one, x);
        }
        feed.put(i, f, smooth_mean, smooth_covariance);
    }
}
