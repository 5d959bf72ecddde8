"""`seqmodel units`: the equations, gates and sizes of every unit."""

from typing import Annotated, Any

import typer

from seqmodel.cli.common import print_json
from seqmodel.cli.completion import one_of
from seqmodel.cli.options import Json
from seqmodel.errors import UsageError
from seqmodel.units import UNITS


def units(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="UNIT", help="Units to show.  [default: all]", autocompletion=one_of(UNITS)
        ),
    ] = None,
    inputs: Annotated[int, typer.Option(min=1, help="Size of a frame.")] = 88,
    hidden: Annotated[
        int | None, typer.Option(min=1, help="Hidden size to count at.  [default: 100]")
    ] = None,
    params: Annotated[
        int | None,
        typer.Option(min=1, help="Choose the hidden size nearest to this number of parameters."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the units: their equations and parameter counts.

    Counts exclude the output layer. x is the input, h the output, c the cell; ' marks the previous
    step and (.) the elementwise product; s is the gate activation, phi the activation. V are
    diagonal: peepholes.
    """
    from seqmodel.units import hidden_size_for, unit_spec

    if hidden is not None and params is not None:
        raise UsageError("--hidden and --params exclude each other: give the size or the budget")
    rows: list[dict[str, Any]] = []
    for spec in [unit_spec(name) for name in names or UNITS]:
        size = hidden_size_for(spec.name, inputs, params) if params else hidden or 100
        rows.append(
            {
                "unit": spec.name,
                "equations": list(spec.equations),
                "gates": {gate: list(terms) for gate, terms in spec.gates.items()},
                "source": spec.source,
                "inputs": inputs,
                "hidden": size,
                "parameters": spec.parameter_count(inputs, size),
            }
        )
    if as_json:
        print_json({"units": rows})
        return
    for row in rows:
        typer.echo(f"{row['unit']}  ({row['source']})")
        for equation in row["equations"]:
            typer.echo(f"    {equation}")
        typer.echo(f"    {inputs} inputs, {row['hidden']} hidden: {row['parameters']:,} parameters")
