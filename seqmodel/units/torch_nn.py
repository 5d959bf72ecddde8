"""torch's own layers (cuDNN on a GPU) as a backend for the three units that torch.nn has.

Our stacked weights are rearranged into torch's flat ones, and torch's into ours:

| unit            | our gates  | torch's    | torch's biases b_ih and b_hh   |
|-----------------|------------|------------|--------------------------------|
| tanh            | h          | h          | b and 0                        |
| lstm-nopeephole | i, f, c, o | i, f, g, o | b and 0                        |
| gru-reset-after | z, r, n    | r, z, n    | b and (0, 0, bU)               |
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.backends.cudnn import rnn as cudnn_rnn
from torch.backends.cudnn.rnn import get_cudnn_mode
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqmodel.units import UNITS, specification
from seqmodel.units.definition import UnitSpec
from seqmodel.units.specification import Backend, Case, Weights, opaque_reason

_LAYERS = {"tanh": "RNN", "lstm-nopeephole": "LSTM", "gru-reset-after": "GRU"}


def unsupported_reason(case: Case) -> str | None:
    """Why torch's layers cannot run the case; None if they can."""
    name, device = case.spec.name, case.device.type
    if device not in ("cpu", "cuda"):
        return f"it runs on cpu and cuda, not on {device}"
    if name not in _LAYERS or case.spec is not UNITS[name]:  # a text may use the name too
        return f"torch.nn has layers for {', '.join(_LAYERS)}, not for {name}"
    if name == "tanh":
        if case.activation not in ("tanh", "relu"):
            return f"torch.nn.RNN has no activation {case.activation}"
    elif (case.gate_activation, case.activation) != ("sigmoid", "tanh"):
        return f"torch.nn.{_LAYERS[name]} has sigmoid gates and tanh only"
    return opaque_reason(case)


