// The two filters combined: one runs back over the chunks and joins what it knows with the filter's states.
//
// It starts from the elements that the filter's launch kept of every chunk and from its blocks' totals, all of them there.
// Block 0 and thread 0 hold the last chunks. `said`, if not null, is what observations behind the last chunk say of its end.

__device__ __forceinline__ void load_information(Information& x, const REAL* said) {
    EACH(i, NX) x.eta[i] = said == nullptr ? REAL(0) : said[i];
    EACH(i, SYM) x.J.s[i] = said == nullptr ? REAL(0) : said[NX + i];
}

extern "C" __global__ void __launch_bounds__(THREADS)
combine_chunks(MODEL, const REAL* totals, const REAL* own, const REAL* said, const REAL* mean,
            const REAL* covariance, REAL* smooth_mean, REAL* smooth_covariance) {
    UNPACK
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
    Feed feed(from, rows, stages, true);
    feed.ask(0);
    Element e = kept<Element>(own + series * all * size_of<Element>(), all, c), total;
    block_scan(true, true, THREADS, e, total, room);
    Information x;
    load_information(x, said);
    if (blockIdx.x > 0) {
        joined(true, totals, nullptr, (int)(series + 1) * n_blocks - 1, -1, (int)blockIdx.x, total, room);
        retreat(total, x);
    }
    retreat(e, x);
    smooth_mean += series * n_steps * NX;
    smooth_covariance += series * n_steps * NX * NX;
    Exit exit(feed, smooth_mean, smooth_covariance, nullptr);
#pragma unroll 1
    for (int group = 0; group < feed.groups(); ++group) {
        feed.ask(group + 1);
        feed.take();
        EACH_STEP(i, group) {
            Step s;
            Look l;
            Gauss f;
            load(l, feed, i);
            load(s, feed, i, rows.step(lane, i) == 0 && !predict_first);
            load(f, feed, i);
            if (feed.on(lane, i)) {
                combine_information(x, f);
                Element one;
                identity(one);
                extend(one, s, l);
                retreat(one, x);
            }
            exit.put(i, f);
        }
        feed.release();
        exit.give(group);
    }
}

// --- a range of steps as a whole, for the devices that hold the ranges beside it; one block
// The state behind the range from the one before it
extern "C" __global__ void __launch_bounds__(THREADS)
state_behind(const REAL* totals, int n_blocks, const REAL* m0, const REAL* P0, REAL* m, REAL* P) {
    __shared__ Element room[WARPS];
    Element total;
    joined(false, totals, nullptr, 0, 1, n_blocks, total, room);
    if (threadIdx.x > 0) return;
    Gauss x;
    load_state(x, m0, P0, 0);
    advance(total, x);
    write<NX>(m, x.m);
    write_symmetric(P, x.P);
}

// What the observations from the range on say of the state before it, from what those behind it say; eta, then J packed
extern "C" __global__ void __launch_bounds__(THREADS)
said_before(const REAL* totals, int n_blocks, const REAL* behind, REAL* said) {
    __shared__ Element room[WARPS];
    Element total;
    joined(true, totals, nullptr, n_blocks - 1, -1, n_blocks, total, room);
    if (threadIdx.x > 0) return;
    Information x;
    load_information(x, behind);
    retreat(total, x);
    EACH(i, NX) said[i] = x.eta[i];
    EACH(i, SYM) said[NX + i] = x.J.s[i];
}
