// What every source begins with: names of number types, NaN and infinity, and packs, values that one instruction loads or
// stores. REAL, where it is defined, is float or double.

typedef long long int64;
typedef unsigned long long uint64;
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
