"""Approximate ideal restriction over ranks: the bits of one rank, and about the iterations of the whole matrix."""

import numpy as np
import pytest

import ensemble as en
from ensemble.distributed import serial
from ensemble.distributed.splitting import colours_of
from ensemble.gallery import convection_diffusion
from ensemble.krylov import bicgstab, gmres
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import approximate_ideal_restriction
from tests.distributed.systems import digest, distributed_system, right_hand_side, shuffled


def convection(shape, n_samples, diffusion, turning=False):
    """Upwind differences of each sample's own direction or of rotation, and the coordinates of the rows."""
    at = np.stack(np.meshgrid(*[np.arange(n) for n in shape], indexing="ij"), -1).reshape(-1, len(shape))
    angles = np.linspace(0.3, 1.2, n_samples)
    velocity = np.stack([np.cos(angles), np.sin(angles), np.full(n_samples, 0.3)][: len(shape)])
    if turning:
        x = (at + 1) / (np.array(shape) + 1) - 0.5
        wide = np.zeros((len(shape), *shape, n_samples))
        wide[0] = -x[:, 1].reshape(*shape, 1)
        wide[1] = x[:, 0].reshape(*shape, 1)
        velocity = wide * (1.0 + 0.2 * np.arange(n_samples))
    return convection_diffusion(shape, velocity, diffusion), at.astype(float)


OPTIONS = {
    "default": {},
    "degree 0": {"degree": 0},
    "degree 1, mean": {"degree": 1, "strength": "mean"},
    "graph, float32": {"strength": "graph", "dtype": np.float32},
    "no coarse solver": {"max_levels": 2, "sweeps": (1, 1)},
}


