"""Direct solves, warm starts, groups, scaled hierarchies and Newton's method over ranks: the bits of one rank."""

import numpy as np
import pytest

import ensemble as en
from ensemble.distributed import DistributedCrsMatrix, Partition, serial
from ensemble.krylov import WarmStart, anisotropy, cg, direct, group_samples, newton
from ensemble.linalg import AffineMatrix, CrsMatrix, Factorization, IncompleteFactorization, SymmetricCrsMatrix
from ensemble.multigrid import GaussSeidel, approximate_ideal_restriction, scaled_aggregation, smoothed_aggregation
from tests.distributed.systems import box, digest, distributed_system, right_hand_side, shuffled


def system(comm, n_samples, cells=6, spread=0.3):
    A, at = box(cells, n_samples, spread=spread)
    return distributed_system(comm, A, right_hand_side(A.shape[0], n_samples), domains=5, coordinates=at)


# --- what is solved
def solved_directly(comm, n_samples):
    """Factorisations in two types, and a sample of NaN."""
    partition, A, b = system(comm, n_samples)
    found = [digest(partition, direct(A, b)), digest(partition, direct(A, b, dtype="float32", ordering="amd"))]
    bad = A.values.copy()
    bad[:, 0] = np.nan
    result = direct(A.with_values(bad), b)
    return [*found, digest(partition, result), [str(status) for status in result.status]]


def scaled(comm, n_samples):
    """Two set-ups of the scaled hierarchy of one mean."""
    partition, A, b = system(comm, n_samples, spread=1.0)
    mean = A.take_samples([0]).with_values(A.values.mean(axis=1, keepdims=True))
    found = []
    for options in ({}, {"dtype": np.float64}):
        M = scaled_aggregation(A, mean, **options)
        found.append(digest(partition, cg(A, b, M=M)))
        found.append(digest(partition, cg(A, b, M=M.update(A.with_values(2.0 * A.values)))))
    return found


def affine_terms(n_terms=3):
    """A box whose samples are the terms of an affine matrix, and its coordinates."""
    A, at = box(6, n_terms, spread=0.3)
    return CrsMatrix(A.graph, A.values * np.array([1.0, *[0.1] * (n_terms - 1)])), at


def affine(comm, n_samples):
    """Hierarchies of an affine matrix, of its own and scaled, and after an update."""
    A, at = affine_terms()
    partition, terms, b = distributed_system(
        comm, A, right_hand_side(A.shape[0], n_samples), domains=5, coordinates=at
    )  # fmt: skip
    first, second = (np.random.default_rng(k).uniform(-1.0, 1.0, (2, n_samples)) for k in (1, 2))
    M = terms.affine(en.Ensemble(first))
    own, single = smoothed_aggregation(M), smoothed_aggregation(M, dtype=np.float32)
    found = [digest(partition, cg(M, b, M=P)) for P in (None, own, single, scaled_aggregation(M))]
    other = M.with_coefficients(en.Ensemble(second))
    return [*found, digest(partition, cg(other, b, M=own.update(other)))]


def warm(comm, n_samples):
    """Guesses from solutions of which one is not finite on the last rows alone."""
    partition, A, b = system(comm, n_samples)
    store = WarmStart(space=A.space, capacity=12)
    inputs = np.random.default_rng(1).standard_normal((2, n_samples))
    x = cg(A, b).x.samples.copy()
    if A.local_shape[0] and A.space.first + A.local_shape[0] == A.shape[0]:
        x[-1, 1] = np.nan
    store.add(en.Ensemble(inputs), en.Ensemble(x))
    guess = store.guess(en.Ensemble(inputs + 0.1))
    return len(store), digest(partition, cg(A, b, x0=guess))


