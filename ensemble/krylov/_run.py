"""What the Krylov methods share: checked arguments, the state of every sample, and compaction.

Vectors are arrays of any library and only kernels touch them. What there is one of per sample (norms, coefficients,
masks, counts) is NumPy on the host: a few numbers, decided on in plain sight.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, contiguous, home_of, moved, to_numpy
from ensemble._check import integer, message, one_of, positive, require
from ensemble._kernels import krylov as kernels
from ensemble._kernels._memory import empty_like
from ensemble.krylov.result import SolveResult, Status
from ensemble.linalg import Identity
from ensemble.linalg.adapt import as_operator
from ensemble.linalg.operators import samples_of, set_of, wrap_like
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set

WORTH_COMPACTING = 3
"""Iterations that must lie ahead before finished samples are taken out of the vectors and matrices."""


@dataclass
class LinearSystem:
    """Checked arguments of a solver: operators, wide vectors, and what the answer should look like."""

    function: str
    A: Any
    M: Any
    b: Any
    x0: Any
    rtol: Any
    atol: Any
    coupled: bool
    like: Any
    operator_samples: int
    sample_set: SampleSet | None


def linear_system(
    function: str, A: Any, b: Any, x0: Any, M: Any, rtol: Any, atol: Any, max_iterations: int, coupling: str
) -> LinearSystem:
    """Check what every solver takes, and give all vectors one number of samples and one type."""
    A = as_operator(A, function, "A")
    M = Identity() if M is None else as_operator(M, function, "M")
    n = A.shape[0]
    advice = "Solve the normal equations or use lsmr."
    require(A.shape[0] == A.shape[1], function, "A", "be square", f"shape {tuple(A.shape)}", advice)
    require(
        isinstance(M, Identity) or tuple(M.shape) == (n, n), function, "M", f"have shape {(n, n)}", f"shape {M.shape}"
    )
    integer(max_iterations, function, "max_iterations", minimum=0)
    one_of(coupling, ("independent", "ensemble"), function, "coupling")
    given = {"b": b} if x0 is None else {"b": b, "x0": x0}
    vectors = {name: samples_of(v) for name, v in given.items()}
    n_samples = common_samples(function, n, vectors, A=A, M=M)
    rtol, atol = (tolerance(t, function, name, n_samples) for t, name in ((rtol, "rtol"), (atol, "atol")))
    dtype = common_dtype(function, vectors, A)
    A, M = (m.astype(dtype) if hasattr(m, "astype") else m for m in (A, M))  # kernels know no mixed products
    wide = {name: widen(v, n_samples, dtype) for name, v in vectors.items()}
    require_one_home(function, wide["b"], A=A, M=M)
    like = x0 if x0 is not None and vectors["x0"].shape[-1] > vectors["b"].shape[-1] else b
    operator_samples = max(getattr(A, "n_samples", 1), getattr(M, "n_samples", 1))
    sets = [set_of(v) for v in (A, M, b, x0) if getattr(v, "n_samples", 1) == n_samples]
    sample_set = functools.reduce(common_set, sets, None)
    coupled = coupling == "ensemble"
    start = wide.get("x0")
    return LinearSystem(function, A, M, wide["b"], start, rtol, atol, coupled, like, operator_samples, sample_set)


def tolerance(value: Any, function: str, argument: str, n_samples: int) -> Any:
    """A tolerance: one number, or one for each sample, in an array or an Ensemble."""
    if isinstance(value, Ensemble) and not value.ndim:
        value = to_numpy(value.samples) if value.n_samples > 1 else value.samples[0]
    if np.ndim(value) == 0:
        return positive(value, function, argument, zero=True)
    value = np.asarray(value, np.float64)
    require(
        value.shape == (n_samples,), function, argument, f"be a number or {n_samples} of them", f"shape {value.shape}"
    )
    sound = (value >= 0.0) & (value < np.inf)
    if not sound.all():
        requirement = "be a finite number, zero or above, in every sample"
        require(False, function, argument, requirement, f"{value[np.argmin(sound)]} in sample {np.argmin(sound)}")
    return value


def common_samples(function: str, n: int, vectors: dict[str, Any], **operators: Any) -> int:
    """The one number of samples of vectors and operators; 1 fits every other."""
    counts = {name: getattr(operator, "n_samples", 1) for name, operator in operators.items()}
    for name, samples in vectors.items():
        require(
            samples.ndim == 2 and samples.shape[0] == n, function, name, f"be a vector of length {n}",
            f"shape {tuple(samples.shape[:-1])}",
            "For many samples, pass an Ensemble, its samples in the last axis." if samples.ndim > 2 else "",
        )  # fmt: skip
        counts[name] = samples.shape[1]
    n_samples = max(counts.values())
    for name, count in counts.items():
        require(count in (1, n_samples), function, name, f"have {n_samples} samples, or 1", count)
    return n_samples


def common_dtype(function: str, vectors: dict[str, Any], A: Any) -> Any:
    """The real floating type that vectors and matrix meet in."""
    first = vectors["b"]
    if isinstance(first, np.ndarray):
        dtype = np.result_type(*vectors.values(), getattr(A, "dtype", np.float64), np.float32)
        if dtype.kind != "f":
            raise TypeError(message(function, "A, b and x0", "be real", dtype))
        return dtype
    xp = array_namespace(first)
    dtype = xp.result_type(*(v.dtype for v in vectors.values()), getattr(A, "dtype", first.dtype))
    if not xp.isdtype(dtype, "real floating"):
        raise TypeError(message(function, "A, b and x0", "be real and floating", dtype))
    return dtype


def widen(samples: Any, n_samples: int, dtype: Any) -> Any:
    """`samples` with `n_samples` columns of `dtype`, contiguous."""
    if samples.shape[1] != n_samples:
        samples = array_namespace(samples).broadcast_to(samples, (samples.shape[0], n_samples))
    return contiguous(samples, dtype)


def require_one_home(function: str, b: Any, **operators: Any) -> None:
    """Matrix, preconditioner and vectors must lie in one library and on one device."""
    for name, operator in operators.items():
        values = getattr(operator, "home", None)
        if values is not None and home_of(values) != home_of(b):
            library, device = home_of(values)
            require(
                False, function, "b", f"live where {name} does ({library}, {device})", " ".join(home_of(b)),
                "Move one of them: xp.asarray for vectors, A.to(b) for a matrix.",
            )  # fmt: skip


class Run:
    """The state of one solve. Arrays named by sample have one value for each; vectors hold the samples in `members`.

    A method lists in `vectors` the names of its arrays of shape (n, n_samples) that live from one iteration to the
    next, in `scratch` those that do not, and in `values` its NumPy arrays whose last axis is the sample.
    """

    vectors: tuple[str, ...] = ("b", "x", "r")
    scratch: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def __init__(self, system: LinearSystem) -> None:
        self.system = system
        self.A, self.M, self.b, self.coupled = system.A, system.M, system.b, system.coupled
        n_samples = self.b.shape[1]
        self.members = np.arange(n_samples)
        norm_b, x0, atol = norms(self.b), system.x0, system.atol
        self.unit = units_of(self.b, norm_b, self.coupled)
        if self.unit is not None:
            unit = moved(self.unit.astype(self.b.dtype), self.b)
            self.b, x0, atol = self.b / unit, None if x0 is None else x0 / unit, atol / self.unit
            norm_b = norms(self.b)
        self.x, self.r = empty_like(self.b), empty_like(self.b)
        self.x[...] = 0.0 if x0 is None else x0
        self.workspace = self.M.workspace(n_samples) if hasattr(self.M, "workspace") else None
        if system.x0 is None:
            self.r[...] = self.b
        else:
            self.residual(self.r)
        self.wide_x: Any = None
        self.eps = float(array_namespace(self.b).finfo(self.b.dtype).eps)
        norm = norm_b if x0 is None else norms(self.r)
        with np.errstate(all="ignore"):
            self.target = np.maximum(system.rtol * norm_b, atol)
        sound = np.isfinite(norm) & np.isfinite(self.target)
        if self.coupled and not norm_b.all():  # beside the others, a sample may be too small to have a norm
            sound &= (norm_b > 0.0) | ~to_numpy(array_namespace(self.b).any(self.b != 0.0, axis=0))
        self.initial, self.latest = norm, norm.copy()
        self.status = np.full(n_samples, Status.max_iterations, dtype=object)
        self.status[norm <= self.target] = Status.converged
        self.status[~sound] = Status.breakdown
        self.iterations = np.zeros(n_samples, np.int64)
        self.active = sound & (norm > self.target)
        self.log: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    # --- vectors
    def residual(self, out: Any) -> Any:
        """out = b - A x."""
        if hasattr(self.A, "residual"):
            return self.A.residual(self.x, self.b, out)
        self.A.apply(self.x, out)
        out[...] = self.b - out
        return out

    def precondition(self, r: Any, out: Any) -> Any:
        """M r, in `out`, or `r` itself where there is no preconditioner."""
        if isinstance(self.M, Identity):
            return r
        work = () if self.workspace is None else (self.workspace,)
        result = self.M.apply(r, out, *work)
        if result is not None and result is not out:  # an operator that had no use for the buffer
            out[...] = result
        return out

    def coefficients(self, values: np.ndarray, where: np.ndarray) -> Any:
        """`values` for the samples of `where` and zero, which freezes, for the others: what the kernels take."""
        values = np.where(where & np.isfinite(values), values, 0.0)
        if isinstance(self.x, np.ndarray):
            return values.astype(self.x.dtype)
        return array_namespace(self.x).asarray(values, dtype=self.x.dtype, device=self.x.device)

    def together(self, values: np.ndarray) -> np.ndarray:
        """Inner products as the coupling wants them: each sample's own, or the sum over the running samples."""
        if not self.coupled:
            return values
        return np.broadcast_to(np.sum(values[..., self.active], axis=-1)[..., None], values.shape).copy()

    # --- outcomes
    def record(self, which: np.ndarray, norm: np.ndarray) -> None:
        """Note the residual norms of the samples of `which` at their present iteration."""
        members = self.members[which]
        self.latest[members] = norm[which]
        self.log.append((members, self.iterations[members], norm[which]))

    def finish(self, which: np.ndarray, status: Status) -> None:
        """Take samples out of the run."""
        self.status[self.members[which]] = status
        self.active = self.active & ~which

    def prove(self, claims: np.ndarray, norm: np.ndarray, scratch: Any) -> np.ndarray:
        """Believe convergence only from the true residual, which replaces the recursive one where they disagree."""
        if not claims.any() or (self.coupled and not np.array_equal(claims, self.active)):
            return norm
        true_norm = norms(self.residual(scratch))
        norm = np.where(claims, true_norm, norm)
        proven = claims & (true_norm <= self.target[self.members])
        unproven = claims & ~proven
        if self.coupled and unproven.any():
            proven, unproven = np.zeros_like(proven), claims
        if unproven.any():
            self.copy(unproven, scratch, self.r)
        self.finish(proven, Status.converged)
        return norm

    def copy(self, which: np.ndarray, source: Any, out: Any) -> None:
        """The samples of `which` of one vector into another."""
        xp = array_namespace(out)
        mask = which if isinstance(out, np.ndarray) else xp.asarray(which, device=out.device)
        out[...] = xp.where(mask, source, out)

    # --- compaction
    def should_compact(self, norm: np.ndarray, iterations: Any, running: np.ndarray) -> bool:
        """Whether at most half of the samples run and, by their mean rate so far, enough iterations lie ahead."""
        if not running.any() or 2 * running.sum() > running.size:
            return False
        if not (hasattr(self.A, "take_samples") and hasattr(self.M, "take_samples")):
            return False
        members = self.members[running]
        rate = np.log(norm[running] / self.initial[members]) / iterations
        ahead = np.log(self.target[members] / norm[running]) / rate
        return bool(np.any((rate >= 0.0) | (ahead >= WORTH_COMPACTING)))

    def compact(self, kept: np.ndarray) -> None:
        """Narrow vectors, matrix and preconditioner to the samples whose places are `kept`."""
        places = moved(kept, self.x)
        if self.wide_x is None:
            self.wide_x = empty_like(self.x)
            self.wide_x[...] = self.x
        else:
            kernels.put_samples(self.x, moved(self.members, self.x), self.wide_x)
        self.A, self.M = self.A.take_samples(kept), self.M.take_samples(kept)
        for name in self.vectors:
            setattr(self, name, kernels.take_samples(getattr(self, name), places, None))
        for name in self.scratch:
            setattr(self, name, empty_like(self.x))
        for name in self.values:
            setattr(self, name, getattr(self, name)[..., kept])
        self.members, self.active = self.members[kept], self.active[kept]
        if self.workspace is not None:
            self.workspace = self.M.workspace(kept.size)

    # --- the end
    def result(self) -> SolveResult:
        """The outcome of all samples."""
        x = self.x if self.wide_x is None else kernels.put_samples(self.x, moved(self.members, self.x), self.wide_x)
        if self.unit is not None:
            x = x * moved(self.unit.astype(x.dtype), x)
        wrapped = wrap_like(self.system.like, x, self.system.operator_samples, self.system.sample_set)
        history, target = self.outside(self.history()), self.outside(self.target)
        return SolveResult(wrapped, self.status, self.iterations, history, target, self.system.function)

    def outside(self, norms: np.ndarray) -> np.ndarray:
        """Norms of all samples in the caller's units: a copy."""
        return norms.copy() if self.unit is None else norms * self.unit

    def history(self) -> np.ndarray:
        """Residual norms by each sample's own iteration number; a finished sample keeps its last value."""
        history = np.full((int(self.iterations.max()) + 1, self.initial.size), np.nan)
        history[0] = self.initial
        for members, rows, norms in self.log:
            history[rows, members] = norms
        for s, last in enumerate(self.iterations):
            history[last:, s] = history[last, s]
        return history


