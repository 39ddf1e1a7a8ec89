"""Writes the static completion scripts of bash, zsh and fish from the command tree.

    python -m commcalc.cli.completion_scripts

A TAB then starts no Python; the names of a user's own presets are file names, which the shell reads itself. A test
compares the files in ``completions/`` with what this writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from commcalc.accounting.products import Objective, Overlap
from commcalc.algebra.collective import Kind
from commcalc.catalog import presets
from commcalc.catalog.describe import KINDS
from commcalc.catalog.sections import SECTIONS
from commcalc.cli import application
from commcalc.cli.check import Style
from commcalc.cli.completions import FILES, ROOT, Shell
from commcalc.cli.options import PATHS
from commcalc.cli.output import Format
from commcalc.cli.sharded import NOTATIONS
from commcalc.network.busbw import KINDS as COLLECTIVES
from commcalc.schemas import NAMES as SCHEMAS


class Words(NamedTuple):
    """What may stand in one place: known words, presets of these kinds, files."""

    known: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    files: bool = False

    def joined(self, other: Words) -> Words:
        """What may stand in either of two places."""
        return Words((*self.known, *other.known), (*self.kinds, *other.kinds), self.files or other.files)

    @property
    def static(self) -> tuple[str, ...]:
        """The words that do not depend on the user: known ones and packaged presets."""
        return (*self.known, *(name for kind in self.kinds for name in packaged(kind)))

    @property
    def folders(self) -> tuple[str, ...]:
        """Where a user's own presets of these kinds lie, below each folder of ``COMMCALC_PRESETS``."""
        return tuple(presets.FOLDERS[kind] for kind in self.kinds)


class Option(NamedTuple):
    """One option: its spellings, its help, whether it takes a value, and which."""

    spellings: tuple[str, ...]
    help: str
    takes_value: bool
    words: Words


class Command(NamedTuple):
    """One command; ``path`` is how it is called, of two words in a group. A group has its commands' names as words."""

    path: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    words: Words
    group: bool


_HELP = Option(("--help", "-h"), "Show this message and exit.", False, Words())
_ARGUMENTS = {
    "job": Words(kinds=("job",), files=True),
    "shell": Words(known=tuple(Shell)),
    "preset": Words(kinds=KINDS, files=True),
    "name": Words(known=SCHEMAS),
    "paths": Words(files=True),
    "config": Words(files=True),
    "logs": Words(files=True),
    "budget": Words(files=True),
    "words": Words(known=("compare",), kinds=("job",), files=True),
    "pattern": Words(kinds=KINDS),
    "expression": Words(),
    "what": Words(known=("tp", "batch", "mix", "bandwidth")),
    "primitive": Words(known=COLLECTIVES),
    "primitive_": Words(known=tuple(kind.value for kind in Kind if kind is not Kind.SLICE)),
}
_VALUES = {
    "model": Words(kinds=("model",), files=True),
    "hardware": Words(kinds=("hardware",), files=True),
    "format_": Words(known=tuple(Format)),
    "style_": Words(known=tuple(Style)),
    "kind": Words(known=KINDS),
    "source": Words(known=("packaged", "user")),
    "output": Words(files=True),
    "compare": Words(kinds=("hardware",), files=True),
    "plan": Words(kinds=("job",), files=True),
    "collective": Words(known=COLLECTIVES),
    "minimize": Words(known=tuple(Objective)),
    "overlap": Words(known=tuple(Overlap)),
    "notation": Words(known=NOTATIONS),
}


def packaged(kind: str) -> list[str]:
    """Names of the packaged presets of a kind."""
    return sorted(path.stem for path in (presets.ROOT / presets.FOLDERS[kind]).glob("*.yaml"))


def commands() -> list[Command]:
    """The command tree as completions need it, groups before their commands."""
    import typer

    found: list[Command] = []

    def visit(command: object, path: tuple[str, ...]) -> None:
        inner = getattr(command, "commands", {})
        if path:
            found.append(_command(command, path, tuple(inner)))
        for name, below in inner.items():
            visit(below, (*path, name))

    visit(typer.main.get_command(application()), ())
    return found


def _command(command: Any, path: tuple[str, ...], inner: tuple[str, ...]) -> Command:
    options, words = [], Words(known=inner)
    for param in command.params:
        if param.param_type_name == "argument":
            words = words.joined(_ARGUMENTS[param.name])
        else:
            options.append(_option(param))
    summary = (command.help or "").strip().splitlines()[0]
    return Command(path, summary, (*options, _HELP), words, bool(inner))


