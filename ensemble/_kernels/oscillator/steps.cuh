// Runge-Kutta steps of the oscillator, MORE samples per thread. The method and the numbers that are drawn are those of
// `steps.py`, whose step and distributions the tests compare.
//
// An inverse root from the special function unit, corrected in float64, replaces roots and quotients: a correctly rounded
// root has a branch and four times the instructions, and four follow each other in a step. Its relative error is 2**-22.9
// in float32 and below two units in the last place in float64. The logarithm, cosine and sine are polynomials without
// branches, of the same reductions as on the CPU.
//
// DRAWN: noise from the counter; STORED: all values are kept; TURNED: times run fastest in memory. EARLY: a pair of numbers
// is drawn while the steps before take the last one.

#ifndef AHEAD
#define AHEAD 8
#endif
#ifndef MORE
#define MORE 1
#endif
#ifndef EARLY
#define EARLY 0
#endif
#ifndef CHAIN
#define CHAIN 0
#endif
#ifndef THREADS
#define THREADS 64
#endif

__device__ __forceinline__ float fused(float a, float b, float c) { return fma(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return fma(a, b, c); }
__device__ __forceinline__ int high_of(double x) { return (int)(__double_as_longlong(x) >> 32); }
__device__ __forceinline__ double double_of(int high, unsigned low)
{
    return __longlong_as_double(((int64)high << 32) | low);
}

// 1 / sqrt(abs(x)), finite for x = 0
__device__ __forceinline__ float inverse_root(float x)
{
    const float a = fabs(x), positive = a < 1.17549435e-38f ? 1.17549435e-38f : a;
#ifdef __CUDA_ARCH__
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(positive));
    return y;
#else
    return 1.0f / sqrt(positive);
#endif
}

__device__ __forceinline__ double inverse_root(double x)
{
    const double a = fabs(x);
    const int high = high_of(x) & 0x7fffffff, least = high < 0x00100000 ? 0x00100000 : high;
    double y;
#ifdef __CUDA_ARCH__
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(double_of(least, 0u)));  // reads the upper half, gives 20 bits
#else
    y = (float)(1.0 / sqrt(double_of(least, 0u)));
    if (!(y < 3e38)) y = 1.0 / sqrt(double_of(least, 0u));
#endif
    const double error = fma(-(a * y), y, 1.0);
    return fma(y * error, fma(error, 0.375, 0.5), y);
}

__device__ __forceinline__ float inverse(float a)
{
#ifdef __CUDA_ARCH__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
    return y;
#else
    return 1.0f / a;
#endif
}

__device__ __forceinline__ double inverse(double a)
{
#ifdef __CUDA_ARCH__
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(a));
#else
    double y = (float)(1.0 / a);
#endif
    const double error = fma(-a, y, 1.0);
    return fma(y, fma(error, error, error), y);
}

// The keys of all rounds; the compiler would add them anew in each round.
struct Keys {
    unsigned first[10], second[10];

    __device__ __forceinline__ explicit Keys(uint64 seed)
    {
#pragma unroll
        for (int k = 0; k < 10; ++k) {
            first[k] = (unsigned)seed + k * 0x9E3779B9u, second[k] = (unsigned)(seed >> 32) + k * 0xBB67AE85u;
#ifdef __CUDA_ARCH__
            asm volatile("" : "+r"(first[k]), "+r"(second[k]));
#endif
        }
    }
};

__device__ __forceinline__ void philox(unsigned (&c)[4], const Keys& keys)
{
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint64 high = (uint64)c[0] * 0xD2511F53u, low = (uint64)c[2] * 0xCD9E8D57u;
        c[0] = (unsigned)(low >> 32) ^ c[1] ^ keys.first[round], c[1] = (unsigned)low;
        c[2] = (unsigned)(high >> 32) ^ c[3] ^ keys.second[round], c[3] = (unsigned)high;
    }
}

