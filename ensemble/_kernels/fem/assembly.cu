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
// LANES threads carry a row; what all samples share comes from shared memory. The up to 27 entries of a row are added up
// in registers, so their places must be known to the compiler: the cell on side t of a node (bit 0 of t for x, 1 for y,
// 2 for z; 0 before the node, 1 after) sees it as corner 7 - t, and that cell's corner b is the node's neighbour b + t,
// counted in threes. Cells come in descending order of the corner that the node is: on a `HexMesh`, as they are numbered.
#define ROW_THREADS 32
#define HERE (ROW_THREADS / LANES)  // rows of a block
#define ALONE (LANES == 1)          // a thread shares no row, and makes its own tables
#define ENTRIES 27
#define WHOLE (16 / (int)sizeof(real))  // numbers in one load of 16 bytes
#define MISSING (-1)
#define HELD_COLUMN 32  // added to a slot

__device__ constexpr int in_threes(int corner) { return (corner & 1) + 3 * (corner >> 1 & 1) + 9 * (corner >> 2); }

struct alignas(16) Whole {
    real at[WHOLE];
};

__device__ inline Whole whole(const real* from) { return *reinterpret_cast<const Whole*>(from); }

__device__ inline Whole whole_shared(const real* from)
{
    const int4 raw = __ldg(reinterpret_cast<const int4*>(from));
    return *reinterpret_cast<const Whole*>(&raw);
}

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

__device__ inline real drift_of(const Sizes& sizes, const real* table)
{
    const real* f = sizes.face;
    return f[0] * __ldg(table) + f[1] * __ldg(table + 64) + f[2] * __ldg(table + 128);
}

struct RowTables {
    int cells[HERE][9], nodes[HERE][ENTRIES];  // 9, not 8: rows in different banks
    signed char slots[HERE][ENTRIES + 1];
};

