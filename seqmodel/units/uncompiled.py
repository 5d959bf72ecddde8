"""What torch.compile calls between its graphs. Imported only while tracing: the import is slow."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch

_REASON = (
    "seqmodel's compiled loops, torch's own layers and ragged batches are not part of a graph: "
    "leave out fullgraph, or use backend='reference' without lengths"
)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


_takes_reason = "reason" in signature(torch.compiler.disable).parameters  # not in torch 2.6
uncompiled: Callable[..., Any] = torch.compiler.disable(  # type: ignore[no-untyped-call]
    _call, **({"reason": _REASON} if _takes_reason else {})
)
"""uncompiled(function, *args) is function(*args), left out of torch.compile's graphs."""
