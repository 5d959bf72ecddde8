"""The files of a run, in its folder or in a zip that `seqmodel export` wrote.

A path through a zip, such as run.zip/best.safetensors, names a file in it, so that readers need not
distinguish the two. Zips are untrusted: they are read into memory only if they hold nothing but
what `export` writes, with sizes checked first.
"""

import os
import shlex
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqmodel import plain
from seqmodel.config import Config, read_config_file
from seqmodel.errors import SeqmodelError
from seqmodel.files import disk_errors, open_input, read_bytes
from seqmodel.plain import Fields

RUNS = Path("runs")
"""Where runs are stored by default, under the working directory."""
CONFIG, METRICS, CURVE = "config.yaml", "metrics.jsonl", "learning-curve.png"
BEST, LAST = "best.safetensors", "last.safetensors"
DRAWS = "draws"
"""The folder of a search's trials, numbered, within its own."""
IN_EXPERIMENT, PAGE = "runs/*/*/*", "report.html"
"""Where the folder that `seqmodel compare` wrote has its runs, and the page on all of them."""
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


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """A run's metrics at each look at valid, after epochs or within them, a dictionary each."""
    path, epochs = folder / METRICS, []
    if not has_file(path):
        return []
    for number, text in enumerate(read_file(path).splitlines(), 1):
        try:
            line = Fields.of(plain.parse(text))
            needed = ("epoch", "valid_nats_per_frame", "train_nats_per_frame", "updates", "seconds")
            for name in dict.fromkeys((*needed, *line.values)):  # in order: always the same error
                line.number(name)
        except ValueError as error:
            retry = f"delete it; {resume_command(folder)} writes it again"
            advice = "get the zip again" if folder.is_file() else retry
            raise SeqmodelError(f"{path} is damaged: line {number}: {error}; {advice}") from error
        epochs.append(dict(line.values))
    return epochs


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
        with disk_errors("read", path), open_input(path) as file:
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


def resume_command(folder: object, options: str = "") -> str:
    """The command that resumes the run in a folder, in backquotes, to be pasted into a shell."""
    return f"`seqmodel train --resume --run {shlex.quote(str(folder))}{options}`"


# ---- which run a command means -------------------------------------------------------------------


def checkpoint_of(folder: Path) -> Path:
    """The checkpoint to predict with: the best, or the last before valid has been scored.

    SeqmodelError if there is no run or no checkpoint; to be told before torch is loaded.
    """
    from seqmodel.data.dataset import MANIFEST  # loads NumPy

    if has_file(folder / BEST):
        return folder / BEST
    if not folder.is_dir():
        nested = RUNS / folder
        is_there = any((nested / name).is_file() for name in (BEST, LAST))
        hint = f"; there is one named {nested}" if is_there else ""
        raise SeqmodelError(f"there is no run {folder}{hint}")
    if (folder / MANIFEST).is_file():
        raise SeqmodelError(f"{folder} is a dataset: name a run that was trained on it")
    if not (folder / LAST).is_file():
        advice = "train one with `seqmodel train`"
        if (folder / DRAWS).is_dir():
            advice = f"{resume_command(folder)} continues its search"
        found = (*folder.glob(f"*/{BEST}"), *folder.glob(f"{IN_EXPERIMENT}/{BEST}"))
        for file in sorted(found)[:1]:
            page = folder / PAGE
            or_page = f", or open {page}" * page.is_file()
            advice = f"name a run in it, such as {file.parent}{or_page}"
        raise SeqmodelError(f"{folder} has no checkpoint ({BEST}); {advice}")
    return folder / LAST


def newest_resumable_run(runs: Path = RUNS, data: Path | None = None) -> Path:
    """The run folder in `runs`, on the dataset `data` if given, that training wrote to last.

    It may lack a best checkpoint, or be an unfinished search. SeqmodelError if there is none.
    """
    latest = {}
    for config in runs.glob(f"*/{CONFIG}"):
        folder, settings = config.parent, settings_in(config)
        saved = [*folder.glob(LAST), *folder.glob(f"{DRAWS}/*/{LAST}")]
        if data is not None and (settings is None or settings.data != str(data.resolve())):
            continue
        if saved or (settings is not None and settings.trials):
            latest[folder] = max(map(modified, [config, *saved]))
    if not latest and data is not None and not data.exists():
        raise SeqmodelError(f"there is no run or dataset {data} to resume")
    if not latest and data is not None:
        raise SeqmodelError(f"no run on {data} in {runs}/ to resume; name one with --run")
    if not latest:
        raise no_run(runs)
    return max(latest, key=lambda folder: latest[folder])


def settings_in(config: Path) -> Config | None:
    """The settings in a run's config file; None if it cannot be read."""
    try:
        return Config(**read_config_file(config))
    except SeqmodelError:
        return None


def modified(file: Path) -> int:
    """When a file was last written, in nanoseconds."""
    return file.stat().st_mtime_ns


def run_names(folders: Sequence[Path]) -> str:
    """The run's folder, or a name for the average of several runs."""
    return str(folders[0]) if len(folders) == 1 else f"the average of {len(folders)} runs"


def no_run(runs: Path) -> SeqmodelError:
    """The one-line error of a command that was given no run and finds none."""
    return SeqmodelError(f"no run in {runs}/; train one with `seqmodel train`, or name its folder")
