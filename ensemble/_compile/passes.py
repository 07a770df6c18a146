"""Numba's compiler with less work for the same machine code.

Numba spends more time in its own Python code than in LLVM. `KernelCompiler` runs Numba's pipeline with these changes:

* analyses of variables run where a pass reads them, not after every pass;
* passes that find nothing in a function are left out;
* the type of a call is resolved once per function and types of arguments;
* sizes of LLVM types are computed once;
* no events are sent that nobody listens to;
* functions that become part of their callers are not translated to machine code by themselves;
* the function that Python calls, which converts arguments, is not optimised by LLVM.

The LLVM code of kernels after optimisation is that of Numba's own compiler (``tests/test_compiler_passes.py``).

Parts of Numba are replaced while a kernel is compiled, under Numba's compiler lock, and put back afterwards. The
replacements are written for the versions in `TESTED`; other versions compile with Numba's own compiler.
"""

from __future__ import annotations

import warnings
from collections import namedtuple
from types import TracebackType
from typing import Any

import numba
from numba.core import (
    base,
    callwrapper,
    compiler,
    compiler_machinery,
    errors,
    event,
    ir,
    lowering,
    postproc,
    targetconfig,
    transforms,
    typed_passes,
    typeinfer,
    types,
    utils,
)
from numba.core.compiler_lock import global_compiler_lock

__all__ = ["TESTED", "KernelCompiler", "compiler_options"]

TESTED = ((0, 61), (0, 68))
"""Versions of Numba that the replacements are written for and tested with."""

Place = namedtuple("Place", ["owner", "name"])

REPLACED: dict[Place, Any] = {}
"""What replaces parts of Numba during a compilation."""


def replaces(owner: Any, name: str) -> Any:
    """Let the decorated function stand in for ``owner.name``, which is `original`, while a kernel is compiled."""

    def note(function: Any) -> Any:
        REPLACED[Place(owner, name)] = function
        return function

    return note


ORIGINALS: dict[Place, Any] = {}


def original(owner: Any, name: str) -> Any:
    """Numba's own ``owner.name``."""
    return ORIGINALS[Place(owner, name)]


class _Replacements:
    """The context in which parts of Numba are replaced; entered under Numba's compiler lock."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1
        if self.depth == 1:
            for place, function in REPLACED.items():
                ORIGINALS[place] = vars(place.owner)[place.name]
                setattr(place.owner, place.name, function)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.depth -= 1
        if self.depth == 0:
            for place in REPLACED:
                setattr(place.owner, place.name, ORIGINALS[place])
            FLAGS.clear()


replacements = _Replacements()


# --- events and error contexts


@replaces(event, "start_event")
def _start_event(kind: str, data: Any = None) -> None:
    if kind not in ("numba:compiler_lock", "numba:llvm_lock"):
        original(event, "start_event")(kind, data)


@replaces(event, "end_event")
def _end_event(kind: str, data: Any = None, exc_details: Any = None) -> None:
    if kind not in ("numba:compiler_lock", "numba:llvm_lock"):
        original(event, "end_event")(kind, data, exc_details)


NUMBA_PATH, PLACES, FORMATTED = (vars(errors)[name] for name in ("_numba_path", "loc_info", "_format_msg"))


class _ErrorContext:
    """`numba.core.errors.new_error_context` without a generator."""

    __slots__ = ("arguments", "format", "keywords")

    def __init__(self, format: str, *arguments: Any, **keywords: Any) -> None:
        self.format, self.arguments, self.keywords = format, arguments, keywords
        place = keywords.get("loc")
        if place is not None and not place.filename.startswith(NUMBA_PATH):
            PLACES.update(keywords)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, errors.NumbaError):
            error.add_context(FORMATTED(self.format, self.arguments, self.keywords))


for _module in (lowering, typeinfer):
    replaces(_module, "new_error_context")(_ErrorContext)


@replaces(compiler_machinery.PassManager, "_runPass")
def _run_pass(self: Any, index: int, compiler_pass: Any, state: Any) -> None:
    if event._registered["numba:run_pass"] or self._print_after or self._print_before or self._print_wrap:
        original(compiler_machinery.PassManager, "_runPass")(self, index, compiler_pass, state)
        return
    compiler_pass.analysis = self._analysis
    with _ErrorContext("Pass {name}", name=compiler_pass.name()):
        compiler_pass.run_initialization(state)
        compiler_pass.run_pass(state)
        compiler_pass.run_finalizer(state)


# --- variables of Numba's intermediate representation


NO_VARIABLES = frozenset({str, int, float, bool, complex, bytes, type(None), ir.Loc, ir.Scope})


def _collect_variables(values: Any, found: list[Any]) -> None:
    for value in values:
        kind = type(value)
        if kind in NO_VARIABLES:
            continue
        if kind is ir.Var or isinstance(value, ir.Var):
            found.append(value)
        elif isinstance(value, ir.Inst):
            found += value.list_vars()
        elif isinstance(value, list | tuple):
            _collect_variables(value, found)
        elif isinstance(value, dict):
            _collect_variables(value.values(), found)


@replaces(ir.Inst, "_rec_list_vars")
def _list_variables(self: Any, value: Any) -> list[Any]:
    found: list[Any] = []
    _collect_variables((value,), found)
    return found


@replaces(postproc.PostProcessor, "run")
def _post_process(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """Lifetimes of variables are computed where they are read; those at the entries of blocks, by generators only."""
    code = self.func_ir
    if code.is_generator:
        original(postproc.PostProcessor, "run")(self, emit_dels, extend_lifetimes)
        return
    code.blocks = transforms.canonicalize_cfg(code.blocks)
    code.variable_lifetime = postproc.VariableLifetime(code.blocks)
    code.generator_info = None
    if emit_dels:
        self._insert_var_dels(extend_lifetimes=extend_lifetimes)


# --- types


FLAGS: dict[int, tuple[Any, str]] = {}
HASHES: dict[type, int] = {}
RESOLVED: dict[tuple[Any, ...], Any] = {}


def _flags_of(flags: Any) -> str:
    """What the compilation's flags are, as text."""
    if flags is None:
        return ""
    known = FLAGS.get(id(flags))
    if known is None:
        known = FLAGS[id(flags)] = flags, flags.summary()
    return known[1]


