"""The options of the subcommands. Nothing is imported here that takes long, so that ``--help`` comes at once."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ensemble._command.running_options import add_failed, add_limits, add_part, add_program

__all__ = ["BACKENDS", "LIMITERS", "add_diffusion", "add_gbees", "add_ode", "add_study"]

SAMPLERS = ("sobol", "monte-carlo")

STUDY_SAMPLERS = (
    "sobol",
    "halton",
    "monte_carlo",
    "latin_hypercube",
)
"""The names of `uq.samplers.choice`, without its imports."""

ON_FAILURE = ("mask", "retry", "raise")

PLOTS = ("hist", "fan", "scatter", "field")

BACKENDS = ("numpy", "array", "cupy")

LIMITERS = ("mc", "minmod", "none", "superbee", "van_leer")


def command(name: str, beside: str | None = None) -> Callable[[argparse.Namespace], int]:
    """The function ``run`` of a module of this package, imported when the command is carried out.

    The function ``start`` of the module `beside` begins what runs beside the command, before that import. It returns a
    context manager that ends with the command, ``options.beside``.

    The import takes a second and computes nothing: during it Ctrl-C ends the process by the signal, as it ends any
    program without a handler.
    """

    def started(options: argparse.Namespace) -> contextlib.AbstractContextManager[Any]:
        if beside is None:
            return contextlib.nullcontext()
        return importlib.import_module(f"ensemble._command.{beside}").start(options)  # type: ignore[no-any-return]

    def run(options: argparse.Namespace) -> int:
        with started(options) as options.beside:
            return int(imported().run(options))

    def imported() -> Any:
        python_handles = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        handled = python_handles and threading.current_thread() is threading.main_thread()
        if handled:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            return importlib.import_module(f"ensemble._command.{name}")
        finally:
            if handled:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    return run


def counts(text: str) -> int | tuple[int, ...]:
    """``32`` or ``32x32x16`` as cells."""
    parts = text.lower().split("x")
    good = all(part.isascii() and part.isdigit() and len(part) < 19 and int(part) > 0 for part in parts)
    if len(parts) not in (1, 3) or not good:
        raise argparse.ArgumentTypeError(f"must be a count of at least 1, or three as in 32x32x16; got {text!r}")
    numbers = tuple(int(part) for part in parts)
    return numbers if len(numbers) == 3 else numbers[0]


def at_least(minimum: int, maximum: int | None = 2**63 - 1) -> Callable[[str], int]:
    """An argument type: an integer from `minimum` to `maximum`, by default the largest that counts anything."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise argparse.ArgumentTypeError(f"must be an integer of at least {minimum}; got {text!r}")
        if maximum is not None and number > maximum:
            raise argparse.ArgumentTypeError(f"must be an integer of at most {maximum}; got {text!r}")
        return number

    return parse


def numbers(text: str) -> tuple[float, ...]:
    """Numbers between commas."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, or several between commas; got {text!r}") from None


class HelpWithDefaults(argparse.ArgumentDefaultsHelpFormatter):
    """Help that names the default of each option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


def add_output(add: Callable[..., Any]) -> None:
    """The options of what is printed."""
    add("--json", action="store_true", help="print one JSON object instead of the table")
    add("--quiet", action="store_true", help="no progress on stderr")


