"""`KernelCompiler`: the machine code of Numba's own compiler, for versions of Numba that it was tested with."""

import json
import os
import subprocess
import sys

import numba
import numpy as np
import pytest
from numba.core import event, lowering, postproc
from numba.extending import overload

from ensemble._compile import passes
from ensemble._compile.numba import compiled_serial
from tests.compiled_code import CASES


@pytest.fixture(scope="module")
def code(request, tmp_path_factory):
    """The code of the cases of this run, of `KernelCompiler` and of Numba's own compiler, made in two processes."""
    own = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    names = [item.callspec.params["name"] for item in own]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}  # the order of a function's variables follows hashes
    made = []
    for words in ([], ["own"]):
        environment["NUMBA_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
        command = [sys.executable, "-m", "tests.compiled_code", *words, *names]
        made.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
    return [json.loads(process.communicate()[0])["cases"] for process in made]


def supported():
    return numba.version_info.short in passes.TESTED


@pytest.mark.parametrize("name", [n if n == "exceptions" else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_code_and_results_are_those_of_numbas_compiler(name, code):
    ours, theirs = (cases[name] for cases in code)
    assert ours["results"] == theirs["results"]
    assert ours["code"] == theirs["code"]
    assert theirs["by us"] == 0
    assert (ours["by us"] > 0) == supported()
    assert sum(map(len, ours["code"])) > 0


def test_other_versions_compile_with_numbas_own_compiler(monkeypatch):
    monkeypatch.setattr(passes, "TESTED", ())
    assert passes.compiler_options() == {"error_model": "numpy"}
    monkeypatch.setattr(passes, "TESTED", (numba.version_info.short,))
    assert passes.compiler_options() == {"error_model": "numpy", "pipeline_class": passes.KernelCompiler}


def test_numba_is_as_before_after_a_compilation():
    before = lowering.new_error_context, postproc.PostProcessor.run, event.start_event

    @compiled_serial
    def doubled(x):
        return 2 * x

    assert doubled(np.arange(3)).tolist() == [0, 2, 4]
    assert (lowering.new_error_context, postproc.PostProcessor.run, event.start_event) == before


def test_wrong_code_is_explained():
    @compiled_serial
    def wrong(x):
        return x.missing + 1

    with pytest.raises(numba.TypingError, match=r"(?s)Failed in nopython mode.*Unknown attribute 'missing'.*line"):
        wrong(np.arange(3))

    @compiled_serial
    def unknown_name(x):
        return undefined_name(x)  # noqa: F821

    with pytest.raises(numba.TypingError, match="undefined_name"):
        unknown_name(np.arange(3))
    assert postproc.PostProcessor.run.__module__ == "numba.core.postproc"


def quotient(a, b):
    """What is compiled for each error model."""


@overload(quotient)
def _(a, b):
    return lambda a, b: a / b


def test_functions_of_other_error_models_stay_apart():
    """A call whose type is known has the code of its own options, not what was compiled last."""

    @compiled_serial
    def before(x):
        return quotient(1.0, x)

    @numba.njit
    def of_python(x):
        return quotient(1.0, x)

    @compiled_serial
    def after(x):
        return quotient(1.0, x) + 1.0

    assert before(0.0) == np.inf
    with pytest.raises(ZeroDivisionError):
        of_python(0.0)
    assert after(0.0) == np.inf
