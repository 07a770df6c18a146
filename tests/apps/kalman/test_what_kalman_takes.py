"""Wrong arguments of every public function: one clear error that names the argument; unusual good ones: the answer."""

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble.apps.kalman import (
    LinearGaussianModel,
    NonlinearGaussianModel,
    Sengupta,
    extended_kalman_smoother,
    iterated_smoother,
    kalman_filter,
    log_likelihood,
    maximum_likelihood,
    prefix_scan,
    rts_smoother,
    sample_posterior,
    split_series,
    two_filter_smoother,
    unscented_kalman_smoother,
)
from ensemble.scalar import Ensemble
from tests.apps.kalman.models import random_parts, with_gaps
from tests.walked import every

PARTS = {"F": np.eye(2), "Q": np.eye(2), "H": np.eye(2), "R": np.eye(2), "m0": np.zeros(2), "P0": np.eye(2)}
Y = np.arange(8.0).reshape(4, 2)
MODEL = LinearGaussianModel(**PARTS)


def curved(**changes):
    given = {"f": lambda x, k, xp: (xp.sin(x[0]), x[1]), "h": lambda x, k, xp: x, "Q": np.eye(2), "R": np.eye(2),
             "m0": np.zeros(2), "P0": np.eye(2)}  # fmt: skip
    return NonlinearGaussianModel(**{**given, **changes})


def walk(theta):
    return LinearGaussianModel(**{**PARTS, "Q": theta[0] * np.eye(2)})


CALLS = {
    "LinearGaussianModel": lambda **o: LinearGaussianModel(**{**PARTS, **o}),
    "NonlinearGaussianModel": curved,
    "kalman_filter": lambda model=MODEL, y=Y, **o: kalman_filter(model, y, **o),
    "rts_smoother": lambda model=MODEL, y=Y, **o: rts_smoother(model, y, **o),
    "two_filter_smoother": lambda model=MODEL, y=Y, **o: two_filter_smoother(model, y, **o),
    "split_series": lambda model=MODEL, y=Y, **o: split_series(model, y, **{"devices": [None], **o}),
    "sample_posterior": lambda model=MODEL, y=Y, n_samples=2, **o: sample_posterior(model, y, n_samples, **o),
    "iterated_smoother": lambda y=Y, **o: iterated_smoother(curved(), y, **o),
    "maximum_likelihood": lambda **o: maximum_likelihood(**{"model_of": walk, "y": Y, "start": [1.0], **o}),
    "prefix_scan": lambda op=lambda a, b: (a[0] + b[0],), elements=(Y,), **o: prefix_scan(op, elements, **o),
}


def lifted(n, shape=(2, 2)):
    return Ensemble(np.stack([(1.0 + i) * np.eye(2) for i in range(n)], -1)[: shape[0], : shape[1]])


OBJECTS, WORDS, UNEVEN = np.array([[object()] * 2] * 4), np.array([["a", "b"]] * 4), [[1.0], [1.0, 2.0]]

COMMON = [
    ({"y": bad}, TypeError, "y must be") for bad in (None, "abc", {}, OBJECTS, WORDS, UNEVEN, 1j * Y, len)
] + [
    ({"y": 3.0}, ValueError, "y must have shape"),
    ({"y": Y[:, 0]}, ValueError, "y must have shape"),
    ({"y": Y[:0]}, ValueError, "y must hold one observation"),
    ({"y": np.zeros((4, 0))}, ValueError, "y must have shape"),
    ({"y": np.where(Y == 3.0, np.inf, Y)}, ValueError, "y must be finite, or NaN where missing; got infinity"),
    ({"y": np.where(Y == 3.0, -np.inf, Y).tolist()}, ValueError, "y must be finite, or NaN where missing"),
    ({"mask": UNEVEN}, TypeError, "mask must be"),
    ({"mask": "abc"}, TypeError, "mask must be"),
    ({"mask": 3}, ValueError, "mask must hold bools"),
    ({"mask": True}, ValueError, "mask must have the shape of y"),
    ({"mask": np.zeros((3, 4, 2), bool)}, ValueError, "mask must have the shape of y"),
    ({"mask": Ensemble(np.zeros((4, 2, 5), bool)), "y": Ensemble(np.zeros((4, 2, 3)))}, ValueError,
     "Ensembles must have one number of samples; got y: 3, mask: 5"),
]  # fmt: skip

