"""Parts of Numba that are replaced while a kernel is compiled: less work, the same LLVM code (`passes.py`)."""

from __future__ import annotations

import functools
import warnings
from collections import namedtuple
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np
from numba.core import (
    base,
    callwrapper,
    compiler_machinery,
    errors,
    event,
    interpreter,
    ir,
    ir_utils,
    lowering,
    postproc,
    rewrites,
    ssa,
    targetconfig,
    transforms,
    typed_passes,
    typeinfer,
    types,
    untyped_passes,
    utils,
)
from numba.core.runtime.context import NRTContext

__all__ = ["original", "replacements", "replaces"]

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


def _assigned(state: Any) -> Iterator[Any]:
    """The assignments of the function that is compiled."""
    for block in state.func_ir.blocks.values():
        yield from block.find_insts(ir.Assign)


def _has_closures(state: Any) -> bool:
    """Whether there may be anything that `InlineClosureLikes` inlines: closures, lists, reductions, stencils."""
    for statement in _assigned(state):
        value = statement.value
        if isinstance(value, ir.Expr):
            if value.op in ("make_function", "build_list"):
                return True
        elif isinstance(value, ir.Global | ir.FreeVar):
            named = value.value
            if named is functools or named is functools.reduce or type(named).__name__ == "StencilFunc":
                return True
    return bool(state.flags.auto_parallel.enabled)


@replaces(untyped_passes.InlineClosureLikes, "run_pass")
def _inline_closures(self: Any, state: Any) -> bool:
    if _has_closures(state):
        return bool(original(untyped_passes.InlineClosureLikes, "run_pass")(self, state))
    postproc.PostProcessor(state.func_ir).run()
    ir_utils.fixup_var_define_in_scope(state.func_ir.blocks)
    return True


@replaces(interpreter, "peep_hole_delete_with_exit")
def _delete_exits_of_contexts(code: Any) -> Any:
    """Only where the function has a ``with`` statement."""
    names = {name for block in code.blocks.values() for name in block.scope.localvars._con}
    if any(name.startswith("$setup_with_exitfn") for name in names):
        return original(interpreter, "peep_hole_delete_with_exit")(code)
    return code


@replaces(interpreter, "peep_hole_fuse_dict_add_updates")
def _fuse_updates_of_dictionaries(code: Any) -> Any:
    """Only where the function has a dictionary."""
    for block in code.blocks.values():
        if any(block.find_exprs("build_map")):
            return original(interpreter, "peep_hole_fuse_dict_add_updates")(code)
    return code


REWRITES = {"RewriteArrayExprs", "RewriteArrayOfConsts", "RewriteStringLiteralGetitems", "RewriteStringLiteralSetitems"}
"""Rewrites of typed code, none of which applies where `_has_rewrites` is false."""


def _has_rewrites(state: Any) -> bool:
    """Whether there may be operators and ufuncs of whole arrays, lists of constants, or subscripts that are strings."""
    known = {rewrite.__name__ for rewrite in rewrites.rewrite_registry.rewrites["after-inference"]}
    kinds = state.typemap
    if not known <= REWRITES or any(isinstance(kind, types.StringLiteral) for kind in kinds.values()):
        return True
    for statement in _assigned(state):
        value = statement.value
        if not isinstance(value, ir.Expr):
            continue
        if value.op == "build_list":
            return True
        if isinstance(kinds.get(statement.target.name), types.Array):
            if value.op in ("unary", "binop"):
                return True
            if value.op == "call":
                called = getattr(kinds.get(value.func.name), "typing_key", None)
                if isinstance(called, np.ufunc) or type(called).__name__ == "DUFunc":
                    return True
    return False


@replaces(typed_passes.NopythonRewrites, "run_pass")
def _rewrite(self: Any, state: Any) -> bool:
    if _has_rewrites(state):
        return bool(original(typed_passes.NopythonRewrites, "run_pass")(self, state))
    postproc.PostProcessor(state.func_ir).run()
    return True


@replaces(ssa, "_run_block_rewrite")
def _rewrite_blocks(blocks: Any, states: Any, handler: Any) -> Any:
    """Numba's function without its log of every statement."""
    made = {}
    for label, block in blocks.items():
        made[label] = new = ir.Block(scope=block.scope, loc=block.loc)
        states["label"], states["block"] = label, block
        new.body = [
            handler.on_assign(states, statement)
            if isinstance(statement, ir.Assign)
            else handler.on_other(states, statement)
            for statement in block.body
        ]
    return made


# --- types


FLAGS: dict[int, tuple[Any, str]] = {}
HASHES: dict[type, int] = {}
RESOLVED: dict[tuple[Any, ...], Any] = {}


def _flags_text(flags: Any) -> str:
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
    key = self, context, tuple(args), tuple(kws.items()), _flags_text(targetconfig.ConfigStack.top_or_none())
    found = RESOLVED.get(key)
    if found is None:
        signature = original(types.BaseFunction, "get_call_type")(self, context, args, kws)
        if signature is not None:
            RESOLVED[key] = signature, self._impl_keys[signature.args]
        return signature
    signature, self._impl_keys[signature.args] = found  # the code of these flags, not of those that were compiled last
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


COUNTED: dict[Any, bool] = {}
SIZES: dict[tuple[Any, str], int] = {}


@replaces(NRTContext, "_call_incref_decref")
def _count_references(self: Any, builder: Any, kind: Any, value: Any, function: str) -> None:
    """Types without counted references are not taken apart in search of them."""
    counted = COUNTED.get(kind)
    if counted is None:
        counted = COUNTED[kind] = self._context.data_model_manager[kind].contains_nrt_meminfo()
    if counted:
        original(NRTContext, "_call_incref_decref")(self, builder, kind, value, function)


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
