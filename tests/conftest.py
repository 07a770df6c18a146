"""Fixtures and Hypothesis settings that all tests share."""

import gc
import inspect
import os
import re
import signal
import threading
from pathlib import Path

# Before NumPy is imported. Threads of OpenBLAS and OpenMP that wait by spinning take the core from the other worker:
# tests of direct solvers took 459 s instead of 16 s beside other work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# JAX would take the memory of a device from the other workers.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# A job of a shell's background inherits that Ctrl-C is ignored: tests of interrupts waited a minute, and failed.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

import numpy as np
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from ensemble._compile import numba

# A kernel's compilation makes millions of small objects that live until it ends: collections there find nothing.
gc.set_threshold(500_000, 20, 100)

EVERY_WIDTH = numba.WIDTHS

if not os.environ.get("ENSEMBLE_TEST_EVERY_WIDTH"):
    # Each width of tiles compiles all kernels of a solver once more. Each kernel by itself is tested with tiles of 32
    # as well, and in slow tests of every width, in tests/test_kernels.py: no bit depends on how the sample axis is cut.
    numba.WIDTHS = (4, 1)


def examples(count):
    """Return how many examples a long property draws: `count` in slow runs, a third otherwise."""
    return count if os.environ.get("ENSEMBLE_TEST_EVERY_WIDTH") else -(-count // 3)


settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow],
    max_examples=examples(50),
)  # fmt: skip
settings.load_profile("ci")


def pytest_pycollect_makeitem(collector, obj):
    """Make no cases of functions that the command line leaves out as a whole, ten thousand of them."""
    expression = collector.config.getoption("markexpr")
    if inspect.isfunction(obj) and re.fullmatch(r"not \w+( and not \w+)*", expression):
        marks = [*getattr(obj, "pytestmark", []), *collector.iter_markers()]
        if {mark.name for mark in marks} & set(re.findall(r"not (\w+)", expression)):
            return []
    return None


def slow_cases():
    """Read the lines of `slow_cases.txt`; return a regular expression for each."""
    lines = (Path(__file__).parent / "slow_cases.txt").read_text().splitlines()
    return {line: re.compile(re.escape(line).replace(r"\*", ".*")) for line in lines if line.startswith("tests/")}


def values_of_parameters(item):
    """Return what an item has of each list of values of its test, each with the values of its fixtures."""
    lists = [mark.args[0] for mark in item.iter_markers("parametrize")]
    lists = [names.replace(" ", "").split(",") if isinstance(names, str) else list(names) for names in lists]
    values = {name: id(value) for name, value in item.callspec.params.items()}  # lists are walked, not copied
    fixtures = tuple(sorted(values.items() - {(name, values[name]) for names in lists for name in names}))
    return {(*names, *(values[name] for name in names), fixtures) for names in lists}


def beyond_each_value_once(items):
    """Return the cases of a test that are left where each value of each parameter is taken once.

    Parameters of fixtures, such as array libraries, keep all their values with each of the cases that stay.
    """
    left = [item for item in items if not item.get_closest_marker("slow")]
    seen, values = set(), {item: values_of_parameters(item) for item in left}
    while left:
        best = max(left, key=lambda item: len(values[item] - seen))
        if not values[best] - seen:
            break
        seen |= values[best]
        left.remove(best)
    return left