def _option(param: Any) -> Option:
    name = str(param.name)
    words = _VALUES.get(name, Words())
    if name in PATHS:
        section, key = PATHS[name][0].split(".")
        words = Words(known=tuple(SECTIONS[section][key].choices))
    spellings = (*param.opts, *param.secondary_opts)
    return Option(spellings, str(param.help), not param.is_flag, words)


def bash(tree: list[Command]) -> str:
    """The script for bash. It starts no process: even a subshell costs a millisecond."""

    def replies(words: Words, indent: str) -> list[str]:
        lines = []
        if words.static:
            lines.append(f"{indent}_commcalc_words {' '.join(words.static)}")
        if words.folders:
            lines.append(f"{indent}_commcalc_own {' '.join(words.folders)}")
        if words.files:
            lines.append(f"{indent}_commcalc_files")
        return lines or [f"{indent}:"]

    lines = [
        "# bash completion for commcalc; generated, do not edit",
        "_commcalc_words() {",
        "    local word",
        '    for word in "$@"; do',
        '        [[ $word == "$cur"* ]] && COMPREPLY+=("$word")',
        "    done",
        "}",
        "_commcalc_files() {",
        "    local file",
        '    for file in "${cur/#\\~\\//$HOME/}"*; do',
        '        [[ -e $file ]] && COMPREPLY+=("$file")',
        "    done",
        "    compopt -o filenames 2> /dev/null",
        "}",
        "_commcalc_own() {  # presets in the folders of COMMCALC_PRESETS",
        "    local IFS=: root kind file",
        "    for root in ${COMMCALC_PRESETS-}; do",
        '        for kind in "$@"; do',
        '            for file in "$root/$kind/$cur"*.yaml; do',
        "                [[ -e $file ]] || continue",
        "                file=${file##*/}",
        '                COMPREPLY+=("${file%.yaml}")',
        "            done",
        "        done",
        "    done",
        "}",
        "_commcalc() {",
        "    local IFS=$' \\t\\n' command=${COMP_WORDS[1]}",
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}",
        "    COMPREPLY=()",
        "    if (( COMP_CWORD == 1 )); then",
        f"        _commcalc_words {' '.join(first_words(tree))} --help --version",
        "        return",
        "    fi",
        "    case $command in",
        f'        {group_names(tree)}) (( COMP_CWORD > 2 )) && command="$command ${{COMP_WORDS[2]}}" ;;',
        "    esac",
        '    case "$command:$prev" in',
    ]
    lines += option_cases(tree, replies)
    lines += ["    esac", '    case "$command" in']
    for command in tree:
        spellings = " ".join(one for option in command.options for one in option.spellings)
        lines += [
            f'        "{" ".join(command.path)}")',
            "            if [[ $cur == -* ]]; then",
            f"                _commcalc_words {spellings}",
            "            else",
            *replies(command.words, " " * 16),
            "            fi ;;",
        ]
    lines += ["    esac", "}", "complete -F _commcalc commcalc"]
    return "\n".join(lines) + "\n"


def first_words(tree: list[Command]) -> list[str]:
    """The commands that may stand first."""
    return [command.path[0] for command in tree if len(command.path) == 1]


def group_names(tree: list[Command]) -> str:
    """The commands that have subcommands, as a pattern."""
    return "|".join(command.path[0] for command in tree if command.group)


def option_cases(tree: list[Command], replies: Callable[[Words, str], list[str]]) -> list[str]:
    """Branches that offer an option's values, by ``command:word before``; bash and zsh read them alike."""
    lines = []
    for command in tree:
        called = " ".join(command.path)
        for option in command.options:
            if option.takes_value:
                pattern = "|".join(f'"{called}":{one}' for one in option.spellings)
                lines += [f"        {pattern})", *replies(option.words, " " * 12), "            return ;;"]
    return lines


