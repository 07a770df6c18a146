"""CUDA's run-time compiler without a GPU: the library of the wheel nvidia-cuda-nvrtc, or of the system."""

import ctypes
import importlib.util
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


def compiled(library, source, *options, instances=(), kind="CUBIN"):
    """The CUBIN or PTX of `source` for one architecture, with templates for `instances`; its log on failure."""
    program = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"source.cu", 0, None, None) == 0
    for name in instances:
        assert library.nvrtcAddNameExpression(program, name.encode()) == 0
    texts = [option.encode() for option in ("-arch=sm_90", *options)]
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
