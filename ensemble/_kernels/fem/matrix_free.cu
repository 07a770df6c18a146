// The diffusion operator on boxes, from the coefficient at the Gauss points; what it computes stands in matrix_free.py.
//
// A block takes the cells around SIDE x SIDE columns of nodes and goes up through `depth` layers of nodes. Each group of
// LANES threads carries one column of cells: what its cell gives to its corners passes through shared memory, layer by
// layer, and the group of every node adds up its share, its cells in ascending order as on the CPU. The cells of the
// block's rim are computed by the neighbours too; their coefficients come from the caches then.

#define SIDE 7
#define CELLS ((SIDE + 1) * (SIDE + 1))

__device__ inline void mix(Pack& a, Pack& c, real g)
{
    const Pack shift = spread(g) * (c - a);
    a = a + shift;
    c = c - shift;
}

// Interpolate the four slopes of one axis, multiply by conductance, and bring the fluxes back; `dab` is (a, b).
__device__ inline void fluxes(Pack& d00, Pack& d10, Pack& d01, Pack& d11, const Pack& k00, const Pack& k10,
                              const Pack& k01, const Pack& k11, real factor, real g)
{
    mix(d00, d10, g), mix(d01, d11, g), mix(d00, d01, g), mix(d10, d11, g);
    d00 = (spread(factor) * k00) * d00, d10 = (spread(factor) * k10) * d10;
    d01 = (spread(factor) * k01) * d01, d11 = (spread(factor) * k11) * d11;
    mix(d00, d01, g), mix(d10, d11, g), mix(d00, d10, g), mix(d01, d11, g);
}

__device__ inline Pack corner(const real* __restrict__ x, const bool* __restrict__ fixed, int64 node, int s,
                              int n_samples)
{
    return fixed[node] ? spread(0) : load_shared(x + node * n_samples + s);
}

__global__ void __launch_bounds__(CELLS * LANES)
    hex_product(const real* __restrict__ factors, const bool* __restrict__ fixed, const real* __restrict__ kappa,
                const real* __restrict__ x, real* y, real g, int nx, int ny, int nz, int depth, int n_samples)
{
    __shared__ Pack parts[4][CELLS][LANES];  // what each cell gives to its corners of one layer
    const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int s = (blockIdx.x * LANES + lane) * VECTOR, tiles_x = (nx + SIDE) / SIDE;
    const int i = (int)(blockIdx.y % tiles_x) * SIDE + group % (SIDE + 1) - 1;
    const int j = (int)(blockIdx.y / tiles_x) * SIDE + group / (SIDE + 1) - 1;
    const int low = blockIdx.z * depth, high = low + depth < nz + 1 ? low + depth : nz + 1;
    const int64 line = nx + 1, layer = line * (ny + 1);
    const bool sampled = s < n_samples;
    const bool has_cell = sampled && i >= 0 && i < nx && j >= 0 && j < ny;
    // The node that this group adds up is the corner 3 (seen from below) of its cell: (i + 1, j + 1).
    const bool has_node = sampled && group % (SIDE + 1) < SIDE && group / (SIDE + 1) < SIDE && i < nx && j < ny;
    const int64 column = i + 1 + line * (j + 1);
    Pack u0 = spread(0), u1 = u0, u2 = u0, u3 = u0, total = u0;
    const int start = low > 0 ? low - 1 : 0;
    if (has_cell) {
        const int64 n0 = i + line * j + layer * start;
        u0 = corner(x, fixed, n0, s, n_samples), u1 = corner(x, fixed, n0 + 1, s, n_samples);
        u2 = corner(x, fixed, n0 + line, s, n_samples), u3 = corner(x, fixed, n0 + line + 1, s, n_samples);
    }
    // Cell layer k lies between the node layers k and k + 1; beyond the last one nothing is added.
    for (int k = start; k < high; ++k) {
        Pack below[4], above[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) below[c] = above[c] = spread(0);
        if (has_cell && k < nz) {
            const int64 cell = i + nx * (j + (int64)ny * k), n4 = i + line * j + layer * (k + 1);
            Pack kq[8];
#pragma unroll
            for (int q = 0; q < 8; ++q) kq[q] = load_once(kappa + (cell * 8 + q) * n_samples + s);
            const Pack u4 = corner(x, fixed, n4, s, n_samples), u5 = corner(x, fixed, n4 + 1, s, n_samples);
            const Pack u6 = corner(x, fixed, n4 + line, s, n_samples);
            const Pack u7 = corner(x, fixed, n4 + line + 1, s, n_samples);
            const real* f = factors + cell * 3;
            Pack a = u1 - u0, b = u3 - u2, c = u5 - u4, d = u7 - u6;
            fluxes(a, b, c, d, kq[0] + kq[1], kq[2] + kq[3], kq[4] + kq[5], kq[6] + kq[7], __ldg(f), g);
            below[0] = spread(0) - a, below[1] = a, below[2] = spread(0) - b, below[3] = b;
            above[0] = spread(0) - c, above[1] = c, above[2] = spread(0) - d, above[3] = d;
            a = u2 - u0, b = u3 - u1, c = u6 - u4, d = u7 - u5;
            fluxes(a, b, c, d, kq[0] + kq[2], kq[1] + kq[3], kq[4] + kq[6], kq[5] + kq[7], __ldg(f + 1), g);
            below[0] = below[0] - a, below[1] = below[1] - b, below[2] = below[2] + a, below[3] = below[3] + b;
            above[0] = above[0] - c, above[1] = above[1] - d, above[2] = above[2] + c, above[3] = above[3] + d;
            a = u4 - u0, b = u5 - u1, c = u6 - u2, d = u7 - u3;
            fluxes(a, b, c, d, kq[0] + kq[4], kq[1] + kq[5], kq[2] + kq[6], kq[3] + kq[7], __ldg(f + 2), g);
            below[0] = below[0] - a, below[1] = below[1] - b, below[2] = below[2] - c, below[3] = below[3] - d;
            above[0] = above[0] + a, above[1] = above[1] + b, above[2] = above[2] + c, above[3] = above[3] + d;
            u0 = u4, u1 = u5, u2 = u6, u3 = u7;
        }
        // A node is corner 3 of its first cell in the layer, then 2, 1 and 0.
        if (k >= low) {
            __syncthreads();
#pragma unroll
            for (int c = 0; c < 4; ++c) parts[c][group][lane] = below[c];
            __syncthreads();
            if (has_node) {
                total = total + parts[3][group][lane];
                total = total + parts[2][group + 1][lane];
                total = total + parts[1][group + SIDE + 1][lane];
                total = total + parts[0][group + SIDE + 2][lane];
                const int64 here = (column + layer * k) * n_samples + s;
                store(y + here, fixed[column + layer * k] ? load(x + here) : total);
            }
        }
        if (k + 1 < high) {
            __syncthreads();
#pragma unroll
            for (int c = 0; c < 4; ++c) parts[c][group][lane] = above[c];
            __syncthreads();
            total = spread(0);
            if (has_node) {
                total = total + parts[3][group][lane];
                total = total + parts[2][group + 1][lane];
                total = total + parts[1][group + SIDE + 1][lane];
                total = total + parts[0][group + SIDE + 2][lane];
            }
        }
    }
}
