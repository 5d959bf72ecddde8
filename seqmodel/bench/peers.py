"""The rivals: the closest torch.nn counterpart of each unit and model, and any unit in JAX.

The counterpart is not always the same unit: torch's LSTM has no peepholes, and its GRU, the
counterpart of every unit with a reset or update gate, resets after the matrix product.

JAX, along with oneDNN the strongest rival on a CPU, is optional (`pip install 'seqmodel[bench]'`);
without it, `seqmodel bench` omits its column.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.model.encoder import Past
from seqmodel.model.notes import NoteEncoder
from seqmodel.outputs.note_unit import note_inputs, notes_below
from seqmodel.outputs.notes_tied import below_size
from seqmodel.units import UnitSpec
from seqmodel.units.language import Node
from seqmodel.units.module import Unit

LAST_H = Node("old", ("h",))


def layer(spec: UnitSpec, inputs: int, hidden: int) -> nn.RNNBase:
    """torch.nn's counterpart of the unit: x (T, B, I) -> h (T, B, H) and the state."""
    return cast(nn.RNNBase, getattr(nn, _kind(spec))(inputs, hidden))


def _kind(spec: UnitSpec) -> str:
    if "c" in spec.state:
        return "LSTM"
    return "RNN" if spec.name == "tanh" else "GRU"


class FrameWise(nn.Module):
    """A layer over frames of `notes` (D) and a linear output; draws with torch.nn's cell."""

    def __init__(self, spec: UnitSpec, notes: int, hidden: int) -> None:
        super().__init__()
        self.layer, self.linear = layer(spec, notes, hidden), nn.Linear(hidden, notes)
        self.cell = getattr(nn, f"{_kind(spec)}Cell")(notes, hidden)

    def forward(self, frames: Tensor) -> Tensor:
        """-log p(x_1, ..., x_T) of frames (T, B, D), summed over the batch."""
        past = torch.cat([torch.zeros_like(frames[:1]), frames[:-1]])
        logits = self.linear(self.layer(past)[0])
        return F.binary_cross_entropy_with_logits(logits, frames, reduction="sum")

    @torch.inference_mode()
    def draw(self, count: int) -> Tensor:
        """Frames (count, D), drawn step by step."""
        frame, state, drawn = torch.zeros(1, self.linear.out_features), None, []
        for _ in range(count):
            state = self.cell(frame, state)
            h = state[0] if isinstance(state, tuple) else state
            frame = torch.bernoulli(torch.sigmoid(self.linear(h)))
            drawn.append(frame)
        return torch.cat(drawn)