LINEAR = [
    ({"model": 3}, TypeError, "model must be a LinearGaussianModel; got an int"),
    ({"model": curved()}, TypeError, "model must be a LinearGaussianModel"),
    ({"model": CALLS["LinearGaussianModel"](R=lifted(3)), "y": Ensemble(np.zeros((4, 2, 5)))}, ValueError,
     "Ensembles must have one number of samples; got model: 3, y: 5"),
    ({"y": array_api_strict.asarray(Y)}, TypeError, "model, y and mask must be of one array library"),
]  # fmt: skip

METHODS = [
    *(({"method": bad}, ValueError, "method must be one of") for bad in (None, 3, "fast", Y, ["scan"])),
    *(({"scan": bad}, ValueError, "scan must be one of") for bad in (None, 3, "fast", Y)),
]

ODD = np.array([[1.0, 2.0], [2.0, 1.0]])  # eigenvalues -1 and 3

HALF = {name: a.astype(np.float16) for name, a in PARTS.items()}

BAD = {
    "LinearGaussianModel": [
        *(({name: bad}, TypeError, f"{name} must be") for name in ("F", "m0") for bad in (OBJECTS, WORDS, "a", {})),
        ({"u": WORDS}, TypeError, "u must be"),
        ({"H": np.zeros((0, 2)), "R": np.zeros((0, 0))}, ValueError, "H must have one row or more"),
        ({"F": np.zeros((0, 0))}, ValueError, "F must have one row or more"),
        ({"prior_at": Y}, ValueError, "prior_at must be one of"),
        *(({name: ODD}, ValueError, f"{name} must be positive semidefinite; got the eigenvalue -1,")
          for name in ("Q", "R", "P0")),
        ({"Q": ODD.astype(np.float32)}, ValueError, "Q must be positive semidefinite; got the eigenvalue -1,"),
        ({"Q": np.stack([np.eye(2), ODD, np.eye(2)])}, ValueError, "Q must be .* the eigenvalue -1 at step 1,"),
        ({"Q": np.stack([np.eye(2)] * 300 + [ODD])}, ValueError, "Q must be .* the eigenvalue -1 at step 300,"),
        ({"R": Ensemble(np.stack([np.eye(2), 2 * ODD], -1))}, ValueError, "R must be .* eigenvalue -2 in sample 1,"),
        ({"P0": np.zeros((2, 2)) - 1e-3 * (1 - np.eye(2))}, ValueError, "P0 must be .* the eigenvalue -0.001"),
        ({"Q": np.ma.array(np.eye(2), mask=np.eye(2))}, ValueError, "Q must have no masked entries; got 2 of them"),
        ({"Q": lifted(3), "R": lifted(5)}, ValueError, "Ensembles must have one number of samples; got Q: 3, R: 5"),
    ],
    "NonlinearGaussianModel": [
        *(({name: bad}, TypeError, f"{name} must be") for name in ("Q", "R") for bad in (None, OBJECTS, "a")),
        *(({name: 3.0}, ValueError, f"{name} must be square") for name in ("Q", "R")),
        *(({name: 3}, TypeError, f"{name} must be callable") for name in ("f", "h", "f_jacobian", "h_jacobian")),
    ],
    "kalman_filter": [
        *COMMON, *LINEAR, *METHODS,
        *(({"mean_dtype": bad}, ValueError, "mean_dtype must be") for bad in (3, int, Y, np.asarray(1.0), "float16")),
        ({"model": LinearGaussianModel(**HALF), "y": Y.astype(np.float16), "method": "scan"}, TypeError,
         "model and y must be of float32 or float64 for a scan"),
    ],
    "rts_smoother": [*COMMON, *LINEAR, *METHODS],
    "two_filter_smoother": [
        *COMMON, *LINEAR, *METHODS,
        ({"method": "sequential"}, ValueError, "method must be one of 'scan', 'auto'.*Use rts_smoother"),
        ({"form": "square_root"}, ValueError, "form must be one of 'covariance'.*Use rts_smoother"),
        ({"model": LinearGaussianModel(**HALF), "y": Y.astype(np.float16)}, TypeError, "model and y must be of"),
    ],
    "split_series": [*COMMON, *LINEAR],
    "sample_posterior": [
        *COMMON, *LINEAR[:2], *METHODS,
        *(({"seed": bad}, TypeError, "seed must be") for bad in (-1, 0.5, "a", [1.0], Y)),
        *(({"n_samples": bad}, TypeError, "n_samples must be") for bad in (None, 0.5, "a", True)),
        ({"n_samples": 0}, ValueError, "n_samples must be"),
    ],
    "iterated_smoother": [
        *COMMON, *METHODS,
        *(({"x0": bad}, TypeError, "x0 must be") for bad in ("a", UNEVEN, OBJECTS, {}, 1j * Y)),
        ({"x0": Y[:3]}, ValueError, "x0 must have shape"),
    ],
    "maximum_likelihood": [
        *(case for case in COMMON if not isinstance(case[0].get("y"), Ensemble)),
        ({"model_of": 3}, TypeError, "model_of must be callable"),
        ({"model_of": lambda theta: 3}, TypeError, "model_of must return a LinearGaussianModel"),
        ({"y": Ensemble(np.zeros((4, 2, 5)))}, TypeError, "y must be a plain array; got an Ensemble"),
        *(({"start": bad}, TypeError, "start must be") for bad in ("a", UNEVEN, OBJECTS, {}, 1j * Y)),
        ({"start": [1.0], "bounds": 3}, ValueError, "bounds must be 1 pairs"),
        ({"start": [1.0], "bounds": [("a", None)]}, ValueError, "bounds must hold numbers or None"),
        ({"start": [1.0], "bounds": [(3.0, 1.0)]}, ValueError, "bounds must hold pairs with low < high"),
    ],
    "prefix_scan": [
        *(({"op": bad}, TypeError, "op must be callable") for bad in (None, 3, Y)),
        ({"op": lambda a, b: a[0] + b[0]}, TypeError, "op must return a tuple of 1 arrays; got an ndarray"),
        ({"op": lambda a, b: (*a, *b)}, TypeError, "op must return a tuple of 1 arrays; got 2 arrays"),
        *(({"algorithm": bad}, ValueError, "algorithm must be one of") for bad in (None, 3, Y)),
        *(({"algorithm": "blelloch", "identity": bad}, ValueError, "identity must be a tuple of 1 arrays")
          for bad in (3, (), (0.0, 0.0))),
    ],
}  # fmt: skip


