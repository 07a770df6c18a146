// One step of time: prediction, update, what a step adds to an element, the link of the smoother.

struct Step { REAL F[NX][NX]; Sym<NX> Q; REAL u[NX]; };
struct Look { REAL H[NY][NX]; Sym<NY> R; REAL r[NY]; bool gone[NY]; };
struct Gain { REAL K[NX][NY]; REAL lower[NY][NY]; REAL inverse[NY]; REAL pivot[NY]; REAL r[NY]; bool lost; };

// What part of a diagonal entry, or of the terms it is made of, may be lost in rounding
__device__ __forceinline__ REAL rounding(int n) {
    return REAL(8 * n) * (sizeof(REAL) == 4 ? REAL(1.1920928955078125e-7) : REAL(2.220446049250313e-16));
}

__device__ __forceinline__ void move(const Step& s, Gauss& x) {
    REAL m[NX];
    EACH(i, NX) { REAL sum = s.u[i]; EACH(j, NX) sum += s.F[i][j] * x.m[j]; m[i] = sum; }
    Sym<NX> P;
    congruence(s.F, x.P, s.Q, P);
    EACH(i, NX) x.m[i] = m[i];
    x.P = P;
}

__device__ __forceinline__ void forward(const Gain& g, REAL x[NY]) {
    EACH(i, NY) EACH(j, i) x[i] -= g.lower[i][j] * x[j];
}

// Mean and covariance given an observation. The covariance is P - W' D^-1 W with W = L^-1 H P, less what the rounding of it
// leaves of P H' - K R, which is zero otherwise: as accurate as Joseph's form, from fewer operations.
__device__ __forceinline__ void look(const Look& l, Gauss& x, Gain& g) {
    REAL W[NY][NX];
    EACH(i, NY) EACH(a, NX) { W[i][a] = 0; EACH(k, NX) W[i][a] += l.H[i][k] * x.P(k, a); }
    Sym<NY> S = l.R;
    EACH(i, NY) FROM(j, i, NY) EACH(k, NX) S(i, j) += l.H[i][k] * W[j][k];
    REAL whole[NY];  // what the rounding of S is in proportion to: its terms may cancel
    EACH(j, NY) { REAL sum = 0; EACH(k, NX) sum += l.H[j][k] * l.H[j][k] * x.P(k, k); whole[j] = NX * sum + l.R(j, j); }
    g.lost = false;
    EACH(j, NY) {
        g.pivot[j] = S(j, j);
        g.lost = g.lost || g.pivot[j] <= rounding(NY) * whole[j];
        g.inverse[j] = REAL(1) / g.pivot[j];
        FROM(i, j + 1, NY) {
            g.lower[i][j] = S(j, i) * g.inverse[j];
            FROM(k, i, NY) S(i, k) -= g.lower[i][j] * S(j, k);
        }
    }
    EACH(a, NX) {
        EACH(i, NY) EACH(j, i) W[i][a] -= g.lower[i][j] * W[j][a];
        EACH(i, NY) g.K[a][i] = W[i][a] * g.inverse[i];
        DOWN(i, NY - 1, -1) FROM(j, i + 1, NY) g.K[a][i] -= g.lower[j][i] * g.K[a][j];
    }
    EACH(i, NY) { REAL sum = l.r[i]; EACH(k, NX) sum -= l.H[i][k] * x.m[k]; g.r[i] = l.gone[i] ? REAL(0) : sum; }
    EACH(a, NX) EACH(i, NY) x.m[a] += g.K[a][i] * g.r[i];
    EACH(a, NX) EACH(i, NY) {
        const REAL weighted = g.inverse[i] * W[i][a];
        FROM(c, a, NX) x.P(a, c) -= weighted * W[i][c];
    }
    REAL G[NX][NY], T[NY][NY];
    EACH(a, NX) EACH(i, NY) {
        G[a][i] = 0;
        EACH(k, NX) G[a][i] += x.P(a, k) * l.H[i][k];
        EACH(j, NY) G[a][i] -= g.K[a][j] * l.R(j, i);
    }
    EACH(i, NY) EACH(j, NY) { T[i][j] = 0; EACH(k, NX) T[i][j] += l.H[i][k] * G[k][j]; }
    EACH(a, NX) EACH(j, NY) { REAL sum = 0; EACH(i, NY) sum += g.K[a][i] * T[i][j]; G[a][j] -= REAL(0.5) * sum; }
    EACH(a, NX) FROM(c, a, NX) EACH(i, NY) { x.P(a, c) -= G[a][i] * g.K[c][i]; x.P(a, c) -= g.K[a][i] * G[c][i]; }
}

