"""The kernels for systems that tests cannot run on: emitted by LLVM for each, and verified.

Those of a small session count: it trains units, outputs and models, and draws.
"""

from functools import cache
from itertools import cycle

import numpy as np
import pytest
from llvmlite import binding

from seqmodel.config import MODELS, resolve
from seqmodel.data.dataset import DatasetWriter, open_dataset
from seqmodel.kernels.code import jit
from seqmodel.kernels.code.emit import Target, emitting_for
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.model.build import with_sizes
from seqmodel.outputs.registry import OUTPUTS
from seqmodel.sampling.sampler import Sampler
from seqmodel.units import UNITS

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
    """A function that returns the kernels of a session as IR: for a target, of each n-th unit."""
    folder = tmp_path_factory.mktemp("mu-law") / "tones"
    folder.mkdir()
    frame = AudioFrames(8000, 10, 20, "mu-law")
    with DatasetWriter(folder, frame) as writer:
        for split, pieces in recordings.items():
            for k, samples in enumerate(pieces):
                writer.add(split, f"{split}/{k}.wav", [(samples >> 8).astype(np.int8)])
        writer.finish(frame, {"clip_seconds": None, "skipped": []})
    datasets = {"binary": struck_dataset, "samples": audio_dataset, "levels": open_dataset(folder)}
    quick = {"hidden": 5, "batch_size": 4, "epochs": 1, "truncate": 200, "weight_noise": 0.1}
    kinds = [(n, model) for n, one in OUTPUTS.items() for model in MODELS if one.fits(model)]
    assert len(kinds) <= len(UNITS)

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
            patch.setattr(jit.disk, "kept", lambda name, make: make())
            patch.setattr(jit, "_compiled", compiled)
            for unit, (output, model) in [*zip(UNITS, cycle(kinds), strict=False)][::step]:
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
    kernels = session(target, 1 if target == NEON else 3)  # x86 runs all other tests
    assert len(kernels) > 25
    machine = binding.Target.from_triple(triple).create_target_machine(features=features, opt=0)
    for source in kernels:
        parsed = binding.parse_assembly(source)
        parsed.triple, parsed.data_layout = triple, str(machine.target_data)
        parsed.verify()
        assert machine.emit_object(parsed).startswith(magic)
