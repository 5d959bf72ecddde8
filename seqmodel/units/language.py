"""The language of units: a text's lines, parsed into equations.

    text     = { [ equation | start | form | field ] [ "#" comment ] newline }
    equation = name "=" sum
    start    = vector "starts at" ( number | ( "uniform" | "logspace" ) "(" number "," number ")" )
                                                   for a V, b or bU; the default is 0
    form     = recurrent "has" ( "rank" whole | whole "heads" )
                                                   for a U; by default it is whole
    field    = ( "unit" | "source" ) ":" words     its name, by default the file's; its source
    sum      = product { ( "+" | "-" ) product }
    product  = factor { ( "(.)" | "*" | "/" ) factor }
    factor   = "-" factor | value [ "^" whole ] | input "x" | recurrent factor
    value    = number | "(" sum ")" | function "(" sum ")" | vector | name | name "'"
             | ( "max" | "min" ) "(" sum "," sum ")"
             | "where" "(" sum ( "<" | ">" ) sum "," sum "," sum ")"
    function = "s" | "phi" | "tanh" | "sigmoid" | "relu" | "softplus" | "exp" | "sqrt"
             | "mean" | "norm"

Each name is defined once, by its equation; with ' it is its value at the previous step, which makes
it a state, zero before the first. s is the gate activation and phi the activation, which the user
chooses. x is the input (I,). Names that begin with W, U, V or b are weights: inputs W (H, I),
recurrent matrices U (H, H), diagonals V (H,), biases b (H,), and biases bU (H,) that go with a U.
The rest of the name is the index of the weight's gate; without one, the gate is the name that the
equation defines, so that a bare W in two equations is two weights. Each weight appears in one
place. Vectors can start at one number, at H drawn uniformly between two, or at H from one to the
other in equal ratios. A U of rank R is the product of a matrix (H, R) and one (R, H); a U of n
heads has n square blocks on its diagonal, whose sizes differ by at most one, and zeros elsewhere.

Everything else has H numbers; (.), which can be written *, and / are elementwise. mean(a) is one
number, the mean of the H numbers of a. norm(a) is (a - mean(a)) / sqrt(v + 1e-5), v the mean square
of a - mean(a): layer normalisation without its gain and bias. max(a, b) is where(a < b, b, a), and
min(a, b) is where(a > b, b, a): of equals it is a, which then gets the gradient. a^3 is
a (.) a (.) a; powers are 2 to 9. The papers' symbols for (.), s, phi, ' and - are accepted too.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, NoReturn

from seqmodel.errors import SeqmodelError

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<comment>#.*)|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"|(?P<name>[A-Za-z][A-Za-z0-9_]*|[σφ])|(?P<sign>\(\.\)|[-+*/^=()<>,'⊙∘·′’−])"  # noqa: RUF001
)
_PLAIN = {  # the signs of papers
    "σ": "s", "φ": "phi", "⊙": "(.)", "∘": "(.)", "·": "(.)", "′": "'", "’": "'", "−": "-",  # noqa: RUF001
}  # fmt: skip


_WHERE = "a choice is where(a < b, c, d)"
_BRACKET = "the previous h is h', and products are added, as in W x + U h'"
_SUM = "over the H numbers there are mean(a) and norm(a)"
ALTERNATIVES = {
    "**": "the square of a is a^2, its root sqrt(a)",
    "<": _WHERE, ">": _WHERE, "if": _WHERE, "[": _BRACKET, "{": _BRACKET,
    "@": "a matrix stands before its factor, as in W x", "|": "|a| is max(a, -a)",
    "abs": "abs(a) is max(a, -a)", "silu": "silu(a) is a (.) sigmoid(a)",
    "softmax": _SUM, "sum": _SUM, "var": _SUM, "std": _SUM,
}  # fmt: skip
"""What other languages have -> how to write it in this one, or that it cannot be written."""


class UnitError(SeqmodelError):
    """A text does not define a unit; the lines below the message show the place."""

    def __init__(self, message: str, *shown: str) -> None:
        super().__init__(message)
        self.shown = shown


class Token(NamedTuple):
    """A token of a line; `kind` is number, name, sign or end, `column` counts from 0."""

    kind: str
    text: str
    column: int


class Lines:
    """The lines of a text, which errors refer to as `called`."""

    def __init__(self, text: str, called: str) -> None:
        self.called, self.lines = called, text.splitlines()

    def tokens(self, number: int) -> Iterator[Token]:
        """The tokens of a line in the plain spelling, then its end.

        Raises:
            UnitError: at a character that begins no token.
        """
        line, at = self.lines[number - 1], 0
        while at < len(line):
            found = _TOKEN.match(line, at)
            if found is None:
                self.fail(number, at, f"unexpected {line[at]!r}", ALTERNATIVES.get(line[at]))
            kind = str(found.lastgroup)
            if kind not in ("space", "comment"):
                yield Token(kind, _PLAIN.get(found[0], found[0]), at)
            at = found.end()
        yield Token("end", "the end of the line", len(line))

    def fail(self, number: int, column: int, message: str, why: str | None = None) -> NoReturn:
        """Raise UnitError for a place; lines count from 1, columns from 0."""
        message += f": {why}" if why else ""
        first = max(0, column - 60)
        part = self.lines[number - 1].replace("\t", " ")[first : first + 90]
        caret = " " * (column - first) + "^"
        raise UnitError(f"{self.called}:{number}: {message}", f"    {part}", f"    {caret}")


def plain(line: str) -> str:
    """The line without its comment, in the plain spelling."""
    return "".join(_PLAIN.get(sign, sign) for sign in line.partition("#")[0]).strip()


_RESERVED = ("s", "phi", "tanh", "sigmoid", "relu", "softplus", "exp")
FUNCTIONS = (*_RESERVED, "sqrt")
"""Elementwise functions of one argument."""
_ARGUMENT_ENDS = {
    **dict.fromkeys((*FUNCTIONS, "mean", "norm"), (")",)),
    **dict.fromkeys(("max", "min"), (",", ")")),
    "where": ("<>", ",", ",", ")"),
}
"""What ends each argument. Texts may define these names, as older ones do, except for _TAKEN."""
EPSILON = 1e-5
"""Added to the variance by norm, as in torch.nn.LayerNorm."""
MAX_START = 1e30
"""Vectors start at numbers smaller than this."""
MAX_TOKENS = 200
"""The most tokens in a line, so that expressions cannot be nested too deeply."""
MAX_SIZE = 256
"""The most equations, parts of norm, max, min and powers included: 400 compile in 30 seconds."""

_FIELD = re.compile(r"\s*(unit|source)\s*:\s*([^#]*?)\s*(?:#.*)?$")
_START = re.compile(
    r"\s*(?P<weight>\w+)\s+starts?\b\s*(?P<at>at\b)?\s*(?P<value>[^#]*?)\s*(?:#.*)?$"
)
_FORM = re.compile(r"\s*(?P<weight>\w+)\s+has\b\s*(?P<value>[^#]*?)\s*(?:#.*)?$")
_FORM_VALUE = re.compile(r"rank\s+([1-9]\d{0,3})|([1-9]\d{0,3})\s+heads?")
_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_START_VALUE = re.compile(rf"{_NUMBER}|(uniform|logspace)\s*\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)")
_WEIGHT = re.compile(r"(W|U|V|bU|b)([A-Za-z0-9_]*)")


class Weight(NamedTuple):
    """A weight: W, U, V, b or bU, and the gate that it belongs to."""

    term: str
    gate: str


class Start(NamedTuple):
    """The initial values of a vector's H numbers."""

    how: str
    """uniform: drawn between two numbers; logspace: from one to the other in equal ratios."""
    first: float
    last: float

    def text(self) -> float | str:
        """As written in a text."""
        one = self.first == self.last
        return self.first if one else f"{self.how}({self.first:g}, {self.last:g})"


