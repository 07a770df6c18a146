// Element quantities of linear tetrahedra, one pair of element and sample per thread; see element.py.

struct Vector3 {
    real x, y, z;
};

__device__ inline Vector3 operator-(const Vector3& a, const Vector3& b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
__device__ inline Vector3 operator*(const Vector3& a, real b) { return {a.x * b, a.y * b, a.z * b}; }
__device__ inline real dot(const Vector3& a, const Vector3& b) { return a.x * b.x + a.y * b.y + a.z * b.z; }

__device__ inline Vector3 sum(const Vector3& a, const Vector3& b, const Vector3& c)
{
    return {a.x + b.x + c.x, a.y + b.y + c.y, a.z + b.z + c.z};
}

__device__ inline Vector3 cross(const Vector3& a, const Vector3& b)
{
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

// The corners of the element of pair `at`, and its sample.
struct Corners {
    int node[4], sample;
};

__device__ inline Corners corners_of(const int* __restrict__ tets, offset at, int n_samples)
{
    const offset element = n_samples == 1 ? at : at / n_samples;
    const int4 read = __ldg((const int4*)tets + element);
    return {{read.x, read.y, read.z, read.w}, (int)(at - element * n_samples)};
}

__device__ inline Vector3 point_at(const real* __restrict__ points, int node, int sample, int n_samples)
{
    const real* from = points + (int64)node * 3 * n_samples + sample;
    return {__ldg(from), __ldg(from + n_samples), __ldg(from + 2 * n_samples)};
}

// --- one sample: what the elements of a block need from nodes goes through shared memory
// Neighbouring threads read the C neighbouring numbers of a node, not C times one number each of scattered nodes: a load
// touches fewer lines. PITCH puts the numbers that a half-warp writes into different banks.
#define PITCH (THREADS + 6)

template <int C> struct Staged {
    real at[4 * C][PITCH];  // of the block's elements: component k of corner a in row a * C + k
    int node[4][THREADS];

    // By all threads of a block.
    __device__ inline void read(const real* __restrict__ field, const int* __restrict__ tets, offset here, int64 count)
    {
        const int t = threadIdx.x;
        const int4 corner = here < count ? __ldg((const int4*)tets + here) : int4{0, 0, 0, 0};
        node[0][t] = corner.x, node[1][t] = corner.y, node[2][t] = corner.z, node[3][t] = corner.w;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4 * C; ++i) {
            const int a = i / C, item = t + THREADS * (i % C), element = item / C, k = item % C;
            at[a * C + k][element] = __ldg(field + (int64)node[a][element] * C + k);
        }
        __syncthreads();
    }

    __device__ inline Vector3 point(int a) const
    {
        const int t = threadIdx.x;
        return {at[a * C][t], at[a * C + 1][t], at[a * C + 2][t]};
    }
};

struct Edges {
    Vector3 a, b, c;  // from corner 0 to the others
};

// By all threads of a block; ONE tells that there is one sample.
template <bool ONE>
__device__ inline Edges edges_of(const real* __restrict__ points, const int* __restrict__ tets, offset at,
                                 int n_samples, int64 count)
{
    Vector3 corner[4];
    if constexpr (ONE) {
        __shared__ Staged<3> staged;
        staged.read(points, tets, at, count);
        for (int a = 0; a < 4; ++a) corner[a] = staged.point(a);
    } else {
        const Corners here = corners_of(tets, at < count ? at : 0, n_samples);
        for (int a = 0; a < 4; ++a) corner[a] = point_at(points, here.node[a], here.sample, n_samples);
    }
    return {corner[1] - corner[0], corner[2] - corner[0], corner[3] - corner[0]};
}

template <int C>
__global__ void __launch_bounds__(THREADS)
    tet_values_of_one(const real* __restrict__ field, const int* __restrict__ tets, real* __restrict__ out, int,
                      int, int64 count)
{
    __shared__ Staged<C> staged;
    const offset at = (offset)blockIdx.x * THREADS + threadIdx.x;
    staged.read(field, tets, at, count);
    if (at >= count) return;
#pragma unroll
    for (int row = 0; row < 4 * C; ++row) out[row * count + at] = staged.at[row][threadIdx.x];
}

__global__ void __launch_bounds__(THREADS)
    tet_values(const real* __restrict__ field, const int* __restrict__ tets, real* __restrict__ out, int n_components,
               int n_samples, int64 count)
{
    const offset at = (offset)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    const Corners here = corners_of(tets, at, n_samples);
    out += at;
#pragma unroll
    for (int a = 0; a < 4; ++a) {
        const real* from = field + (int64)here.node[a] * n_components * n_samples + here.sample;
#pragma unroll 9
        for (int k = 0; k < n_components; ++k) out[(a * n_components + k) * count] = __ldg(from + k * n_samples);
    }
}

struct Gradients {
    Vector3 of[4];
    real volume;

    __device__ inline explicit Gradients(const Edges& edge)
    {
        const Vector3 u = cross(edge.b, edge.c), v = cross(edge.c, edge.a), w = cross(edge.a, edge.b);
        const real determinant = dot(edge.a, u);
        const real inverse = 1 / determinant;
        of[1] = u * inverse, of[2] = v * inverse, of[3] = w * inverse;
        const Vector3 total = sum(of[1], of[2], of[3]);
        of[0] = {-total.x, -total.y, -total.z};
        volume = fabs(determinant) * (1.0 / 6.0);
    }
};

template <bool ONE>
__global__ void __launch_bounds__(THREADS)
    tet_transform(const real* __restrict__ points, const int* __restrict__ tets, const real* __restrict__ weights,
                  real* __restrict__ out, int n_points, int n_samples, int64 count)
{
    const offset at = (offset)blockIdx.x * THREADS + threadIdx.x;
    const Edges edge = edges_of<ONE>(points, tets, at, n_samples, count);
    if (at >= count) return;
    const Gradients gradient(edge);
    real* to = out + at;
    for (int q = 0; q < n_points; ++q)
#pragma unroll
        for (int i = 0; i < 4; ++i, to += 3 * count)
            to[0] = gradient.of[i].x, to[count] = gradient.of[i].y, to[2 * count] = gradient.of[i].z;
    for (int q = 0; q < n_points; ++q, to += count) *to = gradient.volume * __ldg(weights + q);
}

template <bool ONE, bool DERIVATIVES>
__global__ void __launch_bounds__(THREADS)
    tet_closed_form(const real* __restrict__ points, const int* __restrict__ tets, real* __restrict__ out,
                    int n_samples, int64 count)
{
    const offset at = (offset)blockIdx.x * THREADS + threadIdx.x;
    const Edges edge = edges_of<ONE>(points, tets, at, n_samples, count);
    if (at >= count) return;
    const Gradients gradient(edge);
    real* to = out + at;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j, to += count) {
            if (DERIVATIVES) {
                const real weight = (real)0.25 * gradient.volume;
                to[0] = weight * gradient.of[j].x;
                to[16 * count] = weight * gradient.of[j].y;
                to[32 * count] = weight * gradient.of[j].z;
            } else {
                to[0] = gradient.volume * (i == j ? 0.1 : 0.05);
            }
        }
}

