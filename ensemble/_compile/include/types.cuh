// Names of 64-bit integers, and packs: values that one instruction loads or stores.

typedef long long int64;
typedef unsigned long long uint64;

template <class T, int N> struct alignas(sizeof(T) * N) PackOf {
    T lane[N];
};
