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

struct Edges {
    Vector3 a, b, c;  // from corner 0 to the others
};

__device__ inline Edges edges_of(const real* __restrict__ points, const int* __restrict__ tets, offset at,
                                 int n_samples)
{
    const Corners here = corners_of(tets, at, n_samples);
    Vector3 corner[4];
#pragma unroll
    for (int a = 0; a < 4; ++a) corner[a] = point_at(points, here.node[a], here.sample, n_samples);
    return {corner[1] - corner[0], corner[2] - corner[0], corner[3] - corner[0]};
}

// --- nodal values; results go past the caches, which nodes need
template <int C>
__global__ void __launch_bounds__(THREADS)
    tet_values_of_one(const real* __restrict__ field, const int* __restrict__ tets, real* __restrict__ out, int,
                      int, int64 count)
{
    const offset at = (offset)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    const int4 node = __ldcs((const int4*)tets + at);
    const real* from[4] = {field + (int64)node.x * C, field + (int64)node.y * C, field + (int64)node.z * C,
                           field + (int64)node.w * C};
    out += at;
#pragma unroll
    for (int a = 0; a < 4; ++a)
#pragma unroll
        for (int k = 0; k < C; ++k) __stcs(out + (a * C + k) * count, __ldg(from[a] + k));
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
        for (int k = 0; k < n_components; ++k)
            __stcs(out + (a * n_components + k) * count, __ldg(from + k * n_samples));
    }
}

// --- quantities of the geometry: few values, written to many rows
enum Quantity { TRANSFORM, MASS, FIRST, LENGTHS };

template <Quantity KIND> __device__ constexpr int n_values()
{
    return KIND == TRANSFORM ? 13 : KIND == MASS ? 1 : KIND == FIRST ? 12 : 9;
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
#pragma unroll
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

template <Quantity KIND> __device__ inline void values_of(const Edges& edge, real* values)
{
    if (KIND == LENGTHS) {
        lengths_of(edge, values);
        return;
    }
    const Gradients gradient(edge);
    if (KIND == MASS) {
        values[0] = gradient.volume;
        return;
    }
    const real weight = KIND == FIRST ? (real)0.25 * gradient.volume : (real)1;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        values[3 * j] = weight * gradient.of[j].x;
        values[3 * j + 1] = weight * gradient.of[j].y;
        values[3 * j + 2] = weight * gradient.of[j].z;
    }
    if (KIND == TRANSFORM) values[12] = gradient.volume;
}

// The value that row `row` of a copy holds, and what it is multiplied by.
template <Quantity KIND> __device__ inline int source_of(int row, real& factor)
{
    factor = KIND == MASS ? (row / 4 == row % 4 ? 0.1 : 0.05) : 1;
    return KIND == MASS ? 0 : KIND == FIRST ? 3 * (row % 4) + row / 16 : row;
}

// A thread writes what it has.
#define QUANTITY_THREADS 256

template <Quantity KIND>
__global__ void __launch_bounds__(QUANTITY_THREADS)
    tet_quantity(const real* __restrict__ points, const int* __restrict__ tets, const real* __restrict__ weights,
                 real* __restrict__ out, int copies, int own, int n_samples, int64 count)
{
    constexpr int N = n_values<KIND>();
    __shared__ real heads[N][QUANTITY_THREADS / 32 + 1][SECTOR];
    const int64 first = (int64)blockIdx.x * own, at = min(first + threadIdx.x, count - 1);
    real values[N][1];
    values_of<KIND>(edges_of(points, tets, (offset)at, n_samples), &values[0][0]);
    const RowWriter<N, 1, QUANTITY_THREADS> rows(values, heads, first, count, own);
    constexpr int ROWS_OF_COPY = KIND == MASS ? 16 : KIND == LENGTHS ? 9 : 12;
    for (int copy = 0; copy < copies; ++copy)
#pragma unroll
        for (int row = 0; row < ROWS_OF_COPY; ++row, out += count) {
            real factor;
            const int source = source_of<KIND>(row, factor);
            rows.store(source, out, factor);
        }
    if (KIND == TRANSFORM)
        for (int q = 0; q < copies; ++q, out += count) rows.store(N - 1, out, __ldg(weights + q));
}

// Many rows: the values of WIDE pairs, and of those that follow, go through shared memory, and a warp writes a row of
// them at a time, so that memory gets long pieces of few rows at once. ONE: there is one sample.
template <Quantity KIND, bool ONE, int WIDE_THREADS, int WIDE>
__global__ void __launch_bounds__(WIDE_THREADS)
    tet_quantity_by_rows(const real* __restrict__ points, const int* __restrict__ tets, real* __restrict__ out,
                         int n_rows, int n_samples, int64 count)
{
    SHARED_VALUES(held);
    constexpr int PITCH = WIDE + SECTOR + 2;
    const int64 first = (int64)blockIdx.x * WIDE;
    const int64 here = first + threadIdx.x;
    if (threadIdx.x < WIDE + SECTOR && here < count) {
        real values[n_values<KIND>()];
        values_of<KIND>(edges_of(points, tets, (offset)here, ONE ? 1 : n_samples), values);
#pragma unroll
        for (int i = 0; i < n_values<KIND>(); ++i) held[i * PITCH + threadIdx.x] = values[i];
    }
    __syncthreads();
    const int lane = threadIdx.x % 32;
    for (int row = threadIdx.x / 32; row < n_rows; row += WIDE_THREADS / 32) {
        real factor;
        const real* from = held + source_of<KIND>(row, factor) * PITCH;
        real* to = out + row * count + first;
        const int shift = to_sector(to), n = (int)min((int64)WIDE, count - first - shift);
        if (first == 0 && lane < min((int64)shift, count)) __stcs(to + lane, from[lane] * factor);
        from += shift, to += shift;
#pragma unroll 2
        for (int i = 2 * lane; i < n; i += 64) {
            if (i + 1 < n) __stcs((double2*)(to + i), make_double2(from[i] * factor, from[i + 1] * factor));
            else __stcs(to + i, from[i] * factor);
        }
    }
}
