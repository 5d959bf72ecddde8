"""A unit in settings: its name, or its text, which then includes its name.

A run thus contains its unit: it works without the file, and a changed file is a different setting.
A user's module is `package.module:Class`, which a run only names.
"""

import os
import re
from pathlib import Path

from seqmodel.errors import SeqmodelError, did_you_mean
from seqmodel.files import read_bytes

SUFFIX = ".unit"
MAX_BYTES = 4000
"""The most bytes of a text, which must fit into a value of a YAML file, including its name."""
_NAMED = re.compile(r"^[ \t]*unit[ \t]*:[ \t]*([^\s#]*)", re.MULTILINE)


def read_unit(given: str | Path) -> str:
    """The setting for a name, a file NAME.unit, or a text; SeqmodelError if that cannot be read."""
    given = os.fspath(given)
    if is_text(given):
        return _text(given, "unit", "the unit")
    if not given.endswith(SUFFIX):
        return given
    path = Path(given)
    if not os.path.lexists(path):
        near = did_you_mean(given, map(str, path.parent.glob(f"*{SUFFIX}")))
        known = "; units listed by `seqmodel units` have no suffix"
        raise SeqmodelError(f"there is no file {path}{near or known}")
    try:
        text = read_bytes(path, MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SeqmodelError(f"{path} is not UTF-8 text (byte {error.start:,})") from error
    if "=" not in text:
        raise SeqmodelError(f"{path} has no equation, such as h = phi(W x + U h' + b)")
    return _text(text, path.name.removesuffix(SUFFIX), str(path))


def _text(text: str, name: str, called: str) -> str:
    """The text with lines as they are stored, including its name."""
    if len(text.encode()) > MAX_BYTES:
        raise SeqmodelError(f"{called} is longer than {MAX_BYTES:,} bytes")
    text = "\n".join(text.splitlines()) + "\n"
    return text if _NAMED.search(text) else f"{text}unit: {name}\n"


def is_text(unit: str) -> bool:
    """Whether a setting holds a text, not a name or a path."""
    return "\n" in unit or ("=" in unit and not unit.endswith(SUFFIX))


def is_module(unit: str) -> bool:
    """Whether a setting names a class, package.module:Class."""
    return re.fullmatch(r"[\w.]+:[\w.]+", unit) is not None


def unit_name(unit: str) -> str:
    """The name of a unit in a setting; for a module, the name of its class."""
    if not is_text(unit):
        return unit.rpartition(":")[2]
    named = _NAMED.search(unit)
    return named[1] if named else "unit"
