"""Random chains of NumPy calls: views, writes in place, reductions, indices, linear algebra, on one set of variables.

Every chain runs on an ensemble and on each of its samples. After each call all variables are compared, so that a write
that reaches too much, or too little, shows. Values are small multiples of 1/8: sums and products have no rounding.
"""

from __future__ import annotations

import collections
import warnings

import numpy as np

from ensemble.scalar import DivergenceError, Ensemble

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
                return "a value written to"  # which NumPy's scalars refuse, and ensembles without axes outside `run` do not
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


def index(chain, shape, variables_are=None):
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
    return f"x[{key}] = variable {j}", lambda v: v[k].__setitem__(key, v[j])


def other(chain):
    return int(chain.rng.integers(len(chain.alone[0])))


IN_PLACE = {
    "+=": lambda a, b: a.__iadd__(b),
    "-=": lambda a, b: a.__isub__(b),
}


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


VIEWS = {
    "ravel": np.ravel, "reshape": lambda x: np.reshape(x, (-1,)), "reshape 1": lambda x: x.reshape(-1, 1),
    "T": lambda x: np.transpose(x), "squeeze": np.squeeze, "atleast_1d": np.atleast_1d, "atleast_2d": np.atleast_2d,
    "atleast_3d": np.atleast_3d, "expand_dims": lambda x: np.expand_dims(x, 0), "expand last": lambda x: x[..., None],
    "swapaxes": lambda x: np.swapaxes(x, 0, -1), "moveaxis": lambda x: np.moveaxis(x, 0, -1), "flip": np.flip,
    "rot90": np.rot90, "split": lambda x: np.array_split(x, 2)[1], "diagonal": np.diagonal, "diag": np.diag,
    "broadcast_to": lambda x: np.broadcast_to(x, (2, *np.shape(x))), "everything": lambda x: x[...], "row": lambda x: x[0],
    "backwards": lambda x: x[::-1], "copy": lambda x: x.copy(), "flatten": lambda x: x.flatten(), "real": np.real,
    "meshgrid": lambda x: np.meshgrid(x, [1.0, 2.0])[1], "meshgrid row": lambda x: np.meshgrid([0.5, 1.0], x)[1][0],
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=0), "rollaxis": lambda x: np.rollaxis(x, -1),
    "no axis": lambda x: np.reshape(x, ()), "entry array": lambda x: x[(0,) * np.ndim(x) + (...,)], "unstack": lambda x: np.unstack(x)[-1],
    "iteration": lambda x: list(x)[-1], "fliplr": np.fliplr, "hsplit": lambda x: np.hsplit(x, 1)[0], "mT": np.matrix_transpose,
    "einsum": lambda x: np.einsum("ij->ji", x), "astype": lambda x: x.astype(float, copy=False), "flat": lambda x: x.flat[-1],
}  # fmt: skip

REDUCTIONS = {
    "sum": np.sum, "sum 0": lambda x: np.sum(x, axis=0), "sum -1": lambda x: x.sum(axis=-1, keepdims=True), "max": np.max,
    "min 0": lambda x: x.min(axis=0), "ptp": np.ptp, "any": lambda x: np.any(x > 0), "all 0": lambda x: np.all(x > 0, axis=0),
    "argmax": np.argmax, "argmin 0": lambda x: np.argmin(x, axis=0), "count": lambda x: np.count_nonzero(x > 0),
    "median": lambda x: np.median(x, axis=0), "cumsum": np.cumsum, "cumsum out": lambda x: np.cumsum(x, axis=0, out=x),
    "maximum.reduce": lambda x: np.maximum.reduce(x, axis=None), "add.accumulate": lambda x: np.add.accumulate(x, axis=-1),
    "nansum": lambda x: np.nansum(x, axis=-1), "trace": np.trace, "sort": np.sort, "argsort": lambda x: np.argsort(x, kind="stable"),
    "x.sort": lambda x: x.sort(), "partition": lambda x: np.partition(x, 0), "unique": np.unique, "nonzero": lambda x: np.nonzero(x)[0],
    "where": lambda x: np.where(x > 0)[0], "argwhere": np.argwhere, "histogram": lambda x: np.histogram(x, [-9, 0, 9])[0],
    "searchsorted": lambda x: np.searchsorted(np.sort(x), 0.25), "diff": np.diff, "gradient": lambda x: np.gradient(x, 0.5),
}  # fmt: skip

