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
__global__ void __launch_bounds__(THREADS)
    domain_digits(const real* __restrict__ partials, const int64* __restrict__ starts, int64* digits, int64 n_chunks,
                  int64 n_domains, int n_samples)
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

// A thread for each sum: carry, take the leading bits with one that says whether lower bits are set, round once.
__global__ void __launch_bounds__(THREADS) rounded_digits(const int64* __restrict__ digits, real* out, int64 n_sums)
{
    const int64 sum = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (sum >= n_sums) return;
    const int64* from = digits + sum * ROW_LENGTH;
    int64 own[DIGITS];
#pragma unroll
    for (int k = 0; k < DIGITS; ++k) own[k] = from[k];
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
    const bool nan = from[DIGITS] > 0, above = from[DIGITS + 1] > 0, below = from[DIGITS + 2] > 0;
    if (above) total = INFINITY;
    if (below) total = -INFINITY;
    if (nan || (above && below)) total = NAN;
    out[sum] = (real)total;
}
