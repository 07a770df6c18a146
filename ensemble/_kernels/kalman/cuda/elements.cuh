// What a interval of time says: states, elements of the filter, links of the smoother, and how they join.

struct Gauss { REAL m[NX]; Sym<NX> P; };
struct Information { REAL eta[NX]; Sym<NX> J; };
struct Element { REAL A[NX][NX]; REAL b[NX]; Sym<NX> C; REAL eta[NX]; Sym<NX> J; };
struct Link { REAL E[NX][NX]; REAL g[NX]; Sym<NX> L; };

__device__ __forceinline__ void identity(Element& e) {
    EACH(i, NX) { EACH(j, NX) e.A[i][j] = i == j; e.b[i] = e.eta[i] = 0; }
    EACH(i, SYM) e.C.s[i] = e.J.s[i] = 0;
}

__device__ __forceinline__ void identity(Link& e) {
    EACH(i, NX) { EACH(j, NX) e.E[i][j] = i == j; e.g[i] = 0; }
    EACH(i, SYM) e.L.s[i] = 0;
}

// The element that leads to one state, whatever was before
__device__ __forceinline__ void forget(const Gauss& x, Element& e) {
    EACH(i, NX) { EACH(j, NX) e.A[i][j] = 0; e.b[i] = x.m[i]; e.eta[i] = 0; }
    EACH(i, SYM) e.J.s[i] = 0;
    e.C = x.P;
}

// --- associative operations; the results may be the operands
__device__ __forceinline__ void combine(const Element& i, const Element& j, Element& out) {
    REAL right[NX][2 * NX + 1];
    EACH(r, NX) {
        EACH(c, NX) { right[r][c] = i.A[r][c]; right[r][NX + c] = i.C(r, c); }
        REAL sum = i.b[r];
        EACH(c, NX) sum += i.C(r, c) * j.eta[c];
        right[r][2 * NX] = sum;
    }
    solve_sum<2 * NX + 1>(i.C, j.J, right);
    REAL gap[NX];
    EACH(r, NX) { REAL sum = j.eta[r]; EACH(c, NX) sum -= j.J(r, c) * i.b[c]; gap[r] = sum; }
    Sym<NX> J = i.J;
    REAL eta[NX];
    EACH(c, NX) {
        REAL JA[NX];
        EACH(r, NX) { JA[r] = 0; EACH(k, NX) JA[r] += j.J(r, k) * i.A[k][c]; }
        EACH(r, c + 1) EACH(k, NX) J(r, c) += right[k][r] * JA[k];
        REAL sum = i.eta[c];
        EACH(k, NX) sum += right[k][c] * gap[k];
        eta[c] = sum;
    }
    Sym<NX> C = j.C;
    REAL A[NX][NX], b[NX];
    EACH(r, NX) {
        EACH(c, NX) { A[r][c] = 0; EACH(k, NX) A[r][c] += j.A[r][k] * right[k][c]; }
        REAL sum = j.b[r], row[NX];
        EACH(c, NX) { sum += j.A[r][c] * right[c][2 * NX]; row[c] = 0; EACH(k, NX) row[c] += j.A[r][k] * right[k][NX + c]; }
        b[r] = sum;
        FROM(c, r, NX) EACH(k, NX) C(r, c) += row[k] * j.A[c][k];
    }
    EACH(r, NX) { EACH(c, NX) out.A[r][c] = A[r][c]; out.b[r] = b[r]; out.eta[r] = eta[r]; }
    out.C = C;
    out.J = J;
}

__device__ __forceinline__ void combine(const Link& i, const Link& j, Link& out) {
    Link both;
    EACH(r, NX) {
        EACH(c, NX) { both.E[r][c] = 0; EACH(k, NX) both.E[r][c] += i.E[r][k] * j.E[k][c]; }
        REAL sum = i.g[r];
        EACH(k, NX) sum += i.E[r][k] * j.g[k];
        both.g[r] = sum;
    }
    congruence(i.E, j.L, i.L, both.L);
    out = both;
}

// The state behind a interval of time from the state before it
__device__ __forceinline__ void advance(const Element& e, Gauss& x) {
    REAL right[NX][NX + 1];
    EACH(r, NX) {
        REAL sum = x.m[r];
        EACH(c, NX) { right[r][c] = x.P(r, c); sum += x.P(r, c) * e.eta[c]; }
        right[r][NX] = sum;
    }
    solve_sum<NX + 1>(x.P, e.J, right);
    Sym<NX> P = e.C;
    REAL m[NX];
    EACH(r, NX) {
        REAL sum = e.b[r], row[NX];
        EACH(c, NX) { sum += e.A[r][c] * right[c][NX]; row[c] = 0; EACH(k, NX) row[c] += e.A[r][k] * right[k][c]; }
        m[r] = sum;
        FROM(c, r, NX) EACH(k, NX) P(r, c) += row[k] * e.A[c][k];
    }
    EACH(r, NX) x.m[r] = m[r];
    x.P = P;
}

// What the observations from before a interval of time on say of the state there
__device__ __forceinline__ void retreat(const Element& e, Information& x) {
    REAL right[NX][NX], gap[NX], eta[NX];
    EACH(r, NX) {
        EACH(c, NX) right[r][c] = e.A[r][c];
        REAL sum = x.eta[r];
        EACH(c, NX) sum -= x.J(r, c) * e.b[c];
        gap[r] = sum;
    }
    solve_sum<NX>(e.C, x.J, right);
    Sym<NX> J = e.J;
    EACH(c, NX) {
        REAL JA[NX];
        EACH(r, NX) { JA[r] = 0; EACH(k, NX) JA[r] += x.J(r, k) * e.A[k][c]; }
        EACH(r, c + 1) EACH(k, NX) J(r, c) += right[k][r] * JA[k];
        REAL sum = e.eta[c];
        EACH(k, NX) sum += right[k][c] * gap[k];
        eta[c] = sum;
    }
    EACH(r, NX) x.eta[r] = eta[r];
    x.J = J;
}

__device__ __forceinline__ void advance(const Link& e, Gauss& x) {
    REAL m[NX];
    EACH(r, NX) { REAL sum = e.g[r]; EACH(c, NX) sum += e.E[r][c] * x.m[c]; m[r] = sum; }
    Sym<NX> P;
    congruence(e.E, x.P, e.L, P);
    EACH(r, NX) x.m[r] = m[r];
    x.P = P;
}

// The filter's state given what all later observations say of it
__device__ __forceinline__ void combine_information(const Information& later, Gauss& x) {
    REAL right[NX][NX + 1];
    EACH(r, NX) {
        REAL sum = x.m[r];
        EACH(c, NX) { right[r][c] = x.P(r, c); sum += x.P(r, c) * later.eta[c]; }
        right[r][NX] = sum;
    }
    solve_sum<NX + 1>(x.P, later.J, right);
    EACH(r, NX) { x.m[r] = right[r][NX]; FROM(c, r, NX) x.P(r, c) = REAL(0.5) * (right[r][c] + right[c][r]); }
}
