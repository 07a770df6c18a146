// The functions that traced code calls: NumPy's where C++ has another definition.

template <class T, int N> __device__ inline PackOf<T, N> gathered(const T* first, int64 step) {
    PackOf<T, N> pack;
#pragma unroll
    for (int e = 0; e < N; ++e) pack.lane[e] = first[e * step];
    return pack;
}

template <class T> __device__ inline T sign(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x == 0 ? T(0) : x; }

template <class T> __device__ inline T floor_divide(T a, T b) {
    if (b == 0) return a / b;
    const T rest = fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign(T(0), a / b);
    const T whole = floor(quotient);
    return quotient - whole > T(0.5) ? whole + 1 : whole;
}

template <class T> __device__ inline T floor_remainder(T a, T b) {
    const T rest = fmod(a, b);
    if (b == 0) return rest;
    if (rest == 0) return copysign(T(0), b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}

// The value at x of the lines between values at ascending points, as numpy.interp has it.
__device__ inline double interpolated(double x, const double* points, const double* values, int count) {
    if (!(x > points[0])) return x == x ? values[0] : x;
    if (x >= points[count - 1]) return values[count - 1];
    int low = 0, high = count - 1;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (points[middle] <= x) low = middle;
        else high = middle;
    }
    const double slope = (values[low + 1] - values[low]) / (points[low + 1] - points[low]);
    return slope * (x - points[low]) + values[low];
}

template <class T> __device__ inline T floor_divide_int(T a, T b) {
    if (b == 0) return 0;
    if (b == -1) return T(0ULL - (uint64)a);
    const T quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

template <class T> __device__ inline T remainder_int(T a, T b) {
    if (b == 0 || b == -1) return 0;
    const T rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