// log p(y[k] | y[:k]) from the gain
__device__ __forceinline__ REAL log_density(const Look& l, Gain& g) {
    forward(g, g.r);
    REAL sum = 0;
    EACH(i, NY) sum += g.r[i] * g.r[i] * g.inverse[i] + (l.gone[i] ? REAL(0) : log(g.pivot[i] * REAL(TWO_PI)));
    return REAL(-0.5) * sum;
}

// One more step at the end of a interval of time. Where its innovation covariance is singular given the state before the
// interval, an observation can fix that state exactly, which no J says: NaN, and with it all that is joined with the element,
// until the recursion takes over.
__device__ __forceinline__ void extend(Element& e, const Step& s, const Look& l) {
    Gauss x;
    EACH(i, NX) x.m[i] = e.b[i];
    x.P = e.C;
    move(s, x);
    REAL FA[NX][NX], G[NY][NX];
    EACH(i, NX) EACH(j, NX) { FA[i][j] = 0; EACH(k, NX) FA[i][j] += s.F[i][k] * e.A[k][j]; }
    EACH(i, NY) EACH(j, NX) { G[i][j] = 0; EACH(k, NX) G[i][j] += l.H[i][k] * FA[k][j]; }
    Gain g;
    look(l, x, g);
    EACH(i, NX) EACH(j, NX) { REAL sum = FA[i][j]; EACH(k, NY) sum -= g.K[i][k] * G[k][j]; e.A[i][j] = sum; }
    EACH(i, NY) EACH(j, i) EACH(c, NX) G[i][c] -= g.lower[i][j] * G[j][c];
    forward(g, g.r);
    EACH(c, NX) EACH(i, NY) {
        const REAL weighted = G[i][c] * g.inverse[i];
        e.eta[c] += weighted * g.r[i];
        FROM(a, c, NX) e.J(c, a) += weighted * G[i][a];
    }
    if (g.lost) e.J.s[0] = log(REAL(-1));
    EACH(i, NX) e.b[i] = x.m[i];
    e.C = x.P;
}

// x[k] given x[k+1] and the observations up to k. Where the predicted covariance is nearly singular its gain is lost in
// rounding: NaN, and with it all that is joined with the link, until the smoother in disturbance form takes over.
__device__ __forceinline__ void link(const Step& s, const Gauss& x, Link& e) {
    const REAL singular = sizeof(REAL) == 4 ? REAL(8) * rounding(NX) : REAL(1e-8);
    bool lost = false;
    REAL FP[NX][NX], inverse[NX], lower[NX][NX];
    EACH(i, NX) EACH(j, NX) { FP[i][j] = 0; EACH(k, NX) FP[i][j] += s.F[i][k] * x.P(k, j); }
    Sym<NX> S = s.Q;
    EACH(i, NX) FROM(j, i, NX) EACH(k, NX) S(i, j) += FP[i][k] * s.F[j][k];
    REAL whole[NX];
    EACH(j, NX) whole[j] = S(j, j);
    EACH(j, NX) {
        const REAL pivot = S(j, j);
        lost = lost || !(pivot > singular * whole[j]);
        inverse[j] = REAL(1) / pivot;
        FROM(i, j + 1, NX) {
            lower[i][j] = S(j, i) * inverse[j];
            FROM(k, i, NX) S(i, k) -= lower[i][j] * S(j, k);
        }
    }
    EACH(a, NX) {
        EACH(i, NX) { e.E[a][i] = FP[i][a]; EACH(j, i) e.E[a][i] -= lower[i][j] * e.E[a][j]; }
        EACH(i, NX) e.E[a][i] *= inverse[i];
        DOWN(i, NX - 1, -1) FROM(j, i + 1, NX) e.E[a][i] -= lower[j][i] * e.E[a][j];
    }
    REAL ahead[NX], A[NX][NX];
    EACH(i, NX) { REAL sum = s.u[i]; EACH(j, NX) sum += s.F[i][j] * x.m[j]; ahead[i] = sum; }
    EACH(a, NX) {
        REAL sum = x.m[a];
        EACH(i, NX) sum -= e.E[a][i] * ahead[i];
        e.g[a] = sum;
        EACH(c, NX) { A[a][c] = a == c; EACH(i, NX) A[a][c] -= e.E[a][i] * s.F[i][c]; }
    }
    Sym<NX> zero, noise;
    EACH(i, SYM) zero.s[i] = 0;
    congruence(e.E, s.Q, zero, noise);
    congruence(A, x.P, noise, e.L);
    if (lost) e.g[0] = e.L.s[0] = log(REAL(-1));
}
