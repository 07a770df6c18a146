// The density of an observation, and the elements of one step in the scans of the filter and of the smoother.

// log p(y[k] | y[:k]) from the gain
__device__ __forceinline__ real log_density(const Gain& g) {
    real sum = g.quadratic;
    EACH(i, NY) sum += log(g.pivot[i]);
    return real(-0.5) * sum;
}

// Whether a pivot of an innovation covariance is rounding error: in proportion to the terms of S, which may cancel
__device__ __forceinline__ bool is_singular(const Observation& o, const Sym<NX>& P, const Gain& g) {
    bool lost = false;
    EACH(j, NY) {
        real sum = 0;
        EACH(k, NX) sum += o.H[j][k] * o.H[j][k] * P(k, k);
        lost = lost || (o.y[j] == o.y[j] && !(g.pivot[j] > real(TWO_PI) * rounding(NY) * (NX * sum + o.R(j, j))));
    }
    return lost;
}

// The element of an interval with one step more at its end. Where the innovation covariance of that step is singular given the
// state before the interval, the observation can fix that state exactly, which no J expresses: NaN, and so every element
// combined with this one. Such a series is filtered by the recursion.
__device__ __forceinline__ void extend(FilterElement& e, const Transition& s, const Observation& o) {
    State x;
    EACH(i, NX) x.m[i] = e.b[i];
    x.P = e.C;
    predict(s, x);
    real FA[NX][NX], G[NY][NX];
    EACH(i, NX) EACH(j, NX) { FA[i][j] = 0; EACH(k, NX) FA[i][j] += s.F[i][k] * e.A[k][j]; }
    EACH(i, NY) EACH(j, NX) { real sum = 0; EACH(k, NX) sum += o.H[i][k] * FA[k][j]; G[i][j] = o.y[i] == o.y[i] ? sum : real(0); }
    Gain g;
    const Sym<NX> P = x.P;
    update(o, x, g);
    EACH(i, NX) EACH(j, NX) { real sum = FA[i][j]; EACH(k, NY) sum -= g.K[i][k] * G[k][j]; e.A[i][j] = sum; }
    EACH(i, NY) EACH(j, i) EACH(c, NX) G[i][c] -= g.lower[i][j] * G[j][c];
    EACH(c, NX) EACH(i, NY) {
        const real weighted = G[i][c] * g.inverse[i];
        e.eta[c] += weighted * g.white[i];
        FROM(a, c, NX) e.J(c, a) += weighted * G[i][a];
    }
    if (is_singular(o, P, g)) e.J.s[0] = log(real(-1));
    EACH(i, NX) e.b[i] = x.m[i];
    e.C = x.P;
}

// x[k] given x[k+1] and the observations up to k. Where the predicted covariance is nearly singular, rounding dominates the
// gain: NaN, and so every element combined with this one. Such a series is smoothed in disturbance form.
__device__ __forceinline__ void smoother_element(const Transition& s, const State& x, SmootherElement& e) {
    real FP[NX][NX], inverse[NX], lower[NX][NX];
    EACH(i, NX) EACH(j, NX) { FP[i][j] = 0; EACH(k, NX) FP[i][j] += s.F[i][k] * x.P(k, j); }
    Sym<NX> S = s.Q;
    EACH(i, NX) FROM(j, i, NX) EACH(k, NX) S(i, j) += FP[i][k] * s.F[j][k];
    real diagonal[NX];
    EACH(j, NX) diagonal[j] = S(j, j);
    const bool lost = factor<NX>(S, diagonal, nearly_singular(NX), lower, inverse);
    EACH(a, NX) {
        EACH(i, NX) { e.E[a][i] = FP[i][a]; EACH(j, i) e.E[a][i] -= lower[i][j] * e.E[a][j]; }
        EACH(i, NX) e.E[a][i] *= inverse[i];
        DOWN(i, NX - 1, -1) FROM(j, i + 1, NX) e.E[a][i] -= lower[j][i] * e.E[a][j];
    }
    real ahead[NX], A[NX][NX];
    EACH(i, NX) { real sum = s.u[i]; EACH(j, NX) sum += s.F[i][j] * x.m[j]; ahead[i] = sum; }
    EACH(a, NX) {
        real sum = x.m[a];
        EACH(i, NX) sum -= e.E[a][i] * ahead[i];
        e.g[a] = sum;
        EACH(c, NX) { A[a][c] = a == c; EACH(i, NX) A[a][c] -= e.E[a][i] * s.F[i][c]; }
    }
    Sym<NX> zero, noise;
    EACH(i, SYM) zero.s[i] = 0;
    congruence(e.E, s.Q, zero, noise);
    congruence(A, x.P, noise, e.L);
    if (lost) e.g[0] = e.L.s[0] = log(real(-1));
}