EMULATED = {
    "tests/apps/fem/test_form_cuda.py": ("test_device_code_gives_the_values_of_the_cpu",),
    "tests/apps/gbees/test_cuda_engine.py": ("test_every_option_gives_the_cells_of_the_array_engine",),
    "tests/apps/kalman/test_cuda_source.py": ("test_the_recursion_has_the_bits_of_the_cpu",),
    "tests/krylov/test_device.py": ("test_conjugate_gradients_have_the_bits_of_the_host_loop",),
    "tests/krylov/test_replays.py": ("test_later_solves_are_replayed_with_the_bits_of_first_ones",),
    "tests/multigrid/test_complex_device.py": (
        "test_solves_agree_with_the_cpu",
        "test_bad_samples_touch_no_others",
        "test_reduction_has_the_bits_of_the_cpu",
    ),
    "tests/linalg/test_bands_device.py": ("test_bands_have_the_bits_of_the_cpu",),
    "tests/linalg/test_factorization_device.py": ("test_every_form_has_the_bits_of_the_cpu",),
}
"""Modules that `make test-emulated` runs, on the emulator of CUDA, but for the tests that `make test` runs, too."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark the cases of `slow_cases.txt`. A line that names no case is an error, and a test without other cases too."""
    by_test = {}
    for item in items:
        module, _, name = item.nodeid.partition("[")[0].partition("::")
        if name not in EMULATED.get(module, (name,)) and not item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.emulated)
        by_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    whole = not config.option.keyword and not any("::" in argument for argument in config.args)
    lines = slow_cases()
    for line in sorted(lines, key=lambda line: "[" not in line):  # whole tests last: of what single lines leave
        cases = by_test.get(line.partition("[")[0], [])
        if "[" in line:
            chosen = [item for item in cases if lines[line].fullmatch(item.nodeid)]
        else:
            chosen = beyond_each_value_once(cases)
        for item in chosen:
            item.add_marker(pytest.mark.slow)
        if whole and cases and (not chosen or all(item.get_closest_marker("slow") for item in cases)):
            raise pytest.UsageError(f"tests/slow_cases.txt: {line} names {len(chosen)} of {len(cases)} cases")


def pytest_collection_finish():
    """Take modules and tests, which live until the end, out of the collections of garbage."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    """Take compiled functions out of the last collection of garbage."""
    gc.freeze()


def pytest_runtest_protocol(item, nextitem):
    """Send of a test that passes one report, not three: a message from a worker takes as long as many a test."""
    if not hasattr(item.config, "workerinput") or item.config.option.durations:
        return None
    about = {"nodeid": item.nodeid, "location": item.location}
    item.ihook.pytest_runtest_logstart(**about)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(**about)
    return True


@pytest.fixture(scope="module", autouse=True)
def no_collection_walks_through_other_modules():
    """Take what earlier modules made out of the collections of this one: they took half a second each."""
    gc.collect()
    gc.freeze()


def every_object():
    """Return all objects that the collector knows, those of other modules, too."""
    gc.unfreeze()
    found = gc.get_objects()
    gc.freeze()
    return found


@pytest.fixture
def rng():
    return np.random.default_rng(31847)


COMPILED: dict = {}
"""The functions that tests compiled for the emulator of CUDA, by kernel module."""


@pytest.fixture
def on_cpu(monkeypatch):
    """Kernel modules are compiled for the emulator of CUDA on the CPU."""
    from ensemble._compile import cuda, device
    from ensemble._kernels import all_kernels  # noqa: F401  registers the modules
    from tests import cuda_on_cpu

    if cuda_on_cpu.COMPILER is None:
        pytest.skip("no g++")
    monkeypatch.setattr(device, "raw_module", cuda_on_cpu.Module)
    for module in cuda.KERNEL_MODULES.values():
        monkeypatch.setattr(module, "_functions", COMPILED.setdefault(module.name, {}))


@pytest.fixture
def as_device(on_cpu, monkeypatch):
    """NumPy arrays are treated as arrays of a device, on the emulator of CUDA."""
    from ensemble._compile import registry
    from ensemble._kernels.krylov.device_scalars import scalars
    from ensemble._kernels.multigrid import galerkin
    from ensemble.krylov import _device, _iteration
    from ensemble.krylov.host_scalars import gmres
    from ensemble.multigrid import repeated

    for module in (registry, galerkin, scalars, _device, repeated):
        monkeypatch.setattr(module, "backend_of", lambda *arrays: "cuda")
    for module in (_iteration, gmres):
        monkeypatch.setattr(module, "has_compiled_numbers", lambda array: False)


@pytest.fixture(scope="module")
def nothing_is_left_to_numba():
    """A loop outside the translated language would be compiled by Numba: the same bits, four to eight times as slowly.

    Of all kernels, types and widths that a module of tests runs none may be.
    """
    yield
    from ensemble._compile.work_sharing import WorkSharing

    loops = [each for each in every_object() if type(each) is WorkSharing]
    own = [each for each in loops if each.__module__.startswith("ensemble._kernels")]
    assert own, "no kernel has run"
    found = {f"{each.__module__}.{each.__qualname__}": each.by_numba for each in own if each.by_numba}
    assert found == {}, found
