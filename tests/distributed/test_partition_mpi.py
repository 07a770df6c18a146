"""Partitions by MPI: the same on any number of ranks, and errors on all ranks alike."""

import numpy as np
import pytest

import ensemble as en
from ensemble.distributed import Partition, partition, serial, transfers
from ensemble.distributed.agreement import agreement
from tests.distributed.boxes import random_graph

N = 3000
COORDINATES = np.random.default_rng(51713).random((N, 3))
GRAPH = random_graph(N, 5000, 92011)


def vectors():
    rng = np.random.default_rng(77003)
    weights = np.arange(1.0, 5.0)
    return [
        rng.random(N),
        np.asfortranarray(rng.random((N, 2, 3)).astype(np.float32))[:, ::-1],
        rng.random(N) + 1j,
        np.arange(N)[::-1],
        en.Ensemble(rng.random((N, 4)), en.SampleSet(weights=weights)),
        en.Ensemble(rng.random((N, 2, 1))),
    ]


def bytes_of(x):
    if isinstance(x, en.Ensemble):
        return x.samples.dtype.str, x.samples.shape, x.samples.tobytes(), x.sample_set
    return x.dtype.str, x.shape, x.tobytes()


def cuts(comm):
    """Each way of giving the arguments: on all ranks, and on rank 0 alone."""
    alone = comm.rank == 0
    yield Partition(N, comm, domains=11)
    for given in (True, alone):
        yield Partition(N, comm, domains=11, coordinates=COORDINATES if given else None)
        yield Partition(N, comm, graph=GRAPH if given else None, domains=7)


def round_trips(comm):
    """What each cut gives this rank, and the vectors that root has after a round trip in several messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfers, "ROUND_BYTES", 20_000)
        patch.setattr(partition, "PIECE", 700)
        return _round_trips(comm)


def _round_trips(comm):
    found = []
    for each in cuts(comm):
        root = comm.size - 1
        back = [each.gather(each.scatter(x if comm.rank == root else None, root), root) for x in vectors()]
        assert (comm.rank == root) == all(x is not None for x in back)
        local = each.scatter(np.arange(N) if comm.rank == 0 else "unused")
        assert np.array_equal(local, each.rows)
        found.append(([bytes_of(x) for x in back if x is not None], each.rows, each.domain_offsets, each.offsets))
    return found


@pytest.mark.parametrize(
    "ranks", [2, 3, pytest.param(5, marks=pytest.mark.slow), pytest.param(17, marks=pytest.mark.slow)]
)
def test_ranks_have_the_cut_of_one_rank_and_vectors_come_back(mpi, ranks):
    found = mpi(round_trips, ranks)
    expected = [bytes_of(x) for x in vectors()]
    for place, alone in enumerate(cuts(serial())):
        parts = [of_rank[place] for of_rank in found]
        assert np.array_equal(np.concatenate([rows for _, rows, _, _ in parts]), alone.rows)
        assert all(np.array_equal(offsets, alone.domain_offsets) for _, _, offsets, _ in parts)
        assert all(rows.size == offsets[r + 1] - offsets[r] for r, (_, rows, _, offsets) in enumerate(parts))
        assert parts[-1][0] == expected


def random_problem(seed):
    """n and the arguments of a partition; graphs and points, few and many domains."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([0, 1, 7, 200, 2600]))
    domains = [None, 1, int(rng.integers(1, 40))][int(rng.integers(3))]
    points = rng.integers(0, 6, (n, 2)).astype(float)
    graph = random_graph(n, 2 * n, seed) if n else None
    return n, [{}, {"coordinates": points}, {"graph": graph}][int(rng.integers(3))] | {"domains": domains}


def random_cuts(comm, cases):
    found = []
    for seed in range(cases):
        n, arguments = random_problem(seed)
        each = Partition(n, comm, **arguments)
        whole = np.arange(n) * 7 + seed
        back = each.gather(each.scatter(whole, seed % comm.size), (seed + 1) % comm.size)
        assert (back is None) == (comm.rank != (seed + 1) % comm.size) and (back is None or np.array_equal(back, whole))
        found.append((each.rows, each.domain_offsets))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("ranks, cases", [(3, 200), (8, 100)])
def test_random_problems_have_one_cut_on_any_number_of_ranks(mpi, ranks, cases):
    found = mpi(random_cuts, ranks, cases, limit=300.0)
    for seed, (rows, offsets) in enumerate(random_cuts(serial(), cases)):
        assert np.array_equal(np.concatenate([of_rank[seed][0] for of_rank in found]), rows)
        assert all(np.array_equal(of_rank[seed][1], offsets) for of_rank in found)


def bad_partition(comm, rank):
    """Calls in which one rank has a wrong argument, or another one than the others."""
    mine = comm.rank == rank
    nan = np.where(np.arange(N)[:, None] == 7 * mine, np.nan, COORDINATES)
    nan = nan if mine else COORDINATES
    return {
        "n": lambda: Partition(N + mine, comm),
        "n a fraction": lambda: Partition(2.5 if mine else N, comm),
        "domains": lambda: Partition(N, comm, domains=-1 if mine else 4),
        "other domains": lambda: Partition(N, comm, domains=3 if mine else 4),
        "method": lambda: Partition(N, comm, method="rows" if mine else "auto"),
        "no such method": lambda: Partition(N, comm, method="cubes" if mine else "auto"),
        "NaN": lambda: Partition(N, comm, coordinates=nan),
        "size": lambda: Partition(N, comm, graph=GRAPH[:-1, :-1] if mine else GRAPH),
        "other graph": lambda: Partition(N, comm, graph=GRAPH.T @ GRAPH if mine else GRAPH),
        "missing": lambda: Partition(N, comm, coordinates=None if mine else COORDINATES),
        "other coordinates": lambda: Partition(N, comm, coordinates=COORDINATES + 1e-3 * mine),
        "axes": lambda: Partition(N, comm, coordinates=COORDINATES[:, : 3 - mine]),
        "argument": lambda: Partition(N, comm, **({"graph": GRAPH} if mine else {"coordinates": COORDINATES})),
    }