def grouped(comm, n_samples):
    """Groups by the anisotropy of coefficients of which each rank has those of its points, solved one by one."""
    partition, A, b = system(comm, n_samples)
    own = partition.scatter(np.exp(np.random.default_rng(4).standard_normal((A.shape[0], n_samples))))
    key = anisotropy(own, space=A.space)
    groups = group_samples(key, 3)
    found = [
        digest(partition, cg(A.take_samples(g), en.Ensemble(np.ascontiguousarray(b.samples[:, g])))) for g in groups
    ]
    return [group.tolist() for group in groups], key.tobytes(), found


def reacted(comm, n_samples):
    """Newton's method for ``A u + c u^3 = b`` on a box, with two solvers; c is the sample's own."""
    partition, A, b = system(comm, n_samples, spread=0.1)
    c = np.linspace(0.1, 3.0, n_samples)
    on_diagonal = np.flatnonzero(A.numbers - A.rows.first == np.repeat(np.arange(A.local_shape[0]), np.diff(A.indptr)))

    def residual(u):
        return A @ u + en.Ensemble(c) * u * u * u - b

    def jacobian(u):
        values = A.values.copy()
        values[on_diagonal] += 3.0 * c * u.samples**2
        return A.with_values(values)

    def with_hierarchy(J, r):
        return cg(J, r, M=smoothed_aggregation(J))

    zero = en.Ensemble(np.zeros(b.samples.shape))
    results = [newton(residual, jacobian, zero, solver=solver, rtol=1e-10) for solver in (with_hierarchy, direct)]
    return [(digest(partition, result), [str(status) for status in result.status]) for result in results]


EVERY = (solved_directly, scaled, affine, warm, grouped, reacted)


def every(comm, n_samples):
    return {part.__name__: part(comm, n_samples) for part in EVERY}


@pytest.mark.slow
def test_two_ranks_give_the_bits_of_one(mpi):
    want = every(serial(), 4)
    found = mpi(every, 2, 4)[0]
    assert found == want
    assert want["solved_directly"][-1] == ["Status.breakdown"] + 3 * ["Status.converged"]
    assert want["warm"][0] == 3  # the sample that is not finite is left out on every rank
    for _, statuses in want["reacted"]:
        assert statuses == 4 * ["Status.converged"]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_many_ranks_give_the_bits_of_one(mpi, ranks):
    """Six parts of 2 and of 8 samples."""
    for n_samples in (2, 8):
        want = every(serial(), n_samples)
        assert mpi(every, ranks, n_samples, limit=600.0)[0] == want


# --- against what is known
def test_a_direct_solution_is_that_of_the_whole_matrix():
    A = shuffled(box(5, 3, spread=0.3)[0])
    b = right_hand_side(125, 3)
    partition, M, right = distributed_system(serial(), A, b, domains=3, graph=A.graph)
    result = direct(M, right)
    x = partition.gather(result.x).samples
    for s in range(3):
        np.testing.assert_allclose(A.to_scipy(s) @ x[:, s], b[:, s], atol=1e-12)
    assert np.isfinite(result.rcond).all()
    shared, one = M.take_samples([0]), right.samples[:, 0].copy()
    plain = direct(shared.with_values(shared.values), one)
    assert plain.x.samples.shape == (125, 1) if shared.batched else plain.x.shape == (125,)


def test_a_solution_of_a_nonlinear_problem_has_a_small_residual():
    partition, A, b = system(serial(), 3, spread=0.1)
    c = np.linspace(0.1, 3.0, 3)
    assert len(reacted(serial(), 3)) == 2
    result = newton(
        lambda u: A @ u + en.Ensemble(c) * u * u * u - b,
        lambda u: with_diagonal(A, 3.0 * c * u.samples**2), en.Ensemble(np.zeros(b.samples.shape)), rtol=1e-11,
    )  # fmt: skip
    u = partition.gather(result.u).samples
    whole, right = A.gather(), partition.gather(b).samples
    for s in range(3):
        defect = whole.to_scipy(s) @ u[:, s] + c[s] * u[:, s] ** 3 - right[:, s]
        assert np.linalg.norm(defect) < 1e-9


