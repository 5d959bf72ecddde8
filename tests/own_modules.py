"""Units as users write them, good and bad, for `own_module`."""

import torch
from torch import nn
from torch.nn import functional as F


class LayerNormLSTM(nn.Module):
    """An LSTM whose gates and cell are normalised over H (Ba, Kiros, Hinton 2016)."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.of_x = nn.Linear(input_size, 4 * hidden_size)
        self.of_h = nn.Linear(hidden_size, 4 * hidden_size, bias=False)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden_size) for _ in range(5))
        self.hidden_size = hidden_size

    def zero_state(self, batch_size):
        like = self.of_h.weight
        return (
            like.new_zeros(batch_size, self.hidden_size),
            like.new_zeros(batch_size, self.hidden_size),
        )

    def forward(self, x, state):
        h, c = state
        outputs = []
        for now in self.of_x(x).unbind():
            gates = (now + self.of_h(h)).chunk(4, 1)
            i, f, g, o = (norm(gate) for norm, gate in zip(self.norms, gates, strict=False))
            c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(self.norms[4](c))
            outputs.append(h)
        return torch.stack(outputs), (h, c)


class Attention(nn.Module):
    """Attention over the last WINDOW frames, which are the state, learned ones at first."""

    WINDOW = 4

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.read = nn.Linear(input_size, 3 * hidden_size)
        self.hidden_size = hidden_size
        self.start = nn.Parameter(torch.ones(self.WINDOW, 2 * hidden_size))

    def zero_state(self, batch_size):
        return self.start.expand(batch_size, -1, -1)

    def forward(self, x, state):
        outputs = []
        for now in self.read(x).unbind():
            query, both = now.tensor_split([self.hidden_size], 1)
            state = torch.cat([state[:, 1:], both.unsqueeze(1)], 1)
            keys, values = state.chunk(2, 2)
            weights = F.softmax((keys @ query.unsqueeze(2))[:, :, 0], 1)
            outputs.append(torch.tanh((weights.unsqueeze(1) @ values)[:, 0]))
        return torch.stack(outputs), state


class _Plain(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.linear, self.size = nn.Linear(input_size, hidden_size), hidden_size

    def zero_state(self, batch_size):
        return self.linear.weight.new_zeros(batch_size, self.size)

    def forward(self, x, state):
        return self.linear(x), state


class LooksAhead(_Plain):
    """h of each frame depends on the next: likelihoods would be too good to be true."""

    def forward(self, x, state):
        return self.linear(x.roll(-1, 0)), state


class MixesRows(_Plain):
    """h depends on who else is in the batch."""

    def forward(self, x, state):
        h = self.linear(x)
        return h - h.mean(1, keepdim=True), state


class Forgets(_Plain):
    """h depends on what no state holds."""

    def forward(self, x, state):
        return self.linear(x).cumsum(0), state


class Grows(_Plain):
    """The state grows with the frames read."""

    def forward(self, x, state):
        h = self.linear(x)
        return h, torch.cat([state, h[-1]], 1)


class NotFinite(_Plain):
    def forward(self, x, state):
        return torch.log(-self.linear(x).abs()), state


class Float32(_Plain):
    """A state that is float32 wherever the weights are not."""

    def zero_state(self, batch_size):
        return torch.zeros(batch_size, self.size)


class InADict(_Plain):
    def zero_state(self, batch_size):
        return {"h": self.linear.weight.new_zeros(batch_size, self.size)}


class LooksFarAhead(_Plain):
    """As `LooksAhead`, but by 40 frames."""

    def forward(self, x, state):
        return self.linear(x.roll(-40, 0)), state


class Random(_Plain):
    def forward(self, x, state):
        return self.linear(F.dropout(x)), state


class Narrow(_Plain):
    def forward(self, x, state):
        return self.linear(x)[..., 1:], state


class NoState(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.linear = nn.Linear(input_size, hidden_size)


class Raises(_Plain):
    def forward(self, x, state):
        raise RuntimeError("mat1 and mat2 do not fit")


class MisspellsALayer(_Plain):
    """torch, not this line, raises the error."""

    def forward(self, x, state):
        return self.lineal(x), state


class TakesMore(_Plain):
    def __init__(self, input_size, hidden_size, heads):
        super().__init__(input_size, hidden_size // heads)


class OnlyH(_Plain):
    def forward(self, x, state):  # type: ignore[override]
        return self.linear(x)


def not_a_class(input_size, hidden_size):
    """Not a module at all."""
