"""Writes the static completion scripts of bash, zsh and fish from the command tree.

    python -m commcalc.cli.completion_scripts

A TAB then starts no Python. A test compares the files in ``completions/`` with what this writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from commcalc.catalog import presets
from commcalc.catalog.job import SECTIONS
from commcalc.cli import application
from commcalc.cli.completions import FILES, ROOT, Shell
from commcalc.cli.options import PATHS
from commcalc.cli.output import Format


class Option(NamedTuple):
    """One option: its spellings, its help, whether it takes a value, and which values there are."""

    spellings: tuple[str, ...]
    help: str
    takes_value: bool
    values: tuple[str, ...]
    files: bool


class Command(NamedTuple):
    """One subcommand with its options and the values of its argument."""

    name: str
    help: str
    options: tuple[Option, ...]
    values: tuple[str, ...]
    files: bool


def commands() -> list[Command]:
    """The command tree as completions need it."""
    import typer

    tree = typer.main.get_command(application())
    found = []
    for name, command in tree.commands.items():  # type: ignore[attr-defined]
        options = [_option(param) for param in command.params if param.param_type_name == "option"]
        options.append(Option(("--help", "-h"), "Show this message and exit.", False, (), False))
        arguments = {param.name for param in command.params if param.param_type_name == "argument"}
        values: tuple[str, ...] = ()
        if "job" in arguments:
            values = tuple(presets.names("job"))
        elif "shell" in arguments:
            values = tuple(Shell)
        found.append(
            Command(name, (command.help or "").strip().splitlines()[0], tuple(options), values, "job" in arguments)
        )
    return found


def _option(param: object) -> Option:
    name = str(param.name)  # type: ignore[attr-defined]
    values: tuple[str, ...] = ()
    if name in PATHS:
        section, key = PATHS[name][0].split(".")
        values = SECTIONS[section][key].choices
    elif name in ("model", "hardware"):
        values = tuple(presets.names(name))
    elif name == "format_":
        values = tuple(Format)
    return Option(
        (*param.opts, *param.secondary_opts),  # type: ignore[attr-defined]
        str(param.help),  # type: ignore[attr-defined]
        not param.is_flag,  # type: ignore[attr-defined]
        values,
        name in ("model", "hardware"),
    )


def bash(tree: list[Command]) -> str:
    """The script for bash."""
    names = " ".join(command.name for command in tree)
    lines = [
        "# bash completion for commcalc; generated, do not edit",
        "_commcalc() {",
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}",
        "    COMPREPLY=()",
        "    if (( COMP_CWORD == 1 )); then",
        f'        COMPREPLY=($(compgen -W "{names} --help --version" -- "$cur"))',
        "        return",
        "    fi",
        '    case "$command:$prev" in',
    ]
    for command in tree:
        for option in command.options:
            if option.takes_value:
                pattern = "|".join(f"{command.name}:{spelling}" for spelling in option.spellings)
                action = f'COMPREPLY=($(compgen -W "{" ".join(option.values)}" -- "$cur"))' if option.values else ":"
                files = ' COMPREPLY+=($(compgen -f -- "$cur"))' if option.files else ""
                lines.append(f"        {pattern}) {action};{files} return ;;".replace(";; ;;", ";;"))
    lines += ["    esac", '    case "$command" in']
    for command in tree:
        spellings = " ".join(spelling for option in command.options for spelling in option.spellings)
        lines.append(f"        {command.name})")
        lines.append("            if [[ $cur == -* ]]; then")
        lines.append(f'                COMPREPLY=($(compgen -W "{spellings}" -- "$cur"))')
        lines.append("            else")
        lines.append(f'                COMPREPLY=($(compgen -W "{" ".join(command.values)}" -- "$cur"))')
        if command.files:
            lines.append('                COMPREPLY+=($(compgen -f -- "$cur"))')
        lines += ["            fi ;;"]
    lines += ["    esac", "}", "complete -F _commcalc commcalc"]
    return "\n".join(lines) + "\n"


def zsh(tree: list[Command]) -> str:
    """The script for zsh."""

    def quoted(text: str) -> str:
        return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")

    def action(values: Iterable[str], files: bool) -> str:
        listed = f"({' '.join(values)})" if values else ""
        if files:
            return f"_alternative 'presets:preset:{listed}' 'files:file:_files'".replace("'", "'\\''")
        return listed

    lines = [
        "#compdef commcalc",
        "# generated, do not edit",
        "_commcalc() {",
        "    local -a commands",
        "    commands=(",
    ]
    lines += [f"        '{command.name}:{quoted(command.help)}'" for command in tree]
    lines += [
        "    )",
        "    if (( CURRENT == 2 )); then",
        "        _describe command commands",
        "        return",
        "    fi",
        "    local command=$words[2]",
        "    shift words",
        "    (( CURRENT-- ))",
        "    case $command in",
    ]
    for command in tree:
        lines.append(f"        {command.name})")
        lines.append("            _arguments -s \\")
        for option in command.options:
            for spelling in option.spellings:
                value = f":value:{action(option.values, option.files)}" if option.takes_value else ""
                lines.append(f"                '*{spelling}[{quoted(option.help)}]{value}' \\")
        lines.append(f"                '1:argument:{action(command.values, command.files)}'")
        lines.append("            ;;")
    lines += [
        "    esac",
        "}",
        'if [ "$funcstack[1]" = "_commcalc" ]; then _commcalc "$@"; else compdef _commcalc commcalc; fi',
    ]
    return "\n".join(lines) + "\n"


def fish(tree: list[Command]) -> str:
    """The script for fish."""

    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace("'", "\\'")

    names = " ".join(command.name for command in tree)
    lines = ["# fish completion for commcalc; generated, do not edit", "complete -c commcalc -f"]
    none = f"not __fish_seen_subcommand_from {names}"
    for command in tree:
        lines.append(f"complete -c commcalc -n '{none}' -a {command.name} -d '{quoted(command.help)}'")
    for command in tree:
        seen = f"-n '__fish_seen_subcommand_from {command.name}'"
        if command.values:
            lines.append(f"complete -c commcalc {seen} -a '{' '.join(command.values)}'")
        if command.files:
            lines.append(f"complete -c commcalc {seen} -F")
        for option in command.options:
            for spelling in option.spellings:
                long = f"-l {spelling[2:]}" if spelling.startswith("--") else f"-s {spelling[1:]}"
                value = " -x" if option.takes_value and not option.files else " -r -F" if option.takes_value else ""
                values = f" -a '{' '.join(option.values)}'" if option.values else ""
                lines.append(f"complete -c commcalc {seen} {long}{value}{values} -d '{quoted(option.help)}'")
    return "\n".join(lines) + "\n"


WRITERS = {Shell.BASH: bash, Shell.ZSH: zsh, Shell.FISH: fish}


def main() -> None:
    """Write all three scripts."""
    tree = commands()
    for shell, writer in WRITERS.items():
        (ROOT / FILES[shell]).write_text(writer(tree), encoding="utf-8")


if __name__ == "__main__":
    main()
