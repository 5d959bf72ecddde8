"""Texts of the language of kernels, compiled alone and called like Python functions."""

import ctypes

import numpy as np
from llvmlite import ir

from seqmodel.kernels.code.emit import INT, POINTER
from seqmodel.kernels.code.jit import Library, function
from seqmodel.kernels.code.language import Pointer, translate


def compiled(text, example, **constants):
    """A function of the same arguments by name, of the types of `example`; returns an integer.

    Arrays are contiguous, of int64 or of the kernel's reals, which are those of the first of them.
    """
    arrays = {name: one for name, one in example.items() if isinstance(one, np.ndarray)}
    real = next((a.dtype for a in arrays.values() if a.dtype.kind == "f"), np.dtype(float))
    module = ir.Module("text")
    kinds = [POINTER if name in arrays else INT for name in example]
    with function(module, "text", [*kinds, POINTER], real.itemsize) as (e, *given, result):
        values = dict(zip(example, given, strict=True))
        for name, array in arrays.items():
            values[name] = Pointer(values[name], INT if array.dtype.kind == "i" else e.real)
        returned = translate(e, text, **values, **constants)
        if returned is not None:
            e.builder.store(e.int(returned), result)
    library = Library(module)
    kind = [ctypes.c_void_p if name in arrays else ctypes.c_int64 for name in example]
    call = ctypes.CFUNCTYPE(None, *kind, ctypes.c_void_p)(library.address("text"))

    def run(**arguments):
        found = np.zeros(1, np.int64)
        given = [arguments[name] for name in example]
        assert library  # keeps the code alive
        assert all(a.flags.c_contiguous for a in given if isinstance(a, np.ndarray))
        call(*(a.ctypes.data if isinstance(a, np.ndarray) else a for a in given), found.ctypes.data)
        return int(found[0])

    return run
