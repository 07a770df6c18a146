"""All cases of a kind in one test, where a case takes less time than pytest and its workers take for a test (2 ms)."""

import functools
import inspect

import pytest


def every(names, cases):
    """As `pytest.mark.parametrize`, in one test: it ends at the first case that fails, which a note names.

    For cases without marks that leave nothing behind: they share the fixtures of the one test.
    """
    keys = [name.strip() for name in names.split(",")]
    given = [dict(zip(keys, values_of(case, len(keys)), strict=True)) for case in cases]
    assert given, "no case"

    def decorate(test):
        @functools.wraps(test)
        def walk(**fixtures):
            for case in given:
                try:
                    test(**case, **fixtures)
                except pytest.skip.Exception as skipped:
                    raise AssertionError(f"a case that is skipped would end the walk: {case}: {skipped}") from None
                except Exception as error:
                    error.add_note(f"the case: {case}")
                    raise

        parameters = inspect.signature(test).parameters
        walk.__signature__ = inspect.Signature([parameters[name] for name in parameters if name not in keys])
        return walk

    return decorate


def values_of(case, count):
    """The values of a case, which may be a `pytest.param` without marks."""
    if hasattr(case, "marks"):
        assert not case.marks
        return case.values
    return case if count > 1 else (case,)
