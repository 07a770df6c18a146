// The plain recursions, a thread a series. With `again`, series stand whose chunks or scans gave an answer: where the
// elements of a series say nothing (see `extend`), all states from some step on are NaN, before it for the smoother.

__device__ __forceinline__ bool known(const REAL* mean, Index at) { return mean[at * NX] == mean[at * NX]; }

extern "C" __global__ void __launch_bounds__(THREADS)
filter_series(MODEL, Index n_series, int again, REAL* mean, REAL* covariance, REAL* terms) {
    const Index series = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (series >= n_series || (again && known(mean, series * n_steps + n_steps - 1))) return;
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

extern "C" __global__ void __launch_bounds__(THREADS)
smooth_series(MODEL, Index n_series, int again, const REAL* mean, const REAL* covariance, REAL* smooth_mean,
              REAL* smooth_covariance) {
    const Index series = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (series >= n_series || (again && known(smooth_mean, series * n_steps))) return;
    Sources from;
    links_of(from, series, n_steps, F, Q, u, mean, covariance, places);
    const Direct steps{from};
    const Index start = series * n_steps;
    Gauss later;
    load_state(later, mean, covariance, start + n_steps - 1);
    write<NX>(smooth_mean + (start + n_steps - 1) * NX, later.m);
    write_symmetric(smooth_covariance + (start + n_steps - 1) * NX * NX, later.P);
#pragma unroll 1
    for (Index k = n_steps - 2; k >= 0; --k) {
        Step s;
        Gauss x;
        Link one;
        load(s, steps, k, false);
        load(x, steps, k);
        ask_at_once();
        link(s, x, one);
        advance(one, later);
        write<NX>(smooth_mean + (start + k) * NX, later.m);
        write_symmetric(smooth_covariance + (start + k) * NX * NX, later.P);
    }
}
