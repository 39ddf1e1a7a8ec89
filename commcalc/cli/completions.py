"""``commcalc completions``: the completion script of a shell, as it is shipped."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from commcalc.cli import options as o
from commcalc.cli.output import write
from commcalc.errors import SpecError, UnknownName

_PACKAGE = Path(__file__).resolve().parent.parent
# A wheel carries the scripts inside the package; a checkout has them beside it.
ROOT = _PACKAGE / "_completions" if (_PACKAGE / "_completions").is_dir() else _PACKAGE.parent / "completions"


class Shell(StrEnum):
    """The shells that have a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


EXAMPLES = """\b
Examples:
  eval "$(commcalc completions bash)"
  commcalc completions fish > ~/.config/fish/completions/commcalc.fish
"""

FILES = {Shell.BASH: "commcalc.bash", Shell.ZSH: "_commcalc", Shell.FISH: "commcalc.fish"}


@o.with_examples(EXAMPLES)
def completions(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
    output: o.OutputOption = None,
) -> None:
    """Print the completion script of a shell."""
    if shell not in Shell.__members__.values():
        raise UnknownName("shell", shell, [*Shell], where="SHELL")
    path = ROOT / FILES[Shell(shell)]
    try:
        write(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError("the completion scripts are not installed", where=path.name) from None