class Tied(nn.Module):
    """The tied model's own inputs, torch.nn's layers along time and along pitch, a linear layer."""

    def __init__(self, spec: UnitSpec, notes: int, hidden: int, note_hidden: int) -> None:
        super().__init__()
        self.encoder = NoteEncoder(notes)
        self.time = layer(spec, self.encoder.input_size, hidden)
        self.pitch = layer(spec, hidden + below_size(onsets=False), note_hidden)
        self.linear = nn.Linear(note_hidden, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """-log p(x_1, ..., x_T) of frames (T, B, D), summed over the batch."""
        T, B, D = frames.shape
        h = self.time(self.encoder.encode(frames, self.encoder.start(frames, B)).inputs)[0]
        flat = frames.view(T * B, D)
        read = self.pitch(note_inputs(h.reshape(T * B, D, -1), flat))[0]
        logits = self.linear(read).squeeze(2)
        return F.binary_cross_entropy_with_logits(logits, flat.t(), reduction="sum")

    @torch.inference_mode()
    def draw(self, count: int) -> Tensor:
        """Frames (count, D), drawn note by note."""
        frame, state, drawn = torch.zeros(1, self.encoder.rows), None, []
        for _ in range(count):
            h, state = self.time(self.encoder.encode_next(Past(frame)).inputs, state)
            frame, note_state = torch.zeros(1, self.encoder.rows), None
            for n in range(self.encoder.rows):
                x = torch.cat([h[0, n : n + 1], notes_below(frame, onsets=False)[n]], 1)
                read, note_state = self.pitch(x.unsqueeze(0), note_state)
                frame[:, n] = torch.bernoulli(torch.sigmoid(self.linear(read[0, 0])))
            drawn.append(frame)
        return torch.cat(drawn)


# ---- JAX -----------------------------------------------------------------------------------------


def has_jax() -> bool:
    """Whether JAX is installed."""
    return find_spec("jax") is not None


def jax_step(unit: Unit, x: Tensor, d_h: Tensor) -> Callable[[], Any]:
    """One training step of a layer, from the text of its unit, compiled by XLA.

    Forward over x (T, B, I) from a state of zeros, then backward from d_h (T, B, H): returns h
    (T, B, H) and the gradients of x and of the weights by gate and term.
    """
    import jax
    from jax import numpy as jnp

    functions = _functions(jax, jnp)
    H, spec = unit.hidden_size, unit.spec
    weights = {
        gate: {term: w.detach().numpy() for term, w in terms.items() if w is not None}
        for gate, terms in unit.gates().items()
    }
    # One product for all matrices that multiply the last h, as in code written by hand.
    u_gates = [n.args[0].gate for n in _nodes(spec) if n.op == "U" and n.args[1] == LAST_H]

    def by_name(names: list[str], stacked: Any) -> dict[str, Any]:
        return dict(zip(names, jnp.split(stacked, len(names), -1), strict=True))

    def forward(weights: Any, x: Any) -> Any:
        w_gates = [gate for gate, terms in weights.items() if "W" in terms]
        inputs = jnp.concatenate([weights[gate]["W"] for gate in w_gates]).T
        recurrent = jnp.concatenate([weights[gate]["U"] for gate in u_gates]).T if u_gates else None

        def advance(state: Mapping[str, Any], w_x: Any) -> Any:
            now: dict[str, Any] = {}
            from_x = by_name(w_gates, w_x)
            from_h = by_name(u_gates, state["h"] @ recurrent) if u_gates else {}

            def value(node: Node) -> Any:
                match node.op, node.args:
                    case "now" | "old" as when, (name,):
                        return (now if when == "now" else state)[name]
                    case "W", (weight,):
                        return from_x[weight.gate]
                    case "vector", (weight,):
                        return weights[weight.gate][weight.term]
                    case "U", (weight, factor) if factor == LAST_H:
                        return from_h[weight.gate]
                    case "U", (weight, factor):
                        return value(factor) @ weights[weight.gate]["U"].T
                args = (value(arg) if isinstance(arg, Node) else arg for arg in node.args)
                return functions[node.op](*args)

            for equation in spec.equations:
                now[equation.name] = value(equation.value)
            return {name: now[name] for name in spec.state}, now["h"]

        start = {name: jnp.zeros((x.shape[1], H)) for name in spec.state}
        return jax.lax.scan(advance, start, x @ inputs)[1]

    def forward_backward(weights: Any, x: Any, d_h: Any) -> Any:
        h, backward = jax.vjp(forward, weights, x)
        return h, *backward(d_h)

    compiled = jax.jit(forward_backward)
    arrays = weights, x.detach().numpy(), d_h.numpy()
    with jax.default_device(jax.devices("cpu")[0]):  # even if JAX finds a GPU
        arrays = jax.tree.map(jnp.array, arrays)
    return lambda: jax.block_until_ready(compiled(*arrays))


def _nodes(spec: UnitSpec) -> Iterator[Node]:
    """All nodes of the unit's equations."""
    found = [equation.value for equation in spec.equations]
    while found:
        node = found.pop()
        yield node
        found += [arg for arg in node.args if isinstance(arg, Node)]


def _functions(jax: Any, jnp: Any) -> Mapping[str, Callable[..., Any]]:
    """Functions by the operations of nodes; units are measured with their usual activations."""
    return {
        "number": lambda number: number,
        **{"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv},
        **{"s": jax.nn.sigmoid, "phi": jnp.tanh, "tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid},
        **{"relu": jax.nn.relu, "softplus": jax.nn.softplus, "exp": jnp.exp, "sqrt": jnp.sqrt},
        "mean": lambda a: a.mean(-1, keepdims=True),
        "where": lambda a, b, c, d: jnp.where(a < b, c, d),
    }