def add_diffusion(commands: Any) -> None:
    """Add ``diffusion`` and its options."""
    parser = commands.add_parser(
        "diffusion",
        help="statistics of diffusion with a random coefficient",
        description="Solve -div(kappa grad u) + c u^2 = 0 on the unit cube (u = 1 at z = 0, u = 2 at z = 1) for many "
        "samples of a random field kappa, ensembles of them at once, and report the mean of u^2 over the nodes. "
        "`mpiexec -n P ensemble diffusion ...` shares the nodes out to P processes; the first of them prints.",
        formatter_class=HelpWithDefaults,
    )
    add = parser.add_argument
    add("--cells", type=counts, default=32, metavar="N", help="hexahedra in each direction, or NXxNYxNZ")
    add("-n", "--samples", type=at_least(1), default=256, metavar="N", help="samples of the random field")
    add("--ensemble-size", type=at_least(1), default=32, metavar="S", help="samples solved at once")
    add("--sampler", choices=SAMPLERS, default="sobol", help="how samples are drawn")
    add("--seed", type=at_least(0, None), default=1, metavar="K", help="seed of the sampler")
    add("--terms", type=at_least(1), default=5, metavar="M", help="terms of the Karhunen-Loeve expansion")
    add("--correlation-length", type=float, default=1.0, metavar="L", help="correlation length in edges of the cube")
    add("--mean", type=float, default=1.0, metavar="X", help="mean of kappa")
    add("--variance", type=float, default=0.01, metavar="X", help="variance of kappa")
    add("--source", type=float, default=0.0, metavar="C", help="the coefficient c; the problem is linear without it")
    add("--grading", type=float, default=1.0, metavar="B", help="nodes lie at g + B g^2 (1-g)^2 for equidistant g")
    add("--mode-order", choices=("lexicographic", "trilinos"), default="lexicographic", help="order of equal modes")
    add("--rtol", type=float, default=1e-7, metavar="X", help="tolerance of Newton's method and of conjugate gradients")
    add("--backend", choices=("numpy", "cupy"), default="numpy", help="cupy runs on a CUDA device")
    add("--scalar-runs", type=at_least(0), default=3, metavar="N", help="samples also solved alone, to compare speed")
    add("--mpi", action="store_true", help="share the nodes out also where no launcher of MPI is recognised")
    add("--out", type=Path, metavar="FILE.npz", help="write all samples to this file")
    add("--plot", type=Path, metavar="FILE.png", help="draw the response and u along the middle line")
    add_output(add)
    parser.set_defaults(run=command("diffusion.command", "diffusion.second_process"), prog=parser.prog)


def add_gbees(commands: Any) -> None:
    """Add ``gbees`` and its options."""
    parser = commands.add_parser(
        "gbees",
        help="a distribution carried by a drift on a sparse grid (GBEES)",
        description="Carry a probability distribution through a dynamical system on a grid of cells that follows it, "
        "and correct it by measurements. PROBLEM is lorenz63 or lorenz96 as published, duffing, aizawa, pcr3bp, cr3bp "
        "or two-body as in the public programs' examples, a TOML file, or FILE.py:FUNCTION that gives a "
        "gbees.Configuration. An interrupted run leaves a checkpoint, from which --resume continues.",
        formatter_class=HelpWithDefaults,
    )
    add = parser.add_argument
    add("problem", metavar="PROBLEM", help="a name, FILE.toml, or FILE.py[:FUNCTION]")
    add("--backend", choices=BACKENDS, default="numpy", help="cupy runs on a CUDA device")
    add("--dtype", choices=("float64", "float32"), default="float64", help="type of probabilities")
    add("--threshold", type=float, metavar="P", help="cells with at least this probability are active")
    add("--factor", type=numbers, metavar="X[,X...]", help="cells are 1/(2X) standard deviations wide")
    add("--extent", type=numbers, metavar="X[,X...]", help="deviations that the first grid covers on either side")
    add("--limiter", choices=LIMITERS, help="limiter of slopes")
    add("--cfl", type=float, metavar="X", help="time steps over the largest stable ones")
    add("--prune", choices=("sequential", "parallel"), help="which cells without inflow are deleted")
    add("--until", type=float, metavar="T", help="stop after the records at this time")
    add("--times", type=numbers, metavar="T,T,...", help="record at these times instead of the problem's own")
    add("--every", type=at_least(1), metavar="K", help="record also every K steps, at the next report after them")
    add("--monte-carlo", type=at_least(2), metavar="N", help="compare with N samples before the first measurement")
    add("--bins", type=float, default=2.0, metavar="X", help="bins of that comparison, in cells")
    add("--seed", type=at_least(0, None), default=1, metavar="K", help="seed of those samples")
    add("--out", type=Path, metavar="FILE.npz", help="write distributions and steps to this file")
    add("--export", type=Path, metavar="FOLDER", help="write distributions as the public programs do")
    add("--format", choices=("text", "binary"), default="text", help="format of --export")
    add("--plot", type=Path, metavar="FILE.png", help="draw the distributions and the number of cells")
    add(
        "--checkpoint",
        type=Path,
        metavar="FILE.npz",
        help="file in place of PROBLEM.checkpoint.npz, deleted at the end",
    )
    add("--resume", action="store_true", help="continue from the checkpoint")
    add_output(add)
    parser.set_defaults(run=command("gbees.command"), prog=parser.prog)


