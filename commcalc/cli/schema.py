"""``commcalc schema``: the JSON Schema of a file that commcalc reads, or of what a command writes."""

from __future__ import annotations

from typing import Annotated

import typer

from commcalc.cli import options as o
from commcalc.cli.output import Format, write
from commcalc.errors import UnknownName, UsageError

EXAMPLES = """\b
Examples:
  commcalc schema
  commcalc schema ledger
  commcalc schema ledger --lines
  commcalc schema job --output job.schema.json
  commcalc schema --json
"""


@o.with_examples(EXAMPLES)
def schema(
    ctx: typer.Context,
    name: Annotated[
        o.Text, typer.Argument(metavar="[NAME]", help="Of a file or a command [list all].", show_default=False)
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Of one line of jsonl, not of the document.", show_default=False)
    ] = False,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """JSON Schemas of what is written and of the files that are read.

    Without a NAME it lists them. A schema is JSON whatever the format; put "# yaml-language-server: $schema=FILE"
    on the first line of a YAML file, and an editor completes and checks its keys.
    """
    from commcalc.schemas import NAMES, has_lines
    from commcalc.schemas import schema as schema_of

    style = o.format_from(ctx.params)
    if name is None:
        if lines:
            raise UsageError("--lines of no schema", where="--lines", hint="commcalc schema ledger --lines")
        _list(ctx.params, style)
        return
    if name not in NAMES:
        raise UnknownName("schema", name, NAMES, where="NAME")
    if lines and not has_lines(name):
        raise UsageError(f"{name} is one whole document: it has no lines", where="--lines", hint="leave it out")
    if style in (Format.CSV, Format.MARKDOWN):
        raise UsageError(f"a schema is JSON, not {style}", where=f"--format {style}", hint="json, or jsonl: one line")
    from commcalc.report.json import render_json, render_jsonl

    found = schema_of(name, lines=lines)
    write(render_jsonl([found]) if style is Format.JSONL else render_json(found))


def _list(params: dict[str, object], style: Format) -> None:
    from commcalc.cli.sharded import show
    from commcalc.report.schemas import schemas_document, schemas_table
    from commcalc.schemas import listing

    found = listing()
    show(
        params, style, lambda: schemas_document(found), lambda: [one.record() for one in found],
        lambda: [schemas_table(found)],
    )  # fmt: skip