@every(
    "name, options, kind, match",
    [(name, *case) for name, cases in BAD.items() for case in cases],
)
def test_bad_arguments_are_named(name, options, kind, match):
    function = "maximum_likelihood|kalman_filter" if name == "maximum_likelihood" else name
    inner = "|LinearGaussianModel" if name == "NonlinearGaussianModel" else ""
    with pytest.raises(kind, match=f"^({function}{inner}): {match}"):
        CALLS[name](**options)


def test_functions_of_a_model_must_give_components():
    for f, seen in ((lambda x, k, xp: None, "None"), (lambda x, k, xp: x[:1], "1")):
        with pytest.raises(
            (TypeError, ValueError), match=f"NonlinearGaussianModel: f must give 2 components; got {seen}"
        ):
            iterated_smoother(curved(f=f), Y)
    with pytest.raises(ValueError, match="each row of f_jacobian must give 2 components; got 1"):
        iterated_smoother(curved(f_jacobian=lambda x, k, xp: ((1.0,), (0.0,))), Y)


FORMS = {
    "recursion": lambda *a, **o: rts_smoother(*a, method="sequential", **o),
    "square_root": lambda *a, **o: rts_smoother(*a, form="square_root", **o),
    "chunked": lambda *a, **o: rts_smoother(*a, method="scan", **o),
    "two": lambda *a, **o: two_filter_smoother(*a, scan="blelloch", **o),
}


def spoiled(a, how):
    """The same numbers in an array that is read-only, not contiguous, runs backwards, or is not aligned."""
    if how == "read_only":
        a = a.copy()
        a.flags.writeable = False
        return a
    if how == "strided":
        return np.repeat(np.repeat(a, 2, axis=0)[::2], 3, axis=-1)[..., ::3]
    if how == "backwards":
        return np.ascontiguousarray(a[::-1])[::-1]
    if how == "fortran":
        return np.asfortranarray(a)
    store = np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)
    store[...] = a
    return store


