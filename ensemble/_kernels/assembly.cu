// Finite-element assembly on trilinear hexahedra; what each kernel computes stands in assembly.py.

__global__ void __launch_bounds__(THREADS)
    affine_coefficient(const real* __restrict__ mean, const real* __restrict__ modes, const real* __restrict__ y,
                       real* kappa, int n_terms, int64 n_rows, int n_samples)
{
    const int64 point = row_here();
    const int s = sample_here();
    if (point >= n_rows || s >= n_samples) return;
    Pack total = spread(__ldg(mean));
    for (int m = 0; m < n_terms; ++m)
        total = total + spread(__ldg(modes + point * n_terms + m)) * load_shared(y + m * n_samples + s);
    store(kappa + point * n_samples + s, total);
}

// --- matrix rows
// A block is one warp. ACROSS threads carry a row, PACKS packs of samples each: what all samples share comes from
// shared memory, and two packs a thread halve how often. The up to 27 entries of a row are added up in registers, so
// their places must be known to the compiler: the cell on side t of a node (bit 0 of t for x, 1 for y, 2 for z; 0 before
// the node, 1 after) sees it as corner 7 - t, and that cell's corner b is the node's neighbour b + t, counted in threes.
// Cells come in descending order of the corner that the node is, which is their ascending order on a `HexMesh`.
#define WARP 32
#define UNROLL_AFTER 1
#define UNROLL_Y 1
#define UNROLL_X 2
#define ENTRIES 27
#define WHOLE (16 / (int)sizeof(real))  // numbers in one load of 16 bytes
#define MISSING (-1)
#define HELD_COLUMN 32  // added to a slot

__device__ constexpr int in_threes(int corner) { return (corner & 1) + 3 * (corner >> 1 & 1) + 9 * (corner >> 2); }

struct alignas(16) Whole {
    real at[WHOLE];
};

__device__ inline Whole whole(const real* from) { return *reinterpret_cast<const Whole*>(from); }

// Row `row` of an array whose rows are `stride` bytes apart: one instruction, where indices would take three.
__device__ inline const real* row_at(const real* base, int row, int stride)
{
    return (const real*)((const char*)base + (int64)row * stride);
}

// f_d of the stiffness integrand and the faces that drift passes, of one cell.
struct Sizes {
    real factor[3], face[3];
};

__device__ inline Sizes sizes_of(const real* h)
{
    const real x = h[1] * h[2], y = h[0] * h[2], z = h[0] * h[1];
    return {{x / h[0], y / h[1], z / h[2]}, {x, y, z}};
}

__device__ inline Whole whole_shared(const real* from)
{
    const int4 raw = __ldg(reinterpret_cast<const int4*>(from));
    return *reinterpret_cast<const Whole*>(&raw);
}

__device__ inline real across_directions(const real* factors, const real* table, int stride)
{
    return factors[0] * __ldg(table) + factors[1] * __ldg(table + stride) + factors[2] * __ldg(table + 2 * stride);
}

template <int HERE>
struct RowTables {
    int cells[HERE][9], incidences[HERE][9], nodes[HERE][ENTRIES];  // 9: rows in other banks
    signed char slots[HERE][ENTRIES + 1];
};

// The cells around the HERE rows of this block by side, and their neighbours and slots by place in a full row.
template <int HERE, bool WITH_MATRIX>
__device__ inline void look_around(RowTables<HERE>& tables, const int* __restrict__ first_cell,
                                   const int* __restrict__ cells, const signed char* __restrict__ corners,
                                   const int* __restrict__ connectivity, const bool* __restrict__ fixed,
                                   const signed char* __restrict__ slots, int64 n_rows)
{
    const int64 first = (int64)blockIdx.x * HERE;
    for (int item = threadIdx.x; item < HERE * 8; item += WARP) tables.cells[item / 8][item % 8] = MISSING;
    for (int item = threadIdx.x; item < HERE * ENTRIES; item += WARP)
        tables.nodes[item / ENTRIES][item % ENTRIES] = MISSING;
    __syncthreads();
    for (int item = threadIdx.x; item < HERE * 8; item += WARP) {
        const int64 row = first + item / 8;
        if (row >= n_rows) break;
        const int p = first_cell[row] + item % 8;
        if (p >= first_cell[row + 1]) continue;
        const int t = 7 - corners[p], cell = cells[p];
        tables.cells[item / 8][t] = cell;
        for (int b = 0; b < 8; ++b) {
            const int place = in_threes(t) + in_threes(b);
            tables.nodes[item / 8][place] = connectivity[(int64)cell * 8 + b];
            if (WITH_MATRIX) tables.slots[item / 8][place] = slots[(int64)p * 8 + b];
        }
    }
    __syncthreads();
    if (!WITH_MATRIX) return;
    for (int item = threadIdx.x; item < HERE * ENTRIES; item += WARP) {
        const int node = tables.nodes[item / ENTRIES][item % ENTRIES];
        signed char& slot = tables.slots[item / ENTRIES][item % ENTRIES];
        slot = node == MISSING ? MISSING : fixed[node] ? slot + HELD_COLUMN : slot;
    }
    __syncthreads();
}

