"""Zips from strangers: one line that says why, nothing unpacked, no more memory than they take."""

import os
import struct
import warnings
import zipfile
from contextlib import suppress

import pytest
import refusals as errors
from allocation import peak_of

from seqmodel.errors import SeqmodelError
from seqmodel.runs.files import BEST, CARD, METRICS
from seqmodel.runs.folder import load_run, read_metrics

CENTRAL, LOCAL = b"PK\1\2", b"PK\3\4"


@pytest.fixture(scope="module")
def weights(run_folder):
    return (run_folder / BEST).read_bytes()


@pytest.fixture
def path(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in" / "run.zip"


@pytest.fixture
def make(path, weights):
    """A function that writes run.zip: the weights, and further members (name or ZipInfo, bytes)."""

    def make(*more, best=weights, packed=zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(path, "w", packed) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names given twice
            for name, content in (((BEST, best),) if best is not None else ()) + more:
                archive.writestr(name, content)
        return path

    return make


def refused(path, *parts):
    """Both ways in refuse it, and leave nothing behind."""
    before = sorted(path.parent.parent.rglob("*"))
    errors.refused(lambda: load_run(path), path, *parts)
    errors.refused(lambda: read_metrics(path), path, *parts)
    assert sorted(path.parent.parent.rglob("*")) == before


FOREIGN = [f"../{BEST}", f"/tmp/{BEST}", f"run/{BEST}", "run/", "payload.py", "a\nb", "x" * 5000]


@pytest.mark.parametrize(
    ("members", "options", "says"),
    [
        *(([(name, b"x")], {}, "it holds '") for name in FOREIGN),
        ([(BEST, b"x")], {}, "it holds best.safetensors twice"),
        ([(CARD, b"hello")], {"best": None}, "it holds no best.safetensors"),
        ([], {"packed": zipfile.ZIP_LZMA}, "best.safetensors is compressed in another way"),
    ],
)
def test_what_export_never_writes_is_refused(make, members, options, says):
    """Paths that lead elsewhere, files that nobody expects, LZMA, which can ask for gigabytes."""
    path = make(*members, **options)
    refused(path, "is not a zip that `seqmodel export` wrote: ", says)


def test_a_name_is_compared_beyond_its_zero_byte(make):
    """zipfile ends names there, so that two programs would see different files."""
    path = make((f"{CARD}_.py", b"x"))
    path.write_bytes(path.read_bytes().replace(f"{CARD}_".encode(), f"{CARD}\0".encode()))
    refused(path, "it holds 'README.md\\x00.py'")


def patched(path, signature, at, form, value, which=0):
    """Change a field of the header of member `which`, counted from the last."""
    content = bytearray(path.read_bytes())
    place = len(content)
    for _ in range(which + 1):
        place = content.rindex(signature, 0, place)
    struct.pack_into(form, content, place + at, value)
    path.write_bytes(content)
    return path


def test_a_bomb_is_refused_before_it_is_unpacked(make):
    """50 MB of zeros in 50 kB, also if it claims to be small: zipfile unpacks, then compares."""
    path = make((METRICS, bytes(50_000_000)))
    assert path.stat().st_size < 75_000
    says = "bytes claim to hold 50,"
    assert peak_of(lambda: errors.refused(lambda: read_metrics(path), says)) < 2_000_000
    patched(patched(path, LOCAL, 22, "<I", 10), CENTRAL, 24, "<I", 10)
    says = "run.zip is damaged (cut short or changed)"
    assert peak_of(lambda: errors.refused(lambda: read_metrics(path), says)) < 2_000_000


def test_sizes_are_what_they_claim_and_no_more_than_any_stream_packs(make):
    """Members that share their bytes count each time."""
    refused(patched(make(), CENTRAL, 24, "<I", 2**32 - 2), "bytes claim to hold")
    path = make((METRICS, bytes(80_000)), (CARD, bytes(80_000)), best=bytes(80_000))
    refused(path, "bytes claim to hold 240,000")
    path = patched(make((METRICS, b"{}\n" * 100)), CENTRAL, 24, "<I", 400)
    errors.refused(lambda: read_metrics(path), "is damaged")


def test_a_zip_cut_short_anywhere_is_refused(make):
    path = make()
    content = path.read_bytes()
    for cut in [*range(4, 60, 5), *range(60, len(content), 601), *range(-60, 0, 5)]:
        path.write_bytes(content[:cut])
        errors.refused(lambda: load_run(path), "run.zip is damaged (cut short or changed)")


def test_a_changed_byte_changes_nothing_or_is_refused(make, weights, run, rolls):
    content = make(best=weights, packed=zipfile.ZIP_STORED).read_bytes()
    expected, path = run.nll(rolls["valid"][1]), make()
    for place in [*range(0, 80, 3), *range(80, len(content), 997), *range(-90, 0, 3)]:
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with suppress(SeqmodelError):
            assert (load_run(path).nll(rolls["valid"][1]) == expected).all(), place


def test_what_is_no_zip_is_no_run(path):
    for content in (b"", b"P", b"hello\n", b"PK\5\6" + bytes(18), b"\x89PNG\r\n\x1a\n"):
        path.write_bytes(content)
        refused(path, "is not a run: name a run folder, or a zip that `seqmodel export` wrote")


def test_a_pipe_does_not_block(path):
    os.mkfifo(path)
    errors.refused(lambda: load_run(path), "there is no run")
