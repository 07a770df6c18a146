"""The law over the whole table: a sample of the result is the result of the sample."""

import importlib.util
import pickle

import array_api_compat
import array_api_strict
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble._backend import to_numpy
from ensemble.scalar import DivergenceError, Ensemble, SampleSet, namespace
from ensemble.scalar.lift.table import FFT, LINALG, TABLE
from ensemble.scalar.namespace import CONSTANTS, DTYPES
from tests.scalar.law_cases import ALL_CASES, CASES, FFT_CASES, LINALG_CASES, check_law
from tests.scalar.libraries import double_precision

NOT_ON_ARRAYS = {
    *(*CONSTANTS, *DTYPES, "linalg", "fft", "special", "__array_namespace_info__"),
    *("broadcast_shapes", "can_cast", "finfo", "iinfo", "isdtype", "result_type"),
}
MISSING = {"strict": {"eig", "eigvals"}, "torch": {"unique_all"}, "jax": set(), "cupy": set()}


SHARED = st.sampled_from(["", "a", "b"])


INDEPENDENT = {"zeros_like", "ones_like", "empty_like", "full_like"}
"""Functions whose results do not depend on the values of their arguments."""


def next_sample(x):
    """What a leak of one sample into another would give."""
    return Ensemble(np.roll(x.samples, 1, axis=-1))


@pytest.mark.parametrize("place, cases", [("", CASES), ("linalg", LINALG_CASES), ("fft", FFT_CASES)])
def test_the_law_is_able_to_fail_for_every_function(place, cases):
    blind = {case.name for case in cases} - INDEPENDENT
    for case in cases:
        try:
            check_law(np, case, place, seed=90823, n_samples=3, shared="", mixed=next_sample)
        except AssertionError:
            blind.discard(case.name)
    assert blind == set()


@pytest.mark.parametrize("case, extension", ALL_CASES)
@settings(max_examples=5, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), n_samples=st.sampled_from([1, 2, 5]), shared=SHARED)
def test_a_sample_sees_only_itself_on_numpy(case, extension, seed, n_samples, shared):
    check_law(np, case, extension, seed, n_samples, shared)


@pytest.mark.parametrize("case, extension", [p for p in ALL_CASES if p.values[0].name not in MISSING["strict"]])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), n_samples=st.sampled_from([1, 3]), shared=SHARED)
def test_a_sample_sees_only_itself_on_a_strict_library(case, extension, seed, n_samples, shared):
    check_law(array_api_strict, case, extension, seed, n_samples, shared)


def cases_of(library):
    """All cases of what a library has; one, which is skipped, where there is no such library."""
    cases = [p for p in ALL_CASES if p.values[0].name not in MISSING[library]]
    return cases if importlib.util.find_spec(library) else cases[:1]


# XLA compiles every function for every shape, which takes a minute: every fourth case always, all with the slow tests.
OTHER_LIBRARIES = [
    *(pytest.param("torch", *p.values, id=f"torch-{p.id}") for p in cases_of("torch")),
    *(
        pytest.param("jax", *p.values, id=f"jax-{p.id}", marks=[pytest.mark.slow] if k % 4 else [])
        for k, p in enumerate(cases_of("jax"))
    ),
    *(pytest.param("cupy", *p.values, id=f"cupy-{p.id}", marks=pytest.mark.cuda) for p in ALL_CASES),  # it has all
]


@pytest.mark.parametrize("library, case, extension", OTHER_LIBRARIES)
def test_a_sample_sees_only_itself_on_other_libraries(library, case, extension):
    with double_precision(library) as base:
        check_law(base, case, extension, seed=90823, n_samples=3, shared="")


def test_every_function_has_a_case():
    assert {case.name for case in CASES} == set(TABLE) - NOT_ON_ARRAYS
    assert {case.name for case in LINALG_CASES} == set(LINALG)
    assert {case.name for case in FFT_CASES} == set(FFT)


def test_nothing_of_the_standard_is_missing():
    own = {"Device", "ArrayAPIStrictFlags", "__version__"}
    names = {name for name in array_api_strict.__all__ if "_flags" not in name} - own
    assert {name for name in names if not hasattr(namespace(np), name)} == set()


@pytest.mark.parametrize("n_samples", [1, 7])
def test_allocations_have_the_samples_of_the_namespace(base, n_samples):
    xp = namespace(base, n_samples)
    assert {xp.zeros(2).n_samples, xp.full((), 3.0).n_samples, xp.ones_like(xp.eye(2)).n_samples} == {n_samples}


