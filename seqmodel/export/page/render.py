"""The page of a run: markup, and the scripts beside this file, with the model's."""

import json
import re
import shlex
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import numpy as np
import torch

from seqmodel.errors import UsageError
from seqmodel.export.page.program import TEMPERATURES, program
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
from seqmodel.sampling.sampler import Freeze, Sampler
from seqmodel.units import unit_spec

BEGIN = """let page;
const SCRIPT = globalThis.document && URL.createObjectURL(new Blob([document.currentScript.text]));
function failed(error) {
  document.getElementById("play").disabled = true;
  document.getElementById("status").value =
    `The model does not run here: ${error.message ?? error}`;
}
if (SCRIPT)
  Model.unpack(JSON.parse(document.getElementById("model").textContent))
    .then((model) => (page = begin(model)))
    .catch(failed);
else onmessage = work;
"""
ROLL = """<div class="stage" id="stage"><div class="wide">
<canvas class="view" id="roll" role="img"
 aria-label="$roll: notes rise from their keys as they sound"></canvas>
<div class="keys" id="keys" role="group" aria-label="$keys"></div>
</div></div>"""
TEMPO = """<div>
<label for="tempo">$name <span class="value" aria-hidden="true"></span></label>
<input type="range" id="tempo" name="$key" min="$least" max="$most" step="$step" value="$value"
 data-plain="$plain" data-unit=" $unit"></div>"""
INSTRUMENT = """<div><label for="instrument">Instrument</label>
<select id="instrument" autocomplete="off"></select></div>"""
SAVE = """<button type="button" data-suffix="$suffix" disabled>Save as $kind</button>"""
MIDI = """<button type="button" id="midi">Connect a MIDI keyboard</button>"""
BACK = """<button type="button" id="back" hidden>Back to the music</button>"""
VOICES = """
<button type="button" id="voices" hidden>Voices below</button>"""
HINTS = """<p class="hint">The keys sound with the music. While it pauses they begin a duet: two
beats after your last note the model goes on from what you played.$voices$in_c</p>
<p class="hint typing"><label><input type="checkbox" id="typing" checked> Computer keys play the
keys that show their letters,</label> from <output id="lowest"></output> on; <kbd id="lower"></kbd>
and <kbd id="upper"></kbd> move them by an octave, <kbd>Space</kbd> plays and pauses.</p>"""
OF_VOICES = " Voices below draws the other voices under it instead, as under a tune."
WAVE = """<div class="stage">
<canvas class="view" id="wave" role="img" aria-label="Waveform"></canvas></div>"""


ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><g fill="#0069b0">
<path d="M1 9h3v6H1zM5 5h3v7H5zM9 8h3v5H9zM13 2h2v8h-2z"/></g></svg>"""
SEEDS = range(1, 33)
"""Of which one is looked for that sounds at once."""
SOUNDING = 0.5
"""The share of a first second with notes, or of train's deviation, above which it sounds."""


class Words(NamedTuple):
    """What a page says to people, of a kind of run."""

    drawn: str
    lead: str
    invitation: str


MUSIC = Words(
    "music",
    "A small neural network composes in your browser. Press Play, or play a few notes and it "
    "goes on from them.",
    "Here notes will rise from the keys. Play a few yourself and pause: it answers.",
)
DRUMS = Words(
    "music",
    "A small neural network drums in your browser. Press Play, or strike a few drums and it "
    "goes on from there.",
    "Here strokes will rise from the drums. Strike a few yourself and pause: it answers.",
)
SOUND = Words(
    "sound",
    "A small neural network makes up sound in your browser, sample by sample. Press Play.",
    "Here the sound will show.",
)


