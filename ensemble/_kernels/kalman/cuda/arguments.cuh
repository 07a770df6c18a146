// The arguments that every kernel takes.

#define TWO_PI 6.283185307179586476925286766559

// Strides of F, Q, H, R, u, d, y, m0, P0 over series and over steps, in pairs and in entries, 0 where an array is shared by
// all series or constant in time; and the division of time into chunks
struct SeriesLayout { int64 strides[18], n_steps; int predict_first, chunk, n_chunks, n_blocks; };

#define MODEL const real *F, const real *Q, const real *H, const real *R, const real *u, const real *d, const real *y, \
    const real *m0, const real *P0, const SeriesLayout layout
#define UNPACK \
    [[maybe_unused]] const int64 *const strides = layout.strides, n_steps = layout.n_steps; \
    [[maybe_unused]] const int predict_first = layout.predict_first, chunk = layout.chunk, n_chunks = layout.n_chunks, n_blocks = layout.n_blocks;

// The part of the terms of a diagonal entry that may be rounding error
__device__ __forceinline__ real rounding(int n) {
    return real(8 * n) * (sizeof(real) == 4 ? real(1.1920928955078125e-7) : real(2.220446049250313e-16));
}

// The part of its diagonal entry below which a pivot of a predicted covariance leaves no gain for the smoother
__device__ __forceinline__ real nearly_singular(int n) { return sizeof(real) == 4 ? real(8) * rounding(n) : real(1e-8); }

// The part of its terms below which a pivot of an innovation covariance has lost too many digits: `lost_part` of `step.py`
__device__ __forceinline__ real lost_part() {
    return sizeof(real) == 4 ? real(1.1920928955078125e-7 * 1e2) : real(2.220446049250313e-16 * 5e6);
}

// The part of a variance below which what an observation leaves of it is rounding: `known_part` of `step.py`
__device__ __forceinline__ real known_part(int n) { return rounding(n) * rounding(n); }