// Tables of the cell on side t of each row of the block, the same for all samples: the integrand of corner 7 - t with
// each corner b at Gauss point q in [8 b + q], and the drift to b.
template <int HERE>
struct CellTables {
    Sizes sizes[HERE][8];
    alignas(16) real integrand[HERE][64 + WHOLE], drift[HERE][8];
};

template <int HERE>
__device__ inline void tabulate(CellTables<HERE>& shared, const RowTables<HERE>& rows, int t,
                                const real* __restrict__ stiffness, const real* __restrict__ advection)
{
    const int a = 7 - t;
    __syncthreads();
#pragma unroll
    for (int item = threadIdx.x; item < 64; item += WARP) {
        const real* table = stiffness + a * 64 + item;
        const real x = __ldg(table), y = __ldg(table + 512), z = __ldg(table + 1024);
#pragma unroll 4
        for (int row = 0; row < HERE; ++row) {
            const real* f = shared.sizes[row][t].factor;
            shared.integrand[row][item] = f[0] * x + f[1] * y + f[2] * z;
        }
    }
    for (int item = threadIdx.x; item < HERE * 8; item += WARP)
        shared.drift[item / 8][item % 8] =
            across_directions(shared.sizes[item / 8][t].face, advection + a * 8 + item % 8, 64);
    __syncthreads();
}

// The next cell along x finds its entries where the last one had them: the first two rows of a plane are turned, to the
// left or back.
template <int PACKS>
__device__ inline void turn_rows(Pack (&plane)[9][PACKS], bool left)
{
#pragma unroll
    for (int row = 0; row < 6; row += 3)
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const Pack a = plane[row][k], b = plane[row + 1][k], c = plane[row + 2][k];
            plane[row][k] = left ? b : c, plane[row + 1][k] = left ? c : a, plane[row + 2][k] = left ? a : b;
        }
}

// The same for rows, and the next cells along y.
template <int PACKS>
__device__ inline void turn_plane(Pack (&plane)[9][PACKS], bool left)
{
#pragma unroll
    for (int e = 0; e < 3; ++e)
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const Pack a = plane[e][k], b = plane[e + 3][k], c = plane[e + 6][k];
            plane[e][k] = left ? b : c, plane[e + 3][k] = left ? c : a, plane[e + 6][k] = left ? a : b;
        }
}

