"""A run as one ONNX graph: everything that the model reads, remembers, predicts and draws.

README.md of `seqmodel.export` describes its inputs and outputs.
"""

import json
from functools import partial
from typing import Any

from onnx import helper

import seqmodel
from seqmodel.errors import SeqmodelError
from seqmodel.export.onnx.encoders import ENCODERS
from seqmodel.export.onnx.graph import IR_VERSION, OPSET, ROWS, Graph, Symbol
from seqmodel.export.onnx.marks import add_marks
from seqmodel.export.onnx.outputs import COLDEST, OUTPUTS, Reading
from seqmodel.export.onnx.units import on_changes, over_time
from seqmodel.media.labels import column_count
from seqmodel.media.words import printable
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.registry import output_name
from seqmodel.runs.folder import Run
from seqmodel.units import unit_spec
from seqmodel.units.module import units_of


def export_graph(run: Run) -> bytes:
    """The graph of a run, with its description.

    Raises:
        SeqmodelError: if there are no operators for its encoder or output.
    """
    known = type(run.model.encoder) in ENCODERS
    if not (known and type(run.model.output) in OUTPUTS):
        output = f"output {output_name(run.config, run.frame)} of the " if known else ""
        raise SeqmodelError(
            f"{run.folder} has the {output}{run.config.model} model, which ONNX cannot represent: "
            "use `seqmodel sample` to draw from it"
        )
    model = helper.make_model(
        _graph(run.model).to_proto(printable(run.folder.name) or "model"),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="seqmodel",
        producer_version=seqmodel.__version__,
    )
    helper.set_model_props(model, _facts(run))
    return model.SerializeToString()


def _graph(model: SequenceModel) -> Graph:
    encoder, output = model.encoder, model.output
    g, F = Graph(), output.frame_size
    frames, given = (g.input(name, [ROWS, F]) for name in ("frames", "given"))
    uniforms = g.input("uniforms", [ROWS, output.uniforms_per_frame])
    temperature = g("Max", g.input("temperature", []), COLDEST)
    count, label_columns = column_count(model.known_labels), None
    if count:
        label_columns = g.input("labels", [ROWS, count])
    with g.within("encoder"):
        encoded = ENCODERS[type(encoder)](g, encoder, frames, F, label_columns)
    h, skips = encoded.x, [encoded.skip]
    if label_columns is not None:
        label_rows = g.unsqueeze(label_columns, 1)
        labels, width = g.repeated(label_rows, frames, encoder.rows, count), encoder.input_size
        width -= encoder.skip_size
        parts = [h[:, :, :width], labels, h[:, :, width:]]
        h, skips = g.concat(parts, 2), [labels, *skips]
    for k, layer in enumerate(units_of(model.unit)):
        step = over_time if encoded.changed is None else partial(on_changes, steps=encoded.changed)
        states = {
            f"unit.{k}.{name}": (encoder.rows, layer.hidden_size) for name in layer.spec.state
        }
        with g.within(f"unit.{k}"):
            h = g.with_states(states, partial(step, g, layer, h))
    if present := [part for part in skips if part is not None]:
        h = g.concat([h, *present], 2)
    with g.within("output"):
        reading = Reading(h, encoded.past, given, uniforms, temperature, encoded.last)
        OUTPUTS[type(output)](g, output, reading)
    if model.marks is not None:
        temperature = g("Max", g.input("mark_temperature", []), COLDEST)
        add_marks(g, model.marks, h, Symbol(g, "drawn"), temperature)
    return g


def _facts(run: Run) -> dict[str, str]:
    """The file's metadata about the run, without the path of its data."""
    settings: dict[str, Any] = {**run.config.to_json()}
    settings.pop("data", None)
    units = {"unit": run.config.unit, "note_unit": run.config.note_unit}
    equations = {
        name: "\n".join(unit_spec(unit).statements) for name, unit in units.items() if unit
    }
    return {
        "medium": run.frame.medium,
        "frame": json.dumps(run.frame.to_json()),
        "rows_per_frame": str(run.model.encoder.steps),
        "longest_piece": str(run.longest_piece),
        "output": output_name(run.config, run.frame),
        **equations,
        "epoch": str(run.epoch),
        **({"labels": json.dumps(run.model.known_labels)} if run.model.known_labels else {}),
        "settings": json.dumps(settings),
    }
