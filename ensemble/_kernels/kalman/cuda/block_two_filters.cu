// Two filters over chunks of time, a block of threads each: what observations behind every chunk say, a sum from the end in `suffixes`, joins the filter's states.
// `said`, if not null, is what observations behind the last chunk say: eta, then J.
extern "C" __global__ void __launch_bounds__(256)
chunk_two_filters(MODEL, const Sizes sizes, const REAL* suffixes, const REAL* said, const REAL* mean, const REAL* covariance,
                  REAL* smooth_mean, REAL* smooth_covariance) {
    BLOCK
    const State x = take_state(work, nx);
    const Information later = take_information(work, nx);
    const Element e = take_element(work, nx);
    const Transition s = take_transition(work, nx);
    const Observation o = take_observation(work, nx, ny);
    const Gain g = take_gain(work, nx, ny);
    const Matrix HA = work.matrix(ny, nx), product = work.matrix(nx, nx), right = work.matrix(nx, nx + 1);
    const Matrix M = work.matrix(nx, nx);
    REAL* const next = work.vector(nx);
    if (said != nullptr) {
        load(later.eta, said, nx);
        load(later.J, said + nx, nx, nx);
    } else {
        fill(later.eta, nx, 0);
        fill(later.J, nx, nx, 0, 0);
    }
    if (chunk_at + 1 < n_chunks) {
        load(e, suffixes + ((chunk_at + 1) * (gridDim.x / n_chunks) + series) * element_size(nx), nx);
        retreat(e, later, right, M, product, next, nx);
    }
    _Pragma("unroll 1") for (Index k = stop - 1; k >= start; --k) {
        load(x, mean + (series * n_steps + k) * nx, covariance + (series * n_steps + k) * nx * nx, nx);
        EACH(f, nx * nx) { const int r = f / nx, c = f - r * nx; right(r, c) = x.P(r, c); }
        EACH(r, nx) {
            REAL sum = x.m[r];
            FOR(c, 0, nx) sum += x.P(r, c) * later.eta[c];
            right(r, nx) = sum;
        }
        __syncthreads();
        solve_sum(x.P, later.J, right, M, nx, nx + 1);
        EACH(r, nx) smooth_mean[(series * n_steps + k) * nx + r] = right(r, nx);
        EACH(f, nx * nx) {
            const int r = f / nx, c = f - r * nx;
            smooth_covariance[(series * n_steps + k) * nx * nx + f] = REAL(0.5) * (right(r, c) + right(c, r));
        }
        __syncthreads();
        if (k == start) break;
        fill(e.A, nx, nx, 0, 1);
        fill(e.b, nx, 0);
        fill(e.C, nx, nx, 0, 0);
        fill(e.eta, nx, 0);
        fill(e.J, nx, nx, 0, 0);
        load(s, k, series, nx, F, Q, u, places);
        load(o, k, series, nx, ny, H, R, d, y, places);
        extend(e, s, false, o, g, HA, product, next, nx, ny);
        retreat(e, later, right, M, product, next, nx);
    }
}

// --- a range of steps as a whole, for the devices that hold the ranges beside it: the state behind it from the one before
// it, and what its observations and those behind it (`behind`, null for none) say of the state before it
extern "C" __global__ void __launch_bounds__(256)
advance_state(const Sizes sizes, const REAL* element, const REAL* m0, const REAL* P0, REAL* m, REAL* P) {
    const int nx = sizes.nx;
    WORKSPACE
    const Element e = take_element(work, nx);
    const State x = take_state(work, nx);
    const Matrix right = work.matrix(nx, nx + 1), M = work.matrix(nx, nx);
    load(e, element, nx);
    load(x, m0, P0, nx);
    advance(e, x, right, M, nx);
    store(m, x.m, nx);
    store(P, x.P, nx, nx);
}

extern "C" __global__ void __launch_bounds__(256)
retreat_information(const Sizes sizes, const REAL* element, const REAL* behind, REAL* said) {
    const int nx = sizes.nx;
    WORKSPACE
    const Element e = take_element(work, nx);
    const Information x = take_information(work, nx);
    const Matrix right = work.matrix(nx, nx + 1), M = work.matrix(nx, nx), product = work.matrix(nx, nx);
    REAL* const gap = work.vector(nx);
    load(e, element, nx);
    if (behind != nullptr) {
        load(x.eta, behind, nx);
        load(x.J, behind + nx, nx, nx);
    } else {
        fill(x.eta, nx, 0);
        fill(x.J, nx, nx, 0, 0);
    }
    retreat(e, x, right, M, product, gap, nx);
    store(said, x.eta, nx);
    store(said + nx, x.J, nx, nx);
}
