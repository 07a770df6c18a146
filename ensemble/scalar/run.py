"""`run`: unchanged Python code on ensembles, each sample along the way that it would take alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np

from ensemble._check import integer, message, one_of, samples_text
from ensemble.scalar._outside import changes, refuse_generator, refuse_lazy, snapshot
from ensemble.scalar._paths import Decision, Follower, Stop, Task, following
from ensemble.scalar._stitch import ForeignError, copied, cut, ensembles_in, plain, sample_of, stitched
from ensemble.scalar.branching import _count_of, _Gather, _one_set
from ensemble.scalar.divergence import POLICIES, Decider, DivergenceError, _policy, divergence
from ensemble.scalar.sample_set import SampleSet

__all__ = ["Group", "RunResult", "run"]


@dataclass(frozen=True, eq=False)
class Group:
    """Samples that took one path.

    Attributes
    ----------
    samples : numpy.ndarray of int
        Their numbers, rising.
    decisions : tuple of Decision
        Where they parted from other samples, in the order of the run, each with their answer.
    carried : int
        How many samples were computed in the run that gave their results: these and, up to as many more, others that
        had left them on the way. 1: the run was of plain numbers and arrays.
    reason : str
        Why a sample had to run alone although no decision parted it from the others; empty otherwise.
    error : Exception or None
        What their run ended with.
    """

    samples: np.ndarray
    decisions: tuple[Decision, ...]
    carried: int
    reason: str = ""
    error: Exception | None = None

    @property
    def n_samples(self) -> int:
        """How many samples took this path."""
        return self.samples.size


@dataclass(frozen=True, eq=False)
class RunResult:
    """What `run` returns.

    Attributes
    ----------
    value : any
        What `f` returned, for all samples: numbers and arrays as ensembles, in the dicts, lists, tuples and dataclasses
        that `f` built. What no ensemble can hold, say texts or arrays of different shapes, is a `SampleList` where
        samples differ and the value itself where all are equal. Samples that failed hold NaN (``None`` in a
        `SampleList`). Without an ensemble among the inputs it is what `f` returned.
    groups : tuple of Group
        The paths, by their first sample.
    errors : dict of int to Exception
        What `f` raised, by sample.
    n_samples : int
    n_runs : int
        How often `f` was called.
    work : int
        Samples computed, over all calls of `f`; `n_samples` would be one call for all.
    """

    value: Any
    groups: tuple[Group, ...]
    errors: dict[int, Exception]
    n_samples: int
    n_runs: int
    work: int
    _values: list[tuple[np.ndarray, Any]] = field(repr=False)

    @property
    def failed(self) -> np.ndarray:
        """Which samples raised, bools of shape (n_samples,)."""
        return np.isin(np.arange(self.n_samples), list(self.errors))

    def sample(self, i: int) -> Any:
        """What `f` returned for sample `i`, as a plain value; or raises what it raised."""
        i = range(self.n_samples)[i]
        if i in self.errors:
            raise self.errors[i]
        ids, value = next((ids, value) for ids, value in self._values if i in ids)
        return sample_of(value, int(np.flatnonzero(ids == i)[0]))

    def group_of(self, i: int) -> Group:
        """The path that sample `i` took."""
        i = range(self.n_samples)[i]
        return next(group for group in self.groups if i in group.samples)

    def raise_if_failed(self) -> RunResult:
        """Raise the exceptions of all samples as one `ExceptionGroup`; without any, give the result itself."""
        if self.errors:
            seen = f"{len(self.errors)} of {self.n_samples} that raised ({samples_text(sorted(self.errors))})"
            text = message("run", "f", "return in every sample", seen, "result.errors holds them by sample.")
            raise ExceptionGroup(text, list({id(error): error for error in self.errors.values()}.values()))
        return self

    def __repr__(self) -> str:
        paths = f"{len(self.groups)} {'path' if len(self.groups) == 1 else 'paths'}"
        calls = f"{self.n_runs} {'call' if self.n_runs == 1 else 'calls'} of {self.work} samples in all"
        failed = f", {len(self.errors)} failed" if self.errors else ""
        lines = [f"RunResult: {self.n_samples} samples, {paths}, {calls}{failed}"]
        for group in self.groups[:12]:
            way = [str(decision) for decision in group.decisions]
            way = way if len(way) <= 3 else ["...", *way[-2:]]
            way += [f"alone: {group.reason}"] if group.reason else []
            way += [f"raised {type(group.error).__name__}: {group.error}"] if group.error is not None else []
            lines.append(f"  {samples_text(group.samples)}: {'; '.join(way) or 'no decision'}")
        lines += [f"  ... {len(self.groups) - 12} paths more"] if len(self.groups) > 12 else []
        return "\n".join(lines)


class _Runner:
    """Runs tasks until no sample is left over."""

    def __init__(self, f: Callable[..., Any], nest: Any, n_samples: int, max_groups: int | None) -> None:
        self.f, self.nest, self.max_groups = f, nest, max_groups
        self.waiting = [Task(np.arange(n_samples))]
        self.groups: list[Group] = []
        self.values: list[tuple[np.ndarray, Any]] = []
        self.n_runs = self.work = 0

    def run(self) -> None:
        while self.waiting:
            task = self.waiting.pop()
            if task.ids.size == 1:
                self.alone(task)
            else:
                self.together(task)
            self.check_limit()

    def call(self, pick: Callable[[Any], Any], n_samples: int) -> Any:
        """`f` of own copies of the inputs, so that no run sees what another one changed in place."""
        arguments, options = copied(pick, self.nest)
        self.n_runs += 1
        self.work += n_samples
        return self.f(*arguments, **options)

    def alone(self, task: Task) -> Exception | None:
        """Run one sample as plain values: any code works."""
        s = int(task.ids[0])
        try:
            value = self.call(lambda x: plain(x, s), 1)
        except Exception as error:
            self.groups.append(Group(task.ids, task.decisions, 1, task.reason, error))
            return error
        refuse_lazy(value)
        self.groups.append(Group(task.ids, task.decisions, 1, task.reason))
        self.values.append((task.ids, value))
        return None

    def together(self, task: Task) -> None:
        """Run all samples of `task` and keep what came out for those that were followed to the end."""
        follower, value, error = Follower(task), None, None
        try:
            with following(follower):
                value = self.call(_Gather(task.ids), task.ids.size)
        except Stop:
            pass
        except Exception as raised:
            error = raised
        # A bare ``except:`` in f may have swallowed the stop: what came out then means nothing.
        if error is not None and _from_arrays(error):
            follower.refuse(error)
        elif error is None and not follower.stopped:
            refuse_lazy(value)
            try:
                value = cut(value, follower.followed, task.ids.size)
            except ForeignError as foreign:
                follower.leave(str(foreign))
        if not follower.stopped:
            ids = task.ids[follower.followed]
            if error is not None:
                self.failed(Task(ids, follower.decisions), error)
            else:
                self.groups.append(Group(ids, follower.decisions, task.ids.size))
                self.values.append((ids, value))
        self.waiting.extend(follower.left)

    def at_once(self) -> None:
        """One call for all samples; whatever policy is in force decides."""
        task = self.waiting.pop()
        try:
            value = self.call(_Gather(task.ids), task.ids.size)
        except DivergenceError:
            raise
        except Exception as error:
            self.groups.append(Group(task.ids, (), task.ids.size, error=error))
            return
        refuse_lazy(value)
        self.groups.append(Group(task.ids, (), task.ids.size))
        self.values.append((task.ids, value))

    def failed(self, task: Task, error: Exception) -> None:
        """All samples of `task` raised together: believe it if one of them raises the same alone."""
        first, others = task.ids[:1], task.ids[1:]
        own = self.alone(Task(first, task.decisions))
        if type(own) is type(error) and str(own) == str(error):
            self.groups[-1] = Group(task.ids, task.decisions, 1, error=own)
            return
        reason = f"{type(error).__name__} for several samples at once: {error}"
        self.groups[-1] = Group(first, task.decisions, 1, reason, own)
        self.waiting.extend(Task(np.array([s]), task.decisions, reason) for s in others)

    def check_limit(self) -> None:
        paths = len(self.groups) + len(self.waiting)
        if self.max_groups is not None and paths > self.max_groups:
            ways = [task.decisions for task in self.waiting] + [group.decisions for group in self.groups]
            place = next((str(way[-1]) for way in ways if way), "what only plain values can do")
            requirement = f"take its samples along {self.max_groups} paths or fewer (max_groups)"
            advice = "Raise max_groups, or use per_sample."
            raise DivergenceError(message("run", "f", requirement, f"{paths} so far, as by {place}", advice))


def _from_arrays(error: BaseException | None) -> bool:
    """Whether `error`, or what led to it, came out of an operation on ensembles, which one sample may not fail in."""
    while error is not None:
        if _ends_in_arrays(error.__traceback__):
            return True
        error = error.__cause__ or error.__context__
    return False


def _ends_in_arrays(traceback: TracebackType | None) -> bool:
    last = None
    while traceback is not None:
        last, traceback = traceback, traceback.tb_next
    module = "" if last is None else last.tb_frame.f_globals.get("__name__", "")
    return module.startswith(("ensemble.", "numpy.", "array_api_compat.", "array_api_strict."))


def run(
    f: Callable[..., Any],
    /,
    *inputs: Any,
    on_divergence: str = "split",
    max_groups: int | None = None,
    **keywords: Any,
) -> RunResult:
    """Call unchanged Python code with ensembles: every sample goes the way it would go alone.

    Where ``if``, ``while``, ``and``, ``max``, ``sorted``, ``int(x)``, ``math.sqrt(x)`` or anything else that wants one
    truth value or one number meets samples that differ, the samples are parted by their answers, and each party is run
    from the start without the others. The results, exceptions included, are put back in sample order.

    Parameters
    ----------
    f : callable
        Code for plain numbers and arrays. It must be free of effects outside itself, as it is called once or more for
        every path; it is no generator.
    *inputs, **keywords : any
        The arguments of `f`: ensembles of one number of samples, plain arrays, numbers and other values, nested in
        dicts, lists, tuples and dataclasses. Every call gets its own copies of the arrays; other objects pass as they
        are.
    on_divergence : {"split", "raise", "first", "any", "all", "majority"}
        "split": as said above. Any other: one call of `f` for all samples under ``divergence(on_divergence)``.
    max_groups : int, optional
        Give up with more paths than that.

    Returns
    -------
    RunResult
        ``.value`` for all samples, ``.sample(i)``, ``.groups``, ``.errors``, ``.n_runs``.

    Raises
    ------
    TypeError
        If `f` is a generator or coroutine function, or returns a generator or another lazy iterator.
    ValueError
        If the ensembles have different numbers of samples, or `on_divergence` is no such name.
    DivergenceError
        If there are more than `max_groups` paths, or from `f` under "raise".

    Warns
    -----
    RuntimeWarning
        If a variable outside `f` changed: a global, a closure's, an attribute of the object whose method `f` is.

    Notes
    -----
    ``run(f, x).sample(i)`` is ``f(x.sample(i)[()])``: alone, a sample without axes is a NumPy scalar. It is so to the
    bit as far as the operations of `f` are; sums and products of matrices differ by rounding, as their order is the
    library's, and a decision within rounding of its threshold may turn.

    A run that meets a disagreement goes on with the largest party, and the others are run later; what the samples that
    left would compute from there on is ignored. When fewer than half of the samples carried are still followed, or one,
    it stops and these are run by themselves, one alone as plain numbers. So `f` is called at least once and less than
    twice for every path, and at any time at least half of the samples computed count. A path that ends in an exception
    takes one call more: one of its samples is run alone to see that it raises the same. Code that an ensemble cannot
    pass (``np.asarray(x)``, ``isinstance(x, float)`` that raises, a shape that depends on the values) is run sample by
    sample.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.scalar import Ensemble
    >>> def collatz_steps(n):
    ...     steps = 0
    ...     while n != 1:
    ...         n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    ...     return steps
    >>> result = run(collatz_steps, Ensemble(np.array([1, 6, 7, 1])))
    >>> result.value.samples
    array([ 0,  8, 16,  0])
    >>> [group.samples.tolist() for group in result.groups]
    [[0, 3], [1], [2]]
    >>> run(lambda x: 1 // int(x), Ensemble(np.array([0.5, 1.5]))).errors
    {0: ZeroDivisionError('integer division or modulo by zero')}
    """
    one_of(on_divergence, ("split", *POLICIES), "run", "on_divergence")
    limit = None if max_groups is None else integer(max_groups, "run", "max_groups", minimum=1)
    if not callable(f):
        raise TypeError(message("run", "f", "be callable", f"a {type(f).__name__}"))
    refuse_generator(f)
    nest = (inputs, keywords)
    found = ensembles_in(nest)
    n_samples, sample_set = _count_of("run", found), _one_set(found)
    in_force = _policy.get()
    if isinstance(in_force, Decider) and n_samples > 1:
        # Inside another run each sample has to be alone before it can be run by itself.
        raise in_force.refused(ValueError("run inside run"))
    before = snapshot(f)
    runner = _Runner(f, nest, n_samples, limit)
    if on_divergence == "split":
        runner.run()
    else:
        with divergence(on_divergence):
            runner.at_once()
    _warn_of_changes(changes(before, snapshot(f)), runner.n_runs, n_samples)
    return _result(runner, n_samples, sample_set, lifted=bool(found))


def _result(runner: _Runner, n_samples: int, sample_set: SampleSet | None, lifted: bool) -> RunResult:
    groups = tuple(sorted(runner.groups, key=lambda group: group.samples[0]))
    errors = {int(s): group.error for group in groups if group.error is not None for s in group.samples}
    runner.values.sort(key=lambda part: part[0][0])
    values, places = [value for _, value in runner.values], [ids for ids, _ in runner.values]
    if lifted or not values:
        value = stitched(values, places, n_samples, sample_set)
    else:
        value = values[0]
    counts = runner.n_runs, runner.work
    return RunResult(value, groups, dict(sorted(errors.items())), n_samples, *counts, runner.values)


def _warn_of_changes(names: list[str], n_runs: int, n_samples: int) -> None:
    if names:
        seen = f"another {', '.join(names)} after {n_runs} calls for {n_samples} samples"
        advice = "What it did there is not what one call for each sample would do; return it instead."
        warnings.warn(message("run", "f", "leave what is outside it alone", seen, advice), RuntimeWarning, stacklevel=3)