// Terms of 2 atanh(s), of sin r and cos r, as in `lanes/functions.py` and `lanes/circular.py`; other numbers
static __constant__ double TERMS[24] = {
    0.666666666666667, 0.39999999999899444, 0.2857142862600327, 0.22222211130259878, 0.18182889455674947,
    0.15331710618210773, 0.14616585424888623,
    -0.16666666666666666, 0.008333333333330948, -0.00019841269836756774, 2.7557316101617874e-06,
    -2.505113165023518e-08, 1.5918115263265974e-10,
    0.041666666666666664, -0.0013888888888887398, 2.480158729876456e-05, -2.7557317271145144e-07,
    2.087614614655861e-09, -1.1382623647474604e-11,
    0.6931471803691238, 1.9082149292705877e-10, 1.5707963267948966, 6755399441055744.0, 4503601774854144.0};

template <int N> __device__ __forceinline__ double polynomial(int first, double z)
{
    double value = TERMS[first + N - 1];
#pragma unroll
    for (int k = N - 2; k >= 0; --k) value = fma(value, z, TERMS[first + k]);
    return value;
}

// sqrt(-2 log u) of u between 0 and 1, both excluded
__device__ __forceinline__ double radius_of(double u)
{
    const int high = high_of(u), k = (high - 0x3FE6A09E) >> 20;
    const double f = double_of(high - (k << 20), (unsigned)__double_as_longlong(u)) - 1.0;
    const double exponent = double_of(0x43300000, (unsigned)k ^ 0x80000000u) - TERMS[23];
    const double s = f * inverse(2.0 + f), z = s * s, square = 0.5 * f * f;
    const double low = fma(s, fma(z, polynomial<7>(0, z), square), exponent * TERMS[20]);
    const double t = -2.0 * fma(exponent, TERMS[19], f - (square - low));
    return t * inverse_root(t);
}

__device__ __forceinline__ float radius_of(float u)
{
    const int bits = __float_as_int(u), k = (bits - 0x3F3504F3) >> 23;
    const float f = __int_as_float(bits - (k << 23)) - 1.0f, exponent = __int_as_float(0x4B400000 + k) - 12582912.0f;
    const float s = f * inverse(2.0f + f), z = s * s, square = 0.5f * f * f;
    const float rest = fma(fma(fma(0.24279078841f, z, 0.28498786688f), z, 0.40000972152f), z, 0.66666662693f);
    const float low = fma(s, fma(z, rest, square), exponent * 9.0580006145e-6f);
    const float t = -2.0f * fma(exponent, 0.69313812256f, f - (square - low));
    return t > 0.0f ? t * inverse_root(t) : 0.0f;
}

// cosine and sine of 2 pi turns, turns from 0 to 1
__device__ __forceinline__ void turned(double turns, double& cosine, double& sine)
{
    const double shifted = fma(turns, 4.0, TERMS[22]), r = fma(turns, 4.0, TERMS[22] - shifted) * TERMS[21], z = r * r;
    const double a = fma(r * z, polynomial<6>(7, z), r), b = fma(z * z, polynomial<6>(13, z), fma(z, -0.5, 1.0));
    const int n = (int)__double_as_longlong(shifted);
    const double first = n & 1 ? a : b, second = n & 1 ? b : a;
    cosine = __longlong_as_double(__double_as_longlong(first) ^ ((int64)((n + 1) & 2) << 62));
    sine = __longlong_as_double(__double_as_longlong(second) ^ ((int64)(n & 2) << 62));
}

