"""The marks of drawn notes, such as velocity, drawn after the frames."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.marks import MARKS
from seqmodel.media.music.frames import marks_in
from seqmodel.media.music.grid import NOTES
from seqmodel.model.marks_kernel import TO_DRAW, UNKNOWN
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.sampling.compiled import Stream


class MarksDraw:
    """Reads frames again, and gives each note that begins its marks.

    Frames do not depend on marks: they are the same without them. Marks use uniforms from their own
    stream, as many for each note as there are marks. A carry is here everything that the marks of
    the next frame depend on, in float64, with the memory of levels.
    """

    def __init__(self, model: SequenceModel, temperature: float) -> None:
        """`model` is in float64."""
        assert model.marks is not None
        self._model, self._marks, self._temperature = model, model.marks, temperature
        self._outputs = model.marks.outputs()

    def read(self, carry: Carry, prime: NDArray[np.uint8]) -> Carry:
        """The carry after a primer (P, F + M), from the one after its frames alone."""
        memory = self._marks.start(carry.past.numbers, 1)
        return carry._replace(levels=self._marks.remember(self._levels(prime), memory))

    def add_marks(self, chunks: Stream, carry: Carry, uniforms: Uniforms) -> Stream:
        """The frames (n, F) with their marks, (n, F + M)."""
        for frames, ended in chunks:
            marked, carry = self.draw_marks(frames, carry, uniforms)
            yield marked, ended

    def draw_marks(
        self, frames: NDArray[np.uint8], carry: Carry, uniforms: Uniforms
    ) -> tuple[NDArray[np.uint8], Carry]:
        """Frames (T, F) as (T, F + M), with marks where a note begins, and the carry after.

        Notes of frames (T, F + M) that have marks keep them, and later levels follow from them.
        """
        F, levels = self._model.output.frame_size, self._levels(frames)
        for level in levels.values():
            level[level == UNKNOWN] = TO_DRAW
        all_levels = torch.stack([*levels.values()])
        to_draw = all_levels.eq(TO_DRAW).any(0)
        numbers = np.zeros((*to_draw.shape, len(levels)))
        numbers[to_draw] = uniforms.take(int(to_draw.sum()), len(levels))
        assert carry.levels is not None
        after, window = carry.levels.clone(), self._model.window(1)
        for begin in range(0, len(frames), window):
            stretch = slice(begin, begin + window)
            line = torch.from_numpy(frames[stretch, :F].astype(np.float64))
            with torch.inference_mode():
                h, _, _, carry = self._model.read(line.unsqueeze(1), carry)
            window_levels = all_levels[:, stretch].contiguous()
            for k, mark in enumerate(self._outputs.values()):
                of_strikes = numbers[stretch][window_levels[k] == TO_DRAW]
                after[:, mark.place] = mark.draw(
                    h, window_levels, after[:, mark.place], of_strikes, self._temperature
                )
            all_levels[:, stretch] = window_levels
        marked = _padded(frames)
        marks = marks_in(marked)
        for name, level in zip(levels, all_levels, strict=True):  # numbers of their own stay
            drawn = self._outputs[name].levels.numbers()[level[:, 0].clamp(min=0).numpy()]
            marks[name][:] = np.where(drawn > 0, np.where(marks[name] > 0, marks[name], drawn), 0)
        return marked, carry._replace(levels=after)

    def _levels(self, frames: NDArray[np.uint8]) -> dict[str, Tensor]:
        """`Marks.levels_of` for a piece (T, F), or (T, F + M) with marks."""
        piece = _padded(frames)[:, np.newaxis]
        marks = marks_in(piece[:, 0]).items()
        numbers = {name: torch.from_numpy(each).unsqueeze(1) for name, each in marks}
        return self._marks.levels_of(torch.from_numpy(piece[..., : 2 * NOTES]), numbers)


def _padded(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Frames (T, F), or (T, F + M), as (T, F + M): with marks of 0 if they have none."""
    return np.pad(frames, ((0, 0), (0, (2 + len(MARKS)) * NOTES - frames.shape[1])))
