// States and the elements of the scans over time: each summarises an interval, and two adjacent ones combine to one.

struct State { real m[NX]; Sym<NX> P; };
struct Information { real eta[NX]; Sym<NX> J; };
struct FilterElement { real A[NX][NX]; real b[NX]; Sym<NX> C; real eta[NX]; Sym<NX> J; };
struct SmootherElement { real E[NX][NX]; real g[NX]; Sym<NX> L; };

__device__ __forceinline__ void identity(FilterElement& e) {
    EACH(i, NX) { EACH(j, NX) e.A[i][j] = i == j; e.b[i] = e.eta[i] = 0; }
    EACH(i, SYM) e.C.s[i] = e.J.s[i] = 0;
}

__device__ __forceinline__ void identity(SmootherElement& e) {
    EACH(i, NX) { EACH(j, NX) e.E[i][j] = i == j; e.g[i] = 0; }
    EACH(i, SYM) e.L.s[i] = 0;
}

// The element of an interval that ends in the state x, whatever the state before it
__device__ __forceinline__ void prior_element(const State& x, FilterElement& e) {
    EACH(i, NX) { EACH(j, NX) e.A[i][j] = 0; e.b[i] = x.m[i]; e.eta[i] = 0; }
    EACH(i, SYM) e.J.s[i] = 0;
    e.C = x.P;
}

// right = (I + P J)^-1 [P, m + P eta]: covariance and mean of the state x given information (eta, J) on it
__device__ __forceinline__ void condition(const State& x, const real eta[NX], const Sym<NX>& J, real right[NX][NX + 1]) {
    EACH(r, NX) {
        real sum = x.m[r];
        EACH(c, NX) { right[r][c] = x.P(r, c); sum += x.P(r, c) * eta[c]; }
        right[r][NX] = sum;
    }
    solve_sum<NX + 1>(x.P, J, right);
}

// m = A mean + b and P = A spread A' + C, from the last NX + 1 columns [spread, mean] of `right`
template <int K> __device__ __forceinline__ void forward_state(
    const FilterElement& e, const real (&right)[NX][K], real m[NX], Sym<NX>& P) {
    P = e.C;
    EACH(r, NX) {
        real sum = e.b[r], row[NX];
        EACH(c, NX) {
            sum += e.A[r][c] * right[c][K - 1];
            row[c] = 0;
            EACH(k, NX) row[c] += e.A[r][k] * right[k][K - 1 - NX + c];
        }
        m[r] = sum;
        FROM(c, r, NX) EACH(k, NX) P(r, c) += row[k] * e.A[c][k];
    }
}

// eta = B' (later_eta - later_J b) + e.eta and J = B' later_J A + e.J, from the first NX columns B of `right`
template <int K> __device__ __forceinline__ void backward_information(
    const FilterElement& e, const real gap[NX], const Sym<NX>& later_J, const real (&right)[NX][K], real eta[NX], Sym<NX>& J) {
    J = e.J;
    EACH(c, NX) {
        real JA[NX];
        EACH(r, NX) { JA[r] = 0; EACH(k, NX) JA[r] += later_J(r, k) * e.A[k][c]; }
        EACH(r, c + 1) EACH(k, NX) J(r, c) += right[k][r] * JA[k];
        real sum = e.eta[c];
        EACH(k, NX) sum += right[k][c] * gap[k];
        eta[c] = sum;
    }
}

// --- associative operations; the results may be the operands
__device__ __forceinline__ void combine(const FilterElement& i, const FilterElement& j, FilterElement& out) {
    real right[NX][2 * NX + 1];
    EACH(r, NX) {
        EACH(c, NX) { right[r][c] = i.A[r][c]; right[r][NX + c] = i.C(r, c); }
        real sum = i.b[r];
        EACH(c, NX) sum += i.C(r, c) * j.eta[c];
        right[r][2 * NX] = sum;
    }
    solve_sum<2 * NX + 1>(i.C, j.J, right);
    real gap[NX], eta[NX], b[NX], A[NX][NX];
    EACH(r, NX) { real sum = j.eta[r]; EACH(c, NX) sum -= j.J(r, c) * i.b[c]; gap[r] = sum; }
    Sym<NX> J, C;
    backward_information(i, gap, j.J, right, eta, J);
    EACH(r, NX) EACH(c, NX) { A[r][c] = 0; EACH(k, NX) A[r][c] += j.A[r][k] * right[k][c]; }
    forward_state(j, right, b, C);
    EACH(r, NX) { EACH(c, NX) out.A[r][c] = A[r][c]; out.b[r] = b[r]; out.eta[r] = eta[r]; }
    out.C = C;
    out.J = J;
}

__device__ __forceinline__ void combine(const SmootherElement& i, const SmootherElement& j, SmootherElement& out) {
    SmootherElement both;
    EACH(r, NX) {
        EACH(c, NX) { both.E[r][c] = 0; EACH(k, NX) both.E[r][c] += i.E[r][k] * j.E[k][c]; }
        real sum = i.g[r];
        EACH(k, NX) sum += i.E[r][k] * j.g[k];
        both.g[r] = sum;
    }
    congruence(i.E, j.L, i.L, both.L);
    out = both;
}

// The state after an interval from the state before it
__device__ __forceinline__ void advance(const FilterElement& e, State& x) {
    real right[NX][NX + 1];
    condition(x, e.eta, e.J, right);
    State after;
    forward_state(e, right, after.m, after.P);
    x = after;
}

// The information of an interval's observations, and of all later ones in x, on the state before it
__device__ __forceinline__ void advance_backward(const FilterElement& e, Information& x) {
    real right[NX][NX], gap[NX];
    EACH(r, NX) {
        EACH(c, NX) right[r][c] = e.A[r][c];
        real sum = x.eta[r];
        EACH(c, NX) sum -= x.J(r, c) * e.b[c];
        gap[r] = sum;
    }
    solve_sum<NX>(e.C, x.J, right);
    Information before;
    backward_information(e, gap, x.J, right, before.eta, before.J);
    x = before;
}

__device__ __forceinline__ void advance(const SmootherElement& e, State& x) {
    real m[NX];
    EACH(r, NX) { real sum = e.g[r]; EACH(c, NX) sum += e.E[r][c] * x.m[c]; m[r] = sum; }
    Sym<NX> P;
    congruence(e.E, x.P, e.L, P);
    EACH(r, NX) x.m[r] = m[r];
    x.P = P;
}

// The filter's state given the information of all later observations
__device__ __forceinline__ void combine_information(const Information& later, State& x) {
    real right[NX][NX + 1];
    condition(x, later.eta, later.J, right);
    EACH(r, NX) { x.m[r] = right[r][NX]; FROM(c, r, NX) x.P(r, c) = real(0.5) * (right[r][c] + right[c][r]); }
}
