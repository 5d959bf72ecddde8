"""The model of a run as plain values, which `model.js` reads back."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from torch import Tensor

from seqmodel.export.page.steps import weight_name
from seqmodel.media.audio.mu_law import SAMPLES
from seqmodel.model.clock import Clock
from seqmodel.model.notes import NoteEncoder
from seqmodel.model.sequence import SequenceModel
from seqmodel.model.sound.encoder import SoundEncoder
from seqmodel.outputs.categorical import CategoricalOutput
from seqmodel.outputs.ends import EndingOutput
from seqmodel.outputs.nade.specification import NadeOutput
from seqmodel.outputs.note_unit.specification import NoteUnitOutput
from seqmodel.outputs.notes.linear import LinearNotesOutput
from seqmodel.outputs.notes.output import NotesOutput
from seqmodel.outputs.notes.tied import TiedOutput
from seqmodel.outputs.protocol import Output
from seqmodel.outputs.samples import SampleWiseOutput
from seqmodel.units.language import Weight
from seqmodel.units.module import Unit

Place = dict[str, int]
"""Where an array is among all numbers: `at`, `size`."""


def model_content(model: SequenceModel, longest: int) -> dict[str, Any]:
    """A model of notes or samples: its shape, weights in float32, and other tables in float64.

    `longest` is the most frames of a piece, where the model says when pieces end.
    """
    encoder, output, numbers = model.encoder, model.output, _Numbers()
    tied = encoder if isinstance(encoder, NoteEncoder) else None
    clock = tied.clock if tied is not None else None
    along_pitch = output.layers() if isinstance(output, NoteUnitOutput) else None
    return {
        "shape": {
            "tied": tied is not None,
            "notes": output.notes if isinstance(output, NotesOutput) else 1,
            "onsets": isinstance(output, NotesOutput) and output.onsets,
            "end": isinstance(output, EndingOutput) and output.end,
            "longest": longest * encoder.steps,
            "echo": tied is not None and tied.echo,
            "metre": 0 if clock is None else clock.digits,
            "clockSize": 0 if clock is None else clock.size - clock.digits,
            "clockPeriod": 1 if clock is None else clock.period,
            "beside": encoder.beside_size,
            "steps": encoder.steps,
            "uniformsPerStep": output.uniforms_per_frame,
            "levels": SAMPLES.tolist() if isinstance(output, CategoricalOutput) else None,
        },
        "unit": numbers.stack(0, model.layers()),
        "noteUnit": None if along_pitch is None else numbers.stack(1, along_pitch),
        "output": {name: numbers.place(array) for name, array in _output(output).items()},
        "clock": None if clock is None or not clock.end else _ends(clock),
        "sound": _sound(encoder) if isinstance(encoder, SoundEncoder) else None,
        "numbers": _base64(b"".join(numbers.parts)),
    }


def _ends(clock: Clock) -> str:
    """What it tells of the end; the page counts the digits of the metre itself."""
    return _base64(clock.table()[:, clock.digits :].numpy().astype("<f8").tobytes())


def _sound(encoder: SoundEncoder) -> dict[str, Any]:
    """What `hearing.js` needs to know of the predictors, and of train."""
    predictors, known = encoder.predictors, encoder.steered()
    return {
        "size": predictors.input_size,
        "lattices": [asdict(lattice) for lattice in predictors.lattices],
        "levels": [{"name": name, **asdict(level)} for name, level in predictors.levels.items()],
        "pitch": asdict(predictors.pitch),
        "pitchLine": predictors.pitch_line,
        "lines": [*predictors.lines.items()],
        "features": [{"kind": type(f).__name__, **asdict(f)} for f in predictors.features],
        "strength": known.strength,
        "known": _base64(known.packed().numpy().astype("<f8").tobytes()),
    }


def _output(output: Output) -> Mapping[str, Tensor]:
    """The arrays of an output by their names in `outputs.js`."""
    assert isinstance(output, TiedOutput | LinearNotesOutput | SampleWiseOutput)
    weight, bias = output.linear.parameters()
    arrays = {"weight": weight if isinstance(output, TiedOutput) else weight.t(), "bias": bias}
    if not isinstance(output, LinearNotesOutput) and output.ending is not None:
        arrays |= {"endWeight": output.ending.weight, "endBias": output.ending.bias}
    return arrays | ({"V": output.V, "U": output.U} if isinstance(output, NadeOutput) else {})


class _Numbers:
    """All arrays, one after another."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._count = 0

    def place(self, array: Tensor) -> Place:
        """Append an array; returns where it is."""
        numbers = array.detach().cpu().numpy().astype("<f4")
        self.parts.append(np.ascontiguousarray(numbers).tobytes())
        self._count += numbers.size
        return {"at": self._count - numbers.size, "size": numbers.size}

    def stack(self, unit: int, layers: Sequence[Unit]) -> dict[str, Any]:
        """Layers of the unit with this number in the script."""
        return {"unit": unit, "layers": [self._layer(layer) for layer in layers]}

    def _layer(self, layer: Unit) -> dict[str, Any]:
        weights = {
            weight_name(Weight(term, gate)): self.place(weight.t() if term in "WU" else weight)
            for gate, terms in layer.gates().items()
            for term, weight in terms.items()
            if weight is not None
        }
        return {"inputs": layer.input_size, "hidden": layer.hidden_size, "weights": weights}


def _base64(numbers: bytes) -> str:
    return b64encode(numbers).decode("ascii")
