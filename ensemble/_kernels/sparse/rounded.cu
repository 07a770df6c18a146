// Matrices whose values are stored in fewer bits than the vectors; what each kernel computes stands in rounded.py.
//
// STORED is float or bfloat16, WIDE the type in which the last smoothing step leaves x.

struct bfloat16 {
    unsigned short bits;
};
typedef STORED stored;
typedef WIDE outer;

struct alignas(sizeof(stored) * VECTOR) Stored {
    stored lane[VECTOR];
};

template <int BYTES> struct Word { typedef short type; };
template <> struct Word<4> { typedef int type; };
template <> struct Word<8> { typedef int2 type; };
template <> struct Word<16> { typedef int4 type; };

__device__ inline real widened(float value) { return value; }

__device__ inline real widened(bfloat16 value)
{
    const unsigned bits = (unsigned)value.bits << 16;
    return *reinterpret_cast<const float*>(&bits);
}

__device__ inline void round_to(float& to, real value) { to = (float)value; }

// To nearest, ties to even; a NaN stays one.
__device__ inline void round_to(bfloat16& to, real value)
{
    const float narrow = (float)value;
    const unsigned bits = *reinterpret_cast<const unsigned*>(&narrow);
    to.bits = narrow != narrow ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

__device__ inline Pack load_stored(const stored* from)
{
    typedef typename Word<(int)sizeof(Stored)>::type word;
    const word raw = __ldcs(reinterpret_cast<const word*>(from));
    const Stored values = *reinterpret_cast<const Stored*>(&raw);
    Pack pack;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) pack.lane[v] = widened(values.lane[v]);
    return pack;
}

template <bool SHARED>
__device__ inline Pack row_value(const real* __restrict__ vector, int64 row, int s, int n_samples)
{
    return SHARED ? spread(__ldg(vector + row)) : load_once(vector + row * n_samples + s);
}

// The row's sum of entries times x, plus its shift times its own x.
template <bool SHARED>
__device__ inline Pack rounded_row(const offset* __restrict__ indptr, const int* __restrict__ indices,
                                   const stored* __restrict__ values, const real* __restrict__ shift,
                                   const real* __restrict__ x, int64 row, int s, int n_samples)
{
    Pack total = spread(0);
    const offset begin = indptr[row], end = indptr[row + 1];
    const stored* entry = SHARED ? values + begin : values + (int64)begin * n_samples + s;
#pragma unroll UNROLL
    for (offset k = begin; k < end; ++k) {
        const Pack a = SHARED ? spread(widened(*entry)) : load_stored(entry);
        total = total + a * load_shared(x + (int64)__ldg(indices + k) * n_samples + s);
        entry += SHARED ? 1 : n_samples;
    }
    return total + row_value<SHARED>(shift, row, s, n_samples) * load_shared(x + row * n_samples + s);
}

enum { SET, RESIDUAL };

template <int ENDING, bool SHARED>
__global__ void __launch_bounds__(THREADS)
    rounded_product(const offset* __restrict__ indptr, const int* __restrict__ indices,
                    const stored* __restrict__ values, const real* __restrict__ shift, const real* __restrict__ x,
                    const real* __restrict__ b, real* y, int64 n_rows, int n_samples)
{
    const int64 row = row_here(), here = row * n_samples + sample_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    Pack total = rounded_row<SHARED>(indptr, indices, values, shift, x, row, s, n_samples);
    if (ENDING == RESIDUAL) total = load(b + here) - total;
    store(y + here, total);
}

enum { FIRST, STEP, LAST };

template <int KIND, bool SHARED>
__global__ void __launch_bounds__(THREADS)
    rounded_chebyshev(const offset* __restrict__ indptr, const int* __restrict__ indices,
                      const stored* __restrict__ values, const real* __restrict__ shift,
                      const real* __restrict__ dinv, const real* __restrict__ b, const real* __restrict__ x,
                      const real* __restrict__ a, const real* __restrict__ c, real* w, outer* out, int64 n_rows,
                      int n_samples)
{
    const int64 row = row_here(), here = row * n_samples + sample_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    const Pack total = rounded_row<SHARED>(indptr, indices, values, shift, x, row, s, n_samples);
    Pack step = load_shared(c + s) * (row_value<SHARED>(dinv, row, s, n_samples) * (load_once(b + here) - total));
    if (KIND != FIRST) step = load_shared(a + s) * load(w + here) + step;
    if (KIND != LAST) store(w + here, step);
    const Pack next = load(x + here) + step;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) out[here + v] = (outer)next.lane[v];
}

__global__ void __launch_bounds__(THREADS)
    round_rows(const offset* __restrict__ indptr, const real* __restrict__ values, stored* rounded, real* shift,
               int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    Pack lost = spread(0);
    const int64 end = indptr[row + 1];
    for (int64 k = indptr[row]; k < end; ++k) {
        const Pack value = load_once(values + k * n_samples + s);
        Stored near;
        Pack kept;
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
            round_to(near.lane[v], value.lane[v]);
            kept.lane[v] = widened(near.lane[v]);
        }
        *reinterpret_cast<Stored*>(rounded + k * n_samples + s) = near;
        lost = lost + (value - kept);
    }
    store(shift + row * n_samples + s, lost);
}
