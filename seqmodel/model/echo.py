"""The echo: what followed the last time the piece was as it is now.

Music repeats itself, and a recurrent state forgets. So the last frames are looked up in the piece
itself: the longest earlier stretch of frames that equals them, and the frame that followed it. This
is the unbounded context of PPM* (Cleary, Teahan 1997), which the short-term model of Conklin and
Witten (1995) builds from the current piece. The echo depends only on the past, so likelihoods stay
exact. The model reads it alongside its other inputs and learns how far to trust it.
"""

from typing import Any

from seqmodel.kernels.code.language import unrolled

REACH_BACK = 4096
"""The number of frames remembered; earlier ones are forgotten. A power of two."""
MAX_LENGTH = 32
"""The most frames compared; longer stretches count as this long."""
STEPS = (1, 2, 4, 8, 16, 32)
"""The thresholds by which stretch lengths are distinguished: at least this many frames."""
WORD = 64
"""The numbers of a remembered frame that fit in a word, one bit each."""


def echo_size(*, onsets: bool) -> int:
    """E, the number of echo inputs per note."""
    return (3 if onsets else 2) * len(STEPS)


def memory_size(frame_size: int) -> int:
    """K, the integers stored per piece; all are 0 before its first frame.

    They hold the number of frames read; for each of the last REACH_BACK frames, how many frames up
    to and including it equal those at the end of the piece so far, at most MAX_LENGTH; and the
    frames themselves, one bit per number. Frame t is at index t modulo REACH_BACK.
    """
    return 1 + REACH_BACK * (1 + words_of(frame_size))


def words_of(frame_size: int) -> int:
    """The number of words that hold a remembered frame."""
    return -(-frame_size // WORD)


def remember(frame: Any, memory: Any, size: Any, words: int) -> Any:
    """Add a frame of zeros and ones to a piece's memory (K,). A text of `kernels.code.language`.

    Returns where the longest earlier stretch that equals the last frames ends; of several the
    latest, of none -1.
    """
    current = memory[0] % REACH_BACK
    lengths = memory[1:]
    frames = memory[1 + REACH_BACK :]
    for k in unrolled(words):
        frames[current * words + k] = packed(frame[k * WORD :], min(size - k * WORD, WORD))
    longest = 0
    end = -1
    # From the latest to the earliest, so that the run before each still has its previous value.
    for back in range(1, min(memory[0], REACH_BACK - 1) + 1):
        index = (current - back) % REACH_BACK
        length = min(lengths[(index - 1) % REACH_BACK] + 1, MAX_LENGTH)
        for k in unrolled(words):
            length = length if frames[index * words + k] == frames[current * words + k] else 0
        lengths[index] = length
        if length > longest:
            longest = length
            end = index
    lengths[current] = 0
    memory[0] += 1
    return end


def packed(numbers: Any, count: Any) -> Any:
    """A word with one bit for each of `count` numbers, set if the number is not zero."""
    word = 0
    for n in range(count):
        word |= (numbers[n] != 0) << n
    return word


def write_echo(
    out: Any, memory: Any, end: Any, note: Any, notes: Any, halves: int, words: int
) -> None:
    """The echo inputs (E,) of a note after a stretch that ends at `end`; see `remember`.

    Whether the stretch has at least each number of frames in STEPS; the same if the note sounded in
    the frame that followed, else zeros; with two halves, the same if it was struck, else zeros.
    """
    length = memory[1 + end] if end >= 0 else 0
    next_frame = memory[1 + REACH_BACK + (end + 1) % REACH_BACK * words :]
    for k in unrolled(len(STEPS)):
        out[k] = float(length >= STEPS[k])
    for half in unrolled(halves):
        number = half * notes + note
        sounded = float(next_frame[number // WORD] >> number % WORD & 1)
        for k in unrolled(len(STEPS)):
            out[(1 + half) * len(STEPS) + k] = out[k] * sounded
