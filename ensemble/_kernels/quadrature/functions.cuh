// exp, cos and sin of float64 without branches where arguments are ordinary: the loops evaluate them at every point.
//
// Those of the CUDA library read the coefficients of cos and sin from memory, by the quadrant, and carry the code for
// huge arguments into the loop. Here one polynomial serves the interval from -pi/2 to pi/2 (interpolated at Chebyshev
// nodes with 60 digits); the error is below two units in the last place. Reductions are those of W. J. Cody and
// W. Waite, Software Manual for the Elementary Functions (1980).

// The leading word of abs(x): numbers are compared by it off the float64 pipes.
__device__ __forceinline__ int leading(double x) { return (int)(__double_as_longlong(x) >> 32) & 0x7fffffff; }

__device__ __forceinline__ double exp_of(double x) {
    if (leading(x) >= 0x40862000) {  // 708 or more: a NaN, or a result that may be no normal number
        if (!(x > -746.0)) return x == x ? 0.0 : x;
        if (x > 710.0) return INFINITY;
        const double root = exp(0.5 * x);
        return root * root;
    }
    const double shifted = fma(x, 1.4426950408889634, 6755399441055744.0), k = shifted - 6755399441055744.0;
    const double r = fma(-k, 2.3190468138462996e-17, fma(-k, 0.6931471805599453, x));
    double q = fma(r, 2.5100375924709717e-08, 2.762007599981065e-07);
    q = fma(r, q, 2.7557268480116333e-06), q = fma(r, q, 2.4801521322116825e-05);
    q = fma(r, q, 0.0001984126986304067), q = fma(r, q, 0.0013888888917196881);
    q = fma(r, q, 0.008333333333330065), q = fma(r, q, 0.041666666666624164);
    q = fma(r, q, 0.16666666666666669), q = fma(r, q, 0.5000000000000001);
    q = fma(r, q, 1.0), q = fma(r, q, 1.0);
    return __longlong_as_double(__double_as_longlong(q) + (__double_as_longlong(shifted) << 52));
}

// (-1)**n sin(x - (n + half) pi), n the nearest whole number; half is 0 or 1/2.
__device__ __forceinline__ double turned_sine(double x, double half, long long negative) {
    const double shifted = fma(x, 0.3183098861837907, -half) + 6755399441055744.0;
    const double k = (shifted - 6755399441055744.0) + half;
    const double r = fma(-k, -2.9947698097183397e-33, fma(-k, 1.2246467991473532e-16, fma(-k, 3.141592653589793, x)));
    const double z = r * r;
    double q = fma(z, 2.73144469174093e-15, -7.643970290763911e-13);
    q = fma(z, q, 1.6058977312275076e-10), q = fma(z, q, -2.5052107616993267e-08);
    q = fma(z, q, 2.755731921916321e-06), q = fma(z, q, -0.00019841269841254974);
    q = fma(z, q, 0.008333333333333316), q = fma(z, q, -0.16666666666666666);
    const double sine = fma(r * z, q, r);
    return __longlong_as_double(__double_as_longlong(sine) ^ ((__double_as_longlong(shifted) + negative) << 63));
}

#define FAR_ANGLE 0x41300000  // 2**20: farther, three parts of pi are too few

__device__ __forceinline__ double cos_of(double x) { return leading(x) < FAR_ANGLE ? turned_sine(x, 0.5, 1) : cos(x); }

__device__ __forceinline__ double sin_of(double x) { return leading(x) < FAR_ANGLE ? turned_sine(x, 0.0, 0) : sin(x); }
