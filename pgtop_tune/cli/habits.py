"""Words and options as fingers know them from psql, pgbench, top, git and kubectl, and what they are here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from string import ascii_lowercase
from typing import Final

from pgtop_tune.base.config import CONFIG, LOG_FILE, LOG_LEVEL
from pgtop_tune.base.errors import NotLetIn, PgtopError, UsageProblem
from pgtop_tune.cli.commands import COMMANDS, DEFAULT_COMMAND, GROUPS, NAMES
from pgtop_tune.cli.output import PROGRAM

_OF_THE_PROGRAM: Final = ("--help", "-?", "--version", "-V", "--install-completion", "--show-completion")
_HELP: Final = "help"
_BENCH: Final = "bench"
_RECORDINGS: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")


def _completion(typed_words: list[str]) -> list[str]:
    shells = [word for word in typed_words if word not in _SHELL_OPTIONS]
    if shells[:1] not in ([shell] for shell in _SHELLS):
        raise UsageProblem("completion needs the name of a shell", f"pass {', '.join(_SHELLS)}")
    return ["--show-completion", shells[0]]


_WITH_VALUE: Final = frozenset({"-h", "--host", "-p", "--port", "-U", "--username", "-d", "--dbname"})
_WITHOUT_VALUE: Final = frozenset({"-w", "--no-password", "-W", "--password"})
_SHELLS: Final = ("bash", "zsh", "fish")
_SHELL_OPTIONS: Final = frozenset({"-s", "--shell"})
_VERSION: Final = frozenset({"--version", "-V"})
_INSTEAD: Final[Mapping[str, Callable[[list[str]], list[str]]]] = {
    "version": lambda following: ["--version", *following],
    "completion": _completion,
}
"""Words that stand for an option of the program; a database of such a name needs -d."""


def take_general(arguments: list[str]) -> list[str]:
    """Return the arguments without the options of the program, which then stand in the environment, for children too.

    Raises:
        UsageProblem: An option lacks its value.
    """
    remaining, typed_words = list[str](), list(arguments)
    while typed_words:
        word = typed_words.pop(0)
        name, equals, value = word.partition("=")
        of_command = name == "--config" and _command_first(remaining)[:1] == ["check"]
        variable = "" if of_command else _GENERAL.get(name, "")
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
    before_dashes = typed_words[: typed_words.index("--")] if "--" in typed_words else typed_words
    if asked_version := [word for word in before_dashes if word in _VERSION]:
        return asked_version[:1]
    if first in GROUPS and following[:1] == [_HELP]:
        return [first, *following[1:], "--help"]
    if first == _BENCH:
        from pgtop_tune.cli.commands.bench import with_command

        return [first, *with_command(following, names_below(first))]
    if first == _HELP and (not following or following[0] in NAMES or following[0].startswith("-")):
        return [*(word for word in following if word in NAMES or not word.startswith("-")), "--help"]
    if first in NAMES or first in _OF_THE_PROGRAM:
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
    if not 0 < at < len(arguments) or arguments[at] not in NAMES or arguments[at:] in ([group] for group in GROUPS):
        # Alone, `bench` behind options is a database, as in psql.
        return arguments
    behind = arguments[at:]
    end = behind.index("--") if "--" in behind else len(behind)
    return [*behind[:end], *arguments[:at], *behind[end:]]


def may_be_a_slip(database: str) -> bool:
    """Return True for a word that is tried as a database before the screen opens."""
    return bool(_NUMBER.fullmatch(database) or _meant(database, NAMES))


_NUMBER: Final = re.compile(r"\d+(\.\d+)?")


def names_below(group: str) -> tuple[str, ...]:
    """Return the commands of a group."""
    return tuple(call.split()[1] for call, _, _ in COMMANDS if call.startswith(f"{group} "))


_SESSIONS: Final = "show sessions"
_MEANT: Final[Mapping[str, str]] = {
    "status": "check", "info": "check", "doctor": "check", "lint": "check",
    "stats": _SESSIONS, "ps": _SESSIONS, "get": _SESSIONS, "describe": _SESSIONS, "activity": _SESSIONS,
    "sessions": _SESSIONS, "locks": "show locks", "waits": "show waits", "profile": "show waits",
    "statements": "show statements", "finding": "show finding", "tables": "show tables", "indexes": "show indexes",
    "list": "--help", "ls": "--help", "commands": "--help", "man": "help", "docs": "help guide", "guide": "help guide",
    "log": "revert --list", "history": "revert --list", "changes": "revert --list",
    "undo": "revert", "rollback": "revert", "restore": "revert",
    "config": "help installing",
    "play": "replay", "open": "replay", "view": "replay", "cat": "replay", "save": "record", "capture": "record",
    "run": "bench run", "init": "bench init", "load": "bench run", "benchmark": "bench run", "profiles": "bench list",
    "start": "bench run", "test": "bench run", "stop": "experiment stop", "watch": "top", "monitor": "top",
    "params": "parameters", "settings": "parameters", "inspect": "parameters", "tail": "top -b",
    "alter": "set", "apply": "set", "edit": "set", "sysctl": "set", "unset": "reset",
    "optimize": "tune", "optimise": "tune", "recommend": "advise", "suggest": "advise", "explain": "help statements",
}  # fmt: skip
"""Words of other programs → the command for them; each is tried as a database first."""
_RESTARTS: Final = "`set` reloads a server by itself, `set --restart` restarts it; else pg_ctl or systemctl does"
_STATEMENTS: Final = "`psql -c` runs a statement"
_ENDS: Final = "in `pgtop-tune top`, c cancels the statement of the selected session and K ends the session"
_ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("kill", "cancel", "terminate"), _ENDS),
    **dict.fromkeys(("reload", "restart"), _RESTARTS),
    "logs": "the server's log is where log_directory says; `revert --list` lists changes made here",
    **dict.fromkeys(("vacuum", "analyze", "select", "create", "drop", "delete", "update", "insert"), _STATEMENTS),
}
"""Words of other programs → what to do, where one command does not say it; each is tried as a database first."""


_LISTING: Final = frozenset({"get", "describe", "list", "ls"})


def _meant(word: str, names: Collection[str]) -> str:
    """Return a hint for a word that is no command; "" for none."""
    word, *more = word.split()[:2] or [""]
    if word in names and not more:
        return ""
    if more and word in _LISTING and more[0] in _MEANT:
        word = more[0]
    if word.lower() in _ELSEWHERE:
        return _ELSEWHERE[word.lower()]
    command = _MEANT.get(word.lower()) or (word if word in names else near_command(word, names))
    return f"did you mean `{PROGRAM} {command}`?" if command else ""


def near_command(word: str, names: Collection[str] = NAMES) -> str:
    """Return the command that is one slip away: a letter added, left out, wrong or swapped; "" for none.

    Short commands are near too many words: for these only swapped letters count.
    """
    typed = word.lower()
    if not typed.isalpha():
        return ""
    return next((name for name in sorted(names) if typed in _slips(name)), "")


def with_near_command(problem: PgtopError, typed: list[str]) -> PgtopError:
    """Return a problem of the words, or of a database that does not exist, with the command that was probably meant."""
    if not isinstance(problem, UsageProblem | NotLetIn):
        return problem
    group = typed[0] if typed[:1] in ([_HELP], [_BENCH]) else ""
    word = next(iter(typed[1:] if group else typed), "")
    if group == _BENCH:
        near = "" if word in names_below(_BENCH) else near_command(word, names_below(_BENCH))
        hint = f"did you mean `{PROGRAM} {_BENCH} {near}`?" if near else ""
    else:
        hint = _meant(" ".join((word, *typed[1:2])) if word in _LISTING else word, NAMES)
    return UsageProblem(problem.message, hint) if hint else problem


_LONG: Final = 5


def _slips(name: str) -> set[str]:
    parts = [(name[:length], name[length:]) for length in range(len(name) + 1)]
    swapped = {head + tail[1] + tail[0] + tail[2:] for head, tail in parts if len(tail) > 1} | {name}
    if len(name) < _LONG:
        return swapped
    left_out = {head + tail[1:] for head, tail in parts if tail}
    added = {head + letter + tail for head, tail in parts for letter in ascii_lowercase}
    wrong = {head + letter + tail[1:] for head, tail in parts if tail for letter in ascii_lowercase}
    return swapped | left_out | added | wrong


def option_hint(command: str, option: str, options: Sequence[str], formats: Sequence[str]) -> str:
    """Return the words for an option that a command does not have; "" for none.

    Words that begin with an option are those for commands that have it.

    Args:
        command: Its words: "bench run".
        options: The options that it has.
        formats: What its --format takes.
    """
    choices = f"--format {'|'.join(formats)}" if formats else ""
    meant = _OPTIONS_MEANT.get(f"{command} {option}") or _OPTIONS_MEANT.get(option, "")
    hint = meant.format(formats=choices, and_formats=f"; {choices}" if choices else "")
    first_word = hint.split()[0].rstrip(",;") if hint else ""
    if hint and (not first_word.startswith("-") or first_word in (*options, *_OF_ALL)):
        return hint
    if option.lstrip("-") in _FORMATS and choices:
        return choices
    long = [name for name in (*options, "--help", "--version") if name.startswith("--")]
    begun = [name for name in long if len(option) > _LETTERS and name.startswith(option)]
    if near := begun or get_close_matches(option, long, n=2, cutoff=0.75):
        return f"did you mean {' or '.join(near)}?"
    if command == "bench run" and option.startswith("--"):
        return f"an option of pgbench itself stands behind --: {PROGRAM} bench run … -- {option}"
    return ""


def value_hint(argument: str, word: str, choices: Sequence[str]) -> str:
    """Return the words for a value that an option or argument does not take; "" for none.

    Args:
        argument: Command and option or argument: "show WHAT".
        word: The value.
        choices: The values there are.
    """
    typed = word.lower()
    if meant := _VALUES_MEANT.get(f"{argument} {typed}"):
        return meant
    begun = [typed] if typed in choices else [choice for choice in choices if typed and choice.startswith(typed)]
    if near := begun or get_close_matches(typed, choices, n=1, cutoff=0.7):
        return f"did you mean {' or '.join(near)}?"
    return _VALUES_MEANT.get(argument, "").format(word=word)


_LETTERS: Final = len("--x")
_OF_ALL: Final = ("-V", "--config", "--log-file", "--no-color", "--format")
"""Options that every command has, or that `formats` stands for."""
_FORMATS: Final = frozenset({"csv", "html", "json", "jsonl", "markdown", "table", "tsv", "xml", "yaml"})
MISUSED: Final[Mapping[str, str]] = {
    "--help": "`pgtop-tune help WORD` shows a command or a page of the guide, `pgtop-tune help guide` lists the pages",
    "-h": "-h is the host, as in psql; the help is --help or -?",
    "--watch": "every five seconds: --watch 5s",
}
"""Options that other programs have without a value, or with one → the words for first_word."""
_FOR_SCRIPTS: Final = "for scripts: `show WHAT --csv` or --json, see `pgtop-tune help show`"
_TO_FILE: Final = "redirect the output: > FILE{and_formats}"
_MESSAGES: Final = "messages are on stderr: 2> /dev/null leaves them out"
_LOGS: Final = "-V is the version; --log-file FILE --log-level debug tells more"
_AGAIN: Final = "--watch TIME repeats"
_BETWEEN: Final = "-i TIME is the time between two samples"
_LASTS: Final = "-T TIME is how long"
_FILTERS: Final = "/ shows only rows with a text"
_SORTS: Final = "s, < and > sort on the screen, o chooses columns; `show sessions --sort COLUMN` sorts lines"
_READS: Final = "a role that has only pg_monitor changes nothing"
_OPTIONS_MEANT: Final[Mapping[str, str]] = {
    "-v": _LOGS,
    "--verbose": _LOGS,
    "--debug": _LOGS,
    "-q": _MESSAGES,
    "--quiet": _MESSAGES,
    "--silent": _MESSAGES,
    "-l": "`psql -l` lists databases",
    "-c": "`psql -c` runs a statement",
    "-f": "`psql -f` runs a file, `bench run -f` runs it as a load, `replay` follows a recording by itself",
    "-X": "--config /dev/null reads no configuration file",
    "-A": _FOR_SCRIPTS,
    "-t": _FOR_SCRIPTS,
    "-x": _FOR_SCRIPTS,
    "-F": "--csv separates by commas{and_formats}",
    "-H": "{formats}",
    "-n": "-n is --dry-run where a command changes something; `replay --since -10s` shows the last frames",
    "-o": _TO_FILE,
    "--output": _TO_FILE,
    "--out": _TO_FILE,
    "-D": "a running server is reached with -h and -p, not by its directory",
    "-S": "--since",
    "-u": "-U is the user name; on the screen, / shows only rows with a text",
    "top -C": "--no-color",
    "-M": "--no-mouse",
    "--database": "-d, --dbname",
    "--user": "-U, --username",
    "--delay": _BETWEEN,
    "--refresh": _BETWEEN,
    "-s": _BETWEEN,
    "--duration": _LASTS,
    "top --filter": _FILTERS,
    "top --pid": _FILTERS,
    "top --min-duration": _FILTERS,
    "--follow": "`replay` follows a recording by itself, `top -b` a server",
    "--grep": "pipe it: | grep",
    "--tail": "`replay --since -10s` shows the last frames",
    "--jq": "pipe it: --json | jq",
    "--human": "tables have units, csv and json numbers alone",
    "top --readonly": _READS,
    "top --read-only": _READS,
    "top --rds": "managed services are recognised: `pgtop-tune help managed`",
    "top --sort-key": _SORTS,
    "--list": "`pgtop-tune help` lists the commands",
    "top -P": "`show waits` counts waits, 3 on the screen",
    "--vus": "-c CLIENTS",
    "--runs": "--repeat N",
    "--export-json": _TO_FILE,
    "--export-markdown": _TO_FILE,
    "--summary-export": _TO_FILE,
    "top -t": "4 on the screen and `show locks` have who waits for whom",
    "top --output": "`record -o FILE`, or `show sessions --csv > FILE`",
    "record -t": _LASTS,
    "record --for": _LASTS,
    "record -c": "-T TIME, with -i TIME between two samples",
    "record -f": "-o FILE is the recording",
    "report -f": "files stand alone: report FILE -o report.html",
    "report -A": "`show sessions --at MOMENT FILE` prints sessions of a recording",
    "compare -o": _TO_FILE,
    "show -n": f"{_AGAIN}; --limit N prints N rows",
    "show -i": _AGAIN,
    "show --interval": _AGAIN,
    "show --delay": _AGAIN,
    "show --refresh": _AGAIN,
    "show -f": _AGAIN,
    "show -L": "--limit N",
    "show --no-headers": "--format jsonl has none; | tail -n +2",
    "set --force": "--allow-unsafe unlocks values that can lose data",
    "check -q": "> /dev/null leaves the exit status",
    "check --quiet": "> /dev/null leaves the exit status",
    "bench run -v": "--housekeeping vacuum vacuums before each run",
    "bench run --summary-export": "--json > FILE, or --out DIR",
}
"""Options of other programs, or of a command and other programs → the words for first_word."""
_VALUES_MEANT: Final[Mapping[str, str]] = {
    "show WHAT all": "`pgtop-tune show parameters` has all parameters",
    "show WHAT": "for a parameter: `pgtop-tune parameters {word}`; `pgtop-tune help show`",
}
"""Arguments, or arguments and values → the words for a value that is none of theirs."""
