"""The command line: parse, call, print. One module per subcommand, loaded only when it is asked for."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from commcalc import __version__

if TYPE_CHECKING:
    import typer

# Subcommands, each with what it does: in the module of its name, a function or the group of its own subcommands.
# Help tells the words from here, and loads none of them.
COMMANDS = {
    "ledger": "What a block, a stage and a step move, how long it takes, and whether it fits.",
    "compare": "Layouts, degrees and machines side by side: a row for every combination.",
    "check": "Hold jobs against a budget: exit status 1 where a limit is broken.",
    "record": "An experiment's record with its predictions; with compare, measured beside predicted.",
    "matmul": "Every way to run a sharded matmul, and the cheapest.",
    "reshard": "The cheapest collectives from one sharding to another.",
    "shard": "Local shape, bytes and copies of a sharded tensor.",
    "collective": "One collective by every algorithm, or primitives compared.",
    "busbw": "Any one of time, algbw and busbw gives the others.",
    "calibrate": "Measured links from benchmark logs.",
    "degrees": "Which TP degrees are legal, and the rule that forbids others.",
    "solve": "Limits found by pricing: the largest TP, the smallest batch, the best mix.",
    "sweep": "The ledger at every point of a grid of options, a line each, streamed.",
    "verify": "Run the layouts on simulated devices and compare.",
    "presets": "Models, machines and jobs by name; check and import files.",
    "schema": "JSON Schemas of what is written and of the files that are read.",
    "completions": "Print the completion script of a shell.",
}
INTERRUPTED = 130
HELP = """How many bytes a sharding moves, over which links, and how long.

\b
Examples:
  commcalc ledger
  commcalc ledger --model llama-3-70b --hardware h100 --tp 8 --json
  commcalc compare --model llama-3-70b --hardware h100 --tp 1,2,4,8
  commcalc check budget.yaml
  commcalc record llama-3-70b-h100
  commcalc matmul "A[I, J_X] @ B[J, K]" --mesh X=4 --dim I=1K,J=4K,K=8K
  commcalc collective all_reduce --bytes 1GiB --group-size 8 --hardware h100
  commcalc busbw all_reduce --group-size 8 --busbw 370GB/s --link 450GB/s
  commcalc calibrate nccl.log --hardware h100 --output mine.yaml
  commcalc degrees --model llama-2-13b
  commcalc solve tp --model llama-3-70b --hardware h100 --sp
  commcalc sweep --model llama-3-70b --hardware h100 --tp 1..8:x2
  commcalc verify --layout megatron-sp
  commcalc presets list
  commcalc schema job
"""


def main() -> None:
    """Run the program on the arguments of the process."""
    gc.disable()  # it ends soon, and its input is bounded: looking for cycles is a twentieth of a start
    status = run(sys.argv[1:])
    gc.freeze()  # nor does the interpreter look through all objects once more at its end: a seventh of the time
    sys.exit(status)


def run(args: Sequence[str]) -> int:
    """The exit status of a command line: 0 done, 1 a check failed, 2 wrong input, 3 no legal answer, 130 Ctrl-C."""
    from commcalc.cli.output import CannotWrite, ClosedPipe, finish, give_up, report_error, style_of, write
    from commcalc.errors import CommcalcError

    try:
        try:
            if args and all(arg in ("--version", "-V") for arg in args):
                write(f"commcalc {__version__}\n")
                return 0
            status = _invoke(args)
            if status != INTERRUPTED:  # Typer's own answer to Ctrl-C
                finish()
            return status
        except CommcalcError as error:
            give_up()
            if isinstance(error, CannotWrite):
                report_error(error)
            else:
                report_error(error, style_of(args))
            return error.status
    except ClosedPipe:
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except CannotWrite as error:  # while an error was told as JSON
        report_error(error)
        return error.status
    finally:
        give_up()


def _invoke(args: Sequence[str]) -> int:
    import typer
    from typer._click.exceptions import ClickException, NoArgsIsHelpError, NoSuchOption

    from commcalc.cli.output import CannotWrite, ClosedPipe, say
    from commcalc.errors import UsageError, nearest

    try:
        status = application(args)(spelled_out(args), prog_name="commcalc", standalone_mode=False)
    except NoArgsIsHelpError as problem:
        say(problem.format_message())
        return 2
    except ClickException as problem:
        ctx = getattr(problem, "ctx", None)
        hint = f"{ctx.command_path} --help" if ctx is not None else "commcalc --help"
        message = problem.format_message()
        if isinstance(problem, NoSuchOption) and problem.possibilities:
            message = f"no such option: {problem.option_name}"
            near = nearest(problem.option_name, problem.possibilities)
            hint = f"did you mean {' or '.join(near or problem.possibilities)}?"
        raise UsageError(_lowered(message), where="the command line", hint=hint) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as ended:  # Typer's own answer to a closed pipe while it prints help
        if ended.code == 1:
            raise ClosedPipe from None
        raise
    except OSError as problem:  # and to a full disk
        raise CannotWrite(problem) from None
    return status if isinstance(status, int) else 0


def spelled_out(args: Sequence[str]) -> list[str]:
    """The arguments, with the value that ``compare --plot`` has without a file: Typer knows none that may be left out.

    >>> spelled_out(["compare", "--plot", "--json"])
    ['compare', '--plot=terminal', '--json']
    """
    found = list(args)
    for at, arg in enumerate(found):
        following = found[at + 1] if at + 1 < len(found) else "-"
        is_file = "." in following and not following.startswith("-") and not following.endswith((".yaml", ".yml"))
        if arg == "--plot" and found[0] == "compare" and not is_file:
            found[at] = "--plot=terminal"
    return found


def _lowered(message: str) -> str:
    return (message[:1].lower() + message[1:]).rstrip(".")


def application(args: Sequence[str] | None = None) -> typer.Typer:
    """The command tree; with ``args`` that name a subcommand, that one alone is loaded, and none with others."""
    import typer

    app = typer.Typer(
        name="commcalc",
        help=HELP,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(version: bool = typer.Option(False, "--version", "-V", help="Show the version.", is_eager=True)) -> None:
        if version:
            from commcalc.cli.output import write

            write(f"commcalc {__version__}\n")
            raise typer.Exit

    if args is not None and COMMANDS.keys().isdisjoint(args):
        for name, told in COMMANDS.items():
            app.command(name, help=told)(_not_asked_for)
        return app
    for name in [args[0]] if args and args[0] in COMMANDS else COMMANDS:
        found = getattr(import_module(f"commcalc.cli.{name}"), name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _not_asked_for() -> None:
    """In the place of a command that the arguments do not name."""
