"""Small random programs over three numbers: nested branches, loops, exceptions, conversions."""

import math
import random
import struct

import numpy as np

from ensemble.scalar import Ensemble

NAMES = ("a", "b", "c")
LITERALS = ("0.0", "0.5", "1.0", "-2.0", "3.0")


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


def indented(block):
    return "".join(f"    {line}\n" for line in block.splitlines())


def program(seed):
    """Source of a small function of three numbers."""
    body = Author(seed).block(2)
    return f"def f(a, b, c):\n    steps, note = 0, ''\n{indented(body)}    return a, b, c, steps, note\n"


def compiled(source):
    scope = {"math": math}
    exec(compile(source, "<program>", "exec"), scope)
    return scope["f"]


def outcome(call):
    """What a call gave, to the bit and with the types that matter, or what it raised."""
    try:
        with np.errstate(all="ignore"):
            return exact(call())
    except Exception as error:
        return type(error).__name__, str(error)


def exact(value):
    if isinstance(value, dict):
        return {key: exact(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(exact(part) for part in value)
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), value.tobytes()
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    return type(value).__name__, value


def ensemble_of(*values):
    return Ensemble(np.array(values))


def assert_like_scalar_runs(result, f, *inputs):
    for s in range(result.n_samples):
        alone = [x.sample(s)[()] if isinstance(x, Ensemble) else x for x in inputs]
        assert outcome(lambda s=s: result.sample(s)) == outcome(lambda alone=alone: f(*alone)), f"sample {s}"
