"""The command line: names, defaults, and the handling of failures. A command is imported when it runs."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Final, NoReturn

import typer
from msgspec import Struct

from pgtop_tune import __version__
from pgtop_tune.base.config import LOG_FILE
from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.paths import elsewhere
from pgtop_tune.cli.commands import COMMANDS, DEFAULT_COMMAND, GROUPS, NAMES, SHOWS
from pgtop_tune.cli.exit_codes import ExitCode, exit_code, terminating
from pgtop_tune.cli.habits import (
    MISUSED,
    may_be_a_slip,
    option_hint,
    take_general,
    value_hint,
    with_default_command,
    with_near_command,
)
from pgtop_tune.cli.options import register
from pgtop_tune.cli.output import PROGRAM, complain, fill_closed_streams, flush_or_say_why, say, suit_the_locale, tell
from pgtop_tune.process.dispositions import reset_inherited
from pgtop_tune.process.handed_on import command_line, take_over

_COMPLETIONS: Final = (["--install-completion"], ["--show-completion"])
_SHELL_BY_NAME: Final = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"


def _print_version(requested: bool) -> None:
    if requested:
        say(f"{PROGRAM} {__version__}")
        raise typer.Exit


def _program(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    config: Annotated[
        str,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Configuration file, in place of ~/.config/pgtop-tune/config.toml; before or behind the command.",
        ),
    ] = "",
    log_file: Annotated[
        str,
        typer.Option(
            "--log-file", metavar="FILE", help="Append messages and events to this file, without secrets; as --config."
        ),
    ] = "",
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = "info",
) -> None:
    pass


_LOOKS: Final[Mapping[str, Any]] = {
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["--help", "-?"]},
}


def program(only: str = "") -> typer.Typer:
    """Return the command line.

    Args:
        only: Name of the one command that is needed: looking up the options of all takes 60 ms. Any other word means
            all commands.
    """
    root = typer.Typer(
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
        **_LOOKS,
    )
    root.callback()(_program)
    parents = {"": root}
    for group, (help_text, examples) in GROUPS.items():
        if only == group or only not in NAMES:
            parents[group] = typer.Typer(help=help_text, epilog=examples, no_args_is_help=True, **_LOOKS)
            root.add_typer(parents[group], name=group)
    for call, request, function in COMMANDS:
        if only == call.split()[0] or only not in NAMES:
            group, _, name = call.rpartition(" ")
            register(parents[group], name, _member(request), partial(_run_command, function))
    return root


def _run_command(function: str, request: Struct) -> int | None:
    connection = getattr(request, "connection", None) if function == SHOWS else None
    if connection is not None and may_be_a_slip(connection.target or connection.database):
        from pgtop_tune.cli.connections import check_database

        check_database(connection)
    exit_status: int | None = _member(function)(request)
    return exit_status


def _member(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"pgtop_tune.cli.commands.{module}"), name)


_YOUNG_OBJECTS: Final = 20_000
"""Threshold of the garbage collector. Each frame exceeds Python's own 700 many times, and frames have no cycles."""
_KEEPING_STATE: Final = frozenset({"set", "reset", "revert", "ab", "tune", "experiment", "advise", "bench"})
"""Commands whose journal or records matter later: root is told where they are."""


def main() -> None:
    """Run the command line, and exit with its status; an expected failure is one sentence, never a traceback."""
    fill_closed_streams()
    reset_inherited()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10)
    suit_the_locale()
    completing = any(name.startswith("_PGTOP_TUNE_COMPLETE") for name in os.environ)
    try:
        take_over()
        with terminating():
            arguments = sys.argv[1:]
            if completing:
                from pgtop_tune.cli.completion import prepare, without_begun_word

                prepare(lambda word: any(name.startswith(word) for name in NAMES), DEFAULT_COMMAND)
                with without_begun_word():
                    _run(arguments, "")
            else:
                arguments = with_default_command(take_general(command_line(arguments)))
                if os.environ.get(LOG_FILE):
                    from pgtop_tune.cli.log import begin

                    begin(arguments)
            if arguments and arguments[0] in _KEEPING_STATE and (note := elsewhere()):
                tell(note)
            _run(arguments, "" if completing else arguments[0])
    except PgtopError as problem:
        problem = with_near_command(problem, sys.argv[1:])
        complain(problem)
        sys.exit(exit_code(problem))
    except KeyboardInterrupt:
        sys.exit(ExitCode.SIGNALLED + signal.SIGINT)
    except BrokenPipeError:
        _leave_unread()
    except SystemExit as ended:
        # typer exits with 1 for it.
        if isinstance(ended.__context__, BrokenPipeError):
            _leave_unread()
        raise
    except typer.Abort:
        sys.exit(ExitCode.SIGNALLED + signal.SIGINT)
    except Exception as failure:
        refused = _refused(failure)
        if refused is not None:
            complain(refused)
            sys.exit(exit_code(refused))
        sys.excepthook(*sys.exc_info())
        sys.exit(ExitCode.CRASHED)