def with_diagonal(A, added):
    values = A.values.copy()
    rows = np.repeat(np.arange(A.local_shape[0]), np.diff(A.indptr))
    values[A.numbers - A.rows.first == rows] += added
    return A.with_values(values)


def test_a_scaled_hierarchy_over_one_domain_takes_the_iterations_of_the_whole_matrix():
    A, _ = box(8, 3, spread=1.0)
    b = right_hand_side(512, 3)
    mean = CrsMatrix(A.graph, A.values.mean(axis=1))
    whole = cg(A, en.Ensemble(b), M=scaled_aggregation(A, mean))
    partition = Partition(512, serial(), 1)
    M, own = DistributedCrsMatrix(partition, A), DistributedCrsMatrix(partition, mean)
    found = cg(M, partition.scatter(en.Ensemble(b)), M=scaled_aggregation(M, own))
    assert found.converged.all()
    assert np.all(np.abs(found.iterations - whole.iterations) <= 1)


def test_an_affine_matrix_over_ranks_is_that_of_the_whole_terms():
    A, _ = affine_terms()
    coefficients = en.Ensemble(np.random.default_rng(1).uniform(-1.0, 1.0, (2, 4)))
    whole, b = AffineMatrix(A.graph, A.values, coefficients), en.Ensemble(right_hand_side(216, 4))
    partition = Partition(216, serial(), 1)
    M = DistributedCrsMatrix(partition, A).affine(coefficients)
    np.testing.assert_array_equal((M @ b).samples, (whole @ b).samples)
    np.testing.assert_array_equal(M.diagonal().samples, whole.diagonal().samples)
    np.testing.assert_array_equal((M.to_crs() @ b).samples, (whole.to_crs() @ b).samples)
    spread, own = smoothed_aggregation(M), smoothed_aggregation(whole)
    np.testing.assert_allclose((spread @ b).samples, (own @ b).samples, rtol=1e-9, atol=1e-9)
    alone = M.take_samples([2])
    np.testing.assert_array_equal(alone @ b.samples[:, 2], (M @ b.samples[:, 2]).samples[:, 2])


# --- what is refused
REFUSED = {
    "Factorization": lambda A: Factorization(A),
    "Factorization.update": lambda A: Factorization(A.gather()).update(A),
    "IncompleteFactorization": lambda A: IncompleteFactorization(A),
    "smoothed_aggregation: smoother": lambda A: smoothed_aggregation(A, smoother=GaussSeidel()),
    "smoothed_aggregation: strength": lambda A: smoothed_aggregation(A, strength=0.1),
    "smoothed_aggregation: improve_candidates": lambda A: smoothed_aggregation(A, improve_candidates=2),
    "smoothed_aggregation: reorder": lambda A: smoothed_aggregation(A, reorder=True),
    "approximate_ideal_restriction: reorder": lambda A: approximate_ideal_restriction(A, reorder=True),
    "direct: factorization": lambda A: direct(A, np.ones(125), factorization=Factorization(A.gather())),
    "direct: ordering": lambda A: direct(A, np.ones(125), ordering=np.arange(125)),
    "direct: b": lambda A: direct(A, np.ones(124)),
    "DistributedCrsMatrix.affine: coefficients": lambda A: A.affine(np.ones(3)),
    "AffineHierarchy.update": lambda A: smoothed_aggregation(A.affine([0.1])).update(A),
    "SymmetricCrsMatrix.from_crs": lambda A: SymmetricCrsMatrix.from_crs(A),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_takes_the_whole_matrix_is_refused_by_name(what):
    A, at = box(5, 2)
    _, M, _ = distributed_system(serial(), A, right_hand_side(125, 2), domains=2, coordinates=at)
    with pytest.raises((TypeError, ValueError), match=rf"^{what.split('.update')[0]}[.: a-z]*.* must .*; got "):
        REFUSED[what](M)
