"""The page of a run: markup, the scripts next to this file, and the model's."""

import json
import re
import shlex
from collections.abc import Collection
from typing import Any, cast
from urllib.parse import quote

import numpy as np

from seqmodel.errors import UsageError
from seqmodel.export.page.program import TEMPERATURES, program
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import DEFAULT_BPM, PIANO
from seqmodel.media.music.kit import ROWS, SOUNDS
from seqmodel.media.music.metre import COMMON_TIME, Units
from seqmodel.media.music.parts import DRUMS
from seqmodel.media.music.writing import FINE_DIVISION, delays, frames_late
from seqmodel.media.words import epochs_text
from seqmodel.outputs.notes import NotesOutput
from seqmodel.outputs.registry import output_name
from seqmodel.report.origin import short_path
from seqmodel.report.page.charts import SeriesStyles
from seqmodel.report.page.markup import (
    Markup,
    document,
    filled,
    joined,
    resource,
    tag,
)
from seqmodel.report.page.parts import Facts, Section
from seqmodel.report.subjects import model_in_words, unique_names
from seqmodel.runs.folder import Run
from seqmodel.sampling.sampler import Freeze, Sampler
from seqmodel.units import unit_spec

SEEDS = range(1, 33)
"""The seeds tried to find one that sounds at once."""
SOUNDING = 0.5
"""A first second sounds above this share of frames with notes, or of train's deviation."""