class Form(NamedTuple):
    """The matrices that make up a U: two factors, or blocks on its diagonal."""

    kind: str
    """`rank` or `heads`."""
    size: int

    def text(self) -> str:
        """As written in a text."""
        return f"rank {self.size}" if self.kind == "rank" else f"{self.size} heads"

    def parts(self, H: int) -> list[tuple[int, int]]:
        """The shapes of these matrices."""
        if self.kind == "rank":
            return [(H, self.size), (self.size, H)]
        blocks = min(H, self.size)
        sizes = (H // blocks + (k < H % blocks) for k in range(blocks))
        return [(rows, rows) for rows in sizes]


class Place(NamedTuple):
    """Where a weight appears, and how it is written there; see `Lines.fail`."""

    written: str
    line: int
    column: int


class Node(NamedTuple):
    """An operation and its operands.

    | op | args |
    |---|---|
    | number | a float |
    | now, old | a name; its value at this step, at the previous one |
    | W | a weight, which multiplies x |
    | U | a weight, and the node that it multiplies |
    | vector | a weight V, b or bU |
    | zone | a state; 0 where it keeps its value; see `definition.with_zoneout` |
    | +, -, *, / | two nodes |
    | a function, mean | a node |
    | where | four nodes a, b, c, d: c where a < b, else d |
    """

    op: str
    args: tuple[Any, ...]


class Equation(NamedTuple):
    """name = value, on a line counted from 1."""

    name: str
    value: Node
    line: int
    written: str

    @property
    def defines(self) -> str:
        """The name that the line defines."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, eq=False)
class Text:
    """A parsed text."""

    fields: Mapping[str, str]
    equations: tuple[Equation, ...]
    """In the order of computation; values computed once for several uses are h.1, h.2 and so on."""
    weights: Mapping[Weight, Place]
    """In the order of the text."""
    primed: frozenset[str]
    """Names followed by '."""
    starts: Mapping[Weight, Start]
    """The initial values of vectors, where stated."""
    forms: Mapping[Weight, Form]
    """The matrices that make up each U that is not whole."""
    statements: tuple[str, ...]
    """The lines of all the above, without comments."""


def parse(text: str, called: str) -> Text:
    """Parse the text of a unit; errors refer to its file as `called`.

    Raises:
        UnitError: if it is not in the language.
    """
    parser = _Parser(Lines(text, called))
    for number in range(1, len(parser.lines.lines) + 1):
        parser.read(number)
    return parser.finished()


class _Parser:
    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self._fields: dict[str, str] = {}
        self._equations: dict[str, Equation] = {}
        self._scalars: set[str] = set()  # names whose value is one number
        self._weights: dict[Weight, Place] = {}
        self._states: dict[str, tuple[int, int]] = {}  # the place of the first '
        self._starts: dict[Weight, Start] = {}
        self._forms: dict[Weight, Form] = {}
        self._statements: list[str] = []
        self._line, self._target, self._parts = 0, "", 0
        self._rest: deque[Token] = deque()

    def read(self, number: int) -> None:
        self._line, line = number, self.lines.lines[number - 1]
        if text := _FIELD.match(line):
            name, value = text.groups()
            if name in self._fields:
                self._fail(0, f"{name} is given twice")
            self._fields[name] = value
            return
        if start := _START.match(line):
            self._start(start)
        elif form := _FORM.match(line):
            self._form(form)
        else:
            self._rest = deque(self.lines.tokens(number))
            if self._rest[0].kind == "end":
                return
            if len(self._rest) > MAX_TOKENS:
                self._fail(self._rest[MAX_TOKENS].column, "too long: give a part of it a name")
            self._equation()
        self._statements.append(plain(line))

    def finished(self) -> Text:
        for name, (line, column) in self._states.items():
            if name not in self._equations:
                self.lines.fail(
                    line, column, f"{name}' is the previous {name}, which has no equation"
                )
        return Text(
            self._fields, tuple(self._equations.values()), self._weights,
            frozenset(self._states), self._starts, self._forms, tuple(self._statements),
        )  # fmt: skip

    def _start(self, start: re.Match[str]) -> None:
        name = start["weight"]
        why = "a matrix is drawn at random" if name[0] in "WU" else None
        why = "a state is zero before the first step" if name in self._equations else why
        weight = self._referenced_weight(start, ("V", "b", "bU"), "a V or b", "starts at", why)
        if weight in self._starts:
            self._fail(start.start("weight"), f"{name} starts twice")
        value = _START_VALUE.fullmatch(start["value"]) if start["at"] else None
        if value is None:
            several = "uniform(0, 1), or logspace(0.9, 0.999)"
            advice = f"expected a number, as in {name} starts at 1, or {several}"
            self._fail(start.start("value"), advice)
        number, how, *both = value.groups()
        first, last = map(float, both if how else (number, number))
        if not max(abs(first), abs(last)) < MAX_START:
            self._fail(start.start("value"), "too large a number to start at")
        if how == "logspace" and min(first, last) <= 0:
            self._fail(start.start("value"), "logspace goes between two numbers above 0")
        self._starts[weight] = Start(how or "uniform", first, last)

    def _form(self, form: re.Match[str]) -> None:
        name = form["weight"]
        weight = self._referenced_weight(form, ("U",), "a U", "has", None)
        if weight in self._forms:
            self._fail(form.start("weight"), f"{name} has two forms")
        value = _FORM_VALUE.fullmatch(form["value"])
        if value is None:
            advice = f"expected rank 16, as in {name} has rank 16, or 4 heads: 1 to 9999"
            self._fail(form.start("value"), advice)
        rank, heads = value.groups()
        self._forms[weight] = Form("rank" if rank else "heads", int(rank or heads))

    def _referenced_weight(
        self, line: re.Match[str], terms: tuple[str, ...], kind: str, verb: str, why: str | None
    ) -> Weight:
        """The weight, of these terms and of an equation above, that a line refers to."""
        name, place = line["weight"], line.start("weight")
        known = {w: at.written for w, at in self._weights.items() if w.term in terms}
        found = [w for w, written in known.items() if name in (written, f"{w.term}{w.gate}")]
        if not found:
            above = " or ".join(dict.fromkeys(known.values())) or f"{kind} of an equation above"
            self._fail(place, f"expected {above} before {verb!r}, not {name!r}", why)
        if len(found) > 1:
            advice = " or ".join(f"{w.term}{w.gate}" for w in found)
            self._fail(place, f"{name} stands in several equations: say {advice}")
        return found[0]

    def _equation(self) -> None:
        name = self._next()
        if name.kind != "name" or self._rest[0].text != "=":
            place = name if name.kind != "name" else self._rest[0]
            message = "expected an equation, such as h = phi(W x + U h' + b)"
            self._fail(place.column, message, ALTERNATIVES.get(name.text))
        if name.text in _RESERVED or name.text == "x" or _WEIGHT.fullmatch(name.text):
            taken = f"x, {', '.join(_RESERVED)} and all that begins with W, U, V or b are taken"
            self._fail(name.column, f"{name.text} cannot be defined: {taken}")
        if name.text in self._equations:
            self._fail(name.column, f"{name.text} has two equations")
        self._next()
        self._target, self._parts = name.text, 0
        value = self._sum()
        if self._rest[0].kind != "end":
            self._expected_operator("the end of the line")
        self._define(name.text, value)

    def _define(self, name: str, value: Node) -> None:
        if len(self._equations) >= MAX_SIZE:
            self._fail(0, f"more than {MAX_SIZE} equations, with the parts of norm, max and powers")
        written = plain(self.lines.lines[self._line - 1])
        self._equations[name] = Equation(name, value, self._line, written)
        if self._is_number(value):
            self._scalars.add(name)

    def _shared(self, value: Node) -> Node:
        """A value that an expression reads several times, computed by a separate equation."""
        if value.op in ("now", "old", "number", "vector"):
            return value
        self._parts += 1
        name = f"{self._target}.{self._parts}"
        self._define(name, value)
        return Node("now", (name,))

    def _sum(self) -> Node:
        left = self._product()
        while self._rest[0].text in ("+", "-"):
            left = Node(self._next().text, (left, self._product()))
        return left

    def _product(self) -> Node:
        left = self._factor()
        while self._rest[0].text in ("(.)", "*", "/"):
            op = "/" if self._next().text == "/" else "*"
            if op == self._rest[0].text == "*":
                self._fail(self._rest[0].column, "unexpected '*'", ALTERNATIVES["**"])
            left = Node(op, (left, self._factor()))
        return left

    def _factor(self) -> Node:
        first, value = self._rest[0], self._value()
        product = value.op in ("W", "U") and first.text != "("  # ^ belongs to its factor
        if self._rest[0].text != "^" or product:
            return value
        self._next()
        if self._rest[0].text not in map(str, range(2, 10)):
            self._expected("a power from 2 to 9")
        value = self._shared(value)
        factors = [value] * int(self._next().text)
        return reduce(lambda left, right: Node("*", (left, right)), factors)

    def _value(self) -> Node:
        token = self._next()
        if token.kind == "name":
            return self._named(token)
        if token.kind == "number":
            return Node("number", (float(token.text),))
        if token.text == "-":
            return Node("-", (Node("number", (0.0,)), self._factor()))
        if token.text != "(":
            self._rest.appendleft(token)
            self._expected("a number, a name or (")
        return self._until(")")[0]

    def _named(self, token: Token) -> Node:
        name = token.text
        if name in _RESERVED and self._rest[0].text != "(":
            self._expected(f"( after {name}")
        if name in _ARGUMENT_ENDS and self._rest[0].text == "(":
            return self._call(name)
        if found := _WEIGHT.fullmatch(name):
            return self._weight(token, Weight(found[1], found[2] or self._target))
        if name == "x":
            advice = (
                "there is no previous x" if self._rest[0].text == "'" else "project it, as in W x"
            )
            self._fail(token.column, f"x has as many numbers as a frame: {advice}")
        if self._rest[0].text == "'":
            self._next()
            self._states.setdefault(name, (self._line, token.column))
            return Node("old", (name,))
        if name not in self._equations:
            self._undefined(token)
        return Node("now", (name,))

    def _call(self, name: str) -> Node:
        """A function applied to its arguments."""
        self._next()
        args, signs = zip(*(self._until(*ends) for ends in _ARGUMENT_ENDS[name]), strict=True)
        match name, args:
            case "where", (a, b, *both) if signs[0] == ">":
                return Node("where", (b, a, *both))
            case "max" | "min", both:
                a, b = map(self._shared, both)
                return Node("where", (*((a, b) if name == "max" else (b, a)), b, a))
            case "norm", (a,):
                mean = Node("mean", (self._shared(a),))
                rest = self._shared(Node("-", (*mean.args, mean)))
                square = Node("mean", (Node("*", (rest, rest)),))
                root = Node("sqrt", (Node("+", (square, Node("number", (EPSILON,)))),))
                return Node("*", (rest, Node("/", (Node("number", (1.0,)), root))))
        return Node(name, args)

    def _undefined(self, token: Token) -> NoReturn:
        name = token.text
        if name in _ARGUMENT_ENDS:
            self._expected(f"( after {name}")
        if self._rest[0].text == "(":
            there = f"there are {', '.join(_ARGUMENT_ENDS)}"
            self._fail(token.column, f"{name} is not a function", ALTERNATIVES.get(name, there))
        names = ", ".join(name for name in self._equations if "." not in name)
        only = f", only {names}" if names else ""
        hint = f"; {name}' is that of the previous step" if name == self._target else ""
        self._fail(token.column, f"{name} is not defined yet{only}{hint}", ALTERNATIVES.get(name))

    def _weight(self, token: Token, weight: Weight) -> Node:
        name = token.text
        if weight in self._weights:
            line = self._weights[weight].line
            advice = "give it an index of its own, or name its product"
            self._fail(token.column, f"{name} stands in line {line} already", advice)
        self._weights[weight] = Place(name, self._line, token.column)
        if weight.term in ("W", "U") and self._rest[0].text in ("*", "(.)"):
            self._expected(f"a factor after {name}", ALTERNATIVES["@"])
        if weight.term == "W":
            if self._rest[0].text != "x":
                self._expected(f"x after {name}", "a matrix that multiplies anything else is a U")
            self._next()
            return Node("W", (weight,))
        if weight.term != "U":
            return Node("vector", (weight,))
        if self._rest[0].text == "x":
            self._expected(f"a state after {name}", "a matrix that multiplies x is a W")
        factor = self._factor()
        if self._is_number(factor):
            self._fail(token.column, f"{name} needs a vector to multiply, not a number")
        return Node("U", (weight, factor))

    def _until(self, *ends: str) -> tuple[Node, str]:
        """A sum, and which of these `ends` follows it."""
        inside = self._sum()
        if self._rest[0].text not in ends:
            self._expected_operator(" or ".join(ends).replace(",", "a comma"))
        return inside, self._next().text

    def _is_number(self, node: Node) -> bool:
        if node.op == "now":
            return node.args[0] in self._scalars
        nodes = [arg for arg in node.args if isinstance(arg, Node)]
        return node.op in ("number", "mean") or (bool(nodes) and all(map(self._is_number, nodes)))

    def _next(self) -> Token:
        return self._rest.popleft()

    def _expected_operator(self, other: str) -> NoReturn:
        operand = self._rest[0].kind in ("name", "number") or self._rest[0].text == "("
        why = "a product is written with (.)" if operand else ""
        self._expected(f"an operator or {other}", why)

    def _expected(self, what: str, why: str = "") -> NoReturn:
        token = self._rest[0]
        found = token.text if token.kind == "end" else repr(token.text)
        self._fail(token.column, f"expected {what}, not {found}", ALTERNATIVES.get(token.text, why))

    def _fail(self, column: int, message: str, why: str | None = None) -> NoReturn:
        self.lines.fail(self._line, column, message, why)
