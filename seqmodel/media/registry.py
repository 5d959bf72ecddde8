"""The media, one row each; the first is the fallback for files of an unknown suffix."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.media.audio.medium import AUDIO
from seqmodel.media.definitions import FrameDefinition, Medium
from seqmodel.media.input import rejection
from seqmodel.media.music.medium import MUSIC

MEDIA: dict[str, Medium] = {medium.name: medium for medium in (MUSIC, AUDIO)}


def medium_of_file(path: Path) -> Medium:
    """The medium of a file, judged by its name; SeqmodelError if it must be converted first."""
    if why := rejection(path):
        raise SeqmodelError(f"{path}: {why}")
    suffix = path.suffix.lower()
    named = (medium for medium in MEDIA.values() if suffix in medium.suffixes)
    return next(named, next(iter(MEDIA.values())))


def medium_of(frame: FrameDefinition) -> Medium:
    """The medium of these frames."""
    return MEDIA[frame.medium]


def presets_of(frame: FrameDefinition) -> Mapping[str, Mapping[str, Any]]:
    """`Medium.presets` for these frames."""
    return presets_of_kind(medium_of(frame), frame.kind)


def presets_of_kind(medium: Medium, kind: str) -> Mapping[str, Mapping[str, Any]]:
    """`Medium.presets` for frames of a kind, which can be the medium's name."""
    return {**medium.presets, **medium.kinds.get(kind, {})}


def definition_from_json(medium: str, values: Mapping[str, Any]) -> FrameDefinition:
    """The frame definition that `to_json` wrote; SourceError if it is damaged or of no medium."""
    if medium not in MEDIA:
        raise SourceError(f"holds frames of an unknown medium: {medium!r}")
    try:
        return MEDIA[medium].frame_from_json(values)
    except (ValueError, KeyError, TypeError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise SourceError(f"holds frames that are not valid {medium} frames: {why}") from error
