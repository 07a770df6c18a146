"""The table of what works where covers the namespace and is what the tests find."""

import pytest

import ensemble
from ensemble.scalar import namespace, support, xp
from ensemble.scalar.interop.numpy_functions import EACH_SAMPLE
from ensemble.scalar.lift.table import FFT, LINALG, TABLE
from ensemble.scalar.support import support_table


def test_the_table_names_every_function_of_the_namespace():
    functions = support_table()["functions"]
    assert {f"linalg.{name}" for name in LINALG} | {f"fft.{name}" for name in FFT} <= set(functions)
    assert set(functions) - {name for name in functions if "." in name} <= set(TABLE)
    assert support_table()["each_sample"] == sorted(EACH_SAMPLE)


def test_nothing_fails():
    words = {word for row in support_table()["functions"].values() for word in row.values()}
    assert words <= {"yes", "no"}
    assert all(row["numpy"] == "yes" for row in support_table()["functions"].values())


def test_the_table_is_printed(capsys):
    support()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(support_table()["functions"])
    with pytest.raises(ValueError, match="support: name must be part of the name of a function; got 'sinus'"):
        support("sinus")


def test_the_namespace_over_numpy_is_at_hand():
    import numpy as np

    assert ensemble.xp is xp is namespace(np)
