"""Music described as values, text and pictures: files, datasets and samples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.files import write_file
from seqmodel.media.definitions import FrameDefinition, Pieces
from seqmodel.media.input import naming
from seqmodel.media.music.contents import FITTING_SHARE, Contents, semitones_to_c, timing_text
from seqmodel.media.music.corpus import load_roll, load_to_show
from seqmodel.media.music.frames import (
    PianoRollFrames,
    given_notes,
    has_onsets,
    is_kit,
    notes_of,
    rows_of,
    sounding,
    struck,
)
from seqmodel.media.music.grid import (
    DEFAULT_BPM,
    KIT,
    LOWEST_PITCH,
    NOTE_NAMES,
    NOTES,
    PIANO,
    ROLL_SUFFIXES,
    note_name,
)
from seqmodel.media.music.kit import SOUNDS
from seqmodel.media.music.parts import FAMILIES, parts_of
from seqmodel.media.music.placing import Tally
from seqmodel.media.music.published import read_published
from seqmodel.media.samples import Picture
from seqmodel.media.words import plural, printable
from seqmodel.plots import ACCENT, DARK, PRIMARY, caption, png_bytes, wide_figure, write_lines

# ---- plots ---------------------------------------------------------------------------------------

OCTAVE, MIDDLE_C = 12, 60
LANDMARKS = {36: "kick", 42: "hat", 49: "crash", 56: "bell", 63: "conga", 75: "clave"}
MARGIN = 2
"""Semitones on a report page below the lowest note and above the highest."""

COLUMNS = 1000
"""The maximum number of columns in a PNG, however long the piece."""
SILENCE_COLOUR = "#ffffff00"  # transparent


def piano_roll_png(
    frames: NDArray[np.uint8],
    *,
    title: str,
    unit: str = "frame",
    given: NDArray[np.bool_] | None = None,
    drums: bool = False,
) -> bytes:
    """The PNG of frames (T, 88), (T, 176) or (T, 47): time to the right, pitch upwards.

    What is `given` (T, 88), rather than drawn from the model, has another colour. With onsets, the
    beginnings of notes are dark. Each column of a long piece shows all notes in its time span. The
    top row may be named as that of `drums`, where pitches and drums share the keyboard.
    """
    from matplotlib.colors import ListedColormap

    figure, axes = wide_figure(4)
    rows, roll = rows_of(frames), sounding(frames)
    hop = max(1, -(-len(frames) // COLUMNS))
    columns = []
    for start in range(0, len(frames), hop):
        part = frames[start : start + hop]
        shades = sounding(part).copy()
        if given is not None:
            shades[given[start : start + hop]] *= 2
        if has_onsets(frames):
            shades[struck(part)] += 2
        columns.append(shades.max(axis=0))
    axes.imshow(
        np.array(columns, np.uint8).reshape(-1, len(rows)).T,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        zorder=2,  # above the lines that mark the Cs
        cmap=ListedColormap([SILENCE_COLOUR, PRIMARY, ACCENT, *DARK]),
        vmin=0,
        vmax=4,
        extent=(0, max(len(columns) * hop, 1), rows[0] - 0.5, rows[-1] + 0.5),
    )
    axes.set_xlim(0, max(len(frames), 1))
    sounding_keys = np.flatnonzero(roll.any(axis=0)) + rows[0]
    if len(sounding_keys):
        axes.set_ylim(sounding_keys[0] - OCTAVE / 2, sounding_keys[-1] + OCTAVE / 2)
    ticks = _tick_names(rows, *axes.get_ylim(), drums=drums)
    axes.set_yticks([*ticks], [*ticks.values()])
    axes.grid(axis="y", linewidth=0.5, color="0.85")
    axes.set_xlabel(unit)
    axes.set_title(caption(title), fontsize=10)
    return png_bytes(figure)


def _tick_names(rows: range, low: float, high: float, *, drums: bool = False) -> dict[float, str]:
    marks = LANDMARKS if rows == KIT else {c: note_name(c) for c in range(0, 128, OCTAVE)}
    marks = marks | {rows[-1]: "drums"} if drums else marks
    return {key: name for key, name in marks.items() if low <= key <= high}


def plot_note_frequencies(
    path: Path, frequencies: Mapping[str, NDArray[Any]], *, title: str
) -> None:
    """Draw how often each row sounds, as shares (D,) of all frames, one line per split."""
    figure, axes = wide_figure(4)
    for name, shares in frequencies.items():
        rows = KIT if len(shares) == len(KIT) else PIANO
        axes.step(rows, shares, where="mid", label=name)
        ticks = _tick_names(rows, rows[0], rows[-1])
        axes.set_xticks([*ticks], [*ticks.values()])
    axes.set_ylabel("share of frames in which it sounds")
    axes.set_title(caption(title), fontsize=10)
    write_lines(path, figure, axes)


def piano_roll_picture(
    frames: NDArray[np.uint8],
    definition: FrameDefinition,
    *,
    tempo: float = DEFAULT_BPM,
    given: NDArray[np.bool_] | None = None,
    times: NDArray[np.float64] | None = None,
) -> Picture:
    """A piece (T, 88), (T, 176) or (T, 47): x in frames, y the MIDI pitch, with some marked.

    What is `given` (T, 88) was not drawn from a model. If frames are not equally long, `times`
    (T + 1,) are when each begins; x is then in frames of their mean length.
    """
    assert isinstance(definition, PianoRollFrames)
    notes = notes_of(frames)
    pitches = notes[:, 2] if len(notes) else np.array([MIDDLE_C])
    low, high = int(pitches.min()), int(pitches.max())
    is_given = np.zeros(len(notes), bool) if given is None else given_notes(notes, given)
    begin, end, pitch = notes.T
    seconds = len(frames) * definition.grid.seconds_per_frame(tempo)
    if times is not None:
        seconds = float(times[-1])
        begin, end = (times[at] * (len(frames) / seconds) for at in (begin, end))
    boxes = np.stack([begin, pitch - 0.5, end - begin, np.ones(len(notes))], axis=1)
    span = f" from {note_name(low)} to {note_name(high)}" if len(notes) else ""
    what = f"piano-roll: {plural(len(notes), 'note')}{span}"
    if is_kit(frames):
        what = f"drums: {plural(len(notes), 'hit')}"
    return Picture(
        seconds=seconds,
        width=len(frames),
        bottom=low - MARGIN - 0.5,
        top=high + MARGIN + 0.5,
        boxes=boxes[~is_given].tolist(),
        given=boxes[is_given].tolist(),
        ticks=_tick_names(
            rows_of(frames), low - MARGIN, high + MARGIN, drums=bool(definition.drum_table)
        ),
        summary=f"{what} in {plural(len(frames), 'frame')}",
    )


# ---- inspection ----------------------------------------------------------------------------------


def inspect_file(path: Path, options: Mapping[str, Any], plot: Path | None) -> dict[str, Any]:
    """`Medium.inspect_file`."""
    suffix = path.suffix.lower()
    if suffix in ROLL_SUFFIXES:
        return inspect_roll(path, plot) if suffix == ".npy" else inspect_rolls(path, plot)
    return inspect_midi(path, options, plot)


def inspect_midi(path: Path, options: Mapping[str, Any], plot: Path | None) -> dict[str, Any]:
    """Describe a MIDI file, and how its notes fit the grid."""
    with naming(path):
        frames, _, _, placed, _ = load_to_show(path, options)
    score, grid = placed.score, placed.frame.grid
    kit, of_drums = is_kit(frames), score.of_drums
    contents = Contents(placed.frame)
    contents.add(score)
    remarks = list(score.remarks)
    if plot is not None:
        if of_drums.any() and not placed.frame.drums:
            remarks.append("its drums are not drawn: --drums keep draws them among the notes")
        unit, given = f"frame ({grid})", placed.given_mask()
        write_file(plot, piano_roll_png(frames, title=str(path), unit=unit, given=given))
    last_tick = score.off_tick.max(initial=score.end_tick, keepdims=True)
    return {
        "path": str(path),
        "kind": "midi",
        **(_sounds(score.pitch[of_drums]) if kit else {}),
        "format": score.format,
        "tracks": len(score.track_names),
        "channels": sorted({int(channel) + 1 for channel in score.channel}),
        "notes": int(np.count_nonzero(of_drums)) if kit else len(score.pitch),
        **_range(score.pitch[:0] if kit else score.pitch[~of_drums]),
        "tempo_bpm": None if score.smpte else round(60e6 / int(score.tempo[0]), 2),
        "seconds": round(float(score.seconds_at(last_tick)[0]), 3),
        "tonic": None if kit else NOTE_NAMES[-semitones_to_c(score) % 12],
        "grid": str(grid),
        "frames": len(frames),
        "notes_per_frame": _density(frames),
        "with_onsets": placed.tally(frames).to_json(),
        "without_onsets": placed.tally(sounding(frames)).to_json(),
        "remarks": remarks,
        **contents.to_json(),
        "parts": parts_of(score),
        "timing": contents.timing.to_json(),
    }


def inspect_roll(path: Path, plot: Path | None) -> dict[str, Any]:
    """Describe a piano-roll, with its grid if it states one, as sampled ones do."""
    with naming(path):
        frames, grid = load_roll(path)
    if plot is not None:
        write_file(plot, piano_roll_png(frames, title=str(path)))
    rows = rows_of(frames)
    notes, pitches = int(struck(frames).sum()), rows[0] + np.nonzero(sounding(frames))[1]
    further = {"struck_share": _share(notes, sounding(frames).sum())} if has_onsets(frames) else {}
    return {
        "path": str(path),
        "kind": "roll",
        "notes": notes,
        **(_range(pitches) if rows == PIANO else _range(pitches[:0]) | _sounds(pitches)),
        **({"grid": str(grid)} if grid else {}),
        "frames": len(frames),
        "notes_per_frame": _density(frames),
        **further,
    }


def inspect_rolls(path: Path, plot: Path | None) -> dict[str, Any]:
    """Describe a file of published rolls, by split; its picture is like a dataset's."""
    with naming(path):
        file = read_published(path)
    splits = {split: rolls for split, rolls in file.splits.items() if rolls}
    totals = {
        name: np.sum([roll.sum(axis=0, dtype=np.int64) for roll in rolls], axis=0)
        for name, rolls in splits.items()
    }
    frames = {name: sum(map(len, rolls)) for name, rolls in splits.items()}
    if plot is not None:
        shares = {name or "all": totals[name] / frames[name] for name in splits}
        plot_note_frequencies(plot, shares, title=str(path))
    return {
        "path": str(path),
        "kind": "rolls",
        "set": file.origin or None,
        "grid": str(file.grid),
        **_range(LOWEST_PITCH + np.flatnonzero(sum(totals.values())[:NOTES])),
        "splits": {
            name or "none": {
                "pieces": len(rolls),
                "frames": frames[name],
                "longest": max(map(len, rolls)),
                "notes_per_frame": round(float(totals[name].sum() / frames[name]), 2),
            }
            for name, rolls in splits.items()
        },
    }


