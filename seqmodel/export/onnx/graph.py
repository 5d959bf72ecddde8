"""An ONNX graph under construction.

Its values are symbols: arithmetic with them, or slicing, adds nodes. Opset 17, which runtimes have
supported for years.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from seqmodel.kernels.code.vectors import Vector

OPSET, IR_VERSION = 17, 8
FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
INT64, BOOL = TensorProto.INT64, TensorProto.BOOL
ROWS = "rows"
"""The dimension of unknown size: the number of frames, or samples, that a call reads."""
_TO_END = 2**31
"""The end of a slice to the end of its axis."""


def _operator(op: str, *, swapped: bool = False) -> Callable[..., "Symbol"]:
    def operate(self: "Symbol", *others: "Value") -> "Symbol":
        return self.graph(op, *others, self) if swapped else self.graph(op, self, *others)

    return operate


class Symbol:
    """A value of the graph under construction."""

    __array_ufunc__ = None  # NumPy then leaves arithmetic with its arrays to this class

    def __init__(self, graph: "Graph", name: str, *, double: bool = False) -> None:
        self.graph, self.name, self.double = graph, name, double

    __add__ = __radd__ = _operator("Add")
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", swapped=True)
    __mul__ = __rmul__ = _operator("Mul")
    __truediv__, __rtruediv__ = _operator("Div"), _operator("Div", swapped=True)
    __floordiv__, __mod__ = __truediv__, _operator("Mod")  # of integers of at least 0
    __matmul__ = _operator("MatMul")
    __lt__, __le__ = _operator("Less"), _operator("LessOrEqual")
    __gt__, __ge__ = _operator("Greater"), _operator("GreaterOrEqual")
    __eq__, __hash__ = _operator("Equal"), None  # type: ignore[assignment]
    __and__, __or__, __neg__ = _operator("And"), _operator("Or"), _operator("Neg")

    # The interface of compiled code's vectors, so that their formulas also work for the graph.

    log, exp = _operator("Log"), _operator("Exp")
    in_powers, where = Vector.in_powers, Vector.where

    def replaced(self, where: "Symbol", relation: str, limit: "Value", then: "Value") -> "Symbol":
        return self.graph("Where", where > limit if relation == ">" else where < limit, then, self)

    def __getitem__(self, key: slice | tuple[slice, ...]) -> "Symbol":
        """A part of the value, given by slices without steps."""
        slices = dict(enumerate(key if isinstance(key, tuple) else (key,)))
        axes = [axis for axis, part in slices.items() if part != slice(None)]
        starts = [slices[axis].start or 0 for axis in axes]
        ends = [_TO_END if slices[axis].stop is None else slices[axis].stop for axis in axes]
        return self.graph("Slice", self, *(np.array(each) for each in (starts, ends, axes)))


Value = Symbol | float | NDArray[Any]
"""A symbol or a constant. Real constants are float64 next to float64 symbols, otherwise float32."""
Step = tuple[Sequence[Symbol], Sequence[Symbol]]
"""States and outputs."""
Result = TypeVar("Result")


class Graph:
    """Nodes, constants, inputs and outputs, named by their place in the model."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []  # those of a scan's body while it is being written
        self._constants: dict[str, TensorProto] = {}
        self._stored: dict[tuple[str, bytes], Symbol] = {}
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._counts: dict[str, int] = {}
        self._scope: str = ""

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        """Prefix names within the block with `part`."""
        former = self._scope
        self._scope = f"{former}{part}/"
        try:
            yield
        finally:
            self._scope = former

    # ---- inputs and outputs ----

    def input(self, name: str, shape: Sequence[int | str], kind: int = FLOAT) -> Symbol:
        """Declare an input."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return Symbol(self, name, double=kind == DOUBLE)

    def output(self, name: str, value: Symbol, *shape: int | str, kind: int = FLOAT) -> None:
        """Declare a value as an output."""
        self._nodes.append(helper.make_node("Identity", [value.name], [name], name))
        self._outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def with_states(
        self, shapes: Mapping[str, Sequence[int]],
        run: Callable[[list[Symbol]], tuple[Sequence[Symbol], Result]], kind: int = FLOAT,
    ) -> Result:  # fmt: skip
        """What `run` outputs besides the new states, given states of these shapes."""
        states = [self.input(f"state.{name}", shape, kind) for name, shape in shapes.items()]
        after, outputs = run(states)
        for (name, shape), value in zip(shapes.items(), after, strict=True):
            self.output(f"new.{name}", value, *shape, kind=kind)
        return outputs

    def to_proto(self, name: str) -> GraphProto:
        nodes = _needed(self._nodes, self._outputs)
        read = {name for node in nodes for name in _reads(node)}
        constants = [value for name, value in self._constants.items() if name in read]
        return helper.make_graph(nodes, name, self._inputs, self._outputs, constants)

    # ---- nodes ----

    def __call__(self, op: str, *inputs: Value | None, **attributes: Any) -> Symbol:
        """Add a node with one output; inputs that are None are left out."""
        return self.several(1, op, *inputs, **attributes)[0]

    def several(
        self, count: int, op: str, *inputs: Value | None, **attributes: Any
    ) -> list[Symbol]:
        double = any(value.double for value in inputs if isinstance(value, Symbol))
        names = ["" if value is None else self._value(value, double) for value in inputs]
        name = self._unique_name(op)
        outputs = [name] if count == 1 else [f"{name}.{k}" for k in range(count)]
        self._nodes.append(helper.make_node(op, names, outputs, name, **attributes))
        return [Symbol(self, output, double=double) for output in outputs]

    def constant(self, array: NDArray[Any], name: str) -> Symbol:
        name = self._unique_name(name)
        self._constants[name] = numpy_helper.from_array(np.array(array, order="C"), name)
        return Symbol(self, name, double=array.dtype == np.float64)

    def scan(
        self, body: Callable[..., Step], states: Sequence[Symbol], rows: Sequence[Symbol],
        *, row_axes: Sequence[int] | None = None, output_axis: int = 0,
    ) -> tuple[list[Symbol], list[Symbol]]:  # fmt: skip
        """Apply `body` along an axis of each of the `rows`: `row_axes`, by default the first.

        It receives the states before a step and the step's rows. Returns the final states, and all
        outputs, stacked along `output_axis`.
        """
        name, outside = self._unique_name("Scan"), self._nodes
        self._nodes = list[NodeProto]()
        inputs = [Symbol(self, self._unique_name("before"), double=s.double) for s in states]
        inputs += [Symbol(self, self._unique_name("row"), double=r.double) for r in rows]
        new, outputs = body(*inputs)
        ends = [self("Identity", value) for value in (*new, *outputs)]
        nodes, self._nodes = self._nodes, outside
        # Types and shapes of inputs and outputs follow from those given to the scan.
        input_infos, output_infos = (
            [helper.make_empty_tensor_value_info(symbol.name) for symbol in symbols]
            for symbols in (inputs, ends)
        )
        nodes = _needed(nodes, output_infos)
        graph = helper.make_graph(nodes, f"{name}.body", input_infos, output_infos)
        results = [Symbol(self, f"{name}.{k}", double=s.double) for k, s in enumerate(ends)]
        reads, writes = ([symbol.name for symbol in each] for each in ((*states, *rows), results))
        axes: dict[str, Any] = {"scan_input_axes": list(row_axes or [0] * len(rows))}
        if outputs:  # onnx has no type for an empty list
            axes["scan_output_axes"] = [output_axis] * len(outputs)
        axes["num_scan_inputs"] = len(rows)
        self._nodes.append(helper.make_node("Scan", reads, writes, name, body=graph, **axes))
        return results[: len(states)], results[len(states) :]

    # ---- shapes and types ----

    def split(self, value: Symbol, sizes: Sequence[int], axis: int) -> list[Symbol]:
        if len(sizes) == 1:
            return [value]
        return self.several(len(sizes), "Split", value, np.array(sizes), axis=axis)

    def concat(self, values: Sequence[Value], axis: int) -> Symbol:
        return self("Concat", *values, axis=axis)

    def reshape(self, value: Symbol, *shape: int) -> Symbol:
        """Reshape a value; 0 keeps a dimension, and -1 is inferred from the others."""
        return self("Reshape", value, np.array(shape))

    def unsqueeze(self, value: Symbol, *axes: int) -> Symbol:
        """Add axes of size 1."""
        return self("Unsqueeze", value, np.array(axes))

    def squeeze(self, value: Symbol, axis: int) -> Symbol:
        """Remove an axis of size 1."""
        return self("Squeeze", value, np.array([axis]))

    def sum(self, value: Symbol, axis: int, *, keep: bool = True) -> Symbol:
        return self("ReduceSum", value, np.array([axis]), keepdims=int(keep))

    def cast(self, value: Symbol, kind: int) -> Symbol:
        """Convert to another type."""
        result = self("Cast", value, to=kind)
        result.double = kind == DOUBLE
        return result

    def count(self, value: Symbol) -> Symbol:
        """The number of rows, (1,)."""
        return self("Shape", value, start=0, end=1)

    def repeated(self, value: Value, like: Symbol, *shape: int) -> Symbol:
        """Repeat a value for each of the rows of `like`: (rows, *shape)."""
        return self("Expand", value, self.concat([self.count(like), np.array(shape, np.int64)], 0))

    def stored(self, array: NDArray[Any]) -> Symbol:
        """A constant, stored once."""
        key = f"{array.dtype}{array.shape}", array.tobytes()
        if key not in self._stored:
            self._stored[key] = self.constant(array, "constant")
        return self._stored[key]

    def _value(self, value: Value, double: bool) -> str:
        """The name of a value, stored if it is a constant."""
        if isinstance(value, Symbol):
            return value.name
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float64 if double else np.float32)
        return self.stored(array).name

    def _unique_name(self, what: str) -> str:
        name = f"{self._scope}{what}"
        number = self._counts[name] = self._counts.get(name, -1) + 1
        return f"{name}.{number}" if number else name


def _needed(nodes: Sequence[NodeProto], outputs: Sequence[ValueInfoProto]) -> list[NodeProto]:
    """The nodes that the outputs depend on: a text also computes what it then does not read."""
    names, kept = {output.name for output in outputs}, list[NodeProto]()
    for node in reversed(nodes):
        if not names.isdisjoint(node.output):
            kept.append(node)
            names.update(_reads(node))
    return kept[::-1]


def _reads(node: NodeProto) -> Iterator[str]:
    """The names that a node reads, also within a scan's body."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _reads(inner)
