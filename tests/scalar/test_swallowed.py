"""Handlers that catch a DivergenceError without naming it: a warning in direct use, an error in a study."""

import asyncio
import concurrent.futures
import contextlib
import functools
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ensemble as en
from ensemble.scalar import DivergenceError, Ensemble, divergence, run

X = Ensemble(np.array([300.0, 400.0, 0.5]))


def bare(x):
    try:
        return x * 2.0 if x > 1.0 else 0.0
    except:  # noqa: E722
        return math.inf


def of_exception(x):
    try:
        return x * 2.0 if x > 1.0 else 0.0
    except Exception:
        return math.inf


def of_base_exception(x):
    try:
        return float(x)
    except (ValueError, BaseException) as error:
        note = str(error)
        return len(note)


def in_a_function_that_calls(x):
    try:
        return compared(x)
    except TypeError:
        return 0.0
    except Exception:
        return math.inf


def compared(x):
    return 1.0 if x > 1.0 else 0.0


def suppressed(x):
    with contextlib.suppress(ValueError, Exception):
        return compared(x)
    return math.inf


def on_return(x):
    y = math.inf
    try:
        y = compared(x)
    finally:
        return y  # noqa: B012


def in_a_class(x):
    class Model:
        def __init__(self, x):
            self.x = x

        def value(self):
            try:
                return compared(self.x)
            except Exception:
                return math.inf

    return Model(x).value()


def in_a_comprehension(x):
    try:
        return [compared(each) for each in (x, x)]
    except Exception:
        return math.inf


def into_an_array(x):
    y = np.zeros(2)
    try:
        y[0] = x
    except (ValueError, TypeError):
        return math.inf
    return y[0]


def like_a_table_of_properties(T, A, B, C):  # as chemicals.dippr.EQ107 has it
    try:
        return A + B * ((C / T) / math.sinh(C / T)) ** 2
    except:  # noqa: E722
        return math.inf


HIDING = [
    bare, of_exception, of_base_exception, in_a_function_that_calls, suppressed, on_return, in_a_class,
    in_a_comprehension, into_an_array, lambda x: like_a_table_of_properties(x, 33363.0, 26790.0, 2610.5),
]  # fmt: skip


@pytest.mark.parametrize("f", HIDING)
@pytest.mark.parametrize("policy", [None, "raise"])
def test_code_that_hides_a_disagreement_is_named(f, policy):
    text = r"samples must agree .*`(except|with contextlib|finally).*` at test_swallowed.py:\d+ catches .*ensemble.run"
    with pytest.warns(RuntimeWarning, match=text), divergence(policy) if policy else contextlib.nullcontext():
        f(X)


@pytest.mark.parametrize("f", HIDING)
def test_run_gives_each_sample_its_own(f):
    with warnings.catch_warnings(action="error"):
        result = run(f, X, loop=False)
    for s, v in enumerate(X.samples):
        assert result.sample(s) == f(v)


def names_it(x):
    try:
        return compared(x)
    except DivergenceError:
        return [compared(v) for v in x.samples]


def names_it_among_others(x):
    try:
        return compared(x)
    except (TypeError, en.DivergenceError):
        return 0.0


def raises_anew(x):
    try:
        return compared(x)
    except Exception as error:
        raise RuntimeError("not for ensembles") from error


def cleans_up(x):
    try:
        return compared(x)
    finally:
        x = None


def catches_something_else(x):
    try:
        return compared(x)
    except (ValueError, TypeError):
        return math.inf


def has_a_handler_elsewhere(x):
    try:
        y = 1.0
    except Exception:
        return math.inf
    with contextlib.suppress(Exception):
        y = y + 1.0
    return compared(x) + y


def agrees(x):
    try:
        return 1.0 if x > -1.0 else 0.0
    except Exception:
        return math.inf


@pytest.mark.parametrize(
    "f",
    [
        names_it,
        names_it_among_others,
        raises_anew,
        cleans_up,
        catches_something_else,
        has_a_handler_elsewhere,
        agrees,
    ],
)
def test_code_that_shows_a_disagreement_gives_no_warning(f):
    with warnings.catch_warnings(action="error"), contextlib.suppress(DivergenceError, RuntimeError):
        f(X)


def test_a_harness_that_catches_everything_gives_no_warning():
    source = "def harness(call):\n    try:\n        call()\n    except Exception as error:\n        return error\n"
    with warnings.catch_warnings(action="error"):
        assert isinstance(harness(lambda: compared(X)), DivergenceError)
        scope = {}
        exec(source, scope)
        assert isinstance(scope["harness"](lambda: compared(X)), DivergenceError)


def harness(call):
    try:
        call()
    except Exception as error:
        return error


def test_the_librarys_own_handlers_give_no_warning():
    def kinked(q, xp):
        return q[0] if q[0] > 0.5 else 1.0 - q[0]

    with warnings.catch_warnings(action="error"):
        en.quadrature.gauss(kinked, 1, 4)


def hiding_model(x):
    try:
        y = 2.0 * x.a if x.a > 0.5 else 0.0 * x.a
    except Exception:
        y = 0.0 * x.a - 1.0
    return {"y": y}


def test_a_study_takes_a_hidden_disagreement_for_the_models_own():
    inputs = en.Inputs(a=stats.uniform(0.0, 1.0))
    with pytest.raises(DivergenceError) as caught:
        en.propagate(hiding_model, inputs, n=16, seed=1, progress=False)
    assert "`except Exception` at test_swallowed.py" in "".join(caught.value.__notes__)