def file_lines(values: Mapping[str, Any]) -> list[str]:
    """`Medium.file_lines` for the values of the three functions above."""
    if values["kind"] == "rolls":
        return [
            f"{values['path']}: piano-rolls{_span(values)}",
            f"  {values['grid']} ({values['set'] or 'assumed'})",
            *(
                f"  {name}: {plural(counts['pieces'], 'piece')}, "
                f"{plural(counts['frames'], 'frame')}, longest {counts['longest']:,}, "
                f"{density_text(counts['notes_per_frame'], None)}"
                for name, counts in values["splits"].items()
            ),
        ]
    kit, sounds = "drum_sounds" in values, values.get("drum_sounds", {})
    density = density_text(values["notes_per_frame"], values.get("struck_share"), kit=kit)
    drum_sounds = [f"    {', '.join(f'{name} {n:,}' for name, n in sounds.items())}"][: len(sounds)]
    if values["kind"] == "roll":
        what = "drums" if kit else "piano-roll"
        return [
            f"{values['path']}: {what} of {plural(values['frames'], 'frame')}"
            + (f" at {values['grid']}" if "grid" in values else ""),
            f"  {_notes(values)}, {density}",
            *drum_sounds,
        ]
    slowest, fastest = values.get("tempo_range_bpm", (0, 0))
    bpm = f"{slowest:,.10g}" + f" to {fastest:,.10g}" * (slowest < fastest)
    tempo = f"{bpm} bpm" if fastest else "SMPTE time"
    changes, drums, pedal = (values[name] for name in ("tempo_changes", "drum_notes", "pedal"))
    quietest, loudest = values.get("velocities", (0, 0))
    meters, keys = (", ".join(values[kind]) for kind in ("meters", "keys"))
    timing = values["timing"]
    return [
        f"{values['path']}: MIDI format {values['format']}, {plural(values['tracks'], 'track')}",
        f"  {_notes(values)}"
        + f", {drums:,} of them drums" * (drums > 0 and not kit)
        + f", velocities {quietest} to {loudest}" * (quietest < loudest)
        + f", pedal pressed {plural(pedal, 'time')}" * (pedal > 0)
        + f", {values.get('pedal_share', 0):.1%} of the sound" * (pedal > 0),
        *_parts(values["parts"]),
        *drum_sounds,
        f"  {values['seconds']:.1f} s at {tempo}"
        + f", {plural(changes, 'tempo change')}" * (changes > 0)
        + f", in {meters}" * bool(meters),
        *[f"  tonic {values['tonic']} (estimated)" + f", key signature {keys}" * bool(keys)][kit:],
        f"  {plural(values['frames'], 'frame')} at {values['grid']}, {density}",
        *[f"  {timing_text(timing, values['grid'])}"][: timing["on_grid"] < FITTING_SHARE],
        *(f"  {line}" for line in Tally(**values["with_onsets"]).lines(onsets=True, kit=kit)),
        *(f"  remark: {remark}" for remark in values["remarks"]),
    ]