template <bool ONE>
__global__ void __launch_bounds__(THREADS)
    tet_edge_lengths(const real* __restrict__ points, const int* __restrict__ tets, real* __restrict__ out, int copies,
                     int n_samples, int64 count)
{
    const offset at = (offset)blockIdx.x * THREADS + threadIdx.x;
    const Edges edge = edges_of<ONE>(points, tets, at, n_samples, count);
    if (at >= count) return;
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
#pragma unroll
    for (int step = 0; step < 4; ++step) {
        const real q = x * x - one;
        x = x - (q * q * 0.25 - two - 2 * three * x) / (x * q - 2 * three);
    }
    const real second = sqrt(two + 2 * three * x);
    const real scale = 1 / (x * second - three), diagonal = x * three, linear = x * x - second;
    real root[9];
#pragma unroll
    for (int k = 0; k < 3; ++k)
#pragma unroll
        for (int m = 0; m < 3; ++m) {
            const real square = C[k][0] * C[m][0] + C[k][1] * C[m][1] + C[k][2] * C[m][2];
            real total = linear * C[k][m] - square;
            if (k == m) total = total + diagonal;
            root[3 * k + m] = total * scale;
        }
    real* to = out + at;
    for (int copy = 0; copy < copies; ++copy)
#pragma unroll
        for (int i = 0; i < 9; ++i, to += count) *to = root[i];
}
