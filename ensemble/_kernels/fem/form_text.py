"""The CUDA kernel of a form as a template: what `form_cuda` fills in."""

__all__ = ["GEOMETRY", "KERNEL", "ONE_PASS", "PAIR_GEOMETRY", "PASSES", "STAGED_POINTS", "STAGED_SOURCES", "SYMMETRIC"]

GEOMETRY = """
const double ax = p1.x - p0.x, ay = p1.y - p0.y, az = p1.z - p0.z;
const double bx = p2.x - p0.x, by = p2.y - p0.y, bz = p2.z - p0.z;
const double cx = p3.x - p0.x, cy = p3.y - p0.y, cz = p3.z - p0.z;
const double ux = by * cz - bz * cy, uy = bz * cx - bx * cz, uz = bx * cy - by * cx;
const double vx = cy * az - cz * ay, vy = cz * ax - cx * az, vz = cx * ay - cy * ax;
const double wx = ay * bz - az * by, wy = az * bx - ax * bz, wz = ax * by - ay * bx;
const double determinant = ax * ux + ay * uy + az * uz;
const double inverse = 1.0 / determinant, volume = determinant * (1.0 / 6.0);
double gradient[12] = {0, 0, 0, ux * inverse, uy * inverse, uz * inverse, vx * inverse, vy * inverse, vz * inverse,
                       wx * inverse, wy * inverse, wz * inverse};
for (int d = 0; d < 3; ++d) gradient[d] = -(gradient[3 + d] + gradient[6 + d] + gradient[9 + d]);
"""
"""As in `form_loops`."""

PAIR_GEOMETRY = (
    """
Point p0, p1, p2, p3;
if (near) {
    const Corners corner = ((const Corners*)pair_corners)[begin + t];
    p0 = point_of(xy, z, corner.at[0]), p1 = point_of(xy, z, corner.at[1]);
    p2 = point_of(xy, z, corner.at[2]), p3 = point_of(xy, z, corner.at[3]);
} else {
    const int4 corner = ((const int4*)nodes)[incidences[begin + t] / K];
    p0 = ((const Point*)points)[corner.x], p1 = ((const Point*)points)[corner.y];
    p2 = ((const Point*)points)[corner.z], p3 = ((const Point*)points)[corner.w];
}
"""
    + GEOMETRY
)
"""Of the corners of a pair; points are padded to four numbers, which lie in one sector of memory."""

STAGED_POINTS = """const int first_node = node_starts[blockIdx.x], n_nodes = node_starts[blockIdx.x + 1] - first_node;
    const bool near = n_nodes <= NODES;
    for (int m = threadIdx.x; near && m < n_nodes; m += THREADS) {
        const Point p = ((const Point*)points)[block_nodes[first_node + m]];
        xy[m] = {p.x, p.y}, z[m] = p.z;
    }
    __syncthreads();"""
"""The nodes of a block's elements, each of which several elements read."""

STAGED_SOURCES = """for (int m = threadIdx.x; m < min(n_pairs, CAPACITY) * K; m += THREADS)
        from[m] = (unsigned short)(sources[sources_begin + m] - sources_begin);"""

ONE_PASS = {
    "pass_begin": "{ const int begin = first_pair, count = n_pairs;",
    "pass_end": "}",
    "bilinear": "const int pair = from[source - sources_begin], t = pair / K, j = pair % K;",
    "linear": "const int t = source - begin, j = 0;",
}
"""Where every block of rows fits shared memory."""

PASSES = {
    "pass_begin": """int done = 0;
    do {
        const int begin = first_pair + done, count = min(n_pairs - done, CAPACITY);
        if (done) __syncthreads();""",
    "pass_end": """done += CAPACITY;
    } while (done < n_pairs);""",
    "bilinear": """const int pair = n_pairs > CAPACITY ? sources[source] - sources_begin : from[source - sources_begin];
                    const int t = pair / K - done, j = pair % K;
                    if (t < 0) continue;
                    if (t >= count) break;""",
    "linear": """const int t = source - begin, j = 0;
                    if (t < 0) continue;
                    if (t >= count) break;""",
}
"""Where a row may have more elements than fit: the sums of its entries go on where the pass before left them."""

