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


def _plain(forward=_Plain.forward, **others):
    return type("Plain", (_Plain,), {"forward": forward, **others})


# h depends on the next frame, or on one 40 frames later: likelihoods would be too good to be true.
LooksAhead = _plain(lambda self, x, state: (self.linear(x.roll(-1, 0)), state))
LooksFarAhead = _plain(lambda self, x, state: (self.linear(x.roll(-40, 0)), state))
# h depends on who else is in the batch, and on what no state holds; the state grows.
MixesRows = _plain(lambda self, x, state: (self.linear(x - x.mean(1, keepdim=True)), state))
Forgets = _plain(lambda self, x, state: (self.linear(x).cumsum(0), state))
Grows = _plain(lambda self, x, state: (self.linear(x), torch.cat([state, x[-1]], 1)))
NotFinite = _plain(lambda self, x, state: (torch.log(-self.linear(x).abs()), state))
Random = _plain(lambda self, x, state: (self.linear(F.dropout(x)), state))
Narrow = _plain(lambda self, x, state: (self.linear(x)[..., 1:], state))
OnlyH = _plain(lambda self, x, state: self.linear(x))
MisspellsALayer = _plain(lambda self, x, state: (self.lineal(x), state))  # torch raises the error
Halves = _plain(lambda self, x, state: (self.linear(x) + state, state.half()))
Float32 = _plain(zero_state=lambda self, count: torch.zeros(count, self.size))
InADict = _plain(zero_state=lambda self, count: {"h": torch.zeros(count, self.size)})
NoState = _plain(zero_state=None)


class Raises(_Plain):
    def forward(self, x, state):
        raise RuntimeError("mat1 and mat2 do not fit")


class TakesMore(_Plain):
    def __init__(self, input_size, hidden_size, heads):
        super().__init__(input_size, hidden_size // heads)


def not_a_class(input_size, hidden_size):
    """Not a module at all."""
