"""``commcalc presets``: what is packaged, one preset in full, checking files, importing a ``config.json``."""

import fnmatch
import os
from collections.abc import Sequence
from typing import Annotated, Optional

import typer

from commcalc.catalog.describe import KINDS, Listed
from commcalc.cli import options as o
from commcalc.cli.output import Format, colour_of_terminal, report_error, say, width_of_terminal, write
from commcalc.errors import MOST_TOLD, WRONG_INPUT, CommcalcError, Several, SpecError, UnknownName
from commcalc.report.table import Table

Kind = Annotated[
    o.Text, typer.Option("--kind", metavar="KIND", help="model, hardware or job [all].", show_default=False)
]

presets = typer.Typer(
    help="Models, machines and jobs by name; check and import files.\n\n"
    "\b\nExamples:\n  commcalc presets list\n  commcalc presets show llama-3-70b\n",
    no_args_is_help=True,
    add_completion=False,
)

LIST_EXAMPLES = """\b
Examples:
  commcalc presets list
  commcalc presets list llama
  commcalc presets list --kind hardware --json
  commcalc presets list --min-size 30B --max-size 80B
"""
SHOW_EXAMPLES = """\b
Examples:
  commcalc presets show llama-3-70b
  commcalc presets show h100 --json
"""
VALIDATE_EXAMPLES = """\b
Examples:
  commcalc presets validate my-model.yaml
  commcalc presets validate presets/ --json
"""
IMPORT_EXAMPLES = """\b
Examples:
  commcalc presets import config.json
  commcalc presets import config.json --name my-model --output my-model.yaml
"""


