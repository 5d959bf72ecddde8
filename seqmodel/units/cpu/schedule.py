"""Where a unit's step keeps values in memory, and when it computes them, forward and backward.

Each row of each frame has slots of H numbers: one for every sum of products W x + U v, and one for
every v that is not a state before the step. A product U v can be computed once v is known for all
columns; a node's level is the number of such products in sequence up to it.

Forward, each level begins with its products. A state that needs an activation of another state of
its level is computed in a later pass: this halves each column's chain of dependent instructions, so
that out-of-order execution can overlap it with the next columns. An lstm's first pass computes c
and its second h, a gru's first r (.) h' and its second h. A level with means has a pass for each
mean that waits for another, and takes a row through all its passes before the next row; the passes
keep values for one another in a row of scratch memory.

Backward, a level without means has one pass, in reverse order, followed by the transposed products.
Since gradients add up, each pass takes those that have become known, of the states after the step
or from the products, all the way down to what is in memory: slots, states before the step and
weights. What is not in memory is computed again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from seqmodel.units.cpu.graph import Graph, Id, step_of
from seqmodel.units.definition import UnitSpec
from seqmodel.units.language import FUNCTIONS, Weight


class Place(NamedTuple):
    """H numbers in memory, or of a weight.

    | kind | name |
    |---|---|
    | x | None: the input, I numbers |
    | old, now | a state before and after the step |
    | slot | a slot: its sum of products, or what has replaced it |
    | vector, sum | a weight; the sum of its gradients |
    | zone | a state: what `definition.with_zoneout` reads of it |
    | d_now, carried | a state: its gradient after and before the step |
    | d_slot, d_x | a slot, the input: its gradient |
    | mean | a node: one number, the mean of its columns |
    | scratch | a number: what a pass keeps for later passes of its level |
    """

    kind: str
    name: Any

    @property
    def gradient(self) -> "Place":
        """The place of its gradient."""
        return Place(_GRADIENTS[self.kind], self.name)


_GRADIENTS = {"x": "d_x", "old": "carried", "slot": "d_slot", "vector": "sum"}


class Projection(NamedTuple):
    """A product written to slots: W x, or U of some gates times an old state or a slot."""

    name: str
    """The name of its packed matrix: W, U0, U1 and so on."""
    gates: range
    """Its gates, in the order in which the term's weights are stacked."""
    source: Place
    into: str
    """The first of the slots, one for each gate."""
    adds: bool
    """Whether it adds to what the slots already hold."""
    level: int

    @property
    def term(self) -> str:
        return "W" if self.source.kind == "x" else "U"


