"""The command line: what it prints, what it writes, and how it ends."""

import json
import sys

import numpy as np
import pytest

from ensemble.__main__ import main
from ensemble._command.diffusion.sampling import estimate, uniform_points
from ensemble._command.parsers import STUDY_SAMPLERS
from ensemble.apps.fem import RandomDiffusion
from ensemble.scalar import Ensemble
from ensemble.uq.samplers.choice import SAMPLERS
from tests.command_line import exit_status

SMALL = ["diffusion", "--cells", "4", "--samples", "20", "--ensemble-size", "8"]


@pytest.fixture
def no_solve(monkeypatch):
    """Any solve fails the test: the complaint has to come before."""

    def solve(*_, **__):
        raise AssertionError("a solve was begun")

    monkeypatch.setattr(RandomDiffusion, "solve", solve)


@pytest.fixture
def interrupt_after(monkeypatch):
    """Press Ctrl-C in the solve after the given number of solves on the problem's own mesh."""

    def arrange(n):
        solve, calls = RandomDiffusion.solve, []

        def counted(self, y, **options):
            if self.mesh.n_nodes == 125:
                calls.append(1)
                if len(calls) > n:
                    raise KeyboardInterrupt
            return solve(self, y, **options)

        monkeypatch.setattr(RandomDiffusion, "solve", counted)

    return arrange


