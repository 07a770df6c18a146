// Variants of the element kernels, after element.cu. BLOCK threads, STREAM stores past the caches, ALIGN numbers.
#ifndef BLOCK
#define BLOCK 128
#endif
#ifndef STREAM
#define STREAM 0
#endif
#ifndef ALIGN
#define ALIGN 2
#endif
typedef PackOf<real, 2> Two;

__device__ inline void put(real* to, real value)
{
    if (STREAM) __stcs(to, value);
    else *to = value;
}
__device__ inline void put_two(real* to, real a, real b)
{
    if (STREAM) __stcs((double2*)to, make_double2(a, b));
    else *(double2*)to = make_double2(a, b);
}

enum { TRANSFORM, MASS, FIRST, LENGTHS };
template <int KIND> __device__ constexpr int n_values() { return KIND == TRANSFORM ? 13 : KIND == MASS ? 1 : KIND == FIRST ? 12 : 9; }

__device__ inline void lengths_of(const Edges& edge, real* root)
{
    const Vector3 all[6] = {edge.a, edge.b, edge.c, edge.b - edge.a, edge.c - edge.a, edge.c - edge.b};
    real e[6][3];
#pragma unroll
    for (int n = 0; n < 6; ++n) e[n][0] = all[n].x, e[n][1] = all[n].y, e[n][2] = all[n].z;
    real C[3][3];
#pragma unroll
    for (int k = 0; k < 3; ++k)
#pragma unroll
        for (int m = 0; m <= k; ++m) {
            real total = e[0][k] * e[0][m];
#pragma unroll
            for (int n = 1; n < 6; ++n) total = total + e[n][k] * e[n][m];
            C[k][m] = C[m][k] = (real)0.5 * total;
        }
    const Vector3 u = cross(edge.b, edge.c), v = cross(edge.c, edge.a), w = cross(edge.a, edge.b), z = sum(u, v, w);
    const real one = C[0][0] + C[1][1] + C[2][2], two = dot(u, u) + dot(v, v) + dot(w, w) + dot(z, z);
    const real three = fabs(dot(edge.a, u)) * 1.4142135623730951;
    real x = sqrt(one + 2 * sqrt(two + 2 * three * sqrt(3 * one)));
#pragma unroll 1
    for (int step = 0; step < 4; ++step) {
        const real q = x * x - one;
        x = x - (q * q * 0.25 - two - 2 * three * x) / (x * q - 2 * three);
    }
    const real second = sqrt(two + 2 * three * x);
    const real scale = 1 / (x * second - three), diagonal = x * three, linear = x * x - second;
#pragma unroll
    for (int k = 0; k < 3; ++k)
#pragma unroll
        for (int m = 0; m < 3; ++m) {
            const real square = C[k][0] * C[m][0] + C[k][1] * C[m][1] + C[k][2] * C[m][2];
            real total = linear * C[k][m] - square;
            if (k == m) total = total + diagonal;
            root[3 * k + m] = total * scale;
        }
}

template <int KIND> __device__ inline void compute(const Edges& edge, real* v)
{
    if (KIND == LENGTHS) {
        lengths_of(edge, v);
    } else {
        const Gradients g(edge);
        if (KIND == MASS) {
            v[0] = g.volume;
        } else {
            const real weight = (real)0.25 * g.volume;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                v[3 * j] = KIND == FIRST ? weight * g.of[j].x : g.of[j].x;
                v[3 * j + 1] = KIND == FIRST ? weight * g.of[j].y : g.of[j].y;
                v[3 * j + 2] = KIND == FIRST ? weight * g.of[j].z : g.of[j].z;
            }
            if (KIND == TRANSFORM) v[12] = g.volume;
        }
    }
}

// The value that a row holds, and what it is multiplied by.
template <int KIND> __device__ inline int source_of(int row, int copies, const real* weights, real& factor)
{
    factor = 1;
    if (KIND == TRANSFORM) {
        if (row < 12 * copies) return row % 12;
        factor = __ldg(weights + row - 12 * copies);
        return 12;
    }
    if (KIND == MASS) {
        factor = row / 4 == row % 4 ? 0.1 : 0.05;
        return 0;
    }
    if (KIND == FIRST) return 3 * (row % 4) + row / 16;
    return row % 9;
}

