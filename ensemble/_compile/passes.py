"""Numba's compiler with less work for the same machine code.

Numba spends more time in its own Python code than in LLVM. `KernelCompiler` runs Numba's pipeline with these changes:

* analyses of variables run where a pass reads them, not after every pass;
* passes that find nothing in a function are left out: closures, expressions of arrays;
* the type of a call is resolved once per function and types of arguments;
* sizes of LLVM types are computed once;
* no events are emitted for which there is no listener;
* the function that Python calls, which converts arguments, is not optimised by LLVM.

The LLVM code of kernels after optimisation is that of Numba's own compiler (``tests/test_compiler_passes.py``).

Parts of Numba are replaced while a kernel is compiled (`numba_parts.py`), under its compiler lock, and put back
afterwards. The replacements are written for the versions in `TESTED`; other versions compile with Numba's own compiler.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core import compiler, typed_passes
from numba.core.compiler_lock import global_compiler_lock

from ensemble._compile.numba_parts import replacements

__all__ = ["TESTED", "KernelCompiler", "compiler_options"]

TESTED = ((0, 62), (0, 68))
"""Versions of Numba that the replacements are written for and tested with."""


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
    """Options of Numba's decorators; `KernelCompiler` is chosen where this version of Numba is one of `TESTED`."""
    chosen = {"pipeline_class": KernelCompiler} if numba.version_info.short in TESTED else {}
    return {"error_model": "numpy", **chosen}