def test_json_is_one_object_and_right(capsys):
    assert main([*SMALL, "--json", "--seed", "7"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out)
    assert out.count("\n") == 1
    assert {"cells", "samples", "ensemble_size", "response_mean", "response_std", "iterations", "seconds"} <= set(found)
    assert (found["cells"], found["samples"], found["ensemble_size"]) == (4, 20, 8)
    y = uniform_points(20, 5, "sobol", 7)
    response = [RandomDiffusion(4).solve(y[:, i]).response for i in range(20)]
    assert found["response_mean"] == pytest.approx(np.mean(response), rel=1e-14)
    assert found["response_std"] == pytest.approx(np.std(response, ddof=1), rel=1e-10)
    low, high = found["response_interval"]
    assert low < found["response_mean"] < high
    assert found["speedup"] > 0.0


def test_the_table_tells_statistics_phases_and_speed(capsys):
    assert main([*SMALL, "--source", "1", "--sampler", "monte-carlo"]) == 0
    out, err = capsys.readouterr()
    for text in (
        "4 x 4 x 4 cells, 125 unknowns",
        "20 samples (Monte Carlo points, seed 1), 8 at a time",
        "95 % interval",
        "t-interval of 20 independent samples",
        "multigrid setup",
        "conjugate gradients",
        "times as fast",
    ):
        assert text in out
    assert "20/20 samples" in err


def test_samples_and_statistics_do_not_depend_on_the_ensemble_size(tmp_path, capsys):
    runs = []
    for size in ("1", "8"):
        path = tmp_path / f"{size}.npz"
        arguments = ["diffusion", "--cells", "4", "--samples", "11", "--ensemble-size", size, "--out", str(path)]
        assert main([*arguments, "--quiet", "--json", "--scalar-runs", "0"]) == 0
        runs.append((np.load(path), json.loads(capsys.readouterr().out)))
    (a, summary_a), (b, summary_b) = runs
    for name in ("y", "response", "iterations", "u_along_z", "z", "converged"):
        np.testing.assert_array_equal(a[name], b[name])
    for name in ("response_mean", "response_std", "response_interval", "samples"):
        assert summary_a[name] == summary_b[name]
    assert json.loads(str(a["summary"])) == summary_a


def test_a_short_run_makes_no_wider_ensemble_than_it_needs(capsys):
    assert main(["diffusion", "--cells", "3", "-n", "1", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ensemble_size"] == 1
    assert found["response_std"] is None and found["response_interval"] == [None, None]


def test_quiet_says_nothing_on_stderr(capsys):
    assert main([*SMALL, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main([*SMALL, "--json"]) == 0
    err = capsys.readouterr().err
    assert "20/20" in err and "samples/s" in err and "CG iterations" in err and "left" in err


def test_the_plot_is_a_picture_and_nothing_else_is_left(tmp_path, capsys):
    for name, start in (("p.png", b"\x89PNG"), ("p.svg", b"<?xml")):
        assert main([*SMALL, "--quiet", "--plot", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.png", "p.svg"]
    capsys.readouterr()


@pytest.mark.usefixtures("no_solve")
@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--cells", "0"], "argument --cells: must be a count of at least 1"),
        (["--cells", "4x4"], "or three as in 32x32x16; got '4x4'"),
        (["--samples", "none"], "argument -n/--samples: must be an integer of at least 1; got 'none'"),
        (["--ensemble-size", "-3"], "argument --ensemble-size: must be an integer of at least 1"),
        (["--seed", "-1"], "argument --seed: must be an integer of at least 0"),
        (["--sampler", "dice"], "argument --sampler: invalid choice: 'dice'"),
        (["--mean", "much"], "argument --mean: invalid float value: 'much'"),
        (["--variance", "-1"], "variance must be a finite number, zero or above"),
        (["--correlation-length", "0"], "correlation_length must be a finite number above zero"),
        (["--rtol", "nan"], "--rtol must be below 1, and not below float64's 2.2e-16; got nan"),
        (["--terms", "4", "--mode-order", "trilinos"], "mode_order must be 'lexicographic' unless"),
        (["--variance", "4"], "y must keep the diffusivity above zero at every Gauss point; got kappa = -"),
        (["--out", "/nowhere/at/all.npz"], "--out must name a file that can be written; got '/nowhere/at/all.npz'"),
        (["--plot", "/nowhere/at/all.png"], "--plot must name a file that can be written"),
        (["--out", "result.txt"], "--out must end in one of .npz; got 'result.txt'"),
        (["--plot", "result.txt"], "--plot must end in one of .png, .pdf, .svg"),
        (["--out", "."], "--out must end in one of .npz; got '.'"),
        (["--no-such-option"], "unrecognized arguments: --no-such-option"),
        (["--smaples", "8"], "unrecognized arguments: --smaples 8. Use --samples."),
    ],
)
def test_bad_input_is_one_line_before_any_work(arguments, text, capsys):
    assert exit_status([*SMALL, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.startswith("ensemble") and "error:" in err
    assert text in err


def test_a_directory_is_no_output_file(tmp_path, capsys):
    (tmp_path / "x.npz").mkdir()
    assert exit_status([*SMALL, "--out", str(tmp_path / "x.npz")]) == 2
    assert "--out must name a file that can be written" in capsys.readouterr().err


@pytest.mark.usefixtures("no_solve")
def test_a_refused_run_leaves_no_file_and_an_old_one_alone(tmp_path, capsys):
    new, old = tmp_path / "new.npz", tmp_path / "old.png"
    old.write_bytes(b"old")
    assert exit_status([*SMALL, "--out", str(new), "--plot", str(old), "--variance", "4"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["old.png"] and old.read_bytes() == b"old"
    capsys.readouterr()


def test_without_a_command_it_says_so(capsys):
    assert exit_status([]) == 2
    assert "the following arguments are required: COMMAND" in capsys.readouterr().err


def test_ctrl_c_keeps_what_is_done(tmp_path, capsys, interrupt_after):
    interrupt_after(3)  # two ensembles, and after the first one sample alone
    path, plot = tmp_path / "part.npz", tmp_path / "part.png"
    assert main([*SMALL, "--json", "--out", str(path), "--plot", str(plot)]) == 130
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["samples"], found["samples_asked_for"], found["interrupted"]) == (16, 20, True)
    assert "interrupted: 16 of 20 samples are done" in err
    with np.load(path) as kept:
        assert kept["response"].shape == (16,) and np.isfinite(kept["response"]).all()
    assert plot.exists()


def test_ctrl_c_while_one_sample_compiles_keeps_the_first_ensemble(capsys, interrupt_after):
    interrupt_after(1)
    assert main(SMALL) == 130
    out, err = capsys.readouterr()
    assert "8 samples (Sobol' points, seed 1), 8 at a time; interrupted" in out and "times as fast" not in out
    assert "solving the first 8 samples" in out and "interrupted: 8 of 20 samples are done" in err


def test_ctrl_c_before_the_first_ensemble_prints_nothing(capsys, interrupt_after):
    interrupt_after(0)
    assert main([*SMALL, "--json"]) == 130
    out, err = capsys.readouterr()
    assert out == "" and "interrupted: 0 of 20 samples are done" in err


def test_ctrl_c_during_preparation_is_one_line(capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(RandomDiffusion, "check", interrupted)
    assert main(SMALL) == 130
    assert capsys.readouterr().err == "ensemble diffusion: interrupted before any result\n"


def test_samples_that_fail_are_named_and_left_out(tmp_path, capsys, monkeypatch):
    solve = RandomDiffusion.solve

    def spoiled(self, y, **options):
        samples = y.samples.copy() if isinstance(y, Ensemble) else y
        if isinstance(y, Ensemble) and y.n_samples > 1:
            samples[0, 1] = np.nan
        return solve(self, Ensemble(samples) if isinstance(y, Ensemble) else y, **options)

    monkeypatch.setattr(RandomDiffusion, "solve", spoiled)
    assert main([*SMALL, "--json", "--plot", str(tmp_path / "p.png")]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["samples_failed"] == 3 and np.isfinite(found["response_mean"])
    assert "3 samples did not converge: samples 1, 9, 17" in err


def test_no_sample_at_all_converges(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ensemble._command.diffusion.command.uniform_points", lambda n, d, *_: np.full((d, n), np.nan))
    assert main([*SMALL, "--json", "--quiet", "--plot", str(tmp_path / "p.png")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["response_mean"] is None and found["samples_failed"] == 20


def test_the_shell_knows_every_sampler():
    assert set(STUDY_SAMPLERS) == set(SAMPLERS)


@pytest.mark.parametrize("sampler", ["sobol", "monte-carlo"])
def test_a_point_depends_on_its_number_alone(sampler):
    few, many = (uniform_points(n, 3, sampler, seed=5) for n in (13, 200))
    np.testing.assert_array_equal(few, many[:, :13])
    assert np.all(abs(many) < 1.0) and abs(many.mean()) < 0.1
    assert not np.array_equal(many, uniform_points(200, 3, sampler, seed=6))


@pytest.mark.parametrize("sampler, worst", [("sobol", 0.02), ("monte-carlo", 0.3)])
def test_intervals_hold_the_truth_as_often_as_they_say(sampler, worst):
    held = []
    for seed in range(200):
        y = uniform_points(256, 2, sampler, seed)
        found = estimate(np.exp(y[0]) * (1.0 + y[1]), np.arange(256), sampler)
        truth = np.sinh(1.0)
        held.append(found.low <= truth <= found.high)
        assert abs(found.mean - truth) < worst
    # 95 % of 200 is 190, with a standard deviation of 3.
    assert 180 <= sum(held) <= 199
