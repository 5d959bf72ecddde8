"""What became of notes on a grid."""

from typing import NamedTuple

from seqmodel.media.music.grid import KIT_KEYS
from seqmodel.media.words import plural


class Tally(NamedTuple):
    """What became of notes in frames; those of one pitch and tick, in unison, count as one."""

    read: int = 0
    dropped: int = 0
    """Those that fill no frame."""
    merged: int = 0
    """Those that no frame shows the beginning of: another note of their pitch begins in the same
    one or, without onsets, sounds in the one before."""
    related: int = 0
    """Hits on keys beyond those of General MIDI level 1, which get a related sound; see `kit`."""
    unknown: int = 0
    """Hits left out, on keys for which a kit has no sound; not among those read."""
    lengthened: int = 0
    """Those that the sustain pedal lengthens, each of notes in unison."""

    def to_json(self) -> dict[str, int]:
        """Plain values for a manifest; those of kits and of the pedal only if there are any."""
        always = ("read", "dropped", "merged")
        return {name: n for name, n in self._asdict().items() if n or name in always}

    def lines(self, *, onsets: bool, kit: bool = False) -> list[str]:
        """What happened to notes that do not show, and what to do about it, if there are any."""
        lines, of = list[str](), f"of {plural(self.read, 'hit' if kit else 'note')}"
        if self.related:
            lines.append(
                f"{plural(self.related, 'hit')} on keys outside {KIT_KEYS}, those of General MIDI, "
                "got a related sound"
            )
        if self.unknown:
            lines.append(
                f"left out {plural(self.unknown, 'hit')} on keys for which a kit has no sound"
            )
        if self.dropped:
            lines.append(
                f"dropped {self.dropped:,} {of} that fill no frame; prepare --short-notes keep, or "
                "a finer grid, keeps them"
            )
        if self.merged:
            how = "begin in the same frame as another of their pitch; a finer grid"
            if kit:
                how = how.replace("pitch", "sound")
            elif not onsets:
                how = "follow one of their pitch without a gap and join it; prepare --onsets"
            lines.append(f"{self.merged:,} {of} {how} keeps them apart")
        return lines
