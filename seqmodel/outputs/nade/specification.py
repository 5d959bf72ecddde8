"""Frames of notes, each of which depends on the notes below it: a NADE."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from seqmodel.config import Config
from seqmodel.kernels import device
from seqmodel.media.definitions import FrameDefinition
from seqmodel.outputs.notes.linear import LinearNotesOutput
from seqmodel.outputs.protocol import CompiledDraw, Drawn, DrawSetting


class NadeOutput(LinearNotesOutput):
    """Notes from the lowest to the highest, each given the notes below it and the past.

    A NADE (Larochelle and Murray 2011) whose biases are affine in h, as in the RNN-NADE of
    Boulanger-Lewandowski et al. 2012:

        b_v = W_v h + c_v,  b_h = W_h h + c_h
        a_d = b_h + sum_{e<d} x_e V_e
        p(x_d = 1 | x_<d, h) = s(b_v,d + U_d . s(a_d))

    s is the logistic sigmoid, b_v has F numbers, b_h and each row of V and U (F, K) have K. The
    layer `linear` computes b_v, then b_h, then the logit of the end, where there is one.

    With `onsets` the strikes follow the notes in the same chain, from the lowest to the highest: a
    chord is thus struck again as a whole. Strikes that are not free cost nothing, but later ones
    depend on them; see `notes.onsets`.
    """

    def __init__(
        self, hidden_size: int, notes: int, width: int, *, end: bool = False, onsets: bool = False
    ) -> None:
        """`width` is K."""
        numbers = 2 * notes if onsets else notes
        super().__init__(hidden_size, notes, numbers + width, end=end, onsets=onsets)
        self.width = width
        # At zero the notes start out independent, with logits b_v. The random rows of W_h break
        # the symmetry of the hidden units.
        self.V = nn.Parameter(torch.zeros(numbers, width))
        self.U = nn.Parameter(torch.zeros(numbers, width))

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
        """See `Output.build`."""
        notes = frame.frame_size // 2 if frame.onsets else frame.frame_size
        width = config.nade_hidden
        return cls(h_size, notes, width, end=config.end, onsets=frame.onsets)

    def conditional_logits(self, outputs: Tensor, frames: Tensor) -> Tensor:
        """The logit of each number given those before it in frames (..., F): (..., F).

        `outputs` (..., F + K or more) are the layer's. Takes F K numbers per frame.
        """
        b_v, b_h = self._biases(outputs)
        steps = frames.unsqueeze(-1) * self.V
        a = torch.cat([b_h.unsqueeze(-2), steps[..., :-1, :]], -2).cumsum(-2)
        return b_v + (self.U * a.sigmoid()).sum(-1)

    def _biases(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """b_v (..., F) and b_h (..., K)."""
        b_v, b_h, _ = outputs.tensor_split([self.frame_size, self.frame_size + self.width], -1)
        return b_v, b_h

    def nats(self, outputs: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """See `NotesOutput.nats`; `outputs` are the layer's."""
        return super().nats(self.conditional_logits(outputs, frames), frames, past)

    def note_logits(self, h: Tensor, frames: Tensor) -> Tensor:
        """See `NotesOutput.note_logits`; given the frame's lower notes, without a gradient."""
        with torch.no_grad():
            given = h, *self.weights(), frames
            if not h.numel() or device.unsupported_reason(given) is not None:
                return self.conditional_logits(self(h), frames)
            from seqmodel.outputs.nade.score import Given, conditional_logits  # loads the compiler

            return conditional_logits(Given(*given))

    def weights(self) -> tuple[Tensor, ...]:
        """See `LinearNotesOutput.weights`."""
        return *self.without_end(), self.V, self.U

    def compiled_nats(self) -> Callable[..., Tensor]:
        """See `LinearNotesOutput.compiled_nats`."""
        from seqmodel.outputs.nade.score import nade_nats

        return nade_nats

    def draw_frame(self, h: Tensor, past: Tensor, uniforms: Tensor, temperature: float) -> Drawn:
        """Draw a frame of each piece, from the lowest note to the highest, then the strikes.

        A number is one where its entry of `uniforms` (B, F + 1), in [0, 1), is below its
        probability given the numbers drawn so far, unless it is a strike that is not free. Each
        conditional logit is divided by `temperature`; at 0 each number in turn takes its likelier
        value.
        """
        outputs = self(h)
        b_v, a = self._biases(outputs)
        frame, D = h.new_zeros(len(h), self.frame_size), self.notes
        for d in range(self.frame_size):
            logit = b_v[:, d] + a.sigmoid() @ self.U[d]
            if temperature == 0:
                number = logit > 0
            else:
                number = uniforms[:, d] < torch.sigmoid(logit / temperature)
            if d >= D:
                sounding = frame[:, d - D] > 0
                number = torch.where(past[:, d - D] > 0, number & sounding, sounding)
            frame[:, d] = number.to(h.dtype)
            a = a + frame[:, d : d + 1] * self.V[d]
        return Drawn(frame, self.ends(outputs, uniforms))

    def compiled_draw(self, setting: DrawSetting) -> CompiledDraw:
        """See `Output.compiled_draw`."""
        from seqmodel.outputs.nade.draw import nade_draw  # loads the compiler

        return nade_draw(self, self.V, self.U, setting)
