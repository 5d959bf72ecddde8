"""Where a unit's step keeps what in memory, and the order of its matrix products.

Each row of each frame has slots of H numbers: one for every sum of products W x + U v, and one for
every v that is no state before the step. A product U v can be taken once v is known for all
columns; a node's level is how many such products follow one another up to it.
"""

from functools import cached_property
from typing import Any, NamedTuple

from seqmodel.units.cpu.graph import Id
from seqmodel.units.cpu.step import step_of
from seqmodel.units.definition import BIASES, UnitSpec
from seqmodel.units.language import FUNCTIONS, Weight


class Place(NamedTuple):
    """H numbers of memory, or of a weight.

    | kind | name |
    |---|---|
    | old, now | a state before and after the step |
    | slot | a slot: its sum of products, or what has replaced it |
    | vector, sum | a weight; the sum of its gradients |
    | d_now, carried | a state: its gradient after and before the step |
    | d_slot | a slot: its gradient |
    """

    kind: str
    name: Any


class Projection(NamedTuple):
    """U of some gates times a state before the step or a slot, into the slots from `into` on."""

    gates: tuple[str, ...]
    source: Place
    into: str
    adds: bool
    """Whether to what the slots hold already."""
    level: int


class Layout:
    """A unit's step as a graph, its slots in memory, and its products.

    The slots of W x come first, in the order in which W is stacked, so that one product fills them.
    """

    def __init__(self, spec: UnitSpec, *, bias: bool) -> None:
        self.spec, self.bias = spec, bias
        step = step_of(spec, bias=bias)
        self.graph, self.states = step.graph, step.states
        self.levels = list[int]()
        """How many products of a matrix and a vector follow one another up to each node."""
        self._find_levels()
        stacked = self.owners("U")
        slots = [args[0] for op, *args in self.graph.nodes if op == "slot"]
        self._products = sorted(
            ((gate, slot.name, v) for slot in slots for gate, v in slot.recurrent),
            key=lambda product: (self._taken_at(product[2]), stacked.index(product[0])),
        )
        made = [v for _, _, v in self._products if self.graph.nodes[v][0] != "old"]
        self.sources = {v: f"v{k}" for k, v in enumerate(dict.fromkeys(made))}
        """The nodes that are multiplied by a U and are no states before the step: their slots."""
        self.slots = self._ordered_slots()
        self.places = self._places()
        self.kept = self._kept()
        self.projections = self._projections()

    def owners(self, term: str) -> list[str]:
        """The gates that have `term`, in the order in which their weights are stacked."""
        return self.spec.gates_with(term) if self.bias or term not in BIASES else []

    @cached_property
    def summed(self) -> list[Weight]:
        """The weights whose gradients the backward pass sums over time and rows."""
        return [Weight(term, gate) for term in ("b", "V", "bU") for gate in self.owners(term)]

    @cached_property
    def gate_spans(self) -> list[tuple[int, int]]:
        """Each projection's gates as a span [first, last) of the gates stacked in U."""
        starts = [(self.owners("U").index(p.gates[0]), len(p.gates)) for p in self.projections]
        return [(start, start + count) for start, count in starts]

    @cached_property
    def inputs(self) -> int:
        """How many slots W x fills, from the first on."""
        return len(self.owners("W"))

    @cached_property
    def products(self) -> list[str]:
        """Names of the gradients of W and of each projection's rows of U, as the loops sum them."""
        return ["d_W", *(f"d_U{k}" for k in range(len(self.projections)))]

    @cached_property
    def widest(self) -> int:
        """The most gates that W or a projection fills at once."""
        return max(self.inputs, *(len(p.gates) for p in self.projections), 1)

    @cached_property
    def level_count(self) -> int:
        """How many levels there are."""
        return max(self.levels) + 1

    def taken(self, level: int) -> tuple[Projection, ...]:
        """The products of a level."""
        return tuple(p for p in self.projections if p.level == level)

    def slot(self, name: str) -> int:
        """A slot's index."""
        return self.slots.index(name)

    def _find_levels(self) -> None:
        for n, (op, *args) in enumerate(self.graph.nodes):
            if op == "slot":
                before = [self._taken_at(v) for _, v in args[0].recurrent]
            else:
                before = [self.levels[m] for m in self.graph.reads(n)]
            self.levels.append(max(before, default=0))

    def _taken_at(self, v: Id) -> int:
        """The level of the product of a matrix and node `v`."""
        return 0 if self.graph.nodes[v][0] == "old" else self.levels[v] + 1

    def _ordered_slots(self) -> list[str]:
        of_inputs = [f"W{gate}" for gate in self.owners("W")]
        others = dict.fromkeys(into for _, into, _ in self._products if into not in of_inputs)
        return [*of_inputs, *others, *self.sources.values()]

    def _places(self) -> dict[Id, Place]:
        """Where nodes are that nothing computes."""
        places = {}
        for n, (op, *args) in enumerate(self.graph.nodes):
            if op == "slot":
                places[n] = Place("slot", args[0].name)
            elif op in ("old", "vector"):
                places[n] = Place(op, args[0])
        return places

    def _kept(self) -> dict[Id, Place]:
        """The nodes whose values replace slots: activations of sums that nothing else reads.

        Their slopes follow from these values, so that the backward pass needs no sum.
        """
        users: dict[Id, list[Id]] = {n: [] for n in range(len(self.graph.nodes))}
        for n in users:
            for m in self.graph.reads(n):
                users[m].append(n)
        elsewhere, kept = {*self.states.values(), *self.sources}, {}
        for n, place in self.places.items():
            if place.kind != "slot":
                continue
            value = n
            while value not in elsewhere and len(users[value]) == 1:
                (value,) = users[value]
                if self.graph.nodes[value][0] != "+":
                    break
            if self.graph.nodes[value][0] in FUNCTIONS and value not in elsewhere:
                kept[value] = place
        return kept

    def _projections(self) -> list[Projection]:
        """The products, by level; neighbours in U and in memory of one source are taken at once."""
        found, filled, owners = list[Projection](), set(self.slots[: self.inputs]), self.owners("U")
        for gate, into, v in self._products:
            op, *args = self.graph.nodes[v]
            source = Place("old", args[0]) if op == "old" else Place("slot", self.sources[v])
            new = Projection((gate,), source, into, into in filled, self._taken_at(v))
            filled.add(into)
            if found and self._follows(found[-1], new, owners):
                found[-1] = found[-1]._replace(gates=(*found[-1].gates, gate))
            else:
                found.append(new)
        return found

    def _follows(self, last: Projection, new: Projection, owners: list[str]) -> bool:
        alike = last._replace(gates=new.gates, into=new.into) == new
        stacked = owners.index(new.gates[0]) == owners.index(last.gates[-1]) + 1
        return alike and stacked and self.slot(new.into) == self.slot(last.into) + len(last.gates)
