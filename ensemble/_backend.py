"""Which library an array belongs to. The one import of array_api_compat.

Longer than 400 lines: the questions that are asked of arrays of any library stand together.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import sys
from pathlib import Path
from typing import Any

import array_api_compat
import numpy as np

from ensemble._optional import advice_for
from ensemble._typing import Array, Namespace

__all__ = [
    "array_namespace",
    "as_index",
    "asarray_like",
    "assigned",
    "available_bytes",
    "backend_of",
    "contiguous",
    "copy_of",
    "device_of",
    "free_bytes",
    "has_compiled_numbers",
    "is_array",
    "is_of_tracing",
    "is_traced",
    "is_writable",
    "library_and_device",
    "library_of",
    "needs_gradient",
    "numbers",
    "on_cpu",
    "one_complex_type",
    "prototype",
    "synchronize",
    "to_device",
    "to_numpy",
]

COMPILED_DTYPES = frozenset((np.dtype(np.float32), np.dtype(np.float64)))
"""Value types that the compiled kernels support; every other dtype takes the reference implementation."""

COMPILED_CHARACTERS = frozenset("fd?bBhHiIlLqQ")
"""NumPy's characters of these types, of integers and of bools."""

COMPILED_NATIVE = frozenset(np.dtype(character) for character in COMPILED_CHARACTERS)
"""The types themselves, in the byte order of the machine."""


@functools.cache
def numpy_namespace() -> Namespace:
    """NumPy as array_api_compat wraps it; the import takes as long as NumPy's own, so it waits for the first call."""
    import array_api_compat.numpy

    return array_api_compat.numpy


def array_namespace(*arrays: Any) -> Namespace:
    """The Array API namespace of `arrays`, Ensembles included."""
    for array in arrays:
        if type(array) is not np.ndarray:
            break
    else:
        if arrays:
            return numpy_namespace()
    for array in arrays:
        lifted = getattr(array, "__array_namespace__", None)
        if lifted is not None and hasattr(array, "n_samples"):
            return lifted()
    return array_api_compat.array_namespace(*arrays)


def is_array(value: Any) -> bool:
    """Whether `value` is an array of a library that implements the Array API."""
    return type(value) is np.ndarray or array_api_compat.is_array_api_obj(value)


def backend_of(*arrays: Any) -> str:
    """The kernel backend for `arrays`: "numba", "cuda" or "reference". Arguments that are no arrays do not count."""
    plain = odd = False
    for array in arrays:
        kind = type(array)
        if kind is np.ndarray:
            if array.dtype not in COMPILED_NATIVE:
                odd = True
            plain = True
        elif _kinds.get(kind, kind) is not None:
            break
    else:
        if plain:
            return "reference" if odd else "numba"
    seen: set[str] = set()
    for array in arrays:
        kind = type(array)
        if kind is np.ndarray:
            known = array.dtype in COMPILED_DTYPES or array.dtype.kind in "iub"
            seen.add("numba" if known else "reference")
        else:
            if kind not in _kinds:
                _kinds[kind] = _kind_of(array)
            if _kinds[kind] is not None:
                seen.add(_kinds[kind])
    if ("cuda" in seen and len(seen) > 1) or len(seen - {"numba", "reference"}) > 1:
        raise TypeError(
            f"kernel: arrays must come from one library; got {', '.join(sorted(seen))}. "
            "Move them with xp.asarray or from_dlpack first."
        )
    if seen == {"numba"}:
        return "numba"
    return "cuda" if seen == {"cuda"} else "reference"


def one_complex_type(*arrays: Any) -> bool:
    """Whether the arrays are NumPy's, their floating numbers of one complex type, the others integers or bools."""
    found = ""
    for array in arrays:
        if type(array) is not np.ndarray:
            if array is not None and is_array(array):
                return False
            continue
        dtype = array.dtype
        if dtype.char in "FD" and found in ("", dtype.char):
            found = dtype.char
        elif dtype.char in "fd" or dtype.char not in COMPILED_CHARACTERS:
            return False
        if not dtype.isnative:
            return False
    return found != ""


def has_compiled_numbers(array: Any) -> bool:
    """Whether compiled code for the CPU takes an array: NumPy's, of floating numbers, real or complex."""
    return (
        type(array) is np.ndarray
        and array.dtype.kind in "fc"
        and (backend_of(array) == "numba" or one_complex_type(array))
    )


_kinds: dict[type, Any] = {}  # the result of `_kind_of` by type: each launch on a device needs it


def _kind_of(array: Any) -> str | None:
    """The backend that arrays of this type call for; None for what is no array."""
    if array_api_compat.is_numpy_array(array):
        return "reference"
    if array_api_compat.is_cupy_array(array):
        return "cuda"
    return array_api_compat.array_namespace(array).__name__ if is_array(array) else None