template <bool REACTS, bool WITH_MATRIX>
__global__ void __launch_bounds__(WARP)
    gather_rows(const int* __restrict__ first_cell, const int* __restrict__ cells,
                const signed char* __restrict__ corners, const int* __restrict__ connectivity,
                const bool* __restrict__ fixed, const real* __restrict__ edges,
                const real* __restrict__ interpolation, const real* __restrict__ stiffness,
                const real* __restrict__ reaction, const real* __restrict__ advection,
                const real* __restrict__ kappa, const real* __restrict__ u, const offset* __restrict__ indptr,
                const signed char* __restrict__ slots, real* values, real* residual, int64 n_rows, int n_samples)
{
    constexpr int PACKS = REACTS || LANES == 1 ? 1 : 2, ACROSS = LANES / PACKS, HERE = WARP / ACROSS;
    constexpr bool ALONE = ACROSS == 1;  // a thread shares no row, and makes its own tables
    __shared__ RowTables<HERE> rows;
    __shared__ CellTables<ALONE ? 1 : HERE> shared;
    const int group = threadIdx.x / ACROSS;
    const int64 i = (int64)blockIdx.x * HERE + group;
    int s[PACKS];
    for (int k = 0; k < PACKS; ++k) s[k] = ((blockIdx.y * PACKS + k) * ACROSS + threadIdx.x % ACROSS) * VECTOR;
    look_around<HERE, WITH_MATRIX>(rows, first_cell, cells, corners, connectivity, fixed, slots, n_rows);
    if constexpr (!ALONE) {
        for (int item = threadIdx.x; item < HERE * 8; item += WARP)
            if (rows.cells[item / 8][item % 8] != MISSING)
                shared.sizes[item / 8][item % 8] = sizes_of(edges + (int64)rows.cells[item / 8][item % 8] * 3);
    }
    const bool inside = i < n_rows && s[0] < n_samples, held = i < n_rows && fixed[i];
    const int stride = n_samples * (int)sizeof(real);
    int64 row = 0;
    if (WITH_MATRIX && inside) row = indptr[i];
    Pack r[PACKS], low[9][PACKS], high[9][PACKS];  // the planes of entries before and after the cells at hand
    for (int k = 0; k < PACKS; ++k) {
        r[k] = spread(0);
        if (s[k] >= n_samples) s[k] = s[0];  // reads what is there, writes the same twice
    }
    const auto write = [&](int place, const Pack* entry) {
        if (!WITH_MATRIX || !inside) return;
        const int slot = rows.slots[group][place];
        if (slot == MISSING) return;
        real* to = values + (row + slot % HELD_COLUMN) * n_samples;
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
            store(to + s[k], held ? spread(place == ENTRIES / 2) : slot >= HELD_COLUMN ? spread(0) : entry[k]);
    };
#pragma unroll
    for (int e = 0; e < 9; ++e)
        for (int k = 0; k < PACKS; ++k) low[e][k] = high[e][k] = spread(0);
#pragma unroll UNROLL_AFTER
    for (int after = 0; after < 2; ++after) {  // before and after the node, along z, y and x
#pragma unroll UNROLL_Y
        for (int y = 0; y < 2; ++y) {
#pragma unroll UNROLL_X
        for (int x = 0; x < 2; ++x) {
            const int t = 4 * after + 2 * y + x, a = 7 - t;
            const int cell = rows.cells[group][t];
            const bool there = inside && !held && cell != MISSING;
            Pack coefficient[8][PACKS], volume_u[8];
            if (there) {  // asked for before the tables are made: the loads take longer
                if (LANES * VECTOR == 1 && n_samples == 1 && (size_t)kappa % 16 == 0) {
#pragma unroll
                    for (int q = 0; q < 8; ++q)
                        coefficient[q][0] = spread(whole_shared(kappa + (int64)cell * 8 + q / WHOLE * WHOLE).at[q % WHOLE]);
                } else
#pragma unroll
                for (int k = 0; k < PACKS; ++k) {
                    const real* first = row_at(kappa + s[k], cell * 8, stride);
#pragma unroll
                    for (int q = 0; q < 8; ++q) coefficient[q][k] = load_shared(row_at(first, q, stride));
                }
            }
            if constexpr (!ALONE) tabulate(shared, rows, t, stiffness, advection);
            if (there) {
                Sizes mine;
                if (ALONE) mine = sizes_of(edges + (int64)cell * 3);
                if (REACTS) {
                    const real* h = edges + (int64)cell * 3;
                    const real volume = h[0] * h[1] * h[2];
#pragma unroll
                    for (int q = 0; q < 8; ++q) {
                        Pack value = spread(0);
                        for (int b = 0; b < 8; ++b)
                            value = value + load_shared(u + (int64)connectivity[(int64)cell * 8 + b] * n_samples + s[0]) *
                                                spread(__ldg(interpolation + q * 8 + b));
                        volume_u[q] = value * spread(volume);
                    }
                }
#pragma unroll
                for (int b = 0; b < 8; ++b) {
                    Pack entry[PACKS];
                    const real drift = ALONE ? across_directions(mine.face, advection + a * 8 + b, 64)
                                             : shared.drift[group][b];
#pragma unroll
                    for (int k = 0; k < PACKS; ++k) entry[k] = spread(drift);
#pragma unroll
                    for (int q = 0; q < 8; q += WHOLE) {
                        Whole weights;
                        if constexpr (ALONE) {
                            const real *table = stiffness + (a * 8 + b) * 8 + q, *f = mine.factor;
                            const Whole along_x = whole_shared(table), along_y = whole_shared(table + 512),
                                        along_z = whole_shared(table + 1024);
#pragma unroll
                            for (int w = 0; w < WHOLE; ++w)
                                weights.at[w] = f[0] * along_x.at[w] + f[1] * along_y.at[w] + f[2] * along_z.at[w];
                        } else {
                            weights = whole(shared.integrand[group] + b * 8 + q);
                        }
#pragma unroll
                        for (int w = 0; w < WHOLE; ++w)
#pragma unroll
                            for (int k = 0; k < PACKS; ++k)
                                entry[k] = entry[k] + coefficient[q + w][k] * spread(weights.at[w]);
                    }
                    const int node = rows.nodes[group][9 * after + 3 * y + x + in_threes(b)];
                    Pack derivative = spread(0);
                    if (REACTS) {
#pragma unroll
                        for (int q = 0; q < 8; ++q)
                            derivative = derivative + volume_u[q] * spread(__ldg(reaction + (a * 8 + b) * 8 + q));
                    }
                    Pack* total = (b < 4 ? low : high)[in_threes(b & 3)];
#pragma unroll
                    for (int k = 0; k < PACKS; ++k) {
                        const Pack at_corner = load_shared(row_at(u + s[k], node, stride));
                        if (REACTS) {
                            r[k] = r[k] + (entry[k] + derivative * spread(real(0.5))) * at_corner;
                            entry[k] = entry[k] + derivative;
                        } else {
                            r[k] = r[k] + entry[k] * at_corner;
                        }
                        if (WITH_MATRIX) total[k] = total[k] + entry[k];
                    }
                }
            }
            turn_rows(low, x == 0), turn_rows(high, x == 0);
        }
        if (y == 0) {
#pragma unroll
            for (int e = 0; e < 3; ++e) write(9 * after + e, low[e]);
            turn_plane(low, true), turn_plane(high, true);
        } else {
#pragma unroll
            for (int e = 0; e < 6; ++e) write(9 * after + 3 + e, low[e]);
            turn_plane(high, false);
#pragma unroll
            for (int e = 0; e < 9; ++e)
#pragma unroll
                for (int k = 0; k < PACKS; ++k) low[e][k] = high[e][k], high[e][k] = spread(0);
        }
        }
    }
#pragma unroll
    for (int e = 0; e < 9; ++e) write(18 + e, low[e]);
    if (inside)
        for (int k = 0; k < PACKS; ++k) store(residual + i * n_samples + s[k], r[k]);
}

// The diagonal of the operator of `matrix_free`.
__global__ void __launch_bounds__(THREADS)
    hex_diagonal(const int* __restrict__ first_cell, const int* __restrict__ cells,
                 const signed char* __restrict__ corners, const bool* __restrict__ fixed,
                 const real* __restrict__ factors, const real* __restrict__ stiffness, const real* __restrict__ kappa,
                 real* out, int64 n_rows, int n_samples)
{
    const int64 row = row_here();
    const int s = sample_here();
    if (row >= n_rows || s >= n_samples) return;
    Pack total = spread(0);
    for (int p = first_cell[row]; p < first_cell[row + 1]; ++p) {
        const int64 cell = cells[p];
        const real *table = stiffness + corners[p] * 8, *f = factors + cell * 3;
        Pack part = spread(0);
#pragma unroll
        for (int q = 0; q < 8; ++q) {
            real weight = 0;
            for (int d = 0; d < 3; ++d) weight = weight + __ldg(f + d) * __ldg(table + d * 64 + q);
            part = part + spread(weight) * load_shared(kappa + (cell * 8 + q) * n_samples + s);
        }
        total = total + part;
    }
    store(out + row * n_samples + s, fixed[row] ? spread(1) : total);
}