LEADS = {
    "piano": "A small neural network composes in your browser. Press Play, or play a few notes "
    "and it continues from them.",
    "drums": "A small neural network drums in your browser. Press Play, or strike a few drums "
    "and it continues from there.",
    "sound": "A small neural network makes up sound in your browser, sample by sample. Press Play.",
}
"""The opening text of a page, by kind of run."""
SCRIPTS = {
    "piano": "wav hall kit piano midi notes voices keyboard roll music",
    "drums": "wav hall kit drums midi notes keyboard roll music",
    "sound": "wav samples",
}
"""The scripts of a page besides those of all pages, by kind of run."""


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
    beats per minute of music, by default that of train. UsageError for a model whose draw is not
    compiled, such as frame-wise logistic audio, and for a temperature or tempo that the page does
    not offer.
    """
    if temperature not in TEMPERATURES:
        raise UsageError(f"--temperature goes from 0 to 2 in steps of 0.05, not {temperature:g}")
    if isinstance(run.model.output, NotesOutput) and not isinstance(run.frame, PianoRollFrames):
        raise UsageError(f"{run.folder} was trained on {run.frame.medium}, which has no page")
    kind, blocks, tempos, drums = "sound", {"sound"}, dict[str, int](), False
    content: dict[str, Any] = {}
    if isinstance(run.model.output, NotesOutput):
        frame = cast(PianoRollFrames, run.frame)  # the frames of notes
        kind, drums = "drums" if frame.kit else "piano", frame.kit or DRUMS in frame.programs
        blocks = {kind, "music", "seconds" if frame.grid.steps_per_beat is None else "beats"}
        blocks |= {"in_c"} if frame.transpose_to_c else set()
        tempos = _tempos(frame, tempo)
        apart = frame.drum_rows is not None
        content = {"grid": _grid(frame), "kit": frame.kit, "apart": apart, **_marks(frame)}
    drawing = program(run.model, voices=kind == "piano")
    if drawing is None:
        output = output_name(run.config, run.frame)
        raise UsageError(
            f"{run.folder} has the output {output}, which a page cannot play: "
            "use `seqmodel sample` to draw from it"
        )
    folder = run.folder.with_suffix("") if run.folder.is_file() else run.folder  # a zip's name
    (name,) = unique_names([folder])
    content |= {"name": name, "rate": run.frame.rate, **_shape(run), **drawing}
    if seed is None:
        seed = _sounding_seed(run, temperature)
    noun, suffix = ("sound", "wav") if kind == "sound" else ("music", "mid")
    title = title or f"{noun.capitalize()} by a neural network"
    initial = {"seed": str(seed), "temperature": f"{temperature:g}"}
    texts = {"title": title, "lead": LEADS[kind], **initial}
    shell = initial | ({"tempo": str(tempo)} if tempo else {})
    texts |= {"labels": _menus(run), "about": _about(run, suffix, shell)}
    texts["data"] = Markup(json.dumps(content).replace("<", "\\u003c"))  # cannot end its element
    body = filled(_keep_kinds(resource(__package__, "page.html"), blocks), **texts, **tempos)
    files = ["model", "worker", "player", "page", *SCRIPTS[kind].split()]
    hits = {key: SOUNDS[row] for key, row in enumerate(ROWS.tolist()) if drums and row >= 0}
    sounds = f"const SOUNDS = {json.dumps(hits)};"
    parts = ['"use strict";', sounds, *(resource(__package__, f"{file}.js") for file in files)]
    script = re.sub(r"(?s)\s*/\*.*?\*/|(?<=\n) +", "", "\n".join(parts))  # not for its readers
    html = document(
        title,
        body,
        Markup(script),
        style=resource(__package__, "page.css"),
        wasm=True,
        description=LEADS[kind],
        icon=f"data:image/svg+xml,{quote(resource(__package__, 'icon.svg'))}",
    )
    return html.encode()


def _keep_kinds(html: str, kinds: Collection[str]) -> str:
    """The HTML without what is between <!--kind--> and <!--/kind--> of kinds other than these."""

    def replacement(match: re.Match[str]) -> str:
        return _keep_kinds(match[2], kinds) if match[1] in kinds else ""

    return re.sub(r"(?s)<!--(\w+)-->(.*?)<!--/\1-->", replacement, html)


def _sounding_seed(run: Run, temperature: float) -> int:
    """The first of `SEEDS` whose first second sounds, or the one that sounds most."""
    sampler, notes = Sampler(run.model, temperature=temperature), run.model.output.frame_size
    if isinstance(run.model.output, NotesOutput):
        frame = cast(PianoRollFrames, run.frame)
        rate, deviation = 1 / frame.grid.seconds_per_frame(_tempo(frame)), None
    else:
        rate, deviation = run.frame.rate / run.frame.frame_size, run.frame.deviation
    count, levels = max(1, round(rate)), dict[int, float]()
    for seed in SEEDS:
        drawn = np.concatenate([*sampler.piece(count, seed=seed)])[:, :notes]
        level = drawn.any(axis=1).sum() / count if deviation is None else drawn.std() / deviation
        levels[seed] = float(level)
        if level >= SOUNDING:
            break
    return max(levels, key=lambda seed: levels[seed])


def _shape(run: Run) -> dict[str, Any]:
    """What the page needs to know about frames and the end of pieces."""
    encoder, output = run.model.encoder, run.model.output
    notes = output if isinstance(output, NotesOutput) else None
    freeze = Freeze.of(run)
    limits = None if freeze is None else freeze._asdict()
    return {
        "notes": notes.notes if notes else 0,
        "onsets": notes is not None and notes.onsets,
        "end": output.end,
        "longest": run.longest_piece * encoder.steps,
        "least": freeze.least if isinstance(freeze, Freeze) else 0,
        "freeze": limits if notes else None,
        "pause": None if notes else limits,
        "steps": encoder.steps,
    }


def _grid(frame: PianoRollFrames) -> dict[str, Any]:
    metre = frame.metre or COMMON_TIME
    return {
        "framesPerBeat": frame.grid.steps_per_beat,
        "secondsPerFrame": frame.grid.seconds_per_frame(_tempo(frame)),
        "metre": {"beats": metre[0], **Units.of(metre, frame.grid)._asdict()},
    }


def _marks(frame: PianoRollFrames) -> dict[str, Any]:
    """What the levels of each mark stand for, from level 0 on, which is unknown; and the parts."""
    values = {name: levels.numbers().astype(float) for name, levels in frame.marks.items()}
    if "timing" in values:
        ticks = np.array(FINE_DIVISION // (frame.grid.steps_per_beat or 1))
        most = delays(1.0, ticks) / ticks  # so that notes stay in their frame, as in files
        values["timing"][1:] = frames_late(values["timing"][1:]).clip(-most, most)
    marks = [(name, of_level.tolist()) for name, of_level in values.items()]
    drums = {DRUMS: [*(frame.drum_table or PIANO)]}
    parts = [{**part._asdict(), "drums": drums.get(part.program)} for part in frame.parts]
    return {"marks": marks, "parts": parts}


def _tempo(frame: PianoRollFrames) -> int:
    """The initial beats per minute."""
    return round(frame.tempo or DEFAULT_BPM)


def _tempos(frame: PianoRollFrames, tempo: int | None) -> dict[str, int]:
    """The range of tempos, that of train, and the initial one."""
    if frame.grid.steps_per_beat is None:
        if tempo is not None:
            raise UsageError(
                "--tempo is for music in beats, and this run's frames are of real time"
            )
        return {}
    train_tempo = _tempo(frame)
    least, most = min(40, train_tempo), max(240, train_tempo)
    if tempo is not None and not least <= tempo <= most:
        raise UsageError(f"--tempo goes from {least} to {most}, not {tempo}")
    return {"least": least, "most": most, "plain": train_tempo, "tempo": tempo or train_tempo}


def _menus(run: Run) -> Markup:
    """A menu for each label, which begins with "any"."""
    menus = []
    for k, (name, values) in enumerate(run.model.known_labels.items()):
        options = [
            tag("option", text or "any", value=text, selected=n == run.model.default_labels[k])
            for n, text in enumerate(("", *values))
        ]
        menu = tag("select", *options, id=f"label-{k}", name=f"is.{name}", data_do="restart")
        menus.append(tag("div", tag("label", name, for_=f"label-{k}"), menu))
    return joined(*menus)


def _about(run: Run, suffix: str, shell: dict[str, str]) -> Markup:
    units, whole = run.model.parameter_counts()
    labels = zip(run.model.known_labels.items(), run.model.default_labels, strict=True)
    given = [*shell.items(), *(("label", f"{k}={of[n - 1]}") for (k, of), n in labels if n)]
    options = [word for name, value in given for word in (f"--{name}", value)]
    command = ["seqmodel", "sample", f"out.{suffix}", "--run", short_path(run.folder), *options]
    items = (
        ("model", model_in_words(run)),
        ("parameters", f"{units:,}, with the output {whole:,}"),
        ("trained on", f"{run.data.name}: {run.frame}"),
        ("weights of", f"epoch {epochs_text(run.epoch)}"),
        ("in the shell", shlex.join(command)),
    )
    specs = map(unit_spec, dict.fromkeys(filter(None, (run.config.unit, run.config.note_unit))))
    equations = ((f"Equations of {spec.name}", "\n".join(spec.statements)) for spec in specs)
    return Section("The model", (Facts(items, tuple(equations)),)).markup(SeriesStyles())
