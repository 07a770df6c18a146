// Finite-element assembly on trilinear hexahedra; what each kernel computes stands in assembly.py.
//
// LANES threads carry one matrix row; its up to 27 entries are added up on the chip and written once.

#define ENTRIES 27
#define WIDTH (LANES * VECTOR)
#define ELEMENT_ROWS (WIDTH >= 128 ? 1 : (WIDTH <= 8 ? 16 : 128 / WIDTH))

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

template <bool REACTS, bool WITH_MATRIX>
__global__ void gather_rows(const int* __restrict__ first_cell, const int* __restrict__ cells,
                            const signed char* __restrict__ corners, const int* __restrict__ connectivity,
                            const bool* __restrict__ fixed, const real* __restrict__ edges,
                            const real* __restrict__ interpolation, const real* __restrict__ stiffness,
                            const real* __restrict__ reaction, const real* __restrict__ advection,
                            const real* __restrict__ kappa, const real* __restrict__ u,
                            const offset* __restrict__ indptr, const signed char* __restrict__ slots, real* values,
                            real* residual, int64 n_rows, int n_samples)
{
    __shared__ real factors[ELEMENT_ROWS][8][3];
    __shared__ real geometry[ELEMENT_ROWS][64];
    __shared__ Pack entries[WITH_MATRIX ? ELEMENT_ROWS : 1][ENTRIES][LANES];
    const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int64 i = (int64)blockIdx.x * ELEMENT_ROWS + group;
    const int s = sample_here();
    const bool inside = i < n_rows && s < n_samples;
    const bool held = i < n_rows && fixed[i];
    const int begin = i < n_rows ? first_cell[i] : 0;
    const int n_cells = i < n_rows ? first_cell[i + 1] - begin : 0;
    if (WITH_MATRIX)
        for (int k = 0; k < ENTRIES; ++k) entries[group][k][lane] = spread(0);
    Pack r = spread(0);
    for (int item = threadIdx.x; item < ELEMENT_ROWS * 8; item += blockDim.x) {
        const int64 row = (int64)blockIdx.x * ELEMENT_ROWS + item / 8;
        if (row >= n_rows || first_cell[row] + item % 8 >= first_cell[row + 1]) continue;
        const real* h = edges + (int64)cells[first_cell[row] + item % 8] * 3;
        real* factor = factors[item / 8][item % 8];
        factor[0] = h[1] * h[2] / h[0], factor[1] = h[0] * h[2] / h[1], factor[2] = h[0] * h[1] / h[2];
    }
    for (int around = 0; around < 8; ++around) {
        __syncthreads();
        for (int item = threadIdx.x; item < ELEMENT_ROWS * 64; item += blockDim.x) {  // shared by all samples
            const int64 row = (int64)blockIdx.x * ELEMENT_ROWS + item / 64;
            if (row >= n_rows || first_cell[row] + around >= first_cell[row + 1]) continue;
            const real* f = factors[item / 64][around];
            const real* table = stiffness + corners[first_cell[row] + around] * 64 + item % 64;
            geometry[item / 64][item % 64] = f[0] * table[0] + f[1] * table[512] + f[2] * table[1024];
        }
        __syncthreads();
        if (!inside || held || around >= n_cells) continue;
        const int p = begin + around, a = corners[p];
        const int64 cell = cells[p];
        const real hx = edges[cell * 3], hy = edges[cell * 3 + 1], hz = edges[cell * 3 + 2];
        Pack coefficient[8], volume_u[8];
#pragma unroll
        for (int q = 0; q < 8; ++q) coefficient[q] = load_shared(kappa + (cell * 8 + q) * n_samples + s);
        if (REACTS) {
#pragma unroll
            for (int q = 0; q < 8; ++q) {
                Pack value = spread(0);
                for (int b = 0; b < 8; ++b)
                    value = value + load_shared(u + (int64)connectivity[cell * 8 + b] * n_samples + s) *
                                        spread(__ldg(interpolation + q * 8 + b));
                volume_u[q] = value * spread(hx * hy * hz);
            }
        }
        for (int b = 0; b < 8; ++b) {
            const int node = connectivity[cell * 8 + b], k = a * 8 + b;
            Pack entry = spread(hy * hz * __ldg(advection + k) + hx * hz * __ldg(advection + k + 64) +
                                hx * hy * __ldg(advection + k + 128));
#pragma unroll
            for (int q = 0; q < 8; ++q) entry = entry + coefficient[q] * spread(geometry[group][b * 8 + q]);
            const Pack at_corner = load_shared(u + (int64)node * n_samples + s);
            if (REACTS) {
                Pack derivative = spread(0);
#pragma unroll
                for (int q = 0; q < 8; ++q)
                    derivative = derivative + volume_u[q] * spread(__ldg(reaction + k * 8 + q));
                r = r + (entry + derivative * spread(real(0.5))) * at_corner;
                entry = entry + derivative;
            } else {
                r = r + entry * at_corner;
            }
            if (WITH_MATRIX && !fixed[node]) {
                Pack& total = entries[group][slots[p * 8 + b]][lane];
                total = total + entry;
            }
        }
    }
    if (!inside) return;
    store(residual + i * n_samples + s, r);
    if (WITH_MATRIX) {
        const int64 row = indptr[i];
        const int length = (int)(indptr[i + 1] - indptr[i]);
        const int diagonal = held ? slots[begin * 8 + corners[begin]] : -1;
        for (int k = 0; k < length; ++k)
            store(values + (row + k) * n_samples + s, k == diagonal ? spread(1) : entries[group][k][lane]);
    }
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