def size(text: str) -> int | str:
    """``auto``, or a count."""
    return text if text == "auto" else at_least(1)(text)


def target(text: str) -> tuple[str, float]:
    """``NAME=RTOL``."""
    name, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not name or not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be NAME=NUMBER with a number above zero, as in tip=0.01; got {text!r}")
    return name, value


def named(text: str) -> str:
    """``NAME=TEXT``."""
    name, sign, value = text.partition("=")
    if not name or not sign or not value:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, as in t=0:10:101 or t=s; got {text!r}")
    return text


def add_outputs(add: Callable[..., Any]) -> None:
    """The options that say what the axes of outputs are."""
    help_text = "coordinates of an axis of outputs: START:STOP:COUNT, or numbers or texts between commas"
    add("--coordinate", dest="coordinates", type=named, action="append", default=[], metavar="AXIS=V", help=help_text)
    help_text = "unit of an output or of an axis; both may be repeated"
    add("--unit", dest="units", type=named, action="append", default=[], metavar="NAME=UNIT", help=help_text)


def levels(text: str) -> tuple[float, ...]:
    """Probabilities between commas."""
    found = numbers(text)
    if not all(0.0 <= level <= 1.0 for level in found):
        raise argparse.ArgumentTypeError(f"must be numbers from 0 to 1; got {text!r}")
    return found


def add_ode(commands: Any) -> None:
    """Add ``ode`` and its options."""
    parser = commands.add_parser(
        "ode",
        help="samples of an initial value problem",
        description="Integrate dy/dt = f(t, y, p) for many samples of its start and parameters. PROBLEM is a name of "
        "ensemble.gallery (lorenz63, robertson, hires, ...) or FILE.py:FUNCTION with f(t, y, p, xp). The TOML file has "
        "y0, p and t (numbers, or names of [inputs]), and the options method, step, rtol, atol, times.",
        formatter_class=HelpWithDefaults,
    )
    add = parser.add_argument
    add("problem", metavar="PROBLEM", help="a name, or FILE.py:FUNCTION")
    add("-c", "--config", type=Path, metavar="FILE.toml", help="start, parameters, times and [inputs]")
    add("-n", "--samples", type=at_least(1), default=1024, metavar="N", help="samples of the inputs")
    add("--sampler", choices=STUDY_SAMPLERS, default="sobol", help="how inputs are drawn")
    add("--seed", type=at_least(0, None), default=1, metavar="K", help="seed of the sampler")
    add("--method", metavar="NAME", help="tsit5, dop853, taylor, rodas4, bdf, rk4, ... (default: tsit5)")
    add("--step", type=float, metavar="H", help="fixed step length")
    add("--rtol", type=float, metavar="X", help="relative tolerance (default: 1e-6)")
    add("--atol", type=float, metavar="X", help="absolute tolerance (default: 1e-9)")
    add("--times", type=at_least(2), metavar="M", help="output at M equidistant times instead of the end alone")
    add("--backend", choices=("numpy", "cupy"), default="numpy", help="cupy runs on a CUDA device")
    add("--out", type=Path, metavar="FILE.npz", help="write states, status and steps to this file")
    add("--plot", type=Path, metavar="FILE.png", help="draw fan charts over time, or histograms of the end")
    add_output(add)
    parser.set_defaults(run=command("ode.command"), prog=parser.prog)