def test_a_study_with_retry_runs_each_sample_alone():
    inputs = en.Inputs(a=stats.uniform(0.0, 1.0))
    with warnings.catch_warnings(action="error"):
        result = en.propagate(hiding_model, inputs, n=16, seed=1, progress=False, on_failure="retry")
    alone = en.propagate(en.vectorize(hiding_model), inputs, n=16, seed=1, progress=False)
    assert float(result.mean("y")) == float(alone.mean("y"))
    assert result.n_failed == 0


def test_a_study_sees_a_handler_that_has_no_source():
    scope = {}
    exec("def f(x):\n    try:\n        return x if x > 0.5 else 0.0\n    except Exception:\n        return -x\n", scope)
    inputs = en.Inputs(a=stats.uniform(0.0, 1.0))
    with pytest.raises(DivergenceError):
        en.propagate(lambda x: {"y": scope["f"](x.a)}, inputs, n=16, seed=1, progress=False)


def safe(f, default=math.inf):
    try:
        return f()
    except Exception:
        return default


class Holder:
    def __init__(self, x):
        self.parts = {"x": [x]}

    def value(self):
        return compared(self.parts["x"][0])


def only_sometimes_raises(x, strict=False):
    try:
        return compared(x)
    except Exception:
        if strict:
            raise
        return math.inf


def in_a_task(x):
    async def value():
        return compared(x)

    try:
        return asyncio.run(value())
    except Exception:
        return math.inf


IN_HELPERS = [
    lambda x: safe(lambda: compared(x)),
    lambda x: safe(lambda: sum(compared(each) for each in [x])),
    lambda x: safe(lambda y=x: compared(y)),
    lambda x: safe(functools.partial(compared, x)),
    lambda x: safe(Holder(x).value),
    only_sometimes_raises,
    in_a_task,
]


@pytest.mark.parametrize("f", IN_HELPERS)
def test_a_helper_that_hides_a_disagreement_is_named(f):
    with pytest.warns(
        RuntimeWarning, match=r"samples must agree .*`except Exception` at test_swallowed.py:\d+ catches"
    ):
        f(X)


def in_a_thread(x):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        error = pool.submit(compared, x).exception()
    return 1.0 if error is None else math.inf


def in_a_gathered_task(x):
    async def value():
        return compared(x)

    async def all_values():
        return await asyncio.gather(value(), return_exceptions=True)

    return math.inf if isinstance(asyncio.run(all_values())[0], Exception) else 1.0


def called_where_no_ensemble_is(x):
    GLOBAL["x"] = x
    return safe(lambda: compared(GLOBAL["x"]))


GLOBAL = {}


@pytest.mark.parametrize("f", [*IN_HELPERS, in_a_thread, in_a_gathered_task, called_where_no_ensemble_is])
def test_a_study_sees_a_disagreement_that_helpers_threads_and_tasks_hide(f):
    inputs = en.Inputs(a=stats.uniform(0.0, 2.0))
    with warnings.catch_warnings(action="error"), pytest.raises(DivergenceError):
        en.propagate(lambda x: {"y": f(x.a)}, inputs, n=16, seed=1, progress=False)


def test_a_disagreement_in_a_thread_of_no_study_leaves_studies_alone():
    inputs = en.Inputs(a=stats.uniform(0.0, 2.0))
    assert in_a_thread(X) == math.inf
    assert en.propagate(lambda x: {"y": 2.0 * x.a}, inputs, n=16, seed=1, progress=False).n_failed == 0


def as_an_array(x):
    try:
        return np.array([x, x]).sum()
    except Exception:
        return math.inf


def by_a_table(x):
    try:
        return {300.0: 1.0}[x]
    except Exception:
        return math.inf


@pytest.mark.parametrize("f", [as_an_array, by_a_table])
def test_code_that_hides_what_only_an_ensemble_raises_is_named(f):
    text = r"samples must be one plain value .*`except Exception` at test_swallowed.py:\d+ catches the TypeError"
    with pytest.warns(RuntimeWarning, match=text):
        f(X)
    with warnings.catch_warnings(action="error"):
        assert [run(f, X, loop=False).sample(s) for s in range(3)] == [f(v) for v in X.samples]


def test_code_that_asks_what_a_value_is_gives_no_warning():
    def is_hashable(x):
        try:
            hash(x)
        except TypeError:
            return False
        return True

    def raises(x):
        try:
            return np.asarray(x)
        except Exception as error:
            raise ValueError("no array") from error

    with warnings.catch_warnings(action="error"):
        assert not is_hashable(X)
        with pytest.raises(ValueError, match="no array"):
            raises(X)
        assert pd.api.types.is_hashable(X) is False


@pytest.mark.parametrize("folder, warns", [("site-packages", False), ("dist-packages", False), ("project", True)])
def test_packages_wherever_they_are_installed_may_try_what_a_value_is(folder, warns, tmp_path):
    file = tmp_path / folder / "package.py"
    file.parent.mkdir()
    file.write_text("def known(x):\n    try:\n        return hash(x)\n    except Exception:\n        return None\n")
    names = {"__name__": "package"}
    exec(compile(file.read_text(), str(file), "exec"), names)
    with warnings.catch_warnings(record=True, action="always") as seen:
        assert names["known"](X) is None
    assert len(seen) == warns
