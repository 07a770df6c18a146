"""Short programs as people write them, with ensembles for arrays: equal to their runs on each sample."""

import asyncio

import numpy as np
import pytest

from ensemble.scalar import (
    Ensemble,
    divergence,
    norm,
    run,
    sample_cov,
    sample_mean,
    sample_quantile,
)

RNG = np.random.default_rng(83401)
RATE = Ensemble(RNG.uniform(0.5, 2.0, size=6))
MATRIX = Ensemble(RNG.normal(size=(4, 4, 6)))
SIDE = RNG.normal(size=4)


def runge_kutta(f, y, h, n_steps):
    path, t = [y], 0.0
    for _ in range(n_steps):
        a = f(t, y)
        b = f(t + h / 2, y + h / 2 * a)
        c = f(t + h / 2, y + h / 2 * b)
        d = f(t + h, y + h * c)
        y, t = y + h / 6 * (a + 2 * b + 2 * c + d), t + h
        path.append(y)
    return path[-1]


def explicit_heat(u, steps):
    u = u.copy()
    for _ in range(steps):
        flux = np.diff(u)
        u[1:-1] += 0.2 * np.diff(flux)
        u[0], u[-1] = u[1], u[-2]
    return u


def gram_schmidt(A):
    Q = np.zeros_like(A)
    for k in range(A.shape[1]):
        v = A[:, k]
        for j in range(k):
            v = v - (Q[:, j] @ A[:, k]) * Q[:, j]
        Q[:, k] = v / np.linalg.norm(v)
    return Q


def normalised(A):
    rows = A.sum(axis=1).reshape(-1, 1)
    return (A / rows).T.round(6).max(axis=0)


def horner(x):
    return sum(c * x**k for k, c in enumerate([1.0, -2.0, 0.5])) + divmod(x, 0.25)[1]


TOGETHER = {
    "Runge-Kutta": lambda s: runge_kutta(lambda t, y: np.stack([y[1], -s * y[0]]), np.array([1.0, 0.0]), 0.1, 9),
    "decay": lambda s: runge_kutta(lambda t, y: -s * y, np.ones(3), 0.1, 9),
    "polynomial": horner,
    "table": lambda s: np.interp(s, [0.0, 1.0, 3.0], [2.0, 1.0, 4.0]),
    "heat": lambda s: explicit_heat(s * np.linspace(0.0, 1.0, 7) ** 2, 5),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_programs_of_a_number_run_on_all_samples_at_once(name):
    got = TOGETHER[name](RATE)
    for s in range(6):
        np.testing.assert_allclose(got.sample(s), TOGETHER[name](RATE.sample(s)[()]), rtol=1e-14)


@pytest.mark.parametrize("program", [gram_schmidt, normalised], ids=lambda f: f.__name__)
def test_programs_of_a_matrix_run_on_all_samples_at_once(program):
    got = program(MATRIX)
    for s in range(6):
        np.testing.assert_allclose(got.sample(s), program(MATRIX.sample(s)), rtol=1e-12)


def gauss_with_pivots(A, b):
    A, b, n = A.copy(), b.copy(), len(b)
    for k in range(n):
        p = k + np.argmax(np.abs(A[k:, k]))
        if p != k:
            A[[k, p]] = A[[p, k]]
            b[[k, p]] = b[[p, k]]
        for i in range(k + 1, n):
            m = A[i, k] / A[k, k]
            A[i, k:] -= m * A[k, k:]
            b[i] -= m * b[k]
    x = np.zeros_like(b)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return x


def test_an_elimination_with_pivots_chooses_them_sample_by_sample():
    result = run(gauss_with_pivots, MATRIX, SIDE).raise_if_failed()
    for s in range(6):
        np.testing.assert_array_equal(result.sample(s), gauss_with_pivots(MATRIX.sample(s), SIDE))
    assert result.n_runs < 2 * len(result.groups)


def test_empty_ensembles_are_no_special_case():
    x = Ensemble(np.zeros((0, 3)))
    assert (x.shape, x.size, len(x), list(x)) == ((0,), 0, 0, [])
    assert (x + 1.0).shape == x[::-1].shape == np.sin(x).shape == x[x > 0].shape == x.copy().shape == (0,)
    np.testing.assert_array_equal(x.sum().samples, [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(norm(x).samples, [0.0, 0.0, 0.0])
    assert np.concatenate([x, np.ones(2)]).shape == (2,)
    assert sample_mean(x).shape == (0,)
    assert sample_quantile(x, [0.1, 0.5]).shape == (2, 0)
    assert sample_cov(x).shape == (0, 0)
    assert bool(x.all())
    with pytest.raises(ValueError, match="zero-size array"):
        x.max()


def test_tasks_have_their_own_policy():
    mask = RATE > 1.0

    async def ask(policy):
        with divergence(policy):
            await asyncio.sleep(0.0)
            return bool(mask)

    async def both():
        return await asyncio.gather(*(ask(policy) for policy in ("any", "all", "any", "all")))

    assert asyncio.run(both()) == [True, False, True, False]
