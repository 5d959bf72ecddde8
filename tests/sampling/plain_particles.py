"""The specification of `compiled.CompiledParticles`: particles by PyTorch, one frame at a time."""

import numpy as np
import torch

from seqmodel.sampling.compiled import FREE


class PlainParticles:
    """N drafts of a piece of music; the model is in float64."""

    size = 0

    def __init__(self, model, number, temperature):
        self._model, self._output = model, model.output
        self._number, self._temperature = number, temperature

    def begin(self, carry):
        """All particles go on from the carry of a piece, its tensors in double precision."""
        all_of_one = np.zeros(self._number, np.int64)
        self._carry = _of_particles(carry, all_of_one, self._model.encoder.rows)

    def draw(self, forced, uniforms):
        """Draw candidates for the next frame; `forced` is (N, M, F)."""
        output, (N, M, F) = self._output, forced.shape
        numbers = uniforms.take(N, M, F + 1)
        numbers[..., :F] = np.where(forced == FREE, numbers[..., :F], forced)
        with torch.inference_mode():
            h, state = self._model.step(self._carry)
            past = self._carry.past.numbers
            self._carry = self._carry._replace(state=state)
            drawn = [
                output.draw_frame(h, past, torch.from_numpy(numbers[:, m]), self._temperature).frame
                for m in range(M)
            ]
            logits = [
                output.tempered(
                    output.note_logits(h[None], frame[None], past[None])[0],
                    frame, past, self._temperature,
                )
                for frame in drawn
            ]  # fmt: skip
            end = output.end_logits(h) if output.end else torch.zeros(N)
        frames = torch.stack(drawn, 1).numpy().astype(np.uint8)
        ends = end[:, None, None].expand(N, M, 1)
        return frames, torch.cat([torch.stack(logits, 1), ends], 2).numpy()

    def keep(self, ancestors, frames):
        """Particle k becomes `ancestors[k]` followed by `frames[k]`, of n (n, F), at most N."""
        carry = _of_particles(self._carry, ancestors, self._model.encoder.rows)
        added = torch.from_numpy(frames).to(carry.past.numbers)
        self._carry = carry._replace(past=self._model.encoder.append(carry.past, added))


def _of_particles(carry, which, rows):
    """The carry of these particles, where a model has `rows` unit rows for each."""
    index = torch.from_numpy(which)
    of_rows = (index.unsqueeze(1) * rows + torch.arange(rows)).flatten()
    states = [state[of_rows] for layer in carry.layers() for state in layer]
    others = (*carry.past, carry.labels)
    return carry.like([*states, *(part[index] for part in others if part is not None)])
