"""Sound files checked with soundfile, NumPy and the rules of the Ogg format."""

import io

import numpy as np
import pytest
import soundfile

from seqmodel.errors import UsageError
from seqmodel.media.sound import check_encoder, write_sound

RATE = 44_100
TONE = (0.3 * np.sin(np.arange(5 * RATE) * 0.05)).astype(np.float32)
LEVELS = np.rint(TONE * 32_768)


def written(kind):
    buffer = io.BytesIO()
    write_sound(kind, buffer, np.array_split(TONE, 7), RATE, len(TONE))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("kind", "container", "error"),
    [("wav", "WAV", 0), ("flac", "FLAC", 0), ("ogg", "OGG", 0.01), ("mp3", "MP3", 0.01)],
)
def test_every_kind_reads_back(kind, container, error):
    """Guards the rate, the length and the sound of each format; two of them are lossy."""
    data = written(kind)
    info = soundfile.info(io.BytesIO(data))
    assert (info.format, info.samplerate, info.channels) == (container, RATE, 1)
    sound, _ = soundfile.read(io.BytesIO(data))
    assert len(sound) == len(TONE)
    middle = slice(RATE, 4 * RATE)  # lossy ones are rough where the tone starts and stops
    assert np.abs(sound - LEVELS / 32_768)[middle].max() <= error


def pages(data):
    """The pages of an Ogg file, according to RFC 3533."""
    while data:
        assert data[:4] == b"OggS"
        end = 27 + data[26] + sum(data[27 : 27 + data[26]])
        yield data[:end]
        data = data[end:]


def test_a_libsndfile_that_cannot_encode_is_reported_beforehand(monkeypatch):
    """Guards against a traceback from libsndfile 1.0 once everything has been sampled."""
    new = soundfile.SoundFile

    def old(*given, format, **options):
        if format != "FLAC":
            raise soundfile.LibsndfileError(1)
        return new(*given, format=format, **options)

    monkeypatch.setattr(soundfile, "SoundFile", old)
    monkeypatch.setattr(soundfile, "__libsndfile_version__", "1.0.31")
    for kind in ("wav", "raw", "npy", "png", "flac"):
        check_encoder(kind)
    for kind in ("ogg", "mp3"):
        with pytest.raises(UsageError, match=rf"libsndfile 1\.0\.31 cannot write {kind} .*wav"):
            check_encoder(kind)