def _run(arguments: list[str], command: str) -> None:
    if arguments[:1] in _COMPLETIONS and len(arguments) > 1:
        # typer takes the name of a shell only where it does not detect the shell.
        os.environ[_SHELL_BY_NAME] = "1"
    try:
        sys.exit(program(command)(args=arguments, prog_name=PROGRAM, standalone_mode=False, obj=tuple(arguments)))
    except typer.TyperException as error:
        if type(error).__name__ == _ONLY_HELP:
            tell(f"to watch a database called {command}: {PROGRAM} -d {command}")
            sys.exit(ExitCode.USAGE)
        raise _usage_problem(error, command) from None
    except SystemExit:
        flush_or_say_why(sys.stdout, "stdout")
        raise
    except OSError:
        flush_or_say_why(sys.stderr, "stderr")
        flush_or_say_why(sys.stdout, "stdout", "\n")
        raise


_KINDS: Final[Mapping[str, str]] = {
    "NoSuchOption": "no such option {option}",
    "MissingParameter": "{parameter} is missing",
    "BadParameter": "{parameter}: {message}",
}
"""Name of an exception of typer → its words; other exceptions have their own."""


_ONLY_HELP: Final = "NoArgsIsHelpError"
"""Name of the exception of a group without a command; its help is printed already."""


def _usage_problem(error: typer.TyperException, typed_command: str) -> UsageProblem:
    """Return typer's refusal of the command line as ours: one sentence, and the command that shows the options."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    command = f"{PROGRAM} {typed_command}".strip() if context is None else context.command_path
    kind, option = type(error).__name__, getattr(error, "option_name", "")
    message = _KINDS.get(kind, "{message}").format(
        option=option,
        parameter="" if parameter is None else _shown(parameter),
        message=_plainly(error.message[:1].lower() + error.message[1:].rstrip(".")),
    )
    command_words = command.removeprefix(PROGRAM).strip()
    if command_words == "bench run":
        from pgtop_tune.cli.typed_load import REFUSED

        if option in REFUSED:
            reason, hint = REFUSED[option]
            return UsageProblem(f"bench run takes no {option}: {reason}", hint)
    hint = MISUSED.get(option, "")
    if context is not None and kind == "NoSuchOption":
        rows = context.command.params
        options = [name for row in rows for name in (*row.opts, *row.secondary_opts)]
        formats = next((_choices(row) for row in rows if row.name == "format"), ())
        hint = option_hint(command_words, option, options, formats)
    elif refused := _NO_CHOICE.match(error.message):
        hint = value_hint(f"{command_words} {_shown(parameter)}", refused[1], _choices(parameter))
    return UsageProblem(message, hint or f"see `{command} --help`")


_NO_CHOICE: Final = re.compile("'(.*)' is not one of ")


def _choices(parameter: Any) -> tuple[str, ...]:
    """Return the values that an option or argument takes; none where it takes any."""
    return tuple(str(choice) for choice in getattr(parameter.type, "choices", ()))


_PLAIN: Final[Mapping[str, str]] = {
    "is not a valid int range": "is not a whole number",
    "is not a valid int": "is not a whole number",
    "is not a valid float range": "is not a number",
    "is not a valid float": "is not a number",
}
"""Words of typer → ours; longer ones first."""


def _plainly(message: str) -> str:
    for ending, plain in _PLAIN.items():
        message = message.replace(ending, plain)
    return message


def _shown(parameter: Any) -> str:
    """Return an option as typed, or an argument as the help names it."""
    options = [option for option in parameter.opts if option.startswith("-")]
    return options[0] if options else str(parameter.metavar or parameter.name)


def _refused(failure: Exception) -> PgtopError | None:
    """Return the problem of a directory of ours that `sudo` has made root's; None for a bug."""
    if not isinstance(failure, PermissionError):
        return None
    from pgtop_tune.base.paths import of_own_directories

    return of_own_directories(failure)


def _leave_unread() -> NoReturn:
    """Exit because our lines have lost their reader (`| head`); the rest of them must not be flushed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    sys.exit(ExitCode.SIGNALLED + signal.SIGPIPE)


if __name__ == "__main__":
    main()