def run(
    case: Case, weights: Weights, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """See `specification.run`. First derivatives only: cuDNN has no others."""
    frames = x.shape[1] if lengths is None else int(lengths.sum())
    if not frames:  # torch's layers reject an empty batch
        return specification.run(case, weights, x, state, lengths)
    name = case.spec.name
    mode = f"rnn_{case.activation}" if name == "tanh" else _LAYERS[name].lower()
    flat, recorded = flat_weights(case.spec, weights), torch.is_grad_enabled()
    if lengths is None or int(lengths.min()) > 0:
        h, *final = _Layer.apply(recorded, mode, lengths, x, *state, *flat)  # type: ignore[no-untyped-call]
        return h, tuple(final)
    # Packed sequences need at least one frame: rows of length 0 are left out.
    rows = lengths.nonzero().squeeze(1)
    h = x.new_zeros(*x.shape[:2], state[0].shape[1])
    kept_rows = rows.to(x.device)
    states = (tensor.index_select(0, kept_rows) for tensor in state)
    arguments = lengths[rows], x.index_select(1, kept_rows), *states, *flat
    outputs, *final = _Layer.apply(recorded, mode, *arguments)  # type: ignore[no-untyped-call]
    return h.index_copy(1, kept_rows, outputs), tuple(
        first.index_copy(0, kept_rows, last) for first, last in zip(state, final, strict=True)
    )


BACKEND = Backend("torch-nn", unsupported_reason, run)


def flat_weights(spec: UnitSpec, weights: Weights) -> list[Tensor]:
    """w_ih, w_hh and any biases b_ih and b_hh, as differentiable functions of our weights."""
    b, b_u = weights["b"], weights["bU"]
    flat = [reordered(spec, w) for w in (weights["W"], weights["U"], b) if w is not None]
    if b is not None:  # b_hh is zero except for any bU, which belongs to the last gate
        flat.append(torch.zeros_like(b) if b_u is None else F.pad(b_u, (len(b) - len(b_u), 0)))
    return flat


def reordered(spec: UnitSpec, stacked: Tensor) -> Tensor:
    """The weights of all gates, from our order into torch's or back."""
    if spec.name != "gru-reset-after":
        return stacked
    first, second, third = stacked.chunk(3)
    return torch.cat([second, first, third])


class _Layer(torch.autograd.Function):
    """h (T, B, H) and the final states (B, H), from x, the initial states and the flat weights.

    `_call`'s graph is recorded and differentiated separately: only this way does the backward pass
    run within `_full_precision` too.
    """

    @staticmethod
    def forward(
        ctx: Any, record: bool, mode: str, lengths: Tensor | None, x: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """Run the layer; its graph is `record` unless no gradient is needed."""
        needed = [record and needs for needs in ctx.needs_input_grad[3:]]
        inputs = _leaves(mode, needed, x, *tensors)
        with torch.set_grad_enabled(any(needed)), _full_precision(x):
            outputs = _call(mode, lengths, *inputs)
        ctx.graph = inputs, outputs
        ctx.set_materialize_grads(False)
        return tuple(output.detach() for output in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of x, the initial states and the flat weights."""
        if torch.is_grad_enabled():  # the graph recorded here ends at copies of the inputs
            raise RuntimeError(
                "the torch-nn backend has no second derivatives; use the reference backend"
            )
        inputs, outputs = ctx.graph
        seeds = {output: g for output, g in zip(outputs, gradients, strict=True) if g is not None}
        with _full_precision(inputs[0]):
            grads = torch.autograd.grad(
                list(seeds),
                [tensor for tensor in inputs if tensor.requires_grad],
                list(seeds.values()),
                retain_graph=True,  # may be called again; freed with `ctx`
                allow_unused=True,
            )
        rest = iter(grads)
        input_grads = [next(rest) if tensor.requires_grad else None for tensor in inputs]
        return None, None, None, *input_grads


def _call(mode: str, lengths: Tensor | None, x: Tensor, *tensors: Tensor) -> list[Tensor]:
    """Call torch.lstm, torch.gru, torch.rnn_tanh or torch.rnn_relu; see `_Layer`."""
    layer, states = getattr(torch, mode), 2 if mode == "lstm" else 1
    first = [state.unsqueeze(0).contiguous() for state in tensors[:states]]
    weights = list(tensors[states:])
    # biases, layers, dropout, training (without which cuDNN has no backward pass), bidirectional
    options = (len(weights) == 4, 1, 0.0, torch.is_grad_enabled(), False)
    if lengths is None:
        start = first[0] if states == 1 else first
        h, *final = layer(x.contiguous(), start, weights, *options, False)
        return [h, *(state[0] for state in final)]
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    order, back = packed.sorted_indices, packed.unsorted_indices
    assert order is not None
    assert back is not None
    first = [state.index_select(1, order) for state in first]
    start = first[0] if states == 1 else first
    data, *final = layer(packed.data, packed.batch_sizes, start, weights, *options)
    h, _ = pad_packed_sequence(packed._replace(data=data), total_length=len(x))
    return [h, *(state[0].index_select(0, back) for state in final)]


def _leaves(mode: str, needed: Sequence[bool], x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors for `_call`, detached from the graph, requiring gradients where `needed`.

    On a GPU the weights become views of one chunk of memory, as cuDNN requires: otherwise it would
    warn and copy them on each call.
    """
    leaves = [tensor.detach() for tensor in (x, *tensors)]
    if torch.backends.cudnn.is_acceptable(x):  # type: ignore[no-untyped-call]
        start = 3 if mode == "lstm" else 2
        chunk = leaves[start:] = [weight.clone() for weight in leaves[start:]]
        kind = get_cudnn_mode(mode.upper())  # type: ignore[no-untyped-call]
        I, H = x.shape[2], chunk[1].shape[1]  # noqa: E741
        # weights per layer; then projection, layers, batch first, bidirectional
        torch._cudnn_rnn_flatten_weight(chunk, len(chunk), I, kind, H, 0, 1, False, False)
    return tuple(leaf.requires_grad_(n) for leaf, n in zip(leaves, needed, strict=True))


def _allows_tf32() -> bool:
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # torch's newer settings are in use: cuDNN's own is then deliberate too
        return True


@contextmanager
def _full_precision(x: Tensor) -> Iterator[None]:
    """Within the block, cuDNN computes in full float32 unless the user allows TF32 for products.

    By default torch lets cuDNN, though not matrix products, round the factors to 10 bits (TF32);
    the results would then differ from the specification by a thousand times the rounding of
    float32. The setting is process-wide, so it is changed only for the call.
    """
    if not x.is_cuda or x.dtype != torch.float32 or _allows_tf32():
        yield
        return
    # Torch 2.9 and later have a setting for each kind of operation, and refuse to mix it with the
    # older setting.
    newer = hasattr(cudnn_rnn, "fp32_precision")
    settings: Any = cudnn_rnn if newer else torch.backends.cudnn
    name = "fp32_precision" if newer else "allow_tf32"
    before = getattr(settings, name)
    setattr(settings, name, "ieee" if newer else False)
    try:
        yield
    finally:
        setattr(settings, name, before)
