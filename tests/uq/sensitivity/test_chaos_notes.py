"""Notes of polynomial chaos: an expansion that is not the model says so at every degree, and one that is does not."""

import warnings

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import xp

PI = np.pi


def mixed():
    return en.Inputs(a=stats.norm(), b=stats.uniform())


def uniform(n, low, high):
    return en.Inputs(**{f"x{i}": stats.uniform(low, high - low) for i in range(n)})


def additive(a, b):
    shares = np.array([a, b]) / (a + b)
    return shares, shares


def variance(f):
    return np.var(f((np.arange(200_000) + 0.5) / 200_000))


def product(squares):
    """Indices of a product of independent factors with these squared coefficients of variation."""
    total = np.prod(1.0 + squares) - 1.0
    return squares / total, squares * np.prod(1.0 + squares) / (1.0 + squares) / total


def lognormals(*deviations):
    return product(np.expm1(np.square(deviations)))


def ishigami(x):
    return xp.sin(x.x0) + 7.0 * xp.sin(x.x1) ** 2 + 0.1 * x.x2**4 * xp.sin(x.x0)


def of_ishigami():
    one, two, third = 0.5 * (1.0 + 0.1 * PI**4 / 5.0) ** 2, 49.0 / 8.0, 0.01 * PI**8 * (1.0 / 18.0 - 1.0 / 50.0)
    total = one + two + third
    return np.array([one, two, 0.0]) / total, np.array([one + third, two, third]) / total


def g_function(x):
    y = 1.0
    for i, a in enumerate((0.0, 1.0, 4.5)):
        y = y * (abs(4.0 * x[f"x{i}"] - 2.0) + a) / (1.0 + a)
    return y


def borehole(x):
    ratio = xp.log(x.r / x.rw)
    fall = 2.0 * PI * x.Tu * (x.Hu - x.Hl)
    return fall / (ratio * (1.0 + 2.0 * x.L * x.Tu / (ratio * x.rw**2 * x.Kw) + x.Tu / x.Tl))


def well():
    return en.Inputs(
        rw=stats.norm(0.1, 0.0161812), r=stats.lognorm(1.0056, scale=np.exp(7.71)), Tu=stats.uniform(63070.0, 52530.0),
        Hu=stats.uniform(990.0, 120.0), Tl=stats.uniform(63.1, 52.9), Hl=stats.uniform(700.0, 120.0),
        L=stats.uniform(1120.0, 560.0), Kw=stats.uniform(9855.0, 2190.0),
    )  # fmt: skip


EXACT = {
    "step": (mixed, lambda x: xp.where(x.b > 0.5, 1.0, 0.0), (np.array([0.0, 1.0]),) * 2),
    "late step": (mixed, lambda x: xp.where(x.b > 0.9, 1.0, 0.0) + 0.3 * x.a, additive(0.09, 0.09)),
    "step in a tail": (
        mixed, lambda x: xp.where(x.a > 1.0, 1.0, 0.0) + 0.3 * x.b,
        additive(stats.norm.cdf(1.0) * stats.norm.sf(1.0), 0.09 / 12.0),
    ),
    "kink": (
        mixed, lambda x: xp.maximum(x.b - 0.5, 0.0 * x.b) + 0.1 * x.a,
        additive(0.01, variance(lambda b: np.maximum(b - 0.5, 0.0))),
    ),
    "wave": (
        mixed, lambda x: xp.sin(20.0 * x.b) + 0.2 * x.a, additive(0.04, variance(lambda b: np.sin(20.0 * b))),
    ),
    "bump": (
        mixed, lambda x: xp.exp(-200.0 * (x.b - 0.3) ** 2) + 0.1 * x.a,
        additive(0.01, variance(lambda b: np.exp(-200.0 * (b - 0.3) ** 2))),
    ),
    "ishigami": (lambda: uniform(3, -PI, PI), ishigami, of_ishigami()),
    "g": (lambda: uniform(3, 0.0, 1.0), g_function, product(1.0 / (3.0 * (1.0 + np.array([0.0, 1.0, 4.5])) ** 2))),
    "lognormal": (
        lambda: en.Inputs(a=stats.norm(), b=stats.norm()), lambda x: xp.exp(x.a + 0.3 * x.b), lognormals(1.0, 0.3),
    ),
}  # fmt: skip
"""Inputs, function, and its first and total indices."""


