"""Music: MIDI files and published piano-rolls."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqmodel.media.definitions import Medium, Option, lazily
from seqmodel.media.music.grid import (
    BEATS_PER_MINUTE,
    DRUMS,
    FASTEST,
    MIDI_SUFFIXES,
    PARTICLES,
    PUBLISHED_STEPS_PER_BEAT,
    ROLL_SUFFIXES,
    SAMPLE_LENGTH,
    SLOWEST,
    SOUND_FORMATS,
    STEPS_PER_BEAT,
    SWEEPS,
)


def _tempo(help: str) -> Option:
    return Option("tempo", float, help, least=SLOWEST, most=FASTEST)


STEP_SECONDS = Option(
    "step_seconds", str, "MIDI: frames of this length instead.", metavar="SECONDS"
)


def _drums(default: str) -> Option:
    return Option(
        "drums",
        str,
        "MIDI: drop channel 10, keep it as notes of a piano, or take only it, as the sounds of a "
        f"drum kit.  [default: {default}]",
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
        DRUMS: {
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
            int,
            f"Frames in a quarter note.  [default: {STEPS_PER_BEAT} of MIDI; of rolls "
            f"their own, if known, or {PUBLISHED_STEPS_PER_BEAT}]",
        ),
        STEP_SECONDS,
        Option(
            "restrike",
            str,
            "MIDI: a note struck again while it sounds ends there, or is discarded.  "
            "[default: close]",
            choices=("close", "discard"),
        ),
        Option(
            "short_notes",
            str,
            "MIDI: keep: every note fills a frame at least; drop: one that rounds to none is "
            "lost, as in the published rolls.  [default: keep; with --restrike discard drop]",
            choices=("drop", "keep"),
        ),
        Option(
            "pedal",
            str,
            "MIDI: notes last as long as the sustain pedal holds them, or as their keys are held.  "
            "[default: extend; with --no-onsets, --restrike discard or rolls ignore]",
            choices=("extend", "ignore"),
        ),
        _drums("drop"),
        Option("transpose_to_c", bool, "MIDI: move each piece's estimated tonic to C."),
        Option(
            "onsets",
            bool,
            "MIDI: tell notes that are struck from those held on, or only which sound.  "
            "[default: onsets, unless there are rolls, which have none]",
            negated=True,
        ),
        Option(
            "parts",
            str,
            "MIDI: keep whose each note is, which a run then learns as well: of the first part "
            "whose name is in its track's, or its instrument's, such as melody,bass, or another's. "
            "Voices, such as Jsb16thSeparated.npz, have these names in turn.",
            metavar="NAMES",
        ),
        Option("tracks", bool, "MIDI: the same, of the 8 commonest names of tracks."),
        Option(
            "velocity",
            bool,
            "MIDI: keep how hard each note is struck, which a run then learns as well.",
        ),
        Option("timing", bool, "MIDI: the same of how far off the grid."),
    )
    inspect_options = (
        Option(
            "steps_per_beat",
            int,
            "The grid a MIDI file is shown on, and any file rendered on.  "
            f"[default: {STEPS_PER_BEAT}; of a roll its own]",
            least=1,
        ),
        STEP_SECONDS,
        _drums("drop, or only where there is nothing else"),
    )
    listen_options = (
        _tempo(
            "With --listen: beats per minute.  [default: the file's; of a roll "
            f"{BEATS_PER_MINUTE:g}]"
        ),
    )
    page_options = (
        Option(
            "fill",
            Path,
            "Draw a part of this file anew, given all the rest: what --bars to --above say, "
            "together if there are several.",
            metavar="FILE",
        ),
        Option(
            "bars",
            str,
            "With --fill: these bars, the last included; the first is 1.",
            metavar="FROM:TO",
        ),
        Option(
            "frames",
            str,
            "With --fill: frames, the last not included; the first is 0.",
            metavar="FROM:TO",
        ),
        Option("time", str, "With --fill: the time between, in seconds.", metavar="FROM:TO"),
        Option("notes", str, "With --fill: these notes, such as C2:B3.", metavar="LOW:HIGH"),
        Option(
            "below", bool, "With --fill: all below its highest voice, as to harmonise a melody."
        ),
        Option(
            "above", bool, "With --fill: all above its lowest voice; with --below, between these."
        ),
        Option(
            "particles",
            int,
            "With --fill: how many drafts compete; more fit better and take longer.  "
            f"[default: {PARTICLES}]",
            least=1,
            most=100_000,
        ),
        Option(
            "sweeps",
            int,
            "With --fill: how often it is drawn once more, in stretches that see what follows.  "
            f"[default: {SWEEPS}, or 0 if something is given in every frame to the end]",
            least=0,
            most=1000,
        ),
    )
    sample_options = (
        _tempo(
            "Beats per minute, in the file and for --seconds.  [default: that of --prime or "
            f"--fill, or train's median; {BEATS_PER_MINUTE:g} if there is none]"
        ),
        Option(
            "metre",
            str,
            "Time signature.  [default: that of --prime or --fill, or the commonest of train]",
            metavar="BEATS/OF",
        ),
        Option(
            "transpose",
            int,
            "Semitones to move the music by; notes off the keyboard are folded back by octaves.",
            metavar="SEMITONES",
            least=-60,
            most=60,
        ),
        Option("key", str, "Move the estimated tonic to this note, such as Eb.", metavar="NOTE"),
        Option("flat", bool, "Play all notes equally loud."),
        Option(
            "into",
            str,
            "The track of the file that gets the drawn notes, by name or by number from 1 on, "
            "where a .mid is that of --fill, or of --prime with --include-prime.  [default: one of "
            "their own]",
            metavar="TRACK",
        ),
        *page_options,
    )
    formats = ("mid", *SOUND_FORMATS, "npy", "png")
    listen_formats = SOUND_FORMATS
    default_length = (
        f"{SAMPLE_LENGTH} of music, or with --end as long as the longest training piece at most"
    )

    page_format = "mp3"
    page_download = "mid"
    page_seconds = 30.0

    frame_from_json = lazily("seqmodel.media.music.frames:PianoRollFrames.from_json")
    settings = lazily("seqmodel.media.music.frames:settings")
    corpus = lazily("seqmodel.media.music.corpus:MusicCorpus")
    baselines = lazily("seqmodel.media.music.evaluation:baseline_nats_per_frame")
    copies = lazily("seqmodel.media.music.copies:shares_in_train")
    voices = lazily("seqmodel.media.music.voices:voices_cost")
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
        if suffix in MIDI_SUFFIXES:
            return "midi"
        from seqmodel.media.music.midi import is_midi

        return "midi" if is_midi(path) else None

    def dataset_lines(self, manifest: Mapping[str, Any]) -> list[str]:
        remarks = self.prepare_remarks(manifest) + self.prepare_advice(manifest)
        return self.summary_lines(manifest) + [f"  {remark}" for remark in remarks]

    def summary_lines(self, manifest: Mapping[str, Any]) -> list[str]:
        lines = list[str]()
        if "metre" in manifest:  # a grid of beats, and no older version
            from seqmodel.media.music.metre import metre_line

            lines.append(f"  {metre_line(manifest['metre'])}")
        if parts := manifest.get("parts"):
            notes = ", ".join(f"{name} {notes:,}" for name, notes in parts.items())
            lines.append(f"  notes of train by part: {notes}")
        return lines

    def outdated(self, manifest: Mapping[str, Any]) -> str | None:
        if "metre" in manifest or self.frame_from_json(manifest["frame"]).grid.step_nanoseconds:
            return None
        return "was prepared before metres were kept: every piece is taken as 4/4"

    def prepare_remarks(self, manifest: Mapping[str, Any]) -> list[str]:
        remarks = [str(remark) for remark in manifest.get("grid_remarks", [])]
        if unused := [name for name, notes in manifest.get("parts", {}).items() if not notes]:
            remarks.append(f"no note of train is of {', '.join(unused)}: name the parts without")
        key = "" if "kit" in manifest["frame"] else ", in any key"
        for split, shares in manifest.get("copies", {}).items():
            if not any(shares.values()):
                continue
            (n, share), *longer = shares.items()
            more = ", ".join(f"{share:.1%} in those of {n}" for n, share in longer)
            remarks.append(
                f"{share:.1%} of {split} lies in windows of {n} frames that are in train too{key}; "
                f"{more}"
            )
        return remarks


MUSIC = Music()