def add_study(commands: Any) -> None:
    """Add ``run`` and the commands that work on its store: ``resume``, ``status``, ``stats``, ``plot``, ``export``."""
    add_run(commands)
    add_resume(commands)
    parser = of_store(commands, "status", "progress of a study: samples done, failed and pending")
    parser.set_defaults(run=command("study.status"))
    parser = of_store(commands, "stats", "mean, deviation, interval and quantiles of a study's outputs")
    add = parser.add_argument
    add("--output", dest="outputs", action="append", metavar="NAME", help="this output alone; may be repeated")
    add("--quantiles", type=levels, default=(0.05, 0.5, 0.95), metavar="Q,Q,...", help="default: 0.05,0.5,0.95")
    add("--level", type=float, default=0.95, metavar="P", help="probability of the intervals (default: %(default)s)")
    parser.set_defaults(run=command("study.stats"))
    parser = of_store(commands, "plot", "draw an output of a study", json=False)
    add = parser.add_argument
    add("file", type=Path, metavar="FILE.png", help="the picture; .pdf and .svg are written, too")
    add("--kind", choices=PLOTS, help="default: hist of a number, fan of an output of one axis, field of two")
    add("--output", dest="name", metavar="NAME", help="default: the first output")
    parser.set_defaults(run=command("study.plot"))
    parser = of_store(commands, "export", "write inputs and outputs of a study to another format", json=False)
    add = parser.add_argument
    add("file", type=Path, metavar="FILE.csv", help="CSV holds outputs of one number; FILE.nc, NetCDF, holds all")
    add("--output", dest="outputs", action="append", metavar="NAME", help="this output alone; may be repeated")
    parser.set_defaults(run=command("study.export"))
    parser = of_store(commands, "report", "write a page of HTML that tells a study, also while it runs", json=False)
    add = parser.add_argument
    add("-o", "--out", type=Path, default=Path("report.html"), metavar="FILE.html", help="default: %(default)s")
    add("--level", type=float, default=0.95, metavar="P", help="probability of the intervals (default: %(default)s)")
    parser.set_defaults(run=command("study.page"))


def of_store(commands: Any, name: str, text: str, *, json: bool = True) -> Any:
    """A parser of a command on a store."""
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("store", type=Path, metavar="STORE", help="the folder given to ensemble run --store")
    if json:
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.set_defaults(prog=parser.prog)
    return parser


def add_run(commands: Any) -> None:
    """Add ``run``."""
    parser = commands.add_parser(
        "run",
        help="run a model of your own on samples of its uncertain inputs",
        description="Run FUNCTION of FILE.py on samples of its inputs, ensembles of them at once, and report the "
        "statistics of what it returns. The inputs stand in a TOML file, or under the name `inputs` in FILE.py. With "
        "--store, an interrupted or killed study is continued by `ensemble resume STORE`.",
    )
    add = parser.add_argument
    help_text = "takes one argument with an attribute for each input; left out with --command or a table [program]"
    add("model", metavar="FILE.py:FUNCTION", nargs="?", help=help_text)
    add_program(add)
    add("-c", "--config", type=Path, metavar="FILE.toml", help="the inputs, and options under [study]")
    add("-n", "--samples", type=at_least(1), metavar="N", help="how many samples (default: 1024)")
    add(
        "--target",
        type=target,
        metavar="OUTPUT=X",
        help="double the samples until the interval of this output's mean is within X times the mean, instead of -n",
    )
    add("--sampler", choices=STUDY_SAMPLERS, help="how samples are drawn (default: sobol)")
    add("--seed", type=at_least(0, None), metavar="K", help="seed of the sampler (default: 1)")
    add("--store", type=Path, metavar="STORE", help="keep all results in this folder, a Zarr group")
    add_part(add)
    add_failed(add)
    add_outputs(add)
    add_execution(add)
    parser.set_defaults(run=command("study.run"), prog=parser.prog)


def add_resume(commands: Any) -> None:
    """Add ``resume``."""
    parser = of_store(commands, "resume", "continue the study of a store, or extend it to more samples", json=False)
    add = parser.add_argument
    add("--model", metavar="FILE.py:FUNCTION", help="where the model is now (default: where it was)")
    add_program(add)
    add("-c", "--config", type=Path, metavar="FILE.toml", help="where the inputs are now (default: where they were)")
    add("-n", "--samples", type=at_least(1), metavar="N", help="extend the study to N samples, whatever its target")
    add("--target", type=target, metavar="OUTPUT=X", help="as of run (default: that of the run)")
    add_outputs(add)
    add("--force", action="store_true", help="continue although the model's source has changed")
    add_failed(add)
    add_execution(add)
    parser.set_defaults(run=command("study.resume"))


def add_execution(add: Callable[..., Any]) -> None:
    """The options of how samples are run, which change no result."""
    add("--ensemble-size", type=size, metavar="S", help="samples in one call of the model (default: auto)")
    add("--group-by", metavar="INPUT", help="samples with similar values of this input run in one call")
    help_text = "what to do when the model raises an error (default: mask, but end at once if it always does)"
    add("--on-failure", choices=ON_FAILURE, help=help_text)
    add("--workers", type=at_least(1), metavar="N", help="processes (default: this one alone)")
    add_limits(add)
    add_output(add)
