"""The files of a run, in its folder or in a zip that `seqmodel export` wrote.

A path through a zip, such as run.zip/best.safetensors, names a file in it, so that readers need not
distinguish the two. Zips are untrusted: they are read into memory only if they hold nothing but
what `export` writes, with sizes checked first.
"""

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqmodel.errors import SeqmodelError
from seqmodel.files import disk_error, open_input, read_bytes

CONFIG, METRICS, CURVE = "config.yaml", "metrics.jsonl", "learning-curve.png"
BEST, LAST = "best.safetensors", "last.safetensors"
VALID_PIECES = "valid_pieces"
"""The key in a line of metrics for the number of scored pieces of valid, unless all were scored."""
CARD = "README.md"
"""In a zip: a description of the run for people."""
IN_ZIP = (CARD, CONFIG, METRICS, BEST)
ZIP_MAGIC = b"PK\3\4"
"""The first bytes of a zip that is not empty."""
MAX_BYTES, MAX_RATIO = 1 << 30, 100
"""The maximum total size of a zip's files, in bytes and as a multiple of its own size: repetitive
text compresses to a tenth, weights hardly at all; a zip bomb to a thousandth."""


def epochs_of(metrics: Sequence[Mapping[str, Any]]) -> float:
    """The number of epochs before the last line of a run's metrics."""
    return metrics[-1]["epoch"] if metrics else 0


def has_file(path: Path) -> bool:
    """Whether a run has the file; SeqmodelError for a zip that `export` did not write."""
    if not path.parent.is_file():
        return path.is_file()
    with _opened(path.parent) as archive:
        return path.name in archive.namelist()


def read_file(path: Path) -> bytes:
    """The bytes of a run's file; SeqmodelError if it cannot be read."""
    if not path.parent.is_file():
        return read_bytes(path)
    with _opened(path.parent) as archive, archive.open(path.name) as file:
        size = archive.getinfo(path.name).file_size
        # Without a size, zipfile unpacks everything, however much, before it compares.
        content = file.read(size)
        if len(content) != size:
            raise EOFError
        return content


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Yield a zip that is safe to read; SeqmodelError, also in the block, if it is not."""
    try:
        with open_input(path) as file:
            if file.read(len(ZIP_MAGIC)) != ZIP_MAGIC:
                raise SeqmodelError(
                    f"{path} is not a run: name a run folder, or a zip that `seqmodel export` wrote"
                )
            with zipfile.ZipFile(file) as archive:
                for objection in _objections(archive.infolist(), os.fstat(file.fileno()).st_size):
                    raise SeqmodelError(
                        f"{path} is not a zip that `seqmodel export` wrote: {objection}"
                    )
                yield archive
    except SeqmodelError:
        raise
    except OSError as error:
        raise disk_error(path, "read", error) from error
    except Exception as error:  # a damaged archive makes zipfile raise nearly anything
        raise SeqmodelError(f"{path} is damaged (cut short or changed); get it again") from error


def _objections(members: list[zipfile.ZipInfo], size: int) -> Iterator[str]:
    """Reasons why `export` did not write a zip of `size` bytes, if any."""
    names = [member.orig_filename for member in members]  # `filename` would end at a NUL byte
    for name, member in zip(names, members, strict=True):
        if name not in IN_ZIP:
            yield f"it holds {name!r:.60}"
        if names.count(name) > 1:
            yield f"it holds {name} twice"
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            yield f"{name} is compressed in another way"
    if BEST not in names:
        yield f"it holds no {BEST}"
    total = sum(member.file_size for member in members)
    if total > min(MAX_BYTES, MAX_RATIO * size):
        yield f"its {size:,} bytes claim to hold {total:,}"
