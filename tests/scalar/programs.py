"""Small random programs over three numbers: nested branches, loops, exceptions, conversions, what they find outside."""

import dataclasses
import functools
import math
import random
import struct
from collections import Counter, OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np

from ensemble.scalar import Ensemble

NAMES = ("a", "b", "c")
LITERALS = ("0.0", "0.5", "1.0", "-2.0", "3.0")


Pair = namedtuple("Pair", "first second")


class Scaled(namedtuple("Scaled", "value scale")):
    """A named tuple with a constructor of its own."""

    def __new__(cls, value):
        made = super().__new__(cls, value * 2.0, 2.0)
        made.half = value * 0.5
        return made


class Row(list):
    """A list with a constructor of its own."""

    def __init__(self, first, last):
        super().__init__([first, 0.5 * last, last])
        self.last = last


@dataclasses.dataclass(frozen=True)
class State:
    value: Any
    steps: int

    def __post_init__(self):
        object.__setattr__(self, "double", self.value * 2.0)


class Author:
    """Writes the source of ``f(a, b, c)``, another one for every seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def one_of(self, *choices):
        return self.random.choice(choices)

    def name(self):
        return self.one_of(*NAMES)

    def value(self):
        return self.one_of(*NAMES, *NAMES, *LITERALS)

    def condition(self):
        less = f"{self.name()} {self.one_of('<', '<=', '>', '==', '!=')} {self.value()}"
        other = f"{self.name()} > {self.value()}"
        chain = f"{self.value()} < {self.name()} <= {self.value()}"
        return self.one_of(less, less, chain, f"{less} and {other}", f"{less} or {other}", f"not ({less})", self.name())

    def expression(self):
        a, b, x = self.name(), self.name(), self.value()
        simple = (
            f"{a} {self.one_of('+', '-', '*', '/')} {x}",
            f"max({a}, {x})",
            f"min({a}, {b}, c)",
            f"abs({a})",
            f"sorted([a, b, c])[{self.random.randrange(3)}]",
            f"({x} if {self.condition()} else {a})",
        )
        costly = f"math.sqrt({a})", f"float(int({a}))", f"{a} % 2.0", f"abs({a}) ** 1.5", f"{b} ** 2"
        return self.one_of(*simple, *simple, *costly)

    def end(self):
        return self.one_of(
            f"return {{'left': ({self.name()}, steps), 'label': '{self.name()}'}}\n",
            f"raise KeyError('{self.name()}', steps)\n",
            "return None\n",
            f"return steps, [{self.name()}]\n",
        )

    def block(self, depth):
        return "".join(self.statement(depth) for _ in range(self.random.randint(1, 3)))

    def statement(self, depth):
        kinds = ("assign", "assign", "branch", "branch", "leave", "loop", "repeat", "guarded")
        kind = self.one_of(*kinds) if depth else "assign"
        if kind == "assign":
            return f"{self.name()} {self.one_of('=', '=', '+=', '*=')} {self.expression()}\nsteps += 1\n"
        block = indented(self.block(depth - 1))
        if kind == "branch":
            return f"if {self.condition()}:\n{block}else:\n{indented(self.block(depth - 1))}"
        if kind == "leave":
            return f"if {self.condition()}:\n{indented(self.end())}"
        if kind == "loop":
            times = self.one_of("4", "min(int(abs(a)), 5) if abs(a) < 9.0 else 2")
            leave = f"    if {self.condition()}:\n        break\n"
            return f"for k in range({times}):\n{block}{leave}else:\n{indented(self.block(depth - 1))}"
        if kind == "repeat":
            turns = f"turns_{depth}"  # nested loops count by themselves
            return (
                f"{turns} = 0\nwhile {turns} < 6 and ({self.condition()}):\n{block}    {turns} += 1\nsteps += {turns}\n"
            )
        caught = f"except (ValueError, KeyError) as error:\n    note = str(error)\n{indented(self.block(depth - 1))}"
        return f"try:\n{block}    if {self.condition()}:\n{indented(indented(self.end()))}{caught}"


class LearnedAuthor(Author):
    """One who also uses `math`, variables outside the function, types, and containers of every kind."""

    def value(self):
        return self.one_of(*NAMES, *NAMES, *LITERALS, "outer", "OUTER[0]", "default")

    def condition(self):
        a, x = self.name(), self.value()
        return self.one_of(
            super().condition(),
            super().condition(),
            super().condition(),
            f"math.isnan({a})",
            f"math.sin({a}) > {self.one_of('0.0', '0.5', a, x)}",
            f"isclose({a}, {x})",
            f"isinstance({a}, {self.one_of('float', 'int', 'np.floating', '(int, np.ndarray)')})",
            f"type({a}) is float",
            f"hasattr({a}, '__len__')",
            f"np.isscalar({x})",
        )

    def expression(self):
        a, b, x = self.name(), self.name(), self.value()
        of_math = (
            f"math.sin({a})",
            f"math.exp({a} / 4.0)",
            f"math.hypot({a}, {b})",
            f"math.atan2({a}, {x})",
            f"math.copysign({x}, {a})",
            f"sqrt(abs({a}))",
            f"log({a})",
            f"math.fsum([{a}, {b}, {x}])",
            f"math.modf({a})[0]",
            f"math.ldexp({a}, 2)",
            f"1.0 / math.sin({a})",
            f"math.cos({a}) ** 0.5",
            f"math.floor({a}) + 0.5",
            f"round(math.cos({a}), 2)",
            f"math.cos({a}) % {x}",
            f"scaled({a})",
        )
        return self.one_of(super().expression(), self.one_of(*of_math))

    def end(self):
        a, b = self.name(), self.name()
        return self.one_of(
            super().end(),
            f"return Counter({{'{a}': {a}, 'steps': steps}})\n",
            "return Counter('steps')\n",
            f"return Pair({a}, {b})\n",
            f"return Scaled({a})\n",
            f"return Row({a}, {b})\n",
            f"return State({a}, steps)\n",
            f"return OrderedDict([('{b}', {b}), ('{a}', outer)])\n",
            f"tally = defaultdict(float)\ntally['{a}'] += {b}\nreturn tally\n",
        )

    def statement(self, depth):
        if depth and self.random.random() < 0.15:
            errors = self.one_of(
                "ZeroDivisionError", "(ValueError, OverflowError)", "(TypeError, ValueError)", "Exception"
            )
            block = indented(self.block(depth - 1))
            more = indented(self.block(depth - 1))
            return f"try:\n{block}except {errors} as error:\n    note = type(error).__name__\n{more}"
        return super().statement(depth)


def indented(block):
    return "".join(f"    {line}\n" for line in block.splitlines())


def program(seed):
    """Source of a small function of three numbers."""
    body = Author(seed).block(2)
    return f"def f(a, b, c):\n    steps, note = 0, ''\n{indented(body)}    return a, b, c, steps, note\n"


def learned_program(seed):
    """Source of ``make(outer, default)``, which gives such a function with a closure and a default."""
    body = indented(LearnedAuthor(seed).block(2))
    f = f"def f(a, b, c, default=default):\n    steps, note = 0, ''\n{body}    return a, b, c, steps, note\n"
    scaled = "def scaled(x):\n    return math.tanh(x) * OUTER[0]\n"
    return f"{scaled}def make(outer, default):\n{indented(f)}    return f\n"


@functools.lru_cache(maxsize=4)
def code_of(source):
    return compile(source, "<program>", "exec")


def compiled(source):
    scope = {"math": math}
    exec(code_of(source), scope)
    return scope["f"]


def compiled_with(source, outer):
    """The function of a `learned_program` that finds `outer` outside itself: in its closure, a global and a default."""
    scope = {
        "math": math, "sqrt": math.sqrt, "log": math.log, "isclose": math.isclose, "np": np, "Counter": Counter,
        "OrderedDict": OrderedDict, "defaultdict": defaultdict, "Pair": Pair, "Scaled": Scaled, "Row": Row,
        "State": State, "OUTER": [outer], "__name__": "learned",
    }  # fmt: skip
    exec(code_of(source), scope)
    return scope["make"](outer, outer)


SPECIAL = [0.0, -0.0, 0.5, 1.0, -2.0, 3.0, 7.25, 1e30, math.nan, -math.inf]


def columns_of(seed, n_columns=4):
    """Values of one to nine samples, sometimes of up to ninety, a third of them special."""
    rng = np.random.default_rng(seed)
    n_samples = int(rng.integers(30, 90) if seed % 10 == 0 else rng.integers(1, 9))
    some = [
        np.where(rng.random(n_samples) < 0.5, rng.choice([0.5, 1.5, 2.0], n_samples), rng.uniform(-9.0, 9.0, n_samples))
        for _ in range(n_columns)
    ]
    return [np.where(rng.random(n_samples) < 0.3, rng.choice(SPECIAL, n_samples), column) for column in some]


def outcome(call):
    """What a call gave, to the bit and with the types that matter, or what it raised."""
    try:
        with np.errstate(all="ignore"):
            return exact(call())
    except Exception as error:
        return type(error).__name__, str(error)


def exact(value):
    if isinstance(value, dict):
        return type(value).__name__, [(key, exact(part)) for key, part in value.items()], held(value)
    if isinstance(value, list | tuple):
        return type(value).__name__, [exact(part) for part in value], held(value)
    if isinstance(value, State):
        return "State", held(value)
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), value.tobytes()
    if isinstance(value, complex):
        return type(value).__name__, exact(value.real), exact(value.imag)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    return type(value).__name__, value


def held(value):
    """The attributes of a container, exact."""
    return {name: exact(part) for name, part in getattr(value, "__dict__", {}).items()}


def ensemble_of(*values):
    return Ensemble(np.array(values))


def assert_like_scalar_runs(result, f, *inputs):
    for s in range(result.n_samples):
        alone = [x.sample(s)[()] if isinstance(x, Ensemble) else x for x in inputs]
        assert outcome(lambda s=s: result.sample(s)) == outcome(lambda alone=alone: f(*alone)), f"sample {s}"
