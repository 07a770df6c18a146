// One step of time: its parts, the density of its observation, and its elements of the filter's and the smoother's scans.
// `predict` and `update` follow the types; `cuda_step.py` writes them.

struct Transition { real F[NX][NX]; Sym<NX> Q; real u[NX]; };
struct Observation { real H[NY][NX]; Sym<NY> R; real d[NY], y[NY]; };
// The gain, the factors of S = L D L', the innovation whitened by L, its quadratic form, and the pivots of 2 pi S, 1 where an
// entry is missing
struct Gain { real K[NX][NY], lower[NY][NY], inverse[NY], pivot[NY], white[NY], quadratic; };