def test_full_takes_one_value_a_sample(base):
    fill = Ensemble(base.asarray([1.0, 2.0, 3.0]))
    x = namespace(base, 3).full((2, 2), fill)
    np.testing.assert_array_equal(to_numpy(x[1, 0].samples), [1.0, 2.0, 3.0])
    x[0, 0] = 9.0  # memory of its own
    assert namespace(base).full_like(x, fill).samples[0, 0, 2] == 3.0
    with pytest.raises(ValueError, match=r"full: fill_value must broadcast to shape \(2,\); got shape \(2, 2\)"):
        namespace(base).full(2, x)


def test_numbers_of_each_sample_span_their_own_line(base):
    stop = Ensemble(base.asarray([1.0, 2.0]))
    x = namespace(base).linspace(0.0, stop, 3)
    np.testing.assert_array_equal(to_numpy(x.samples), [[0.0, 0.0], [0.5, 1.0], [1.0, 2.0]])
    nested = namespace(base).asarray([stop, 0.5])
    np.testing.assert_array_equal(to_numpy(nested.samples), [[1.0, 2.0], [0.5, 0.5]])


def test_descriptions_of_data_are_shared(base):
    xp = namespace(base, 7)
    assert all(x.is_shared for x in (xp.asarray([1.0]), xp.arange(3), xp.linspace(0, 1, 3), xp.eye(2)))


def test_shared_stays_shared(base):
    xp = namespace(base, 7)
    a = xp.asarray([[2.0, 1.0], [1.0, 3.0]])
    for result in (a + 1.0, a @ a, xp.linalg.inv(a), xp.sum(a), xp.sort(a), a[0], xp.reshape(a, -1), xp.exp(a) > 2.0):
        assert result.is_shared


def test_a_shared_matrix_is_not_copied_for_its_product(monkeypatch):
    a = Ensemble(np.ones((6, 6, 1)))
    x = Ensemble(np.ones((6, 50)))
    seen = []
    base = namespace(np).base
    monkeypatch.setattr(base, "matmul", lambda p, q: seen.append((p.shape, q.shape)) or np.matmul(p, q))
    _ = a @ x
    assert seen == [((6, 6), (6, 50))]


def test_namespaces_are_kept():
    assert namespace(np, 3) is namespace(np, 3) is Ensemble(np.zeros((2, 3))).__array_namespace__()
    assert namespace(namespace(np, 3), 1) is namespace(np)


def test_namespaces_of_one_library_are_equal_as_shared_data_mixes():
    assert len({namespace(np, 3), namespace(np), namespace(np, 3).linalg}) == 2
    assert namespace(np) != namespace(array_api_strict)


def test_n_samples_must_be_a_count():
    with pytest.raises(ValueError, match="namespace: n_samples must be an integer of at least 1; got 0"):
        namespace(np, 0)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(namespace(np), "sinus")


def test_an_unknown_version_is_refused(x):
    x.__array_namespace__(api_version="2023.12")
    with pytest.raises(ValueError, match=r"api_version must be one of '2021\.12'"):
        x.__array_namespace__(api_version="1999.01")


@pytest.mark.parametrize("version, kind", [("2024.12", list), ("2025.12", tuple)])
def test_older_versions_of_the_standard_give_lists(version, kind, x):
    xp = x.__array_namespace__(api_version=version)
    assert xp is namespace(xp.base, 5, api_version=version)
    assert xp.__array_api_version__ == xp.linalg.__array_api_version__ == version
    found = (xp.meshgrid(x, x), xp.broadcast_arrays(x, x), xp.__array_namespace_info__().devices())
    assert {type(part) for part in found} == {kind}
    assert pickle.loads(pickle.dumps(namespace(np, 5, api_version=version))).__array_api_version__ == version
    with pytest.raises(ValueError, match=r"namespace: api_version must be one of '2021\.12'"):
        namespace(np, api_version="2030.12")


def test_shared_and_wide_data_have_one_namespace(x):
    shared_x = Ensemble(x.samples[..., :1])
    for arrays in ((shared_x, x), (x, shared_x)):
        assert array_api_compat.array_namespace(*arrays) == x.__array_namespace__()


def test_the_sample_axis_has_no_number(x):
    xp = x.__array_namespace__()
    with pytest.raises(IndexError, match="sum: axis must be from -1 to 0; got 1"):
        xp.sum(x, axis=1)


