"""`UqResult`: the statistics of a study.

Longer than 400 lines: one class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from ensemble._check import check_level, message, one_of, real_array, require
from ensemble.scalar import (
    Ensemble,
    Moments,
    SampleSet,
    sample_corr,
    sample_cov,
    sample_quantile,
)
from ensemble.scalar.statistics.histograms import Histograms
from ensemble.scalar.statistics.moments import effective_count, exact_mean
from ensemble.scalar.statistics.quantiles import ConfidenceInterval
from ensemble.uq.report.html_report import Report
from ensemble.uq.report.pages import PAGES
from ensemble.uq.study.conditions import Condition, holds, threshold_of
from ensemble.uq.study.failures import NO_REASON, Failures, failures_by_reason
from ensemble.uq.study.intervals import (
    binomial,
    is_independent,
    jump_of,
    jumps_of,
    order_statistics,
    quantile_of_units,
    share_of_units,
    skewed,
    standard_error,
    unseen,
    variance,
)
from ensemble.uq.study.row_blocks import by_rows, largest_change, power_sums
from ensemble.uq.study.streams import Summary, block_size, empty_streams
from ensemble.uq.study.study_protocols import Study
from ensemble.uq.study.table import table

if TYPE_CHECKING:
    import pandas
    import xarray

__all__ = ["Probability", "UqResult", "without_interval"]

MOST_SORTED = 2**28
"""Bytes of an output that are sorted for an interval."""


class Probability(NamedTuple):
    """A probability, and what it could be whatever the failed samples would have given, and those in a bin did give.

    Attributes
    ----------
    value : float or array, shape `shape`
        The share of the samples that did not fail.
    low, high : the same
        The shares if the condition held in none of the failed samples, and in all of them. From histograms, also if it
        held in as few or as many of the samples in the bin of the number as can be.
    """

    value: Any
    low: Any
    high: Any


class UqResult:
    """Statistics of the outputs of a study. Made by `propagate`, and by ``plan.result()``.

    Failed samples are left out of every statistic; `n_failed` says how many. Samples that have not been run are left
    out, too.

    Attributes
    ----------
    names : tuple of str
        Names of the outputs.
    n : int
        Samples of the study.
    n_done, n_failed : int
        Samples that were run, and those of them that failed.
    done, failed : arrays of bool, shape (n,)
    reasons : dict of int to str
        Why a sample failed, by its id.
    earlier_reasons : dict of int to tuple of str
        Why the attempts before the last one failed, of samples that were run more than once.
    ids : array of int, shape (n_done - n_failed,)
        The samples of the statistics.
    seed : int
    keep : {"all", "statistics"}
        Whether every sample is kept, or moments and histograms alone.
    ensemble_size : int
        Samples in a call of the model: what was chosen where it was "auto".
    target_met : bool or None
        Whether the intervals are as narrow as the target; None without a target.
    dims : dict of str to tuple of str
        Names of the axes of each output: those of `Outputs`, else ``NAME_dim_0`` and so on.
    coordinates : dict of str to array, shape (n,)
        Coordinates by the name of an axis, as given by `Outputs`.
    units : dict of str to str
        Units of outputs and axes, as given by `Outputs`.
    """

    def __init__(self, plan: Study) -> None:
        self.n = plan.n
        self.done, self.failed = plan.is_done.copy(), plan.failed.copy()
        self.reasons = dict(sorted(plan.reasons.items()))
        self.earlier_reasons = {i: tuple(texts) for i, texts in sorted(plan.earlier.items())}
        self.ids = np.flatnonzero(self.done & ~self.failed)
        self.names = tuple(plan.layout)
        self.sampler, self.seed = plan.sampler, plan.seed
        self.keep = plan.keep or "all"
        self.ensemble_size = plan.ensemble_size
        self.target_met: bool | None = None
        self._layout = dict(plan.layout)
        self._store = plan.store
        self._all_inputs, self._manifest = plan.samples, plan.manifest
        self._declared = plan.declared
        self._definitions, self._costs, self._redrawn = plan.inputs, plan.costs, getattr(plan, "drawn", None)
        self.coordinates, self.units = dict(self._declared.coordinates), dict(self._declared.units)
        self.dims = self._declared.dims(self._layout, "UqResult") if self._layout else {}
        self._summaries: dict[str, Summary] = {}
        self._histograms: dict[str, Any] = {}
        for name, stream in (plan.streams or {}).items():
            self._summaries[name], self._histograms[name] = stream.summary()

    def __getstate__(self) -> dict[str, object]:
        """Replace the study by what it says of itself: a pickled result holds no model, nor what that holds."""
        return {**vars(self), "_manifest": partial(dict, self._manifest())}

    def __copy__(self) -> Self:
        """Return a result of the same study, with the same arrays."""
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        return made

    # --- what there is
    @property
    def n_done(self) -> int:
        """Samples that were run, failed ones too."""
        return int(np.count_nonzero(self.done))

    @property
    def n_failed(self) -> int:
        """Samples that failed."""
        return int(np.count_nonzero(self.failed))

    @property
    def attempts(self) -> np.ndarray:
        """How often each sample was run, shape (n,): more than once where failed samples were run again."""
        counts = self.done.astype(np.int64)
        for i, texts in self.earlier_reasons.items():
            counts[i] += len(texts)
        return counts

    @property
    def failures(self) -> dict[str, Failures]:
        """How many samples failed by reason, with ``#`` for numbers in it, most frequent first.

        Of each, `failed` counts samples that failed in their last attempt, `repeated` those of them that had failed
        before, and `recovered` those that succeeded when they were run again: transient faults.
        """
        reasons = {int(i): self.reasons.get(int(i), "") for i in np.flatnonzero(self.failed)}
        return failures_by_reason(reasons, self.earlier_reasons)

    @property
    def inputs(self) -> Any:
        """The inputs of the samples of the statistics: `InputSamples` in the order of `ids`."""
        return self._all_inputs.take(self.ids)

    @property
    def weights(self) -> np.ndarray | None:
        """The weights of the samples of the statistics; None where all count the same."""
        weights = self._all_inputs.weights
        return None if weights is None else weights[self.ids]

    @property
    def plot(self) -> Any:
        """Pictures: ``.hist(name)``, ``.fan(name)``, ``.scatter(names)``, ``.field(name)``; they need matplotlib."""
        from ensemble.uq.study_plots import StudyPlots

        return StudyPlots(self, self._declared)

    def _named(self, name: str, function: str) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and type of an output that has a sample."""
        if not self.ids.size:
            first = next(iter(self.reasons.values()), "" if self.n_failed else "none was run") or NO_REASON
            seen = f"{self.n_failed} failed of {self.n_done} that were run"
            raise ValueError(message(f"UqResult.{function}", "the study", "have a sample", seen, f"First: {first}."))
        one_of(name, self.names, f"UqResult.{function}", "name")
        return self._layout[name]

    def values(self, name: str) -> np.ndarray:
        """An output of all samples.

        Returns
        -------
        array, shape ``(*shape, n)``
            NaN (0 in integers and bools) in samples that failed or were not run.

        Raises
        ------
        ValueError
            If there is no such output, or only statistics were kept.
        """
        from ensemble.uq.study.outputs import blank

        shape, dtype = self._named(name, "values")
        result = blank(shape, dtype, self.n)
        result[..., self.ids] = self._read(name, self.ids, "values")
        return result

    def __getitem__(self, name: str) -> Ensemble:
        """An output of the samples that did not fail: as `samples`, but an unknown name is a KeyError."""
        if name not in self.names and self.ids.size:
            inputs = " Inputs are in the attribute inputs." if name in self._all_inputs.names else ""
            known = ", ".join(map(repr, self.names))
            raise KeyError(message("UqResult", "name", f"be one of {known}", repr(name), inputs.strip()))
        return self.samples(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def keys(self) -> tuple[str, ...]:
        """The names of the outputs: ``dict(result)`` has an Ensemble for each."""
        return self.names

    def samples(self, name: str) -> Ensemble:
        """An output of the samples that did not fail, in the order of `ids`.

        Returns
        -------
        Ensemble, shape `shape`
            Its sample set has `ids` and weights (no set where weights are negative).

        Raises
        ------
        ValueError
            If there is no such output, or only statistics were kept.
        """
        self._named(name, "samples")
        values = np.array(self._read(name, self.ids, "samples"))  # what is written into it changes no statistic
        weights = self.weights
        if weights is not None and np.any(weights < 0.0):
            return Ensemble(values)
        method = str(getattr(self.sampler, "name", ""))
        return Ensemble(values, SampleSet(weights=weights, ids=self.ids, method=method, seed=self.seed))

    def _read(self, name: str, ids: np.ndarray, function: str) -> np.ndarray:
        kept = getattr(self._store, "keeps_outputs", True)
        advice = "Run it with keep='all' or with a store."
        require(kept, f"UqResult.{function}", "the study", "have kept its samples", "statistics alone", advice)
        values: np.ndarray = self._store.read(name, ids)
        return values

    # --- moments
    def _summary(self, name: str) -> Summary:
        """Moments in blocks of ids, the same for kept samples and for streams."""
        if name not in self._summaries:
            stream = empty_streams(self._layout, self.sampler.n_replicates, histograms=False)[name]
            good = self.done & ~self.failed
            weights = self._all_inputs.weights
            block = block_size(*self._layout[name])
            for first in range(0, self.n, block):
                ids = np.arange(first, min(self.n, first + block))
                ids = ids[good[ids]]
                if ids.size:
                    part = None if weights is None else weights[ids]
                    stream.add(ids, self._read(name, ids, "mean"), np.ones(ids.size, bool), part)
            self._summaries[name] = stream.summary()[0]
        return self._summaries[name]

    @property
    def _is_quadrature(self) -> bool:
        """Whether the samples are the points of a rule, of which none can be missing."""
        weights = self._all_inputs.weights
        return weights is not None and (getattr(self.sampler, "is_quadrature", False) or bool(np.any(weights < 0.0)))

    def _quadrature(self, name: str, function: str) -> tuple[np.ndarray, np.ndarray]:
        """Samples and weights of a rule."""
        missing = self.n - self.ids.size
        advice = "A quadrature rule needs every point: correct the model, or use a random sampler."
        require(missing == 0, f"UqResult.{function}", "the study", "have all its samples", f"{missing} missing", advice)
        weights = self._all_inputs.weights
        return self._read(name, self.ids, function), weights / weights.sum()

    def mean(self, name: str) -> np.ndarray:
        """The mean of an output.

        Parameters
        ----------
        name : str

        Returns
        -------
        float64 or complex128 array, shape `shape`

        Raises
        ------
        ValueError
            If there is no such output, or no sample; or if a point of a quadrature rule failed.
        """
        self._named(name, "mean")
        if self._is_quadrature:
            values, weights = self._quadrature(name, "mean")
            return exact_mean(np, values, (values * weights).sum(axis=-1))
        return self._summary(name).total().mean()[()]

    def var(self, name: str, ddof: float = 1.0) -> np.ndarray:
        """The variance of an output.

        Parameters
        ----------
        name : str
        ddof : float
            The divisor is ``n - ddof``. Without effect on quadrature rules.

        Returns
        -------
        float64 array, shape `shape`
            NaN where there are not more samples than `ddof`.

        Raises
        ------
        ValueError
            As `mean`.
        """
        self._named(name, "var")
        if self._is_quadrature:
            values, weights = self._quadrature(name, "var")
            deviation = values - np.asarray(exact_mean(np, values, (values * weights).sum(axis=-1)))[..., None]
            return (np.abs(deviation) ** 2 * weights).sum(axis=-1)
        return _var(self._summary(name).total(), ddof)

    def std(self, name: str, ddof: float = 1.0) -> np.ndarray:
        """The standard deviation of an output: the root of `var`."""
        return np.sqrt(self.var(name, ddof))

    def skewness(self, name: str) -> np.ndarray:
        """The skewness of an output, the mean of ``((y - mean) / std)**3``: zero where it is symmetric [1]_.

        Parameters
        ----------
        name : str

        Returns
        -------
        float64 array, shape `shape`, dimensionless
            The moment of the samples, without a correction for their number; NaN where all are equal.

        Raises
        ------
        ValueError, TypeError
            As `mean`; if only statistics were kept, or the output is complex.

        References
        ----------
        .. [1] Joanes, Gill (1998), The Statistician 47(1), 183-189, eq. for g1.

        Examples
        --------
        >>> from scipy import stats
        >>> import ensemble as en
        >>> inputs = en.Inputs(a=stats.gamma(4.0))
        >>> result = en.propagate(lambda x: {"y": x.a}, inputs, 4096, seed=7, progress=False)
        >>> round(float(result.skewness("y")), 1)  # of the distribution: 1
        1.0
        """
        self._named(name, "skewness")
        self._ordered(name, "skewness")
        mean, weights = self.mean(name), self._all_inputs.weights
        total, squares, cubes = 0.0, 0.0, 0.0
        block = block_size(*self._layout[name])
        for first in range(0, self.n, block):  # as the moments: in blocks of ids, so that no bit depends on the groups
            ids = self.ids[np.searchsorted(self.ids, first) : np.searchsorted(self.ids, first + block)]
            if ids.size:
                deviations = self._read(name, ids, "skewness") - mean[..., None]
                weighted = deviations**2 * (1.0 if weights is None else weights[ids])
                total += float(ids.size if weights is None else weights[ids].sum())
                squares = squares + weighted.sum(axis=-1)
                cubes = cubes + (weighted * deviations).sum(axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (cubes / total / (squares / total) ** 1.5)[()]

    def minimum(self, name: str) -> np.ndarray:
        """The smallest value of an output, shape `shape`."""
        self._named(name, "minimum")
        low = self._summary(name).low
        if low is None:
            self._ordered(name, "minimum")
        assert low is not None, "complex outputs alone have none"
        return low[()]

    def maximum(self, name: str) -> np.ndarray:
        """The largest value of an output, shape `shape`."""
        self._named(name, "maximum")
        high = self._summary(name).high
        if high is None:
            self._ordered(name, "maximum")
        assert high is not None, "complex outputs alone have none"
        return high[()]

    def _ordered(self, name: str, function: str) -> None:
        """Refuse complex outputs."""
        if self._layout[name][1].kind == "c":
            seen = f"dtype {self._layout[name][1]}"
            raise TypeError(message(f"UqResult.{function}", f"output {name!r}", "be real", seen))

    # --- quantiles and probabilities
    def quantile(self, name: str, q: Any) -> np.ndarray:
        """Quantiles of an output.

        Parameters
        ----------
        name : str
        q : float or array of floats in [0, 1], dimensionless

        Returns
        -------
        array, shape ``(*q.shape, *shape)``

        Raises
        ------
        ValueError, TypeError
            As `mean`; if an entry of `q` is outside [0, 1]; if the output is complex or the weights are negative.

        Notes
        -----
        Exact from kept samples (`sample_quantile`). From histograms (``keep="statistics"``) off by at most
        ``2 * (max - min) / 63``, in outputs of up to 32,000 entries ``2 * (max - min) / 1023``.
        """
        self._named(name, "quantile")
        self._ordered(name, "quantile")
        self._refuse_signed("quantile")
        if self._histograms.get(name) is None:
            return sample_quantile(self.samples(name), q)[()]
        levels = real_array(q, "UqResult.quantile", "q", "be in [0, 1]")
        valid = bool(np.all((levels >= 0.0) & (levels <= 1.0)))
        require(valid, "UqResult.quantile", "q", "be in [0, 1]", q, "Divide percentages by 100.")
        shape = self._layout[name][0]
        found = [self._histograms[name].quantile(float(level)).reshape(shape) for level in levels.reshape(-1)]
        return np.stack(found).reshape((*levels.shape, *shape))[()] if found else np.zeros((*levels.shape, *shape))

    def _refuse_signed(self, function: str) -> None:
        weights = self._all_inputs.weights
        signed = weights is not None and bool(np.any(weights < 0.0))
        advice = "Negative weights have no distribution; use a random sampler."
        require(not signed, f"UqResult.{function}", "the weights", "be zero or above", "negative ones", advice)

    def probability(self, name: str, condition: Condition) -> Probability:
        """The probability that a condition holds.

        Parameters
        ----------
        name : str
        condition : callable, or str
            A function of the output, an Ensemble, that gives a bool Ensemble, ``lambda y: y > 0.1``; or a comparison
            with a number, ``"> 0.1"``, which does without kept samples.

        Returns
        -------
        Probability
            `value`, dimensionless, and its bounds `low` and `high` over all that the failed samples could have given.

        Raises
        ------
        ValueError, TypeError
            As `quantile`; if the condition is neither; or a function, and the samples were not kept.

        Notes
        -----
        From histograms (``keep="statistics"``) it is interpolated inside the bin of the number, and the bounds tell by
        how much it may be off. It is exact at the smallest and the largest sample, and for integers and bools in a
        range of up to 64 numbers (1,024 in outputs of up to 32,000 entries).
        """
        self._named(name, "probability")
        self._refuse_signed("probability")
        weights = self.weights
        value, least, most = self._share(name, condition)
        share = self.ids.size / (self.ids.size + self.n_failed)
        if weights is not None and self.n_failed:
            share = weights.sum() / (weights.sum() + self._all_inputs.weights[self.failed].sum())
        return Probability(value[()], (least * share)[()], (most * share + (1.0 - share))[()])

    def _share(self, name: str, condition: Condition) -> tuple[Any, Any, Any]:
        """The share of the samples that did not fail for which a condition holds, and its bounds from histograms."""
        if self._histograms.get(name) is not None and isinstance(condition, str):
            comparison, number = threshold_of(condition, "UqResult.probability")
            value, least, most = self._histograms[name].share(comparison, number)
            shape = self._layout[name][0]
            return value.reshape(shape), least.reshape(shape), most.reshape(shape)
        weights = self.weights
        mask = holds(condition, self._read(name, self.ids, "probability"), "UqResult.probability")
        value = mask.mean(axis=-1) if weights is None else (mask * (weights / weights.sum())).sum(axis=-1)
        return value, value, value

    # --- intervals
    def confidence_interval(
        self,
        name: str,
        level: float = 0.95,
        *,
        of: str = "mean",
        condition: Condition | None = None,
        q: float | None = None,
    ) -> ConfidenceInterval:
        """The interval that holds the true value with probability `level` or more.

        Parameters
        ----------
        name : str
        level : float in (0, 1), dimensionless
        of : {"mean", "var", "std", "probability", "quantile"}
        condition : callable or str
            Condition of "probability".
        q : float in [0, 1]
            Level of "quantile".

        Returns
        -------
        ConfidenceInterval
            `low` and `high`, shape `shape`.

        Raises
        ------
        ValueError, TypeError
            As `mean`, `quantile` and `probability`; if there is one replicate alone of samples that are not
            independent, or none of two samples.

        Notes
        -----
        The interval holds the true value at least as often as it says, within 2 % (table of measured coverage in the
        page on propagation). Mean: Student's t of the samples, or of the means of the replicates [1]_, longer on the
        side of the long tail. Variance: of its logarithm, as the mean of squares. Probability: Clopper and Pearson's
        interval of independent samples; Student's of the shares of the replicates, and where all agree the former,
        which is wider. Quantile: two order statistics of independent samples; of replicates or weights, the quantiles
        of all samples at ``q ± t * error`` of their share [2]_. An end is infinite where too few samples are beyond
        it. From histograms, quantiles and probabilities have the interval of independent samples. Quadrature rules
        have none.

        References
        ----------
        .. [1] Owen (2013), Monte Carlo theory, methods and examples, section 17.2: replicated randomized quasi-Monte
           Carlo.
        .. [2] Woodruff (1952), J. Am. Statist. Assoc. 47(260), 635-646.
        """
        function = "UqResult.confidence_interval"
        self._named(name, "confidence_interval")
        level = check_level(level, function)
        one_of(of, ("mean", "var", "std", "probability", "quantile"), function, "of")
        self._ordered(name, "confidence_interval")
        for argument, value, kind in (("condition", condition, "probability"), ("q", q, "quantile")):
            fits = (of == kind) == (value is not None)
            require(fits, function, argument, f"be given with of={kind!r} and no other", f"{value!r} with of={of!r}")
        reason = self.no_interval()
        count = self.ids.size
        require(count > 1, function, "the study", "have two samples or more", count)
        require(not reason, function, "the sampler", "give independent samples or replicates", reason)
        if of == "mean":
            return self._interval_of_mean(name, level)
        if of == "probability":
            return self._interval_of_share(name, level, condition)
        if of == "quantile":
            level_q = float(real_array(q, function, "q", "be in [0, 1]"))
            require(0.0 <= level_q <= 1.0, function, "q", "be in [0, 1]", q, "Divide percentages by 100.")
            return self._interval_of_quantile(name, level, level_q)
        replicates, fewest = self.sampler.n_replicates, min(m.count for m in self._summary(name).moments)
        requirement = f"have two samples in each of {replicates} replicates for of={of!r}"
        advice = "Take more samples, or fewer replicates."
        require(fewest > 1, function, "the study", requirement, f"{fewest} in one", advice)
        low, high = self._interval_of_variance(name, level)
        return ConfidenceInterval(low, high) if of == "var" else ConfidenceInterval(np.sqrt(low), np.sqrt(high))

    def no_interval(self) -> str:
        """Why there is no confidence interval; an empty text where there is one."""
        if self.ids.size < 2:
            return f"{self.ids.size} sample{'' if self.ids.size == 1 else 's'}"
        reason = f"{self.sampler!r}, a quadrature rule" if self._is_quadrature else without_interval(self.sampler)
        replicates = self.sampler.n_replicates
        missing = replicates - np.unique(self.ids % replicates).size
        return reason or (f"{missing} of {replicates} replicates without a sample" if missing else "")

    @property
    def _replicates(self) -> np.ndarray | None:
        """The number of each sample's replicate, for the samples of the statistics; None of independent samples."""
        return self.ids % self.sampler.n_replicates if self.sampler.n_replicates > 1 else None

    def _interval_of_mean(self, name: str, level: float) -> ConfidenceInterval:
        """The interval of the mean, from the spread of samples or replicates, and the skewness of the samples."""
        moments, total = self._summary(name).moments, self._summary(name).total()
        n = effective_count(self.weights, self.ids.size)
        if len(moments) > 1:
            means = np.stack([m.mean() for m in moments], axis=-1)
            error = standard_error(means, np.array([m.weight for m in moments]))
        elif self.weights is None:
            error = _var(total, 1.0) ** 0.5 / np.sqrt(n)
        else:
            error = standard_error(self._read(name, self.ids, "confidence_interval"), self.weights)
        skewness = self._standard_moments(name, 3)[0]
        if len(moments) == 1:
            return skewed(total.mean(), error, skewness, n, n, level)
        least = unseen(self._jump(name), n, len(moments), level)
        return skewed(total.mean(), error, skewness, n, len(moments), level, least)

    def _interval_of_variance(self, name: str, level: float) -> ConfidenceInterval:
        """The interval of the variance, as of the mean of squares about the mean of all samples."""
        moments, total = self._summary(name).moments, self._summary(name).total()
        mean, square = total.mean(), np.asarray(_var(total, 0.0))
        n, least = effective_count(self.weights, self.ids.size), np.asarray(0.0)
        _, fourth, skewness = self._standard_moments(name, 6)
        if len(moments) > 1:
            sizes = np.array([m.weight for m in moments])
            squares = np.stack([_var(m, 0.0) + (m.mean() - mean) ** 2 for m in moments], axis=-1)
            of_mean = standard_error(np.stack([m.mean() for m in moments], axis=-1), sizes)
            error, units = standard_error(squares, sizes), float(len(moments))
            least = unseen(self._jump(name, of_squares=True), n, len(moments), level)
        else:
            of_mean, units = np.sqrt(square / (n - 1.0)), n
            error = square * np.sqrt(np.maximum(fourth - 1.0, 0.0) / (n - 1.0))
        return variance(square + of_mean**2, error, skewness, n, units, level, least)

    def _jump(self, name: str, of_squares: bool = False) -> np.ndarray:
        """The largest jump that the output may have (`jump_of`), or that of its squares about the mean.

        Of fields of more than 256 MB from histograms, to the width of a bin.
        """
        mean, (shape, dtype) = np.asarray(self.mean(name)), self._layout[name]
        histograms = self._histograms.get(name)
        if histograms is None and mean.size * self.ids.size * 8 <= MOST_SORTED:
            values = self._read(name, self.ids, "confidence_interval")
            if of_squares:
                return by_rows(largest_change, values, mean)
            return by_rows(lambda rows: jump_of(np.sort(rows.astype(np.float64), axis=-1)), values)
        if histograms is None:
            histograms = Histograms(mean.size, whole=dtype.kind in "biu")
            block = block_size(shape, dtype)
            for first in range(0, self.ids.size, block):
                part = self._read(name, self.ids[first : first + block], "confidence_interval")
                histograms.add(part.reshape(mean.size, -1))
        return jumps_of(histograms, mean.reshape(-1))[of_squares].reshape(shape)

    def _standard_moments(self, name: str, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Skewness, mean fourth power in units of the deviation, and skewness of the squares; zeros of constants.

        Powers above `most`, 3 or 6, are left out: the last two are zeros without them.

        From histograms each sample is in the middle of its bin.
        """
        mean, std = np.asarray(self.mean(name)), np.sqrt(np.asarray(_var(self._summary(name).total(), 0.0)))
        scale = np.where(std > 0.0, std, 1.0)
        if self._histograms.get(name) is not None:
            found = self._histograms[name].moments(mean.reshape(-1), scale.reshape(-1), (2, 3, 4, 6))
            second, third, fourth, sixth = (value.reshape(mean.shape) for value in found)
        else:
            sums = np.zeros((4, *mean.shape))
            weights, block = self._all_inputs.weights, block_size(*self._layout[name])
            for first in range(0, self.n, block):
                ids = self.ids[np.searchsorted(self.ids, first) : np.searchsorted(self.ids, first + block)]
                if ids.size:
                    values = self._read(name, ids, "confidence_interval")
                    sums += power_sums(values, mean, scale, None if weights is None else weights[ids], most)
            second, third, fourth, sixth = sums / (self.ids.size if self.weights is None else self.weights.sum())
        spread = fourth - second**2
        with np.errstate(divide="ignore", invalid="ignore"):
            cube = sixth - 3.0 * second * fourth + 2.0 * second**3
            of_squares = np.where(spread > 1e-12, cube / np.where(spread > 1e-12, spread, 1.0) ** 1.5, 0.0)
            skewness = np.where(second > 0.0, third / np.where(second > 0.0, second, 1.0) ** 1.5, 0.0)
        return skewness, fourth, of_squares

    def _interval_of_share(self, name: str, level: float, condition: Any) -> ConfidenceInterval:
        """The interval of a probability; from histograms the wider one of independent samples over the bounds."""
        if self._histograms.get(name) is not None and isinstance(condition, str):
            _, least, most = self._share(name, condition)
            n = self.ids.size
            return ConfidenceInterval(binomial(least * n, n, level).low, binomial(most * n, n, level).high)
        hits = holds(condition, self._read(name, self.ids, "probability"), "UqResult.probability")
        return share_of_units(hits, self.weights, self._replicates, level)

    def _interval_of_quantile(self, name: str, level: float, q: float) -> ConfidenceInterval:
        """The interval of a quantile; from histograms that of independent samples, a bin longer on both sides."""
        self._refuse_signed("confidence_interval")
        if self._histograms.get(name) is None:
            samples = self._read(name, self.ids, "confidence_interval")
            return quantile_of_units(samples, q, self.weights, self._replicates, level)
        n = self.ids.size
        low, high = order_statistics(n, q, level)
        ends = self.quantile(name, np.clip(np.array([low, high]) / max(1, n - 1), 0.0, 1.0))
        width = self._histograms[name].width().reshape(self._layout[name][0])
        first = np.maximum(ends[0] - width, self.minimum(name))
        last = np.minimum(ends[1] + width, self.maximum(name))
        return ConfidenceInterval(np.where(low < 0, -np.inf, first)[()], np.where(high >= n, np.inf, last)[()])

    # --- several outputs
    def covariance(self, a: str, b: str | None = None) -> np.ndarray:
        """The covariance of every entry of output `a` with every entry of `b`; `sample_cov` with ``ddof=1``."""
        return self._joint("covariance", lambda x, y: sample_cov(x, y, ddof=1.0), a, b)

    def correlation(self, a: str, b: str | None = None) -> np.ndarray:
        """The correlation of every entry of output `a` with every entry of `b`; as `sample_corr`."""
        return self._joint("correlation", sample_corr, a, b)

    def _joint(self, function: str, statistic: Any, a: str, b: str | None) -> Any:
        self._named(a, function)
        self._named(a if b is None else b, function)
        self._refuse_signed(function)
        return statistic(self.samples(a), None if b is None else self.samples(b))[()]

    # --- elsewhere
    def to_xarray(self) -> xarray.Dataset:
        """The study as an `xarray.Dataset`.

        Returns
        -------
        xarray.Dataset
            With kept samples: dimension `sample` and those of the outputs, inputs as coordinates, `failed` and `done`.
            Without: mean, standard deviation and range of every output. Axes have the coordinates, and variables the
            attribute ``units``, that were given by `Outputs`.

        Raises
        ------
        ImportError
            If xarray is not installed (``pip install 'ensemble-arrays[uq]'``).
        """
        from ensemble.uq.study.dataset import dataset_of

        return dataset_of(self, self._all_inputs)

    def to_pandas(self) -> pandas.DataFrame:
        """The study as a `pandas.DataFrame`.

        Returns
        -------
        pandas.DataFrame
            With kept samples a row for each: inputs, outputs, `failed` and `done`; arrays have a column for each entry,
            named by its coordinates, ``height(t=0.5 s)``, or by its place, ``height(3)``. Values of failed samples and
            of those not run are NaN (0 in integers and bools). Without kept samples a row for each entry of the
            outputs: mean, std, minimum and maximum. The attribute ``attrs["units"]`` has the units of columns.

        Raises
        ------
        ImportError
            If xarray or pandas are not installed (``pip install 'ensemble-arrays[uq]'``).
        ValueError
            If that are more than 16,384 columns.
        """
        from ensemble.uq.study.files import frame_of

        return frame_of(self, self._parts())

    def save(self, path: str | PathLike[str], *, outputs: Iterable[str] | None = None) -> None:
        """Write the study to a file, or to a new store that `open_study` reads and `propagate` goes on with.

        Parameters
        ----------
        path : path
            By its ending: ``.csv``, the table of `to_pandas` with units in the first line, ``height(t=0.5 s) [m]``;
            ``.nc``, the dataset of `to_xarray` as NetCDF; ``.zarr``, a new folder: the store that
            ``propagate(..., store=path)`` would have left. A file is replaced when the new one is complete.
        outputs : iterable of str, optional
            Outputs to write to a file. Default: all.

        Raises
        ------
        ImportError
            If xarray is not installed (``pip install 'ensemble-arrays[uq]'``); a store does without.
        ValueError
            If the path has another ending or is a URL; if there is no such output; if a CSV file would have more than
            16,384 columns, or NetCDF cannot hold the outputs; if there is a study at `path`, or samples were not kept
            that a store needs.

        Examples
        --------
        >>> import os, tempfile
        >>> from scipy import stats
        >>> import ensemble as en
        >>> inputs = en.Inputs(load=stats.norm(1.0, 0.2))
        >>> r = en.propagate(lambda x: {"tip": x.load / 3.0}, inputs, 64, seed=5, progress=False)
        >>> path = os.path.join(tempfile.mkdtemp(), "run.zarr")
        >>> r.save(path)
        >>> bool(en.uq.open_study(path).mean("tip") == r.mean("tip"))
        True
        """
        from ensemble.uq.study.files import save

        save(self, self._parts(), path, outputs, "UqResult.save")

    def _parts(self) -> Any:
        """What files are written from."""
        from ensemble.uq.study.files import Parts

        kept = getattr(self._store, "keeps_outputs", True)
        return Parts(self._all_inputs, self._layout, self._manifest, self._store.read, kept)

    def report(self, path: str | PathLike[str] | None = None, *, level: float = 0.95) -> Report:
        """Make a page of HTML that tells the study: what was run, statistics, pictures, failures, cost.

        Parameters
        ----------
        path : path of a file, optional
            Where the page is written, whole. Default: nowhere.
        level : float in (0, 1), dimensionless
            Probability of the intervals.

        Returns
        -------
        Report
            A notebook shows it; ``.html`` is the text of the page, ``.save(path)`` writes it.

        Raises
        ------
        ValueError
            If `level` is out of range, or `path` does not end in ``.html``.

        Notes
        -----
        The page needs nothing beside itself: pictures are SVG in the page, and there is no script. Equal results have
        equal pages. Convergence, influence and pictures need kept samples; the page says what it leaves out and why.

        Examples
        --------
        >>> from scipy import stats
        >>> import ensemble as en
        >>> inputs = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))
        >>> r = en.propagate(lambda x: {"tip": x.load / x.stiffness}, inputs, 256, seed=7, progress=False)
        >>> r.report()
        Report(256 of 256 samples, 0 failed)
        """
        from ensemble.uq.report.source import Source

        level = check_level(level, "UqResult.report")
        redrawn = None if self._redrawn is None else self._redrawn()
        result = self if redrawn is None else self.with_inputs(*redrawn)
        kept = bool(getattr(self._store, "keeps_outputs", True)) and self.keep == "all"
        source = Source(
            result, self._manifest(), self._definitions, result._all_inputs, self._costs.runs, result._first, kept,
            self._store.path, self._declared,
        )  # fmt: skip
        report: Report = PAGES.make(source, level, path)
        return report

    def with_inputs(self, samples: Any, sampler: Any) -> UqResult:
        """Give the result of a store the inputs of all its samples, and the sampler that has drawn them.

        Parameters
        ----------
        samples : InputSamples
            Those of all samples, in the order of their ids.
        sampler : Sampler

        Returns
        -------
        UqResult
            The same statistics; `inputs` has the values, also of samples that are not compacted yet.
        """
        result = copy(self)
        result._all_inputs, result.sampler = samples, sampler
        return result

    def _first(self, n: int) -> UqResult:
        """The statistics of the first `n` samples, from kept samples."""
        part = copy(self)
        part.n, part.done, part.failed = n, self.done[:n], self.failed[:n]
        part.ids = self.ids[: np.searchsorted(self.ids, n)]
        part.reasons = {k: text for k, text in self.reasons.items() if k < n}
        part._all_inputs = self._all_inputs.take(np.arange(n))
        part._summaries, part._histograms = {}, {}
        return part

    def __repr__(self) -> str:
        return table(self)


def without_interval(sampler: Any) -> str:
    """Why a sampler gives no confidence interval; an empty text where it does."""
    return "" if is_independent(sampler) or sampler.n_replicates > 1 else f"one replicate of {sampler!r}"


def _var(moments: Moments, ddof: float) -> Any:
    """The variance; NaN where there are too few samples."""
    if moments.count <= ddof:
        return np.full_like(np.abs(moments.mean()), np.nan)[()]
    return moments.var(ddof)[()]
