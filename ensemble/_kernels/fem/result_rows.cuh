// Rows of results: `count` numbers each, one row after another, so that a row may begin within a sector of memory. Of a
// sector that is written in part the rest is read first, and kernels that write little else took up to twice as long.
// Here a block writes whole sectors of each row: its part of a row begins with the first sector that begins there, and
// ends with values of the next block's first pairs, which this block computes as well. Only the ends of rows are parts.

constexpr int SECTOR = 32 / sizeof(real);

// Numbers from `row` to the first sector that begins there.
__device__ inline int to_sector(const real* row) { return (int)(-(size_t)row / sizeof(real) % SECTOR); }

// Writes the N values of PER neighbouring pairs in each thread to rows. A block owns `own` pairs from `first` on: all of
// its pairs, or where rows begin within sectors all but the last SECTOR ones. All threads of a block come here together.
template <int N, int PER, int BLOCK> class RowWriter
{
    const real (&value)[N][PER];
    real (*const head)[BLOCK / 32 + 1][SECTOR];  // the values of the first pairs of each warp
    const int64 first, count;
    const int own;

  public:
    __device__ inline RowWriter(const real (&values)[N][PER], real (*shared)[BLOCK / 32 + 1][SECTOR], int64 first,
                                int64 count, int own)
        : value(values), head(shared), first(first), count(count), own(own)
    {
        if (own == BLOCK * PER) return;
        const int lane = threadIdx.x % 32;
        if (lane < SECTOR / PER)
#pragma unroll
            for (int n = 0; n < N; ++n)
#pragma unroll
                for (int p = 0; p < PER; ++p) head[n][threadIdx.x / 32][lane * PER + p] = value[n][p];
        __syncthreads();
    }

    // Value n, multiplied by `factor`, to its row. Pairs of values need rows that begin at multiples of 16 bytes.
    __device__ inline void store(int n, real* row, real factor) const
    {
        row += first;
        const int shift = to_sector(row), lane = threadIdx.x % 32, mine = threadIdx.x * PER, warp = threadIdx.x / 32;
        real moved[PER];
#pragma unroll
        for (int p = 0; p < PER; ++p) moved[p] = value[n][p];
        if (shift) {
            if (first == 0 && mine < min((int64)shift, count)) put(row + mine, moved, factor);
            const int ahead = lane + shift / PER;
#pragma unroll
            for (int p = 0; p < PER; ++p) {
                moved[p] = __shfl_sync(0xffffffff, moved[p], ahead % 32);
                if (ahead >= 32) moved[p] = head[n][warp + 1][(ahead - 32) * PER + p];
            }
        }
        if (mine < own && first + shift + mine < count) put(row + shift + mine, moved, factor);
    }

  private:
    __device__ static inline void put(real* to, const real (&values)[PER], real factor)
    {
        if (PER == 2) __stcs((double2*)to, make_double2(values[0] * factor, values[PER - 1] * factor));
        else __stcs(to, values[0] * factor);
    }
};