def library_of(value: Any) -> str | None:
    """The library of an array: "numpy", "cupy", "torch", "jax" or the name of another; None for what is no array."""
    kind = type(value)
    if kind not in _libraries:
        _libraries[kind] = None
        # An Ensemble has the namespace of an array, and so has a class of arrays.
        if not hasattr(value, "n_samples") and not isinstance(value, type) and is_array(value):
            name = array_api_compat.array_namespace(value).__name__
            _libraries[kind] = name.removeprefix("array_api_compat.").partition(".")[0]
    return _libraries[kind]


_libraries: dict[type, str | None] = {}


def is_traced(array: Any) -> bool:
    """Whether the numbers of `array` are not known: JAX compiles or maps a function, or PyTorch maps one."""
    library = library_of(array)
    if library == "jax":
        import jax

        return isinstance(array, jax.core.Tracer) and isinstance(jax.lax.stop_gradient(array), jax.core.Tracer)
    return library == "torch" and _of_torch(array) is None


def _of_torch(tensor: Any) -> Any:
    """The tensor of numbers inside those that PyTorch's function transforms wrap around it; None for a mapped one."""
    import torch

    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return None
        tensor = functorch.get_unwrapped(tensor)
    return None if tensor.device.type == "meta" else tensor


def _outside_transforms(tensor: Any) -> Any:
    """A context in which operations on what is inside of a transformed `tensor` are those of plain tensors."""
    import torch

    if not torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return contextlib.nullcontext()
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def is_of_tracing(error: BaseException) -> bool:
    """Whether `error` says that JAX does not know a number yet, in a function that it is tracing."""
    if "jax" not in sys.modules:
        return False
    import jax

    return isinstance(error, jax.errors.JAXTypeError | jax.errors.JAXIndexError)


def needs_gradient(array: Any) -> bool:
    """Whether results that depend on `array` are to be differentiated, as far as its library tells."""
    library = library_of(array)
    if library == "jax":
        import jax

        return isinstance(array, jax.core.Tracer)
    if library != "torch":
        return False
    import torch

    if array.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(array):
        return True
    return torch.autograd.forward_ad.unpack_dual(array).tangent is not None if _in_forward_mode() else False


def _in_forward_mode() -> bool:
    """Whether PyTorch computes derivatives in forward mode."""
    import torch

    return bool(torch.autograd.forward_ad._current_level >= 0)


def copy_of(array: Any) -> Any:
    """A copy of `array` in its library, whose derivatives are those of `array`."""
    if library_of(array) == "torch":
        return array.clone()
    return array_api_compat.array_namespace(array).asarray(array, copy=True)


def on_cpu(array: Any) -> bool:
    """Whether `array` is in memory that the CPU reads."""
    library = library_of(array)
    if library == "torch":
        return bool(array.device.type == "cpu")
    if library == "jax":
        import jax

        return isinstance(array, jax.core.Tracer) or all(device.platform == "cpu" for device in array.devices())
    return library != "cupy"


def to_numpy(array: Array) -> np.ndarray:
    """A NumPy copy or view of `array`, fetched from a device where need be."""
    if isinstance(array, np.ndarray):
        return array
    if array_api_compat.is_jax_array(array) and needs_gradient(array):
        import jax

        return np.asarray(jax.lax.stop_gradient(array))  # known where a function is differentiated and not compiled
    if array_api_compat.is_cupy_array(array):
        return np.asarray(array.get())
    if array_api_compat.is_torch_array(array):
        # Lazy conjugates and negatives are marks on a tensor that NumPy's arrays do not have.
        with _outside_transforms(array):
            known = _of_torch(array)
            if known is None and array.device.type != "meta":
                raise TypeError(
                    "Ensemble: values must be known where a decision needs them; got a tensor that torch.vmap maps. "
                    "Use xp.where, or call outside of it."
                )
            array = array if known is None else known
            return np.asarray(array.detach().resolve_conj().resolve_neg().cpu().numpy())
    return np.asarray(array)


def library_and_device(array: Any) -> tuple[str, Any]:
    """The library and the device of `array`: the key of a cache of copies."""
    if type(array) is np.ndarray:
        return numpy_namespace().__name__, "cpu"
    return array_api_compat.array_namespace(array).__name__, str(device_of(array))


def device_of(array: Any) -> Any:
    """The device of `array`; None for an array that JAX is tracing, which has none yet."""
    return getattr(array, "device", None) if library_of(array) == "jax" else array_api_compat.device(array)


