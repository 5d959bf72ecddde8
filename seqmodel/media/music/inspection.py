"""Music described as values, text and pictures: files, datasets and samples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.files import write_file
from seqmodel.media.definitions import FrameDefinition, Pieces
from seqmodel.media.input import named
from seqmodel.media.music.contents import (
    NEARLY_ALL,
    Contents,
    Timing,
    parts_of,
    semitones_to_c,
    timing_text,
)
from seqmodel.media.music.corpus import load_midi, load_roll
from seqmodel.media.music.frames import (
    NOTE_NAMES,
    PianoRollFrames,
    Tally,
    given_notes,
    has_onsets,
    note_name,
    notes_of,
    sounding,
    struck,
)
from seqmodel.media.music.grid import (
    BEATS_PER_MINUTE,
    DRUM_CHANNEL,
    HIGHEST_PITCH,
    LOWEST_PITCH,
    NOTES,
    ROLL_SUFFIXES,
    STEPS_PER_BEAT,
    Grid,
)
from seqmodel.media.music.published import read_published
from seqmodel.media.pictures import Box, Level, Picture
from seqmodel.media.words import plural, printable
from seqmodel.plots import ACCENT, DARK, PRIMARY, caption, png_bytes, wide_figure

# ---- plots ---------------------------------------------------------------------------------------

OCTAVE, MIDDLE_C = 12, 60
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
) -> bytes:
    """The PNG of frames (T, 88), or (T, 176) with onsets: time to the right, pitch upwards.

    What is `given` (T, 88), rather than drawn from the model, has another colour. With onsets,
    notes begin dark. Beyond the frames themselves, memory does not grow with the piece: each column
    of a long one shows all notes in its stretch of time.
    """
    from matplotlib.colors import ListedColormap

    figure, axes = wide_figure(4)
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
        np.array(columns, np.uint8).reshape(-1, NOTES).T,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        zorder=2,  # above the lines that mark the Cs
        cmap=ListedColormap([SILENCE_COLOUR, PRIMARY, ACCENT, *DARK]),
        vmin=0,
        vmax=4,
        extent=(0, max(len(columns) * hop, 1), LOWEST_PITCH - 0.5, HIGHEST_PITCH + 0.5),
    )
    axes.set_xlim(0, max(len(frames), 1))
    played = np.flatnonzero(sounding(frames).any(axis=0)) + LOWEST_PITCH
    if len(played):
        axes.set_ylim(played[0] - OCTAVE / 2, played[-1] + OCTAVE / 2)
    cs = _cs(*axes.get_ylim())
    axes.set_yticks(cs, map(note_name, cs))
    axes.grid(axis="y", linewidth=0.5, color="0.85")
    axes.set_xlabel(unit)
    axes.set_title(caption(title), fontsize=10)
    return png_bytes(figure)


def _cs(low: float, high: float) -> list[int]:
    """The Cs of a range of pitches."""
    return [c for c in range(0, 128, OCTAVE) if low <= c <= high]


def plot_note_frequencies(
    path: Path, frequencies: Mapping[str, NDArray[Any]], *, title: str
) -> None:
    """Draw how often each note sounds, as shares (88,) of all frames, one line per split."""
    figure, axes = wide_figure(4)
    for name, shares in frequencies.items():
        axes.step(range(LOWEST_PITCH, HIGHEST_PITCH + 1), shares, where="mid", label=name)
    cs = _cs(LOWEST_PITCH, HIGHEST_PITCH)
    axes.set_xticks(cs, map(note_name, cs))
    axes.set_ylabel("share of frames in which it sounds")
    axes.set_title(caption(title), fontsize=10)
    axes.grid(linewidth=0.5, color="0.85")
    axes.legend(frameon=False)
    write_file(path, png_bytes(figure))


def piano_roll_picture(
    frames: NDArray[np.uint8],
    definition: FrameDefinition,
    *,
    tempo: float = BEATS_PER_MINUTE,
    given: NDArray[np.bool_] | None = None,
) -> Picture:
    """A piece (T, 88), or (T, 176) with onsets: x in frames, y the MIDI pitch, Cs marked.

    What is `given` (T, 88) was not drawn from a model.
    """
    assert isinstance(definition, PianoRollFrames)
    notes = notes_of(frames)
    pitches = notes[:, 2] if len(notes) else np.array([MIDDLE_C])
    low, high = int(pitches.min()), int(pitches.max())
    was_there = np.zeros(len(notes), bool) if given is None else given_notes(notes, given)
    boxes = [
        tuple(Box(begin, pitch - 0.5, end - begin, 1) for begin, end, pitch in part.tolist())
        for part in (notes[~was_there], notes[was_there])
    ]
    span = f" from {note_name(low)} to {note_name(high)}" if len(notes) else ""
    return Picture(
        seconds=len(frames) * definition.grid.seconds_per_frame(tempo),
        width=len(frames),
        bottom=low - MARGIN - 0.5,
        top=high + MARGIN + 0.5,
        boxes=boxes[0],
        given=boxes[1],
        levels=tuple(Level(pitch, note_name(pitch)) for pitch in _cs(low - MARGIN, high + MARGIN)),
        apart=True,
        summary=f"piano-roll: {plural(len(notes), 'note')}{span} in {plural(len(frames), 'frame')}",
    )


# ---- inspection ----------------------------------------------------------------------------------

FAMILIES = (
    "piano", "chromatic percussion", "organ", "guitar", "bass", "strings", "ensemble", "brass",
    "reed", "pipe", "synth lead", "synth pad", "synth effects", "ethnic", "percussive",
    "sound effects",
)  # fmt: skip
"""The families of General MIDI, eight programs each."""


def inspect_file(path: Path, options: Mapping[str, Any], plot: Path | None) -> dict[str, Any]:
    """`Medium.inspect_file`."""
    suffix = path.suffix.lower()
    if suffix in ROLL_SUFFIXES:
        return inspect_roll(path, plot) if suffix == ".npy" else inspect_rolls(path, plot)
    drums = options.get("drums") == "keep"
    return inspect_midi(path, Grid.of_options(options), plot, drums=drums)


def inspect_midi(
    path: Path, grid: Grid | None, plot: Path | None, *, drums: bool = False
) -> dict[str, Any]:
    """What a MIDI file holds: format, parts, tempos, and how its notes lie on `grid`.

    `drums` says whether the frames have the drums.
    """
    grid = grid or Grid.of_beats(STEPS_PER_BEAT)
    with named(path):
        frames, _, _, score, placed = load_midi(
            path, PianoRollFrames(grid, drums=drums, onsets=True)
        )
    timing, contents = Timing(grid, drums=drums), Contents()
    timing.add(score)
    contents.add(score)
    if plot is not None:
        picture = piano_roll_png(
            frames, title=str(path), unit=f"frame ({grid})", given=placed.given(score)
        )
        write_file(plot, picture)
    last_tick = score.off_tick.max(initial=score.end_tick, keepdims=True)
    return {
        "path": str(path),
        "kind": "midi",
        "format": score.format,
        "tracks": score.tracks,
        "channels": sorted({int(channel) + 1 for channel in score.channel}),
        "notes": len(score.pitch),
        **_range(score.pitch[score.channel != DRUM_CHANNEL]),
        "tempo_bpm": None if score.smpte else round(60e6 / int(score.tempo[0]), 2),
        "seconds": round(float(score.seconds_at(last_tick)[0]), 3),
        "tonic": NOTE_NAMES[-semitones_to_c(score) % 12],
        "grid": str(grid),
        "frames": len(frames),
        "notes_per_frame": _density(frames),
        "with_onsets": placed.tally(frames)._asdict(),
        "without_onsets": placed.tally(sounding(frames))._asdict(),
        "remarks": list(score.remarks),
        **contents.to_json(),
        "parts": parts_of(score),
        "timing": timing.to_json(),
    }


def inspect_roll(path: Path, plot: Path | None) -> dict[str, Any]:
    """What a piano-roll (T, 88) holds, and its grid if it states one, as a sampled one does."""
    with named(path):
        frames, grid = load_roll(path)
    if plot is not None:
        write_file(plot, piano_roll_png(frames, title=str(path)))
    notes = int(struck(frames).sum())
    more = {"struck_share": _share(notes, sounding(frames).sum())} if has_onsets(frames) else {}
    return {
        "path": str(path),
        "kind": "roll",
        "notes": notes,
        **_range(LOWEST_PITCH + np.flatnonzero(sounding(frames).any(axis=0))),
        **({"grid": str(grid)} if grid else {}),
        "frames": len(frames),
        "notes_per_frame": _density(frames),
        **more,
    }


def inspect_rolls(path: Path, plot: Path | None) -> dict[str, Any]:
    """What a file of published rolls holds, by split; the picture is the same as a dataset's."""
    with named(path):
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
    """The values of `inspect_midi`, `inspect_roll` or `inspect_rolls` as lines of text."""
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
    density = density_text(values["notes_per_frame"], values.get("struck_share"))
    if values["kind"] == "roll":
        return [
            f"{values['path']}: piano-roll of {plural(values['frames'], 'frame')}"
            + (f" at {values['grid']}" if "grid" in values else ""),
            f"  {_notes(values)}, {density}",
        ]
    slowest, fastest = values.get("tempo_range_bpm", (0, 0))
    tempo = (
        f"{slowest:g}{f' to {fastest:g}' * (slowest < fastest)} bpm" if fastest else "SMPTE time"
    )
    changes, drums, pedal = (values[name] for name in ("tempo_changes", "drum_notes", "pedal"))
    quietest, loudest = values.get("velocities", (0, 0))
    meters, keys = (", ".join(values[kind]) for kind in ("meters", "keys"))
    timing = values["timing"]
    return [
        f"{values['path']}: MIDI format {values['format']}, {plural(values['tracks'], 'track')}",
        f"  {_notes(values)}"
        + f", {drums:,} of them drums" * (drums > 0)
        + f", velocities {quietest} to {loudest}" * (quietest < loudest)
        + f", pedal pressed {plural(pedal, 'time')}" * (pedal > 0),
        *_parts(values["parts"]),
        f"  {values['seconds']:.1f} s at {tempo}"
        + f", {plural(changes, 'tempo change')}" * (changes > 0)
        + f", in {meters}" * bool(meters),
        f"  tonic {values['tonic']} (estimated)" + f", key signature {keys}" * bool(keys),
        f"  {plural(values['frames'], 'frame')} at {values['grid']}, {density}",
        *[f"  {timing_text(timing, values['grid'])}"][: timing["on_grid"] < NEARLY_ALL],
        *(f"  {line}" for line in Tally(**values["without_onsets"]).lines(onsets=False)),
        *(f"  with --onsets, {line}" for line in Tally(**values["with_onsets"]).lines(onsets=True)),
        *(f"  repaired: {remark}" for remark in values["remarks"]),
    ]


