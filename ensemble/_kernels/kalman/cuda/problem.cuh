// The arguments that every kernel takes.

typedef long long Index;

#define TWO_PI 6.283185307179586476925286766559

// Strides, in entries of REAL, over series and over steps of F, Q, H, R, u, d, y, m0, P0, in pairs, 0 where something is
// shared or constant; and how time is cut into chunks
struct Cut { Index places[18], n_steps; int predict_first, chunk, n_chunks, n_blocks; };

#define MODEL const REAL *F, const REAL *Q, const REAL *H, const REAL *R, const REAL *u, const REAL *d, const REAL *y, \
    const REAL *m0, const REAL *P0, const Cut cut
#define UNPACK \
    [[maybe_unused]] const Index *const places = cut.places, n_steps = cut.n_steps; \
    [[maybe_unused]] const int predict_first = cut.predict_first, chunk = cut.chunk, n_chunks = cut.n_chunks, n_blocks = cut.n_blocks;
