"""`seqmodel sample` asked for what a run of audio, or of music, cannot do: one-line errors."""

from pathlib import Path

import numpy as np
import pytest
from calling import Call
from test_sample_audio_command import record

from seqmodel.media.audio import sampling

TRAINED = "{audio} was trained on audio (8,000 Hz, frames of 10 samples, context 20)"
MUSIC = "{run} was trained on music (88 notes, 4 steps per beat)"
NOT_AS = "take one of wav, flac, raw, npy, png, or another run with --run"
LONGEST = "asks for more than the 2,147,483,629 samples of the longest WAV (74:33:55 at 8,000 Hz)"
MISTAKES = {
    "o.mid --run {audio}": (2, f"{TRAINED}, which cannot be written as mid: {NOT_AS}"),
    "- --format mid --run {audio}": (2, f"{TRAINED}, which cannot be written as mid: {NOT_AS}"),
    "o.raw --run {run}": (
        2,
        f"{MUSIC}, which cannot be written as raw: take one of mid, wav, flac, ogg, mp3, npy, png, "
        "or another run with --run",
    ),
    "o.mp3 --run {audio}": (2, f"{TRAINED}, which cannot be written as mp3: {NOT_AS}"),
    "o.wav --tempo 90 --run {audio}": (2, "--tempo is for music, and " + TRAINED),
    "o.wav --prime x.mid --run {audio}": (
        2,
        f"{TRAINED} and cannot continue x.mid: --prime must be audio too",
    ),
    "o.mid --prime x.wav --run {run}": (
        2,
        f"{MUSIC} and cannot continue x.wav: --prime must be music too",
    ),
    "o.wav --prime nope.wav --run {audio}": (1, "--prime nope.wav: no such file or directory"),
    "o.wav --prime {audio} --run {audio}": (1, "--prime {audio}: is a directory"),
    "o.wav --prime text.wav --run {audio}": (
        1,
        "--prime text.wav: cannot be read as audio (format not recognised)",
    ),
    "o.wav --prime short.wav --run {audio}": (
        1,
        "--prime short.wav: is shorter than a frame of 10 samples",
    ),
    "o.wav --prime nope.npy --run {audio}": (1, "--prime nope.npy: no such file or directory"),
    "o.wav --prime text.npy --run {audio}": (
        1,
        "--prime text.npy: is damaged or not a .npy file of numbers",
    ),
    "o.wav --prime pickle.npy --run {audio}": (
        1,
        "--prime pickle.npy: is damaged or not a .npy file of numbers",
    ),
    "o.wav --prime cut.npy --run {audio}": (
        1,
        "--prime cut.npy: is damaged or not a .npy file of numbers",
    ),
    "o.wav --prime archive.npy --run {audio}": (
        1,
        "--prime archive.npy: is damaged or not a .npy file of numbers",
    ),
    "o.wav --prime roll.npy --run {audio}": (
        1,
        "--prime roll.npy: holds uint8 of shape (5, 88), not samples of shape (T, 10), the frames "
        "of the run",
    ),
    "o.wav --prime none.npy --run {audio}": (
        1,
        "--prime none.npy: holds float32 of shape (0, 10), not samples of shape (T, 10), the "
        "frames of the run",
    ),
    "o.wav --prime nan.npy --run {audio}": (
        1,
        "--prime nan.npy: holds values that are not samples in [-1, 1]",
    ),
    "o.wav --prime loud.npy --run {audio}": (
        1,
        "--prime loud.npy: holds values that are not samples in [-1, 1]",
    ),
    "o.mid --prime none.npy --run {run}": (
        1,
        "--prime none.npy: holds an array of shape (0, 10) in the array, not (T, 88)",
    ),
    "o.wav --seconds inf --run {audio}": (2, f"--seconds {LONGEST}"),
    "o.wav --seconds 268435.5 --run {audio}": (2, f"--seconds {LONGEST}"),
    "o.flac --length 214748363 --run {audio}": (2, f"--length {LONGEST}"),
    "o.wav --length 214748362 --prime fine.wav --include-prime --run {audio}": (
        2,
        f"--include-prime {LONGEST}",
    ),
    "o.wav --temperature inf --run {audio}": (2, "--temperature must be finite, not inf"),
    "- --format raw -n 2 --run {audio}": (2, "-n above 1 needs a file name, not stdout"),
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_a_one_line_error(
    command: str, call: Call, run: Path, audio_run_folder: Path, here: Path
):
    """Guards against tracebacks, vague errors, wrong exit statuses and leftover files."""
    record("short.wav", 9)
    record("fine.wav", 40)
    Path("text.wav").write_text("no sound")
    Path("text.npy").write_text("no array")
    np.save("roll.npy", np.zeros((5, 88), np.uint8))
    np.save("none.npy", np.zeros((0, 10), np.float32))
    np.save("nan.npy", np.full((3, 10), np.nan, np.float32))
    np.save("loud.npy", np.full((3, 10), 1.5))
    np.save("pickle.npy", np.array([{}], object), allow_pickle=True)
    np.savez("archive.npz", np.zeros((3, 10), np.float32))
    Path("archive.npz").rename("archive.npy")
    Path("cut.npy").write_bytes(Path("loud.npy").read_bytes()[:-1])
    before = sorted(here.iterdir())
    paths = {"audio": audio_run_folder, "run": run}
    status, line = MISTAKES[command]
    result = call("sample", *(word.format(**paths) for word in command.split()))
    assert (result.err, result.status) == (f"seqmodel: {line.format(**paths)}\n", status)
    assert result.out == ""
    assert sorted(here.iterdir()) == before


def test_a_primer_too_long_for_memory_is_refused(
    call: Call, audio_run_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Guards against reading a day of sound into memory."""
    record("p.wav", 20_000)
    monkeypatch.setattr(sampling, "MAX_PRIMER_SAMPLES", 16_000)
    result = call("sample", "o.wav", "--prime", "p.wav", "--run", audio_run_folder)
    assert (result.status, result.err) == (
        1,
        "seqmodel: --prime p.wav: is longer than 0:02; add --prime-seconds\n",
    )
