"""`seqmodel units`: the equations, gates and sizes of every unit."""

import difflib
from collections.abc import Sequence
from typing import Any

import typer

from seqmodel.cli.common import print_json
from seqmodel.cli.options import Json, check_given, one_of
from seqmodel.unit_setting import is_text, read_unit, unit_name
from seqmodel.units import UNITS, UnitSpec, hidden_size_for, make, module_name, unit_spec, zoo


def units(
    context: typer.Context,
    names: list[str] | None = typer.Argument(
        None,
        metavar="UNIT",
        help="Units to show; or files NAME.unit, or modules, to check.  [default: all]",
        autocompletion=one_of(UNITS),
    ),
    inputs: int = typer.Option(88, min=1, help="Size of a frame."),
    hidden: int | None = typer.Option(None, min=1, help="Hidden size.  [default: 100]"),
    params: int | None = typer.Option(
        None, min=1, help="Choose the hidden size closest to this number of parameters."
    ),
    diff: str | None = typer.Option(None, metavar="UNIT", help="Show differences from this unit."),
    as_json: Json = False,
) -> None:
    """Show the units: their equations and parameter counts.

    Counts exclude the output layer. x is the input, h the output, c the cell; ' marks the previous
    step and (.) the elementwise product; s is the gate activation, phi the activation. V are
    diagonal matrices: peepholes. Equations are a unit's source text: save them, changed, as
    NAME.unit, and every --unit accepts the file.
    """
    check_given(context, [("--hidden", "--params"), ("--diff", "--json")])
    chosen = [read_unit(name) for name in names or UNITS]
    rows = [_row(unit, inputs, hidden, params) for unit in chosen]
    if as_json:
        print_json({"units": rows})
        return
    other = unit_spec(read_unit(diff)).statements if diff else ()
    for unit, row in zip(chosen, rows, strict=True):
        if module_name(unit) is None:
            _show(unit_spec(unit), other)
        else:
            typer.echo(f"# {unit_name(unit)}, a torch module")
        size = f"{inputs} inputs, {row['hidden']} hidden"
        typer.echo(f"# {size}: {row['parameters']:,} parameters\n")
    if not names:
        typer.echo("# others from the literature:")
        for spec in zoo().values():
            typer.echo(f"# {spec.name:<{max(map(len, zoo()))}}  {spec.about}")


def _show(spec: UnitSpec, other: Sequence[str]) -> None:
    """A unit's equations, or how they differ from others."""
    typer.echo(f"# {spec.name}" + f"  ({spec.source})" * bool(spec.source))
    for line in difflib.ndiff(other, spec.statements) if other else spec.statements:
        if not line.startswith("?"):  # ndiff's hints of where two lines differ
            typer.echo(line)


def _row(unit: str, inputs: int, hidden: int | None, params: int | None) -> dict[str, Any]:
    """The facts shown about a unit; the user's own units are also run once."""
    size = hidden_size_for(unit, inputs, params) if params else hidden or 100
    if (module := module_name(unit)) is not None:
        from seqmodel.units.own_module import check_module

        check_module(module, inputs, size)
        parameters = make(unit, inputs, size).parameter_count()
        sizes = {"inputs": inputs, "hidden": size, "parameters": parameters}
        return {"unit": unit_name(unit), **sizes}
    spec = unit_spec(unit)
    if is_text(unit):
        from seqmodel.units.trial import try_unit

        try_unit(spec)
    return {
        "unit": spec.name,
        "equations": [*dict.fromkeys(equation.written for equation in spec.equations)],
        "starts": {f"{weight.term}{weight.gate}": at.text() for weight, at in spec.starts.items()},
        "forms": {
            f"{weight.term}{weight.gate}": form.text() for weight, form in spec.forms.items()
        },
        "gates": {gate: list(terms) for gate, terms in spec.gates.items()},
        "source": spec.source,
        "inputs": inputs,
        "hidden": size,
        "parameters": spec.parameter_count(inputs, size),
    }