MAPS = {
    "neg": lambda x: -x, "abs": abs, "clip": lambda x: np.clip(x, -1, 1), "floor": np.floor, "round": lambda x: np.round(x, 1),
    "sign": np.sign, "half": lambda x: 0.5 * x, "square": lambda x: np.clip(x * x, -4, 4), "maximum": lambda x: np.maximum(x, 0.25),
    "zeros_like": np.zeros_like, "full_like": lambda x: np.full_like(x, 0.5), "ones_like": np.ones_like, "nan_to_num": np.nan_to_num,
    "pad": lambda x: np.pad(x, 1), "pad edge": lambda x: np.pad(x, 1, "edge"), "roll": lambda x: np.roll(x, 1), "tile": lambda x: np.tile(x, 2),
    "repeat": lambda x: np.repeat(x, 2), "append": lambda x: np.append(x, 0.5), "delete": lambda x: np.delete(x, 0, axis=0),
    "insert": lambda x: np.insert(x, 0, 0.25), "concatenate": lambda x: np.concatenate([x, x]), "stack": lambda x: np.stack([x, 2 * x]),
    "hstack": lambda x: np.hstack([x, x]), "vstack": lambda x: np.vstack([x, x]), "block": lambda x: np.block([x, x]), "tril": np.tril,
    "triu": np.triu, "take": lambda x: np.take(x, [0, -1], axis=0), "take flat": lambda x: np.take(x, 0), "select": lambda x: np.select([x > 0], [x], -1.0),
    "piecewise": lambda x: np.piecewise(x, [x > 0], [1.0, 2.0]), "compress": lambda x: np.compress([True], x, axis=0), "resize": lambda x: np.resize(x, (2, 2)),
    "linspace": lambda x: np.linspace(x, 1.0, 3), "interp": lambda x: np.interp(x, [-2.0, 2.0], [-4.0, 4.0]), "astype int": lambda x: x.astype(np.int64),
    "logical": lambda x: np.logical_not(x > 0), "isin": lambda x: np.isin(x, [0.0, 0.5]), "trim_zeros": np.trim_zeros,
}  # fmt: skip


def raised(part):
    """`part` after an operation in place; whether its array changes depends on what it is."""
    part += 1.0
    return part


WRITES = {
    "fill": lambda x: x.fill(0.75), "fill_diagonal": lambda x: np.fill_diagonal(x, 0.5), "put": lambda x: np.put(x, [0, -1], [1.0, 2.0]),
    "put_along_axis": lambda x: np.put_along_axis(x, np.argmax(x, axis=-1, keepdims=True), -1.0, -1), "flat": lambda x: x.flat.__setitem__(slice(0, 2), 0.125),
    "negative out": lambda x: np.negative(x, out=x), "add.at": lambda x: np.add.at(x, [0, 0], 1.0), "x.T =": lambda x: x.T.__setitem__(..., 0.5),
    "row": lambda x: x.__setitem__(0, x[-1]), "swap": lambda x: x.__setitem__([0, -1], x[[-1, 0]]), "real": lambda x: x.real.__setitem__(..., 0.25),
    "row +=": lambda x: raised(x[0]), "argmax": lambda x: x.__setitem__(np.argmax(x), 0.0), "column": lambda x: raised(x[:, 0]),
    "row and entry": lambda x: raised(x[0][..., 0]), "entry": lambda x: raised(x[0, ...]), "diagonal": lambda x: raised(np.einsum("ii->i", x)),
    "nan_to_num": lambda x: np.nan_to_num(x, copy=False), "maximum out": lambda x: np.maximum(x, 0.0, x),
}  # fmt: skip

PAIRS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "product": lambda a, b: np.clip(a * b, -4, 4), "maximum": np.maximum, "less": lambda a, b: a < b,
    "matmul": lambda a, b: np.clip(a @ b, -4, 4), "dot": lambda a, b: np.clip(np.dot(a, b), -4, 4), "outer": lambda a, b: np.clip(np.outer(a, b), -4, 4),
    "where": lambda a, b: np.where(a > b, a, b), "concatenate": lambda a, b: np.concatenate([a, b]), "add out": lambda a, b: np.add(a, b, out=a),
    "copyto": lambda a, b: np.copyto(a, b), "assign": lambda a, b: a.__setitem__(..., b), "take": lambda a, b: np.take(a, np.argsort(b), mode="clip"),
    "broadcast": lambda a, b: np.broadcast_arrays(a, b)[0], "tensordot": lambda a, b: np.clip(np.tensordot(a, b, 1), -4, 4),
    "index": lambda a, b: a[np.argmax(b) % len(a)], "append": np.append,
    "cross": lambda a, b: np.clip(np.cross(a, b), -4, 4), "choose": lambda a, b: np.where(a > 0, a, 0.0) + 0.0 * b, "float index": lambda a, b: a[b],
    "mask": lambda a, b: a[b > 0], "set mask": lambda a, b: a.__setitem__(b > 0, 0.5), "isclose": np.isclose, "kron": lambda a, b: np.clip(np.kron(a, b), -4, 4),
}  # fmt: skip


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
    *[get] * 3, *[put] * 3, *[changed] * 2, *[masked] * 2, *[of_one(VIEWS)] * 6, *[of_one(REDUCTIONS)] * 2, *[of_one(MAPS)] * 3,
    *[of_one(WRITES)] * 3, *[of_two] * 3, solved,
]  # fmt: skip


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