def inspect_splits(splits: Mapping[str, Pieces], plot: Path | None, title: str) -> dict[str, Any]:
    """The notes per frame of each split and, with onsets, the share of them that is struck.

    The picture shows how often each note sounds.
    """
    totals = {name: split.totals() for name, split in splits.items()}
    shares = {name: totals[name][:NOTES] / split.frames for name, split in splits.items()}
    if plot is not None:
        plot_note_frequencies(plot, shares, title=title)
    values = {"notes_per_frame": {name: round(float(c.sum()), 2) for name, c in shares.items()}}
    if any(split.frame.onsets for split in splits.values()):
        values["struck_share"] = {
            name: _share(total[NOTES:].sum(), total[:NOTES].sum()) for name, total in totals.items()
        }
    return values


def split_columns(values: Mapping[str, Any]) -> dict[str, str]:
    """`Medium.split_columns`: the notes per frame."""
    shares = values.get("struck_share", {})
    densities, kit = values["notes_per_frame"].items(), "kit" in values["frame"]
    return {name: density_text(density, shares.get(name), kit=kit) for name, density in densities}


def density_text(notes_per_frame: float, struck_share: float | None, *, kit: bool = False) -> str:
    """Text such as "3.62 notes per frame, 28.3% of them struck"."""
    of_them = "" if struck_share is None else f", {struck_share:.1%} of them struck"
    return f"{notes_per_frame:.2f} {'hits' if kit else 'notes'} per frame{of_them}"


