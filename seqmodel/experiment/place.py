"""The folder of an experiment: how it is recognised, and what is refused as one."""

from pathlib import Path

from seqmodel.errors import SeqmodelError
from seqmodel.files import SYSTEM_FILES, TEMPORARY, check_writable, disk_error, open_input
from seqmodel.locks import take

JOURNAL = "journal.log"
"""The journal's name in the experiment's folder."""
BEGIN = Path("locks", "begin")
"""The lock under which an experiment begins, which remains: the folder's mark in a database's."""
_FIRST = b'{"op_code":0,'
"""How a journal begins: Optuna's code for a new study."""


def is_experiment(folder: Path) -> bool:
    """Whether a folder bears an experiment's mark: our journal, or the lock of its beginning."""
    return holds_journal(folder) or (folder / BEGIN).is_file()


def holds_journal(folder: Path) -> bool:
    """Whether a folder has a journal that is ours and has begun, if only with part of a line.

    Raises:
        SeqmodelError: if it is a pipe, a device or a folder, or cannot be read.
    """
    path = folder / JOURNAL
    try:
        with open_input(path) as file:
            start = file.read(len(_FIRST))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise disk_error(path, "read", error) from error
    return bool(start) and _FIRST.startswith(start)


def check_place(folder: Path) -> None:
    """Refuse any folder but an experiment's, a new or an empty one, before anything is written.

    Raises:
        SeqmodelError: for such a folder, or one where no files can be written, or locked.
    """
    try:
        foreign = any(not _is_nobodys(path) for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        foreign = False
    except OSError as error:
        raise disk_error(folder, "use", error) from error
    if foreign and not is_experiment(folder):
        raise SeqmodelError(
            f"--out {folder} is not empty and holds no experiment: name a folder of its own"
        )
    check_writable(folder / JOURNAL, lambda file: take(file, folder / JOURNAL, wait=True))


def _is_nobodys(path: Path) -> bool:
    """Whether an entry is a desktop's, or all that an experiment killed at once has written.

    Or what one that begins at this moment tries out.
    """
    if path.name == BEGIN.parent.name and path.is_dir():
        return not any(path.iterdir())
    if path.name == JOURNAL and path.is_file():
        return not path.stat().st_size
    return bool(SYSTEM_FILES.fullmatch(path.name) or TEMPORARY.fullmatch(path.name))
