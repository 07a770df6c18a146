// What every source begins with: names of number types, NaN and infinity, and packs, values that one instruction loads or
// stores. REAL, where it is defined, is float or double, or with COMPLEX defined a complex number of these.

typedef long long int64;
typedef unsigned long long uint64;

#ifdef COMPLEX
// Products are those of the textbook, each operation rounded, as on the CPU.
template <class T> struct alignas(2 * sizeof(T)) Complex {
    T re, im;
    Complex() = default;
    __device__ Complex(T real_part, T imaginary_part = 0) : re(real_part), im(imaginary_part) {}
    friend __device__ inline Complex operator+(const Complex& a, const Complex& b) { return {a.re + b.re, a.im + b.im}; }
    friend __device__ inline Complex operator-(const Complex& a, const Complex& b) { return {a.re - b.re, a.im - b.im}; }
    friend __device__ inline Complex operator*(const Complex& a, const Complex& b)
    {
        return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    }
    // By the larger part of b (Smith 1962).
    friend __device__ inline Complex operator/(const Complex& a, const Complex& b)
    {
        const bool by_real = fabs(b.re) >= fabs(b.im);
        const T larger = by_real ? b.re : b.im, smaller = by_real ? b.im : b.re;
        const T ratio = smaller / larger, scale = larger + smaller * ratio;
        return {(by_real ? a.re + a.im * ratio : a.re * ratio + a.im) / scale,
                (by_real ? a.im - a.re * ratio : a.im * ratio - a.re) / scale};
    }
    friend __device__ inline bool operator!=(const Complex& a, const Complex& b) { return a.re != b.re || a.im != b.im; }
};
#endif
#ifdef REAL
typedef REAL real;
#endif

// Dynamic shared memory of a block
#ifndef SHARED_VALUES
#define SHARED_VALUES(name) extern __shared__ __align__(16) char name##_bytes[]; real* const name = (real*)name##_bytes
#endif

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

template <class T, int N> struct alignas(sizeof(T) * N) PackOf {
    T lane[N];
};
