"""The command line: names, defaults, and the handling of failures. A command is imported when it runs."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from string import ascii_lowercase
from typing import Annotated, Any, Final, NoReturn

import typer
from msgspec import Struct

from pgtop_tune import __version__
from pgtop_tune.base.config import CONFIG, LOG_FILE, LOG_LEVEL
from pgtop_tune.base.errors import NotLetIn, PgtopError, UsageProblem
from pgtop_tune.base.paths import elsewhere
from pgtop_tune.cli.exit_codes import ExitCode, exit_code, terminating
from pgtop_tune.cli.options import register
from pgtop_tune.cli.output import PROGRAM, complain, fill_closed_streams, flush_or_say_why, say, suit_the_locale, tell
from pgtop_tune.process.dispositions import reset_inherited
from pgtop_tune.process.handed_on import command_line, take_over

DEFAULT_COMMAND: Final = "top"
_COMPLETIONS: Final = (["--install-completion"], ["--show-completion"])
_SHELL_BY_NAME: Final = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"
_OF_THE_PROGRAM: Final = ("--help", "-?", "--version", "-V", "--install-completion", "--show-completion")
_HELP: Final = "help"
_BENCH: Final = "bench"
_RECORDINGS: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")


def _completion(typed_words: list[str]) -> list[str]:
    if typed_words[:1] not in ([shell] for shell in _SHELLS):
        raise UsageProblem("completion needs the name of a shell", f"pass {', '.join(_SHELLS)}")
    return ["--show-completion", typed_words[0]]


_WITH_VALUE: Final = frozenset({"-h", "--host", "-p", "--port", "-U", "--username", "-d", "--dbname"})
_WITHOUT_VALUE: Final = frozenset({"-w", "--no-password", "-W", "--password"})
_SHELLS: Final = ("bash", "zsh", "fish")
_INSTEAD: Final[Mapping[str, Callable[[list[str]], list[str]]]] = {
    "version": lambda following: ["--version", *following],
    "completion": _completion,
}
"""Words that stand for an option of the program; a database of such a name needs -d."""


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


def take_general(arguments: list[str]) -> list[str]:
    """Return the arguments without the options of the program, which then stand in the environment, for children too.

    Raises:
        UsageProblem: An option lacks its value.
    """
    remaining, typed_words, in_check = list[str](), list(arguments), False
    while typed_words:
        word = typed_words.pop(0)
        name, equals, value = word.partition("=")
        in_check = in_check or word == "check"
        variable = "" if in_check and name == "--config" else _GENERAL.get(name, "")
        if word == "--":
            return [*remaining, word, *typed_words]
        if word in _WITHOUT_COLOUR:
            os.environ["NO_COLOR"] = "1"
        elif variable:
            if not equals and not typed_words:
                raise UsageProblem(f"{name} needs a value", f"see `{PROGRAM} --help`")
            os.environ[variable] = value if equals else typed_words.pop(0)
        elif word != _NO_PAGER:
            remaining.append(word)
        else:
            os.environ["PAGER"] = "cat"
    return remaining


_NO_PAGER: Final = "--no-pager"
_WITHOUT_COLOUR: Final = frozenset({"--no-color", "--color=never"})
_GENERAL: Final[Mapping[str, str]] = {"--config": CONFIG, "--log-file": LOG_FILE, "--log-level": LOG_LEVEL}
"""Options of the program → their variables."""


_SHOWS: Final = "watch.screen.show_server"
COMMANDS: Final = (
    (DEFAULT_COMMAND, "watch.TopRequest", _SHOWS),
    ("demo", "watch.DemoRequest", "watch.demo_server.run_demo"),
    ("record", "recordings.RecordRequest", "recordings.record"),
    ("replay", "watch.ReplayRequest", "watch.screen.replay_recording"),
    ("show", "show.ShowRequest", "show.moments.show_rows"),
    ("mcp", "agents.McpRequest", "agents.server.run_server"),
    ("parameters", "parameters.ParametersRequest", "parameters.advice.say_parameters"),
    ("advise", "parameters.AdviseRequest", "parameters.advice.run_advise"),
    ("set", "parameters.SetRequest", "parameters.set_reset.set_values"),
    ("reset", "parameters.ResetRequest", "parameters.set_reset.reset_values"),
    ("revert", "parameters.RevertRequest", "parameters.reverts.run_revert"),
    ("ab", "ab.AbRequest", "ab.experiment.run_ab"),
    ("tune", "tune.TuneRequest", "tune.search.run_tune"),
    ("diff", "parameters.DiffRequest", "parameters.differences.say_differences"),
    ("check", "check.CheckRequest", "check.report.run_check"),
    ("compare", "recordings.CompareRequest", "recordings.comparison.compare_files"),
    ("report", "recordings.ReportRequest", "recordings.comparison.write_report"),
    ("export", "recordings.ExportRequest", "recordings.export.export_recording"),
    ("bench init", "bench.InitRequest", "bench.data_sets.make_data_set"),
    ("bench run", "bench.RunRequest", "bench.runs.run_loads"),
    ("bench list", "bench.ProfilesRequest", "bench.profiles.say_profiles"),
    ("bench show", "bench.ProfileRequest", "bench.profiles.say_profile"),
    ("baseline save", "recordings.SaveRequest", "recordings.comparison.save_baseline"),
    ("baseline list", "recordings.BaselinesRequest", "recordings.comparison.say_baselines"),
    ("baseline check", "recordings.BaselineRequest", "recordings.comparison.check_baseline"),
    ("experiment noise", "experiment.NoiseRequest", "experiment.noise_floor.measure_noise"),
    ("experiment check", "experiment.PlanCheckRequest", "experiment.plans.check_plan"),
    ("experiment plan", "experiment.PlanReviewRequest", "experiment.plans.review_plan"),
    ("experiment run", "experiment.PlanRunRequest", "experiment.plan_runs.run_plan"),
    ("experiment resume", "experiment.PlanResumeRequest", "experiment.plan_runs.resume_plan"),
    ("experiment status", "experiment.StatusRequest", "experiment.results.show_status"),
    ("experiment report", "experiment.ExperimentReportRequest", "experiment.results.write_report"),
    ("experiment attach", "experiment.AttachRequest", "experiment.results.attach"),
    ("experiment stop", "experiment.StopRequest", "experiment.results.stop"),
    (_HELP, "guide.HelpRequest", "guide.pages.say_page"),
)
"""Words of a command; below `cli.commands`, the struct of its options and help, and the function that takes it."""
GROUPS: Final = {
    "bench": (
        "Prepare and run pgbench loads.",
        "Examples:  pgtop-tune bench init -s 100 -d bench  ·  pgtop-tune bench run -c 8 -T 60 -d bench  ·  "
        "pgtop-tune bench list  ·  pgtop-tune bench show ticket-read",
    ),
    "baseline": (
        "Save runs under a name, and compare later runs with them.",
        "Examples:  pgtop-tune baseline save go-live run.jsonl.gz  ·  pgtop-tune baseline check go-live -d bench  ·  "
        "pgtop-tune baseline list",
    ),
    "experiment": (
        "Measure the noise of this machine; run plans of configurations, loads, sizes and endpoints.",
        "Examples:  pgtop-tune experiment noise --profile tpcb-like -c 16 --for 10m -d bench  ·  "
        "pgtop-tune experiment check P1 -d bench  ·  pgtop-tune experiment run P1 --scale 5 --time 10s  ·  "
        "pgtop-tune experiment status  ·  pgtop-tune experiment resume P1  ·  "
        "pgtop-tune experiment report P1 -o p1.html",
    ),
}
"""Help and examples of the commands that have commands of their own."""
_NAMES: Final = frozenset(call.split()[0] for call, _, _ in COMMANDS)
_LONG: Final = 5
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
        if only == group or only not in _NAMES:
            parents[group] = typer.Typer(help=help_text, epilog=examples, no_args_is_help=True, **_LOOKS)
            root.add_typer(parents[group], name=group)
    for call, request, function in COMMANDS:
        if only == call.split()[0] or only not in _NAMES:
            group, _, name = call.rpartition(" ")
            register(parents[group], name, _member(request), partial(_run_command, function))
    return root


def _run_command(function: str, request: Struct) -> int | None:
    connection = getattr(request, "connection", None) if function == _SHOWS else None
    if connection is not None and _may_be_a_slip(connection.target or connection.database):
        from pgtop_tune.cli.connections import check_database

        check_database(connection)
    exit_status: int | None = _member(function)(request)
    return exit_status


def _member(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"pgtop_tune.cli.commands.{module}"), name)


def with_default_command(arguments: list[str]) -> list[str]:
    """Return the arguments, with `top` in front where they name no command: `pgtop-tune -h db1` means `top -h db1`.

    `help COMMAND` becomes `COMMAND --help`, also behind a group; connection options before a command follow it; a
    recording alone is replayed.

    Raises:
        UsageProblem: Help is wanted for no command, or the words are numbers.
    """
    typed_words = _command_first(arguments)
    if not typed_words:
        return [DEFAULT_COMMAND]
    first, *following = typed_words
    if first in GROUPS and following[:1] == [_HELP]:
        return [first, *following[1:], "--help"]
    if first == _BENCH:
        from pgtop_tune.cli.commands.bench import with_command

        return [first, *with_command(following, _names_below(first))]
    if first == _HELP and (not following or following[0] in _NAMES or following[0].startswith("-")):
        return [*(word for word in following if word in _NAMES or not word.startswith("-")), "--help"]
    if first in _NAMES or first in _OF_THE_PROGRAM:
        return typed_words
    if first in _INSTEAD:
        return _INSTEAD[first](following)
    if not first.startswith("-"):
        if "--help" in following or "-?" in following:
            raise UsageProblem(f"there is no command {first!r}", "`pgtop-tune help` lists the commands")
        if all(word.isdecimal() for word in typed_words):
            every = f"-i {first}{''.join(f' -n {count}' for count in following[:1])}"
            raise UsageProblem(f"{' '.join(typed_words)} names no database", f"for lines: {PROGRAM} -b {every}")
        if first.endswith(_RECORDINGS) and os.path.isfile(first):
            return ["replay", *typed_words]
    return [DEFAULT_COMMAND, *typed_words]


def _command_first(arguments: list[str]) -> list[str]:
    """Return the arguments with the connection options before a command at their end, before "--"."""
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word in _WITH_VALUE:
            at += 2
        elif word in _WITHOUT_VALUE or word.partition("=")[0] in _WITH_VALUE or word[:2] in _WITH_VALUE:
            at += 1
        else:
            break
    if not 0 < at < len(arguments) or arguments[at] not in _NAMES or arguments[at:] in ([group] for group in GROUPS):
        # Alone, `bench` behind options is a database, as in psql.
        return arguments
    behind = arguments[at:]
    end = behind.index("--") if "--" in behind else len(behind)
    return [*behind[:end], *arguments[:at], *behind[end:]]


def _may_be_a_slip(database: str) -> bool:
    """Return True for a word that is tried as a database before the screen opens."""
    return database.isdecimal() or database in _MEANT or bool(near_command(database))


def _names_below(group: str) -> tuple[str, ...]:
    """Return the commands of a group."""
    return tuple(call.split()[1] for call, _, _ in COMMANDS if call.startswith(f"{group} "))


_SESSIONS: Final = "show sessions"
_MEANT: Final[Mapping[str, str]] = {
    "status": "check", "stats": _SESSIONS, "ps": _SESSIONS, "get": _SESSIONS, "describe": _SESSIONS,
    "list": "--help", "ls": "--help", "commands": "--help", "man": "help",
    "log": "revert --list", "logs": "revert --list", "history": "revert --list", "undo": "revert", "rollback": "revert",
    "config": "help installing", "kill": "top", "play": "replay", "run": "bench run", "init": "bench init",
    "start": "bench run", "test": "bench run", "stop": "experiment stop", "watch": "top", "monitor": "top",
    "params": "parameters", "settings": "parameters", "tail": "top -b", "explain": "help statements",
}  # fmt: skip
"""Words of other programs → the command for them; each is tried as a database first."""


def near_command(word: str, names: Collection[str] = _NAMES) -> str:
    """Return the command that is one slip away: a letter added, left out, wrong or swapped; "" for none.

    Short commands are near too many words: for these only swapped letters count.
    """
    typed = word.lower()
    if not typed.isalpha():
        return ""
    return next((name for name in sorted(names) if typed in _slips(name)), "")


def _with_near_command(problem: PgtopError, typed: list[str]) -> PgtopError:
    """Return a problem of the words, or of a database that does not exist, with the command that was probably meant."""
    if not isinstance(problem, UsageProblem | NotLetIn):
        return problem
    group = typed[0] if typed[:1] in ([_HELP], [_BENCH]) else ""
    names = _names_below(_BENCH) if group == _BENCH else tuple(_NAMES)
    word = next(iter(typed[1:] if group else typed), "")
    meant = "" if word in names or not word.isalpha() else _MEANT.get(word) or near_command(word, names)
    if not meant:
        return problem
    command = " ".join(filter(None, (PROGRAM, group if group == _BENCH else "", meant)))
    return UsageProblem(problem.message, f"did you mean `{command}`?")


def _slips(name: str) -> set[str]:
    parts = [(name[:length], name[length:]) for length in range(len(name) + 1)]
    swapped = {head + tail[1] + tail[0] + tail[2:] for head, tail in parts if len(tail) > 1} | {name}
    if len(name) < _LONG:
        return swapped
    left_out = {head + tail[1:] for head, tail in parts if tail}
    added = {head + letter + tail for head, tail in parts for letter in ascii_lowercase}
    wrong = {head + letter + tail[1:] for head, tail in parts if tail for letter in ascii_lowercase}
    return swapped | left_out | added | wrong


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

                prepare(lambda word: any(name.startswith(word) for name in _NAMES), DEFAULT_COMMAND)
                with without_begun_word():
                    _run(arguments, "")
            else:
                arguments = with_default_command(take_general(command_line(arguments)))
                if LOG_FILE in os.environ:
                    from pgtop_tune.cli.log import begin

                    begin(arguments)
            if arguments and arguments[0] in _KEEPING_STATE and (note := elsewhere()):
                tell(note)
            _run(arguments, "" if completing else arguments[0])
    except PgtopError as problem:
        problem = _with_near_command(problem, sys.argv[1:])
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
        sys.exit(program(command)(args=arguments, prog_name=PROGRAM, standalone_mode=False))
    except typer.TyperException as error:
        if type(error).__name__ == _ONLY_HELP:
            tell(f"to watch a database called {command}: {PROGRAM} -d {command}")
            sys.exit(ExitCode.USAGE)
        raise _usage_problem(error) from None
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


def _usage_problem(error: typer.TyperException) -> UsageProblem:
    """Return typer's refusal of the command line as ours: one sentence, and the command that shows the options."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    command = PROGRAM if context is None else context.command_path
    message = _KINDS.get(type(error).__name__, "{message}").format(
        option=getattr(error, "option_name", ""),
        parameter="" if parameter is None else _shown(parameter),
        message=_plainly(error.message[:1].lower() + error.message[1:].rstrip(".")),
    )
    option = getattr(error, "option_name", "")
    if command == f"{PROGRAM} bench run":
        from pgtop_tune.cli.typed_load import REFUSED

        if option in REFUSED:
            reason, hint = REFUSED[option]
            return UsageProblem(f"bench run takes no {option}: {reason}", hint)
    if type(error).__name__ == "NoSuchOption" and option in _OPTIONS_MEANT:
        return UsageProblem(message, _OPTIONS_MEANT[option])
    if context is not None and option:
        rows = context.command.params
        options = [name for row in rows for name in row.opts if name.startswith("--")] + ["--help", "--version"]
        if near := get_close_matches(option, options, n=2, cutoff=0.75):
            return UsageProblem(message, f"did you mean {' or '.join(near)}?")
    return UsageProblem(message, _NEEDS_HOST if option == "-h" else f"see `{command} --help`")


_NEEDS_HOST: Final = "-h is the host, as in psql; the help is --help or -?"
_FOR_SCRIPTS: Final = "for scripts, see --csv and --json"
_OPTIONS_MEANT: Final[Mapping[str, str]] = {
    "-v": "the version is -V",
    "-l": "`psql -l` lists databases",
    "-c": "`psql -c` runs a statement",
    "-f": "`psql -f` runs a file, `bench run -f` runs it as a load, `replay` follows a recording by itself",
    "-X": "--config /dev/null reads no configuration file",
    "-A": _FOR_SCRIPTS,
    "-H": "--format html",
    "-n": "-n is --dry-run where a command changes something; `replay --since -10s` shows the last frames",
    "-o": "redirect the output: > FILE",
    "-S": "--since",
    "-t": _FOR_SCRIPTS,
    "-x": _FOR_SCRIPTS,
    "--database": "-d, --dbname",
    "--html": "--format html",
    "--markdown": "--format markdown",
    "--user": "-U, --username",
}
"""Options of other programs → the words for ours."""


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
