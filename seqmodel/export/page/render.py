"""The page of a run: markup, and the scripts beside this file, with the model's."""

import json
import shlex
from collections.abc import Sequence
from typing import Any, cast

from seqmodel.errors import UsageError
from seqmodel.export.page.content import model_content
from seqmodel.export.page.steps import step_script
from seqmodel.media.music.defaults import TEMPO
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.outputs.notes.output import NotesOutput
from seqmodel.outputs.samples import SampleWiseOutput
from seqmodel.report.page.document import common_style, document, resource
from seqmodel.report.page.markup import Markup, escaped, joined, tag
from seqmodel.report.subjects import model_in_words, names_of
from seqmodel.runs.folder import Run
from seqmodel.units import unit_spec

MODEL = ("uniforms", "unit", "outputs", "model")
MUSIC: tuple[str, ...] = (
    *("echo", "encoder", "dynamics", "sound", "midi", "player", "keyboard", "roll", "page"),
    "music",
)
SOUND: tuple[str, ...] = ("hearing", "samples", "stream", "wave", "page", "audio")
BEGIN = 'const page = begin(JSON.parse(document.getElementById("model").textContent));'
START, STOP = "M-4-7l12 7-12 7z", "M-6-6h12v12h-12z"


def export_page(run: Run) -> bytes:
    """The page, one file, that draws new music or sound as it plays.

    Raises:
        UsageError: for an output that has no JavaScript, such as those of frame-wise audio.
    """
    folder = run.folder.with_suffix("") if run.folder.is_file() else run.folder  # a zip's name
    (name,) = names_of([folder])
    told: dict[str, Any] = {"name": name, "rate": run.frame.rate}
    if isinstance(run.model.output, NotesOutput):
        frame = cast(PianoRollFrames, run.frame)  # which is what notes are in
        drawn, suffix, scripts, content = "music", "mid", MUSIC, _music(frame)
        told["grid"] = _grid(frame)
    elif isinstance(run.model.output, SampleWiseOutput):
        drawn, suffix, scripts, content = "sound", "wav", SOUND, _sound()
    else:
        raise UsageError(
            f"{run.folder} has the output {run.config.output}, which a page cannot play: "
            "`seqmodel sample` draws from it"
        )
    title = f"{drawn.capitalize()} by {name}"
    told |= model_content(run.model, run.longest_piece)
    lead = (
        f"This page is the model itself ({model_in_words(run)}), trained on {run.data.name}. "
        f"It draws new {drawn} in your browser as it plays, without end."
    )
    body = tag(
        "main",
        tag("header", tag("h1", title), tag("p", lead, class_="lead")),
        tag("noscript", tag("p", "It needs JavaScript.")),
        content,
        _about(run, suffix),
    )
    model = tag("script", _data(told), type="application/json", id="model")
    style = joined(common_style(), resource(__package__, "page.css"))
    html = document(title, joined(body, model), style=style, script=_script(run, scripts))
    return html.encode()


def _script(run: Run, others: Sequence[str]) -> Markup:
    """All that the page runs: files of this folder, and the steps of the run's units."""
    config = run.config
    steps = [
        step_script(
            unit_spec(unit),
            gate_activation=config.gate_activation,
            activation=config.activation,
            bias=config.bias,
        )
        for unit in (config.unit, config.note_unit)
        if unit is not None
    ]
    units = (
        "/* The equations of the unit along time and, if there is one, along pitch. */\n"
        f"const UNITS = [{', '.join(steps)}];\n"
    )
    files = [resource(__package__, f"{name}.js") for name in (*MODEL, *others)]
    return Markup("\n".join(['"use strict";', *files, units, BEGIN]))


def _data(told: dict[str, Any]) -> Markup:
    """Values as JSON that cannot end the element that holds it."""
    return Markup(json.dumps(told).replace("<", "\\u003c"))


def _grid(frame: PianoRollFrames) -> dict[str, float | None]:
    return {
        "framesPerBeat": frame.grid.steps_per_beat,
        "secondsPerFrame": frame.grid.seconds_per_frame(TEMPO),
    }


def _music(frame: PianoRollFrames) -> Markup:
    """The player of music: a piano-roll above a keyboard, which scroll together."""
    roll = tag(
        "canvas", class_="view", id="roll", role="img",
        aria_label="Piano-roll: notes rise from their keys as they sound",
    )  # fmt: skip
    keys = tag("div", class_="keys", id="keys", role="group", aria_label="Piano keyboard")
    if frame.grid.steps_per_beat is not None:
        tempo = _range("tempo", "Tempo", 40, 240, 1, round(TEMPO), " bpm")
    else:
        tempo = _range("tempo", "Speed", 25, 400, 5, 100, " %")
    stage = tag("div", tag("div", roll, keys, class_="wide"), class_="stage", id="stage")
    player = _player(stage, "mid", "MIDI", tempo, _button("midi", "Connect a MIDI keyboard"))
    return joined(player, _hints(frame))


def _sound() -> Markup:
    """The player of sound: a waveform."""
    wave = tag("canvas", class_="view", id="wave", role="img", aria_label="Waveform")
    return _player(tag("div", wave, class_="stage"), "wav", "WAV")


def _player(stage: Markup, suffix: str, kind: str, *settings: Markup) -> Markup:
    """What is seen between the controls that every page has."""
    icon = tag(
        "svg",
        tag("path", class_="to-start", d=START),
        tag("path", class_="to-stop", d=STOP),
        viewBox="-10 -10 20 20",
        aria_hidden="true",
    )
    words = tag("span", "Start")
    start = {"type": "button", "id": "play", "class_": "play", "data_state": "start"}
    above = [
        tag("button", icon, words, **start),
        _button("over", "Start over"),
        tag("button", f"Save as {kind}", type="button", id="save", data_suffix=suffix),
        tag("output", class_="status", id="status"),
    ]
    seed = {"inputmode": "numeric", "autocomplete": "off", "value": "1", "id": "seed"}
    below = [
        tag("div", tag("label", "Seed", for_="seed"), tag("input", type="text", **seed)),
        _button("another", "New seed"),
        _range("temperature", "Temperature", 0, 2, 0.05, 1, ""),
        *settings,
    ]
    return joined(
        tag("div", *above, class_="controls", role="group", aria_label="Player"),
        stage,
        tag("div", *below, class_="controls", role="group", aria_label="Settings"),
    )


def _button(name: str, text: str) -> Markup:
    return tag("button", text, type="button", id=name)


def _range(
    name: str, text: str, least: float, most: float, step: float, value: float, unit: str
) -> Markup:
    scale = {"min": str(least), "max": str(most), "step": str(step), "value": str(value)}
    told = {"data_plain": str(value), "data_unit": unit}
    shown = tag("span", class_="value", aria_hidden="true")  # the range tells it by itself
    label = tag("label", f"{text} ", shown, for_=name)
    return tag("div", label, tag("input", type="range", id=name, **scale, **told), class_="range")


def _hints(frame: PianoRollFrames) -> Markup:
    checked = tag("input", type="checkbox", id="typing", checked=True)
    keys = joined(*(tag("kbd", key) for key in "AWSEDFTGYHUJK"))
    typing = [tag("label", checked, " Computer keys play, too:"), " ", keys, " from C; "]
    typing += [tag("kbd", "Z"), " and ", tag("kbd", "X"), " move by an octave."]
    opening = "Play an opening on the keys, and let the model continue it."
    if frame.transpose_to_c:
        opening += " All music that it knows is in C major or A minor."
    return joined(
        tag("p", opening, class_="hint"),
        tag("p", *typing, class_="hint typing"),
    )


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