def asarray_like(array: np.ndarray, like: Array) -> Array:
    """The NumPy array `array` in the library and on the device of `like`; itself where it is there already."""
    if type(like) is np.ndarray or type(array) is not np.ndarray:
        return array
    xp, array = array_api_compat.array_namespace(like), np.ascontiguousarray(array)
    if library_of(like) == "jax":
        import jax

        with jax.ensure_compile_time_eval():  # known numbers stay known where `like` is being traced
            return xp.asarray(array, device=device_of(like))
    if not array.flags.writeable and not array_api_compat.is_cupy_array(like):  # PyTorch has no such tensors
        array = array.copy()
    return xp.asarray(array, device=device_of(like))


def prototype(backend: str) -> Array:
    """An empty array of the library called `backend`, "numpy" or "cupy": a `like` for what is yet to be made.

    Raises
    ------
    RuntimeError
        If CuPy is not installed, or finds no device.
    """
    if backend == "numpy":
        return np.empty(0)
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount():
            return cupy.empty(0)
        reason = "there is none"
    except ImportError:
        reason = "CuPy is not installed"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        reason = str(error)
    raise RuntimeError(f'backend "cupy" needs a CUDA device; {reason}. {advice_for("cupy")} Or use "numpy".')


def free_bytes(array: Array) -> int | None:
    """Memory that the device of `array` has left, what its library keeps for reuse included; None off devices."""
    if not array_api_compat.is_cupy_array(array):
        return None
    import cupy

    return int(cupy.cuda.runtime.memGetInfo()[0]) + int(cupy.get_default_memory_pool().free_bytes())


def available_bytes(array: Array) -> int:
    """Free memory where `array` is stored: on its device, or on this machine in its control group."""
    free = free_bytes(array)
    if free is not None:
        return free
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    group = Path("/sys/fs/cgroup")  # of version 2; pages of files that it holds can be had too, anonymous ones cannot
    try:
        limit = int((group / "memory.max").read_text())
        held = next(
            int(line.split()[1])
            for line in (group / "memory.stat").read_text().splitlines()
            if line.startswith("anon ")
        )
        return max(0, min(free, limit - held))
    except (OSError, ValueError, StopIteration):
        return free


def base_of(samples: Array) -> Namespace:
    """The Array API namespace of the base library of `samples`."""
    return numpy_namespace() if type(samples) is np.ndarray else array_namespace(samples)


def contiguous(array: Array, dtype: Any = None) -> Array:
    """`array` with samples contiguous in memory, as the kernels require it; itself where it is so already."""
    if isinstance(array, np.ndarray):
        if array.nbytes <= PIECE or (array.flags.c_contiguous and dtype in (None, array.dtype)):
            return np.ascontiguousarray(array, dtype)
        made = np.empty(array.shape, array.dtype if dtype is None else dtype)
        copy_in_pieces(made, array)
        return made
    if array_api_compat.is_cupy_array(array):
        import cupy

        return cupy.ascontiguousarray(array, dtype)
    return array if dtype is None else array_api_compat.array_namespace(array).astype(array, dtype, copy=False)


PIECE = 1 << 26
"""Bytes that are copied at once: Ctrl-C is heard between two pieces, and a transposition of 64 MB takes tenths."""


def copy_in_pieces(out: np.ndarray, given: np.ndarray) -> None:
    """Write `given` to `out`, of the same shape, `PIECE` bytes of `out` at a time, so that Ctrl-C is heard between."""
    if out.nbytes <= PIECE or not out.ndim:
        out[...] = given
        return
    rows = max(1, PIECE * len(out) // out.nbytes)
    for first in range(0, len(out), rows):
        if rows == 1:
            copy_in_pieces(out[first], given[first])
        else:
            out[first : first + rows] = given[first : first + rows]


def to_device(array: Array, device: Any, stream: Any = None) -> Array:
    """`array` on `device`; itself where it is there already."""
    return array_api_compat.to_device(array, device, stream=stream)


def as_index(number: Any) -> int:
    """`operator.index`, also of a 0-d array of CuPy, which has no such method."""
    return operator.index(number.get() if array_api_compat.is_cupy_array(number) else number)


def numbers(array: Array) -> list[Any]:
    """The entries of a vector as Python's numbers; as arrays where these have derivatives."""
    return list(array) if array_api_compat.is_jax_array(array) or needs_gradient(array) else to_numpy(array).tolist()


def assigned(array: Array, key: Any, value: Any) -> Array:
    """`array` after ``array[key] = value``: itself where its library writes in place, else a new array."""
    if array_api_compat.is_jax_array(array):
        return array.at[key].set(value)
    array[key] = value
    return array


def is_writable(array: Array) -> bool:
    """Whether the entries of `array` can be written in place."""
    if array_api_compat.is_jax_array(array):
        return False
    return not isinstance(array, np.ndarray) or bool(array.flags.writeable)


def synchronize(array: Array) -> None:
    """Wait until the work queued for `array` is done, as a timer must."""
    if array_api_compat.is_cupy_array(array):
        array.device.synchronize()
    elif array_api_compat.is_jax_array(array):
        array.block_until_ready()