def export_page(
    run: Run,
    *,
    seed: int | None = None,
    temperature: float = 1.0,
    tempo: int | None = None,
    title: str | None = None,
) -> bytes:
    """The page, one file, that draws new music or sound as it plays.

    It begins with a seed, by default one whose first second sounds, a temperature and a tempo in
    beats per minute, by default train's. UsageError for a model whose draw is not compiled, such as
    frame-wise logistic audio, and for a temperature or tempo that the page cannot be set to.
    """
    if temperature not in TEMPERATURES:
        raise UsageError(f"--temperature goes from 0 to 2 in steps of 0.05, not {temperature:g}")
    if isinstance(run.model.output, NotesOutput):
        frame = cast(PianoRollFrames, run.frame)  # which is what notes are in
        said, saved = DRUMS if frame.kit else MUSIC, ["mid", "wav"]
        parts = _music(frame, tempo)
        instrument = "kit" if frame.kit else "piano"
        scripts = ["wav", "hall", instrument, "midi", "notes"]
        scripts += ["voices", "keyboard", "roll", "music"]
        grid = {"grid": _grid(frame), "kit": frame.kit}
    else:
        if tempo is not None:
            raise UsageError(f"--tempo is for music, and {run.folder} was trained on sound")
        said, saved, parts = SOUND, ["wav"], {"stage": Markup(WAVE)}
        scripts, grid = ["wav", "samples"], {}
    drawing = program(run.model)
    if drawing is None:
        raise UsageError(
            f"{run.folder} has the output {run.config.output}, which a page cannot play: "
            "`seqmodel sample` draws from it"
        )
    folder = run.folder.with_suffix("") if run.folder.is_file() else run.folder  # a zip's name
    (name,) = names_of([folder])
    content = {"name": name, "rate": run.frame.rate, **grid, **_shape(run), **drawing}
    if seed is None:
        seed = _sounding_seed(run, temperature)
    title = title or f"{said.drawn.capitalize()} by a neural network"
    begins = {"seed": str(seed), "temperature": f"{temperature:g}"}
    kinds = {"mid": "MIDI", "wav": "WAV"}
    save = joined(*(filled(SAVE, suffix=suffix, kind=kinds[suffix]) for suffix in saved))
    words = {"title": title, "lead": said.lead, "invitation": said.invitation, "save": save}
    optional = dict.fromkeys(("settings", "midi", "back", "hints"), "")
    page = {**words, **begins, **optional, **parts, "labels": _menus(run)}
    about = _about(run, saved[0], begins)
    body = filled(resource(__package__, "page.html"), **page, about=about)
    model = tag("script", _data(content), type="application/json", id="model")
    style = joined(common_style(), resource(__package__, "page.css"))
    scripts = ["model", "worker", "player", "page", *scripts]
    files = (resource(__package__, f"{file}.js") for file in scripts)
    sounds = Markup(f"const SOUNDS = {json.dumps(SOUNDS)};")
    script = "\n".join(['"use strict";', *[sounds][: "kit" in scripts], *files, BEGIN])
    script = Markup(re.sub(r"(?s)\s*/\*.*?\*/|(?<=\n) +", "", script))  # not for its readers
    icon, body = f"data:image/svg+xml,{quote(ICON)}", joined(body, model)
    of_head = {"description": said.lead, "icon": icon}
    html = document(title, body, style=style, script=script, wasm=True, live=False, **of_head)
    return html.encode()


def _sounding_seed(run: Run, temperature: float) -> int:
    """The first of `SEEDS` whose first second sounds, or the one in which it sounds most."""
    sampler, notes = Sampler(run.model, temperature=temperature), run.model.output.frame_size
    if isinstance(run.model.output, NotesOutput):
        frame = cast(PianoRollFrames, run.frame)
        rate, usual = 1 / frame.grid.seconds_per_frame(_tempo(frame)), None
    else:
        rate, usual = run.frame.rate / run.frame.frame_size, run.frame.deviation
    count, levels = max(1, round(rate)), dict[int, float]()
    for seed in SEEDS:
        drawn = np.concatenate([*sampler.piece(count, seed=seed)])[:, :notes]
        heard = drawn.any(axis=1).sum() / count if usual is None else drawn.std() / usual
        levels[seed] = float(heard)
        if heard >= SOUNDING:
            break
    return max(levels, key=lambda seed: levels[seed])


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


def _music(frame: PianoRollFrames, tempo: int | None) -> dict[str, str]:
    """A piano-roll above a keyboard, which scroll together, and what goes with them."""
    if frame.grid.steps_per_beat is not None:
        plain = _tempo(frame)
        least, most = min(40, plain), max(240, plain)
        if tempo is not None and not least <= tempo <= most:
            raise UsageError(f"--tempo goes from {least} to {most}, not {tempo}")
        scale, words = (least, most, 1, plain, tempo or plain), ("Tempo", "bpm", "bpm")
    elif tempo is not None:
        raise UsageError("--tempo is for music in beats, and this run's frames are of real time")
    else:
        scale, words = (25, 400, 5, 100, 100), ("Speed", "%", "speed")
    names = ("least", "most", "step", "plain", "value", "name", "unit", "key")
    tempos: dict[str, str | int] = dict(zip(names, (*scale, *words), strict=True))
    in_c = " All music that it knows is in C major or A minor." if frame.transpose_to_c else ""
    roll, keys = ("Drum hits", "Drum kit") if frame.kit else ("Piano-roll", "Piano keyboard")
    return {
        "stage": filled(ROLL, roll=roll, keys=keys),
        "settings": joined(filled(TEMPO, **tempos), "" if frame.kit else Markup(INSTRUMENT)),
        "midi": Markup(MIDI),
        "back": Markup(BACK + VOICES * (not frame.kit)),
        "hints": filled(HINTS, in_c=in_c, voices="" if frame.kit else OF_VOICES),
    }


def _menus(run: Run) -> Markup:
    """A menu for each label, in front of whose values is none of them."""
    menus = []
    for k, (name, values) in enumerate(run.model.known_labels.items()):
        options = [
            tag("option", value or "any", value=value, selected=place == run.model.told[k])
            for place, value in enumerate(("", *values))
        ]
        menu = tag("select", *options, id=f"label-{k}", name=f"is.{name}")
        menus.append(tag("div", tag("label", name, for_=f"label-{k}"), menu))
    return joined(*menus)


def _about(run: Run, suffix: str, begins: dict[str, str]) -> Markup:
    units, whole = run.model.parameter_counts()
    items = {
        "model": model_in_words(run),
        "parameters": f"{units:,}, with the output {whole:,}",
        "trained on": f"{run.data.name}: {run.frame}",
        "weights of": f"epoch {run.epoch}",
        "in the shell": shlex.join(
            ["seqmodel", "sample", f"out.{suffix}", "--run", run.folder.name]
            + [word for name, value in begins.items() for word in (f"--{name}", value)]
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