def _parts(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each part, unless it is only an unnamed piano, or unnamed drums."""
    if len(parts) == 1 and parts[0]["programs"] in ([], [1]) and not parts[0]["name"]:
        return []
    lines, in_track = [], Counter(part["track"] for part in parts)
    for part in parts:
        channel = f", channel {part['channel']}" * (in_track[part["track"]] > 1)
        name = f' "{printable(part["name"])}"' if part["name"] else ""
        played = [f"program {n} ({FAMILIES[(n - 1) // 8]})" for n in part["programs"]] or ["drums"]
        notes = plural(part["notes"], "note")
        lines.append(f"    track {part['track']}{channel}{name}: {', '.join(played)}, {notes}")
    return lines


def _notes(values: Mapping[str, Any]) -> str:
    return plural(values["notes"], "hit" if "drum_sounds" in values else "note") + _span(values)


def _span(values: Mapping[str, Any]) -> str:
    return f" from {values['lowest']} to {values['highest']}" if values["lowest"] else ""


def _range(pitches: NDArray[Any]) -> dict[str, str | None]:
    if not len(pitches):
        return {"lowest": None, "highest": None}
    return {"lowest": note_name(int(pitches.min())), "highest": note_name(int(pitches.max()))}


def _sounds(keys: NDArray[Any]) -> dict[str, dict[str, int]]:
    """How often each drum sound is struck, most common first, given the key of each hit."""
    counts = Counter(SOUNDS[k - KIT[0]].name if k in KIT else f"key {k}" for k in keys.tolist())
    return {"drum_sounds": dict(counts.most_common())}


def _density(frames: NDArray[np.uint8]) -> float:
    return round(float(sounding(frames).sum() / len(frames)), 2)


def _share(part: Any, whole: Any) -> float:
    return round(float(part / whole), 3) if whole else 0.0
