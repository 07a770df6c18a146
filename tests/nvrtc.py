"""CUDA's run-time compiler without a GPU: the library of the wheel nvidia-cuda-nvrtc, or of the system."""

import ctypes
import functools
import importlib.util
import os
from pathlib import Path


def library():
    """The NVRTC library, or None without."""
    names = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else ():
        names = [*(str(path) for path in sorted(Path(folder).glob("*/lib/libnvrtc.so.*[0-9]"))), *names]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


QUICK = ("-Ofc", "max", "-minimal")
"""Options for a third of the time: the whole source is checked, and optimised in slow runs."""


@functools.cache
def is_known(library, *options):
    """Whether this version of NVRTC has these options."""
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), b"__global__ void empty() {}", b"empty.cu", 0, None, None)
    texts = [option.encode() for option in options]
    status = library.nvrtcCompileProgram(program, len(texts), (ctypes.c_char_p * len(texts))(*texts))
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return status == 0


def compiled(library, source, *options, instances=(), kind="CUBIN"):
    """The CUBIN or PTX of `source` for one architecture, with templates for `instances`; its log on failure."""
    program = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"source.cu", 0, None, None) == 0
    for name in instances:
        assert library.nvrtcAddNameExpression(program, name.encode()) == 0
    wanted = kind == "CUBIN" and not os.environ.get("ENSEMBLE_TEST_EVERY_WIDTH")
    quick = QUICK if wanted and is_known(library, *QUICK) else ()
    texts = [option.encode() for option in ("-arch=sm_90", *quick, *options)]
    status = library.nvrtcCompileProgram(program, len(texts), (ctypes.c_char_p * len(texts))(*texts))
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    assert status == 0, log.value.decode()
    for name in instances:
        lowered = ctypes.c_char_p()
        assert library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(lowered)) == 0, name
    assert getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)) == 0
    made = ctypes.create_string_buffer(size.value)
    assert getattr(library, f"nvrtcGet{kind}")(program, made) == 0
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return made.raw
