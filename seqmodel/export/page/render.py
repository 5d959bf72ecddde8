"""The page of a run: markup, and the scripts beside this file, with the model's."""

import json
import shlex
from typing import Any, cast

import torch

from seqmodel.errors import UsageError
from seqmodel.export.page.program import program
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import BEATS_PER_MINUTE
from seqmodel.media.music.kit import SOUNDS
from seqmodel.media.music.metre import COMMON_TIME, Units
from seqmodel.outputs.ends import EndingOutput
from seqmodel.outputs.notes import NotesOutput
from seqmodel.report.page.markup import (
    Markup,
    common_style,
    document,
    escaped,
    filled,
    joined,
    resource,
    tag,
)
from seqmodel.report.subjects import model_in_words, names_of
from seqmodel.runs.folder import Run
from seqmodel.sampling.sampler import Freeze
from seqmodel.units import unit_spec

BEGIN = """let page;
Model.load(JSON.parse(document.getElementById("model").textContent)).then(
  (model) => (page = begin(model)),
  (error) => (document.getElementById("status").value = `The model does not run here: ${error}`));
"""
ROLL = """<div class="stage" id="stage"><div class="wide">
<canvas class="view" id="roll" role="img"
 aria-label="$roll: notes rise from their keys as they sound"></canvas>
<div class="keys" id="keys" role="group" aria-label="$keys"></div>
</div></div>"""
TEMPO_AND_MIDI = """<div class="range">
<label for="tempo">$name <span class="value" aria-hidden="true"></span></label>
<input type="range" id="tempo" min="$least" max="$most" step="$step" value="$plain"
 data-plain="$plain" data-unit=" $unit"></div>
<button type="button" id="midi">Connect a MIDI keyboard</button>"""
HINTS = """<p class="hint">Play an opening on the keys, and let the model continue it.$in_c</p>
<p class="hint typing"><label><input type="checkbox" id="typing" checked> Computer keys play,
too:</label> $keys from $first; <kbd>Z</kbd> and <kbd>X</kbd> move by an octave.</p>"""
WAVE = """<div class="stage">
<canvas class="view" id="wave" role="img" aria-label="Waveform"></canvas></div>"""


def export_page(run: Run) -> bytes:
    """The page, one file, that draws new music or sound as it plays.

    UsageError for a model whose draw is not compiled, such as frame-wise logistic audio.
    """
    drawing = program(run.model)
    if drawing is None:
        raise UsageError(
            f"{run.folder} has the output {run.config.output}, which a page cannot play: "
            "`seqmodel sample` draws from it"
        )
    folder = run.folder.with_suffix("") if run.folder.is_file() else run.folder  # a zip's name
    (name,) = names_of([folder])
    content = {"name": name, "rate": run.frame.rate, **_shape(run), **drawing}
    if isinstance(run.model.output, NotesOutput):
        frame = cast(PianoRollFrames, run.frame)  # which is what notes are in
        drawn, kind, suffix, parts = "music", "MIDI", "mid", _music(frame)
        instrument = "kit" if frame.kit else "piano"
        scripts = ["hall", instrument, "midi", "notes", "keyboard", "roll", "music"]
        content |= {"grid": _grid(frame), "kit": frame.kit}
    else:
        drawn, kind, suffix, parts = "sound", "WAV", "wav", {"stage": Markup(WAVE)}
        scripts = ["samples"]
    title = f"{drawn.capitalize()} by {name}"
    words = {"title": title, "model": model_in_words(run), "data": run.data.name, "drawn": drawn}
    page = {"kind": kind, "suffix": suffix, "settings": "", "hints": "", **words, **parts}
    body = filled(resource(__package__, "page.html"), **page, about=_about(run, suffix))
    model = tag("script", _data(content), type="application/json", id="model")
    style = joined(common_style(), resource(__package__, "page.css"))
    files = (resource(__package__, f"{file}.js") for file in ("model", "player", "page", *scripts))
    sounds = Markup(f"const SOUNDS = {json.dumps(SOUNDS)};")
    script = Markup("\n".join(['"use strict";', *[sounds][: "kit" in scripts], *files, BEGIN]))
    html = document(title, joined(body, model), style=style, script=script, wasm=True)
    return html.encode()