@pytest.mark.parametrize("how", ["read_only", "strided", "backwards", "fortran", "unaligned"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch", [(), (4,)])
def test_how_arrays_lie_in_memory_changes_nothing(form, how, batch):
    parts, y = random_parts(9, 3, 2, batch=batch)
    y = with_gaps(y)
    expected = FORMS[form](LinearGaussianModel(**parts), y)
    before = {name: a.copy() for name, a in parts.items()}
    odd = {name: spoiled(a, how) for name, a in parts.items()}
    got = FORMS[form](LinearGaussianModel(**odd), spoiled(y, how))
    for attribute in ("mean", "covariance", "log_likelihoods"):
        np.testing.assert_allclose(getattr(got, attribute), getattr(expected, attribute), rtol=1e-12, atol=1e-12)
    assert all(np.array_equal(odd[name], before[name]) for name in odd)


@pytest.mark.parametrize("form", FORMS)
def test_narrow_and_wide_numbers_mix(form):
    """The widest type of all parts holds, as it does for plain arithmetic."""
    parts, y = random_parts(7, 2, 2)
    mixed = {name: a.astype(np.float32 if k % 2 else np.float64) for k, (name, a) in enumerate(parts.items())}
    expected = FORMS[form](LinearGaussianModel(**{n: a.astype(np.float64) for n, a in mixed.items()}), y)
    got = FORMS[form](LinearGaussianModel(**mixed), y)
    assert got.mean.dtype == np.float64
    np.testing.assert_array_equal(got.mean, expected.mean)
    whole = FORMS[form](LinearGaussianModel(**{**mixed, "H": [[1, 0], [0, 1]]}), np.rint(y).astype(int).tolist())
    again = FORMS[form](LinearGaussianModel(**{**mixed, "H": np.eye(2)}), np.rint(y))
    np.testing.assert_array_equal(whole.covariance, again.covariance)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(0, 4, 2), (2, 0, 4, 2)])
def test_no_series_at_all(form, shape):
    got = FORMS[form](MODEL, np.zeros(shape))
    assert got.mean.shape == shape and got.covariance.shape == (*shape, 2)
    assert got.log_likelihood.shape == shape[:-2]


