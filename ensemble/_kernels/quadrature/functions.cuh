// exp, cos and sin of float64 without branches: the loops over nodes evaluate them at every point.
//
// `Near` serves ordinary arguments, sets `far` for others, and takes exp below 2**-1021 as zero; a thread that meets
// others repeats its loops with `Exact`, the functions of the CUDA library. Those read the coefficients of cos and sin
// from memory, by the quadrant, and have branches, so that points are not computed side by side. Here one polynomial
// serves the interval from -pi/2 to pi/2 (interpolated at Chebyshev nodes with 60 digits); the error is below two units
// in the last place. Coefficients lie in constant memory: an instruction takes one from there, while a number in the
// code is two instructions of its own. Reductions are those of W. J. Cody and W. Waite, Software Manual for the
// Elementary Functions (1980).

static __constant__ double EXP_TERMS[14] = {
    1.4426950408889634, 0.6931471805599453, 2.3190468138462996e-17, 2.5100375924709717e-08, 2.762007599981065e-07,
    2.7557268480116333e-06, 2.4801521322116825e-05, 0.0001984126986304067, 0.0013888888917196881, 0.008333333333330065,
    0.041666666666624164, 0.16666666666666669, 0.5000000000000001, 6755399441055744.0};

static __constant__ double SINE_TERMS[13] = {
    0.3183098861837907, 3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33, 2.73144469174093e-15,
    -7.643970290763911e-13, 1.6058977312275076e-10, -2.5052107616993267e-08, 2.755731921916321e-06,
    -0.00019841269841254974, 0.008333333333333316, -0.16666666666666666, 6755399441055744.0};

__device__ __forceinline__ int leading_word(double x) { return (int)(__double_as_longlong(x) >> 32); }

struct Exact {
    static constexpr int unrolled = 1;
    bool far = false;
    __device__ __forceinline__ double exp_of(double x) { return exp(x); }
    __device__ __forceinline__ double cos_of(double x) { return cos(x); }
    __device__ __forceinline__ double sin_of(double x) { return sin(x); }
};

struct Near {
    static constexpr int unrolled = 64;
    bool far = false;

    __device__ __forceinline__ double exp_of(double x) {
        const int word = leading_word(x), size = word & 0x7fffffff;
        far = far | (word >= 0x40862000) | (size >= 0x7ff00000);  // 708 or more, or not finite
        const double shifted = fma(x, EXP_TERMS[0], EXP_TERMS[13]), k = shifted - EXP_TERMS[13];
        const double r = fma(-k, EXP_TERMS[2], fma(-k, EXP_TERMS[1], x));
        double q = fma(r, EXP_TERMS[3], EXP_TERMS[4]);
#pragma unroll
        for (int j = 5; j < 13; ++j) q = fma(r, q, EXP_TERMS[j]);
        q = fma(r, q, 1.0), q = fma(r, q, 1.0);
        const long long bits = __double_as_longlong(q) + (__double_as_longlong(shifted) << 52);
        return __longlong_as_double(size < 0x40862000 ? bits : 0);
    }

    // (-1)**n sin(x - (n + half) pi), n the nearest whole number; half is 0 or 1/2.
    __device__ __forceinline__ double turned_sine(double x, double half, long long negative) {
        far = far | ((leading_word(x) & 0x7fffffff) >= 0x41300000);  // from 2**20 on, three parts of pi are too few
        const double shifted = fma(x, SINE_TERMS[0], -half) + SINE_TERMS[12];
        const double k = (shifted - SINE_TERMS[12]) + half;
        const double r = fma(-k, SINE_TERMS[3], fma(-k, SINE_TERMS[2], fma(-k, SINE_TERMS[1], x)));
        const double z = r * r;
        double q = fma(z, SINE_TERMS[4], SINE_TERMS[5]);
#pragma unroll
        for (int j = 6; j < 12; ++j) q = fma(z, q, SINE_TERMS[j]);
        const double sine = fma(r * z, q, r);
        return __longlong_as_double(__double_as_longlong(sine) ^ ((__double_as_longlong(shifted) + negative) << 63));
    }

    __device__ __forceinline__ double cos_of(double x) { return turned_sine(x, 0.5, 1); }
    __device__ __forceinline__ double sin_of(double x) { return turned_sine(x, 0.0, 0); }
};
