"""The command line: names, defaults, and the handling of failures. A command is imported when it runs."""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib import import_module
from string import ascii_lowercase
from typing import Annotated, Any, Final, NoReturn

import typer

from pgtop_tune import __version__
from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.paths import elsewhere
from pgtop_tune.cli.exit_codes import ExitCode, exit_code, terminating
from pgtop_tune.cli.options import register
from pgtop_tune.cli.output import PROGRAM, complain, fill_closed_streams, flush_or_say_why, say, suit_the_locale, tell
from pgtop_tune.process.dispositions import reset_inherited
from pgtop_tune.process.handed_on import command_line, take_over

DEFAULT_COMMAND: Final = "top"
_COMPLETIONS: Final = (["--install-completion"], ["--show-completion"])
_SHELL_BY_NAME: Final = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"
_OF_THE_PROGRAM: Final = ("--help", "--version", "--install-completion", "--show-completion")


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"{PROGRAM} {__version__}")
        raise typer.Exit


def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


COMMANDS: Final = (
    ("top", "watch", "top"),
    ("demo", "watch", "demo"),
    ("record", "recordings", "record"),
    ("replay", "watch", "replay"),
    ("parameters", "parameters", "parameters"),
    ("advise", "parameters", "advise"),
    ("set", "parameters", "set_parameters"),
    ("reset", "parameters", "reset_parameters"),
    ("revert", "parameters", "revert"),
    ("ab", "ab", "ab"),
    ("tune", "tune", "tune"),
    ("diff", "parameters", "diff"),
    ("check", "check", "check"),
    ("compare", "recordings", "compare"),
    ("report", "recordings", "report"),
    ("export", "recordings", "export"),
)
"""Name, folder below `cli.commands`, function."""
GROUPS: Final = (
    ("bench", "bench", "bench"),
    ("baseline", "recordings", "baseline"),
    ("experiment", "experiment", "experiment"),
)
"""Commands with commands of their own: name, folder, what typer makes of them."""
_NAMES: Final = frozenset(name for name, _, _ in (*COMMANDS, *GROUPS))
_LONG: Final = 4


def program(named: str = "") -> typer.Typer:
    """The command line.

    Args:
        named: The only command that will be asked for: what the others take need not be found out, which takes 60 ms.
            Any other word is all of them.
    """
    made = typer.Typer(
        name=PROGRAM,
        help=(
            "Watch a PostgreSQL server and its host during a load test; start loads, change parameters, record, replay."
        ),
        epilog=(
            "Examples:  pgtop-tune demo  ·  pgtop-tune -h /run/postgresql -d bench  ·  "
            "pgtop-tune record --seconds 60 -o run.jsonl.gz -d bench  ·  pgtop-tune replay run.jsonl.gz"
        ),
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help"]},
    )
    made.callback()(_program)
    alone = named in _NAMES
    for name, folder, function in COMMANDS:
        if name == named or not alone:
            register(made, name, _part(folder, function))
    for name, folder, group in GROUPS:
        if name == named or not alone:
            made.add_typer(_part(folder, group), name=name)
    return made


def _part(folder: str, name: str) -> Any:
    return getattr(import_module(f"pgtop_tune.cli.commands.{folder}"), name)


def with_default_command(arguments: list[str]) -> list[str]:
    """The words with `top` put in front when they name no command: `pgtop-tune -h db1 bench` is `pgtop-tune top …`.

    Raises:
        UsageProblem: The first word is nearly a command: a slip is likelier than a database of that name.
    """
    if arguments and (arguments[0] in _NAMES or arguments[0] in _OF_THE_PROGRAM):
        return arguments
    if arguments and (meant := _mistyped(arguments[0])):
        raise UsageProblem(
            f"no such command '{arguments[0]}'; did you mean {meant}?",
            f"to watch a database of that name: {PROGRAM} -d {arguments[0]}",
        )
    return [DEFAULT_COMMAND, *arguments]


def _mistyped(word: str) -> str:
    """The command that a word is one slip away from: a letter added, left out, wrong or swapped; "" for none.

    Short commands are near too many words: of these only swapped letters count.
    """
    typed = word.lower()
    if not typed.isalpha():
        return ""
    return next((name for name in sorted(_NAMES) if typed in _slips(name)), "")


def _slips(name: str) -> set[str]:
    parts = [(name[:place], name[place:]) for place in range(len(name) + 1)]
    swapped = {head + tail[1] + tail[0] + tail[2:] for head, tail in parts if len(tail) > 1} | {name}
    if len(name) < _LONG:
        return swapped
    left_out = {head + tail[1:] for head, tail in parts if tail}
    added = {head + letter + tail for head, tail in parts for letter in ascii_lowercase}
    wrong = {head + letter + tail[1:] for head, tail in parts if tail for letter in ascii_lowercase}
    return swapped | left_out | added | wrong


_YOUNG_OBJECTS: Final = 20_000
"""Objects made before garbage is looked for. Python's own 700 is reached many times in each frame, and frames have no
cycles to be found."""


_KEEPING_STATE: Final = frozenset({"set", "reset", "revert", "ab", "tune", "experiment", "advise", "bench"})
"""Commands whose journal or records matter later: root is told where they are."""


def main() -> None:
    """Runs the command line and leaves with its exit status; an expected failure is one sentence, never a traceback."""
    fill_closed_streams()
    reset_inherited()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10)
    suit_the_locale()
    completing = any(name.startswith("_PGTOP_TUNE_COMPLETE") for name in os.environ)
    try:
        take_over()
        with terminating():
            words = sys.argv[1:] if completing else with_default_command(command_line(sys.argv[1:]))
            if words and words[0] in _KEEPING_STATE and (note := elsewhere()):
                tell(note)
            _run(words, "" if completing else words[0])
    except PgtopError as problem:
        complain(problem)
        sys.exit(exit_code(problem))
    except KeyboardInterrupt:
        sys.exit(ExitCode.SIGNALLED + signal.SIGINT)
    except BrokenPipeError:
        _leave_unread()
    except SystemExit as ended:
        # typer ends the program by itself, with 1 for all that it has caught.
        if isinstance(ended.__context__, BrokenPipeError):
            _leave_unread()
        if isinstance(ended.__context__, typer.Abort):
            sys.exit(ExitCode.SIGNALLED + signal.SIGINT)
        raise
    except Exception as failure:
        refused = _refused(failure)
        if refused is not None:
            complain(refused)
            sys.exit(exit_code(refused))
        sys.excepthook(*sys.exc_info())
        sys.exit(ExitCode.CRASHED)


def _run(words: list[str], command: str) -> None:
    if words[:1] in _COMPLETIONS and len(words) > 1:
        # typer takes the name of a shell only where it does not look for the one that it runs in.
        os.environ[_SHELL_BY_NAME] = "1"
    try:
        program(command)(args=words, prog_name=PROGRAM)
    except SystemExit:
        flush_or_say_why(sys.stdout, "stdout")
        raise
    except OSError:
        flush_or_say_why(sys.stderr, "stderr")
        flush_or_say_why(sys.stdout, "stdout", "\n")
        raise


def _refused(failure: Exception) -> PgtopError | None:
    """Return the problem of a directory of ours that `sudo` has made root's; None for a bug."""
    if not isinstance(failure, PermissionError):
        return None
    from pgtop_tune.base.paths import of_own_directories

    return of_own_directories(failure)


def _leave_unread() -> NoReturn:
    """Nobody reads our lines any more (`| head`); what is left of them must not be flushed at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    sys.exit(ExitCode.SIGNALLED + signal.SIGPIPE)


if __name__ == "__main__":
    main()
