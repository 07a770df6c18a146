"""Solves with scalars on the device, run on the CPU: the bits of the same solve with scalars on the host."""

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble import gallery
from ensemble.krylov import Status, _solve, gmres
from ensemble.krylov._device import DeviceLoop
from ensemble.linalg import CrsMatrix
from ensemble.scalar import Ensemble
from tests.device_problems import problem
from tests.krylov.problems import EVERY_METHOD, METHODS, bad_samples, convection, equal, jacobi_of, nonsymmetric

each_method = pytest.mark.parametrize("name", METHODS)
every_method = pytest.mark.parametrize("name", EVERY_METHOD)

pytestmark = [
    pytest.mark.usefixtures("as_device"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # the planted NaN and infinities
]


@pytest.fixture
def device_solves(monkeypatch):
    """The solves with scalars on the device, each as the widths of its stages."""
    widths = []
    solve, stage = DeviceLoop.solve, DeviceLoop.run_stage
    monkeypatch.setattr(DeviceLoop, "solve", lambda self: (widths.append([]), solve(self))[1])
    staged = lambda self, record: (widths[-1].append(self.state.x.shape[1]), stage(self, record))[1]
    monkeypatch.setattr(DeviceLoop, "run_stage", staged)
    return widths


def small(n_samples):
    """Symmetric positive definite and well conditioned, so that every method converges soon."""
    A = gallery.random_spd(20, n_samples)
    A = CrsMatrix(A.graph, A.values + 2.0 * (A.graph.row_of_entry == A.graph.indices)[:, None])
    return A, Ensemble(np.random.default_rng(60017).standard_normal((20, n_samples)))


def solve(name, A, b, **options):
    method, own = EVERY_METHOD[name]
    return method(A, b, **own, **options)


def by_host(monkeypatch, name, *arguments, **options):
    """The same solve with scalars on the host."""
    with monkeypatch.context() as patch:
        patch.setattr(_solve, "runs_on_device", lambda *run: False)
        return solve(name, *arguments, **options)


def assert_same(one, other):
    for attribute in ("status", "iterations", "residual_norms", "true_residual_norms"):
        np.testing.assert_array_equal(getattr(one, attribute), getattr(other, attribute))
    np.testing.assert_array_equal(one.x.samples, other.x.samples)


@each_method
@pytest.mark.parametrize("preconditioned", [False, True])
def test_bad_samples_have_the_bits_of_the_host_loop(name, preconditioned, device_solves, monkeypatch):
    """Zero and tiny right-hand sides, a singular, a skew-symmetric matrix, NaN and infinity among good samples."""
    A, b = bad_samples()
    options = {"M": jacobi_of(A) if preconditioned else None, "max_iterations": 60, "rtol": 1e-9}
    got = solve(name, A, Ensemble(b), **options)
    assert len(device_solves) == 1
    assert got.status[2] == got.status[5] == Status.breakdown and got.converged[[0, 4, 6, 7]].any()
    assert_same(got, by_host(monkeypatch, name, A, Ensemble(b), **options))
    assert len(device_solves) == 1


@pytest.mark.parametrize("name", ["cg", "cg_flexible"])
def test_conjugate_gradients_have_the_bits_of_the_host_loop(name, device_solves, monkeypatch):
    A, b = problem(6)
    A.values[:, 1] *= -1.0
    b.samples[:, 2], b.samples[3, 4] = 0.0, np.nan
    options = {"M": jacobi_of(A), "rtol": 1e-10}
    got = solve(name, A, b, **options)
    assert len(device_solves) == 1
    assert "".join(s.value[0] for s in got.status) == "cbccbc"  # converged or breakdown
    assert_same(got, by_host(monkeypatch, name, A, b, **options))


@every_method
def test_candidates_that_miss_have_the_bits_of_the_host_loop(name, device_solves, monkeypatch):
    """At the limit of rounding recursive residuals meet targets that true ones miss, at any point of an iteration."""
    rng, n = np.random.default_rng(88019), 16
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    if name.startswith("cg"):
        right = left.T
    spectra = [np.logspace(0, d, n) for d in (0.3, 6, 8, 7)]
    A = CrsMatrix.from_scipy([sp.csr_array(left @ np.diag(e) @ right) for e in spectra])
    b = Ensemble(rng.standard_normal((n, 4)))
    for rtol in (1e-15, 3e-14):
        options = {"rtol": rtol, "max_iterations": 50}
        got = solve(name, A, b, **options)
        assert not got.converged.all()
        assert_same(got, by_host(monkeypatch, name, A, b, **options))
    assert len(device_solves) == 2


def test_candidates_miss_in_either_half_of_an_iteration(device_solves, monkeypatch):
    """Many samples of BiCGSTAB near the limit of rounding: their candidates are verified wherever the others stand."""
    rng, n, matrices = np.random.default_rng(88019), 16, []
    for _ in range(12):
        left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
        matrices.append(sp.csr_array(left @ np.diag(np.logspace(0, 3, n)) @ (left.T + 0.1 * right)))
    A, b = CrsMatrix.from_scipy(matrices), Ensemble(rng.standard_normal((n, 12)))
    options = {"rtol": 1e-14, "max_iterations": 60}
    got = solve("bicgstab", A, b, **options)
    assert got.converged.any() and not got.converged.all() and len(device_solves) == 1
    assert_same(got, by_host(monkeypatch, "bicgstab", A, b, **options))


@every_method
def test_stagnation_and_best_iterates_have_the_bits_of_the_host_loop(name, device_solves, monkeypatch):
    """Tolerances that are met, beyond rounding and zero, a zero right-hand side, indefinite samples; some taken out."""
    rng, n = np.random.default_rng(41203), 18
    bases = [np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(8)]
    spectra = [np.logspace(0, d % 6, n) * np.where(np.arange(n) < d - 5, -1.0, 1.0) for d in range(8)]
    A = CrsMatrix.from_scipy([sp.csr_array(q @ np.diag(e) @ q.T) for e, q in zip(spectra, bases, strict=True)])
    b, x0 = rng.standard_normal((n, 8)), Ensemble(rng.standard_normal((n, 8)))
    b[:, 4] = 0.0
    rtol = np.array([1e-15, 1e-6, 0.0, 1e-14, 1e-9, 1e-17, 1e-10, 1e-15])
    runs = [(None, True), (x0, False), (x0, True)]
    for start, compact in runs:
        options = {"rtol": rtol, "max_iterations": 70, "x0": start, "compact": compact}
        got = solve(name, A, Ensemble(b), **options)
        assert got.status[4] == Status.converged and not got.iterations[4] and not got.x.samples[:, 4].any()
        assert name.startswith("gmres") or (got.status == Status.stagnated).any()
        assert_same(got, by_host(monkeypatch, name, A, Ensemble(b), **options))
    assert len(device_solves) == len(runs)


@every_method
def test_a_candidate_that_waits_is_verified_before_the_solve_ends(name, device_solves):
    """Another one, that takes all iterations there are, does not make a limit of its convergence."""
    A, b = small(3)
    result = solve(name, A, b, rtol=np.array([1e-1, 1e-13, 1e-13]), max_iterations=5)
    assert len(device_solves) == 1
    assert [s.value for s in result.status] == ["converged", "max_iterations", "max_iterations"]
    assert result.iterations[0] < 5 and result.iterations[1] == result.iterations[2] == 5


@each_method
def test_compaction_changes_nothing_and_happens(name, device_solves):
    shifts = [0.02, 0.02, 1.0, 1.0, 1.0] + [40.0] * 11
    A = CrsMatrix.from_scipy([convection(20, 0.3).to_scipy() + d * sp.eye_array(20) for d in shifts])
    b = Ensemble(np.random.default_rng(55021).standard_normal((20, len(shifts))))
    wide = solve(name, A, b, rtol=1e-10, compact=False)
    narrow = solve(name, A, b, rtol=1e-10)
    assert device_solves[0] == [16] and len(device_solves[1]) >= 2 and device_solves[1][-1] <= 5
    assert narrow.converged.all()
    assert_same(narrow, wide)


@every_method
@pytest.mark.parametrize("seed", [50231, 70938])
def test_each_sample_is_its_scalar_run(name, seed, device_solves):
    rng = np.random.default_rng(seed)
    A = gallery.random_spd(20, 5) if name.startswith("cg") else nonsymmetric(20, 5, seed, spread=20.0)
    b = rng.standard_normal((20, 5)) * 10.0 ** rng.uniform(-9, 9, 5)
    b[:, 1], b[3, 3] = 0.0, np.nan
    x0 = Ensemble(rng.standard_normal((20, 5))) if seed % 2 else None
    options = {"rtol": 1e-9, "max_iterations": 25}
    together = solve(name, A, Ensemble(b), x0=x0, M=jacobi_of(A), **options)
    for i in range(5):
        one, start = A.sample(i), None if x0 is None else Ensemble(x0.samples[:, i : i + 1].copy())
        alone = solve(name, one, Ensemble(b[:, i : i + 1].copy()), x0=start, M=jacobi_of(one), **options)
        assert equal(together, alone, i)
    assert len(device_solves) == 6


@every_method
def test_solved_and_forbidden_solves_touch_nothing(name, device_solves):
    A, b = small(2)
    none = solve(name, A, b, max_iterations=0)
    assert none.status[0] == Status.max_iterations and not none.x.samples.any()
    zero = solve(name, A, Ensemble(0.0 * b.samples))
    assert zero.converged.all() and not zero.iterations.any() and not zero.x.samples.any()
    solved = solve(name, A, b, rtol=1e-6)
    again = solve(name, A, b, x0=solved.x, rtol=1e-5)
    assert not again.iterations.any()
    np.testing.assert_array_equal(again.x.samples, solved.x.samples)


@every_method
def test_float32_has_the_bits_of_the_host_loop(name, device_solves, monkeypatch):
    A, b = small(5)
    A, b = CrsMatrix(A.graph, A.values.astype(np.float32)), Ensemble(b.samples.astype(np.float32))
    got = solve(name, A, b, rtol=1e-4)
    assert got.x.dtype == np.float32 and got.converged.all() and len(device_solves) == 1
    assert_same(got, by_host(monkeypatch, name, A, b, rtol=1e-4))


@each_method
def test_shared_matrices_and_shared_right_hand_sides(name, device_solves, monkeypatch):
    A, b = nonsymmetric(20, 4, seed=15013), np.random.default_rng(60013).standard_normal((20, 4))
    A = CrsMatrix(A.graph, A.values + 2.0 * (A.graph.row_of_entry == A.graph.indices)[:, None])
    for matrix, vector in ((A.sample(1), b), (A, b[:, :1].copy())):
        options = {"M": jacobi_of(matrix), "rtol": 1e-5}
        got = solve(name, matrix, Ensemble(vector), **options)
        assert got.x.n_samples == 4 and got.converged.all()
        assert_same(got, by_host(monkeypatch, name, matrix, Ensemble(vector), **options))


def test_cycles_of_one_iteration(device_solves, monkeypatch):
    A, b = small(3)
    options = {"restart": 1, "rtol": 1e-3}
    got = gmres(A, b, **options)
    assert got.converged.all() and got.iterations.min() > 1 and len(device_solves) == 1
    monkeypatch.setattr(_solve, "runs_on_device", lambda *run: False)
    assert_same(got, gmres(A, b, **options))


@every_method
def test_callbacks_and_coupled_samples_take_the_host_loop(name, device_solves):
    A, b = small(3)
    seen = []
    solve(name, A, b, rtol=1e-4, callback=lambda k, norms: seen.append(k))
    assert solve(name, A, b, rtol=1e-4, coupling="ensemble").converged.all()
    assert seen and not device_solves


@each_method
def test_matrices_of_any_size_have_the_bits_of_the_host_loop(name, device_solves, monkeypatch):
    """Samples whose products leave the range of numbers are solved again in other units, with scalars on the host."""
    A, b = small(1)
    powers = np.array([0, -700, 640, -960, 964])
    A = CrsMatrix(A.graph, np.ldexp(A.values, powers))
    got = solve(name, A, b, rtol=1e-9)
    assert len(device_solves) == 1 and got.converged.all() and np.all(got.iterations == got.iterations[0])
    assert_same(got, by_host(monkeypatch, name, A, b, rtol=1e-9))
