"""Fields by name, where one that is not as declared is an error, and where buffers come from."""

import platform
import subprocess
import sys
from collections import deque

import pytest
import torch
from guards import Guards

from seqmodel.kernels.code.emit import padded, panel_width
from seqmodel.kernels.linear.outer import folding
from seqmodel.kernels.run import memory
from seqmodel.kernels.run.calls import Arena, declare
from seqmodel.kernels.run.memory import buffer
from seqmodel.kernels.run.signature import NEW, Array, Signature, packed, per_thread
from seqmodel.kernels.run.threads import compile_kernel, parallel_for

SCALE = Signature(
    "scale",
    ("T", "H"),
    (
        Array("a", ("T", "H"), strides=("a_step",)),
        Array("b", ("T", "H")),
        Array("counts", ("T",), torch.int32, optional=True),
        per_thread("sums", "H"),
        packed("w", "H", "2 * H", optional=True),
    ),
    ("factor",),
)
FRESH_PAGES = """
import resource, torch
import seqmodel.kernels.run.memory

def fill():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(1 << 18) for _ in range(8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print([fill() for _ in range(21)][-1])  # blocks settle in the heap after a few rounds
"""
TWO = Signature("two", (), (Array("a", ("5", "3")), Array("b", ("3", "5"))))
SUMS = torch.zeros(2, padded(3 * panel_width(4), 4))


def fields(**others):
    T, H = 5, 3
    given = {"T": T, "H": H, "threads": 2, "a": torch.ones(T, 2 * H)[:, :H], "b": torch.ones(T, H)}
    return given | {"sums": torch.zeros(2, padded(H, 4)), "factor": 7} | others


def write_scale(e, f, *_):
    """b = factor a, for an integer factor, row by row with the stride of `a`."""
    b = e.builder
    factor = b.sitofp(f["factor"], e.real)
    with e.loop(0, f["T"]) as t, e.loop(0, f["H"]) as j:
        value = b.load(e.offset(f["a"], e.mul(t, f["a_step"]), j), typ=e.real)
        b.store(b.fmul(value, factor), e.offset(f["b"], e.mul(t, f["H"]), j))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"b": torch.ones(5, 4)}, r"b must be float32 \(5, 3\), contiguous, not float32 \(5, 4\)"),
        ({"b": torch.ones(5, 3).double()}, "b must be float32 .* not float64"),
        ({"b": torch.ones(3, 5).t()}, r"not float32 \(5, 3\) with strides \(1, 5\)"),
        ({"b": torch.ones(15)}, r"not float32 \(15,\)"),
        ({"a": torch.ones(3, 5).t()}, "a must be"),
        ({"T": 6}, r"a must be float32 \(6, 3\)"),
        ({"counts": torch.zeros(5)}, "counts must be int32"),
        ({"sums": torch.zeros(2, 3)}, "sums must be"),
        ({"sums": torch.zeros(1, padded(3, 4))}, "sums must be"),
        ({"w": torch.zeros(3, 6)}, "w must be"),
        ({"c": 1}, r"scale\(\) got an unexpected keyword argument 'c'"),
        ({"b": None}, "b must be|NoneType"),
        *(({name: ...}, rf"missing 1 .*'{name}'") for name in ("T", "a", "sums", "threads")),
    ],
)
def test_fields_that_are_missing_or_not_as_declared_are_refused(wrong, message):
    given = {name: field for name, field in fields(**wrong).items() if field is not ...}
    with pytest.raises((ValueError, TypeError, AttributeError), match=f"(?:{message})"):
        compile_kernel(SCALE, 4, write_scale).job(given)


def test_new_arrays_are_made_as_declared():
    """Otherwise the kernel would write beyond them, which the guards here would detect."""
    given = fields(a=torch.arange(30.0).view(5, 6)[:, :3], b=NEW, sums=NEW, counts=NEW, w=NEW)
    job = compile_kernel(SCALE, 4, write_scale).job(given)
    found = {name: (array.dtype, array.shape) for name, array in job.created.items()}
    width = panel_width(4)
    assert found == {
        "b": (torch.float32, (5, 3)),
        "counts": (torch.int32, (5,)),
        "sums": (torch.float32, (2, padded(3, 4))),
        "w": (torch.float32, (-(-6 // width), 3, width)),
    }
    parallel_for([job], 2)
    torch.testing.assert_close(job.created["b"], 7 * given["a"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: parallel_for([folding(SUMS, torch.zeros(2, 3))], 3), "fold .* 2 threads, not 3"),
        (lambda: TWO.layout(8)(a=Arena().take(5, 3), b=Arena().take(5, 3)), "b .* float64 .3, 5"),
        (lambda: declare("two", {"a": torch.ones(3, 2).t()}), "two: a must be contiguous"),
    ],
)
def test_threads_slots_and_fields_of_a_call_are_checked_too(call, message):
    """With more threads than tables, or strides, a kernel would read or write others' numbers."""
    with pytest.raises(ValueError, match=message):
        call()


def test_guards_detect_a_write_beyond_a_buffer():
    guards = Guards()
    made = guards.buffer(torch.float32, 3, 5)
    assert made.isnan().all()
    made.zero_()
    assert guards.broken() == []
    made.as_strided((16,), (1,))[15] = 0.0
    assert guards.broken() == ["a buffer (3, 5) was written behind its numbers"]


def test_the_ir_is_dumped_with_names(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQMODEL_DUMP_IR", str(tmp_path / "ir"))
    compile_kernel(SCALE, 8, write_scale)
    (dumped,) = (tmp_path / "ir").glob("scale-*.ll")
    text = dumped.read_text()
    for name in SCALE.fields:
        assert f'%"{name}" = load' in text


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than GNU's")
def test_freed_memory_stays_with_any_program():
    """Guards against thousands of fresh pages in each step, which by chance cost half its time."""
    assert int(subprocess.check_output([sys.executable, "-c", FRESH_PAGES])) < 100


def test_large_blocks_are_reused_but_never_too_early(monkeypatch):
    monkeypatch.setattr(memory, "MMAP_BYTES", 1 << 20)
    monkeypatch.setattr(memory, "MAX_SPARE_BYTES", 1 << 24)
    monkeypatch.setattr(memory, "_spare", deque())
    first = buffer(torch.float32, 300, 1000)
    place, part = first.data_ptr(), first[7]
    del first
    other = buffer(torch.float32, 300, 1000)  # `part` still holds the first
    assert other.data_ptr() != place
    del part
    assert buffer(torch.float32, 250, 1100).data_ptr() == place
    # Small buffers never use spare blocks.
    monkeypatch.setattr(memory, "MMAP_BYTES", 1 << 22)
    assert buffer(torch.float32, 250, 1100).data_ptr() != place