// The cells around the rows of this block by side, and their neighbours and slots by place in a full row.
template <bool WITH_MATRIX>
__device__ inline void look_around(RowTables& tables, const int* __restrict__ first_cell, const int* __restrict__ cells,
                                   const signed char* __restrict__ corners, const int* __restrict__ connectivity,
                                   const bool* __restrict__ fixed, const signed char* __restrict__ slots, int64 n_rows)
{
    for (int item = threadIdx.x; item < HERE * 8; item += ROW_THREADS) tables.cells[item / 8][item % 8] = MISSING;
    for (int item = threadIdx.x; item < HERE * ENTRIES; item += ROW_THREADS)
        tables.nodes[item / ENTRIES][item % ENTRIES] = MISSING;
    __syncthreads();
    for (int item = threadIdx.x; item < HERE * 8; item += ROW_THREADS) {
        const int64 row = (int64)blockIdx.x * HERE + item / 8;
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
    for (int item = threadIdx.x; item < HERE * ENTRIES; item += ROW_THREADS) {
        const int node = tables.nodes[item / ENTRIES][item % ENTRIES];
        signed char& slot = tables.slots[item / ENTRIES][item % ENTRIES];
        slot = node == MISSING ? MISSING : fixed[node] ? slot + HELD_COLUMN : slot;
    }
    __syncthreads();
}

// Of the cell on one side of each row of the block, the same for all samples: the integrand of the corner that the node
// is with each corner b at Gauss point q in [8 b + q], and the drift to b.
struct CellTables {
    Sizes sizes[HERE][8];
    alignas(16) real integrand[HERE][64 + WHOLE], drift[HERE][8];
};

__device__ inline void tabulate(CellTables& shared, int t, const real* __restrict__ stiffness,
                                const real* __restrict__ advection)
{
    const int a = 7 - t;
    __syncthreads();
#pragma unroll
    for (int item = threadIdx.x; item < 64; item += ROW_THREADS) {
        const real* table = stiffness + a * 64 + item;
        const real x = __ldg(table), y = __ldg(table + 512), z = __ldg(table + 1024);
#pragma unroll 4
        for (int row = 0; row < HERE; ++row) {
            const real* f = shared.sizes[row][t].factor;
            shared.integrand[row][item] = f[0] * x + f[1] * y + f[2] * z;
        }
    }
    for (int item = threadIdx.x; item < HERE * 8; item += ROW_THREADS)
        shared.drift[item / 8][item % 8] = drift_of(shared.sizes[item / 8][t], advection + a * 8 + item % 8);
    __syncthreads();
}

// What the cell's volume times u makes of the reaction term at each Gauss point.
__device__ inline void volume_times(Pack* volume_u, const int* corners_of_cell, const real* h,
                                    const real* __restrict__ interpolation, const real* u, int stride)
{
    const real volume = h[0] * h[1] * h[2];
#pragma unroll
    for (int q = 0; q < 8; ++q) {
        Pack value = spread(0);
        for (int b = 0; b < 8; ++b)
            value = value +
                    load_shared(row_at(u, corners_of_cell[b], stride)) * spread(__ldg(interpolation + q * 8 + b));
        volume_u[q] = value * spread(volume);
    }
}

// Blocks that a multiprocessor must hold: 16 cost no time by what they spill; 0 leaves it to the compiler.
template <bool REACTS, bool WITH_MATRIX>
__global__ void __launch_bounds__(ROW_THREADS, REACTS ? 11 : ALONE ? 0 : 16)
    gather_rows(const int* __restrict__ first_cell, const int* __restrict__ cells,
                const signed char* __restrict__ corners, const int* __restrict__ connectivity,
                const bool* __restrict__ fixed, const real* __restrict__ edges,
                const real* __restrict__ interpolation, const real* __restrict__ stiffness,
                const real* __restrict__ reaction, const real* __restrict__ advection,
                const real* __restrict__ kappa, const real* __restrict__ u, const offset* __restrict__ indptr,
                const signed char* __restrict__ slots, real* values, real* residual, int64 n_rows, int n_samples)
{
    __shared__ RowTables rows;
    __shared__ CellTables shared;
    const int group = threadIdx.x / LANES, s = sample_here(), stride = n_samples * (int)sizeof(real);
    const int64 i = (int64)blockIdx.x * HERE + group;
    look_around<WITH_MATRIX>(rows, first_cell, cells, corners, connectivity, fixed, slots, n_rows);
    for (int item = threadIdx.x; item < HERE * 8 && !ALONE; item += ROW_THREADS)
        if (rows.cells[item / 8][item % 8] != MISSING)
            shared.sizes[item / 8][item % 8] = sizes_of(edges + (int64)rows.cells[item / 8][item % 8] * 3);
    const bool inside = i < n_rows && s < n_samples, held = i < n_rows && fixed[i];
    real* const row = WITH_MATRIX && inside ? values + (int64)indptr[i] * n_samples + s : nullptr;
    const auto write = [&](int place, const Pack& entry) {
        if (!WITH_MATRIX || !inside) return;
        const int slot = rows.slots[group][place];
        if (slot == MISSING) return;
        store(row + (int64)(slot % HELD_COLUMN) * n_samples,
              held ? spread(place == ENTRIES / 2) : slot >= HELD_COLUMN ? spread(0) : entry);
    };
    Pack r = spread(0), low[9], high[9];  // the planes of entries before and after the cells at hand
#pragma unroll
    for (int e = 0; e < 9; ++e) low[e] = high[e] = spread(0);
#pragma unroll 1
    for (int after = 0; after < 2; ++after) {  // the four cells before the node along z, the four after
#pragma unroll
        for (int side = 0; side < 4; ++side) {
            const int t = 4 * after + side, a = 7 - t, cell = rows.cells[group][t];
            const bool there = inside && !held && cell != MISSING;
            Pack coefficient[8], volume_u[8];
            if (there) {  // loaded before the tables are made: the loads take longer
                if (LANES * VECTOR == 1 && n_samples == 1 && (size_t)kappa % 16 == 0) {
#pragma unroll
                    for (int q = 0; q < 8; ++q)
                        coefficient[q] =
                            spread(whole_shared(kappa + (int64)cell * 8 + q / WHOLE * WHOLE).at[q % WHOLE]);
                } else {
                    const real* first = row_at(kappa + s, cell * 8, stride);
#pragma unroll
                    for (int q = 0; q < 8; ++q) coefficient[q] = load_shared(row_at(first, q, stride));
                }
            }
            if (!ALONE) tabulate(shared, t, stiffness, advection);
            if (there) {
                Sizes mine;
                if (ALONE) mine = sizes_of(edges + (int64)cell * 3);
                if (REACTS)
                    volume_times(volume_u, connectivity + (int64)cell * 8, edges + (int64)cell * 3, interpolation,
                                 u + s, stride);
#pragma unroll
                for (int b = 0; b < 8; ++b) {
                    Pack entry = spread(ALONE ? drift_of(mine, advection + a * 8 + b) : shared.drift[group][b]);
#pragma unroll
                    for (int q = 0; q < 8; q += WHOLE) {
                        Whole weights;
                        if (ALONE) {
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
                        for (int w = 0; w < WHOLE; ++w) entry = entry + coefficient[q + w] * spread(weights.at[w]);
                    }
                    const int node = rows.nodes[group][9 * after + in_threes(side) + in_threes(b)];
                    const Pack at_corner = load_shared(row_at(u + s, node, stride));
                    if (REACTS) {
                        Pack derivative = spread(0);
#pragma unroll
                        for (int q = 0; q < 8; ++q)
                            derivative = derivative + volume_u[q] * spread(__ldg(reaction + (a * 8 + b) * 8 + q));
                        r = r + (entry + derivative * spread(real(0.5))) * at_corner;
                        entry = entry + derivative;
                    } else {
                        r = r + entry * at_corner;
                    }
                    Pack& total = (b < 4 ? low : high)[in_threes(side) + in_threes(b & 3)];
                    if (WITH_MATRIX) total = total + entry;
                }
            }
            if (side == 1)
                for (int e = 0; e < 3; ++e) write(9 * after + e, low[e]);
        }
#pragma unroll
        for (int e = 3; e < 9; ++e) write(9 * after + e, low[e]);
#pragma unroll
        for (int e = 0; e < 9; ++e) low[e] = high[e], high[e] = spread(0);
    }
#pragma unroll
    for (int e = 0; e < 9; ++e) write(18 + e, low[e]);
    if (inside) store(residual + i * n_samples + s, r);
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
