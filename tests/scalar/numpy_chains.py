"""Random chains of NumPy calls: views, writes in place, reductions, indices, linear algebra, on one set of variables.

Every chain runs on an ensemble and on each of its samples. After each call all variables are compared, so that a write
that reaches too much, or too little, shows. Values are small multiples of 1/8: sums and products have no rounding.
"""

from __future__ import annotations

import collections
import warnings

import numpy as np

from ensemble.scalar import DivergenceError, Ensemble
from tests.scalar.numpy_chain_calls import MAPS, PAIRS, REDUCTIONS, VIEWS, WRITES

SHAPES = [(), (1,), (3,), (4,), (3, 3), (4, 4), (2, 3), (3, 1), (1, 4), (2, 3, 4), (2, 2, 2)]


class Chain:
    """The variables of an ensemble and of its samples, and what was done to them."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.n_samples = int(self.rng.choice([1, 2, 3, 3, 4]))
        self.names = []
        drawn = [self.values((*self.pick(SHAPES), self.n_samples)) for _ in range(int(self.rng.integers(1, 4)))]
        self.together = [Ensemble(values.copy()) for values in drawn]
        # An ensemble without axes is a value, as NumPy's scalars are.
        self.alone = [[values[..., s].copy()[()] for values in drawn] for s in range(self.n_samples)]

    def values(self, shape):
        return self.rng.integers(-16, 17, size=shape) / 8.0

    def pick(self, choices):
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, p):
        return self.rng.random() < p

    def step(self):
        """One call; "equal", or why the chain ends."""
        k = int(self.rng.integers(len(self.alone[0])))
        name, call = self.pick(STEPS)(self, k)
        self.names.append(f"{name} of {k}")
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results, errors = [], []
            for variables in self.alone:
                try:
                    results.append(call(variables))
                except Exception as error:
                    errors.append(error)
            try:
                result = call(self.together)
            except Exception as error:
                if len(errors) == self.n_samples:
                    self.compare()
                    return "equal"
                if errors:
                    return "some raise"
                split = isinstance(error, DivergenceError)
                return "split" if split else f"refused: {name}: {type(error).__name__}: {error}"
        if errors:
            if np.ndim(self.alone[0][k]) == 0 and all(isinstance(e, TypeError | AttributeError) for e in errors):
                return "a value written to"  # NumPy's scalars refuse that; ensembles without axes in `run` alone
            raise AssertionError(f"{self}: NumPy raises {errors[0]!r}; got {result!r}")
        self.keep(result, results)
        self.compare()
        return "equal"

    def keep(self, result, results):
        if not isinstance(result, Ensemble):
            return
        for variables, value in zip([self.together, *self.alone], [result, *results], strict=True):
            if len(variables) < 8:
                variables.append(value)
            else:
                variables[len(self.names) % 8] = value

    def compare(self):
        for k, x in enumerate(self.together):
            for s, variables in enumerate(self.alone):
                mine, theirs = self.sample(x, s), variables[k]
                shapes = np.shape(mine), np.shape(theirs)
                same = shapes[0] == shapes[1] and np.asarray(mine).dtype == np.asarray(theirs).dtype
                if not (same and np.array_equal(mine, theirs, equal_nan=True)):
                    raise AssertionError(f"{self}: variable {k} of sample {s} is {mine!r} and alone {theirs!r}")

    def sample(self, x, s):
        return x.samples[..., 0 if x.is_shared else s] if isinstance(x, Ensemble) else x

    def __str__(self):
        return " | ".join(self.names)


def index(chain, shape):
    """An index into an array of `shape`: integers, slices, new axes, an Ellipsis, lists, masks."""
    parts = []
    for n in shape[: int(chain.rng.integers(0, len(shape) + 1))]:
        kind = int(chain.rng.integers(0, 8))
        if kind < 3 and n:
            parts.append(int(chain.rng.integers(-n, n)))
        elif kind < 6:
            parts.append(slice(*chain.pick([(None,), (1, None), (None, None, -1), (None, 2), (None, None, 2), (0, 1)])))
        elif n:
            parts.append(chain.rng.integers(-n, n, size=2).tolist() if chain.chance(0.7) else chain.rng.random(n) < 0.5)
    if chain.chance(0.15):
        parts.insert(int(chain.rng.integers(len(parts) + 1)), None)
    if chain.chance(0.2):
        parts.insert(int(chain.rng.integers(len(parts) + 1)), Ellipsis)
    return parts[0] if len(parts) == 1 and chain.chance(0.5) else tuple(parts)


def get(chain, k):
    key = index(chain, np.shape(chain.alone[0][k]))
    return f"x[{key}]", lambda v: v[k][key]


def put(chain, k):
    key, number, j = index(chain, np.shape(chain.alone[0][k])), float(chain.values(())), other(chain)
    if chain.chance(0.5) or np.ndim(chain.alone[0][k]) == 0:
        return changed(chain, k)
    if chain.chance(0.5):
        return f"x[{key}] = {number}", lambda v: v[k].__setitem__(key, number)
    # A copy: where memory overlaps, NumPy's boolean assignments depend on the order of the entries.
    return f"x[{key}] = variable {j}", lambda v: v[k].__setitem__(key, v[j] + 0.0)


def other(chain):
    return int(chain.rng.integers(len(chain.alone[0])))


def changed(chain, k):
    """An operation in place, with the name bound anew as the statement does."""
    number, j = float(chain.values(())), other(chain)
    name = chain.pick(["+=", "-=", "*=", "/="])
    operand = chain.pick(["number", "variable"]) if name in ("+=", "-=") else "number"

    def call(v):
        value = number if operand == "number" else v[j]
        if name == "+=":
            v[k] += value
        elif name == "-=":
            v[k] -= value
        elif name == "*=":
            v[k] *= 0.5
        else:
            v[k] /= -2.0

    return f"x {name} {operand} {number if operand == 'number' else j}", call


def masked(chain, k):
    limit, number = float(chain.values(())), float(chain.values(()))
    kind = chain.pick(["set", "putmask", "copyto", "where", "place", "clip"])
    if np.ndim(chain.alone[0][k]) == 0:
        kind = "where"
    calls = {
        "set": lambda v: v[k].__setitem__(v[k] > limit, number),
        "putmask": lambda v: np.putmask(v[k], v[k] > limit, v[k] + 1.0),
        "copyto": lambda v: np.copyto(v[k], number, where=v[k] < limit),
        "where": lambda v: np.where(v[k] > limit, v[k], number),
        "place": lambda v: np.place(v[k], v[k] > limit, [number, limit]),
        "clip": lambda v: np.clip(v[k], -1.0, 1.0, out=v[k]),
    }
    return kind, calls[kind]


def of_one(table):
    def step(chain, k):
        name = chain.pick(list(table))
        return name, lambda v: table[name](v[k])

    return step


def of_two(chain, k):
    name, j = chain.pick(list(PAIRS)), other(chain)
    return f"{name} with {j}", lambda v: PAIRS[name](v[k], v[j])


def solved(chain, k):
    """Linear algebra, whose rounding stays out of the variables: the residual is rounded to nothing."""
    name = chain.pick(["solve", "inv", "det", "norm", "eigvalsh", "lstsq", "qr", "svd"])

    def call(v):
        x = v[k]
        if name == "norm":
            return np.round(np.linalg.norm(x), 6) > -1.0
        eye = 40.0 * np.eye(x.shape[-1])
        a = x + eye
        found = {
            "solve": lambda: np.linalg.solve(a, x) - np.linalg.inv(a) @ x,
            "inv": lambda: np.linalg.inv(a) @ a - np.eye(x.shape[-1]),
            "det": lambda: np.linalg.det(a) * np.linalg.det(np.linalg.inv(a)) - 1.0,
            "eigvalsh": lambda: (
                np.linalg.eigvalsh(a + np.swapaxes(a, -1, -2)).sum(-1) - 2.0 * np.trace(a, axis1=-2, axis2=-1)
            ),
            "lstsq": lambda: np.linalg.lstsq(a, a[:, 0])[0] - eye[:, 0] / 40.0,
            "qr": lambda: np.matmul(*np.linalg.qr(a)) - a,
            "svd": lambda: np.sum(np.linalg.svd(a, compute_uv=False) ** 2, -1) - np.sum(a * a, (-2, -1)),
        }[name]()
        return np.abs(found) < 1e-6

    return name, call


STEPS = [
    *[get] * 3,
    *[put] * 3,
    *[changed] * 2,
    *[masked] * 2,
    *[of_one(VIEWS)] * 6,
    *[of_one(REDUCTIONS)] * 2,
    *[of_one(MAPS)] * 3,
    *[of_one(WRITES)] * 3,
    *[of_two] * 3,
    solved,
]


def run_chain(seed, n_steps=8):
    """How a random chain ended: "equal", or the reason why it stopped before."""
    chain = Chain(seed)
    for _ in range(n_steps):
        ended = chain.step()
        if ended != "equal":
            return ended
    return "equal"


def outcomes(first, n_chains):
    """How often chains ended in which way; a difference raises with the seed and the calls."""
    found = collections.Counter()
    for seed in range(first, first + n_chains):
        try:
            found[run_chain(seed)] += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return found