def bad_vector(comm, rank):
    """Calls of one partition in which one rank has a wrong vector."""
    mine, each = comm.rank == rank, Partition(N, comm, domains=11)
    local = np.zeros((each.n_local, 2))
    ensemble = en.Ensemble(local, en.SampleSet(weights=[1.0, 2.0]))
    other = en.Ensemble(local, en.SampleSet(weights=[1.0, 3.0]))
    return {
        "scatter": lambda: each.scatter(np.zeros(N - 1), root=rank),
        "scatter none": lambda: each.scatter(None if mine else np.zeros(N), root=rank),
        "scatter root": lambda: each.scatter(np.zeros(N), root=1 - rank if mine else rank),
        "gather": lambda: each.gather(local[1:] if mine else local),
        "gather none": lambda: each.gather(None if mine else local),
        "gather dtype": lambda: each.gather(local.astype(np.float32) if mine else local),
        "gather columns": lambda: each.gather(local[:, 0] if mine else local),
        "gather kind": lambda: each.gather(ensemble if mine else local),
        "gather root": lambda: each.gather(local, root=9 if mine else 0),
        "gather sample set": lambda: each.gather(other if mine else ensemble),
    }


def errors(comm, calls, rank):
    """The errors that this rank has in each call, and whether the ranks can exchange messages after each."""
    found = {}
    for name, call in calls(comm, rank).items():
        try:
            call()
            found[name] = "no error"
        except (TypeError, ValueError) as error:
            found[name] = f"{type(error).__name__}: {error}"
        assert comm.allgather(name) == [name] * comm.size
    return found


@pytest.mark.parametrize("calls", [bad_partition, bad_vector], ids=["partition", "vector"])
def test_an_error_on_one_rank_is_raised_on_all(mpi, calls):
    """Rank 1 alone differs; where rank 0 is a part of the comparison, the ranks are named."""
    first, *others = mpi(errors, 3, calls, 1)
    assert all(found == first for found in others)
    assert [name for name, text in first.items() if "Partition" not in text] == []
    assert [name for name, text in EXPECTED.items() if text not in first.get(name, text)] == []


EXPECTED = {
    "n": "n must be the same on every rank; got 3000 on rank 0, 3001 on rank 1",
    "n a fraction": "n must be an integer of at least 0; got 2.5",
    "domains": "domains must be an integer of at least 1; got -1",
    "NaN": "coordinates must be finite; got 1 rows that are not, row 7 first",
    "other graph": "graph must be the same on every rank",
    "missing": "coordinates must be given on every rank, or on rank 0 with None elsewhere; got None on rank 1 of 3",
    "other coordinates": "coordinates must be the same on every rank; got differences up to 0.001 in an extent of 1",
    "axes": "coordinates must be the same on every rank; got shapes (3000, 3), (3000, 2)",
    "gather": "x must have the 819 rows of its rank; got shape (818, 2)",
    "gather dtype": "x must be the same on every rank; got an array of <f8 and (2,) on rank 0, an array of <f4",
    "gather sample set": "x must have the sample set that it has on rank 0",
}


def nearly_equal(comm):
    """Coordinates that differ in their last digits, as those of two mathematical libraries do."""
    each = Partition(N, comm, coordinates=COORDINATES * (1.0 + 1e-15 * comm.rank), domains=8)
    return each.gather(each.scatter(np.arange(N))), each.offsets


def test_coordinates_that_differ_in_their_last_digits_give_the_cut_of_rank_0(mpi):
    found = mpi(nearly_equal, 2)
    assert np.array_equal(found[0][0], np.arange(N)) and np.array_equal(found[0][1], found[1][1])


class OddError(Exception):
    """An exception that its arguments do not make."""

    def __init__(self, number, other):
        super().__init__(f"{number} and {other}")


def agreed_errors(comm):
    """The text and the notes of errors that one rank raises, several raise, or none."""

    class InnerError(Exception):
        """Cannot be pickled."""

    found = []
    for raising, error in (
        ([], None),
        ([1], OddError(1, 2)),
        ([1, 2], KeyError(f"of {comm.rank}")),
        ([0, 1, 2], ValueError(f"of {comm.rank}")),
        ([1], InnerError(lambda: 0, "b")),
    ):
        try:
            with agreement(comm):
                if comm.rank in raising:
                    raise error
            found.append("nothing")
        except Exception as error:
            found.append((type(error).__name__, str(error)[:13], error.__notes__))
    return found


def test_ranks_agree_on_an_error(mpi):
    first, second, third = mpi(agreed_errors, 3)
    note = [["Raised on rank 0 of 3."], ["Raised on rank 1 of 3."]]
    expected = ["nothing", ("RuntimeError", "OddError: 1 a", note[1]), ("KeyError", "'of 1'", note[1])]
    expected += [("ValueError", "of 0", note[0]), ("RuntimeError", "InnerError: (", note[1])]
    assert first == third == expected
    own = [("OddError", "1 and 2", note[1]), ("InnerError", "(<function ag", note[1])]
    assert second == [expected[0], own[0], *expected[2:4], own[1]]
