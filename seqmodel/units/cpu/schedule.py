"""The passes of a unit's step over rows and columns, forward and backward.

Forward, each level begins with its products. A state whose computation needs an activation of
another state of its level has a later pass: this halves each column's chain of dependent
instructions, so that out-of-order execution can overlap it with the next columns. An lstm's first
pass computes c and its second h, a gru's first r (.) h' and its second h.

Backward there is one pass a level, in reverse order, with the transposed products after it. Since
gradients add up, each pass takes those that have become known, of the states after the step or from
the products, all the way down to what lies in memory: slots, states before the step and weights.
What is not in memory is computed again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from seqmodel.units.cpu.graph import Id
from seqmodel.units.cpu.layout import Layout, Place, Projection
from seqmodel.units.definition import UnitSpec
from seqmodel.units.language import FUNCTIONS, Weight


class Store(NamedTuple):
    """A node's value, stored in a place or added to what it holds."""

    node: Id
    place: Place
    adds: bool = False


@dataclass(frozen=True)
class Pass:
    """Nodes computed for every row and column, in order; some of them are loaded, some stored."""

    nodes: tuple[Id, ...]
    loads: Mapping[Id, Place]
    stores: tuple[Store, ...]
    projections: tuple[Projection, ...]
    """Taken before a forward pass; transposed, after a backward pass."""
    adds: tuple[bool, ...] = ()
    """Whether each transposed projection adds to what its source's gradient is already."""
    cleared: tuple[Place, ...] = ()
    """Set to zero in the end."""

    def of_node(self, n: Id) -> list[Store]:
        """What is stored of a node."""
        return [store for store in self.stores if store.node == n]

    @property
    def summed(self) -> list[Weight]:
        """The weights to whose gradients it adds."""
        return [store.place.name for store in self.stores if store.place.kind == "sum"]


class Schedule:
    """A unit's layout and passes."""

    def __init__(self, spec: UnitSpec, *, bias: bool) -> None:
        self.layout = Layout(spec, bias=bias)
        self.forward = _forward(self.layout)
        self.backward = _backward(self.layout)


def _forward(layout: Layout) -> list[Pass]:
    graph, levels, memory = layout.graph, layout.levels, dict(layout.places)
    targets = [Store(n, Place("now", state)) for state, n in layout.states.items()]
    targets += [Store(n, Place("slot", name)) for n, name in layout.sources.items()]
    depths, passes = _depths(layout), list[Pass]()
    for level in range(layout.level_count):
        here, products = [t for t in targets if levels[t.node] == level], layout.taken(level)
        each = sorted({depths[t.node] for t in here}) or [0]
        for depth in each:
            mine = [t for t in here if depths[t.node] == depth]
            if depth == each[-1]:
                late = [n for n in layout.kept if levels[n] == level and n not in memory]
                mine += [Store(n, layout.kept[n]) for n in late]
            nodes = _needed(layout, mine, memory)
            done = {store.node for store in mine} | memory.keys()
            mine += [Store(n, at) for n, at in layout.kept.items() if n in nodes and n not in done]
            loads = {n: memory[n] for n in nodes if n in memory}
            passes.append(Pass(nodes, loads, tuple(mine), products))
            memory |= {t.node: t.place for t in mine if graph.reads(t.node)}
            products = ()
    return passes


def _backward(layout: Layout) -> list[Pass]:
    graph, held, passes = layout.graph, set[Place](), list[Pass]()
    leaves = layout.places
    memory = leaves | layout.kept
    memory |= {n: Place("slot", name) for n, name in layout.sources.items()}
    memory |= {n: Place("now", state) for state, n in layout.states.items() if graph.reads(n)}
    for level in reversed(range(layout.level_count)):
        seeds = _seeds(layout, level, memory)
        stores, products = list[Store](), layout.taken(level)
        for n, d in graph.gradients(seeds).items():
            if n in leaves:
                place = leaves[n].gradient
                stores.append(Store(d, place, place in held or place.kind == "sum"))
                held.add(place)
        adds = list[bool]()
        for p in products:
            adds.append(p.source.gradient in held)
            held.add(p.source.gradient)
        nodes = _needed(layout, stores, memory)
        loads = {n: memory[n] for n in nodes if n in memory}
        passes.append(Pass(nodes, loads, tuple(stores), products, tuple(adds)))
    every = [Place("carried", state) for state in layout.states]
    every += [Place("d_slot", name) for name in layout.slots]
    cleared = tuple(place for place in every if place not in held)
    return [replace(passes[0], cleared=cleared), *passes[1:]]


def _seeds(layout: Layout, level: int, memory: dict[Id, Place]) -> dict[Id, Id]:
    """The gradients of nodes that become known before the backward pass of a level."""
    graph, seeds = layout.graph, dict[Id, Id]()
    known = [(n, Place("d_slot", name)) for n, name in layout.sources.items()]
    known = [(n, place) for n, place in known if layout.levels[n] == level]
    if level == layout.level_count - 1:
        known += [(n, Place("d_now", state)) for state, n in layout.states.items()]
    for n, place in known:
        d = graph.node(*place)
        memory[d] = place
        seeds[n] = graph.calculate("+", seeds[n], d) if n in seeds else d
    return seeds


def _depths(layout: Layout) -> list[int]:
    """How many activations follow one another up to each node, from the start of its level."""
    graph, depths = layout.graph, list[int]()
    for n, (op, *_) in enumerate(graph.nodes):
        read = [depths[m] for m in graph.reads(n) if layout.levels[m] == layout.levels[n]]
        depths.append(max(read, default=0) + (op in FUNCTIONS))
    return depths


def _needed(layout: Layout, stores: list[Store], memory: Mapping[Id, Place]) -> tuple[Id, ...]:
    """The nodes that must be loaded or computed for these to be stored, in order.

    Gradients of states come first: what is stored for the state before the step replaces them.
    """
    needed, found = set[Id](), [store.node for store in stores]
    while found:
        n = found.pop()
        if n not in needed:
            needed.add(n)
            found += () if n in memory else layout.graph.reads(n)
    return tuple(sorted(needed, key=lambda n: (layout.graph.nodes[n][0] != "d_now", n)))
