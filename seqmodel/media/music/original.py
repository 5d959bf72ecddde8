"""Drawn notes in the MIDI file that they fill or continue, which otherwise stays unchanged.

Every event keeps its tick, its track, its order within the tick and its bytes, except for changes
of running status. Where notes are drawn,

- the file's notes that begin there are removed. Others stay: drums if the run's frames are
  pitches and none of its parts is drums, everything else if they are a kit, notes beyond the
  piano's keys, strikes without an end;
- a note that begins earlier keeps its strike. It ends where the drawn music ends it, at its own end
  if that agrees, and later if the drawn music holds it on;
- a note that lasts beyond begins anew, in its own track, if nothing drawn leads into it;
- drawn notes get a new track, or one for each part that the run knows, and a new channel if one is
  free, with the bank, volume and pan of the notes that they replace; or they continue a track of
  the file: the one asked for, except drums, or one of the same name, such as one left by an
  earlier drawing.
  Each is as loud as the nearest of the notes that they replace or, if they replace none, of the
  file's; of its part, if there are any. If the run has learned velocities, it is as loud as the
  file's notes of the level drawn for it.
  They begin and end at the tick nearest to their frames, at the file's tempos; or, where the notes
  around them lead or lag the beat, as much before or after it, as do notes that are cut there.

If only the beginning of a file is continued, it is cut off there: later events are dropped, what
still sounds and is not drawn ends, and a pressed pedal is released.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import UsageError
from seqmodel.media.input import read_whole
from seqmodel.media.music import events as smf
from seqmodel.media.music.frames import (
    PianoRollFrames,
    drums_in,
    fold,
    given_notes,
    notes_of,
    rows_of,
    sounding,
    struck,
)
from seqmodel.media.music.grid import (
    DEFAULT_BPM,
    DRAWN,
    DRUM_CHANNEL,
    END_OF_PIECE,
    MAX_TICK,
)
from seqmodel.media.music.metre import Signature
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.parts import DRUMS, MELODIC, Part, parts_of_notes
from seqmodel.media.music.placing import FEW, STEADY, missing_kinds, place
from seqmodel.media.music.writing import (
    PIANO,
    delays,
    midi_keys,
    onset_ticks,
    part_tracks,
    split_tracks,
    velocities,
)
from seqmodel.media.words import listed, plural

CHANNELS, KEYS = 16, (0, 127)
"""Of MIDI: how many there are, and the lowest and the highest."""
NEAR = 64
"""Frames around what is drawn in which the file's notes tell how late it should be."""
RELEASE_VELOCITY = 64
"""The velocity of written note-offs, which has no meaning."""

Note = tuple[int, int]
"""The ticks where a note begins and ends."""