template <int WHO> struct Gathered {
    real at[12][BLOCK + 6];
    int node[4][BLOCK];
};

__device__ inline Edges gathered(real (*at)[BLOCK + 6], int (*node)[BLOCK], const real* __restrict__ points,
                                 const int* __restrict__ tets, int64 here, int64 count)
{
    const int t = threadIdx.x;
    const int4 corner = here < count ? __ldg((const int4*)tets + here) : int4{0, 0, 0, 0};
    node[0][t] = corner.x, node[1][t] = corner.y, node[2][t] = corner.z, node[3][t] = corner.w;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 12; ++i) {
        const int a = i / 3, item = t + BLOCK * (i % 3), element = item / 3, k = item % 3;
        at[a * 3 + k][element] = __ldg(points + (int64)node[a][element] * 3 + k);
    }
    __syncthreads();
    Vector3 corners[4];
#pragma unroll
    for (int a = 0; a < 4; ++a) corners[a] = {at[a * 3][t], at[a * 3 + 1][t], at[a * 3 + 2][t]};
    return {corners[1] - corners[0], corners[2] - corners[0], corners[3] - corners[0]};
}

__device__ inline Edges direct(const real* __restrict__ points, const int* __restrict__ tets, int64 here)
{
    const int4 n = __ldg((const int4*)tets + here);
    const Vector3 a = point_at(points, n.x, 0, 1), b = point_at(points, n.y, 0, 1), c = point_at(points, n.z, 0, 1),
                  d = point_at(points, n.w, 0, 1);
    return {b - a, c - a, d - a};
}

// Results through shared memory; a warp writes a row of the block at a time. gridDim.y shares the rows.
template <int KIND, bool STAGED>
__global__ void __launch_bounds__(BLOCK)
    v_rows(const real* __restrict__ points, const int* __restrict__ tets, const real* __restrict__ weights,
           real* __restrict__ out, int copies, int n_rows, int64 count)
{
    constexpr int NV = n_values<KIND>();
    __shared__ real at[NV > 12 ? NV : 12][BLOCK + 6];
    __shared__ int node[4][BLOCK];
    const int64 first = (int64)blockIdx.x * BLOCK, here = first + threadIdx.x;
    const Edges edge = STAGED ? gathered(at, node, points, tets, here, count)
                              : direct(points, tets, here < count ? here : count - 1);
    real v[NV];
    compute<KIND>(edge, v);
    if (STAGED) __syncthreads();
#pragma unroll
    for (int i = 0; i < NV; ++i) at[i][threadIdx.x] = v[i];
    __syncthreads();
    const int lane = threadIdx.x % 32, n = count - first < BLOCK ? (int)(count - first) : BLOCK;
    const int share = (n_rows + gridDim.y - 1) / gridDim.y, begin = blockIdx.y * share;
    const int end = min(begin + share, n_rows);
    for (int row = begin + threadIdx.x / 32; row < end; row += BLOCK / 32) {
        real factor;
        const real* from = at[source_of<KIND>(row, copies, weights, factor)];
        real* to = out + row * count + first;
        const int shift = (int)((size_t)to / 8 % ALIGN);
#pragma unroll 2
        for (int i = 2 * lane - shift; i < n; i += 64) {
            if (i >= 0 && i + 1 < n) put_two(to + i, from[i] * factor, from[i + 1] * factor);
            else if (i >= 0) put(to + i, from[i] * factor);
            else if (i == -1) put(to, from[0] * factor);
        }
    }
}