@replaces(targetconfig.TargetConfig, "__hash__")
def _hash_of_flags(self: Any) -> int:
    """Numba's hash, which is one of the options' names."""
    kind = type(self)
    if kind not in HASHES:
        HASHES[kind] = original(targetconfig.TargetConfig, "__hash__")(self)
    return HASHES[kind]


@replaces(targetconfig.TargetConfig, "__eq__")
def _equal_flags(self: Any, other: Any) -> Any:
    if isinstance(other, targetconfig.TargetConfig) and self._values == other._values:
        return True
    return original(targetconfig.TargetConfig, "__eq__")(self, other)


@replaces(types.BaseFunction, "get_call_type")
def _call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
    """The signature of a call, found once for arguments of these types under these flags."""
    key = self, context, tuple(args), tuple(kws.items()), _flags_of(targetconfig.ConfigStack.top_or_none())
    signature = RESOLVED.get(key)
    if signature is None:
        signature = original(types.BaseFunction, "get_call_type")(self, context, args, kws)
        if signature is not None:
            RESOLVED[key] = signature
    return signature


@replaces(typeinfer.ConstraintNetwork, "propagate")
def _propagate(self: Any, inference: Any) -> list[Exception]:
    """Warnings are caught once for all constraints."""
    found: list[Exception] = []
    caught: list[tuple[Any, Any]] = []
    fixer = inference.warnings
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", fixer._category)
        for constraint in self.constraints:
            try:
                constraint(inference)
            except errors.ForceLiteralArg as error:
                found.append(error)
            except errors.TypingError as error:
                raised = errors.TypingError(str(error), loc=constraint.loc, highlighting=False)
                found.append(utils.chain_exception(raised, error))
            if seen:
                caught += [(constraint.loc, warning) for warning in seen]
                seen.clear()
    for place, warning in caught:
        if issubclass(warning.category, fixer._category):
            fixer._warnings[place.filename or warning.filename, place.line or warning.lineno, warning.category].add(
                str(warning.message)
            )
        else:
            warnings.warn_explicit(str(warning.message), warning.category, warning.filename, warning.lineno)
    return found


# --- LLVM


SIZES: dict[tuple[Any, str], int] = {}


@replaces(base.BaseContext, "get_abi_sizeof")
def _size_of(self: Any, kind: Any) -> int:
    key = id(self.target_data), str(kind)
    size = SIZES.get(key)
    if size is None:
        size = SIZES[key] = original(base.BaseContext, "get_abi_sizeof")(self, kind)
    return size


@replaces(callwrapper.PyCallWrapper, "build")
def _build_wrapper(self: Any) -> Any:
    wrapper, interface = original(callwrapper.PyCallWrapper, "build")(self)
    wrapper.attributes.add("noinline")
    wrapper.attributes.add("optnone")
    return wrapper, interface


# --- the pipeline


class KernelCompiler(compiler.CompilerBase):
    """Numba's compiler of functions without Python objects, with less work for the same machine code."""

    def _compile_core(self) -> Any:
        with global_compiler_lock, replacements:
            return super()._compile_core()

    def define_pipelines(self) -> list[Any]:
        """Numba's passes without the annotation of types, which nobody reads."""
        manager = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [each for each in manager.passes if each[0] is not typed_passes.AnnotateTypes]
        manager.finalize()
        return [manager]


def compiler_options() -> dict[str, Any]:
    """Options of Numba's decorators that choose `KernelCompiler` where this version of Numba is one of `TESTED`."""
    return {"pipeline_class": KernelCompiler} if numba.version_info.short in TESTED else {}
