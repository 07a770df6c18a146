"""`run`: unchanged Python code on ensembles; each sample takes the path of its own scalar run."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._check import integer, message, one_of, require_callable
from ensemble._containers import mapped
from ensemble._errors import kept
from ensemble._keywords import require_keywords
from ensemble.scalar.divergence import side_effects
from ensemble.scalar.divergence.branching import Gather, count_of, ensembles_in, one_set
from ensemble.scalar.divergence.captured_values import CapturedValues
from ensemble.scalar.divergence.caught import judging, may_be_of_samples
from ensemble.scalar.divergence.comparison import compared, samples_to_check
from ensemble.scalar.divergence.paths import Follower, Stop, Task, following
from ensemble.scalar.divergence.plain_loop import PlainLoop, as_numpy, owned, plain_loop
from ensemble.scalar.divergence.policy import (
    POLICIES,
    Decider,
    DivergenceError,
    divergence,
    policy_in_force,
    require_known,
)
from ensemble.scalar.divergence.regroup import (
    NotSeparableError,
    copied,
    plain,
    refuse_other_samples,
    regrouped,
    regrouped_rows,
    selected,
)
from ensemble.scalar.divergence.run_result import Group, RunResult
from ensemble.scalar.divergence.traced import result_of_traced, traced_among
from ensemble.scalar.ensemble import Ensemble, wrap
from ensemble.scalar.sample_set import SampleSet

__all__ = ["Group", "RunResult", "run"]


class _Runner:
    """Runs tasks until no sample is left over."""

    def __init__(
        self, f: Callable[..., Any], nest: Any, n_samples: int, max_groups: int | None, loop: PlainLoop | None = None
    ) -> None:
        self.f, self.nest, self.n_samples, self.max_groups, self.loop = f, nest, n_samples, max_groups, loop
        self.captured = CapturedValues(f, nest, n_samples)
        self.pending = [Task(np.arange(n_samples))]
        self.in_loop = False
        self.rows: dict[int, Any] = {}
        self.groups: list[Group] = []
        self.values: list[tuple[np.ndarray, Any]] = []
        self.n_runs = self.work = self.n_group_runs = 0

    def run(self) -> None:
        if self.captured.shows_types:
            self.pending = [Task(np.array([s]), (), "a class pattern, x.__class__") for s in range(self.n_samples)]
        while self.pending:
            task = self.pending.pop()
            if self.loop is not None and (task.ids.size <= self.loop.max_samples or self.is_scattered(self.loop)):
                self.run_loop(self.loop, task.ids)
            elif task.ids.size == 1:
                self.run_single(task)
            else:
                self.run_group(task)
            self.check_limit()

    def is_scattered(self, loop: PlainLoop) -> bool:
        """Whether the calls with ensembles finished fewer samples than a loop would have in that time."""
        finished = sum(ids.size for ids, _ in self.values if ids.size > 1)
        return finished < self.n_group_runs * loop.max_samples // 2

    def run_loop(self, loop: PlainLoop, ids: np.ndarray) -> None:
        """A loop over the samples `ids`, whose paths stay unknown."""
        values = loop(ids)
        for s, value in zip(ids.tolist(), values, strict=True):
            if s not in loop.errors:
                self.rows[s] = as_numpy(value) if loop.exact else value
        self.n_runs, self.work = self.n_runs + loop.n_runs, self.work + loop.n_runs
        loop.n_runs = 0

    def call(self, pick: Callable[[Any], Any], n_samples: int) -> Any:
        """`f` of own copies of the inputs, so that no run depends on in-place changes of another one."""
        nest = copied(pick, self.nest)
        self.n_runs, self.work = self.n_runs + 1, self.work + n_samples
        return self.captured.call(self.f, nest, pick, n_samples > 1)

    def run_single(self, task: Task) -> Exception | None:
        """Run one sample as plain values: any code works."""
        s = int(task.ids[0])
        try:
            value = self.call(lambda x: plain(x, s), 1)
        except Exception as error:
            require_known(error)
            self.groups.append(Group(task.ids, task.decisions, 1, task.reason, kept(error)))
            return error
        side_effects.refuse_lazy(value)
        if self.n_samples > 1:
            refuse_other_samples(value, s)
        self.groups.append(Group(task.ids, task.decisions, 1, task.reason))
        self.values.append((task.ids, owned(value)))
        return None

    def run_group(self, task: Task) -> None:
        """Run all samples of `task` in one call and keep the result of those that were followed to the end."""
        least = 1 if self.loop is None else self.loop.max_samples
        follower, value, error, own = Follower(task, least, self.captured.package), None, None, False
        self.n_group_runs += 1
        try:
            with following(follower), judging(self.captured.has_other_handlers):
                value = self.call(Gather(task.ids), task.ids.size)
        except Stop:
            pass
        except Exception as raised:
            require_known(raised)
            own, error = may_be_of_samples(raised, follower), kept(raised)
        # A bare ``except:`` in f may have caught `Stop`: the value is then not a result.
        if error is None and follower.heard is not None:
            error = kept(follower.heard)
        follower.forget()
        if error is not None and not own:
            follower.refuse(error)
        elif error is None and not follower.stopped:
            side_effects.refuse_lazy(value)
            try:
                value = selected(value, follower.followed, task.ids.size)
            except NotSeparableError as reason:
                follower.defer(str(reason))
        if not follower.stopped:
            ids = task.ids[follower.followed]
            if error is not None:
                self.confirm_error(Task(ids, follower.decisions), error)
            else:
                self.groups.append(Group(ids, follower.decisions, task.ids.size))
                more = self.pending or follower.deferred
                self.values.append((ids, owned(value) if more else value))
        self.pending.extend(follower.deferred)

    def run_all(self) -> None:
        """One call for all samples; whatever policy is in force decides."""
        task = self.pending.pop()
        try:
            value = self.call(Gather(task.ids), task.ids.size)
        except DivergenceError:
            raise
        except Exception as error:
            require_known(error)
            self.groups.append(Group(task.ids, (), task.ids.size, error=kept(error)))
            return
        side_effects.refuse_lazy(value)
        self.groups.append(Group(task.ids, (), task.ids.size))
        self.values.append((task.ids, value))

    def confirm_error(self, task: Task, error: Exception) -> None:
        """One call for all samples of `task` raised `error`: it is theirs if one of them raises the same alone."""
        first, others = task.ids[:1], task.ids[1:]
        own = self.run_single(Task(first, task.decisions))
        if type(own) is type(error) and str(own) == str(error):
            self.groups[-1] = Group(task.ids, task.decisions, 1, error=own)
            return
        reason = f"{type(error).__name__} for several samples at once: {error}"
        self.groups[-1] = Group(first, task.decisions, 1, reason, own)
        self.pending.extend(Task(np.array([s]), task.decisions, reason) for s in others)

    def check_limit(self) -> None:
        paths = len(self.groups) + len(self.pending)
        if self.max_groups is not None and paths > self.max_groups:
            paths_taken = [task.decisions for task in self.pending] + [group.decisions for group in self.groups]
            place = next((str(path[-1]) for path in paths_taken if path), "what only plain values can do")
            requirement = f"take its samples along {self.max_groups} paths or fewer (max_groups)"
            advice = "Raise max_groups, or use per_sample."
            raise DivergenceError(message("run", "f", requirement, f"{paths} so far, as by {place}", advice))


def run(
    f: Callable[..., Any],
    /,
    *inputs: Any,
    on_divergence: str = "split",
    max_groups: int | None = None,
    loop: bool | None = None,
    check: int = 0,
    **keywords: Any,
) -> RunResult:
    """Call unchanged Python code with ensembles: every sample takes the path of its own scalar run.

    Where ``if``, ``while``, ``and``, ``max``, ``sorted``, ``int(x)`` or anything else needs one truth value or one
    number and the samples differ, they are grouped by their values, and each group is run from the start without the
    others. The results, exceptions included, are put back in sample order.

    Parameters
    ----------
    f : callable
        Code for plain numbers and arrays. It must be free of effects outside itself, as it is called once or more for
        every path; it is no generator.
    *inputs, **keywords : any
        The arguments of `f`: ensembles of one number of samples, plain arrays, numbers and other values, nested in
        dicts, lists, tuples and dataclasses. Every call gets its own copies of the arrays; other objects pass as they
        are. An argument of `f` that has the name of an option below is given by `functools.partial`.
    on_divergence : {"split", "raise", "first", "any", "all", "majority"}
        "split": see above. Any other: one call of `f` for all samples under ``divergence(on_divergence)``.
    max_groups : int, optional
        Raise where samples take more paths.
    loop : bool, optional
        True: call `f` with the plain values of one sample after the other. False: call it with ensembles. None: call it
        with ensembles, unless `f` is arithmetic on numbers, as decided from its code, and the samples are so few that a
        loop costs less. A loop calls `f` once for every sample. The bits of the results are the same.
    check : int
        Run so many samples, of every group in turn and chosen by a fixed seed, alone as plain values and compare.

    Returns
    -------
    RunResult
        ``.value`` for all samples, ``.sample(i)``, ``.groups``, ``.errors``, ``.n_runs``, ``.execution``.

    Raises
    ------
    TypeError
        If the values are traced by ``jax.jit``, ``grad`` or ``vmap`` and `f` needs one, as for a branch.
        If `f` is a generator or coroutine function, or returns a generator or another lazy iterator; if an argument
        with ensembles in it is a container of which no other can be made.
    ValueError
        If the ensembles have different numbers of samples, or `on_divergence` is no such name; if `f` returns an
        ensemble of several samples for one sample, as one that it finds in an attribute.
    RuntimeError
        If ``check`` finds a sample whose run alone gives something else, by more than 4096 units of rounding of the
        largest number of an array; it names sample, place and both values.
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

    Where samples differ, a run continues with the largest group, and the others are run later; what their samples
    compute from there on is ignored. When fewer than half of the samples carried are still followed, or one, it stops
    and these are run by themselves, one alone as plain numbers. So `f` is called at least once and less than twice for
    every path, and at any time at least half of the samples computed count. A path that ends in an exception takes one
    call more: one of its samples is run alone to see that it raises the same. Code that an ensemble cannot pass
    (``np.asarray(x)``, a shape or a type of results that depends on the values) is run sample by sample, and so is code
    with ``x.__class__`` or ``case float():``.

    Functions of `math` are called once for every sample, and no group is divided. ``isinstance(x, float)``,
    ``type(x)``, ``hasattr(x, "__len__")`` and ``np.isscalar(x)`` give the result for one sample. An ensemble of the
    same samples that `f` finds as a global, in its closure or among its defaults has the samples of each call. All of
    that holds in `f` and in functions of its package that it finds by name; not in methods, nor in other packages.

    In a loop, arithmetic of float64 is done on Python's floats as long as these give the same bits; a sample that
    divides by zero or overflows is run again on NumPy's scalars. Such a function has no effects outside itself and
    calls nothing that has; ``result.groups``, unknown after a loop, is found by a run with ensembles when it is
    first used.

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
    >>> result.execution
    'loop'
    >>> [group.samples.tolist() for group in result.groups]
    [[0, 3], [1], [2]]
    >>> run(lambda x: 1 // int(x), Ensemble(np.array([0.5, 1.5]))).errors
    {0: ZeroDivisionError('integer division or modulo by zero')}
    """
    require_keywords(f, keywords, "run", ["on_divergence", "max_groups", "loop", "check"])
    looping = None
    if on_divergence == "split" and max_groups is None and loop is not False:
        looping = plain_loop(f, inputs, keywords)
        if looping is not None and not check and (loop or looping.n_samples <= looping.max_samples):
            return _of_loop(looping)
    one_of(on_divergence, ("split", *POLICIES), "run", "on_divergence")
    limit = None if max_groups is None else integer(max_groups, "run", "max_groups", minimum=1)
    n_checks = integer(check, "run", "check", minimum=0) if check else 0
    require_callable(f, "run", "f")
    side_effects.refuse_generator(f)
    nest = (inputs, keywords)
    mapped(lambda x: None if isinstance(x, Ensemble) else x, nest)  # raises for what cannot be copied
    found = ensembles_in(nest)
    n_samples = count_of("run", found)
    if isinstance(in_force := policy_in_force.get(), Decider) and n_samples > 1:
        # Inside another run each sample has to be alone before it can be run by itself.
        raise in_force.refused(ValueError("run inside run"))
    before = side_effects.snapshot(f) if looping is None else {}  # plain arithmetic changes nothing
    runner = _Runner(f, nest, n_samples, limit, looping)
    sample_set = one_set(found, runner.captured.ensembles)
    if (traced := traced_among(found + runner.captured.ensembles)) is not None:
        return result_of_traced(lambda: runner.call(lambda part: part, n_samples), n_samples, traced)
    if looping is not None and (loop or n_samples <= looping.max_samples):
        return _checked(runner, _of_loop(looping), n_checks)
    if on_divergence != "split":
        with divergence(on_divergence):
            runner.run_all()
    else:
        if loop or runner.captured.records_warnings:
            runner.in_loop, runner.pending = True, [Task(np.array([s])) for s in reversed(range(n_samples))]
        if looping is not None and not loop:
            runner.run_group(runner.pending.pop())
            if not runner.groups:  # the samples differ from the start: none is finished
                return _checked(runner, _of_loop(looping, tried=runner), n_checks)
        runner.run()
    result = _result(runner, n_samples, sample_set, lifted=bool(found))
    checked = _checked(runner, result, n_checks if on_divergence == "split" else 0)
    if looping is None:
        _warn_of_changes(side_effects.changes(before, side_effects.snapshot(f)), runner.n_runs, n_samples)
    return checked


def _of_loop(loop: PlainLoop, tried: _Runner | None = None) -> RunResult:
    """The result of a loop over all samples, which may follow a run with ensembles that was `tried`."""
    values, n_samples, errors = loop(), loop.n_samples, loop.errors
    if errors:
        errors = dict(sorted(errors.items()))
        ids = np.array([s for s in range(n_samples) if s not in errors], dtype=np.int64)
        places = [ids[k : k + 1] for k in range(ids.size)]
        value = regrouped([values[s] for s in ids], places, n_samples, loop.sample_set)
    else:
        plain_floats = loop.kinds == {float}
        value = (
            wrap(np.array(values), loop.sample_set)
            if plain_floats
            else regrouped_rows(values, n_samples, loop.sample_set)
        )
    paths = functools.partial(_paths_of_loop, loop)
    execution, n_runs, work = "loop", loop.n_runs, loop.n_runs
    if tried is not None:
        execution, n_runs, work = "both", n_runs + tried.n_runs, work + tried.work
    return RunResult(value, errors, n_samples, n_runs, work, execution, {}, [], paths, [], values, loop.exact)


def _paths_of_loop(loop: PlainLoop) -> tuple[Group, ...]:
    return _paths_of(loop.f, loop.ensembles())


def _paths_of(f: Callable[..., Any], nest: Any) -> tuple[Group, ...]:
    """The paths that samples take, found by a run with ensembles."""
    inputs, keywords = nest
    with np.errstate(all="ignore"):  # the loop has given the warnings
        return run(f, *inputs, loop=False, **keywords).groups


def _checked(runner: _Runner, result: RunResult, k: int) -> RunResult:
    """`result`, after `k` of its samples were run alone and compared."""
    if k and result.n_samples > 1:
        for s in samples_to_check(k, result.n_samples, runner.groups):
            got: Any = result.errors[s] if s in result.errors else result.sample(s)
            try:
                alone = runner.call(functools.partial(plain, s=s), 1)
            except Exception as error:
                alone = kept(error)
            result.checked[s] = compared(s, got, alone)
    return result


def _result(runner: _Runner, n_samples: int, sample_set: SampleSet | None, lifted: bool) -> RunResult:
    groups = tuple(sorted(runner.groups, key=lambda group: group.samples[0]))
    errors = {int(s): group.error for group in groups if group.error is not None for s in group.samples}
    counts = runner.n_runs, runner.work
    execution, paths, known = ("loop" if runner.in_loop else "ensembles"), None, [groups]
    if runner.rows or (runner.loop is not None and runner.loop.errors):
        errors |= runner.loop.errors if runner.loop is not None else {}
        execution, paths, known = "both", functools.partial(_paths_of, runner.f, copied(lambda x: x, runner.nest)), []
    if len(runner.rows) == n_samples:
        rows = [runner.rows[s] for s in range(n_samples)]
        value = regrouped_rows(rows, n_samples, sample_set)
        return RunResult(value, errors, n_samples, *counts, execution, {}, [], paths, known, rows)
    runner.values += [(np.array([s]), row) for s, row in runner.rows.items()]
    runner.values.sort(key=lambda part: part[0][0])
    values, places = [value for _, value in runner.values], [ids for ids, _ in runner.values]
    value = regrouped(values, places, n_samples, sample_set) if lifted or not values else values[0]
    errors = dict(sorted(errors.items()))
    return RunResult(value, errors, n_samples, *counts, execution, {}, runner.values, paths, known)


def _warn_of_changes(names: list[str], n_runs: int, n_samples: int) -> None:
    if names:
        seen = f"another {', '.join(names)} after {n_runs} calls for {n_samples} samples"
        advice = "What it did there is not what one call for each sample would do; return it instead."
        warnings.warn(message("run", "f", "leave what is outside it alone", seen, advice), RuntimeWarning, stacklevel=3)
