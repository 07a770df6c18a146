"""LLVM assembly translated to machine code of this processor, which is kept on disk.

Straight-line bodies have thousands of instructions and nothing that the passes of a general compiler could find: a
traced graph has no common subexpressions, dead values or constants to fold. A few passes are made here. Modules with
loops over memory get all passes.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import llvmlite
from llvmlite import binding

from ensemble._compile.cache_folder import digest_of, kept_file
from ensemble._compile.processor import target
from ensemble._interrupts import shielded

__all__ = ["KEPT", "Assembly", "Code", "Module", "assembled", "code_of", "kept_code", "processor_text"]

SHORT = 4000
"""Instructions that functions of lanes may have together, at all calls, to be inlined: more were no faster.

Measured again by `benchmarks ode`.
"""


class Assembly(NamedTuple):
    """One function in LLVM's assembly."""

    text: str
    declarations: tuple[str, ...]
    """Declarations of the intrinsic functions that it calls."""
    called: tuple[Any, ...]
    """The functions of lanes that it calls; see `lanes/library.py`."""
    keeps_blocks: bool = False
    """Whether blocks that follow each other stay apart: instructions are put in order block by block."""


class Module(NamedTuple):
    """Functions that are translated together."""

    text: str
    called: tuple[Any, ...]
    """The functions of lanes that are called."""
    linked: tuple[str, ...] = ()
    """Further modules, whose functions are internal."""
    has_loops: bool = False
    """Whether all passes for loops are made."""
    keeps_blocks: bool = False


def assembled(functions: Iterable[Assembly]) -> Module:
    """Functions as one module; what they call is declared."""
    functions = list(functions)
    called = tuple(dict.fromkeys(each for function in functions for each in function.called))
    declared = dict.fromkeys(line for function in functions for line in function.declarations)
    text = "\n\n".join([*declared, *(function.text for function in functions)])
    return Module(text, called, keeps_blocks=any(function.keeps_blocks for function in functions))


KEPT = 512
"""Machine code that was used last and stays in this process without another holder."""


_unused: list[Any] = []
"""Engines whose code nobody holds; the next `Code` closes them."""


class Code:
    """Machine code of this process: where its functions lie. Its memory is freed with the last holder.

    Who calls a function by its address holds the `Code` until the function has returned.
    """

    def __init__(self, content: bytes, names: Sequence[str]) -> None:
        while _unused:
            _unused.pop().close()
        engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _machine())
        engine.add_object_file(binding.ObjectFileRef.from_data(content))
        engine.finalize_object()
        self._engine = engine
        self._places = {each: engine.get_function_address(each) for each in names}

    def __del__(self, unused: list[Any] = _unused) -> None:
        if hasattr(self, "_engine"):
            unused.append(self._engine)  # any thread may be here, and a handler of a signal may raise in it

    def __getitem__(self, name: str) -> int:
        """The address of a function."""
        return self._places[name]

    def get(self, name: str) -> int:
        """The address of a function; 0 where there is none of this name."""
        return self._places.get(name, 0)


_alive: weakref.WeakValueDictionary[str, Code] = weakref.WeakValueDictionary()
"""All machine code of this process, by the name of its file: what is equal is loaded once."""

_recent: dict[str, Code] = {}
"""What was used last, in the order of use."""

_lock = threading.Lock()


def code_of(module: Module, names: Sequence[str], assembly_of: Callable[[Any], str]) -> Code:
    """The machine code of a module; `assembly_of` gives the modules of what it calls."""
    return kept_code(module.text, lambda: module, names, assembly_of)


def kept_code(
    key: str, make: Callable[[], Module], names: Sequence[str], assembly_of: Callable[[Any], str]
) -> Code:  # fmt: skip
    """The same of the module that `make` returns for a text: it is called where there is no machine code yet."""
    return shielded(lambda: _kept_code(key, make, names, assembly_of))


def _kept_code(
    key: str, make: Callable[[], Module], names: Sequence[str], assembly_of: Callable[[Any], str]
) -> Code:  # fmt: skip
    about = repr((key, llvmlite.__version__, digest_of("_compile"), target()))
    name = f"code_{hashlib.blake2b(about.encode(), digest_size=16).hexdigest()}.o"
    found = _alive.get(name)
    if found is None:
        found = Code(kept_file(name, lambda: _machine().emit_object(_optimized(make(), assembly_of))), names)
    with _lock:
        found = _alive.setdefault(name, found)
        _recent.pop(name, None)
        _recent[name] = found
        oldest = _recent.pop(next(iter(_recent))) if len(_recent) > KEPT else None
    del oldest  # its memory may be freed now, outside the lock
    return found


def processor_text(module: Module, assembly_of: Callable[[Any], str]) -> str:
    """The machine code as text."""
    text: str = shielded(lambda: _machine().emit_assembly(_optimized(module, assembly_of)))
    return text


def _machine() -> Any:
    triple, processor, features = target()
    options = {"cpu": processor, "features": features, "opt": 2, "reloc": "default", "codemodel": "jitdefault"}
    return binding.Target.from_triple(triple).create_target_machine(**options, jit=True)


def _optimized(module: Module, assembly_of: Callable[[Any], str]) -> Any:
    """The module after all passes."""
    machine = _machine()
    made = _parsed(module.text, machine)
    own = _defined(made)
    for text in module.linked:
        made.link_in(_parsed(text, machine))
    for name in _defined(made) - own:
        made.get_function(name).linkage = "internal"
    if module.has_loops:
        _link(made, module, assembly_of)
        tuning = binding.create_pipeline_tuning_options(3)
        tuning.loop_vectorization, tuning.slp_vectorization = True, False  # as Numba's compiler
        builder = binding.create_pass_builder(machine, tuning)
        builder.getModulePassManager().run(made, builder)
        return made
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(1))
    if module.called:
        _link(made, module, assembly_of)
        inlining = binding.create_new_module_pass_manager()
        inlining.add_always_inliner_pass()
        inlining.add_global_dead_code_eliminate_pass()
        inlining.run(made, builder)
    passes = binding.create_new_function_pass_manager()
    passes.add_sroa_pass()
    if not module.keeps_blocks:
        passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    for function in made.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return made


def _parsed(text: str, machine: Any) -> Any:
    made = binding.parse_assembly(text)
    made.data_layout, made.triple = str(machine.target_data), machine.triple
    return made


def _defined(made: Any) -> set[str]:
    """The names of the functions of a module that are not only declared."""
    return {function.name for function in made.functions if not function.is_declaration}


def _link(made: Any, module: Module, assembly_of: Callable[[Any], str]) -> None:
    """Link what a module calls into it, to be inlined where that leaves the module short."""
    own = _defined(made)
    for each in module.called:
        made.link_in(binding.parse_assembly(assembly_of(each)))
    others = {name: made.get_function(name) for name in _defined(made) - own}
    added = 0
    for each in module.called:
        size = sum(1 for block in others[each.inner_name].blocks for _ in block.instructions)
        calls = sum(text.count(f"@{each.name}(") for text in (module.text, *module.linked))
        added += size * each.registers * calls
    for function in others.values():
        function.linkage = "internal"
    for each in module.called:
        others[each.inner_name].add_function_attribute("alwaysinline")
        others[each.name].add_function_attribute("alwaysinline" if added <= SHORT else "noinline")
