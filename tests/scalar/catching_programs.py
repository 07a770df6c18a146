"""Random programs with tables, sets, caches, generators, foreign types and handlers of exceptions."""

import bisect
import collections
import contextlib
import copy
import ctypes
import decimal
import fractions
import functools
import json
import math
import pickle
import statistics
import struct

import numpy as np

from tests.scalar.programs import LearnedAuthor, code_of, indented

TABLE = {0.0: 1.5, 0.5: 2.5, 1.0: -1.0, 2.0: 0.5, 3.0: math.nan, 7.25: 4.0}


class Model:
    """Methods with handlers, which a run does not copy."""

    def __init__(self, gain):
        self.gain = gain

    def looked_up(self, v):
        try:
            return TABLE[v] * self.gain
        except Exception:
            return -self.gain

    def checked(self, v):
        if not isinstance(v, int | float) or v < 0.0:
            raise ValueError("a number of at least 0 is needed")
        return v


class CatchingAuthor(LearnedAuthor):
    """One who looks values up, converts them to foreign types, and catches what goes wrong."""

    def foreign(self):
        a, x = self.name(), self.value()
        return self.one_of(
            f"TABLE.get({a}, {x})",
            f"TABLE[{a}]",
            f"float({a} in {{0.5, 1.0, 2.0}})",
            f"float(len({{{a}, {x}, 0.5}}))",
            f"{{{a}: {x}}}.get({self.value()}, 0.25)",
            f"twice({a})",
            f"[0.5, 1.0, 2.0].index({a})",
            f"float(Decimal({a}))",
            f"float(Fraction({a}))",
            f"{a} * Fraction(1, 2)",
            f"float({a} == Fraction(1, 2))",
            f"float(statistics.mean([{a}, {x}]))",
            f"float(json.loads(json.dumps([{a}]))[0])",
            f"float.fromhex({a}.hex())",
            f"{a}.as_integer_ratio()[0] * 1.0",
            f"struct.unpack('d', struct.pack('d', {a}))[0]",
            f"ctypes.c_double({a}).value",
            f"float('%.3f' % {a})",
            f"float(f'{{{a}:.2e}}')",
            f"len(str({a})) * 1.0",
            f"float(bisect.bisect([0.0, 1.0, 2.0], {a}))",
            f"float(len(range(int({a}) % 5)))",
            f"[0.5, 1.5, 2.5][int({a})]",
            f"[0.5, 1.5, 2.5][{a}]",
            f"complex({a}, 1.0).real",
            f"divmod({a}, {x})[1]",
            f"{a}.magnitude",
            f"getattr({a}, 'magnitude', {x})",
            f"float(len({a}))",
            f"sum({a})",
            f"{a}[0]",
            f"{a} + 'text'",
            f"{a} + None",
            f"copy.copy({a})",
            f"pickle.loads(pickle.dumps({a}))",
            f"model.looked_up({a})",
            f"model.checked({a})",
            f"float({a}.nbytes)",
            f"math.factorial({a})",
            f"math.sqrt({a})",
            f"round({a})",
            f"int({a}).bit_length() * 1.0",
        )

    def expression(self):
        return self.foreign() if self.random.random() < 0.3 else super().expression()

    def handler(self):
        return self.one_of(
            "except Exception:",
            "except Exception as error:",
            "except:",
            "except BaseException:",
            "except (TypeError, AttributeError):",
            "except (KeyError, ValueError, IndexError):",
            "except TypeError:",
            "except ArithmeticError:",
        )

    def statement(self, depth):
        if not depth or self.random.random() < 0.3:
            return super().statement(depth) if depth else self.assigned()
        block, more = indented(self.block(depth - 1)), indented(self.block(depth - 1))
        name, value = self.name(), self.value()
        end = self.one_of("", "", f"else:\n{indented(self.assigned())}", "finally:\n    steps += 100\n")
        made = f"try:\n    yield {self.foreign()}\n{self.handler()}\n    yield {value}\n"
        return self.one_of(
            f"try:\n{block}{self.handler()}\n{more}{end}",
            f"try:\n{block}{self.handler()}\n{more}{end}",
            f"with suppress({self.one_of('Exception', 'TypeError', 'BaseException')}):\n{block}",
            f"def made():\n{indented(made)}{name} = list(made())[0]\n",
            f"seen = set()\nfor item in ({name}, {value}, 0.5):\n    seen.add(item)\nsteps += len(seen)\n",
            f"table = {{}}\ntable[{name}] = {value}\nsteps += {self.name()} in table\n",
            f"tally = Counter([{name}, {value}, {self.name()}])\nsteps += max(tally.values())\n",
            f"try:\n{block}finally:\n    steps += 1\n",
        )

    def assigned(self):
        return f"{self.name()} = {self.foreign()}\nsteps += 1\n"


def catching_program(seed):
    """Source of ``f(a, b, c)``, with `outer` and `default` as globals."""
    body = indented(CatchingAuthor(seed).block(2))
    return f"def f(a, b, c):\n    steps, note = 0, ''\n{body}    return a, b, c, steps, note\n"


def compiled_catching(source):
    """The function of a `catching_program`, with caches and models of its own; 0.0 and -0.0 are one key of a cache."""
    scope = {
        "math": math, "sqrt": math.sqrt, "log": math.log, "isclose": math.isclose, "np": np, "TABLE": dict(TABLE),
        "Decimal": decimal.Decimal, "Fraction": fractions.Fraction, "statistics": statistics, "json": json,
        "struct": struct, "ctypes": ctypes, "bisect": bisect, "copy": copy, "pickle": pickle, "model": Model(2.0),
        "suppress": contextlib.suppress, "twice": functools.lru_cache(maxsize=8)(lambda v: v * v), "outer": 1.25,
        "OUTER": [0.75], "default": -0.5, "Counter": collections.Counter, "__name__": "catching",
    }  # fmt: skip
    exec("def scaled(x):\n    return math.tanh(x) * OUTER[0]\n", scope)
    scope |= {name: getattr(_programs(), name) for name in ("OrderedDict", "defaultdict", "Pair", "Scaled", "Row")}
    scope["State"] = _programs().State
    exec(code_of(source), scope)
    return scope["f"]


def _programs():
    from tests.scalar import programs

    return programs