class Original:
    """A MIDI file, some of whose notes are replaced by drawn ones.

    Attributes:
        frames: (T, 176), or (T, 47) of a kit: the file on the run's grid.
        remarks: what the run does not see of it, and a lack of channels, one line each.
    """

    def __init__(
        self, path: Path, frame: PianoRollFrames, *, transposed: int, into: str | None = None
    ) -> None:
        """`transposed` is the number of semitones by which the run reads it transposed.

        Drawn notes go to the track `into`, by name or by number from 1, or to a new one.
        SourceError as in `read_score` and `place`. UsageError for a file of independent patterns,
        for ticks longer than frames, and for a missing or ambiguous track.
        """
        self._path, self._frame, self._transposed = path, frame, transposed
        self._score = score = read_score(read_whole(path), hits=frame.kit)
        if score.format == 2:
            raise UsageError(
                f"{path} holds independent patterns (MIDI format 2), to which a track cannot be "
                "added: convert it to format 1"
            )
        placed = place(score, frame, transpose=transposed)
        self.frames = placed.frames(onsets=True)
        ticks = self._ticks(placed.length)
        if (np.diff(ticks) < 1).any():
            raise UsageError(
                f"{path} has ticks longer than the run's frames ({frame.grid}), too long for drawn "
                "notes: save it with more ticks per beat"
            )
        kit, of_drums, pitch = frame.kit, score.of_drums, score.pitch.astype(int)
        apart = any(part.program == DRUMS for part in frame.parts)
        off_keys = fold(pitch) != pitch
        end = np.where(of_drums[placed.chosen], placed.begin + 1, placed.end)
        rows = np.stack([placed.chosen, placed.begin, end, placed.row], axis=1).tolist()
        stays = np.zeros_like(of_drums) if kit else (of_drums & (not apart)) | off_keys
        self._cells = {n: (begin, end, row) for n, begin, end, row in rows if not stays[n]}
        """For each replaceable note, the first frame, the one after the last, and the row; the
        two are equal if it fills no frame. Drums count as having one frame."""
        fills = placed.begin < placed.end
        begin, on_tick = placed.begin[fills], score.on_tick[placed.chosen[fills]]
        self._lag, self._onsets = placed.lag, begin
        self._late = (on_tick - placed.lag - ticks[begin]) / np.diff(ticks)[begin]
        """(N,), by how many frames the notes that begin at `_onsets` are late besides the lag."""
        self._begins = {(begin, row) for begin, _, row in self._cells.values()}
        self._note_ends = score.ends(pedal=frame.pedal)
        by_end = sorted(self._cells, key=self._note_ends.__getitem__)
        self._ends = {self._cells[n][1:]: int(self._note_ends[n]) for n in by_end}
        """Frame after the last, row -> the tick where the longest such note ends."""
        unseen = missing_kinds(score, frame)
        if (~of_drums & off_keys).any() and not kit:
            unseen.append("notes off the keyboard")
        they = "which the run does not replace: they stay"
        self.remarks = [f"{path} has {listed(unseen)}, {they}"] if unseen else []
        if frame.drums and not (kit or apart) and of_drums.any():
            self.remarks.append(
                f"{path} has drums, which stay; the run does not tell drums from notes and may "
                "draw more as notes: prepare --tracks keeps them apart"
            )
        if not frame.pedal and not frame.kit and (score.silent_tick > score.off_tick).any():
            self.remarks.append(
                f"{path} has a sustain pedal, which stays; the run reads notes only as long as "
                "their keys are held"
            )
        self._names = [name.strip() for name in score.track_names]
        self._into = None if into is None else self._track(into)
        if self._into is not None and not (frame.kit or self._track_for(Part("", PIANO))[1]):
            self.remarks.append(
                f"--into {into}: that track of {path} has no notes or instrument of its own; drawn "
                "notes take the instrument of most of the notes they replace or continue"
            )
        if into is None and not frame.kit:
            tracks, free = part_tracks(frame.parts, DRAWN), len(self._free_channels())
            if free < sum(p.program != DRUMS and not self._track_for(p)[1] for p in tracks):
                left = plural(free, "free channel") if free else "no free channels"
                self.remarks.append(
                    f"{path} has {left} for new tracks: further drawn parts share the channel, and "
                    "so the instrument, of the file's notes of their part, or of those they replace"
                )

    def _track(self, text: str) -> int:
        names, wanted = self._names, text.strip()
        found = [k for k, name in enumerate(names) if name == wanted]
        found = found or [k for k, name in enumerate(names) if name.lower() == wanted.lower()]
        if len(found) > 1:
            numbers = listed([str(k + 1) for k in found])
            raise UsageError(
                f"--into {text}: tracks {numbers} of {self._path} have that name: use a number"
            )
        if not found and text.isdecimal() and len(text) < 6 and 1 <= int(text) <= len(names):
            found = [int(text) - 1]
        if not found:
            known = ", ".join(f"{k} {name}".strip() for k, name in enumerate(names, 1))
            raise UsageError(f"--into {text}: {self._path} has no such track, but {known}")
        channels = set(self._score.channel[self._score.track == found[0]].tolist())
        if not self._frame.kit and channels == {DRUM_CHANNEL}:
            raise UsageError(f"--into {text} is a drum track, but the run draws pitched notes")
        return found[0]

    def with_drawn(
        self,
        frames: NDArray[np.uint8],
        free: NDArray[np.bool_],
        *,
        cut: int | None = None,
        semitones: int = 0,
        metre: Sequence[Signature] = (),
        flat: bool = False,
    ) -> bytes:
        """The file with the notes of frames (T, 176), or (T, 47) of a kit, that begin in `free`.

        Where they are not `free` (T, 88), and so not drawn, frames are as the run reads the file.
        It is cut off at the frame `cut`, if any; all pitches except drums are transposed by
        `semitones`; `metre` and `flat` are as in `writing.velocities`.
        """
        if cut is None:  # a run that discards restruck notes can read fewer frames
            beyond = self.frames[len(frames) :]
            beyond = np.pad(beyond, ((0, 0), (0, max(0, frames.shape[1] - beyond.shape[1]))))
            frames = np.concatenate([frames, beyond])
            free = np.pad(free, ((0, len(beyond)), (0, 0)))
        score, given = self._score, ~free
        ticks = self._ticks(len(frames), cut)
        steps = np.diff(ticks)
        steps[1:] = np.minimum(steps[1:], steps[:-1])  # the tempo may change in between
        late = self._usually_late(free)
        ends = ticks + self._lag + delays(late, np.append(steps, steps[-1]))
        # What stands at tick 0, such as names and tempos, is before any cut.
        end = None if cut is None else max(1, int(min(ticks[cut], ends[cut])))
        remaining = self._remaining_notes(frames, given, ends, end)
        data = _transposed(self._score.events, semitones)
        removed, added = self._replace(data, remaining, end)
        notes, lowest = notes_of(frames), rows_of(frames)[0]
        begins = onset_ticks(notes, frames, ticks + self._lag, steps, late)
        last, ended = int(ticks[-1]), defaultdict[tuple[int, int], int](int)
        marked = not frames[-1].any() and (cut is not None or score.end_tick < last)
        drums = drums_in(frames, self._frame.parts)
        _, *tracks = split_tracks(notes, frames, given, self._frame.parts)
        of_part = np.full(len(notes), -1)
        for k, (_, own) in enumerate(tracks):
            of_part[own] = k
        drawn = {k: part for k, (part, own) in enumerate(tracks) if own.any()}
        drawn |= {0: Part(DRAWN, PIANO)} if marked and not drawn else {}
        like = self._models(drawn, remaining, cut)
        targets = self._targets(drawn, like, int(ticks[free.any(axis=1).argmax()]), added)
        if marked:
            (track, _), *_ = targets.values()
            added[track].append((last, smf.STRIKES, smf.meta(smf.MARKER, END_OF_PIECE)))
        is_shared = len({channel for _, channel in targets.values()}) < len({*targets.values()})
        apart = int(steps.min() > 2)  # ticks; more would move notes to other frames
        others = {
            k: self._other_notes(*target, remaining, semitones, apart)
            for k, target in targets.items()
        }
        levels = self._frame.marks.get("velocity")
        # Few of the notes replaced, if any, are of a level.
        like = self._models(drawn, {}, cut) if levels else like
        near = {k: self._neighbours(some) for k, some in like.items()}
        notes, of_part = notes[of_part >= 0], of_part[of_part >= 0]
        hits, table = given_notes(notes, drums), self._frame.drum_table
        loudness = velocities(
            notes, frames, self._frame.grid, metre=metre, flat=flat, levels=levels,
            like=[near[k] for k in of_part.tolist()], apart=drums if table else None,
        )  # fmt: skip
        for begin, until, key, velocity, k, is_drum, sent in np.column_stack(
            [notes, loudness, of_part, hits, midi_keys(notes, hits, table)]
        ).tolist():
            track, channel = targets[k][0], DRUM_CHANNEL if is_drum else targets[k][1]
            off = min(
                self._end(until, key - lowest, given, ends), begins.get((until, key), MAX_TICK)
            )
            pitch = sent if is_drum else int(fold(key - self._transposed + semitones))
            # Two notes moved onto one key by octaves must not overlap either.
            free_from = max(begins[begin, key], ended[channel, pitch])
            on, off = _between([] if is_drum else others[k][pitch], free_from, off)
            if is_shared and (until, key) in begins:
                off -= apart  # as in `_other_notes`
            if on < off:
                ended[channel, pitch] = off
                added[track] += [
                    (on, smf.STRIKES, bytes([smf.NOTE_ON | channel, pitch, velocity])),
                    (off, smf.OFFS, bytes([smf.NOTE_OFF | channel, pitch, RELEASE_VELOCITY])),
                ]
        return self._encode(data, removed, added, end)

    def _usually_late(self, free: NDArray[np.bool_]) -> float:
        """By how many frames notes in and near `free` frames are late besides the lag of all.

        0 if they do not agree, as where they swing, or follow no beat.
        """
        redrawn = np.flatnonzero(free.any(axis=1))
        first, last = redrawn.min(initial=len(free)), redrawn.max(initial=0)
        late = self._late[(self._onsets >= first - NEAR) & (self._onsets <= last + NEAR)]
        agreed = abs(np.exp(2j * np.pi * late).sum()) > STEADY * max(len(late), FEW)
        return float(np.median(late)) if agreed and self._frame.grid.steps_per_beat else 0.0

    def _ticks(self, length: int, cut: int | None = None) -> NDArray[np.int64]:
        """(T + 1,), the tick nearest to where each frame begins; from a cut on, at one tempo."""
        grid, score = self._frame.grid, self._score
        frames = np.arange(length + 1)
        if steps := grid.steps_per_beat:
            return (2 * frames * score.ticks_per_unit + steps) // (2 * steps)
        seconds = frames * grid.seconds_per_frame(DEFAULT_BPM)
        if cut is not None:
            kept = score.tempo_tick < score.ticks_at(seconds[cut : cut + 1])
            score = replace(score, tempo_tick=score.tempo_tick[kept], tempo=score.tempo[kept])
        return np.rint(score.ticks_at(seconds)).astype(np.int64)

    def _remaining_notes(
        self, frames: NDArray[np.uint8], given: NDArray[np.bool_], ticks: NDArray[np.int64],
        end: int | None,
    ) -> dict[int, list[Note]]:  # fmt: skip
        """What is left of each changed note; all others end at tick `end`."""
        score, begun = self._score, struck(frames)
        holds = (sounding(frames) > 0) & ~begun
        remaining = dict[int, list[Note]]()
        if end is not None:
            beyond = (score.off_tick > end) | (score.on_tick == end)
            for n in np.flatnonzero(beyond).tolist():
                on = int(score.on_tick[n])
                remaining[n] = [(on, end)] if on < end else []
        for n, (begin, until, row) in self._cells.items():
            if begin == until:
                continue
            own = int(score.on_tick[n]), int(score.off_tick[n])
            stays = until <= len(given) and given[begin:until, row].all()
            silent = int(self._note_ends[n]) if end is None else min(int(self._note_ends[n]), end)
            masks = given, begun, holds
            parts = [own] if stays else self._parts(own, silent, self._cells[n], *masks, ticks)
            if parts == [own]:
                remaining.pop(n, None)
            else:
                remaining[n] = parts
        return remaining

    def _parts(
        self, own: Note, silent: int, cells: tuple[int, int, int], given: NDArray[np.bool_],
        begun: NDArray[np.bool_], holds: NDArray[np.bool_], ticks: NDArray[np.int64],
    ) -> list[Note]:  # fmt: skip
        """What is left of a note, depending on which notes (T, 88) are given, begun and held on.

        It sounds until the tick `silent`. Keys cannot end what the pedal holds.
        """
        begin, until, row = cells
        on, since, parts = -1, begin, list[Note]()
        last = min(until, len(given)) - 1
        for t in range(begin, last + 1):
            if t == begin:
                on = own[0] if given[t, row] else -1
            elif given[t, row]:
                # A strike that is not the file's: what is drawn lasts until then.
                drawn = not given[t - 1, row] and (t, row) not in self._begins
                if begun[t, row] and (on < 0 or drawn):
                    parts += [(on, int(ticks[t]))] if on >= 0 else []
                    on, since = int(ticks[t]), t
            elif on >= 0 and not holds[t, row]:
                parts.append((on, int(ticks[t])))
                on = -1
        if on >= 0:
            t = last + 1
            # If its end is given, it sounds on only if its key was not struck again meanwhile.
            goes_on = not given[last, row] or not begun[since + 1 : until, row].any()
            while goes_on and t < len(given) and holds[t, row]:
                t += 1
            own_end = t == until and silent > ticks[t - 1]  # not if the file is cut off before
            parts.append((on, silent if own_end else self._end(t, row, given, ticks)))
        return [(on, own[1] if on < own[1] <= off <= silent else off) for on, off in parts]

    def _end(self, frame: int, row: int, given: NDArray[np.bool_], ticks: NDArray[np.int64]) -> int:
        """The tick where what sounds up to a frame ends: that of the file's own note, if any."""
        own = self._ends.get((frame, row)) if given[frame - 1, row] else None
        return int(ticks[frame]) if own is None else own

    def _replace(
        self, data: bytes, remaining: Mapping[int, list[Note]], end: int | None
    ) -> tuple[NDArray[np.bool_], defaultdict[int, list[smf.TimedEvent]]]:
        """Which events (E,) to remove, and which to add by track, so that notes become `remaining`.

        Notes of a key that each end where the next is struck depend on each other's note-offs, so
        such a chain is rewritten if any of them changes.
        """
        score, events = self._score, self._score.events
        pedals = events.pedals()
        E = len(events.ticks)
        removed = np.zeros(E, np.bool_) if end is None else events.ticks >= end
        added = defaultdict[int, list[smf.TimedEvent]](list)
        numbers, note_keys, note_strikes = events.note_events
        keys, strikes = np.zeros(E, np.int64), np.zeros(E, np.bool_)
        keys[numbers], strikes[numbers] = note_keys, note_strikes
        places = np.sort(note_keys * E + numbers)
        order = np.lexsort((score.on_event, keys[score.on_event]))
        key, on, off = keys[score.on_event][order], score.on_event[order], score.off_event[order]
        joined = (key[1:] == key[:-1]) & (off[:-1] == on[1:])
        for chain in np.split(order, np.flatnonzero(~joined) + 1):
            notes = chain.tolist()
            changed = any(n in remaining for n in notes)
            if not notes or not (changed or end is not None):
                continue
            first, last = int(score.on_event[notes[0]]), int(score.off_event[notes[-1]])
            if strikes[last] and last != score.on_event[notes[-1]]:
                last -= 1  # a note that never ends
            base = int(keys[first]) * E
            begin, after = np.searchsorted(places, [base + first, base + last + 1])
            removed[places[begin:after] - base] = changed
            follows = False  # whether the next note of the chain keeps its strike
            for n in reversed(notes) if changed else ():
                on_event, off_event = int(score.on_event[n]), int(score.off_event[n])
                own = int(score.on_tick[n]), int(score.off_tick[n])
                track = int(score.track[n])
                begins = _message(events, data, on_event)
                for part in remaining.get(n, [own]):
                    ended = part[1] == own[1] and (not strikes[off_event] or off_event == on_event)
                    if not ended and part[0] >= part[1]:
                        # Of several strikes on a tick, the last keeps one.
                        removed[on_event] &= not (follows and part == own)
                        continue
                    if part[0] == own[0]:
                        removed[on_event] = False
                    else:
                        added[track].append((part[0], smf.STRIKES, begins))
                    if ended:
                        removed[off_event] = False
                    else:
                        ends = bytes([begins[0] & 15 | smf.NOTE_OFF, begins[1], RELEASE_VELOCITY])
                        added[track].append((part[1], smf.OFFS, ends))
                follows = not removed[on_event]
        if end is not None:  # release pedals that are pressed there
            moves, player, down, _ = (each[events.ticks[pedals.moves] < end] for each in pedals)
            latest = np.append(player[1:] != player[:-1], True)[: len(moves)]
            for number in moves[latest & down].tolist():
                release = bytes([int(events.status[number]), smf.SUSTAIN, 0])
                added[int(events.track[number])].append((end, smf.STRIKES, release))
        return removed, added

    def _free_channels(self) -> list[int]:
        events = self._score.events
        used = {*(events.status[events.status > 0] & 15).tolist(), DRUM_CHANNEL}
        return [channel for channel in range(CHANNELS) if channel not in used]

    def _track_for(self, part: Part) -> tuple[int | None, list[int]]:
        """The track of the file for drawn notes of a part, if any.

        With the channels, except that of drums, of each of its notes or, without notes, programs.
        """
        score, same = self._score, [k for k, name in enumerate(self._names) if name == part.name]
        into = None if part.program == DRUMS else self._into
        track = max(same, default=None) if into is None else into
        own = score.channel[score.track == (-1 if track is None else track)].tolist()
        own = own or [channel for number, channel, *_ in score.events.programs if number == track]
        return track, [channel for channel in own if channel != DRUM_CHANNEL]

    def _models(
        self, drawn: Iterable[int], remaining: Mapping[int, list[Note]], cut: int | None
    ) -> dict[int, list[int]]:
        """The file's notes that those drawn of each part, by its number, are to be like.

        If there are any, those of the part that are replaced, else of the part, else replaced; else
        all that are not cut off.
        """
        replaced = [n for n in remaining if n in self._cells] if cut is None else []
        kept = [n for n, at in self._cells.items() if cut is None or at[0] < cut]
        names, drums = self._frame.part_names, self._frame.which_drums
        numbers, _ = parts_of_notes(self._score, names, drums)
        models = dict[int, list[int]]()
        for k in drawn:
            there, own = ([n for n in of if numbers[n] == k + 1] for of in (replaced, kept))
            models[k] = there or own or replaced or kept
        return models

    def _neighbours(self, numbers: Sequence[int]) -> NDArray[np.int64]:
        """The first frames, in order, rows and velocities (3, M) of notes."""
        loud = self._score.velocity
        cells = sorted((*self._cells[n][::2], int(loud[n])) for n in numbers)
        return np.array(cells, np.int64).reshape(-1, 3).T

    def _targets(
        self, parts: Mapping[int, Part], like: Mapping[int, Sequence[int]], first: int,
        added: defaultdict[int, list[smf.TimedEvent]],
    ) -> dict[int, tuple[int, int]]:  # fmt: skip
        """The track and channel for drawn notes of each part, by its number.

        The track is a new one, unless the file has one. The channel, unless the track has one, is a
        free one, with the program of the part and the `_sound` at tick `first` of the channel of
        most of the notes that those of the part are `like`; if none is left, it is that channel.
        Percussive programs and effects count only if there are no others. What a track begins with
        is `added` to it.
        """
        changes = sorted(self._score.events.programs, key=itemgetter(2))
        programs = {channel: program for _, channel, tick, program in changes if tick <= first}
        targets = dict[int, tuple[int, int]]()
        for k, part in parts.items():
            channels = self._score.channel[like[k]].tolist()
            melodic = [c for c in channels if programs.get(c, PIANO) < MELODIC]
            most = _commonest(melodic or channels)
            (track, own), head = self._track_for(part), list[bytes]()
            own = own or [channel for there, channel in targets.values() if there == track]
            if track is None:
                track = max([len(self._names), *(number + 1 for number in added)])
                head.append(smf.meta(smf.TRACK_NAME, part.name.encode()))
            used_channels = {channel for _, channel in targets.values()}
            free = [channel for channel in self._free_channels() if channel not in used_channels]
            if self._frame.kit or part.program == DRUMS:
                channel = DRUM_CHANNEL
            elif own or not free:
                (channel,) = {*own} & {*most} or _commonest(own) or most or [0]
            else:
                channel = free[0]
                program = part.program if self._frame.parts and self._into is None else None
                head += self._sound(channel, program, most, first)
            added[track] += [(0, smf.FIRST, event) for event in head]
            targets[k] = track, channel
        return targets

    def _sound(
        self, channel: int, program: int | None, like: Sequence[int], tick: int
    ) -> Iterator[bytes]:
        """The events that give a channel the sound that one of the file, if any, has at a tick.

        Volume and pan, where stated, and the program with its bank, unless a `program` is given.
        """
        events = self._score.events
        told = [kind | channel for channel in like for kind in (smf.CONTROL, smf.PROGRAM)]
        numbers = np.flatnonzero(np.isin(events.status, told) & (events.ticks <= tick))
        numbers = numbers[np.argsort(events.ticks[numbers], kind="stable")]
        at, kinds = events.at[numbers], events.status[numbers] & 0xF0
        changes, bank = np.flatnonzero(kinds == smf.PROGRAM), smf.BANK if program is None else ()
        for controller in (*bank, smf.VOLUME, smf.PAN):
            stated = (kinds == smf.CONTROL) & (events.data[at] == controller)
            stated[changes.max(initial=0) :] &= controller not in bank  # that is for the next one
            for value in events.data[at[stated][-1:] + 1].tolist():
                yield bytes([smf.CONTROL | channel, controller, value & 127])
        if program is None:
            program = [PIANO, *(events.data[at[changes]] & 127).tolist()][-1]
        yield bytes([smf.PROGRAM | channel, program])

    def _other_notes(
        self, track: int, channel: int, remaining: Mapping[int, list[Note]], semitones: int,
        apart: int,
    ) -> defaultdict[int, list[Note]]:  # fmt: skip
        """The file's notes on a channel, by pitch, between which drawn notes of a track fit.

        Those of other tracks are longer by `apart` ticks where a player, which merges tracks in
        their order, would otherwise meet an end after the strike at its tick, and silence that.
        """
        score, found = self._score, defaultdict[int, list[Note]](list)
        for n in np.flatnonzero(score.channel == channel).tolist():
            own, other = (int(score.on_tick[n]), int(score.off_tick[n])), int(score.track[n])
            pitch = fold(int(score.pitch[n]) + semitones, *KEYS)
            sooner, later = apart * (other < track), apart * (other > track)
            notes = remaining.get(n, [own])
            found[int(pitch)] += [(on - sooner, off + later) for on, off in notes]
        return found

    def _encode(
        self, data: bytes, removed: NDArray[np.bool_], added: Mapping[int, list[smf.TimedEvent]],
        end: int | None,
    ) -> bytes:  # fmt: skip
        events, chunks = self._score.events, list[bytes]()
        ends = events.event == 0xFF
        ends[ends] = events.data[events.at[ends]] == smf.END_OF_TRACK
        for track in range(max([len(events.tracks), *(number + 1 for number in added)])):
            of_track = events.track == track
            numbers = np.flatnonzero(of_track & ~removed & ~ends)
            kept = zip(numbers.tolist(), events.ticks[numbers].tolist(), strict=True)
            timed = [(tick, smf.ORIGINAL, _message(events, data, n)) for n, tick in kept]
            last = int(events.ticks[of_track].max(initial=0))
            last = last if end is None else min(last, end)
            chunks.append(smf.track_chunk([*timed, *added.get(track, ())], last))
        kind = 0 if self._score.format == 0 and len(chunks) == 1 else 1
        return smf.midi_file(kind, self._score.division, chunks) + self._score.more


def _commonest(channels: Sequence[int]) -> list[int]:
    """The commonest of them, if there are any."""
    return [channel for channel, _ in Counter(channels).most_common(1)]


def _message(events: smf.Events, data: bytes, number: int) -> bytes:
    event, at = int(events.event[number]), int(events.at[number])
    status = event if event > 127 else int(events.status[number])
    return bytes([status]) + data[at : int(events.end[number])]


def _transposed(events: smf.Events, semitones: int) -> bytes:
    """The file's bytes with all pitches transposed, except drums."""
    data = events.data.copy()
    pitched = (events.status >= smf.NOTE_OFF) & (events.status < smf.CONTROL)
    at = events.at[pitched & (events.status & 15 != DRUM_CHANNEL)]
    if semitones:
        data[at] = fold(np.minimum(data[at], 127) + np.int64(semitones), *KEYS)
    return data.tobytes()


def _between(others: Sequence[Note], on: int, off: int) -> Note:
    """A note that begins after any other sounding then, and ends before the next."""
    for begin, end in sorted(others):
        if begin <= on < end:
            on = end
    return on, min([begin for begin, _ in others if on <= begin < off], default=off)
