"""The echo: what followed the last time the piece was as it is now.

Music repeats itself, and a recurrent state forgets. So the last frames are looked up in the piece
itself: the longest earlier stretch of frames that equals them, and the frame that followed it. This
is the unbounded context of PPM* (Cleary, Teahan 1997), which the short-term model of Conklin and
Witten (1995) builds from the current piece. It depends on the past alone, so likelihoods stay
exact. The model reads it alongside its other inputs and learns how far to trust it.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

REACH_BACK = 4096
"""Frames that are remembered; earlier ones are forgotten."""
LONGEST = 32
"""Frames up to which stretches are compared; longer ones count as this long."""
STEPS = (1, 2, 4, 8, 16, 32)
"""Lengths of a stretch that are distinguished: at least this many frames."""
WORD = 64
"""Numbers of a remembered frame that fit in a word, one bit each."""


def echo_size(*, onsets: bool) -> int:
    """E, the number of echo inputs per note."""
    return (3 if onsets else 2) * len(STEPS)


def memory_size(frame_size: int) -> int:
    """K, the size of a piece's memory; see `start_memory`."""
    return 1 + REACH_BACK * (1 + words_of(frame_size))


def start_memory(batch_size: int, frame_size: int, device: torch.device) -> Tensor:
    """The memory (B, K) of pieces before their first frame, int64.

    It holds how many frames have been read; for each of the last REACH_BACK, how many frames up to
    and including it equal as many at the end of the piece so far, at most LONGEST; and these
    frames, one bit per number. Frame t is at index t modulo REACH_BACK.
    """
    return torch.zeros(batch_size, memory_size(frame_size), dtype=torch.int64, device=device)


def remember(memory: Tensor, frame: Tensor) -> Tensor:
    """The memory (B, K) with `frame` (B, F), of zeros and ones, added."""
    heard, runs, frames = _parts(memory)
    place, word = heard % REACH_BACK, _packed(frame)
    places = torch.arange(REACH_BACK, device=memory.device)
    same = (frames == word.unsqueeze(1)).all(2) & (places < heard)
    longer = (runs.roll(1, 1) + 1).clamp(max=LONGEST)
    runs = longer.masked_fill(~same, 0).scatter(1, place, 0)
    at = place.unsqueeze(2).expand(-1, 1, word.shape[1])
    frames = frames.scatter(1, at, word.unsqueeze(1))
    return torch.cat([heard + 1, runs, frames.flatten(1)], 1)


def followed(memory: Tensor, frame_size: int) -> tuple[Tensor, Tensor]:
    """What followed the longest stretch that equals the last frames; the latest wins a tie.

    Returns the frame (B, F), boolean, and the length of the stretch (B, 1); a length of 0 means
    that there is none, and the frame is empty.
    """
    heard, runs, frames = _parts(memory)
    places = torch.arange(REACH_BACK, device=memory.device)
    age = (heard - 1 - places) % REACH_BACK
    best = (runs * REACH_BACK - age).argmax(1, keepdim=True)
    length = runs.gather(1, best)
    after = ((best + 1) % REACH_BACK).unsqueeze(2).expand(-1, 1, frames.shape[2])
    bits = frames.gather(1, after).transpose(1, 2) >> torch.arange(WORD, device=memory.device)
    return ((bits & 1).flatten(1)[:, :frame_size] * (length > 0)).bool(), length


def echo_inputs(frame: Tensor, length: Tensor, *, onsets: bool) -> Tensor:
    """The echo inputs (N D, E) from N frames (N, F) that followed stretches of `length` (N, 1).

    For each note: whether the stretch has at least each number of frames in STEPS; the same if the
    note sounded in the frame, else zeros; with `onsets`, the same if it was struck, else zeros.
    """
    known = length >= torch.tensor(STEPS, device=length.device)  # (N, steps)
    halves = frame.chunk(2, 1) if onsets else (frame,)
    told = [known.unsqueeze(1).expand(-1, halves[0].shape[1], -1)]
    told += [known.unsqueeze(1) & half.unsqueeze(2) for half in halves]
    return torch.cat(told, 2).flatten(0, 1)


def words_of(frame_size: int) -> int:
    """How many words hold a remembered frame."""
    return -(-frame_size // WORD)


def _parts(memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The frame count (B, 1), the runs (B, REACH_BACK) and frames (B, REACH_BACK, words)."""
    heard, runs, words = torch.tensor_split(memory, (1, 1 + REACH_BACK), 1)
    return heard, runs, words.reshape(len(memory), REACH_BACK, -1)


def _packed(frame: Tensor) -> Tensor:
    """Zeros and ones (B, F) as words (B, words)."""
    B, size = frame.shape
    bits = F.pad(frame != 0, (0, words_of(size) * WORD - size)).view(B, -1, WORD)
    return (bits.long() << torch.arange(WORD, device=frame.device)).sum(2)
