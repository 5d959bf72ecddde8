"""Music: MIDI files and published piano-rolls."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqmodel.errors import did_you_mean
from seqmodel.media.definitions import Medium, Option, lazily
from seqmodel.media.music.grid import (
    DEFAULT_BPM,
    DRUM_KIND,
    MAX_TEMPO,
    MIDI_SUFFIXES,
    MIN_TEMPO,
    PARTICLES,
    PUBLISHED_STEPS_PER_BEAT,
    ROLL_SUFFIXES,
    SAMPLE_LENGTH,
    SOUND_FORMATS,
    STEPS_PER_BEAT,
    SWEEPS,
)


def _tempo(help: str) -> Option:
    return Option("tempo", help, float, least=MIN_TEMPO, most=MAX_TEMPO)


SPAN = "FROM:TO"
STEP_SECONDS = Option(
    "step_seconds", "MIDI: frames of this many seconds instead.", metavar="SECONDS"
)


def _of_fill(name: str, help: str, kind: type = str, **more: Any) -> Option:
    return Option(name, f"With --fill: {help}", kind, **more)


def _drums(default: str) -> Option:
    return Option(
        "drums",
        "MIDI: drop channel 10, keep it among the notes, or use only it, as the sounds of a drum "
        f"kit.  [default: {default}]",
        choices=("drop", "keep", "only"),
    )


class Music(Medium):
    """Piano-rolls and drums; a frame is 88 zeros and ones, 176 with onsets, 47 of a drum kit."""

    name = "music"
    suffixes = MIDI_SUFFIXES | frozenset(ROLL_SUFFIXES)
    loose_suffixes = frozenset(ROLL_SUFFIXES)
    named_suffixes = frozenset({".json"})
    file_kinds = "MIDI files (.mid .midi .kar .rmi), published rolls (.mat .pickle .npz .npy .json)"
    presets: Mapping[str, Mapping[str, Any]] = {"default": {"model": "tied", "end": True}}
    # Drum loops are few and short: more and noisier updates, see README.md.
    kinds: Mapping[str, Any] = {
        DRUM_KIND: {
            "tied": {
                "batch_size": 1,
                "epochs": 20,
                "weight_noise": 0.075,
                "dropout": 0.0,
                "first_change": False,
            }
        }
    }
    # Chung et al. 2014, Table 1.
    paper_hidden: Mapping[str, int] = {"lstm": 36, "gru": 46, "tanh": 100}
    paper_params = 18_500
    prepare_options = (
        Option(
            "steps_per_beat",
            f"Frames per quarter note.  [default: {STEPS_PER_BEAT} for MIDI; for rolls their own "
            f"if known, or {PUBLISHED_STEPS_PER_BEAT}]",
            int,
        ),
        STEP_SECONDS,
        Option(
            "restrike",
            "MIDI: when a key is struck again while it sounds, end the first note there (close), "
            "or discard it.  [default: close]",
            choices=("close", "discard"),
        ),
        Option(
            "short_notes",
            "MIDI: keep: every note fills at least one frame; drop: notes that round to none are "
            "lost, as in the published rolls.  [default: keep; with --restrike discard: drop]",
            choices=("drop", "keep"),
        ),
        Option(
            "pedal",
            "MIDI: notes last as long as the sustain pedal holds them, or only as long as their "
            "keys are held.  [default: extend; with --no-onsets, --restrike discard or rolls: "
            "ignore]",
            choices=("extend", "ignore"),
        ),
        _drums("drop"),
        Option("transpose_to_c", "MIDI: transpose each piece's estimated tonic to C.", bool),
        Option(
            "onsets",
            "MIDI: distinguish struck notes from held ones, or only sounding from silent ones.  "
            "[default: onsets, unless there are rolls, which have none]",
            bool,
            negated=True,
        ),
        Option(
            "parts",
            "MIDI: also learn which part each note belongs to: the first of these names, such as "
            "melody,bass, found in the name of its track or instrument, or else other. Melody "
            "(lead), chords (harmony, accompaniment) and bass are also found by similar names, "
            "such as Vocals or Guitar, and by how tracks sound. Drums that are kept have a part in "
            "any case. For files with voices, such as Jsb16thSeparated.npz, these are the voices' "
            "names, in order.",
            metavar="NAMES",
        ),
        Option("tracks", "MIDI: --parts with the 8 most common track names.", bool),
        Option("velocity", "MIDI: also learn the velocity of each note.", bool),
        Option("timing", "MIDI: also learn how far off the grid each note is.", bool),
        Option(
            "cache",
            "MIDI: keep what is read of each file in this folder, which hosts can share: prepare "
            "resumes where it was interrupted, and reads only new files.",
            Path,
            metavar="FOLDER",
        ),
    )
    inspect_options = (
        Option(
            "steps_per_beat",
            "Frames per quarter note of a MIDI file, and of any rendered file.  "
            f"[default: {STEPS_PER_BEAT}; for a roll its own]",
            int,
            least=1,
        ),
        STEP_SECONDS,
        _drums("drop, or only if there is nothing else"),
    )
    listen_options = (
        _tempo(
            f"With --listen: beats per minute.  [default: the file's; for a roll {DEFAULT_BPM:g}]"
        ),
    )
    page_options = (
        Option(
            "fill",
            "Redraw a part of this file, given the rest. --bars, --frames, --time, --notes, "
            "--below and --above select it; several narrow it down.",
            Path,
            metavar="FILE",
        ),
        _of_fill(
            "bars",
            "this bar, or these, including the last; the first is 1.",
            metavar=f"BAR or {SPAN}",
        ),
        _of_fill("frames", "these frames, excluding the last; the first is 0.", metavar=SPAN),
        _of_fill("time", "between these times, in seconds.", metavar=SPAN),
        _of_fill("notes", "these notes, such as C2:B3.", metavar="NOTE or LOW:HIGH"),
        _of_fill("below", "all notes below the top voice, to harmonise a melody.", bool),
        _of_fill("above", "all notes above the bottom voice; with --below, between.", bool),
        _of_fill(
            "particles",
            "the number of competing drafts; more fit better but take longer.  "
            f"[default: {PARTICLES}]",
            int,
            least=1,
            most=100_000,
        ),
        _of_fill(
            "sweeps",
            "how often to redraw, stretch by stretch, given what follows.  "
            f"[default: {SWEEPS}, or 0 if every frame to the end has a given note]",
            int,
            least=0,
            most=1000,
        ),
    )
    sample_options = (
        _tempo(
            "Beats per minute, in the file and for --seconds.  [default: that of --prime or "
            f"--fill, or the median of train; {DEFAULT_BPM:g} if there is none]"
        ),
        Option(
            "metre",
            "Time signature.  [default: that of --prime or --fill, or the most common in train]",
            metavar="BEATS/OF",
        ),
        Option(
            "transpose",
            "Transpose by so many semitones; notes off the keyboard are folded back by octaves.",
            int,
            metavar="SEMITONES",
            least=-60,
            most=60,
        ),
        Option("key", "Transpose the estimated tonic to this, such as Eb.", metavar="NOTE"),
        Option("flat", "Play all notes equally loud.", bool),
        Option(
            "into",
            "The track to put drawn notes into, by whole name or number, if the .mid is the file "
            "of --fill, or of --prime with --include-prime.  [default: a new track]",
            metavar="TRACK",
        ),
        *page_options,
    )
    formats = ("mid", *SOUND_FORMATS, "npy", "png")
    listen_formats = SOUND_FORMATS
    default_length = (
        f"{SAMPLE_LENGTH} of music, or with --end at most as many as the longest training piece"
    )

    page_format = "mp3"
    page_download = "mid"
    page_seconds = 30.0

    frame_from_json = lazily("seqmodel.media.music.frames:PianoRollFrames.from_json")
    settings = lazily("seqmodel.media.music.corpus:settings")
    corpus = lazily("seqmodel.media.music.corpus:MusicCorpus")
    baselines = lazily("seqmodel.media.music.evaluation:baseline_nats_per_frame")
    copies = lazily("seqmodel.media.music.copies:shares_in_train")
    voices = lazily("seqmodel.media.music.evaluation:voices_cost")
    prepare_advice = lazily("seqmodel.media.music.contents:prepare_advice")
    inspect_file = lazily("seqmodel.media.music.inspection:inspect_file")
    file_lines = lazily("seqmodel.media.music.inspection:file_lines")
    inspect_splits = lazily("seqmodel.media.music.inspection:inspect_splits")
    split_columns = lazily("seqmodel.media.music.inspection:split_columns")
    listen = lazily("seqmodel.media.music.writing:listen")
    sampling = lazily("seqmodel.media.music.sampling:MusicSampling")
    comparison = lazily("seqmodel.media.music.evaluation:MusicComparison")
    picture = lazily("seqmodel.media.music.inspection:piano_roll_picture")

    def kind_of_file(self, path: Path) -> str | None:
        suffix = path.suffix.lower()
        if suffix in ROLL_SUFFIXES:
            return "roll" if suffix == ".npy" else "rolls"
        from seqmodel.media.music.midi import is_midi

        return "midi" if suffix in MIDI_SUFFIXES or is_midi(path) else None

    def dataset_lines(self, manifest: Mapping[str, Any]) -> list[str]:
        remarks = self.prepare_remarks(manifest) + self.prepare_advice(manifest, {})
        return self.summary_lines(manifest) + [f"  {remark}" for remark in remarks]

    def summary_lines(self, manifest: Mapping[str, Any]) -> list[str]:
        lines = list[str]()
        if "metre" in manifest:  # a grid of beats, not of an older version
            from seqmodel.media.music.metre import metre_line

            lines.append(f"  {metre_line(manifest['metre'])}")
        if parts := manifest.get("parts"):
            notes = ", ".join(f"{name} {notes:,}" for name, notes in parts.items())
            lines.append(f"  notes in train by part: {notes}")
        return lines

    def outdated(self, manifest: Mapping[str, Any]) -> str | None:
        if "metre" in manifest or self.frame_from_json(manifest["frame"]).grid.step_nanoseconds:
            return None
        return "was prepared before metres were stored: every piece counts as 4/4"

    def prepare_remarks(self, manifest: Mapping[str, Any]) -> list[str]:
        from seqmodel.media.music.parts import OTHER, ROLES

        remarks = [str(remark) for remark in manifest.get("grid_remarks", [])]
        parts = manifest.get("parts", {})
        unused = [name for name, notes in parts.items() if not notes and name != OTHER]
        if unused and any(parts.values()):  # or there is no train
            meant = {*ROLES} - {name.casefold() for name in parts}
            suggestions = [did_you_mean(name, meant) for name in unused]
            remarks.append(
                f"no note in train belongs to {', '.join(unused)}: no track does, or other parts "
                "have the same keys; `seqmodel inspect FILE` lists a file's parts"
                f"{next(filter(None, suggestions), '')}"
            )
        key = "" if "kit" in manifest["frame"] else ", in any key"
        for split, shares in manifest.get("copies", {}).items():
            if not any(shares.values()):
                continue
            (n, share), *longer = shares.items()
            more = ", ".join(f"{share:.1%} {n} or more" for n, share in longer)
            remarks.append(
                f"{share:.1%} of {split} repeats {n} or more frames of train{key}; {more}"
            )
        return remarks


MUSIC = Music()