class Layout:
    """A unit's step as a graph: its slots in memory, its products and its passes.

    The slots of W x come first, in the order in which W is stacked, so that one product fills them.
    """

    def __init__(self, spec: UnitSpec, *, bias: bool) -> None:
        self.spec, self.bias = spec, bias
        step = step_of(spec, bias=bias)
        self.graph, self.states = step.graph, step.states
        self.levels = list[int]()
        """The number of matrix-vector products in sequence up to each node."""
        self._find_levels()
        stacked = self.owners("U")
        slots = [args[0] for op, *args in self.graph.nodes if op == "slot"]
        self._products = sorted(
            (self._product_level(v), stacked.index(gate), slot.name, v)
            for slot in slots
            for gate, v in slot.recurrent
        )
        multiplied = [v for *_, v in self._products if self.graph.nodes[v][0] != "old"]
        self.sources = {v: f"v{k}" for k, v in enumerate(dict.fromkeys(multiplied))}
        """The nodes that a U multiplies, other than states before the step, and their slots."""
        self.slots = self._ordered_slots()
        self.places = self._places()
        self.saved = self._saved()
        gates = range(len(self.owners("W")))
        self.input = Projection("W", gates, Place("x", None), self.slots[0], False, 0)
        self.recurrent = self._recurrent()
        self.projections = self.input, *self.recurrent
        self.level_count = max(self.levels) + 1
        self.summed = [
            Weight(term, gate) for term in ("b", "V", "bU") for gate in self.owners(term)
        ]
        """The weights whose gradients the backward pass sums over time and rows."""
        self.zones = [args[0] for op, *args in self.graph.nodes if op == "zone"]
        """The states whose `zone` leaves are read."""
        self.forward = _forward(self)
        """The passes over a step, by level."""
        self.means = [place.name for level in self.forward for place in level.placed("mean")]
        """The means of a step, which the backward passes read too."""
        self.backward = _backward(self)
        """The passes back over a step, by level."""
        both = *self.forward, *self.backward
        self.scratch = max(len(level.placed("scratch")) for level in both)
        """The most rows of scratch memory in which a level's passes keep values."""

    def owners(self, term: str) -> list[str]:
        """The gates that have `term`, in the order in which their weights are stacked."""
        return self.spec.gates_with(term, bias=self.bias)

    def products_of(self, level: int) -> tuple[Projection, ...]:
        """The products of U in a level."""
        return tuple(p for p in self.recurrent if p.level == level)

    def slot(self, name: str) -> int:
        return self.slots.index(name)

    def _find_levels(self) -> None:
        for n, (op, *args) in enumerate(self.graph.nodes):
            if op == "slot":
                before = [self._product_level(v) for _, v in args[0].recurrent]
            else:
                before = [self.levels[m] for m in self.graph.reads(n)]
            self.levels.append(max(before, default=0))

    def _product_level(self, v: Id) -> int:
        """The level of the product of a matrix and node `v`."""
        return 0 if self.graph.nodes[v][0] == "old" else self.levels[v] + 1

    def _ordered_slots(self) -> list[str]:
        input_slots = [f"W{gate}" for gate in self.owners("W")]
        others = dict.fromkeys(into for *_, into, _ in self._products if into not in input_slots)
        return [*input_slots, *others, *self.sources.values()]

    def _places(self) -> dict[Id, Place]:
        """The places of nodes that are not computed."""
        places = {}
        for n, (op, *args) in enumerate(self.graph.nodes):
            if op == "slot":
                places[n] = Place("slot", args[0].name)
            elif op in ("old", "vector", "zone"):
                places[n] = Place(op, args[0])
        return places

    def _saved(self) -> dict[Id, Place]:
        """The nodes whose values replace slots: activations of sums that nothing else reads.

        Their slopes follow from these values, so the backward pass does not need the sums.
        """
        users: dict[Id, list[Id]] = {n: [] for n in range(len(self.graph.nodes))}
        for n in users:
            for m in self.graph.reads(n):
                users[m].append(n)
        read_elsewhere, saved = {*self.states.values(), *self.sources}, {}
        for n, place in self.places.items():
            if place.kind != "slot":
                continue
            value = n
            while value not in read_elsewhere and len(users[value]) == 1:
                (value,) = users[value]
                if self.graph.nodes[value][0] != "+":
                    break
            if self.graph.nodes[value][0] in FUNCTIONS and value not in read_elsewhere:
                saved[value] = place
        return saved

    def _recurrent(self) -> list[Projection]:
        """The products of U by level; those of one source, adjacent in U and in memory, are one."""
        found, filled = list[Projection](), set(self.slots[: len(self.input.gates)])
        for level, row, into, v in self._products:
            op, *args = self.graph.nodes[v]
            source = Place("old", args[0]) if op == "old" else Place("slot", self.sources[v])
            gates, adds = range(row, row + 1), into in filled
            filled.add(into)
            last = found[-1] if found else self.input
            adjacent = last.gates.stop, self.slot(last.into) + len(last.gates)
            same = (last.source, last.adds, last.level) == (source, adds, level)
            if same and adjacent == (row, self.slot(into)):
                found[-1] = last._replace(gates=range(last.gates.start, row + 1))
            else:
                found.append(Projection(f"U{len(found)}", gates, source, into, adds, level))
        return found


class Store(NamedTuple):
    """A node's value, stored in a place or added to what it holds."""

    node: Id
    place: Place
    adds: bool = False


@dataclass(frozen=True)
class Pass:
    """Nodes computed for every row and column, in order; some are loaded, some stored."""

    nodes: tuple[Id, ...]
    loads: Mapping[Id, Place]
    stores: tuple[Store, ...]
    uniform: tuple[Id, ...] = ()
    """Nodes computed before it once for all columns of a row; empty unless the level has means."""
    cleared: tuple[Place, ...] = ()
    """Places set to zero at the end."""

    def placed(self, kind: str) -> list[Place]:
        """The places of one kind that it stores to."""
        return [store.place for store in self.stores if store.place.kind == kind]

    def stores_of(self, n: Id) -> list[Store]:
        """The stores of a node's value."""
        return [store for store in self.stores if store.node == n]