def norms(vectors: Any) -> np.ndarray:
    """The 2-norm of each sample, float64 on the host."""
    return np.sqrt(host(kernels.dot(vectors, vectors, None)))


def units_of(b: Any, norm: np.ndarray, coupled: bool) -> np.ndarray | None:
    """Powers of two to divide samples by whose squares leave the range of numbers, 1 for the others; None for no such.

    A right-hand side of 1e-200 has a norm of zero by its squares, and would be met by any x. Dividing by a power of two
    rounds nothing. Coupled samples share one unit.
    """
    limits = np.finfo(b.dtype if isinstance(b, np.ndarray) else str(b.dtype).split(".")[-1])
    low, high = np.sqrt(float(limits.smallest_normal)) / limits.eps, np.sqrt(float(limits.max)) * limits.eps
    odd = ~((norm >= low) & (norm <= high))
    if not odd.any():
        return None
    xp = array_namespace(b)
    largest = to_numpy(xp.max(xp.abs(b), axis=0)).astype(np.float64) if b.shape[0] else np.zeros(b.shape[1])
    known = np.isfinite(largest) & (largest > 0.0)
    if coupled:
        largest = np.full_like(largest, largest[known].max(initial=0.0))
        odd, known = np.full_like(odd, odd[known].any()), largest > 0.0
    if not (odd & known).any():
        return None
    return np.where(odd & known, np.ldexp(1.0, np.frexp(largest)[1] - 1), 1.0)


def host(values: Any) -> np.ndarray:
    """A kernel's inner products as float64 on the host."""
    return np.asarray(to_numpy(values), np.float64)
