"""Functions spliced into their callers: translated once, and copied without Numba's deep copies.

Numba translates a spliced function anew at each call and copies it twice, with all variables of its scope for each of
its variables. That took a third of the compilation of matrix products.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

from numba.core import bytecode, inline_closurecall, ir

from ensemble._compile.numba_parts import flags_text, replacements, replaces

__all__ = ["replacements"]

SPLICED: dict[tuple[Any, str], Any] = {}
"""The intermediate representation of functions that were spliced, under the options of their callers."""

SCOPES: dict[int, tuple[Any, Any]] = {}
"""The scopes of the function that is copied now, and their copies."""


def _copy_of_node(node: Any) -> Any:
    """A copy that shares what no pass changes in place: variables, constants, places in the source."""
    if isinstance(node, ir.Inst):
        made = object.__new__(type(node))
        vars(made).update({name: _copy_of_node(value) for name, value in vars(node).items()})
        return made
    if isinstance(node, list | tuple):
        return type(node)(map(_copy_of_node, node))
    if type(node) is dict:
        return {key: _copy_of_node(value) for key, value in node.items()}
    return node


def _copy_of_block(block: Any) -> Any:
    """`copy.deepcopy` of a block, without copies of each variable and of all variables of its scope."""
    scope = block.scope
    if id(scope) not in SCOPES:
        own = ir.Scope(scope.parent, scope.loc)
        own.localvars._con.update(scope.localvars._con)
        own.redefined.update(scope.redefined)
        own.var_redefinitions.update({name: set(versions) for name, versions in scope.var_redefinitions.items()})
        SCOPES[id(scope)] = scope, own
    made = ir.Block(SCOPES[id(scope)][1], block.loc)
    made.body = [_copy_of_node(statement) for statement in block.body]
    return made


replaces(inline_closurecall, "copy")(SimpleNamespace(deepcopy=_copy_of_block))


@replaces(inline_closurecall.InlineWorker, "inline_function")
def _splice(self: Any, caller: Any, block: Any, at: int, function: Any, kinds: Any = None) -> Any:
    """Numba's function, which translates `function` at every call; names of variables still differ between calls."""
    key = function, flags_text(self.flags)
    code = SPLICED.get(key)
    if code is None:
        code = SPLICED[key] = self.run_untyped_passes(function)
    else:
        code.func_id = copy.copy(code.func_id)
        code.func_id.unique_id = next(bytecode.FunctionIdentity._unique_ids)
        code.func_id.unique_name = f"{code.func_id.func_qualname}${code.func_id.unique_id}"
        self.flags.enable_ssa = False  # as `run_untyped_passes` leaves them
    SCOPES.clear()
    return self.inline_ir(caller, block, at, code, function.__code__.co_freevars, arg_typs=kinds)
