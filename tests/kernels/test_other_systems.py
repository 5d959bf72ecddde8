"""The kernels for systems that tests cannot run on, verified by LLVM for each, and WebAssembly."""

import json
import shutil
import subprocess
from functools import cache
from itertools import cycle

import numpy as np
import pytest
import torch
from llvmlite import binding, ir
from noise import write_recordings

from seqmodel.config import MODELS, resolve
from seqmodel.kernels.code import jit
from seqmodel.kernels.code.emit import POINTER, PORTABLE, Target, emitting_for, vector_lanes
from seqmodel.kernels.code.jit import function
from seqmodel.kernels.code.wasm import STACK, webassembly
from seqmodel.kernels.linear.matmul import pack, row_matmul
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.build import with_sizes
from seqmodel.outputs.registry import OUTPUTS
from seqmodel.sampling.sampler import Sampler

UNITS = "gru", "lstm-layer-norm"  # a product of a product of the state, peepholes and means
NEON = Target(16, 32)
X86 = Target(64, 32)
SYSTEMS = {
    "x86_64-pc-windows-msvc-elf": (X86, "+avx512f,+fma", b"\x7fELF"),  # as llvmlite has it there
    "arm64-apple-macosx11": (NEON, "+neon", b"\xcf\xfa\xed\xfe"),
}
"""By the triple: the shape of the code, the processor's features, how its object files begin.

One of each shape and each kind of object file."""


@pytest.fixture(scope="module")
def session(tmp_path_factory, struck_dataset, audio_dataset, recordings, train):
    """A function that returns the kernels of a session as IR: for a target, of each n-th model."""
    tones = write_recordings(tmp_path_factory.mktemp("mu-law"), recordings, levels="mu-law")
    datasets = {"binary": struck_dataset, "samples": audio_dataset, "levels": tones}
    quick = {"hidden": 5, "batch_size": 4, "epochs": 1, "truncate": 200, "weight_noise": 0.1}
    kinds = [(n, model) for n, one in OUTPUTS.items() for model in MODELS if one.fits(model)]

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    host = binding.Target.from_triple(binding.get_process_triple())
    features = binding.get_host_cpu_features().flatten()
    unhurried = host.create_target_machine(binding.get_host_cpu_name(), features, opt=0, jit=True)

    @cache
    def kernels(target, step):
        with pytest.MonkeyPatch.context() as patch, emitting_for(target):
            made = {}

            def compiled(source, _):
                made[source] = None
                return unhurried.emit_object(binding.parse_assembly(source))

            # Nothing is kept on disk, and no time is spent to make faster what runs once.
            patch.setattr(jit.disk, "cached", lambda name, make: make())
            patch.setattr(jit, "_compiled", compiled)
            processor = binding.get_host_cpu_features()
            if target == NEON:  # it has no register for subnormal numbers as x86's
                processor.pop("sse", None)
            patch.setattr(binding, "get_host_cpu_features", lambda: processor)
            for unit, (output, model) in [*zip(cycle(UNITS), kinds, strict=False)][::step]:
                data = datasets[OUTPUTS[output].values]
                options = {"unit": unit, "output": output, "model": model, "dropout": 0.5}
                config = resolve(quick | options | {"data": str(data.folder)})
                config = with_sizes(config, data["train"].frame)
                trainer = train(config, None, data=data)
                next(Sampler(trainer.state.model).draw(Uniforms(1)))
        return made

    return kernels


@pytest.mark.parametrize("triple", SYSTEMS)
def test_every_kernel_is_emitted_and_verified(session, triple):
    """Guards instructions, types and calls that another system's code generator refuses."""
    target, features, magic = SYSTEMS[triple]
    kernels = session(target, 1 if target == NEON else 5)  # x86 runs all other tests
    assert len(kernels) > 20
    machine = binding.Target.from_triple(triple).create_target_machine(features=features, opt=0)
    for source in kernels:
        parsed = binding.parse_assembly(source)
        parsed.triple, parsed.data_layout = triple, str(machine.target_data)
        parsed.verify()
        assert machine.emit_object(parsed).startswith(magic)


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