@given(
    prior_at=st.sampled_from(["before", "first_observation"]),
    constant=st.sets(st.sampled_from(["F", "Q", "H", "R", "u", "d"])),
    single=st.sets(st.sampled_from(["F", "Q", "H", "R", "u", "d", "m0", "P0"])),
    samples=st.sets(st.sampled_from(["F", "H", "u", "d", "m0", "y"])),
    form=st.sampled_from(["recursion", "chunked", "two"]),
    seed=st.integers(0, 999),
)
def test_time_batches_and_samples_at_once_are_scalar_runs(prior_at, constant, single, samples, form, seed):
    """Any part constant or not, of each series or of all, an Ensemble or not; masks, gaps, both priors."""
    B, T, S = 2, 5, 3
    parts, y = random_parts(T, 2, 2, seed, batch=(B,))
    y, mask = with_gaps(y, seed), np.random.default_rng(seed).random((B, T)) < 0.2
    for name in constant:
        parts[name] = parts[name][:, :1]
    for name in single:
        parts[name] = parts[name][:1]
    scale = Ensemble(np.array([1.0, 0.5, 1.25]))
    both = {**parts, "y": y}
    mixed = {name: scale * a if name in samples else a for name, a in both.items()}
    got = FORMS[form](LinearGaussianModel(**{n: a for n, a in mixed.items() if n != "y"}, prior_at=prior_at),
                      mixed["y"], mask=mask)  # fmt: skip
    assert isinstance(got.mean, Ensemble) == bool(samples)
    for b in range(B):
        for s in range(S if samples else 1):
            one = {n: (scale.sample(s) * a if n in samples else a)[b if a.shape[0] > 1 else 0] for n, a in both.items()}
            alone = FORMS[form](LinearGaussianModel(**{n: a for n, a in one.items() if n != "y"}, prior_at=prior_at),
                                one["y"], mask=mask[b])  # fmt: skip
            for attribute in ("mean", "covariance", "log_likelihoods", "log_likelihood"):
                value = getattr(got, attribute)
                value = (value.sample(s) if samples else value)[b]
                if form == "recursion":
                    np.testing.assert_array_equal(value, getattr(alone, attribute))
                else:
                    np.testing.assert_allclose(value, getattr(alone, attribute), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scan", ["hillis_steele", "blelloch", "ladner_fischer", "sengupta"])
@pytest.mark.parametrize("part", ["u", "d", "m0", "Q", "y"])
def test_one_part_alone_differs_from_sample_to_sample(part, scan):
    """Elements that all samples share meet others that they do not, in place, too."""
    parts, y = random_parts(6, 2, 2, 3)
    both, scale = {**parts, "y": y}, Ensemble(np.array([1.0, 0.5, 1.25]))
    both[part] = scale * both[part]
    model = LinearGaussianModel(**{n: a for n, a in both.items() if n != "y"})
    for smoother in (two_filter_smoother, rts_smoother):
        options = {"scan": scan} if smoother is two_filter_smoother else {"scan": scan, "method": "scan"}
        got = smoother(model, both["y"], **options)
        for s in range(3):
            one = {n: a.sample(s) if n == part else a for n, a in both.items()}
            alone = smoother(LinearGaussianModel(**{n: a for n, a in one.items() if n != "y"}), one["y"], **options)
            np.testing.assert_allclose(got.mean.sample(s), alone.mean, rtol=1e-9, atol=1e-9)


TAKE_SCANS = {
    "kalman_filter": lambda model, y, **o: kalman_filter(model, y, **o).mean,
    "rts_smoother": lambda model, y, **o: rts_smoother(model, y, **o).mean,
    "two_filter_smoother": lambda model, y, **o: two_filter_smoother(model, y, **o).mean,
    "log_likelihood": lambda model, y, **o: log_likelihood(model, y, **o),
    "sample_posterior": lambda model, y, **o: sample_posterior(model, y, 2, seed=1, **o).samples,
    "extended_kalman_smoother": lambda model, y, **o: extended_kalman_smoother(curved(), y, **o).mean,
    "unscented_kalman_smoother": lambda model, y, **o: unscented_kalman_smoother(curved(), y, **o).mean,
    "iterated_smoother": lambda model, y, **o: iterated_smoother(curved(), y, max_iterations=2, **o).mean,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TAKE_SCANS)
def test_every_function_takes_the_threshold_of_sengupta(name):
    """One entry is "sengupta", as many as the series has are Hillis and Steele's scan, to the bit; all are right."""
    parts, y = random_parts(13, 2, 2)
    run = lambda **o: np.asarray(TAKE_SCANS[name](LinearGaussianModel(**parts), y, method="scan", **o))
    for threshold, same in ((1, "sengupta"), (14, "hillis_steele"), (10**6, "hillis_steele")):
        np.testing.assert_array_equal(run(scan=Sengupta(threshold)), run(scan=same))
    np.testing.assert_allclose(run(scan=Sengupta(4)), run(scan="sequential"), rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="scan must be one of"):
        run(scan=Sengupta)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("form", FORMS)
def test_masked_entries_of_a_masked_array_are_missing(form, dtype):
    y, mask = np.where(Y == 3.0, 10**9, Y).astype(dtype), Y == 3.0
    narrow = "float32" if dtype == "float32" else "float64"
    model = LinearGaussianModel(**{name: a.astype(narrow) for name, a in PARTS.items()})
    expected, got = FORMS[form](model, y.astype(narrow), mask=mask), FORMS[form](model, np.ma.array(y, mask=mask))
    np.testing.assert_array_equal(got.mean, expected.mean)
    np.testing.assert_array_equal(got.log_likelihood, expected.log_likelihood)
    plain = FORMS[form](model, np.ma.array(y))
    np.testing.assert_array_equal(plain.mean, FORMS[form](model, y).mean)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("lead", [(), (4,), (400,)])
def test_covariances_of_low_rank_and_of_zero_are_taken(n, lead):
    """Products of factors are semidefinite up to rounding, whatever their rank and their scale."""
    B = np.random.default_rng(52817).standard_normal((*lead, n, 1)) * 1e3 ** np.arange(n)[:, None]
    for A in (B @ B.mT, 0.0 * B @ B.mT, 1e-300 * np.ones((*lead, n, n))):
        for kind in (A, A.astype(np.float32), Ensemble(np.stack([A, 2.0 * A], -1))):
            LinearGaussianModel(F=np.eye(n), Q=kind, H=np.eye(n), R=np.eye(n), m0=np.zeros(n), P0=np.eye(n))


@pytest.mark.parametrize(
    "y, match",
    [
        (np.zeros((2, 7)), r"y must have shape \(..., 5, 2\); got shape \(2, 7\). Time is the first axis of a series"),
        (np.zeros((7, 2)), r"y must have 5 steps as the model has; got 7 steps.$"),
        (np.zeros((7, 3)), r"y must have shape \(..., 5, 2\); got shape \(7, 3\). The model has ny = 2"),
    ],
)
def test_a_wrong_number_of_steps_is_called_that(y, match):
    model = LinearGaussianModel(**{**PARTS, "F": np.zeros((5, 2, 2))})
    with pytest.raises(ValueError, match=f"^kalman_filter: {match}") as caught:
        kalman_filter(model, y)
    assert "batch" not in str(caught.value)
    with pytest.raises(ValueError, match=r"Use y\[:, None\]|use y\[:, None\]"):
        kalman_filter(LinearGaussianModel([[1.0]], [[1.0]], [[1.0]], [[1.0]], [0.0], [[1.0]]), np.zeros(4))