@presets.command("list")
@o.with_examples(LIST_EXAMPLES)
def list_(
    ctx: typer.Context,
    pattern: Annotated[
        o.Text, typer.Argument(metavar="[TEXT]", help="Part of a name, or a pattern like 'llama*'.", show_default=False)
    ] = None,
    kind: Kind = None,
    family: Annotated[
        o.Text, typer.Option("--family", metavar="NAME", help="Models of one family.", show_default=False)
    ] = None,
    source: Annotated[
        o.Text, typer.Option("--source", metavar="WHOSE", help="packaged or user [both].", show_default=False)
    ] = None,
    min_size: Annotated[
        o.Text, typer.Option("--min-size", metavar="N", help="Models from N parameters, like 7B.", show_default=False)
    ] = None,
    max_size: Annotated[
        o.Text, typer.Option("--max-size", metavar="N", help="Models up to N parameters.", show_default=False)
    ] = None,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """Models, machines and jobs that go by a name."""
    from commcalc.catalog.describe import listing
    from commcalc.report import presets as report

    style = o.format_from(ctx.params)
    low, high = _parameters(min_size, "--min-size"), _parameters(max_size, "--max-size")
    if source not in (None, "packaged", "user"):
        raise UnknownName("source", source, ("packaged", "user"), where=f"--source {source[:60]}")
    _check_kind(kind)
    found, broken = listing(KINDS if kind is None else (kind,))
    for path, problem in broken[:MOST_TOLD]:
        say(f"warning: preset {path}: {problem.problems[0].message} [preset-unreadable]")
    if len(broken) > MOST_TOLD:
        say(f"warning: {len(broken) - MOST_TOLD} more presets are wrong; commcalc presets validate FOLDER tells how")
    if family is not None:
        families = {one.family for one in found if one.family}
        if family not in families:
            raise UnknownName("family", family, families, where=f"--family {family[:60]}")
    found = [
        one
        for one in found
        if (pattern is None or _matches(one, pattern))
        and (family is None or one.family == family)
        and (source is None or (one.origin == "packaged") == (source == "packaged"))
        and (low is None or (one.parameters is not None and one.parameters >= low))
        and (high is None or (one.parameters is not None and one.parameters <= high))
    ]
    if style in (Format.JSON, Format.JSONL):
        _write_json(style, report.list_document(found), [one.record() for one in found])
    elif style is Format.CSV:
        _write_csv([one.record() for one in found])
    elif found:
        write(_drawn(style, report.list_tables(found), no_color))
    if not found:
        say("no preset matches")


@presets.command("show")
@o.with_examples(SHOW_EXAMPLES)
def show(
    ctx: typer.Context,
    preset: Annotated[
        str, typer.Argument(metavar="PRESET", help="A name, a YAML file or a config.json.", show_default=False)
    ],
    kind: Kind = None,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """One preset or file: values, what follows, sources."""
    from commcalc.catalog.describe import describe
    from commcalc.report import presets as report

    style = o.format_from(ctx.params)
    _check_kind(kind)
    found = describe(preset, kind, full=True)
    if style is Format.JSON:
        _write_json(style, report.show_document(found), [])
    elif style is Format.JSONL:
        _write_json(style, {}, report.show_records(found))
    elif style is Format.CSV:
        _write_csv(report.show_records(found))
    else:
        from commcalc.report.table import folded

        notes = folded(report.show_notes(found), width_of_terminal(os.environ))
        write(_drawn(style, report.show_tables(found), no_color) + "\n" + notes)


@presets.command("validate")
@o.with_examples(VALIDATE_EXAMPLES)
def validate(
    ctx: typer.Context,
    paths: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files, or folders of them.", show_default=False)
    ],
    kind: Kind = None,
    format_: o.FormatOption = None,
    json_: o.Json = False,
    output: o.OutputOption = None,
    no_color: o.NoColor = False,
) -> None:
    """Check model, hardware and job files, or folders of them.

    Every violation is told; the exit status is then 2.
    """
    from commcalc.catalog.describe import check_file
    from commcalc.report import presets as report

    style = o.format_from(ctx.params)
    _check_kind(kind)
    files = [file for path in paths for file in _files(path)]
    checked = [(file, *check_file(file, kind)) for file in files]
    records = [report.validate_record(*one) for one in checked]
    if style in (Format.JSON, Format.JSONL):
        _write_json(style, report.validate_document(records), records)
    elif style is Format.CSV:
        _write_csv(records)
    else:
        write(_drawn(style, [report.validate_table(records)], no_color))
        found = [problem for _, _, _, problems in checked for problem in problems]
        if found:
            report_error(Several(found))
    if not all(record["valid"] for record in records):
        raise typer.Exit(WRONG_INPUT)


@presets.command("import")
@o.with_examples(IMPORT_EXAMPLES)
def import_(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A config.json.", show_default=False)],
    name: Annotated[
        o.Text, typer.Option("--name", metavar="NAME", help="What to call it [from the file].", show_default=False)
    ] = None,
    output: Annotated[
        o.Text, typer.Option("--output", "-o", metavar="FILE", help="Write there [stdout].", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.", show_default=False)] = False,
) -> None:
    """Make a model preset of a config.json.

    Each value keeps its origin; the file is named with its SHA-256.
    """
    from commcalc.catalog.imports import preset_text
    from commcalc.cli.destination import put

    found, text = preset_text(config, name)
    if output is None or output == "-":
        write(text)
        return
    put(output, text, new=not force)
    say(f"wrote {found} to {output}")


def _check_kind(kind: Optional[str]) -> None:
    if kind is not None and kind not in KINDS:
        raise UnknownName("kind", kind, KINDS, where=f"--kind {kind[:60]}")


def _parameters(text: str | None, option: str) -> int | None:
    """A number of parameters given to an option; its error says which."""
    from commcalc.units import parse_parameters

    try:
        return None if text is None else parse_parameters(text)
    except CommcalcError as problem:
        problem.where = f"{option} {(text or '')[:60]}"
        raise


def _matches(one: Listed, pattern: str) -> bool:
    wanted = pattern.casefold()
    if not any(sign in wanted for sign in "*?["):
        wanted = f"*{wanted}*"
    return any(fnmatch.fnmatchcase(name.casefold(), wanted) for name in (one.name, *one.aliases))


def _files(path: str) -> list[str]:
    """The file, or every YAML and JSON file below a folder, sorted."""
    if not os.path.isdir(path):
        return [path]
    found = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(path)
        for name in names
        if name.lower().endswith((".yaml", ".yml", ".json")) and not name.startswith(".")
        if os.path.isfile(os.path.join(folder, name))
    ]
    if not found:
        raise SpecError("no .yaml, .yml or .json file in this folder", where=path)
    return sorted(found)


def _drawn(style: Format, tables: Sequence[Table], no_color: bool) -> str:
    from commcalc.report.table import Terminal, render, render_markdown

    if style is Format.MARKDOWN:
        return render_markdown(tables)
    return render(tables, Terminal(width_of_terminal(os.environ), colour_of_terminal(os.environ, no_color)))


def _write_json(style: Format, document: dict[str, object], records: Sequence[dict[str, object]]) -> None:
    from commcalc.report.json import render_json, render_jsonl

    write(render_json(document) if style is Format.JSON else render_jsonl(records))


def _write_csv(records: Sequence[dict[str, object]]) -> None:
    from commcalc.report.table import render_csv

    write(render_csv(records))
