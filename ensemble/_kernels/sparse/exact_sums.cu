// Exact sums in integer digits; what each kernel computes stands in exact_sums.py.

#define DIGIT_BITS 40
#define DIGITS 54
#define ROW_LENGTH (DIGITS + 3)
#define DIGIT_MASK ((1LL << DIGIT_BITS) - 1)

// Integer sums do not depend on the order in which threads come here.
__device__ inline void add_digit(int64* digit, int64 value)
{
    if (value) atomicAdd((uint64*)digit, (uint64)value);
}

__device__ inline void add_number(double number, int64* digits)
{
    const int64 word = __double_as_longlong(number);
    int64 fraction = word & ((1LL << 52) - 1);
    int exponent = (int)((word >> 52) & 2047);
    if (exponent == 2047) {
        add_digit(digits + (fraction ? DIGITS : word > 0 ? DIGITS + 1 : DIGITS + 2), 1);
        return;
    }
    if (exponent > 0) {
        fraction |= 1LL << 52;
        exponent -= 1;
    }
    const int place = exponent / DIGIT_BITS, shift = exponent % DIGIT_BITS;
    const int64 low = (fraction & ((1LL << (DIGIT_BITS - shift)) - 1)) << shift;
    const int64 rest = fraction >> (DIGIT_BITS - shift);
    const int64 sign = word < 0 ? -1 : 1;
    add_digit(digits + place, sign * low);
    add_digit(digits + place + 1, sign * (rest & DIGIT_MASK));
    add_digit(digits + place + 2, sign * (rest >> DIGIT_BITS));
}

// A thread for each domain and sample; blockIdx.y counts the sums.
__device__ inline void add_domain(const real* __restrict__ partials, const int64* __restrict__ starts, int64* digits,
                                  int64 n_chunks, int64 n_domains, int n_samples)
{
    const int64 item = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (item >= n_domains * n_samples) return;
    const int64 domain = item / n_samples;
    const int s = (int)(item % n_samples);
    const real* from = partials + (int64)blockIdx.y * n_chunks * n_samples + s;
    const int64 end = starts[domain + 1];
    real total = 0;
#pragma unroll 8
    for (int64 chunk = starts[domain]; chunk < end; ++chunk) total = total + from[chunk * n_samples];
    add_number((double)total, digits + ((int64)blockIdx.y * n_samples + s) * ROW_LENGTH);
}

// Carry, take the leading bits with one that says whether lower bits are set, round once. The digits are left as zeros.
__device__ inline real round_sum(int64* digits)
{
    volatile int64* from = digits;  // other blocks have added to them
    int64 own[DIGITS];
#pragma unroll
    for (int k = 0; k < DIGITS; ++k) own[k] = from[k];
    const bool nan = from[DIGITS] > 0, above = from[DIGITS + 1] > 0, below = from[DIGITS + 2] > 0;
#pragma unroll
    for (int k = 0; k < ROW_LENGTH; ++k) from[k] = 0;
    int64 carry = 0;
#pragma unroll
    for (int k = 0; k < DIGITS; ++k) {
        const int64 value = own[k] + carry;
        carry = value >> DIGIT_BITS;
        own[k] = value & DIGIT_MASK;
    }
    const bool negative = carry < 0;
    if (negative) {  // two's complement: the magnitude is the complement plus one
        int64 borrow = 1;
#pragma unroll
        for (int k = 0; k < DIGITS; ++k) {
            const int64 value = DIGIT_MASK - own[k] + borrow;
            borrow = value >> DIGIT_BITS;
            own[k] = value & DIGIT_MASK;
        }
    }
    int top = DIGITS - 1;
    while (top > 0 && own[top] == 0) --top;
    int length = 0;
    for (int64 value = own[top]; value > 0; value >>= 1) ++length;
    int64 word;
    int exponent = -1074;
    if (top == 0 || top * DIGIT_BITS + length <= 63) {  // a whole number of the smallest unit
        word = own[0] + (top > 0 ? own[1] << DIGIT_BITS : 0);
    } else {
        int left = 62 - length, k = top - 1;
        word = own[top];
        while (left >= DIGIT_BITS && k >= 0) {
            word = (word << DIGIT_BITS) | own[k];
            left -= DIGIT_BITS;
            --k;
        }
        bool lost = false;
        if (left > 0 && k >= 0) {
            word = (word << left) | (own[k] >> (DIGIT_BITS - left));
            lost = (own[k] & ((1LL << (DIGIT_BITS - left)) - 1)) != 0;
            left = 0;
            --k;
        }
        for (; k >= 0 && !lost; --k) lost = own[k] != 0;
        if (lost) word |= 1;
        exponent = top * DIGIT_BITS + length - 62 - 1074 + left;
    }
    double total = ldexp((double)word, exponent);
    if (negative) total = -total;
    if (above) total = INFINITY;
    if (below) total = -INFINITY;
    if (nan || (above && below)) total = NAN;
    return (real)total;
}

__global__ void __launch_bounds__(THREADS)
    domain_digits(const real* __restrict__ partials, const int64* __restrict__ starts, int64* digits, int64 n_chunks,
                  int64 n_domains, int n_samples)
{
    add_domain(partials, starts, digits, n_chunks, n_domains, n_samples);
}

// A thread for each sum.
__global__ void __launch_bounds__(THREADS) rounded_digits(int64* digits, real* out, int64 n_sums)
{
    const int64 sum = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (sum < n_sums) out[sum] = round_sum(digits + sum * ROW_LENGTH);
}

// Both at once: the block that comes last, of those with one blockIdx.y, rounds. `turns` are zeros, before and after.
__global__ void __launch_bounds__(THREADS)
    exact_totals(const real* __restrict__ partials, const int64* __restrict__ starts, int64* digits, int* turns,
                 real* out, int64 n_chunks, int64 n_domains, int n_samples)
{
    __shared__ int turn;
    add_domain(partials, starts, digits, n_chunks, n_domains, n_samples);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) turn = atomicAdd(turns + blockIdx.y, 1);
    __syncthreads();
    if (turn != (int)gridDim.x - 1) return;
    __threadfence();
    for (int s = threadIdx.x; s < n_samples; s += THREADS) {
        const int64 sum = (int64)blockIdx.y * n_samples + s;
        out[sum] = round_sum(digits + sum * ROW_LENGTH);
    }
    if (threadIdx.x == 0) turns[blockIdx.y] = 0;
}
