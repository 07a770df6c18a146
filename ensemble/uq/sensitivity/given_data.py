"""`given_data`: which inputs an output depends on, from samples that are there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ensemble._check import check_level, integer, kind_of, message, one_of, require
from ensemble._keywords import explains_calls
from ensemble.scalar.plain_arrays import masked_as_nan
from ensemble.uq.inputs.samples import InputSamples
from ensemble.uq.sensitivity.dependence import Classes, delta, first, hsic, kernel_moments, pawn
from ensemble.uq.sensitivity.indices import SensitivityIndices
from ensemble.uq.sensitivity.observations import components_of, observations
from ensemble.uq.store.axes import default_names
from ensemble.uq.study.declared import Outputs
from ensemble.uq.study.outputs import named_outputs
from ensemble.uq.study.study_result import UqResult

__all__ = ["GivenDataIndices", "given_data"]

KINDS = ("first", "delta", "pawn", "hsic")

FEWEST = 16
"""Samples below which there is nothing to divide into classes."""


class GivenDataIndices(SensitivityIndices):
    """Indices from samples that were there, by `given_data`.

    Attributes
    ----------
    first, delta, pawn, hsic : dict of str to ndarray
        By output name, shape (n_inputs, \\*shape), dimensionless; the kinds among the `methods` of the call.
    n_rows, n_used : int
        Samples that were given; those with finite outputs.
    """

    __doc__ += (SensitivityIndices.__doc__ or "").partition("----------\n")[2]

    def __init__(
        self,
        inputs: tuple[str, ...],
        kinds: tuple[str, ...],
        shapes: Mapping[str, tuple[int, ...]],
        *,
        level: float,
        n_rows: int,
        n_used: int,
        seed: int,
        declared: Outputs,
        notes: tuple[str, ...],
    ) -> None:
        self.inputs, self.outputs, self.kinds = inputs, tuple(shapes), kinds
        self.level, self.seed = level, seed
        self.n_rows, self.n_used = n_rows, n_used
        self.n_samples, self.n_failed = n_rows, n_rows - n_used
        self.notes = notes
        self._declared = declared
        self._dims = {name: default_names(name, len(shape)) for name, shape in shapes.items()}
        self._bounds = {kind: {} for kind in kinds}

        def blank() -> dict[str, dict[str, np.ndarray]]:
            shape_of = {name: (len(inputs), *shape) for name, shape in shapes.items()}
            return {kind: {name: np.full(shape, np.nan) for name, shape in shape_of.items()} for kind in kinds}

        self._values, self._half_widths, self._p_values = blank(), blank(), blank()
        self._moments = {name: (np.zeros(shape), np.zeros(shape)) for name, shape in shapes.items()}

    def __getattr__(self, name: str) -> dict[str, np.ndarray]:
        values: dict[str, dict[str, np.ndarray]] = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        if name in KINDS:
            found = f"{name!r} was not among the methods, {', '.join(values)}"
            raise AttributeError(f"GivenDataIndices: {found}.")
        raise AttributeError(f"GivenDataIndices has no attribute {name!r}")

    def p_value(self, name: str, kind: str | None = None) -> np.ndarray:
        """The probability of an index at least as large where the output does not depend on the input.

        Parameters
        ----------
        name : str
            Name of the output.
        kind : str, optional
            One of the `methods` of the call. Default: the first one.

        Returns
        -------
        ndarray, shape (n_inputs, *shape), dimensionless
            NaN for constant outputs, and for all but "hsic" where there were no permutations.

        Raises
        ------
        KeyError, ValueError
            If there is no such output or kind.
        """
        kind = self._checked(name, kind, "p_value")
        return self._p_values[kind][name]

    def _head(self) -> str:
        return f"GivenDataIndices: {self.n_used} of {self.n_rows} samples, intervals of {100 * self.level:g} %"


def _given(study: Any, outputs: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], int, tuple[str, ...]]:
    """Columns of inputs, outputs ``(*shape, n)``, the number of samples that were given, and notes."""
    function = "given_data"
    if isinstance(study, UqResult | InputSamples):
        samples, values, notes = observations(study, outputs, function)
        advice = "Draw them with sampler='sobol', 'latin_hypercube' or 'monte_carlo'."
        require(samples.weights is None, function, "study", "have samples of equal weight", "a quadrature rule", advice)
        n_rows = study.n_done if isinstance(study, UqResult) else study.n_samples
        return {one.label: one.numbers for one in components_of(samples)[0]}, values, n_rows, notes
    if not hasattr(study, "keys"):
        wanted = "be a UqResult, InputSamples, or columns by name"
        raise TypeError(message(function, "study", wanted, kind_of(study)))
    columns = {str(name): np.asarray(masked_as_nan(study[name])) for name in study.keys()}  # noqa: SIM118  a DataFrame, too
    sizes = {name: column.shape for name, column in columns.items()}
    n = next(iter(sizes.values()))[-1] if sizes and len(next(iter(sizes.values()))) == 1 else 0
    require(all(shape == (n,) for shape in sizes.values()), function, "study", "have columns of one length", f"{sizes}")
    if outputs is None:
        raise TypeError(message(function, "outputs", "be given with columns", None))
    values = named_outputs(outputs, n, function, arrays=True)
    codes = {name: c if c.dtype.kind in "iufb" else np.unique(c, return_inverse=True)[1] for name, c in columns.items()}
    numbers = {name: np.asarray(c, dtype=np.float64) for name, c in codes.items()}
    finite = np.all([np.isfinite(c) for c in numbers.values()], axis=0)
    for array in values.values():
        finite &= np.all(np.isfinite(array.reshape(-1, n)), axis=0)
    notes = () if finite.all() else (f"{np.sum(~finite)} of {n} samples are not finite and are left out.",)
    varying = {name: c[finite] for name, c in numbers.items() if np.ptp(c[finite]) > 0.0}
    return varying, {name: np.asarray(a[..., finite], dtype=np.float64) for name, a in values.items()}, n, notes


@explains_calls("given_data")
def given_data(
    study: Any,
    outputs: Any = None,
    *,
    methods: Sequence[str] = KINDS,
    n_classes: int | None = None,
    n_permutations: int = 200,
    n_resamples: int = 100,
    seed: int = 0,
    level: float = 0.95,
) -> GivenDataIndices:
    """Compute sensitivity indices of every output from samples that are there: no further run of the model.

    Inputs may depend on each other: an index tells what knowing the input tells of the output.

    Parameters
    ----------
    study : UqResult, InputSamples, or columns by name (dict, DataFrame)
        The result of `propagate`, samples of inputs, or numbers of shape (n,) from elsewhere. Components of vectors are
        inputs of their own, ``v[0]``; random fields and inputs that do not vary are left out.
    outputs : dict of str to Ensemble or array ``(*shape, n_samples)``, or one of these: output "y"
        None for a `UqResult`, which has them. Samples with a value that is not finite are left out.
    methods : sequence of {"first", "delta", "pawn", "hsic"}
        Which indices; see Notes.
    n_classes : int, at least 2, optional
        Classes into which the samples are divided by the values of an input. Default: the square root of the number of
        samples for "first", 10 for "pawn", and for "delta" the number of [1]_, up to 48.
    n_permutations : int
        Permutations of the outputs, which give the `p_value` of "first", "delta" and "pawn"; 0 for none.
    n_resamples : int
        Bootstrap resamples, which give the intervals of these three, and the bias that is taken from "delta" [1]_.
    seed : int
        Seed of the permutations and of the resamples.
    level : float in (0, 1), dimensionless
        Probability of the intervals.

    Returns
    -------
    GivenDataIndices
        ``.delta[name]`` and so on, shape (D, \\*shape), ``.interval(name, kind)``, ``.p_value(name, kind)``.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or out of range; if there are fewer than 16 samples, samples of a quadrature
        rule, or no input that varies.

    Notes
    -----
    "first": the first Sobol' index, from the means within classes of the input, adjusted for their number. "delta":
    half the mean distance between the density of the output and that within classes [1]_ [2]_; 0 for independence, 1
    for a function of the input alone. "pawn": the median of the largest distances between the distribution functions
    [3]_. "hsic": the normalised Hilbert-Schmidt independence criterion with Gaussian kernels as wide as the standard
    deviations [4]_; its `p_value` is of the asymptotic gamma distribution [5]_, and it has no interval.

    Intervals are of the bootstrap; those of "first" have, too, what the output may vary within the classes: twice the
    change of the index with classes half as wide.

    "hsic" takes time that grows with the square of the number of samples; the others take
    ``n * (n_permutations + n_resamples)`` per input and entry of an output.

    References
    ----------
    .. [1] Plischke, Borgonovo, Smith (2013), European Journal of Operational Research 226(3), 536-550.
    .. [2] Borgonovo (2007), Reliability Engineering and System Safety 92(6), 771-784.
    .. [3] Pianosi, Wagener (2018), Environmental Modelling and Software 108, 197-207.
    .. [4] Da Veiga (2015), Journal of Statistical Computation and Simulation 85(7), 1283-1305.
    .. [5] Gretton et al. (2007), Advances in Neural Information Processing Systems 20, 585-592.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> inputs = en.Inputs(a=stats.norm(), b=stats.norm(), idle=stats.norm())
    >>> study = en.propagate(lambda x: {"y": x.a + 0.5 * x.b**2}, inputs, 512, seed=3, progress=False)
    >>> found = en.uq.given_data(study, methods=["hsic"])
    >>> found.inputs, found.p_value("y") < 0.01
    (('a', 'b', 'idle'), array([ True,  True, False]))
    """
    function = "given_data"
    kinds = (methods,) if isinstance(methods, str) else tuple(methods)
    for kind in kinds:
        one_of(kind, KINDS, function, "methods")
    require(bool(kinds), function, "methods", "name one", "none")
    n_permutations = integer(n_permutations, function, "n_permutations", minimum=0)
    n_resamples = integer(n_resamples, function, "n_resamples", minimum=0)
    if n_classes is not None:
        n_classes = integer(n_classes, function, "n_classes", minimum=2)
    columns, values, n_rows, notes = _given(study, outputs)
    require(bool(columns), function, "study", "have an input that varies", "none")
    n = next(iter(columns.values())).size
    require(n >= FEWEST, function, "study", f"have at least {FEWEST} samples with finite outputs", n)
    shapes = {name: array.shape[:-1] for name, array in values.items()}
    declared = getattr(study, "_declared", None)
    found = GivenDataIndices(
        tuple(columns), kinds, shapes, level=check_level(level, function), n_rows=n_rows, n_used=n, seed=seed,
        declared=declared if isinstance(declared, Outputs) else Outputs(), notes=notes,
    )  # fmt: skip
    _fill(found, columns, values, n_classes, n_permutations, n_resamples)
    return found


def _class_count(kind: str, n: int, given: int | None) -> int:
    if given is not None:
        return given
    if kind == "first":
        return max(2, math.isqrt(n))
    if kind == "pawn":
        return 10
    exponent: float = 2.0 / (7.0 + math.tanh((1500.0 - n) / 500.0))
    return min(48, math.ceil(math.pow(n, exponent)))


LARGEST_EXPONENT = 250
"""Power of two whose square and fourth power are still far from the ends of double precision."""


def of_middle_size(x: np.ndarray) -> np.ndarray:
    """`x`, or a power of two times `x` where its squares would overflow or vanish: no index depends on the unit."""
    exponent = int(np.frexp(np.abs(x).max())[1])
    return x if abs(exponent) <= LARGEST_EXPONENT else np.ldexp(x, -exponent)


MEASURES: dict[str, Callable[[np.ndarray, Classes], float]] = {"first": first, "delta": delta, "pawn": pawn}


def _fill(
    found: GivenDataIndices,
    columns: dict[str, np.ndarray],
    values: dict[str, np.ndarray],
    n_classes: int | None,
    n_permutations: int,
    n_resamples: int,
) -> None:
    """Compute all indices: every entry of an output by itself, with the same permutations and resamples."""
    from scipy.special import ndtri

    n, factor = found.n_used, float(ndtri(0.5 + 0.5 * found.level))
    rng = np.random.default_rng(found.seed)
    orders = [rng.permutation(n) for _ in range(n_permutations)]
    draws = [rng.integers(n, size=n) for _ in range(n_resamples)]
    numbers = list(map(of_middle_size, columns.values()))
    moments = [kernel_moments(x) for x in numbers] if "hsic" in found.kinds else []
    notes = []
    for name, array in values.items():
        flat = array.reshape(-1, n)
        with np.errstate(over="ignore", under="ignore"):
            found._moments[name] = array.mean(axis=-1), array.var(axis=-1)
        constant = np.ptp(flat, axis=1) <= 8.0 * np.finfo(float).eps * np.abs(flat).max(axis=1)
        if constant.any():
            one = "is" if flat.shape[0] == 1 else f"has {constant.sum()} of {constant.size} entries that are"
            notes.append(f"output {name!r} {one} constant: no index is defined, NaN stands for it.")
        for entry in np.flatnonzero(~constant):
            y = of_middle_size(flat[entry])
            place = np.unravel_index(entry, array.shape[:-1])
            of_y = kernel_moments(y) if moments else None
            for i, x in enumerate(numbers):
                at: tuple[Any, ...] = (i, *place)
                for kind in found.kinds:
                    if kind == "hsic":
                        assert of_y is not None
                        value, probability = hsic(x, y, moments[i], of_y)
                        found._values[kind][name][at], found._p_values[kind][name][at] = value, probability
                        continue
                    results = _measured(MEASURES[kind], x, y, _class_count(kind, n, n_classes), orders, draws)
                    value, spread, missed, probability = results
                    found._values[kind][name][at] = value
                    found._half_widths[kind][name][at] = factor * spread + missed
                    found._p_values[kind][name][at] = probability
    found.notes = (*found.notes, *notes)


def _measured(
    measure: Callable[[np.ndarray, Classes], float],
    x: np.ndarray,
    y: np.ndarray,
    count: int,
    orders: list[np.ndarray],
    draws: list[np.ndarray],
) -> tuple[float, float, float, float]:
    """The index, its standard error by the bootstrap, what classes miss, and the permutations with one as large.

    Within a class the mean of the output still varies with the input, which the first index misses: that falls as one
    over the number of classes at tails, and faster elsewhere. So it is at most twice what half of the width finds.
    """
    classes = Classes(x, count)
    value, missed = measure(y, classes), 0.0
    if measure is first and 4 * count <= y.size:
        missed = 2.0 * max(0.0, first(y, Classes(x, 2 * count)) - value)
    without = [measure(y[order], classes) for order in orders]
    probability = (1 + sum(each >= value for each in without)) / (1 + len(orders)) if orders else np.nan
    again = [measure(y[draw], Classes(x[draw], count)) for draw in draws]
    spread = float(np.std(again, ddof=1)) if len(again) > 1 else np.nan
    if measure is delta and again:  # the bias of densities from few samples
        value = 2.0 * value - float(np.mean(again))
    return value, spread, missed, probability