__device__ __forceinline__ void turned(float turns, float& cosine, float& sine)
{
    const float shifted = fma(turns, 4.0f, 12582912.0f);
    const float r = fma(turns, 4.0f, 12582912.0f - shifted) * 1.57079632679f, z = r * r;
    const float a = fma(r * z, fma(fma(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f), r);
    const float q = fma(fma(2.443315711809948e-5f, z, -1.388731625493765e-3f), z, 4.166664568298827e-2f);
    const float b = fma(z * z, q, fma(z, -0.5f, 1.0f));
    const int n = __float_as_int(shifted);
    const float first = n & 1 ? a : b, second = n & 1 ? b : a;
    cosine = __int_as_float(__float_as_int(first) ^ (((n + 1) & 2) << 30));
    sine = __int_as_float(__float_as_int(second) ^ ((n & 2) << 30));
}

// (w + 1/2) 2**-52 of the leading 52 bits w of two words, exact
__device__ __forceinline__ void uniform(unsigned high, unsigned low, double& u)
{
    const int64 bits = 0x3FF0000000000000ll | ((int64)high << 20) | (low >> 12);
    u = __longlong_as_double(bits) - (1.0 - 1.1102230246251565e-16);
}

// in float of the leading 24 bits
__device__ __forceinline__ void uniform(unsigned high, unsigned, float& u)
{
    u = ((float)(high >> 8) + 0.5f) * 5.9604644775390625e-8f;
}

// two normal numbers for the steps 2 * block and 2 * block + 1
__device__ __forceinline__ void normal_pair(int64 number, unsigned block, const Keys& keys, real& first, real& second)
{
    unsigned c[4] = {(unsigned)number, (unsigned)(number >> 32), block, 0u};
    philox(c, keys);
    real u, turns, cosine, sine;
    uniform(c[0], c[1], u);
    uniform(c[2], c[3], turns);
    turned(turns, cosine, sine);
    const real radius = radius_of(u);
    first = radius * cosine, second = radius * sine;
}

// What a step needs of the parameters of a sample. The stages of the classical method, with x + h/2 v2 and others written
// by velocities and accelerations of the stages before: 27 operations besides the roots.
struct Member {
    real x, v, damping, root_damping, stiffness, amplitude, noise;
    int64 number;

    // base - damping v - root_damping sgn(v) sqrt(abs(v))
    __device__ __forceinline__ real acceleration(real v, real base) const
    {
#if CHAIN
        return fused(-(root_damping * v), inverse_root(v), fused(-damping, v, base));
#else
        return fused(-fused(root_damping, inverse_root(v), damping), v, base);
#endif
    }

    __device__ __forceinline__ void step(real f0, real f1, real f2, real e, real h)
    {
        const real half = real(0.5) * h, sixth = h / real(6.0);
        const real at_rest = fused(noise, e, -stiffness * x), ahead = fused(h, v, x);
        const real a1 = acceleration(v, fused(amplitude, f0, at_rest));
        const real middle = fused(amplitude, f1, fused(-stiffness * half, v, at_rest));
        const real v2 = fused(half, a1, v), a2 = acceleration(v2, middle);
        const real v3 = fused(half, a2, v), a3 = acceleration(v3, fused(-stiffness * (half * half), a1, middle));
        const real end = fused(amplitude, f2, fused(-stiffness * h, v, at_rest));
        const real v4 = fused(h, a3, v), a4 = acceleration(v4, fused(-stiffness * (h * half), a2, end));
        const real sum = a2 + a3, first = a1 + sum;
        x = fused(sixth * h, first, ahead);
        v = fused(sixth, (first + sum) + a4, v);
    }
};

typedef PackOf<real, MORE> Pack;

// The place of a thread's MORE neighbours in a row; with TURNED, MORE is one. The rows themselves are those of the block,
// whose addresses take no instructions of the threads.
#if TURNED
#define OWN(sample) (at * (sample))
#else
#define OWN(sample) ((unsigned)at)
#endif
#define PACK(pointer) (*reinterpret_cast<Pack*>(pointer))
#define CONSTANT_PACK(pointer) (*reinterpret_cast<const Pack*>(pointer))

extern "C" __global__ void __launch_bounds__(THREADS) integrate(
    int64 n_samples, int64 n_steps, const int64* __restrict__ numbers, uint64 seed,
    const real* __restrict__ parameters, const real* __restrict__ forcing, const real* __restrict__ noise,
    int64 noise_step, int64 noise_sample, real h, real scale, real* __restrict__ x_end, real* __restrict__ v_end,
    real* __restrict__ history, int64 place, int64 place_step, int64 place_sample)
{
    const int64 at = ((int64)blockIdx.x * THREADS + threadIdx.x) * MORE;
    if (at >= n_samples) return;
    Member members[MORE];
#pragma unroll
    for (int j = 0; j < MORE; ++j) {
        Member& member = members[j];
        const real* own = parameters + at + j;
        const real per_mass = real(1.0) / own[0];
        member.number = numbers[at + j], member.x = x_end[at + j], member.v = v_end[at + j];
        member.damping = own[n_samples] * per_mass, member.root_damping = own[2 * n_samples] * per_mass;
        member.stiffness = own[3 * n_samples] * per_mass, member.amplitude = own[4 * n_samples] * per_mass;
        member.noise = member.amplitude * scale;
    }
    const PackOf<real, 2>* pairs = reinterpret_cast<const PackOf<real, 2>*>(forcing);
    PackOf<real, 2> next = pairs[0];
    Pack e[AHEAD];
#if DRAWN
    const Keys keys(seed);
#if EARLY
    Pack early[2];
#pragma unroll
    for (int j = 0; j < MORE; ++j) normal_pair(members[j].number, 0u, keys, early[0].lane[j], early[1].lane[j]);
#endif
#else
    const real* given = noise;
    const auto own_noise = OWN(noise_sample);
    Pack ahead[AHEAD];  // loads that wait for memory while steps run
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) {
        if (k < n_steps) ahead[k] = CONSTANT_PACK(given + own_noise);
        given += noise_step;
    }
#endif
#if STORED
    real *kept_x = history, *kept_v = history + place;
    const auto own = OWN(place_sample);
#endif
    const int last = (int)n_steps;
    int block = 0;

    const auto one = [&](int k) {
        const PackOf<real, 2> now = next;
        next = pairs[block + k + 1];
#if DRAWN
        if (k % 2 == 0) {
#pragma unroll
            for (int j = 0; j < MORE; ++j) {
#if EARLY
                e[k].lane[j] = early[0].lane[j], e[k + 1].lane[j] = early[1].lane[j];
                const unsigned next_pair = (unsigned)(block + k) / 2 + 1;
                normal_pair(members[j].number, next_pair, keys, early[0].lane[j], early[1].lane[j]);
#else
                normal_pair(members[j].number, (unsigned)(block + k) / 2, keys, e[k].lane[j], e[k + 1].lane[j]);
#endif
            }
        }
#endif
#if STORED
        Pack x, v;
#pragma unroll
        for (int j = 0; j < MORE; ++j) x.lane[j] = members[j].x, v.lane[j] = members[j].v;
        PACK(kept_x + own) = x, PACK(kept_v + own) = v;
        kept_x += place_step, kept_v += place_step;
#endif
#pragma unroll
        for (int j = 0; j < MORE; ++j) members[j].step(now.lane[0], now.lane[1], next.lane[0], e[k].lane[j], h);
    };

    for (; block + AHEAD <= last; block += AHEAD) {
#if !DRAWN
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) e[k] = ahead[k];
        if (block + 2 * AHEAD <= last) {
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) ahead[k] = CONSTANT_PACK(given + own_noise), given += noise_step;
        } else {
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                if (block + AHEAD + k < last) ahead[k] = CONSTANT_PACK(given + own_noise);
                given += noise_step;
            }
        }
#endif
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) one(k);
    }
#pragma unroll
    for (int k = 0; k < AHEAD - 1; ++k) {
        if (block + k < last) {
#if !DRAWN
            e[k] = ahead[k];
#endif
            one(k);
        }
    }
#pragma unroll
    for (int j = 0; j < MORE; ++j) {
#if STORED
        kept_x[own + j] = members[j].x, kept_v[own + j] = members[j].v;
#endif
        x_end[at + j] = members[j].x, v_end[at + j] = members[j].v;
    }
}
