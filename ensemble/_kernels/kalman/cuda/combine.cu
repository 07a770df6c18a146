// The two-filter smoother: an information filter runs backwards over the chunks and is combined with the filter's states.
//
// It starts from the elements of chunks and the totals of blocks that `filter_chunks` kept. Block 0 and thread 0 hold the last
// chunks. `later`, if not null, is the information (eta, then J packed) of the observations after the last chunk, of each series.

__device__ __forceinline__ void load_information(Information& x, const real* from) {
    EACH(i, NX) x.eta[i] = from == nullptr ? real(0) : from[i];
    EACH(i, SYM) x.J.s[i] = from == nullptr ? real(0) : from[NX + i];
}

extern "C" __global__ void __launch_bounds__(THREADS)
combine_chunks(MODEL, const real* totals, const real* chunk_elements, const real* later, const real* mean,
               const real* covariance, real* smooth_mean, real* smooth_covariance) {
    UNPACK
    STAGES
    __shared__ FilterElement scratch[WARPS];
    __shared__ PartPointers from;
    const int64 series = blockIdx.y, all = (int64)n_blocks * THREADS;
    const int block = n_blocks - 1 - (int)blockIdx.x, lane = threadIdx.x % WARP;
    const int64 c = (int64)(block + 1) * THREADS - 1 - threadIdx.x;
    if (threadIdx.x == 0) {
        point_to_model(from, series, F, Q, H, R, u, d, y, strides);
        point_to_states(from, series, n_steps, mean, covariance);
    }
    __syncthreads();
    const Rows rows(c + lane, chunk, n_steps, n_chunks);
    StepLoader loader(from, rows, stages, true);
    loader.prefetch(0);
    FilterElement e = load_components<FilterElement>(chunk_elements + series * all * size_of<FilterElement>(), all, c), total;
    block_scan(true, true, THREADS, e, total, scratch);
    Information x;
    load_information(x, later == nullptr ? nullptr : later + series * (NX + SYM));
    if (blockIdx.x > 0) {
        combine_totals(true, totals, nullptr, (int)(series + 1) * n_blocks - 1, -1, (int)blockIdx.x, total, scratch);
        advance_backward(total, x);
    }
    advance_backward(e, x);
    smooth_mean += series * n_steps * NX;
    smooth_covariance += series * n_steps * NX * NX;
    StateWriter writer(loader, smooth_mean, smooth_covariance, nullptr);
    for_each_step(loader, writer, [&](int i) {
        Transition s;
        Observation o;
        State filtered;
        load(o, loader, i);
        load(s, loader, i, rows.step(lane, i) == 0 && !predict_first);
        load(filtered, loader, i);
        if (loader.is_active(lane, i)) {
            combine_information(x, filtered);
            FilterElement one;
            identity(one);
            extend(one, s, o);
            advance_backward(one, x);
        }
        writer.buffer(i, filtered);
    });
}

// --- a range of steps as a whole, for the devices that hold the adjacent ranges; one block
// The state after the range from the one before it
extern "C" __global__ void __launch_bounds__(THREADS)
state_after_range(const real* totals, int n_blocks, const real* m0, const real* P0, real* m, real* P) {
    __shared__ FilterElement scratch[WARPS];
    FilterElement total;
    combine_totals(false, totals, nullptr, 0, 1, n_blocks, total, scratch);
    if (threadIdx.x > 0) return;
    State x;
    load_state(x, m0, P0, 0);
    advance(total, x);
    write<NX>(m, x.m);
    write_symmetric(P, x.P);
}

// The information of the range's observations and of all later ones on the state before it
extern "C" __global__ void __launch_bounds__(THREADS)
information_before_range(const real* totals, int n_blocks, const real* later, real* information) {
    __shared__ FilterElement scratch[WARPS];
    FilterElement total;
    combine_totals(true, totals, nullptr, n_blocks - 1, -1, n_blocks, total, scratch);
    if (threadIdx.x > 0) return;
    Information x;
    load_information(x, later);
    advance_backward(total, x);
    EACH(i, NX) information[i] = x.eta[i];
    EACH(i, SYM) information[NX + i] = x.J.s[i];
}

// --- ranges of one series as the series of a launch: the element of each, a block per range
extern "C" __global__ void __launch_bounds__(THREADS)
range_elements(const real* totals, int n_blocks, real* elements) {
    __shared__ FilterElement scratch[WARPS];
    FilterElement total;
    combine_totals(false, totals, nullptr, (int)blockIdx.x * n_blocks, 1, n_blocks, total, scratch);
    if (threadIdx.x > 0) return;
    write<size_of<FilterElement>()>(elements + (int64)blockIdx.x * size_of<FilterElement>(), (const real*)&total);
}

// The state before each of n ranges from that before the first, by block 0, and the information of all observations after each
// range on the state at its end, by block 1
extern "C" __global__ void __launch_bounds__(THREADS)
states_between_ranges(const real* elements, int n, real* mean, real* covariance, real* information) {
    if (threadIdx.x > 0) return;
    if (blockIdx.x == 0) {
        State x;
        load_state(x, mean, covariance, 0);
#pragma unroll 1
        for (int k = 0; k + 1 < n; ++k) {
            advance(load_total<FilterElement>(elements, k), x);
            write<NX>(mean + (k + 1) * NX, x.m);
            write_symmetric(covariance + (k + 1) * NX * NX, x.P);
        }
        return;
    }
    Information x;
    load_information(x, nullptr);
#pragma unroll 1
    for (int k = n - 1; k >= 0; --k) {
        EACH(i, NX) information[k * (NX + SYM) + i] = x.eta[i];
        EACH(i, SYM) information[k * (NX + SYM) + NX + i] = x.J.s[i];
        if (k > 0) advance_backward(load_total<FilterElement>(elements, k), x);
    }
}
