"""Kernels as WebAssembly: linked with what they call, they compute what the host computes."""

import json
import shutil
import subprocess

import numpy as np
import pytest
import torch
from llvmlite import ir

from seqmodel.kernels.code.emit import POINTER, PORTABLE, emitting_for, vector_lanes
from seqmodel.kernels.code.jit import function
from seqmodel.kernels.code.wasm import STACK, webassembly
from seqmodel.kernels.linear.matmul import pack, row_matmul

K, COLUMNS = 5, 27
SCRIPT = """
const { code, a, b, stack } = JSON.parse(require("fs").readFileSync(0));
const memory = new WebAssembly.Memory({ initial: 2 });
const pointer = new WebAssembly.Global({ value: "i32", mutable: true }, stack);
const env = { __linear_memory: memory, __stack_pointer: pointer };
WebAssembly.instantiate(Buffer.from(code, "hex"), { env }).then(({ instance }) => {
  const numbers = (at, count) => new Float64Array(memory.buffer, stack + at, count);
  numbers(0, a.length).set(a);
  numbers(4096, b.length).set(b);
  instance.exports.product(stack, stack + 4096, stack + 32768);
  console.log(JSON.stringify([...numbers(32768, 27)]));
});
"""


def test_a_function_and_what_it_calls():
    """Guards names that clash, calls that are not resolved, and packing for other vectors."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node to run it")
    torch.manual_seed(0)
    a, weight = torch.randn(K, dtype=torch.float64), torch.randn(COLUMNS, K, dtype=torch.float64)
    with emitting_for(PORTABLE):
        assert vector_lanes(8) == 2
        packed, module = pack(weight), ir.Module("product")
        with function(module, "product", [POINTER] * 3, 8) as (e, *places):
            row_matmul(e, 8, *places, e.int(K), e.int(COLUMNS), False)
        code = webassembly(module, "product")
    given = {"code": code.hex(), "a": a.tolist(), "b": packed.flatten().tolist(), "stack": STACK}
    done = subprocess.run(
        [node, "-e", SCRIPT], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    np.testing.assert_allclose(json.loads(done.stdout), (weight @ a).numpy(), rtol=1e-14)
