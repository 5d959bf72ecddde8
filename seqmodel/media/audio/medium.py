"""Audio: recordings, as mono 16-bit samples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqmodel.media.definitions import FrameDefinition, Medium, Option, lazily
from seqmodel.media.words import plural

FRAME_SIZE = 10
CONTEXT = 20
"""In samples, as in Chung et al. 2014."""

CLIP_SECONDS = 8.0
"""Length of the pieces that longer recordings are cut into, as in Mehri et al. 2017, SampleRNN."""

USUAL_RATE, HIGH_RATE = 16_000, 24_000
"""Samples per second that suffice for speech, and above which `prepare` says what they cost, and
`sample` that fewer help."""

SAMPLE_SECONDS = 2.0

SUFFIXES = frozenset(
    {".wav", ".wave", ".bwf", ".rf64", ".w64", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".mp2"}
    | {".aif", ".aiff", ".aifc", ".caf", ".au", ".snd", ".sph", ".nist", ".voc", ".ircam", ".sf"}
    | {".avr", ".paf", ".pvf", ".svx", ".8svx", ".iff"}
)
"""Suffixes of the files that libsndfile reads."""


class Audio(Medium):
    """Sound; a frame is a block of samples in [-1, 1)."""

    name = "audio"
    suffixes = SUFFIXES
    file_kinds = "audio (.wav .flac .mp3 ...)"
    presets: Mapping[str, Mapping[str, Any]] = {
        "default": {"model": "sample-wise"},
        "frame-wise": {
            "dropout": 0.0,
            "weight_noise": 0.0,
            "learning_rate": 0.004,
            "batch_size": 8,
            "truncate": 200,
        },
        "paper": {"batch_size": 16, "truncate": 200},
    }
    # Chung et al. 2014, Table 1.
    paper_hidden: Mapping[str, int] = {"lstm": 195, "gru": 227, "tanh": 400}
    paper_params = 169_000
    prepare_options = (
        Option(
            "rate", "Sample rate.  [default: that of the files, if all agree]", int, metavar="HZ"
        ),
        Option("context", f"Samples to predict a frame from.  [default: {CONTEXT}]", int),
        Option("frame", f"Samples per frame.  [default: {FRAME_SIZE}]", int),
        Option(
            "levels",
            "linear: 16 bits. mu-law: 8 bits, companded, as in WaveNet.  [default: linear]",
            choices=("linear", "mu-law"),
        ),
        Option(
            "clip_seconds",
            "Cut longer recordings into clips of this length; 0: keep them whole.  [default: "
            f"{CLIP_SECONDS:g}]",
            float,
            metavar="SECONDS",
        ),
    )
    formats = ("wav", "flac", "raw", "npy", "png")
    default_length = f"{SAMPLE_SECONDS:g} seconds of audio"

    page_format = "flac"
    page_seconds = 4.0
    page_joins = True

    frame_from_json = lazily("seqmodel.media.audio.frames:AudioFrames.from_json")
    settings = lazily("seqmodel.media.audio.frames:AudioSettings.of_options")
    settings_like = lazily("seqmodel.media.audio.frames:AudioSettings.like")
    corpus = lazily("seqmodel.media.audio.corpus:AudioCorpus")
    baselines = lazily("seqmodel.media.audio.evaluation:audio_nats_per_frame")
    inspect_file = lazily("seqmodel.media.audio.inspection:inspect_audio")
    file_lines = lazily("seqmodel.media.audio.inspection:file_lines")
    inspect_splits = lazily("seqmodel.media.audio.inspection:inspect_splits")
    sampling = lazily("seqmodel.media.audio.sampling:AudioSampling")
    comparison = lazily("seqmodel.media.audio.evaluation:AudioComparison")
    picture = lazily("seqmodel.media.audio.inspection:spectrogram_picture")

    def kind_of_file(self, path: Path) -> str | None:
        return "audio" if path.suffix.lower() in SUFFIXES else None

    def split_columns(self, values: Mapping[str, Any]) -> Mapping[str, str]:
        frame = self.frame_from_json(values["frame"])
        splits = values["splits"].items()
        return {name: frame.duration(counts["frames"]) for name, counts in splits}

    def dataset_lines(self, manifest: Mapping[str, Any]) -> list[str]:
        frame = manifest["frame"]
        return [
            f"  stored as {frame['dtype']}; train has mean {frame['mean']:.4g} and deviation "
            f"{frame['deviation']:.4g}"
        ]

    def prepare_remarks(self, manifest: Mapping[str, Any]) -> list[str]:
        lines, rounded = [], manifest["rounded_to_16_bits"]
        if cut := manifest.get("recordings_cut"):
            clip = f"{manifest['clip_seconds']:g} s"
            lines.append(
                f"cut {plural(cut, 'recording')} longer than {clip} into clips of {clip}; "
                "change it with --clip-seconds"
            )
        if rounded:
            lines.append(
                f"rounded {plural(rounded, 'file')} to 16 bits: finer than that, not mono, or at "
                "another rate"
            )
        if manifest["splits"]["train"]["pieces"]:
            lines += self.training_remarks(self.frame_from_json(manifest["frame"]))
        return lines

    def prepare_advice(self, manifest: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
        rate = manifest["frame"]["rate"]
        if options.get("rate") or rate <= HIGH_RATE:
            return []
        return [
            f"at {rate:,} Hz training takes {rate / USUAL_RATE:.1f} times as long as at "
            f"{USUAL_RATE:,} Hz; --rate {USUAL_RATE} resamples"
        ]

    def training_remarks(self, frame: FrameDefinition) -> list[str]:
        """Whether train is silent: its deviation is then stored as 1, which no sound has."""
        if frame.deviation != 1.0:
            return []
        return [
            "train is silent (all of its samples are equal): there is nothing to learn, and "
            "samples will be noise"
        ]

    def split_advice(self, manifest: Mapping[str, Any]) -> str:
        """Clips of a recording split by its hash are all in one split: more of them do not help."""
        if not (manifest.get("recordings_cut") and manifest["split_by"]["content_hash"]):
            return super().split_advice(manifest)
        return (
            "all clips of a recording stay in one split: cut it with --split-by time, or into "
            "files in folders named train, valid and test"
        )


AUDIO = Audio()
