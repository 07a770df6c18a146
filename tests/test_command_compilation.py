"""A first run of `ensemble diffusion` compiles in two processes; later runs start none."""

import importlib
import subprocess
import sys
from argparse import Namespace

import numpy as np
import pytest

from ensemble.__main__ import main
from ensemble._command.diffusion import second_process
from ensemble._command.diffusion.command import warm_up_coarsest
from ensemble._command.diffusion.second_process import OneSampleCompilation
from ensemble._compile.kernel_cache import KernelCache
from ensemble.apps.fem import RandomDiffusion
from ensemble.linalg import CrsMatrix
from ensemble.multigrid.coarse import CoarseSolver

OPTIONS = {
    "scalar_runs": 3, "backend": "numpy", "terms": 5, "correlation_length": 1.0, "mean": 1.0, "variance": 0.01,
    "source": 0.0, "grading": 1.0, "mode_order": "lexicographic", "rtol": 1e-7,
}  # fmt: skip


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The command lines of processes; each ends at once with `status`, or sleeps where that is None."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(second_process.os, "cpu_count", lambda: 2)
    popen, lines = subprocess.Popen, []
    started = Namespace(lines=lines, status=0)

    def start(words, **options):
        lines.append(words)
        code = "import time; time.sleep(60)" if started.status is None else f"raise SystemExit({started.status})"
        return popen([sys.executable, "-c", code], **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    return started


def test_only_the_first_run_starts_a_second_process(started):
    for expected in (1, 1):
        with OneSampleCompilation(Namespace(**OPTIONS), 10) as second:
            second.wait()
        assert len(started.lines) == expected
    assert started.lines[0][:4] == [sys.executable, "-m", "ensemble", "diffusion"]
    assert {"--cells=10", "--samples=1", "--scalar-runs=0"} <= set(started.lines[0])


def test_the_second_process_starts_before_the_imports_of_the_first(started, monkeypatch):
    imports = importlib.import_module
    seen = []

    def noted(name, package=None):
        seen.append((name, len(started.lines)))
        return imports(name, package)

    monkeypatch.setattr(importlib, "import_module", noted)
    assert main(["diffusion", "--cells=4", "--samples=2", "--ensemble-size=2", "--scalar-runs=1", "--quiet"]) == 0
    assert ("ensemble._command.diffusion.command", 1) in seen


def test_a_process_that_fails_is_started_again(started):
    started.status = 3
    for _ in range(2):
        with OneSampleCompilation(Namespace(**OPTIONS), 10) as second:
            second.wait()
    assert len(started.lines) == 2


@pytest.mark.parametrize("changed", [{"scalar_runs": 0}, {"backend": "cupy"}])
def test_runs_that_need_no_kernels_of_one_sample_start_none(started, changed):
    with OneSampleCompilation(Namespace(**OPTIONS | changed), 10):
        assert started.lines == []


def test_the_process_ends_with_an_interrupted_run(started):
    started.status = None
    with pytest.raises(KeyboardInterrupt), OneSampleCompilation(Namespace(**OPTIONS), 10) as second:
        raise KeyboardInterrupt
    assert second.process.poll() is not None


def test_its_command_line_is_one_that_the_command_takes(started, capsys):
    with OneSampleCompilation(Namespace(**OPTIONS), 4):
        pass
    assert main(started.lines[0][3:]) == 0


def test_the_warm_up_of_coarsest_levels_compiles_all_that_they_need(monkeypatch):
    """The coarsest level of ``ensemble diffusion`` has 64 rows of up to 27 entries, in single precision."""
    graph = RandomDiffusion((3, 3, 3)).discretization.graph
    values = np.where(graph.indices == graph.row_of_entry, 30.0, -1.0).astype(np.float32)[:, None]
    warm_up_coarsest(1)
    load, sought = KernelCache.load_overload, []
    monkeypatch.setattr(KernelCache, "load_overload", lambda *which: sought.append(which) or load(*which))
    coarsest = CrsMatrix(graph, values)
    solver = CoarseSolver(coarsest)
    solver.amplification(coarsest)
    solver.apply(np.ones((64, 1), np.float32), None)
    assert solver.factors is not None
    assert sought == []