@dataclass(frozen=True)
class Level:
    """The passes between products."""

    passes: list[Pass]
    projections: tuple[Projection, ...]
    """Taken before the passes of a forward level; transposed, after those of a backward level."""
    adds: tuple[bool, ...] = ()
    """Whether each transposed projection adds to the existing gradient of its source."""
    in_rows: bool = False
    """Whether each row goes through all passes before the next, as means require."""

    def placed(self, kind: str) -> list[Place]:
        """The places of one kind that its passes store to."""
        return [place for step in self.passes for place in step.placed(kind)]


def _forward(layout: Layout) -> list[Level]:
    graph, levels, memory = layout.graph, layout.levels, dict(layout.places)
    targets = [Store(n, Place("now", state)) for state, n in layout.states.items()]
    targets += [Store(n, Place("slot", name)) for n, name in layout.sources.items()]
    depths, found = _depths(layout), list[Level]()
    for level in range(layout.level_count):
        level_stores = [t for t in targets if levels[t.node] == level]
        late = [n for n in layout.saved if levels[n] == level and n not in memory]
        saved = [Store(n, layout.saved[n]) for n in late]
        if _reads_means(layout, level_stores + saved, memory):
            passes = _passes_in_rows(layout, level_stores + saved, memory)
            found.append(Level(passes, layout.products_of(level), in_rows=True))
            continue
        passes = []
        each = sorted({depths[t.node] for t in level_stores}) or [0]
        for depth in each:
            todo = [t for t in level_stores if depths[t.node] == depth]
            if depth == each[-1]:
                todo += [store for store in saved if store.node not in memory]
            nodes = _needed(layout, todo, memory)
            done = {store.node for store in todo} | memory.keys()
            todo += [Store(n, at) for n, at in layout.saved.items() if n in nodes and n not in done]
            loads = {n: memory[n] for n in nodes if n in memory}
            passes.append(Pass(nodes, loads, tuple(todo)))
            memory |= {t.node: t.place for t in todo if graph.reads(t.node)}
        found.append(Level(passes, layout.products_of(level)))
    return found


def _backward(layout: Layout) -> list[Level]:
    graph, held, found = layout.graph, set[Place](), list[Level]()
    leaves = layout.places
    memory = leaves | layout.saved
    memory |= {n: Place("slot", name) for n, name in layout.sources.items()}
    memory |= {n: Place("now", state) for state, n in layout.states.items() if graph.reads(n)}
    memory |= {n: Place("mean", n) for n in layout.means}
    for level in reversed(range(layout.level_count)):
        seeds = _seeds(layout, level, memory)
        stores, products = list[Store](), layout.products_of(level)
        for n, d in graph.gradients(seeds).items():
            if n in leaves and leaves[n].kind != "zone":
                place = leaves[n].gradient
                stores.append(Store(d, place, place in held or place.kind == "sum"))
                held.add(place)
        adds = list[bool]()
        for p in products:
            adds.append(p.source.gradient in held)
            held.add(p.source.gradient)
        in_rows = _reads_means(layout, stores, memory)
        if in_rows:
            passes = _passes_in_rows(layout, stores, dict(memory))
        else:
            nodes = _needed(layout, stores, memory)
            loads = {n: memory[n] for n in nodes if n in memory}
            passes = [Pass(nodes, loads, tuple(stores))]
        found.append(Level(passes, products, tuple(adds), in_rows))
    every = [Place("carried", state) for state in layout.states]
    every += [Place("d_slot", name) for name in layout.slots]
    cleared = tuple(place for place in every if place not in held)
    found[0].passes[-1] = replace(found[0].passes[-1], cleared=cleared)
    return found


def _reads_means(layout: Layout, stores: list[Store], memory: Mapping[Id, Place]) -> bool:
    return any(layout.graph.nodes[n][0] == "mean" for n in _needed(layout, stores, memory))


MAX_REPEATED = 4
"""Up to this many instructions are repeated in a later pass, not kept in scratch memory."""
_COSTS = dict.fromkeys(FUNCTIONS, 20)
"""About how many instructions a node takes, if more than one."""