def _shape(run: Run) -> dict[str, Any]:
    """What the page needs to know of frames and of the end of pieces."""
    encoder, output = run.model.encoder, run.model.output
    notes = output if isinstance(output, NotesOutput) else None
    freeze = Freeze.of(run)
    zero, one = encoder.scaled(torch.tensor([[0.0], [1.0]], dtype=torch.float64))[:, 0].tolist()
    deviation = 1 / (one - zero)
    return {
        "notes": notes.notes if notes else 0,
        "onsets": notes is not None and notes.onsets,
        "end": isinstance(output, EndingOutput) and output.end,
        "longest": run.longest_piece * encoder.steps,
        "freeze": None if freeze is None else {"chord": freeze.chord, "piece": freeze.piece},
        "steps": encoder.steps,
        "scale": None if notes else {"mean": -zero * deviation, "deviation": deviation},
    }


def _data(content: dict[str, Any]) -> Markup:
    """Values as JSON that cannot end the element that holds it."""
    return Markup(json.dumps(content).replace("<", "\\u003c"))


def _grid(frame: PianoRollFrames) -> dict[str, Any]:
    metre = frame.metre or COMMON_TIME
    return {
        "framesPerBeat": frame.grid.steps_per_beat,
        "secondsPerFrame": frame.grid.seconds_per_frame(_tempo(frame)),
        "metre": {"beats": metre[0], **Units.of(metre, frame.grid)._asdict()},
    }


def _tempo(frame: PianoRollFrames) -> int:
    """Beats per minute to begin with."""
    return round(frame.tempo or BEATS_PER_MINUTE)


def _music(frame: PianoRollFrames) -> dict[str, str]:
    """A piano-roll above a keyboard, which scroll together, and what goes with them."""
    if frame.grid.steps_per_beat is not None:
        plain = _tempo(frame)
        scale, name, unit = (min(40, plain), max(240, plain), 1, plain), "Tempo", "bpm"
    else:
        scale, name, unit = (25, 400, 5, 100), "Speed", "%"
    tempo = dict(zip(("least", "most", "step", "plain"), scale, strict=True))
    keys = joined(*(tag("kbd", key) for key in "AWSEDFTGYHUJK"))
    in_c = " All music that it knows is in C major or A minor." if frame.transpose_to_c else ""
    shown = (
        ("Drum hits", "Drum kit", "the bass drum")
        if frame.kit
        else ("Piano-roll", "Piano keyboard", "C")
    )
    roll, keyboard, first = shown
    return {
        "stage": filled(ROLL, roll=roll, keys=keyboard),
        "settings": filled(TEMPO_AND_MIDI, name=name, unit=unit, **tempo),
        "hints": filled(HINTS, keys=keys, first=first, in_c=in_c),
    }


def _about(run: Run, suffix: str) -> Markup:
    units, whole = run.model.parameter_counts()
    items = {
        "model": model_in_words(run),
        "parameters": f"{units:,}, with the output {whole:,}",
        "trained on": f"{run.data.name}: {run.frame}",
        "weights of": f"epoch {run.epoch}",
        "in the shell": shlex.join(
            ["seqmodel", "sample", f"out.{suffix}", "--run", run.folder.name, "--seed", "1"]
        ),
    }
    listed = (joined(tag("dt", name), tag("dd", text)) for name, text in items.items())
    texts = {unit: unit_spec(unit) for unit in (run.config.unit, run.config.note_unit) if unit}
    equations = (
        tag(
            "details",
            tag("summary", f"Equations of {spec.name}"),
            tag("pre", Markup("\n".join(map(escaped, spec.statements)))),
        )
        for spec in texts.values()
    )
    return tag("section", tag("h2", "The model"), tag("dl", *listed), *equations, class_="about")
