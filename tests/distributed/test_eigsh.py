"""Eigenpairs of matrices over ranks: the bits of one rank, and the pairs of the whole matrix."""

import hashlib

import numpy as np
import pytest

from ensemble.distributed import serial
from ensemble.linalg import CrsMatrix, eigsh
from ensemble.scalar import Ensemble
from tests.distributed.systems import box, distributed_system, right_hand_side, shuffled


def systems(n_samples):
    """Name, matrix, and how it is cut."""
    A, at = box(6, n_samples, spread=0.3)
    yield "rows", A, {"domains": 5}
    yield "coordinates", A, {"domains": 5, "coordinates": at}
    yield "tiny values", CrsMatrix(A.graph, Ensemble(1e-290 * A.values)), {"domains": 3}
    mixed = shuffled(A)
    yield "shuffled, graph", mixed, {"domains": 4, "graph": mixed.graph}
    small, _ = box(3, n_samples, spread=0.3)
    yield "few rows", small, {"domains": 3}


def cut_up(comm, A, cut):
    partition, M, _ = distributed_system(comm, A, right_hand_side(A.shape[0], A.n_samples), **cut)
    return partition, M


def digests(comm, n_samples, names=None, ends=("LM", "LA", "SA"), **options):
    """Digests of the pairs on rank 0."""
    found = {}
    for name, A, cut in systems(n_samples):
        for which in ends if names is None or name in names else ():
            partition, M = cut_up(comm, A, cut)
            pairs = eigsh(M, 3, which=which, **options)
            vectors = partition.gather(pairs.vectors)
            parts = [pairs.values.samples, pairs.residual_norms, pairs.target, pairs.iterations]
            parts += [] if vectors is None else [vectors.samples]
            text = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
            found[name, which] = hashlib.md5(text).hexdigest(), [str(status) for status in pairs.status]
    return found


def few(comm):
    """Two bases, which is enough for a difference, of four samples."""
    return digests(comm, 4, ("coordinates", "few rows"), ("SA",), max_iterations=2, rtol=1e-3)


def four(comm, n_samples):
    return digests(comm, n_samples, max_iterations=4)


def test_two_ranks_give_the_bits_of_one(mpi):
    want = few(serial())
    assert mpi(few, 2)[0] == want


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_many_ranks_give_the_bits_of_one_for_every_end_and_cut(mpi, ranks):
    """Four bases of 15 systems of 1 and of 8 samples; five ranks are more than some have domains."""
    for n_samples in (1, 8):
        want = four(serial(), n_samples)
        assert mpi(four, ranks, n_samples, limit=600.0)[0] == want


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
def test_pairs_are_those_of_dense_algebra(which):
    others = {"LM": ("rows", "tiny values"), "LA": ("coordinates",), "SA": ("shuffled, graph", "few rows")}[which]
    for name, A, cut in systems(2):
        if name not in others:
            continue
        partition, M = cut_up(serial(), A, cut)
        pairs = eigsh(M, 4, which=which).raise_if_failed()
        x = partition.gather(pairs.vectors).samples
        for s in range(2):
            dense = A.to_scipy(s).toarray()
            every = np.linalg.eigvalsh(dense)
            best = np.argsort(-{"LM": np.abs(every), "LA": every, "SA": -every}[which])[:4]
            scale = np.abs(every).max()
            np.testing.assert_allclose(pairs.values.samples[:, s], np.sort(every[best]), rtol=0, atol=1e-11 * scale)
            defects = dense @ x[:, :, s] - x[:, :, s] * pairs.values.samples[:, s]
            assert np.abs(defects).max() < 1e-11 * scale, name


def test_copies_of_a_multiple_value_are_found():
    A, at = box(6, 1)  # the second value has three copies, the third end has as many
    _, M = cut_up(serial(), A, {"domains": 4, "coordinates": at})
    every = np.linalg.eigvalsh(A.to_scipy().toarray())
    for which, want in (("SA", every[:4]), ("LA", every[-4:])):
        np.testing.assert_allclose(eigsh(M, 4, which=which).values.samples[:, 0], want, rtol=1e-10)


def lone_samples(comm):
    A, at = box(6, 4, spread=0.4)
    A.values[3, 2] = np.nan
    _, M = cut_up(comm, A, {"domains": 4, "coordinates": at})
    together, alike = eigsh(M, 2, which="LA", rtol=1e-6), []
    for s in (0, 3):
        alone = eigsh(M.take_samples([s]), 2, which="LA", rtol=1e-6)
        alike.append(np.array_equal(alone.vectors.samples[..., 0], together.vectors.samples[..., s]))
        alike.append(np.array_equal(alone.values.samples[:, 0], together.values.samples[:, s]))
    return all(alike), [str(status) for status in together.status]


def test_each_sample_is_its_own_run_and_one_of_nan_breaks_down_alone():
    want = True, [f"Status.{ending}" for ending in ("converged", "converged", "breakdown", "converged")]
    assert lone_samples(serial()) == want


@pytest.mark.parametrize(("options", "named"), [({"sigma": 0.5}, "sigma"), ({"which": "SM"}, "which"), ({"M": 0}, "M")])
def test_what_takes_a_factorisation_is_refused_with_the_remedy(options, named):
    A, _ = box(5, 1)
    _, M = cut_up(serial(), A, {"domains": 2})
    if "M" in options:
        options = {"M": M}
    with pytest.raises(ValueError, match=rf"eigsh: {named} must be .*A\.gather\(\)"):
        eigsh(M, 2, **options)
    whole = M.gather()
    pairs = eigsh(whole, 2, sigma=0.5)  # the remedy
    assert pairs.converged.all()


def test_a_matrix_that_is_not_symmetric_breaks_down():
    A, _ = box(5, 2)
    A.values[1, 1] *= 2.0
    _, M = cut_up(serial(), A, {"domains": 3})
    assert [str(s) for s in eigsh(M, 2, which="LA").status] == ["Status.converged", "Status.breakdown"]


def test_the_gathered_matrix_has_the_callers_order():
    A = shuffled(box(5, 2, spread=0.3)[0])
    _, M = cut_up(serial(), A, {"domains": 3, "graph": A.graph})
    whole = M.gather()
    for s in range(2):
        assert (whole.to_scipy(s) != A.to_scipy(s)).nnz == 0
