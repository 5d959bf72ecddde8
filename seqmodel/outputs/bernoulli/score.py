"""The Bernoulli output's score, compiled: from h to nats in one pass, and back in one pass.

The plain path reads and writes the logits a dozen times. Here a block of rows stays in the
L1 cache from the matrix product to the nats, and gradients overwrite the logits.
"""

from typing import Any

from torch import Tensor

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.linear.matmul import matmul
from seqmodel.kernels.run.signature import Array, Signature, packed
from seqmodel.outputs.linear_score import BlockKernel, LinearNats, WeightedNats, rows_of
from seqmodel.outputs.notes.nats import write_nats, write_struck_nats


class BernoulliNats(LinearNats):
    """h (..., H), weight (D, H), bias (D,), frames (..., D) of 0 and 1 -> nats (...).

    `past` (..., D) holds the previous frames if frames have onsets, else it is None.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, frames: Tensor, past: Tensor | None
    ) -> Tensor:
        """The nats; saves their gradient with respect to the logits."""
        kernel, seen = _kernel(frames, past)
        return BernoulliNats.score(ctx, kernel, h, weight, bias, **seen)


class WeightedBernoulliNats(WeightedNats):
    """Like `BernoulliNats`, with weights (...) -> the weighted sum of the frames' nats."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Tensor:
        """The sum; saves the gradients. The rest: frames, past, weights."""
        frames, past, weights = rest
        kernel, seen = _kernel(frames, past)
        return WeightedBernoulliNats.score(ctx, kernel, h, weight, bias, weights, **seen)


def _kernel(frames: Tensor, past: Tensor | None) -> tuple[BlockKernel, dict[str, Tensor]]:
    """The kernel for these frames, and the fields that it reads besides the layer's."""
    if past is None:
        return _FORWARD, {"frames": rows_of(frames)}
    return _ONSETS_FORWARD, {"frames": rows_of(frames), "past": rows_of(past)}


def _write_forward(e: Emitter, f: dict[str, Any], start: Any, rows: Any, *, onsets: bool) -> None:
    H, N = f["H"], f["N"]
    notes = e.builder.lshr(N, e.int(1)) if onsets else N
    logits = e.offset(f["slope"], e.mul(start, N))
    h = e.offset(f["h"], e.mul(start, H))
    matmul(e, h, H, f["weight"], logits, N, rows, H, N, False)
    with e.loop(start, e.add(start, rows)) as r:
        row = e.mul(r, N)
        logits, frame = e.offset(f["slope"], row), e.offset(f["frames"], row)
        places = {"bias": f["bias"], "slopes": logits}
        nats = write_nats(e, notes, logits, frame, **places)
        if onsets:
            past = e.offset(f["past"], row)
            struck = write_struck_nats(e, notes, logits, frame, past, **places)
            nats = e.builder.fadd(nats, struck)
        e.builder.store(nats, e.offset(f["nats"], r))


_SIZES = ("rows", "H", "N")  # N numbers: notes, and with onsets as many strikes
_ARRAYS = (
    Array("h", ("rows", "H")),
    packed("weight", "H", "N"),
    Array("bias", ("N",)),
    Array("frames", ("rows", "N")),
    Array("slope", ("rows", "N")),  # the gradient of a row's nats
    Array("nats", ("rows",)),
)
_FORWARD = BlockKernel(
    Signature("bernoulli_forward", _SIZES, _ARRAYS),
    lambda *args: _write_forward(*args, onsets=False),
)
_ONSETS_FORWARD = BlockKernel(
    Signature("bernoulli_onsets_forward", _SIZES, (*_ARRAYS, Array("past", ("rows", "N")))),
    lambda *args: _write_forward(*args, onsets=True),
)