// PER elements a thread, side by side, written straight from registers.
template <int KIND, int PER, bool STAGED>
__global__ void __launch_bounds__(BLOCK)
    v_direct(const real* __restrict__ points, const int* __restrict__ tets, const real* __restrict__ weights,
             real* __restrict__ out, int copies, int n_rows, int64 count)
{
    constexpr int NV = n_values<KIND>();
    real v[PER][NV];
    int64 here = ((int64)blockIdx.x * BLOCK + threadIdx.x) * PER;
    if constexpr (STAGED) {
        __shared__ real at[12][BLOCK + 6];
        __shared__ int node[4][BLOCK];
        compute<KIND>(gathered(at, node, points, tets, here, count), v[0]);
    } else {
        if (here >= count) return;
#pragma unroll
        for (int p = 0; p < PER; ++p) compute<KIND>(direct(points, tets, here + p < count ? here + p : count - 1), v[p]);
    }
    if (here >= count) return;
    real* to = out + here;
    auto write = [&](int i, real f) {
        if (PER == 2) put_two(to, v[0][i] * f, v[PER - 1][i] * f);  // count is even
        else put(to, v[0][i] * f);
        to += count;
    };
    if (KIND == TRANSFORM) {
        for (int q = 0; q < copies; ++q)
#pragma unroll
            for (int i = 0; i < 12; ++i) write(i, 1);
        for (int q = 0; q < copies; ++q) write(NV - 1, __ldg(weights + q));
    } else if (KIND == LENGTHS) {
        for (int q = 0; q < copies; ++q)
#pragma unroll
            for (int i = 0; i < 9; ++i) write(i % NV, 1);
    } else if (KIND == MASS) {
#pragma unroll
        for (int r = 0; r < 16; ++r) write(0, r / 4 == r % 4 ? 0.1 : 0.05);
    } else {
#pragma unroll
        for (int d = 0; d < 3; ++d)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) write((3 * j + d) % NV, 1);
    }
}

// --- fields at corners
template <int C, bool ROWWISE>
__global__ void __launch_bounds__(BLOCK)
    v_values(const real* __restrict__ field, const int* __restrict__ tets, real* __restrict__ out, int64 count)
{
    __shared__ real at[4 * C][BLOCK + 6];
    __shared__ int node[4][BLOCK];
    const int t = threadIdx.x;
    const int64 first = (int64)blockIdx.x * BLOCK, here = first + t;
    const int4 corner = here < count ? __ldg((const int4*)tets + here) : int4{0, 0, 0, 0};
    node[0][t] = corner.x, node[1][t] = corner.y, node[2][t] = corner.z, node[3][t] = corner.w;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4 * C; ++i) {
        const int a = i / C, item = t + BLOCK * (i % C), element = item / C, k = item % C;
        at[a * C + k][element] = __ldg(field + (int64)node[a][element] * C + k);
    }
    __syncthreads();
    if (ROWWISE) {
        const int lane = t % 32, n = count - first < BLOCK ? (int)(count - first) : BLOCK;
        for (int row = t / 32; row < 4 * C; row += BLOCK / 32) {
            real* to = out + row * count + first;
            const int shift = (int)((size_t)to / 8 % ALIGN);
#pragma unroll 2
            for (int i = 2 * lane - shift; i < n; i += 64) {
                if (i >= 0 && i + 1 < n) put_two(to + i, at[row][i], at[row][i + 1]);
                else if (i >= 0) put(to + i, at[row][i]);
                else if (i == -1) put(to, at[row][0]);
            }
        }
    } else {
        if (here >= count) return;
#pragma unroll
        for (int row = 0; row < 4 * C; ++row) put(out + row * count + here, at[row][t]);
    }
}

// Straight gathers, PER neighbouring elements a thread.
template <int C, int PER>
__global__ void __launch_bounds__(BLOCK)
    v_values_direct(const real* __restrict__ field, const int* __restrict__ tets, real* __restrict__ out, int64 count)
{
    const int64 here = ((int64)blockIdx.x * BLOCK + threadIdx.x) * PER;
    if (here >= count) return;
    int node[PER][4];
#pragma unroll
    for (int p = 0; p < PER; ++p) {
        const int4 n = __ldcs((const int4*)tets + (here + p < count ? here + p : count - 1));
        node[p][0] = n.x, node[p][1] = n.y, node[p][2] = n.z, node[p][3] = n.w;
    }
#pragma unroll
    for (int a = 0; a < 4; ++a) {
        real v[C][PER];
#pragma unroll
        for (int p = 0; p < PER; ++p)
#pragma unroll
            for (int k = 0; k < C; ++k) v[k][p] = __ldg(field + (int64)node[p][a] * C + k);
#pragma unroll
        for (int k = 0; k < C; ++k) {
            real* to = out + (a * C + k) * count + here;
            if (PER == 1) put(to, v[k][0]);
            else
#pragma unroll
                for (int p = 0; p < PER; p += 2) put_two(to + p, v[k][p], v[k][(p + 1) % PER]);  // count is even
        }
    }
}

