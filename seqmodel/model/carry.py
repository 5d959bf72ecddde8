"""What the model knows about the past."""

from collections.abc import Sequence
from typing import NamedTuple, cast

from torch import Tensor

from seqmodel.model.encoder import Past
from seqmodel.units.module import AnyState, UnitState, is_stack


class Carry(NamedTuple):
    """The unit's state and the encoder's past: all that the next frame depends on."""

    state: AnyState
    past: Past

    def tensors(self) -> list[Tensor]:
        """All its tensors: the states from the lowest layer up, then the past."""
        past = [tensor for tensor in self.past if tensor is not None]
        return [tensor for layer in self.layers() for tensor in layer] + past

    def like(self, tensors: Sequence[Tensor]) -> "Carry":
        """A carry of the same structure from other tensors, in the order of `tensors()`."""
        rest = iter(tensors)
        layers = [type(layer)(*(next(rest) for _ in layer)) for layer in self.layers()]
        state = tuple(layers) if is_stack(self.state) else layers[0]
        return Carry(state, Past(*rest))

    def layers(self) -> Sequence[UnitState]:
        """The states of the unit's layers, the lowest first."""
        if is_stack(self.state):
            return self.state
        return (cast(UnitState, self.state),)
