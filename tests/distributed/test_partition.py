"""Domains depend on the problem alone; ranks hold consecutive ones; vectors go to the ranks and back."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import ensemble as en
from ensemble.distributed import Partition, graph_partition, serial, transfers
from ensemble.distributed.bisection import coordinate_order
from ensemble.distributed.domains import default_domains, domain_offsets, rank_domains
from tests.distributed.boxes import box, halo_rows, random_graph
from tests.distributed.fakes import FakeCommunicator, every_rank


@given(st.integers(0, 10**12), st.integers(1, 400))
def test_domains_have_blocks_of_512_rows_and_nearly_equal_sizes(n, domains):
    offsets = domain_offsets(n, domains)
    sizes = np.diff(offsets)
    assert offsets.dtype == np.int64 and offsets[0] == 0 and offsets[-1] == n and sizes.size == domains
    if n >= 512 * domains:
        assert np.all(sizes[:-1] % 512 == 0) and np.ptp(sizes) <= 512 and sizes.min() > 0
    else:
        assert np.ptp(sizes) <= 1


@pytest.mark.parametrize(
    "n, domains",
    [(0, 1), (1, 1), (2896, 1), (2897, 2), (5792, 2), (5793, 4), (274_625, 128), (10**12, 2**29)],
)
def test_the_default_is_the_power_of_two_nearest_to_2048_rows(n, domains):
    assert default_domains(n) == domains


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60), st.integers(1, 70))
def test_each_rank_has_the_domains_with_their_middle_in_its_share(sizes, ranks):
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    bounds = rank_domains(offsets, ranks)
    assert bounds.size == ranks + 1 and bounds[0] == 0 and bounds[-1] == len(sizes) and np.all(np.diff(bounds) >= 0)
    if sum(sizes):
        middles = (offsets[:-1] + offsets[1:]).tolist()
        chosen = [min(middle * ranks // (2 * sum(sizes)), ranks - 1) for middle in middles]
        assert chosen == np.repeat(np.arange(ranks), np.diff(bounds)).tolist()
        loads = np.diff(offsets[bounds])
        assert loads.max() <= sum(sizes) / ranks + max(sizes)


@pytest.mark.parametrize("ranks", range(1, 12))
def test_ranks_of_equal_domains_have_the_least_largest_load(ranks):
    for domains in range(1, 30):
        loads = np.diff(rank_domains(np.arange(domains + 1) * 512, ranks))
        assert loads.max() == -(-domains // ranks), domains


def test_shares_of_very_many_rows_are_exact():
    bounds = rank_domains(domain_offsets(2**61, 1000), 999)
    assert bounds.tolist() == [-(-(2000 * r - 999) // 1998) if r else 0 for r in range(999)] + [1000]


def test_global_numbers_have_64_bits():
    n = 10**11 + 7
    last = Partition(n, FakeCommunicator(2**20 - 1, 2**20), domains=2**20)
    assert last.n_local == n - last.first and last.first > 2**36 and last.rows is not None
    assert last.number_of([n - 1])[0] == n - 1 and last.owner_of(n - 1) == 2**20 - 1


CUTS = {
    "rows": {},
    "coordinates": {"coordinates": np.random.default_rng(51713).random((3000, 2))},
    "graph": {"graph": random_graph(3000, 4000, 92011)},
}


@pytest.fixture(params=["rows", "coordinates", "graph", "graph without pymetis"])
def cut(request, monkeypatch):
    """The method and its argument; both ways of cutting a graph."""
    name, _, without = request.param.partition(" ")
    if without:
        monkeypatch.setattr(graph_partition.importlib.util, "find_spec", lambda name: None)
    elif name == "graph":
        pytest.importorskip("pymetis")
    return name, CUTS[name]


@pytest.mark.parametrize("size", [1, 2, 3, 8, 40])
def test_ranks_hold_consecutive_domains_of_one_cut(cut, size):
    method, argument = cut
    alone = Partition(3000, serial(), domains=13, **argument)
    ranks = [Partition(3000, comm, domains=13, **argument) for comm in broadcasting(size, alone)]
    rows = np.concatenate([each.rows for each in ranks])
    assert np.array_equal(rows, alone.rows) and np.array_equal(np.sort(rows), np.arange(3000))
    assert [each.n_local for each in ranks] == np.diff(ranks[0].offsets).tolist()
    for rank, each in enumerate(ranks):
        assert np.array_equal(each.domain_offsets, alone.domain_offsets) and each.method == method
        assert each.first == each.offsets[rank] and each.rows.dtype == each.offsets.dtype == np.int64
        own = each.domain_offsets[each.rank_domains[rank] : each.rank_domains[rank + 1] + 1]
        assert np.array_equal(each.local_domain_offsets, own - each.first)
        numbers = each.number_of(each.rows)
        assert np.array_equal(numbers, np.arange(each.first, each.first + each.n_local))
        assert np.all(each.owner_of(numbers) == rank) and np.array_equal(each.caller_of(numbers), each.rows)


class Broadcasting(FakeCommunicator):
    """A rank to which rank 0 sends the cut that it worked out alone."""

    def __init__(self, rank, size, order, offsets):
        super().__init__(rank, size)
        self.order, self.offsets = order, offsets

    def bcast(self, obj, root=0):
        return self.offsets if self.rank else obj

    def Bcast(self, buf, root=0):
        if self.rank:
            buf[:] = self.order


def broadcasting(size, alone):
    order = alone.caller_of(np.arange(alone.n))
    return [Broadcasting(rank, size, order, alone.domain_offsets) for rank in range(size)]


def test_rows_within_a_domain_keep_the_callers_order(cut):
    _, argument = cut
    partition = Partition(3000, serial(), domains=13, **argument)
    for low, high in zip(partition.domain_offsets[:-1], partition.domain_offsets[1:], strict=True):
        assert np.all(np.diff(partition.rows[low:high]) > 0)


def test_sizes_of_domains_do_not_depend_on_the_method(cut):
    method, argument = cut
    partition = Partition(3000, serial(), domains=4, **argument)
    if method == "graph" and graph_partition.importlib.util.find_spec("pymetis"):
        assert partition.domains == 4 and np.diff(partition.domain_offsets).max() < 1.1 * 750
    else:
        assert np.array_equal(partition.domain_offsets, domain_offsets(3000, 4))


def test_auto_takes_coordinates_before_the_graph_before_rows():
    both = {**CUTS["coordinates"], **CUTS["graph"]}
    chosen = [Partition(3000, serial(), **given).method for given in (both, CUTS["graph"], {})]
    assert chosen == ["coordinates", "graph", "rows"]
    assert Partition(3000, serial(), method="graph", **both).method == "graph"
    assert Partition(3000, serial(), method="rows", coordinates="unused").method == "rows"


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("domains", [None, 1, 2, 7])
def test_few_rows_have_at_most_as_many_domains(cut, n, domains):
    method, _ = cut
    argument = {"coordinates": np.zeros((n, 2)), "graph": sp.csr_array((n, n))}.get(method)
    partition = Partition(n, serial(), domains, **({} if argument is None else {method: argument}))
    assert 1 <= partition.domains <= max(n, 1) and partition.domain_offsets[-1] == n
    assert np.array_equal(np.sort(partition.rows), np.arange(n))
    assert np.array_equal(partition.gather(partition.scatter(np.arange(n))), np.arange(n))


@given(st.integers(1, 300), st.integers(1, 12), st.integers(1, 3), st.integers(0, 2**31))
def test_coordinates_are_cut_by_sorting(n, domains, axes, seed):
    """The same recursion with a stable sort; few different coordinates, so that most of them are equal."""
    rng = np.random.default_rng(seed)
    coordinates = rng.integers(0, 4, (n, axes)).astype(float)
    offsets = domain_offsets(n, min(domains, n))

    def sorted_parts(rows, begin, end, signs):
        if end - begin == 1:
            return [np.sort(rows)]
        few = end - begin
        middle = begin + (few // 2 if few < 4 else min(range(2, few, 2), key=lambda k: (abs(2 * k - few), -k)))
        axis = int(np.argmax(np.ptp(coordinates[rows], axis=0))) if rows.size else 0
        rows = rows[np.lexsort((rows, signs[axis] * coordinates[rows, axis]))]
        k = offsets[middle] - offsets[begin]
        others = [sign if a == axis else -sign for a, sign in enumerate(signs)]
        return [*sorted_parts(rows[:k], begin, middle, signs), *sorted_parts(rows[k:], middle, end, others)]

    expected = np.concatenate(sorted_parts(np.arange(n), 0, offsets.size - 1, [1] * axes))
    for found, wanted in zip(coordinate_order(coordinates, offsets), (expected, offsets), strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1.5e308])
def test_the_unit_of_coordinates_changes_nothing(scale):
    coordinates = np.random.default_rng(60107).choice([-1.0, -0.5, 0.25, 1.0], (200, 3))
    expected, scaled = (coordinate_order(k * coordinates[:, :1], domain_offsets(200, 8))[0] for k in (1.0, scale))
    assert np.array_equal(scaled, expected)


def searched(graph, offsets):
    return graph_partition.breadth_first_order(graph.indptr.astype(np.int64), graph.indices.astype(np.int64), offsets)


def test_parts_that_are_not_connected_are_cut_once_at_most():
    """Four paths of 50 rows whose numbers are mixed, into eight domains of 25."""
    rng = np.random.default_rng(33311)
    name = rng.permutation(200)
    ends = np.array([(k, k + 1) for k in range(199) if k % 50 != 49])
    half = sp.coo_array((np.ones(len(ends)), (name[ends[:, 0]], name[ends[:, 1]])), shape=(200, 200))
    order = searched(sp.csr_array(half + half.T), domain_offsets(200, 8))
    path_of = np.empty(200, int)
    path_of[name] = np.arange(200) // 50
    assert all(np.unique(path_of[order[25 * d : 25 * d + 25]]).size == 1 for d in range(8))


@pytest.mark.parametrize("domains", [4, 8])
def test_domains_of_a_search_have_a_halo_below_2_2_times_that_of_coordinates(domains):
    coordinates, graph = box(12)
    offsets = domain_offsets(graph.shape[0], domains)
    halos = []
    for order in (coordinate_order(coordinates, offsets)[0], searched(graph, offsets)):
        owner = np.empty(order.size, np.int64)
        owner[order] = np.repeat(np.arange(domains), np.diff(offsets))
        halos.append(halo_rows(graph, owner))
    assert halos[1] < 2.2 * halos[0]


GRAPHS = {
    "no entries": sp.csr_array((300, 300)),
    "diagonal": sp.eye_array(300, format="csr"),
    "path": sp.diags_array([np.ones(299)] * 2, offsets=[-1, 1], shape=(300, 300)),
    "star": sp.csr_array(sp.coo_array((np.ones(299), (np.zeros(299, int), np.arange(1, 300))), shape=(300, 300))),
    "all entries": sp.csr_array(np.ones((120, 120))),
}


@pytest.mark.parametrize("domains", [2, 7, 60, 119])
@pytest.mark.parametrize("name", GRAPHS)
def test_extreme_graphs_have_as_many_domains_as_are_needed(name, domains):
    """METIS leaves domains empty where there are few rows for each."""
    n = GRAPHS[name].shape[0]
    partition = Partition(n, serial(), domains=domains, graph=GRAPHS[name])
    assert partition.domains == domains and np.diff(partition.domain_offsets).min() > 0
    assert np.array_equal(np.sort(partition.rows), np.arange(n))


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_consecutive_domains_of_metis_are_compact(ranks):
    """The halo of ranks with several domains each, beside that of one domain for each rank."""
    pytest.importorskip("pymetis")
    _, graph = box(20)
    halos = []
    for domains in (ranks, 32):
        partition = Partition(graph.shape[0], serial(), domains=domains, graph=graph)
        owner = np.empty(partition.n, np.int64)
        bounds = partition.domain_offsets[rank_domains(partition.domain_offsets, ranks)]
        owner[partition.rows] = np.repeat(np.arange(ranks), np.diff(bounds))
        halos.append(halo_rows(graph, owner))
    assert halos[1] < 1.8 * halos[0]


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "arrays", "unsorted", "CrsGraph", "CrsMatrix", "one triangle"])
def test_a_graph_has_many_forms(form):
    graph = random_graph(500, 900, 70001)
    other = {
        "csr": lambda: graph,
        "csc": lambda: sp.csc_matrix(graph),
        "coo": lambda: sp.coo_array(graph),
        "arrays": lambda: (graph.indptr.tolist(), graph.indices.tolist()),
        "unsorted": lambda: reversed_rows(graph),
        "CrsGraph": lambda: en.linalg.CrsMatrix.from_scipy(graph).graph,
        "CrsMatrix": lambda: en.linalg.CrsMatrix.from_scipy(graph),
        "one triangle": lambda: sp.triu(graph, format="csr"),
    }[form]()
    expected = Partition(500, serial(), domains=7, graph=graph)
    found = Partition(500, serial(), domains=7, graph=other)
    assert np.array_equal(found.rows, expected.rows) and np.array_equal(found.offsets, expected.offsets)


def reversed_rows(graph):
    """(indptr, indices) with the columns of each row in descending order, the first one twice."""
    rows = [graph.indices[a:b][::-1] for a, b in zip(graph.indptr[:-1], graph.indptr[1:], strict=True)]
    rows = [np.concatenate([row, row[:1]]) for row in rows]
    return np.cumsum([0, *(row.size for row in rows)]), np.concatenate(rows)


VECTORS = {
    "float64": lambda rng: rng.random(3000),
    "float32 columns": lambda rng: rng.random((3000, 2, 3)).astype(np.float32),
    "complex, strided": lambda rng: (rng.random((3000, 4)) + 1j)[:, ::2],
    "int, reversed": lambda rng: np.arange(3000)[::-1],
    "big-endian": lambda rng: np.arange(3000, dtype=">i4"),
    "Fortran order": lambda rng: np.asfortranarray(rng.random((3000, 5))),
    "float16": lambda rng: rng.random(3000).astype(np.float16),
    "bool": lambda rng: rng.random(3000) < 0.5,
    "no columns": lambda rng: np.zeros((3000, 0)),
    "list": lambda rng: list(range(3000)),
    "ensemble": lambda rng: en.Ensemble(rng.random((3000, 5)), en.SampleSet(weights=[1.0, 2.0, 3.0, 4.0, 5.0])),
    "ensemble of one": lambda rng: en.Ensemble(rng.random((3000, 1))),
    "ensemble of columns, strided": lambda rng: en.Ensemble(rng.random((3000, 2, 16))[..., ::4].astype(np.float32)),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_come_back_as_they_were(cut, name, rng, monkeypatch):
    _, argument = cut
    x = VECTORS[name](rng)
    monkeypatch.setattr(transfers, "ROUND_BYTES", 10_000)
    partition = Partition(3000, serial(), domains=13, **argument)
    local = partition.scatter(x)
    check_same(partition.gather(local), x)
    values, whole = ((v.samples if isinstance(v, en.Ensemble) else np.asarray(v)) for v in (local, x))
    assert np.array_equal(values, whole[partition.rows]) and not np.shares_memory(values, whole)


def check_same(found, x):
    assert isinstance(found, en.Ensemble) == isinstance(x, en.Ensemble)
    if isinstance(x, en.Ensemble):
        assert found.sample_set == x.sample_set
        found, x = found.samples, x.samples
    x = np.asarray(x)
    assert found.dtype == x.dtype and found.shape == x.shape and found.tobytes() == x.tobytes()


BAD = {
    "n a fraction": (lambda: Partition(2.5, serial()), "n must be an integer of at least 0; got 2.5"),
    "n negative": (lambda: Partition(-1, serial()), "n must be an integer of at least 0; got -1"),
    "n a bool": (lambda: Partition(True, serial()), "n must be an integer of at least 0; got True"),
    "n too large": (lambda: Partition(2**63, serial()), "n must be below"),
    "domains": (lambda: Partition(5, serial(), 0), "domains must be an integer of at least 1; got 0"),
    "negative": (lambda: Partition(5, serial(), -3), "domains must be an integer of at least 1; got -3"),
    "method": (lambda: Partition(5, serial(), method="metis"), "method must be one of 'auto', 'rows', 'graph', "),
    "no graph": (lambda: Partition(5, serial(), method="graph"), "graph must be given for method='graph'; got None"),
    "no coordinates": (lambda: Partition(5, serial(), method="coordinates"), "coordinates must be given for method="),
    "comm": (lambda: Partition(5, None), "comm must be a communicator of mpi4py or distributed.serial.*; got None"),
    "NaN": (lambda: Partition(2, serial(), coordinates=[[0.0], [np.nan]]), "coordinates must be finite; got 1 rows"),
    "infinite": (lambda: Partition(2, serial(), coordinates=[[np.inf], [0]]), "coordinates must be finite; got 1 "),
    "few": (lambda: Partition(3, serial(), coordinates=np.zeros((2, 2))), r"coordinates must have shape \(n, d\) with"),
    "vector": (lambda: Partition(2, serial(), coordinates=[0.0, 1.0]), r"coordinates must have shape \(n, d\)"),
    "no axis": (lambda: Partition(2, serial(), coordinates=np.zeros((2, 0))), r"coordinates must have shape \(n, d\)"),
    "complex": (lambda: Partition(1, serial(), coordinates=[[1j]]), "coordinates must be real numbers"),
    "masked": (lambda: Partition(1, serial(), coordinates=np.ma.array([[1.0]], mask=True)), "no masked entries"),
    "size": (
        lambda: Partition(3, serial(), graph=sp.eye_array(4)),
        r"graph must have shape \(3, 3\); got shape",
    ),
    "graph": (
        lambda: Partition(3, serial(), graph=np.eye(3)),
        "graph must be a CrsGraph, a sparse matrix of SciPy or ",
    ),
    "indptr": (lambda: Partition(3, serial(), graph=([0, 1], [0])), "graph must have 4 entries in indptr; got 2"),
    "column": (lambda: Partition(2, serial(), graph=([0, 1, 2], [0, 2])), "graph must have indices from 0 to 1"),
    "falling": (lambda: Partition(2, serial(), graph=([0, 2, 1], [0, 1])), "graph must have 3 ascending indptr"),
    "floats": (lambda: Partition(2, serial(), graph=([0, 1, 2], [0.0, 1.0])), "graph must be .indptr, indices., two"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_argument_is_named(name):
    make, match = BAD[name]
    with pytest.raises((TypeError, ValueError), match=f"Partition: .*{match}"):
        make()


BAD_VECTORS = {
    "rows": (lambda p: p.scatter(np.zeros(4)), r"scatter: x must have 5 rows on root; got shape \(4,\)"),
    "ensemble": (lambda p: p.scatter(en.Ensemble(np.zeros((4, 2)))), r"scatter: x must have 5 rows on root; got shape"),
    "none": (lambda p: p.scatter(None), "scatter: x must be an array of NumPy or an Ensemble of one.*; got None"),
    "text": (lambda p: p.scatter(np.array(["a"] * 5)), "scatter: x must hold numbers; got dtype <U1"),
    "number": (lambda p: p.scatter(np.float64(3.0)), "scatter: x must be an array of NumPy or an Ensemble of one"),
    "no axes": (lambda p: p.scatter(np.array(3.0)), "scatter: x must be an array of NumPy or an Ensemble of one"),
    "masked": (lambda p: p.scatter(np.ma.array(np.zeros(5), mask=True)), "scatter: x must have no masked entries"),
    "root": (lambda p: p.scatter(np.zeros(5), root=1), r"scatter: root must be below the number of ranks \(1\); got 1"),
    "fraction": (lambda p: p.gather(np.zeros(5), root=0.5), "gather: root must be an integer of at least 0; got 0.5"),
    "local rows": (lambda p: p.gather(np.zeros(6)), r"gather: x must have the 5 rows of its rank; got shape \(6,\)"),
    "gather none": (lambda p: p.gather(None), "gather: x must be an array of NumPy"),
    "number_of": (lambda p: p.number_of([0, 5]), r"number_of: callers must be from 0 to 4; got 0 \.\.\. 5"),
    "caller_of": (lambda p: p.caller_of([-1]), "caller_of: numbers must be from 0 to 4; got -1"),
    "owner_of": (lambda p: p.owner_of([0.5]), "owner_of: numbers must be integers; got dtype float64"),
}


@pytest.mark.parametrize("name", BAD_VECTORS)
def test_a_wrong_vector_is_named(name):
    use, match = BAD_VECTORS[name]
    with pytest.raises((TypeError, ValueError), match=f"Partition.{match}"):
        use(Partition(5, serial()))


def test_arrays_of_another_library_are_refused():
    strict = pytest.importorskip("array_api_strict")
    with pytest.raises(TypeError, match=r"scatter: x must be an array of NumPy or .* Copy it to the host first"):
        Partition(5, serial()).scatter(strict.zeros(5))


def test_one_rank_or_all_give_the_coordinates():
    comms = every_rank(3)
    assert all(Partition(40, comm, coordinates=np.zeros((40, 1))).method == "coordinates" for comm in comms)


@pytest.mark.slow
@pytest.mark.parametrize("parts, rows", [(8, 26_600), (32, 65_000)])
def test_the_halo_of_a_box_is_that_of_coordinate_bisection(parts, rows):
    """64^3 cells; METIS has 29,600 and 79,500 rows, slabs have 60,000 and 266,000. Also with the default domains."""
    coordinates, graph = box(64)
    n = coordinates.shape[0]
    for domains in (parts, None):
        alone = Partition(n, FakeCommunicator(0, parts), domains=domains, coordinates=coordinates)
        owner = np.empty(n, np.int64)
        owner[alone.caller_of(np.arange(n))] = np.repeat(np.arange(parts), np.diff(alone.offsets))
        assert halo_rows(graph, owner) < 1.1 * rows