def expansion_of(inputs, f, n, seed, degree):
    """The expansion; its warnings are its notes."""
    samples = inputs.samples(n, seed=seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = en.uq.chaos(inputs, samples, {"y": f(samples)}, degree=degree)
    said = [str(one.message) for one in caught if "condition number" not in str(one.message)]
    assert said == [f"chaos: {note}" for note in found.notes]
    return found


def errors_of(found, first, total):
    return max(np.abs(found.first["y"] - first).max(), np.abs(found.total["y"] - total).max())


@pytest.mark.parametrize("n", [64, 256, 512, 2048])
@pytest.mark.parametrize("name", EXACT)
def test_an_expansion_without_a_note_has_the_indices_of_the_model(name, n):
    make, f, (first, total) = EXACT[name]
    inputs, wrong = make(), []
    for degree in range(1, 11):
        try:
            found = expansion_of(inputs, f, n, 1, degree)
        except ValueError:  # fewer samples than terms, or too few to tell them apart
            break
        error = errors_of(found, first, total)
        if found.n_terms < n and not found.notes and error > 0.08:
            wrong.append((degree, error))
    assert wrong == []


def test_the_step_of_an_input_beside_one_without_influence_is_noted_at_every_degree():
    inputs, f, _ = EXACT["step"][0](), *EXACT["step"][1:]
    for degree in (1, 3, 5, 7, 9):
        assert expansion_of(inputs, f, 512, 1, degree).notes, degree


SMOOTH = {
    "ishigami": (*EXACT["ishigami"][:2], [(512, 8), (512, 9), (2048, 7), (2048, 10)]),
    "g": (*EXACT["g"][:2], [(512, 6), (512, 7), (2048, 5), (2048, 9)]),
    "lognormal": (*EXACT["lognormal"][:2], [(64, 5), (64, 8), (256, 4), (512, 9), (2048, 4)]),
    "borehole": (well, borehole, [(256, 2), (512, 3), (2048, 2)]),
    "linear": (mixed, lambda x: x.a + 3.0 * x.b, [(8, 1), (64, 1), (64, 9), (256, 12), (2048, 3)]),
    "smooth": (mixed, lambda x: xp.exp(x.b) + xp.sin(x.a), [(64, 4), (64, 9), (256, 3), (256, 12), (2048, 5)]),
    "offset": (mixed, lambda x: 1e6 + x.a * x.b, [(64, 2), (64, 7), (512, 9)]),
    "kink": (*EXACT["kink"][:2], [(256, 3), (256, 5), (512, 6), (2048, 8)]),
    "constant": (mixed, lambda x: 0.0 * x.a + 3.0, [(64, 3), (512, 9)]),
}  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions_at_an_adequate_degree_have_no_note(name, seed):
    make, f, cases = SMOOTH[name]
    inputs = make()
    assert [(n, degree) for n, degree in cases if expansion_of(inputs, f, n, seed, degree).notes] == []


def test_a_note_says_how_much_is_missed_and_in_how_many_entries():
    inputs = mixed()
    samples = inputs.samples(512, seed=1)
    field = en.Ensemble(np.stack([np.where(samples.b.samples > 0.5, 1.0, 0.0), samples.a.samples]))
    with pytest.warns(UserWarning, match=r"the expansion misses 0\.1\d of the variance in 1 of 2 entries, at most"):
        found = en.uq.chaos(inputs, samples, {"y": field}, degree=3)
    assert len(found.notes) == 1 and "may be off by as much" in found.notes[0]
