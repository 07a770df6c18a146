// Numeric phases of products of sparse matrices: every entry of the result gathers its own list of pairs of factors.

// `total` plus a[left[q]] * b[right[q]] over q from `begin` to `end`.
template <bool SHARED_A, bool SHARED_B>
__device__ inline Pack sum_of_pairs(int64 begin, int64 end, const offset* __restrict__ left,
                                    const offset* __restrict__ right, const real* __restrict__ a,
                                    const real* __restrict__ b, Pack total, int s, int n_samples)
{
#pragma unroll UNROLL
    for (int64 q = begin; q < end; ++q) {
        const int64 i = __ldg(left + q), j = __ldg(right + q);
        const Pack x = SHARED_A ? spread(read_only(a + i)) : load_shared(a + i * n_samples + s);
        const Pack y = SHARED_B ? spread(read_only(b + j)) : load_shared(b + j * n_samples + s);
        total = total + x * y;
    }
    return total;
}

template <bool SHARED_A, bool SHARED_B>
__global__ void __launch_bounds__(THREADS)
    sum_products(const int64* __restrict__ starts, const offset* __restrict__ left, const offset* __restrict__ right,
                 const real* __restrict__ a, const real* __restrict__ b, real* out, int64 n_rows, int n_samples)
{
    const int64 target = row_here();
    const int s = sample_here();
    if (target >= n_rows || s >= n_samples) return;
    store(out + target * n_samples + s, sum_of_pairs<SHARED_A, SHARED_B>(starts[target], starts[target + 1], left,
                                                                         right, a, b, spread(0), s, n_samples));
}

// The share of P^T (A P) that comes from one slab of A P, which begins with entry `first`: added to `out`, or, where
// `fresh`, put there.
template <bool SHARED>
__global__ void __launch_bounds__(THREADS)
    restrict_slab(const int64* __restrict__ begins, const int64* __restrict__ ends, const offset* __restrict__ left,
                  const offset* __restrict__ right, const real* __restrict__ p, const real* __restrict__ slab,
                  real* out, int64 first, int fresh, int64 n_rows, int n_samples)
{
    const int64 target = row_here();
    const int s = sample_here();
    if (target >= n_rows || s >= n_samples) return;
    const int64 begin = begins[target], end = ends[target];
    if (begin == end && !fresh) return;
    real* here = out + target * n_samples + s;
    const Pack total = fresh ? spread(0) : load(here);
    store(here, sum_of_pairs<SHARED, false>(begin, end, left, right, p, slab - first * n_samples, total, s, n_samples));
}

// P = T - omega D^-1 A T: `rows` is the row of each entry of P, `own` its entry in T or -1.
__global__ void __launch_bounds__(THREADS)
    smooth_prolongator(const int64* __restrict__ starts, const offset* __restrict__ left,
                       const offset* __restrict__ right, const int* __restrict__ rows, const offset* __restrict__ own,
                       const real* __restrict__ values, const real* __restrict__ tentative,
                       const real* __restrict__ dinv, const real* __restrict__ omega, real* p, int64 n_rows,
                       int n_samples)
{
    const int64 target = row_here();
    const int s = sample_here();
    if (target >= n_rows || s >= n_samples) return;
    Pack total = sum_of_pairs<false, true>(starts[target], starts[target + 1], left, right, values, tentative,
                                           spread(0), s, n_samples);
    const Pack factor = load_shared(omega + s) * load_shared(dinv + (int64)rows[target] * n_samples + s);
    total = (spread(0) - factor) * total;
    if (own[target] >= 0) total = total + spread(tentative[own[target]]);
    store(p + target * n_samples + s, total);
}

// --- the lists of pairs: one thread a row of the product, in the order of the rows' entries
__device__ inline int64 place_of(const int* __restrict__ indices, int64 begin, int64 end, int column)
{
    while (begin < end) {
        const int64 middle = (begin + end) / 2;
        if (indices[middle] < column)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

__global__ void __launch_bounds__(THREADS)
    count_pairs(const offset* __restrict__ indptr_a, const int* __restrict__ indices_a,
                const offset* __restrict__ indptr_b, const int* __restrict__ indices_b,
                const offset* __restrict__ indptr_c, const int* __restrict__ indices_c, int64* counts, int64 n_rows)
{
    const int64 i = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n_rows || indptr_c[i] == indptr_c[i + 1]) return;
    for (offset k = indptr_a[i]; k < indptr_a[i + 1]; ++k)
        for (offset m = indptr_b[indices_a[k]]; m < indptr_b[indices_a[k] + 1]; ++m)
            counts[place_of(indices_c, indptr_c[i], indptr_c[i + 1], indices_b[m])] += 1;
}

// `next` holds where the next pair of each entry goes; `entries` renames the entries of A, where it is given.
__global__ void __launch_bounds__(THREADS)
    fill_pairs(const offset* __restrict__ indptr_a, const int* __restrict__ indices_a,
               const offset* __restrict__ indptr_b, const int* __restrict__ indices_b,
               const offset* __restrict__ indptr_c, const int* __restrict__ indices_c,
               const offset* __restrict__ entries, int64* next, offset* left, offset* right, int64 n_rows)
{
    const int64 i = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n_rows || indptr_c[i] == indptr_c[i + 1]) return;
    for (offset k = indptr_a[i]; k < indptr_a[i + 1]; ++k) {
        for (offset m = indptr_b[indices_a[k]]; m < indptr_b[indices_a[k] + 1]; ++m) {
            const int64 place = next[place_of(indices_c, indptr_c[i], indptr_c[i + 1], indices_b[m])]++;
            left[place] = entries ? entries[k] : k;
            right[place] = m;
        }
    }
}

// For each entry of P its row, and its entry in T, whose entries are all entries of P, or -1.
__global__ void __launch_bounds__(THREADS)
    own_entries(const offset* __restrict__ indptr_p, const int* __restrict__ indices_p,
                const offset* __restrict__ indptr_t, const int* __restrict__ indices_t, int* rows, offset* own,
                int64 n_rows)
{
    const int64 i = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n_rows) return;
    for (offset k = indptr_p[i]; k < indptr_p[i + 1]; ++k) rows[k] = i, own[k] = -1;
    for (offset m = indptr_t[i]; m < indptr_t[i + 1]; ++m)
        own[place_of(indices_p, indptr_p[i], indptr_p[i + 1], indices_t[m])] = m;
}

// cuts[e, target]: the first of the target's pairs whose right factor is not before `edges[e]`; they ascend.
__global__ void __launch_bounds__(THREADS)
    cut_pairs(const int64* __restrict__ starts, const offset* __restrict__ right, const int64* __restrict__ edges,
              int n_edges, int64* cuts, int64 n_targets)
{
    const int64 target = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (target >= n_targets) return;
    for (int e = 0; e < n_edges; ++e) {
        int64 begin = starts[target], end = starts[target + 1];
        while (begin < end) {
            const int64 middle = (begin + end) / 2;
            if (right[middle] < edges[e])
                begin = middle + 1;
            else
                end = middle;
        }
        cuts[e * n_targets + target] = begin;
    }
}