// --- what memory gives: constants to rows, to a line, copies
__global__ void __launch_bounds__(BLOCK) v_fill(real* __restrict__ out, int64 n)
{
    for (int64 i = ((int64)blockIdx.x * BLOCK + threadIdx.x) * 2; i + 1 < n; i += (int64)gridDim.x * BLOCK * 2)
        put_two(out + i, 1.5, 2.5);
}
__global__ void __launch_bounds__(BLOCK) v_copy(const real* __restrict__ from, real* __restrict__ out, int64 n)
{
    const int64 i = ((int64)blockIdx.x * BLOCK + threadIdx.x) * 2;
    if (i + 1 < n) {
        const double2 x = __ldcs((const double2*)(from + i));
        put_two(out + i, x.x, x.y);
    }
}
__global__ void __launch_bounds__(BLOCK) v_fill_rows(real* __restrict__ out, int n_rows, int64 count)
{
    const int64 here = ((int64)blockIdx.x * BLOCK + threadIdx.x) * 2;
    if (here + 1 >= count) return;
    for (int row = 0; row < n_rows; ++row) put_two(out + row * count + here, 1.5, 2.5);
}

// --- rows as bulk copies from shared memory: the copy engine writes, threads only say what
#ifndef POLICY
#define POLICY 1
#endif
__device__ inline void put_row(real* to, const real* from, int bytes)
{
#ifdef __CUDA_ARCH__
    const unsigned source = (unsigned)__cvta_generic_to_shared(from);
    if (POLICY) {
        unsigned long long policy;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;"
                     :: "l"(to), "r"(source), "r"(bytes), "l"(policy) : "memory");
    } else {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(to), "r"(source), "r"(bytes) : "memory");
    }
#else
    memcpy(to, from, bytes);
#endif
}

template <int KIND> __device__ constexpr int n_staged() { return KIND == TRANSFORM ? 23 : KIND == MASS ? 2 : KIND == FIRST ? 12 : 9; }

template <int KIND>
__global__ void __launch_bounds__(BLOCK)
    v_bulk(const real* __restrict__ points, const int* __restrict__ tets, const real* __restrict__ weights,
           real* __restrict__ out, int copies, int n_rows, int64 count)
{
    constexpr int NV = n_values<KIND>();
    __shared__ __attribute__((aligned(128))) real at[n_staged<KIND>()][BLOCK];
    const int t = threadIdx.x;
    const int64 first = (int64)blockIdx.x * BLOCK, here = first + t;
    real v[NV];
    compute<KIND>(direct(points, tets, here < count ? here : count - 1), v);
    if (KIND == MASS) {
        at[0][t] = v[0] * 0.1, at[1 % n_staged<KIND>()][t] = v[0] * 0.05;
    } else {
#pragma unroll
        for (int i = 0; i < (KIND == TRANSFORM ? 12 : NV); ++i) at[i][t] = v[i];
        if (KIND == TRANSFORM)
            for (int q = 0; q < copies; ++q) at[(12 + q) % n_staged<KIND>()][t] = v[NV - 1] * __ldg(weights + q);
    }
#ifdef __CUDA_ARCH__
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncthreads();
    const int bytes = (int)(count - first < BLOCK ? count - first : BLOCK) * 8;
    for (int row = t; row < n_rows; row += BLOCK) {
        int source;
        if (KIND == TRANSFORM) source = row < 12 * copies ? row % 12 : 12 + row - 12 * copies;
        else if (KIND == MASS) source = row / 4 == row % 4 ? 0 : 1;
        else if (KIND == FIRST) source = 3 * (row % 4) + row / 16;
        else source = row % 9;
        put_row(out + row * count + first, at[source], bytes);
    }
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}