def zsh(tree: list[Command]) -> str:
    """The script for zsh. ``_arguments`` would do, but takes 20 ms for the options of the ledger."""

    def quoted(text: str) -> str:
        return text.replace("'", "'\\''").replace(":", "\\:")

    def replies(words: Words, indent: str) -> list[str]:
        lines = []
        if words.known:
            lines.append(f"{indent}compadd {' '.join(words.known)}")
        if words.kinds:
            names = (name for kind in words.kinds for name in packaged(kind))
            lines.append(f"{indent}compadd {' '.join(names)}")
            lines.append(f"{indent}_commcalc_own {' '.join(words.folders)}")
        if words.files:
            lines.append(f"{indent}_files")
        return lines or [f"{indent}:"]

    def described(found: Iterable[tuple[str, str]], what: str, indent: str) -> list[str]:
        listed = [f"{indent}    '{word}:{quoted(text)}'" for word, text in found]
        return [f"{indent}offers=(", *listed, f"{indent})", f"{indent}_describe {what} offers"]

    lines = [
        "#compdef commcalc",
        "# generated, do not edit",
        "_commcalc_own() {  # presets in the folders of COMMCALC_PRESETS",
        "    local root kind",
        "    local -a names",
        "    for root in ${(s.:.)COMMCALC_PRESETS-}; do",
        "        for kind in $@; do",
        "            names+=($root/$kind/*.yaml(N:t:r))",
        "        done",
        "    done",
        "    compadd -a names",
        "}",
        "_commcalc() {",
        "    local command=$words[2]",
        "    local -a offers",
        "    if (( CURRENT == 2 )); then",
        *described(((one.path[0], one.help) for one in tree if len(one.path) == 1), "command", " " * 8),
        "        return",
        "    fi",
        f'    [[ $command == ({group_names(tree)}) ]] && (( CURRENT > 3 )) && command="$command $words[3]"',
        '    case "$command:$words[CURRENT-1]" in',
    ]
    lines += option_cases(tree, replies)
    lines += ["    esac", "    case $command in"]
    for command in tree:
        spelled = [(one, option.help) for option in command.options for one in option.spellings]
        below = [(one.path[1], one.help) for one in tree if command.group and one.path[:-1] == command.path]
        lines += [
            f"        '{' '.join(command.path)}')",
            "            if [[ $PREFIX == -* ]]; then",
            *described(spelled, "-o option", " " * 16),
            "            else",
            *(described(below, "command", " " * 16) if below else replies(command.words, " " * 16)),
            "            fi ;;",
        ]
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

    def replies(words: Words) -> str:
        own = f" (__commcalc_own {' '.join(words.folders)})" if words.folders else ""
        listed = " ".join(words.static) + own
        return f" -a '{listed.strip()}'" if listed.strip() else ""

    def condition(path: tuple[str, ...]) -> str:
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in path)
        return f"-n '{seen}'"

    lines = [
        "# fish completion for commcalc; generated, do not edit",
        "function __commcalc_own  # presets in the folders of COMMCALC_PRESETS",
        "    for root in (string split : -- $COMMCALC_PRESETS)",
        "        for kind in $argv",
        "            for file in $root/$kind/*.yaml",
        "                string replace -r '.*/(.*)\\.yaml$' '$1' -- $file",
        "            end",
        "        end",
        "    end",
        "end",
        "complete -c commcalc -f",
    ]
    first = " ".join(first_words(tree))
    for command in tree:
        if len(command.path) == 1:
            where = f"-n 'not __fish_seen_subcommand_from {first}'"
        else:
            others = " ".join(one.path[1] for one in tree if len(one.path) == 2 and one.path[0] == command.path[0])
            group = command.path[0]
            where = f"-n '__fish_seen_subcommand_from {group}; and not __fish_seen_subcommand_from {others}'"
        lines.append(f"complete -c commcalc {where} -a {command.path[-1]} -d '{quoted(command.help)}'")
    for command in tree:
        if command.group:
            continue
        seen = condition(command.path)
        if replies(command.words):
            lines.append(f"complete -c commcalc {seen}{replies(command.words)}")
        if command.words.files:
            lines.append(f"complete -c commcalc {seen} -F")
        for option in command.options:
            for spelling in option.spellings:
                long = f"-l {spelling[2:]}" if spelling.startswith("--") else f"-s {spelling[1:]}"
                value = " -r -F" if option.words.files else " -x" if option.takes_value else ""
                lines.append(
                    f"complete -c commcalc {seen} {long}{value}{replies(option.words)} -d '{quoted(option.help)}'"
                )
    return "\n".join(lines) + "\n"


WRITERS = {Shell.BASH: bash, Shell.ZSH: zsh, Shell.FISH: fish}


def main() -> None:
    """Write all three scripts."""
    tree = commands()
    for shell, writer in WRITERS.items():
        (ROOT / FILES[shell]).write_text(writer(tree), encoding="utf-8")


if __name__ == "__main__":
    main()
