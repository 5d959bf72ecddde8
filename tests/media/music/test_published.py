"""The published formats of piano-rolls, and files that only pretend to be one."""

import io
import json
import os
import pickle
import re
import struct
import zipfile
import zlib

import numpy as np
import pytest
import scipy.io
from allocation import peak_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from seqmodel.errors import SourceError
from seqmodel.media.input import with_comment
from seqmodel.media.music import published, untrusted
from seqmodel.media.music.published import read_published

ROLL = np.eye(4, 88, dtype=np.uint8)
VOICES = np.array([[60, 64], [60, 65]], float)


def written(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def refusal(path, most):
    """Why a file is refused, in a line and with at most so many bytes."""
    told = []

    def attempt():
        with pytest.raises(SourceError) as caught:
            read_published(path)
        told.append(str(caught.value))

    assert peak_of(attempt) < most
    assert "\n" not in told[0]
    return told[0]


def npy(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def pieces(*some):
    """Pieces as an array of Python objects."""
    array = np.empty(len(some), object)
    for k, piece in enumerate(some):
        array[k] = piece
    return array


def mat(**variables):
    stream = io.BytesIO()
    scipy.io.savemat(stream, {name: pieces(*some) for name, some in variables.items()})
    return stream.getvalue()


def test_mat_and_pickle_hold_the_same_chorales(shared_data):
    """Checks both readers against each other, and their counts against the published ones."""
    from_mat = read_published(shared_data / "music/rolls/JSB_Chorales.mat").splits
    from_pickle = read_published(shared_data / "music/rolls/jsb_chorales.pickle").splits
    for split, pieces, frames in (("train", 229, 13807), ("valid", 76, 4602), ("test", 0, 0)):
        assert len(from_mat[split]) == len(from_pickle[split]) == pieces
        assert sum(map(len, from_mat[split])) == frames
        found = {roll.tobytes() for roll in from_pickle[split]}
        assert found == {roll.tobytes() for roll in from_mat[split]}
    assert from_mat["train"][0].dtype == np.uint8


class Malice:
    """Unpickled in the usual way it would make a file or folder, which shows that code has run."""

    def __init__(self, function, *arguments):
        self.how = function, arguments

    def __reduce__(self):
        return self.how


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_every_protocol_are_read_and_run_nothing(tmp_path, protocol):
    """Guards the stand-ins for NumPy's integers; code in a file is refused, and makes nothing."""
    for number in (int, np.int64, np.int8, np.dtype(">u2").type):
        splits = {"train": [[(number(21), number(108)), ()]], "valid": [[[number(60)]]], "test": []}
        rolls = read_published(written(tmp_path, "a.pickle", pickle.dumps(splits, protocol))).splits
        assert [np.argwhere(roll).tolist() for roll in rolls["train"]] == [[[0, 0], [0, 87]]]
        assert (rolls["train"][0].shape, rolls["valid"][0].shape) == ((2, 88), (1, 88))
    mark = tmp_path / "mark"
    for malice in (Malice(os.mkdir, str(mark)), Malice(eval, f"open({str(mark)!r}, 'w')")):
        path = written(tmp_path, "a.pkl", pickle.dumps({"train": [[malice]]}, protocol))
        with pytest.raises(SourceError, match="asks for"):
            read_published(path)
    assert not mark.exists()


NESTED = b"K\x01" + b"".join(b"\x94h%c\x86" % k for k in range(100)) + b"\x94"
"""A tuple of 1 twice, of that twice, 100 times over: hashing or printing it would never end."""
LONG = pickle.dumps("x" * 100_000, 2)[2:-1]


@pytest.mark.parametrize(
    "opcodes",
    [
        b"cnumpy\ndtype\n(Vi8\ntR(K\x03V\\u003e\ntb.",
        b"\x80\x05\x96\x00\x00\x00\x10\x00\x00\x00\x00.",  # lengths of gigabytes
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"I1\nr\x00\x00\x00\x01.",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93.",  # other names
        b"c__builtin__\neval\n.",
        b"Pperson\n.",
        b"garbage",
        b"\x80",
        b"\x80\x04}" + NESTED + b"]s.",
        b"\x80\x04(" + NESTED + b"]d.",
        b"\x80\x04(" + NESTED + b"\x91.",
        b"\x80\x04\x8f(" + NESTED + b"\x90.",
        b"\x80\x04}\x8c\x05train]](](" + NESTED + b"eaeas.",
        b"\x80\x04}\x8c\x05train" + NESTED + b"s.",
        b"\x80\x04}\x8c\x05train]cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n("
        + NESTED + b"tRK\x01tRas.",
        b"\x80\x04}\x8c\x05train](](](\x8b\x10\x27\x00\x00" + b"\x7f" * 10_000 + b"eeesu.",
        b"\x80\x04" + LONG + b"0(" + b"c_codecs\nencode\nh\x00\x8c\x01l\x86R" * 1000 + b"l.",
    ],
)  # fmt: skip
def test_hostile_pickles(tmp_path, opcodes):
    """Guards against other names, and time or memory out of proportion to the file."""
    assert len(refusal(written(tmp_path, "a.pickle", opcodes), 5e6)) < 200


def test_npz_names_the_splits(tmp_path):
    """Guards the layout of .npz: one array per piece, its split in its name, order kept."""
    stream = io.BytesIO()
    np.savez_compressed(
        stream, train_0=ROLL, train_10=ROLL[:2], train_2=ROLL[:3].astype(float), Valid_a=ROLL,
        val_b=ROLL > 0, **{"test/x": ROLL[:1], "testing_y": ROLL[:2], "other": ROLL},
    )  # fmt: skip
    rolls = read_published(written(tmp_path, "a.npz", stream.getvalue())).splits
    lengths = {split: [len(roll) for roll in pieces] for split, pieces in rolls.items()}
    assert lengths == {"train": [4, 2, 3], "valid": [4, 4], "test": [1, 2], "": [4]}
    assert all(roll.dtype == np.uint8 for pieces in rolls.values() for roll in pieces)
    rolls = read_published(written(tmp_path, "A.NPY", npy(np.asfortranarray(ROLL)))).splits
    assert list(rolls) == [""]  # of no split
    assert np.array_equal(rolls[""][0], ROLL)


def python_2(*voices):
    """A .npy of pieces (T, 4) as NumPy wrote it under Python 2."""

    def array(shape, code, data):
        sizes = (
            b"".join(b"M" + struct.pack("<H", n) for n in shape) + b"\0\x85\x86"[len(shape) :][:1]
        )
        order = b"U\x01" + (b"|" if code == b"O" else b"<")
        flags = b"?" if code == b"O" else b"\0"
        dtype = b"cnumpy\ndtype\n(U" + bytes([len(code)]) + code + b"K\x00K\x01tR(K\x03" + order
        return (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR(K\x01"
            + sizes + dtype + b"NNN" + 2 * b"J\xff\xff\xff\xff" + b"K" + flags + b"tb\x89"
            + data + b"tb"
        )  # fmt: skip

    items = [
        array(one.shape, b"f8", b"T" + struct.pack("<I", one.nbytes) + one.tobytes())
        for one in voices
    ]
    header = npy(pieces(*voices))[:128]
    return header + b"\x80\x02" + array((len(voices),), b"O", b"](" + b"".join(items) + b"e") + b"."


@pytest.mark.parametrize("write", [lambda *some: npy(pieces(*some)), python_2])
def test_the_separate_voices_of_the_chorales(tmp_path, write):
    """Jsb16thSeparated.npz, in use since 2017, was refused: arrays of arrays of four pitches."""
    voices = np.array([[67, 62, 59.0, 43], [67, np.nan, 59, np.nan], [np.nan] * 4, [67, -1, 0, 67]])
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for split, some in (("train", (voices, voices[:2])), ("valid", (voices[:1],))):
            archive.writestr(f"{split}.npy", write(*some))
    path = written(tmp_path, "a.npz", stream.getvalue())
    theirs = np.load(path, allow_pickle=True, encoding="latin1")["train"]
    np.testing.assert_array_equal(theirs[0], voices)
    file = read_published(path)
    lengths = {split: [len(r) for r in rolls] for split, rolls in file.splits.items()}
    assert lengths == {"train": [4, 2], "valid": [1]}
    notes = [(np.flatnonzero(frame) + 21).tolist() for frame in file.splits["train"][0]]
    assert notes == [[43, 59, 62, 67], [59, 67], [], [67]]
    assert (str(file.grid), file.origin) == ("4 steps per beat", "")


def test_the_voices_of_the_chorales_as_json(tmp_path, shared_data):
    """Guards the twin: the same pieces and voices as in the .npz, as its own JSON has them."""
    path = tmp_path / "a.json"
    path.write_text('{"train": [[[67, 62.0, -1, 43], [67, NaN, 0, 67]]], "valid": [[[60]]]}')
    file = read_published(path)
    assert [(np.flatnonzero(f) + 21).tolist() for f in file.splits["train"][0]] == [
        [43, 62, 67],
        [67],
    ]
    assert file.pieces["train"][0].pitches.tolist() == [[67, 62, -1, 43], [67, -1, -1, 67]]
    assert file.pieces["valid"][0].pitches.tolist() == [[60]]
    assert (str(file.grid), file.origin) == ("4 steps per beat", "")
    theirs = shared_data / "music/jsb16/Jsb16thSeparated.json"
    as_json, as_npz = read_published(theirs), read_published(theirs.with_suffix(".npz"))
    values = json.loads(theirs.read_text())
    for roll, other, value in zip(
        as_json.pieces["valid"], as_npz.pieces["valid"], values["valid"], strict=True
    ):
        assert np.array_equal(roll.frames, other.frames)
        assert roll.pitches.tolist() == other.pitches.tolist() == value
        sets = [sorted({p for p in frame if p > 0}) for frame in value]
        assert [(np.flatnonzero(frame) + 21).tolist() for frame in roll.frames] == sets


def test_pieces_as_python_objects(tmp_path):
    """Guards rolls, by column too, and lists of pitches; of many voices only the roll is kept."""
    many = np.full((3, 9), 60.0)
    np.savez(tmp_path / "a.npz", train=pieces(np.asfortranarray(ROLL), [(21,), ()], many, VOICES))
    rolls = read_published(tmp_path / "a.npz").pieces["train"]
    assert np.array_equal(rolls[0].frames, ROLL)
    assert np.argwhere(rolls[1].frames).tolist() == [[0, 0]]
    assert [roll.frames.shape for roll in rolls[1:]] == [(2, 88), (3, 88), (2, 88)]
    assert [roll.frames.sum() for roll in rolls[2:]] == [3, 4]
    assert [roll.pitches is None for roll in rolls] == [True, True, True, False]
    assert rolls[3].pitches.tolist() == VOICES.tolist()


def test_what_a_pickle_repeats_is_not_multiplied(tmp_path):
    """Guards memory against one piece referred to a million times, and against false shapes."""
    for piece in ([(60,)] * 1000, np.full((1000, 4), 60.0)):
        np.savez(tmp_path / "a.npz", train=pieces(*[piece] * 10_000))
        with pytest.raises(SourceError, match="over and over"):
            read_published(tmp_path / "a.npz")
    data = npy(pieces(VOICES)).replace(b"K\x02K\x02\x86", b"K\x02J\xff\xff\xff\x7f\x86")
    with pytest.raises(SourceError, match="damaged NumPy array"):
        read_published(written(tmp_path, "b.npz", zipped("train.npy", data)))


def test_sets_are_known_by_their_lengths(tmp_path, shared_data):
    """Guards the four sets in any format, order and key, finer too, and against any other set."""
    chorales = read_published(shared_data / "music/rolls/JSB_Chorales.mat")
    assert (str(chorales.grid), chorales.origin) == ("1 step per beat", "JSB chorales")
    rolls = chorales.splits["train"]
    for some, grid, origin in (
        ([np.roll(roll, -12, 1).repeat(4, 0) for roll in rolls[::-1]], "4 steps", "JSB chorales"),
        ([rolls[0][:-1], *rolls[1:]], "2 steps", ""),
    ):
        np.savez(tmp_path / "a.npz", **{f"train_{k}": roll for k, roll in enumerate(some)})
        file = read_published(tmp_path / "a.npz")
        assert (str(file.grid), file.origin) == (f"{grid} per beat", origin)


def test_a_comment_in_a_header_is_no_grid(tmp_path):
    """Guards against a guess at what others write there, and against an impossible grid."""
    for comment in ("", "by hand", "4"):
        path = written(tmp_path, "a.npy", with_comment(npy(ROLL), comment))
        assert read_published(path).origin == ""
    data = with_comment(npy(ROLL), '{"steps_per_beat": 0}')
    with pytest.raises(SourceError, match="an impossible grid"):
        read_published(written(tmp_path, "a.npy", data))


def huge_npy():
    """A header that claims 704 GB, and no data."""
    text = repr({"descr": "<f8", "fortran_order": False, "shape": (10**9, 88)}).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def zipped(name, data, packed=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packed) as archive:
        archive.writestr(name, data)
    return stream.getvalue()


def claims(*, cells=1, kind=9, rows=1, data=0, packed=False, cell=True):
    """A .mat of a few bytes whose headers claim `cells` cells with a matrix of `rows` rows."""

    def element(type, content, size=None):
        return struct.pack("<II", type, len(content) if size is None else size) + content

    def array(kind, shape, name, content):
        flags = element(6, struct.pack("<II", kind, 0))
        name = element(1, name.ljust(16, b"\0"), len(name)) if name else element(1, b"")
        return element(14, flags + element(5, struct.pack("<2i", *shape)) + name + content)

    matrix = array(kind, (rows, 88), b"", element(2, b"", data))
    whole = array(1 if cell else kind, (1, cells), b"traindata", matrix)
    if packed:
        whole = element(15, zlib.compress(whole))
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + whole


CALLS_OF_ONE_TUPLE = (
    b"\x80\x02cnumpy\ndtype\nq\x00("
    + b"N" * 50_000
    + b"tq\x01]("
    + b"h\x00h\x01R" * 5000  # each of which would copy its arguments
    + b"e."
)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.npy", b"", "empty"),
        ("a.npy", b"nothing of the kind", "damaged"),
        ("a.npy", npy(ROLL)[:-1], "damaged"),
        ("a.npy", npy(ROLL[:, 1:]), r"\(4, 87\)"),
        ("a.npy", npy(ROLL * 2 + np.eye(4, 88)), "other than 0 and 1"),
        ("a.npy", npy(ROLL * 2), r"a 2 \(held\) in the array where the note is off"),
        ("a.npy", npy(ROLL * np.nan), "other than 0 and 1"),
        ("a.npy", npy(ROLL.astype("U1")), "no numbers"),
        ("a.npy", npy(ROLL[:0]), "0 frames"),
        ("a.npy", huge_npy(), "1000000000 frames"),
        ("a.npy", npy(np.array([ROLL, None], dtype=object), allow_pickle=True), "no numbers"),
        ("a.npy", b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10_000, "damaged array"),
        ("a.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "damaged array"),
        ("a.npy", npy(ROLL).replace(b"(4, 88)", b"(-4,88)"), "damaged array"),
        ("a.npy", npy(ROLL[:1]).replace(b"(1, 88), }   ", b"(True, 88), }"), "damaged array"),
        ("a.npy", npy(ROLL > 0).replace(b"\x01", b"\x07")[6:], "damaged array"),
        ("a.npy", npy((ROLL * 7).view(bool)), "other than 0 and 1"),
        ("a.npz", zipped("train_0.npy", npy(ROLL))[1:], "damaged"),
        ("a.npz", zipped("a.npy", npy(ROLL), zipfile.ZIP_LZMA), "compressed in a way"),
        ("a.npz", zipped("train_0.npy", huge_npy()), "1000000000 frames"),
        ("a.npz", zipped("train.npy", npy(pieces(ROLL, 0))), "no list of frames in piece 1"),
        ("a.npz", zipped("train.npy", npy(pieces(ROLL * 9))), "pitch 9 in piece 0 of train"),
        ("a.npz", zipped("train.npy", npy(pieces(VOICES + 0.5))), "pitch 60.5"),
        ("a.npz", zipped("train.npy", npy(pieces(VOICES + np.inf))), "pitch inf"),
        ("a.npz", zipped("train.npy", npy(pieces(VOICES.astype("U2")))), "only numbers"),
        ("a.npz", zipped("train.npy", npy(pieces(VOICES[0]))), "no list of frames"),
        ("a.npz", zipped("train.npy", npy(pieces(VOICES))[:-60]), "damaged"),
        ("a.npz", zipped("train.npy", npy(pieces(os.mkdir))), "asks for posix.mkdir"),
        (
            "a.npz",
            zipped("a.npy", npy(pieces(ROLL))[:128] + b"]" * 2**23 + b".", zipfile.ZIP_DEFLATED),
            "more than 8 MiB of Python objects",
        ),
        *(
            ("a.pickle", pickle.dumps(content), reason)
            for content, reason in (
                ([1, 2], "dict of splits"),
                ({"extra": []}, "'extra'"),
                ({"train": []}, "no pieces"),
                ({"train": 5}, "'train'"),
                ({"train": [5]}, "piece 0 of train"),
                ({"train": [[5]]}, "frame 0 of piece 0 of train"),
                ({"train": [[(20,)]]}, "pitch 20"),
                ({"train": [[(60.5,)]]}, "pitch 60.5"),
                ({"train": [[]]}, "0 frames"),
                ({"train": {(60,): (64, 67)}}, "not a list of a split's pieces"),
            )
        ),
        ("a.pickle", b"\x80\x02}K\x01a.", "damaged or not a pickle"),  # appends to a dict
        ("a.pickle", CALLS_OF_ONE_TUPLE, "damaged NumPy array"),
        ("a.mat", b"no matlab" * 100, "damaged"),
        ("a.mat", mat(traindata=[ROLL, ROLL])[:-100], "damaged"),
        ("a.mat", mat(traindata=[ROLL, ROLL * 1j]), "no numbers in piece 1"),
        ("a.mat", mat(traindata=[ROLL, ROLL[:0]]), "0 frames in piece 1"),
        ("a.mat", claims(cells=2**31 - 1), "2,147,483,647 cells"),
        ("a.mat", claims(cells=2), "damaged"),
        ("a.mat", claims(kind=4, rows=2**31 - 1), "no numbers"),
        ("a.mat", claims(kind=4, rows=2**31 - 1, packed=True), "no numbers"),
        ("a.mat", claims().replace(struct.pack("<2I", 6, 8), struct.pack("<2I", 6, 0)), "damaged"),
        ("a.mat", claims(rows=10**6), "damaged"),
        ("a.mat", claims(rows=10**5, data=88 * 10**5), "damaged"),
        ("a.mat", claims()[:124] + b"\x00\x02IM", "version 7.3"),
        ("a.mat", mat(other=[ROLL, ROLL]), "none of traindata"),
        ("a.mat", mat(traindata=[ROLL, ROLL * 3]), "other than 0 and 1"),
        ("a.mat", mat(traindata=["text", ROLL]), "no numbers"),
        ("a.mat", claims(cell=False), "no cell array in traindata"),
        ("a.json", b"", "empty"),
        ("a.json", b"{train: 1}", "not valid JSON: Expecting property name"),
        ("a.json", b"\xff", "not valid JSON"),
        ("a.json", b"[" * 10**5, "not valid JSON: nested too deeply"),
        ("a.json", b"[]", "not of a dict of splits"),
        ("a.json", b'{"loss": 0.5}', "holds 'loss', which is not a list of a split's pieces"),
        ("a.json", b'{"train": {"a": 1}}', "holds 'train', which is not a list"),
        ("a.json", b'{"train": [[]]}', "0 frames in piece 0 of train"),
        ("a.json", b'{"train": [[[]]]}', "not one number for each voice"),
        ("a.json", b'{"train": [[[60], [60, 61]]]}', "frames in piece 0 of train that are not one"),
        ("a.json", b'{"train": [[["60"]]]}', "not one number for each voice"),
        ("a.json", b'{"train": [[[true]]]}', "not one number for each voice"),
        ("a.json", b'{"train": [[60]]}', "no list of frames in piece 0 of train"),
        ("a.json", b'{"train": [[[60.5]]]}', "pitch 60.5 in piece 0 of train"),
        ("a.json", b'{"train": [[[1%s]]]}' % (b"0" * 4000), "pitch out of range"),
        ("a.json", b" " * 2**23 + b"{}", "more than 8 MiB of JSON"),
    ],
)
def test_files_that_are_not_published_rolls_are_refused(tmp_path, name, data, reason):
    """Guards against tracebacks, wrong widths, other values, pickled objects, and huge claims."""
    assert re.search(reason, refusal(written(tmp_path, name, data), 2e7))


@pytest.mark.parametrize(("name", "most"), [("a.npz", 1.9e7), ("a.mat", 1e8), ("a.npy", 1.9e7)])
def test_memory_is_that_of_the_rolls(tmp_path, name, most):
    """Guards against numbers of eight bytes unpacked whole: 35 MB for rolls of 4 MB."""
    roll = np.zeros((50_000, 88))
    roll[::7, 5] = 1
    path = tmp_path / name
    if name == "a.npz":
        np.savez_compressed(path, train_0=roll)
    elif name == "a.npy":
        np.save(path, roll)
    else:
        scipy.io.savemat(path, {"traindata": pieces(roll)}, do_compression=True)
    found = []
    assert peak_of(lambda: found.extend(read_published(path).splits.values())) < most
    ((only,),) = filter(None, found)
    assert np.array_equal(only, roll)


def test_a_variable_is_unpacked_to_a_limit(tmp_path, monkeypatch):
    """Guards against a .mat that unpacks to a thousand times its size."""
    monkeypatch.setattr(untrusted, "MAX_UNPACKED", 200)
    path = written(tmp_path, "a.mat", claims(data=88, packed=True) + bytes(8))
    with pytest.raises(SourceError, match="damaged"):
        read_published(path)
    monkeypatch.setattr(untrusted, "MAX_UNPACKED", 100)
    with pytest.raises(SourceError, match="unpacks to more than"):
        read_published(path)


@pytest.mark.parametrize("name", ["a.npz", "a.mat", "a.pickle"])
def test_the_frames_of_a_file_are_limited(tmp_path, name, monkeypatch):
    """Guards against a file that unpacks to a thousand times its size, over all its pieces."""
    monkeypatch.setattr(published, "MAX_FILE_FRAMES", 1000)
    piece = np.zeros((101, 88), np.uint8)

    def write(pieces):
        if name == "a.npz":
            np.savez_compressed(tmp_path / name, *[piece] * pieces)
            return tmp_path / name
        pickled = pickle.dumps({"train": [[(60,) for _ in range(101)] for _ in range(pieces)]})
        data = pickled if name == "a.pickle" else mat(traindata=[piece] * pieces)
        return written(tmp_path, name, data)

    (rolls,) = (rolls for rolls in read_published(write(9)).splits.values() if rolls)
    assert len(rolls) == 9
    with pytest.raises(SourceError, match="more than 1,000 frames"):
        read_published(write(10))


CELLS = st.lists(
    arrays(
        st.sampled_from(["u1", "i2", ">i4", "f4", "f8", "u8", "?"]),
        st.integers(1, 6).map(lambda frames: (frames, 88)),
        elements=st.integers(0, 1),
    ),
    min_size=1,
    max_size=6,
)


@settings(derandomize=True, max_examples=30)
@given(pieces=CELLS, columns=st.integers(1, 3), packed=st.booleans(), other=st.booleans())
def test_mat_is_read_as_scipy_reads_it(tmp_path_factory, pieces, columns, packed, other):
    """Guards our own reader: types, shapes of the cell array, packing, other variables."""
    pieces = pieces * columns
    cells = np.empty(len(pieces), object)
    cells[:] = pieces
    variables = {"validdata": cells.reshape(-1, columns)}
    if other:
        variables = {"x": {"a": 1, "b": "text"}, "y": np.ones((2, 3)), **variables}
    path = tmp_path_factory.mktemp("mat") / "a.mat"
    scipy.io.savemat(path, variables, do_compression=packed)
    expected = scipy.io.loadmat(path)["validdata"].ravel()
    found = read_published(path).splits["valid"]
    assert len(found) == len(expected)
    for roll, cell in zip(found, expected, strict=True):
        assert np.array_equal(roll, cell)
