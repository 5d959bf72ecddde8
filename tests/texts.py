"""Texts of the language of kernels: random ones, and compiled alone, called like functions."""

import ctypes
import importlib.util
import itertools

import numpy as np
from hypothesis import strategies as st
from llvmlite import ir

from seqmodel.kernels.code.emit import INT, POINTER
from seqmodel.kernels.code.instructions import Pointer, translate
from seqmodel.kernels.code.jit import Library, function

SIZE = 7
_numbers = itertools.count()


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


def text_of(source, folder):
    """The function that a source defines, in a file of its own, as the language reads them."""
    path = folder / f"text_{next(_numbers)}.py"
    path.write_text("from seqmodel.kernels.code.language import *\n" + source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.text


def integer(depth, bits):
    """Source of integers, the names `a`, `b` and `n` and elements of `k` among them."""
    leaf = st.sampled_from(["a", "b", "n", "k[n]", "k[2:][n % 4]", "0", "1", "-3", "8", "5"])
    if not depth:
        return leaf
    one, real = integer(depth - 1, bits), real_number(depth - 1)
    shifted = [st.builds("({} >> ({} & 7))".format, one, one)] if bits else []
    return st.one_of(
        leaf,
        st.builds("({} {} {})".format, one, st.sampled_from("+-*&|^" if bits else "+-*"), one),
        st.builds("({} {} {})".format, one, st.sampled_from(["//", "%"]), st.sampled_from("7834")),
        st.builds("({} // (1 + ({} % 16)))".format, one, one),
        st.builds("({} % -(1 + ({} % 16)))".format, one, one),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), one, one),
        st.builds("({} if {} else {})".format, one, condition(one, real), one),
        st.builds("lowered({})".format, one),
        *shifted,
    )


def real_number(depth):
    """Source of reals."""
    leaf = st.sampled_from(["x[n]", "s", "0.5", "-2.25", "float(n)", "x[1:][n % 3]"])
    if not depth:
        return leaf
    one, whole = real_number(depth - 1), st.sampled_from(["a", "b", "n", "3"])
    return st.one_of(
        leaf,
        st.builds("({} {} {})".format, one, st.sampled_from("+-*"), one),
        st.builds("({} / (0.25 + {} * {}))".format, one, one, one),
        st.builds("({} {} {})".format, whole, st.sampled_from("+-*"), one),
        st.builds("({} / (1 + n * {}))".format, whole, st.sampled_from("n58")),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), one, one),
    )


def condition(whole, real):
    sign = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    some = st.builds("{} {} {}".format, whole, sign, whole)
    some |= st.builds("{} {} {}".format, real, sign, real)
    some |= st.builds("0 <= {} < {}".format, whole, whole)
    return some | st.builds("({} {} not {})".format, some, st.sampled_from(["and", "or"]), some)


def programs(*, bits):
    """Source of texts(k, x, count) with SIZE elements, for a graph without `bits`."""
    small, number = integer(1, bits), integer(2, bits)
    start = st.builds("{} % 5".format, small) if bits else st.sampled_from("02")
    statements = st.one_of(
        st.builds("a = {} % 1024".format, number),
        st.builds("b -= {} % 512".format, number),
        st.builds("s = {}".format, real_number(2)),
        st.builds("k[{} % SIZE] = {}".format, small, number),
        st.builds("x[n] += {}".format, real_number(2)),
        st.builds("if {}:\n            a += 1\n        else:\n            s = {}".format,
                  condition(small, real_number(1)), real_number(1)),
        st.builds("for j in unrolled(2, 4):\n            k[j] -= {} + j".format, small),
        st.builds("for m in range({}, SIZE, 2):\n            x[m] = x[m] / 2 + m".format, start),
        st.builds("for m in range(SIZE):\n            c = {}\n            x[m] += c / 2 - m".format,
                  small),
        st.builds("for m in range(SIZE):\n            b = (b + {} * k[m]) % 97".format, small),
        st.builds("for m in range(1, SIZE):\n            x[m] = x[{}] / 2".format,
                  st.sampled_from(["m - 1", "SIZE - m", "m % SIZE"])),
        st.builds("for m in range(SIZE):\n            a += (m > {}) * (k[m] % 3)".format, small),
        st.builds("for m in range(SIZE):\n            s = {}(s, x[m] - m)".format,
                  st.sampled_from(["min", "max"])),
    )  # fmt: skip

    statements |= st.builds(
        lambda test, body: f"if {test}:\n            " + body.replace("\n", "\n    "),
        condition(small, real_number(1)), statements,
    )  # fmt: skip

    def program(statements):
        source = f"SIZE = {SIZE}\ndef lowered(a):\n    if a > 3:\n        a -= 3\n    return a\n"
        source += "def text(k, x, count):\n    a = 3\n    b = -4\n    s = 0.5\n"
        source += "    for n in range(count):\n"
        source += "".join(f"        {statement}\n" for statement in statements)
        return source + "    x[0] += s\n    return a - b\n"

    return st.lists(statements, min_size=1, max_size=6).map(program)
