"""Which slots and projections of a cell exist for a unit, and where they are."""

from dataclasses import dataclass
from functools import cached_property

from seqmodel.units.cells import Cell, Projection
from seqmodel.units.registry import UnitSpec


@dataclass(frozen=True)
class CellPlan:
    """The parts of a cell that exist for a unit's gates, given the terms they have.

    ValueError if the kernels cannot run the cell.
    """

    spec: UnitSpec
    bias: bool

    @property
    def cell(self) -> Cell:
        """The unit's cell."""
        assert self.spec.cell is not None  # `backend.why_not` declines a unit without one
        return self.spec.cell

    def __post_init__(self) -> None:
        wrong = self._wrong()
        if wrong:
            raise ValueError(f"unit {self.spec.name}: {wrong}")

    def owners(self, term: str) -> list[str]:
        """The gates that have `term`, in the order in which their weights are stacked."""
        return self.spec.gates_with(term) if self.bias or term not in ("b", "bU") else []

    @cached_property
    def projections(self) -> list[Projection]:
        """The projections of all stages, in order, except those of gates without U."""
        return [p for stage in self.cell.stages for p in self.kept(stage.projections)]

    def kept(self, projections: tuple[Projection, ...]) -> list[Projection]:
        """The `projections` whose gates have U."""
        return [p for p in projections if set(p.gates) <= set(self.spec.gates_with("U"))]

    @cached_property
    def sums(self) -> list[tuple[str, str]]:
        """(term, gate) of each sum over time and rows that the backward pass keeps."""
        return [(term, gate) for term in ("b", "V", "bU") for gate in self.owners(term)]

    @cached_property
    def gate_spans(self) -> list[tuple[int, int]]:
        """Each projection's gates as a span [first, last) of the gates stacked in U."""
        owners = self.owners("U")
        starts = [(owners.index(p.gates[0]), len(p.gates)) for p in self.projections]
        return [(start, start + count) for start, count in starts]

    @cached_property
    def input_slots(self) -> tuple[int, int]:
        """The span of slots that W x fills."""
        owners = self.owners("W")
        return self.slot(owners[0]), self.slot(owners[-1]) + 1

    @cached_property
    def products(self) -> list[str]:
        """Names of the gradients of W and of each projection's rows of U, as the loops sum them."""
        return ["d_W", *(f"d_U{k}" for k in range(len(self.projections)))]

    @cached_property
    def widest(self) -> int:
        """The most gates that W or a projection fills at once."""
        first, last = self.input_slots
        return max(last - first, *(len(p.gates) for p in self.projections))

    def adds(self, projection: Projection) -> bool:
        """Whether a projection adds to W x, in a gate's own slot."""
        into = projection.into
        return into == projection.gates[0] and "W" in self.spec.gates[into]

    def slot(self, name: str) -> int:
        """A slot's index."""
        return self.cell.slots.index(name)

    def _wrong(self) -> str | None:
        """The assumption of the kernels that the cell violates, if any."""
        slots, with_u, with_w = self.cell.slots, self.owners("U"), self.owners("W")
        if self.spec.state[:1] != ("h",):
            return f"the output h must be the first state, not {self.spec.state}"
        missing = [gate for gate in dict.fromkeys((*with_w, *with_u)) if gate not in slots]
        if missing:
            return f"gates without a slot: {', '.join(missing)}"
        if not with_w or not _adjacent(with_w, slots):
            return f"the gates with W must be adjacent slots in W's order: {with_w} in {slots}"
        every = [p for stage in self.cell.stages for p in stage.projections]
        projected = [gate for p in every for gate in p.gates if gate in with_u]
        if sorted(projected) != sorted(with_u):
            return f"each gate with U must be in one projection: {projected} of {with_u}"
        return next(filter(None, map(self._wrong_projection, every)), None)

    def _wrong_projection(self, p: Projection) -> str | None:
        slots, with_u, with_w = self.cell.slots, self.owners("U"), self.owners("W")
        of_gates = f"the projection of {', '.join(p.gates)}"
        if p.source != "h" and p.source not in slots:
            return f"{of_gates} reads {p.source}, which is not a slot"
        if p.into not in slots or self.slot(p.into) + len(p.gates) > len(slots):
            return f"{of_gates} into {p.into} does not fit the slots {slots}"
        having_u = [gate for gate in p.gates if gate in with_u]
        if having_u and (len(having_u) < len(p.gates) or not _adjacent(having_u, with_u)):
            return f"{of_gates}: all must have U, stacked in this order, not {with_u}"
        if p.into in p.gates and not _adjacent(p.gates, slots):
            return f"{of_gates} must fill adjacent slots in this order, not {slots}"
        if p.into == p.gates[0] and len({gate in with_w for gate in p.gates}) > 1:
            return f"{of_gates}: all must have W or none"
        return None


def _adjacent(names: list[str] | tuple[str, ...], among: list[str] | tuple[str, ...]) -> bool:
    start = list(among).index(names[0])
    return list(among[start : start + len(names)]) == list(names)
