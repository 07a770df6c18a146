// One step of time: prediction, update, and its elements of the filter's and the smoother's scans.

struct Transition { real F[NX][NX]; Sym<NX> Q; real u[NX]; };
struct Observation { real H[NY][NX]; Sym<NY> R; real r[NY]; bool missing[NY]; };
struct Gain { real K[NX][NY]; real lower[NY][NY]; real inverse[NY]; real pivot[NY]; real r[NY]; bool lost; };

__device__ __forceinline__ void predict(const Transition& s, State& x) {
    real m[NX];
    EACH(i, NX) { real sum = s.u[i]; EACH(j, NX) sum += s.F[i][j] * x.m[j]; m[i] = sum; }
    Sym<NX> P;
    congruence(s.F, x.P, s.Q, P);
    EACH(i, NX) x.m[i] = m[i];
    x.P = P;
}

// L^-1 x in place of x
__device__ __forceinline__ void forward(const Gain& g, real x[NY]) {
    EACH(i, NY) EACH(j, i) x[i] -= g.lower[i][j] * x[j];
}

// Mean and covariance given an observation: P - W' D^-1 W with W = L^-1 H P, corrected by the residual G = P H' - K R, which is
// zero but for rounding. As accurate as Joseph's form, from fewer operations.
__device__ __forceinline__ void update(const Observation& o, State& x, Gain& g) {
    real W[NY][NX];
    EACH(i, NY) EACH(a, NX) { W[i][a] = 0; EACH(k, NX) W[i][a] += o.H[i][k] * x.P(k, a); }
    Sym<NY> S = o.R;
    EACH(i, NY) FROM(j, i, NY) EACH(k, NX) S(i, j) += o.H[i][k] * W[j][k];
    real scale[NY];  // the rounding error of S is in proportion to it: the terms of S may cancel
    EACH(j, NY) { real sum = 0; EACH(k, NX) sum += o.H[j][k] * o.H[j][k] * x.P(k, k); scale[j] = NX * sum + o.R(j, j); }
    g.lost = factor<NY>(S, scale, rounding(NY), g.lower, g.inverse);
    EACH(j, NY) g.pivot[j] = S(j, j);
    EACH(a, NX) {
        EACH(i, NY) EACH(j, i) W[i][a] -= g.lower[i][j] * W[j][a];
        EACH(i, NY) g.K[a][i] = W[i][a] * g.inverse[i];
        DOWN(i, NY - 1, -1) FROM(j, i + 1, NY) g.K[a][i] -= g.lower[j][i] * g.K[a][j];
    }
    EACH(i, NY) { real sum = o.r[i]; EACH(k, NX) sum -= o.H[i][k] * x.m[k]; g.r[i] = o.missing[i] ? real(0) : sum; }
    EACH(a, NX) EACH(i, NY) x.m[a] += g.K[a][i] * g.r[i];
    EACH(a, NX) EACH(i, NY) {
        const real weighted = g.inverse[i] * W[i][a];
        FROM(c, a, NX) x.P(a, c) -= weighted * W[i][c];
    }
    real G[NX][NY], T[NY][NY];
    EACH(a, NX) EACH(i, NY) {
        G[a][i] = 0;
        EACH(k, NX) G[a][i] += x.P(a, k) * o.H[i][k];
        EACH(j, NY) G[a][i] -= g.K[a][j] * o.R(j, i);
    }
    EACH(i, NY) EACH(j, NY) { T[i][j] = 0; EACH(k, NX) T[i][j] += o.H[i][k] * G[k][j]; }
    EACH(a, NX) EACH(j, NY) { real sum = 0; EACH(i, NY) sum += g.K[a][i] * T[i][j]; G[a][j] -= real(0.5) * sum; }
    EACH(a, NX) FROM(c, a, NX) EACH(i, NY) { x.P(a, c) -= G[a][i] * g.K[c][i]; x.P(a, c) -= g.K[a][i] * G[c][i]; }
}

// log p(y[k] | y[:k]) from the gain
__device__ __forceinline__ real log_density(const Observation& o, Gain& g) {
    forward(g, g.r);
    real sum = 0;
    EACH(i, NY) sum += g.r[i] * g.r[i] * g.inverse[i] + (o.missing[i] ? real(0) : log(g.pivot[i] * real(TWO_PI)));
    return real(-0.5) * sum;
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
    EACH(i, NY) EACH(j, NX) { G[i][j] = 0; EACH(k, NX) G[i][j] += o.H[i][k] * FA[k][j]; }
    Gain g;
    update(o, x, g);
    EACH(i, NX) EACH(j, NX) { real sum = FA[i][j]; EACH(k, NY) sum -= g.K[i][k] * G[k][j]; e.A[i][j] = sum; }
    EACH(i, NY) EACH(j, i) EACH(c, NX) G[i][c] -= g.lower[i][j] * G[j][c];
    forward(g, g.r);
    EACH(c, NX) EACH(i, NY) {
        const real weighted = G[i][c] * g.inverse[i];
        e.eta[c] += weighted * g.r[i];
        FROM(a, c, NX) e.J(c, a) += weighted * G[i][a];
    }
    if (g.lost) e.J.s[0] = log(real(-1));
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