def systems(n_samples, cells):
    """Name, matrix, and how it is cut."""
    A, at = convection((cells, cells), n_samples, 1e-3)
    yield "rows", A, {"domains": 5}
    yield "coordinates", A, {"domains": 7, "coordinates": at}
    turning, at = convection((cells, cells), n_samples, 1e-5, True)
    yield "rotation", turning, {"domains": 4, "coordinates": at}
    mixed = shuffled(A)
    yield "shuffled, graph", mixed, {"domains": 6, "graph": mixed.graph}
    box, at = convection((cells // 2,) * 3, n_samples, 1e-2)
    yield "box", box, {"domains": 3, "coordinates": at}


def digests(comm, n_samples, cells=20, names=None, options=OPTIONS):
    """Digests of the solutions on rank 0, before and after an update of the hierarchy."""
    found = {}
    for name, A, cut in systems(n_samples, cells):
        for kind in options if names is None or name in names else ():
            partition, M, b = distributed_system(comm, A, right_hand_side(A.shape[0], n_samples), **cut)
            hierarchy = approximate_ideal_restriction(M, coarse_size=20, **OPTIONS[kind])
            solve = gmres if kind == "default" else bicgstab
            found[name, kind, "first"] = digest(partition, solve(M, b, M=hierarchy, max_iterations=15))
            M.update(np.ascontiguousarray(1.5 * M.values))
            result = solve(M, b, M=hierarchy.update(M), max_iterations=15)
            found[name, kind, "updated"] = digest(partition, result), repr(hierarchy)
    return found


@pytest.mark.slow
def test_three_ranks_give_the_bits_of_one(mpi):
    arguments = 4, 16, ("coordinates",), ("default",)
    want = digests(serial(), *arguments)
    assert mpi(digests, 3, *arguments)[0] == want


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_many_ranks_give_the_bits_of_one_with_every_option(mpi, ranks):
    """25 hierarchies of 1 and of 8 samples, each updated once."""
    for n_samples in (1, 8):
        want = digests(serial(), n_samples)
        assert mpi(digests, ranks, n_samples, limit=600.0)[0] == want


def test_one_domain_has_the_bits_of_the_whole_matrix():
    for n_samples, kind in ((1, "default"), (3, "degree 1, mean"), (3, "graph, float32")):
        A, _ = convection((18, 18), n_samples, 1e-3)
        _, M, b = distributed_system(serial(), A, right_hand_side(A.shape[0], n_samples), domains=1)
        options = {"coarse_size": 20, **OPTIONS[kind]}
        whole = approximate_ideal_restriction(A, reorder=False, **options)
        spread = approximate_ideal_restriction(M, **options)
        assert repr(spread) == repr(whole)
        np.testing.assert_array_equal((spread @ b).samples, (whole @ b).samples)


@pytest.mark.parametrize(("shape", "diffusion", "turning"), [((64, 64), 1e-6, False), ((64, 64), 1e-3, True)])
def test_domains_cost_one_iteration_at_most(shape, diffusion, turning):
    A, at = convection(shape, 2, diffusion, turning)
    b = right_hand_side(A.shape[0], 2)
    whole = gmres(A, en.Ensemble(b), M=approximate_ideal_restriction(A))
    _, M, right = distributed_system(serial(), A, b, domains=4, coordinates=at)
    found = gmres(M, right, M=approximate_ideal_restriction(M))
    assert found.converged.all()
    assert np.all(found.iterations <= whole.iterations + 1)


@pytest.mark.slow
def test_domains_cost_one_iteration_or_fifteen_per_cent():
    """18 problems, of 2 to 8 domains of the default size."""
    for shape in ((64, 64), (128, 128), (24, 24, 24)):
        for diffusion in (0.0, 1e-4, 1e-2):
            for turning in (False, True):
                A, at = convection(shape, 2, diffusion, turning)
                b = right_hand_side(A.shape[0], 2)
                whole = gmres(A, en.Ensemble(b), M=approximate_ideal_restriction(A))
                _, M, right = distributed_system(serial(), A, b, coordinates=at)
                found = gmres(M, right, M=approximate_ideal_restriction(M))
                assert found.converged.all() == whole.converged.all()
                more = found.iterations > whole.iterations + 1
                assert not np.any(more & (logarithmic_steps(found) > 1.15 * logarithmic_steps(whole)))


def logarithmic_steps(result):
    """Iterations for a factor of e."""
    last = result.residual_norms[-1] if result.residual_norms.ndim == 2 else result.residual_norms
    return result.iterations / np.log(result.residual_norms[0] / last)


def test_each_sample_is_its_own_run_where_the_graph_decides():
    A, at = convection((16, 16), 3, 1e-3)
    A.values[3, 1] = np.nan
    _, M, b = distributed_system(serial(), A, right_hand_side(A.shape[0], 3), domains=4, coordinates=at)
    hierarchy = approximate_ideal_restriction(M, coarse_size=20)
    together = gmres(M, b, M=hierarchy)
    for s in (0, 2):
        own, right = M.take_samples([s]), en.Ensemble(np.ascontiguousarray(b.samples[:, [s]]))
        for alone in (hierarchy.take_samples([s]), approximate_ideal_restriction(M, coarse_size=20).update(own)):
            np.testing.assert_array_equal(gmres(own, right, M=alone).x.samples[:, 0], together.x.samples[:, s])
    assert [str(status) for status in together.status] == [f"Status.{e}" for e in ("converged", "breakdown") * 2][:3]


def test_neighbouring_domains_have_other_colours():
    A, at = convection((24, 24), 1, 1e-3)
    _, M, _ = distributed_system(serial(), A, right_hand_side(576, 1), domains=9, coordinates=at)
    colours = colours_of(M)
    assert colours.max() < 5
    of = M.rows.domain_of(np.arange(576))
    own, other = of[np.repeat(np.arange(576), np.diff(M.indptr))], of[M.numbers]
    assert np.all((colours[own] != colours[other]) | (own == other))


def test_what_does_not_fit_is_refused():
    A, at = convection((12, 12), 1, 1e-3)
    _, M, _ = distributed_system(serial(), A, right_hand_side(144, 1), domains=2, coordinates=at)
    _, other, _ = distributed_system(serial(), A, right_hand_side(144, 1), domains=4, coordinates=at)
    with pytest.raises(ValueError, match="approximate_ideal_restriction: reorder must have its default"):
        approximate_ideal_restriction(M, reorder=True)
    for built, given in ((M, other), (M, A), (A, M)):
        with pytest.raises(ValueError, match=r"ReductionHierarchy.update: A must have the graph"):
            approximate_ideal_restriction(built, coarse_size=20, reorder="auto").update(given)


def test_a_matrix_without_strong_entries_is_solved_or_relaxed():
    A = CrsMatrix.from_coo(np.arange(50), np.arange(50), np.arange(1.0, 51.0), (50, 50))
    _, M, b = distributed_system(serial(), A, np.ones((50, 1)), domains=3)
    x = approximate_ideal_restriction(M, coarse_size=20) @ b
    np.testing.assert_allclose(x.samples[:, 0], 1.0 / np.arange(1.0, 51.0), rtol=1e-12)