def test_reshape_solves_for_the_visible_size(matrix):
    xp = matrix.__array_namespace__()
    assert xp.reshape(matrix, -1).shape == (12,)
    with pytest.raises(ValueError, match="reshape: shape must hold the 12 entries of x"):
        xp.reshape(matrix, (5, -1))


def test_shapes_that_depend_on_data_need_agreement(base):
    x = Ensemble(base.asarray([[1.0, 1.0], [2.0, 1.0]]))
    xp = x.__array_namespace__()
    with pytest.raises(DivergenceError, match=r"shape of unique_values\(x\) must be the same for all samples"):
        xp.unique_values(x)
    with pytest.raises(DivergenceError, match=r"shape of nonzero\(x\)"):
        xp.nonzero(x - 1.0)
    with pytest.raises(DivergenceError, match=r"shape of repeat\(x\)"):
        xp.repeat(x, xp.astype(x, xp.int64))
    turned = xp.repeat(xp.asarray([5.0, 6.0]), Ensemble(base.asarray([[1, 2], [2, 1]])))
    np.testing.assert_array_equal(to_numpy(turned.samples), [[5.0, 5.0], [6.0, 5.0], [6.0, 6.0]])


def test_one_singular_sample_leaves_the_others_alone(base):
    a = np.stack([np.eye(2), np.zeros((2, 2)), 2 * np.eye(2)], axis=-1)
    a = Ensemble(base.asarray(a))
    xp = a.__array_namespace__()
    if base.__name__.startswith(("jax", "cupy")):  # which never raise: the singular sample is not finite
        x = xp.linalg.solve(a, xp.ones(2))
        np.testing.assert_array_equal(to_numpy(x.samples)[:, [0, 2]], [[1.0, 0.5]] * 2)
        assert not np.any(np.isfinite(to_numpy(x.samples)[:, 1]))
        return
    with pytest.warns(RuntimeWarning, match=r"solve: x must be fit .* 1 of 3, sample 1 .* NaN"):
        x = xp.linalg.solve(a, xp.ones(2))
    np.testing.assert_array_equal(to_numpy(x.samples), [[1.0, np.nan, 0.5]] * 2)


def test_matrices_singular_in_every_sample_raise():
    a = Ensemble(np.zeros((2, 2, 3)))
    with pytest.raises(np.linalg.LinAlgError):
        a.__array_namespace__().linalg.inv(a)


def test_different_numbers_of_samples_do_not_mix(base):
    a, b = Ensemble(base.ones((2, 3))), Ensemble(base.ones((2, 4)))
    xp = a.__array_namespace__()
    for call in (
        lambda: a + b,
        lambda: xp.add(a, b),
        lambda: xp.where(a > 0, a, b),
        lambda: xp.concat([a, b]),
        lambda: xp.vecdot(a, b),
        lambda: xp.matmul(a, b),
    ):
        with pytest.raises(ValueError, match="operands must have one number of samples, or be shared; got 3 and 4"):
            call()


def test_special_functions_are_lifted(base):
    xp = namespace(base)
    if base.__name__ == "array_api_strict":
        assert not hasattr(xp, "special")
        return
    values = np.random.default_rng(33151).uniform(0.5, 3.0, size=(3, 4))
    x = Ensemble(base.asarray(values), SampleSet(n_samples=4))
    for name in ("erf", "gammaln", "i0e"):
        got = getattr(xp.special, name)(x)
        assert got.sample_set is x.sample_set
        # 1e-12: libraries have approximations of their own
        np.testing.assert_allclose(to_numpy(got.samples), getattr(scipy.special, name)(values), rtol=1e-12)
    np.testing.assert_allclose(
        to_numpy(xp.special.xlogy(base.asarray([1.0, 2.0, 3.0]), x).samples),
        scipy.special.xlogy([[1.0], [2.0], [3.0]], values),
        rtol=1e-12,
    )
    with pytest.raises(AttributeError, match="special has no elementwise function 'softmax'"):
        xp.special.softmax  # noqa: B018


def test_finfo_speaks_python(base):
    xp = namespace(base)
    assert type(xp.finfo(xp.float32).eps) is float
    assert xp.finfo(xp.asarray([1.0])).bits == 64
    assert xp.iinfo(xp.int8).max == 127
    assert type(xp.__array_namespace_info__().devices()) is tuple


def test_a_foreign_argument_is_a_type_error():
    with pytest.raises(TypeError, match="sin: x must be an Ensemble or an array; got a str"):
        namespace(np).sin("one")