KERNEL = """
// Written by ensemble: the assembly of a finite-element form.
#define REAL double
#define OFFSET int
#define LANES {lanes}
#define VECTOR {vector}
#define THREADS {threads}
{headers}
{bodies}

#define K {k}
#define DIM {dim}
#define POINTS {n_points}
#define CAPACITY {capacity}
#define NODES {n_nodes}

struct alignas(16) Point {{
    double x, y, z, unused;
}};
struct alignas(16) Xy {{
    double x, y;
}};
struct alignas(8) Corners {{
    unsigned short at[4];
}};

__device__ inline Point point_of(const Xy* xy, const double* z, int place)
{{
    return {{xy[place].x, xy[place].y, z[place], 0}};
}}

extern "C" __global__ void __launch_bounds__({bounds}) assemble(
    const double* __restrict__ points, const int* __restrict__ pair_elements, const int* __restrict__ nodes,
    const double* __restrict__ shape, const double* __restrict__ weights, const double* __restrict__ gradients,
    const double* __restrict__ dx, const unsigned short* __restrict__ pair_corners,
    const int* __restrict__ node_starts, const int* __restrict__ block_nodes, const int* __restrict__ blocks,
    const int* __restrict__ row_starts, const int* __restrict__ entry_starts, const int* __restrict__ incidences,
    const int* __restrict__ source_starts, const int* __restrict__ sources, const int* __restrict__ targets,
    {fields} {outs} const int n_samples)
{{
    extern __shared__ __align__(16) char memory[];
    Xy* xy = (Xy*)memory;
    double* z = (double*)(xy + NODES);
    double* factors = z + NODES;
    Pack* coefficients = (Pack*)(factors + {factors_size});
    Pack* sums = coefficients + CAPACITY * {n_coefficients} * LANES;
    unsigned short* from = (unsigned short*)(sums + CAPACITY * {n_sums} * LANES);
    const int row_begin = blocks[blockIdx.x], row_end = blocks[blockIdx.x + 1];
    const int first_pair = row_starts[row_begin], n_pairs = row_starts[row_end] - first_pair;
    const int lane = threadIdx.x % LANES, s = sample_here();
    const int m0 = entry_starts[blockIdx.x] + threadIdx.x / LANES, entry_end = entry_starts[blockIdx.x + 1];
    const int first0 = m0 < entry_end ? {starts}[m0] : 0, last0 = m0 < entry_end ? {starts}[m0 + 1] : 0;
    const int target0 = m0 < entry_end ? targets[m0] : 0;
    const int sources_begin = first_pair * {n_columns};
    {staged_sources}
    {staged_points}
    {pass_begin}
        for (int t = threadIdx.x; t < {n_factors_loop}; t += THREADS) {{
            const int a = incidences[begin + t] % K;
            double* stage = factors + t * {n_factors};
            {geometry}
            {exact}
        }}
        {geometry_barrier}
        for (int t = threadIdx.x / LANES; t < {n_values_loop}; t += ROWS) {{
            const int p = incidences[begin + t];
            const int e = p / K, a = p % K;
            const int64 g = pair_elements[begin + t];
            const double* stage = factors + t * {n_factors};
            {numbers}
            {element}
            {quadrature}
        }}
        __syncthreads();
        int next = first0, last = last0;
        int64 place = target0;
        for (int m = m0; m < entry_end && s < n_samples;) {{
            {totals}
            for (int source = next; source < last; ++source) {{
                {source}
                {added}
            }}
            {written}
            m += ROWS;
            if (m < entry_end) {{
                next = {starts}[m], last = {starts}[m + 1];
                place = targets[m];
            }}
        }}
    {pass_end}
}}
"""

SYMMETRIC = """
// Written by ensemble: the assembly of a symmetric finite-element form.
#define REAL double
#define OFFSET int
#define LANES {lanes}
#define VECTOR {vector}
#define THREADS {threads}
{headers}
{bodies}

#define CAPACITY {capacity}
#define AHEAD {ahead}

struct alignas(16) Point {{
    double x, y, z, unused;
}};

__device__ inline void store_past(real* to, const Pack& pack)
{{
    if constexpr (sizeof(Pack) == 16) __stcs((double2*)to, *(const double2*)&pack);
    else __stcs(to, pack.lane[0]);
}}

extern "C" __global__ void __launch_bounds__(THREADS, {blocks}) assemble(
    const Point* __restrict__ points, const int4* __restrict__ nodes, const int* __restrict__ element_starts,
    const int* __restrict__ elements, const int* __restrict__ element_numbers, const int* __restrict__ entry_starts,
    const int4* __restrict__ entries, const int* __restrict__ source_starts,
    const unsigned short* __restrict__ sources, {fields} {outs} const int n_samples)
{{
    extern __shared__ __align__(16) char memory[];
    Pack* coefficients = (Pack*)memory;
    double* factors = (double*)(coefficients + CAPACITY * {n_coefficients} * LANES);
    unsigned short* from = (unsigned short*)(factors + CAPACITY * {n_factors});
    const int lane = threadIdx.x % LANES, s = sample_here();
    const int begin = element_starts[blockIdx.x], count = element_starts[blockIdx.x + 1] - begin;
    if (s < n_samples) {{
        int number[AHEAD];
        _Pragma("unroll") for (int u = 0; u < AHEAD; ++u) {{
            const int t = threadIdx.x / LANES + u * ROWS;
            number[u] = t < count ? element_numbers[begin + t] : -1;
        }}
        {numbers}
        _Pragma("unroll") for (int u = 0; u < AHEAD; ++u) {{
            const int t = threadIdx.x / LANES + u * ROWS;
            const int64 g = number[u];
            if (g < 0) continue;
            {element}
        }}
    }}
    const int first = source_starts[blockIdx.x], n_sources = source_starts[blockIdx.x + 1] - first;
    for (int i = 8 * threadIdx.x; i < n_sources; i += 8 * THREADS) copy_async_once<16>(from + i, sources + first + i);
    for (int t = threadIdx.x; t < count; t += THREADS) {{
        const int4 corner = nodes[elements[begin + t]];
        const Point p0 = points[corner.x], p1 = points[corner.y], p2 = points[corner.z], p3 = points[corner.w];
        {geometry}
        double* stage = factors + t * {n_factors};
        {exact}
    }}
    wait_for_copies();
    __syncthreads();
    const int end = entry_starts[blockIdx.x + 1];
    int m = entry_starts[blockIdx.x] + threadIdx.x / LANES;
    int4 next = m < end ? entries[m] : make_int4(0, 0, 0, 0);
    while (m < end && s < n_samples) {{
        const int4 entry = next;
        m += ROWS;
        if (m < end) next = entries[m];
        {totals}
        _Pragma("unroll 4") for (int k = 0; k < entry.y; ++k) {{
            const int pair = from[entry.x + k], t = pair / {n_pairs}, j = pair % {n_pairs};
            const double* stage = factors + t * {n_factors};
            {added}
        }}
        for (int64 place = entry.z;; place = entry.w) {{
            {written}
            if (place == entry.w) break;
        }}
    }}
}}
"""