def _passes_in_rows(layout: Layout, wanted: list[Store], memory: dict[Id, Place]) -> list[Pass]:
    """The passes that store what is wanted, as soon as its means are known; adds to `memory`.

    Values carried to the previous step replace what any pass may read, so they come last.
    """
    graph, ranks = layout.graph, dict[Id, int]()
    for n in sorted(_needed(layout, wanted, memory)):
        reads = () if n in memory else graph.reads(n)
        if graph.nodes[n][0] == "mean" and reads:
            wanted = [*wanted, Store(reads[0], Place("mean", n))]
            ranks[n] = ranks[reads[0]] + 1
        else:
            ranks[n] = max((ranks[m] for m in reads), default=0)
    last = max(ranks.values())
    stores = [list[Store]() for _ in range(last + 1)]
    for store in wanted:
        stores[last if store.place.kind == "carried" else ranks[store.node]].append(store)
    mem, first, passes, known = dict(memory), dict[Id, int](), list[Pass](), set[Id]()
    for rank, todo in enumerate(stores):
        nodes, found = set[Id](), [store.node for store in todo]
        while found:
            n = found.pop()
            if n in first and n not in mem and _cost(layout, n, mem) > MAX_REPEATED:
                mem[n] = Place("scratch", sum(at.kind == "scratch" for at in mem.values()))
                stores[first[n]].append(Store(n, mem[n]))
            if n not in nodes:
                nodes.add(n)
                found += () if n in mem else graph.reads(n)
        columns = tuple(n for n in _in_order(graph, nodes) if not graph.uniform[n])
        uniform = tuple(n for n in sorted(nodes - known) if graph.uniform[n])
        passes.append(Pass(columns, {n: mem[n] for n in nodes if n in mem}, (), uniform))
        first = dict.fromkeys(columns, rank) | first
        means = {place.name: place for _, place, _ in todo if place.kind == "mean"}
        mem |= {n: p for n, p, _ in todo if p.kind in ("now", "slot") and graph.reads(n)} | means
        known.update(uniform, means)
    memory |= {n: place for n, place in mem.items() if place.kind != "scratch"}
    return [replace(one, stores=tuple(todo)) for one, todo in zip(passes, stores, strict=True)]


def _cost(layout: Layout, n: Id, memory: Mapping[Id, Place]) -> int:
    """About how many instructions a node takes for a vector of columns."""
    needed = _needed(layout, [Store(n, Place("scratch", 0))], memory)
    ops = [layout.graph.nodes[m][0] for m in needed if not layout.graph.uniform[m]]
    return sum(_COSTS.get(op, 1) for op in ops)


def _seeds(layout: Layout, level: int, memory: dict[Id, Place]) -> dict[Id, Id]:
    """The gradients of nodes that become known before a level's backward pass."""
    graph, seeds = layout.graph, dict[Id, Id]()
    known = [(n, Place("d_slot", name)) for n, name in layout.sources.items()]
    known = [(n, place) for n, place in known if layout.levels[n] == level]
    if level == layout.level_count - 1:
        known += [(n, Place("d_now", state)) for state, n in layout.states.items()]
    for n, place in known:
        d = graph.node(*place)
        memory[d] = place
        seeds[n] = graph.arithmetic("+", seeds[n], d) if n in seeds else d
    return seeds


def _depths(layout: Layout) -> list[int]:
    """The number of activations in sequence up to each node, from the start of its level."""
    graph, depths = layout.graph, list[int]()
    for n, (op, *_) in enumerate(graph.nodes):
        read = [depths[m] for m in graph.reads(n) if layout.levels[m] == layout.levels[n]]
        depths.append(max(read, default=0) + (op in FUNCTIONS))
    return depths


def _needed(layout: Layout, stores: list[Store], memory: Mapping[Id, Place]) -> tuple[Id, ...]:
    """The nodes that must be loaded or computed to make these stores, in order."""
    needed, found = set[Id](), [store.node for store in stores]
    while found:
        n = found.pop()
        if n not in needed:
            needed.add(n)
            found += () if n in memory else layout.graph.reads(n)
    return _in_order(layout.graph, needed)


def _in_order(graph: Graph, nodes: set[Id]) -> tuple[Id, ...]:
    """Each node after those that it reads.

    Gradients of states come first: values stored for the state before the step replace them.
    """
    return tuple(sorted(nodes, key=lambda n: (graph.nodes[n][0] != "d_now", n)))
