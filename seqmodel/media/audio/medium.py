"""Audio: recordings, as mono 16-bit samples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqmodel.media.audio import defaults
from seqmodel.media.definitions import (
    Comparison,
    FrameDefinition,
    Medium,
    Option,
    Pieces,
    SampleRequest,
    Sampling,
    Settings,
)
from seqmodel.media.pictures import Picture
from seqmodel.media.words import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seqmodel.media.audio.corpus import AudioCorpus
    from seqmodel.media.audio.frames import AudioFrames, AudioSettings

SUFFIXES = frozenset(
    {".wav", ".wave", ".bwf", ".rf64", ".w64", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".mp2"}
    | {".aif", ".aiff", ".aifc", ".caf", ".au", ".snd", ".sph", ".nist", ".voc", ".ircam", ".sf"}
    | {".avr", ".paf", ".pvf", ".svx", ".8svx", ".iff"}
)
"""Suffixes of the files that libsndfile reads."""

# AudioSettings' field for each option whose name differs.
FIELDS = {"frame": "frame_size"}


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
            "rate", int, "Samples per second.  [default: the files', if all agree]", metavar="HZ"
        ),
        Option(
            "context", int, f"Samples a frame is predicted from.  [default: {defaults.CONTEXT}]"
        ),
        Option("frame", int, f"Samples in a frame.  [default: {defaults.FRAME_SIZE}]"),
        Option(
            "levels",
            str,
            "linear: 16 bits. mu-law: 8 bits, companded, as in WaveNet.  [default: linear]",
            choices=("linear", "mu-law"),
        ),
        Option(
            "clip_seconds",
            float,
            "Cut longer recordings into clips of this length; 0: keep them whole.  [default: "
            f"{defaults.CLIP_SECONDS:g}]",
            metavar="SECONDS",
        ),
    )
    formats = ("wav", "flac", "raw", "npy", "png")
    default_length = f"{defaults.SECONDS:g} seconds of audio"

    page_format = "flac"
    page_seconds = 4.0
    page_joins = True

    def frame_from_json(self, values: Mapping[str, Any]) -> "AudioFrames":
        """`Medium.frame_from_json`."""
        from seqmodel.media.audio.frames import AudioFrames

        return AudioFrames.from_json(values)

    def settings(self, options: Mapping[str, Any]) -> "AudioSettings":
        """`Medium.settings`."""
        from seqmodel.media.audio.frames import AudioSettings

        given = {name: value for name, value in options.items() if value is not None}
        given["clip_seconds"] = given.get("clip_seconds", defaults.CLIP_SECONDS) or None
        return AudioSettings(**{FIELDS.get(name, name): given[name] for name in given})

    def settings_like(self, frame: FrameDefinition) -> "AudioSettings":
        """`Medium.settings_like`; recordings are not cut into clips."""
        from seqmodel.media.audio.frames import AudioFrames, AudioSettings

        assert isinstance(frame, AudioFrames)
        levels: Any = "mu-law" if frame.dtype == "mu-law" else "linear"
        return AudioSettings(frame.rate, frame.frame_size, frame.context, levels=levels)

    def corpus(self, settings: Settings, paths: Sequence[Path], folder: Path) -> "AudioCorpus":
        """`Medium.corpus`."""
        from seqmodel.media.audio.corpus import AudioCorpus
        from seqmodel.media.audio.frames import AudioSettings

        assert isinstance(settings, AudioSettings)
        return AudioCorpus(settings, paths, folder)

    def baselines(
        self, train: Pieces, valid: Pieces, frame: FrameDefinition, *, discrete: bool
    ) -> dict[str, float]:
        """`Medium.baselines`: silence, noise, FLAC."""
        from seqmodel.media.audio.baselines import audio_nats_per_frame

        return audio_nats_per_frame(train, valid, frame, discrete=discrete)

    def kind_of_file(self, path: Path) -> str | None:
        """ "audio", by the suffix."""
        return "audio" if path.suffix.lower() in SUFFIXES else None

    def inspect_file(
        self, path: Path, options: Mapping[str, Any], plot: Path | None
    ) -> dict[str, Any]:
        """`Medium.inspect_file`."""
        from seqmodel.media.audio.inspection import inspect_audio

        return inspect_audio(path, plot)

    def file_lines(self, values: Mapping[str, Any]) -> list[str]:
        """`Medium.file_lines`."""
        from seqmodel.media.audio.inspection import file_lines

        return file_lines(values)

    def inspect_splits(
        self, splits: Mapping[str, Pieces], plot: Path | None, title: str
    ) -> dict[str, Any]:
        """How long each split lasts."""
        from seqmodel.media.audio.inspection import inspect_splits

        return inspect_splits(splits, plot, title)

    def split_columns(self, values: Mapping[str, Any]) -> Mapping[str, str]:
        """How long each split lasts."""
        frame = self.frame_from_json(values["frame"])
        splits = values["splits"].items()
        return {name: frame.duration(counts["frames"]) for name, counts in splits}

    def dataset_lines(self, manifest: Mapping[str, Any]) -> list[str]:
        """How samples are stored and standardised."""
        frame = manifest["frame"]
        return [
            f"  stored as {frame['dtype']}; train has mean {frame['mean']:.4g} and deviation "
            f"{frame['deviation']:.4g}"
        ]

    def prepare_remarks(self, manifest: Mapping[str, Any]) -> list[str]:
        """How many recordings were cut or lost precision, and whether train is silent."""
        lines, rounded = [], manifest["rounded_to_16_bits"]
        if cut := manifest.get("recordings_cut"):
            clip = f"{manifest['clip_seconds']:g} s"
            lines.append(
                f"cut {plural(cut, 'recording')} longer than {clip} into clips of {clip}; "
                "--clip-seconds chooses"
            )
        if rounded:
            lines.append(
                f"rounded {plural(rounded, 'file')} to 16 bits: finer than that, not mono, or at "
                "another rate"
            )
        if manifest["splits"]["train"]["pieces"]:
            lines += self.training_remarks(self.frame_from_json(manifest["frame"]))
        return lines

    def training_remarks(self, frame: FrameDefinition) -> list[str]:
        """Whether train is silent: its deviation is then stored as 1, which no sound has."""
        if frame.deviation != 1.0:
            return []
        return [
            "train is silent (all of its samples are equal): there is nothing to learn, and what "
            "is sampled will be noise"
        ]

    def split_advice(self, manifest: Mapping[str, Any]) -> str | None:
        """All clips of a recording that its hash places are in one split: more do not help."""
        if not (manifest.get("recordings_cut") and manifest["split_by"]["content_hash"]):
            return None
        return (
            "all clips of a recording stay in one split: cut it with --split-by time, or into "
            "files in folders named train, valid and test"
        )

    def sampling(self, frame: FrameDefinition, request: SampleRequest) -> Sampling:
        """`Medium.sampling`."""
        from seqmodel.media.audio.sampling import AudioSampling

        return AudioSampling(frame, request)

    def comparison(self) -> Comparison:
        """`Medium.comparison`."""
        from seqmodel.media.audio.comparison import AudioComparison

        return AudioComparison()

    def picture(self, frames: "NDArray[Any]", definition: FrameDefinition) -> Picture:
        """`Medium.picture`: a spectrogram."""
        from seqmodel.media.audio.pictures import spectrogram_picture

        return spectrogram_picture(frames, definition)


AUDIO = Audio()