def inspect_splits(splits: Mapping[str, Pieces], plot: Path | None, title: str) -> dict[str, Any]:
    """How many notes sound in a frame of each split; the picture shows how often each note does.

    With onsets, also the share of the sounding notes that are struck, not held.
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
    """`Medium.split_columns`: how many notes sound in a frame."""
    shares = values.get("struck_share", {})
    densities = values["notes_per_frame"].items()
    return {name: density_text(density, shares.get(name)) for name, density in densities}


def density_text(notes_per_frame: float, struck_share: float | None) -> str:
    """Such as "3.62 notes per frame, 28.3% of them struck"."""
    of_them = "" if struck_share is None else f", {struck_share:.1%} of them struck"
    return f"{notes_per_frame:.2f} notes per frame{of_them}"


def _parts(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each part, unless there is nothing to say: one piano, or drums, without a name."""
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
    return plural(values["notes"], "note") + _span(values)


def _span(values: Mapping[str, Any]) -> str:
    return f" from {values['lowest']} to {values['highest']}" if values["lowest"] else ""


def _range(pitches: NDArray[Any]) -> dict[str, str | None]:
    if not len(pitches):
        return {"lowest": None, "highest": None}
    return {"lowest": note_name(int(pitches.min())), "highest": note_name(int(pitches.max()))}


def _density(frames: NDArray[np.uint8]) -> float:
    return round(float(sounding(frames).sum() / len(frames)), 2)


def _share(part: Any, whole: Any) -> float:
    """part / whole, or 0 if `whole` is 0."""
    return round(float(part / whole), 3) if whole else 0.0
