"""The way from the options of a load (`options.LoadWords`) to the load: one for all commands that run one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem, UsageProblem
from pgtop_tune.base.paths import NotOurs, check_own_directory, content_of, private, replacing, state_dir
from pgtop_tune.bench.locate import builtin_text, find_pgbench
from pgtop_tune.bench.profiles import BUILTIN_SCRIPTS, LONGEST_BYTES, parse_choice, read_script
from pgtop_tune.cli.options import LoadWords, typed_options
from pgtop_tune.cli.output import tell
from pgtop_tune.model.bench import LoadSpec, ScriptChoice

_LOGGED: Final = "pgtop-tune logs every transaction itself, for percentiles per second"
_SEES: Final = "pgtop-tune reads the progress of each second itself"
_OURS: Final = "it is an option of the command itself"
REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(
        ("-l", "--log", "--log-prefix", "--aggregate-interval", "--sampling-rate"),
        (_LOGGED, "--out DIR keeps the record of each run, --record FILE every second"),
    ),
    "--show-script": ("`bench show` prints scripts", "pgtop-tune bench show tpcb-like"),
    "--progress-timestamp": (_SEES, "--record FILE keeps the time of each second"),
    **dict.fromkeys(("-i", "--initialize", "-I", "-F", "--foreign-keys"), ("it creates tables", "use `bench init`")),
}
"""Options of pgbench that no load takes: the reason, and the option or command to use."""
_TYPED_BEFORE: Final = """
    -b --builtin -c --client -C --connect -d --debug -D --define -f --file -h --host -j --jobs -L --latency-limit
    -M --protocol -n --no-vacuum -N --skip-some-updates -p --port -P --progress -r --report-latencies
    --report-per-command -R --rate -s --scale -S --select-only -t --transactions -T --time -U --username
    --max-tries --continue-on-error --failures-detailed --random-seed
"""
"""Options of pgbench that pgtop-tune sets, so that they cannot stand behind --."""


def further_options(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the words for pgbench behind --. Raises UsageProblem for an option that pgtop-tune sets itself."""
    for name in (name for word in arguments for name in _meant(word)):
        ours_refused = (_OURS, "pass it before --") if name in _TYPED_BEFORE.split() else None
        if refused := REFUSED.get(name) or ours_refused:
            reason, hint = refused
            raise UsageProblem(f"{name} cannot be passed on to pgbench: {reason}", hint)
    return tuple(arguments)


def _meant(word: str) -> list[str]:
    """Return the options that a word may be for getopt: -vf is -v and -f, and --fil is --file."""
    if word.startswith("--"):
        name = word.partition("=")[0]
        return [option for option in (*REFUSED, *_TYPED_BEFORE.split()) if option.startswith(name)]
    return [f"-{letter}" for letter in word[1:]] if word.startswith("-") else []


_STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0"})


class TypedLoad(Struct, frozen=True):
    """A load as typed, whose profile is still to be read.

    Attributes:
        profiles: Names, one at least; without a meaning where the load has scripts.
        spec: The load but for its profile, clients and protocol.
        clients, protocol: None takes what suits the profile.
        allow_shell: Whether its scripts may start programs.
    """

    profiles: tuple[str, ...] = ("tpcb-like",)
    spec: LoadSpec = LoadSpec()
    clients: int | None = None
    protocol: str | None = None
    allow_shell: bool = False

    def profile(self, command: str) -> str:
        """Return the only profile. Raises UsageProblem for several, which the command does not take."""
        if len(self.profiles) > 1:
            raise UsageProblem(f"{command} takes one --profile, not {len(self.profiles)}", "pass one of them")
        return self.profiles[0]


@contextmanager
def typed_load(load_words: LoadWords, pgbench: Path | None) -> Iterator[TypedLoad]:
    """Yield the load of the options; its scripts are files meanwhile.

    Args:
        pgbench: The pgbench of the session, which prints its own scripts where several are mixed.

    Raises:
        UsageProblem: Options contradict each other, or pgbench has another way for one of them.
        LoadProblem: No script of that name, or a wrong weight.
    """
    builtins = builtin_choices(load_words)
    profiles = tuple(name.strip() for word in load_words.profile or () for name in word.split(",") if name.strip())
    if profiles and (load_words.scripts or builtins):
        raise UsageProblem("--profile contradicts -f, -b, -S and -N", "pass one of them")
    if len(builtins) == 1 and not load_words.scripts:
        # A single script is the profile of that name.
        profiles, builtins = (builtins[0].file,), ()
    with typed_scripts(load_words.scripts or (), builtins, pgbench) as scripts:
        scale = [("scale", str(load_words.scale))] if load_words.scale is not None and scripts else []
        if load_words.scale is not None and not scripts:
            tell("-s is ignored, as in pgbench: the scale is read from the tables")
        spec = LoadSpec(
            threads=load_words.threads,
            rate_per_s=load_words.rate,
            latency_limit_ms=load_words.latency_limit,
            max_tries=load_words.max_tries,
            continue_on_error=load_words.continue_on_error,
            connect_per_transaction=load_words.connect,
            seed=load_words.random_seed,
            scripts=scripts,
            variables=(*scale, *(_variable(text) for text in load_words.variables or ())),
            further=further_options(load_words.further or ()),
        )
        yield TypedLoad(
            profiles=profiles or ("tpcb-like",),
            spec=spec,
            clients=load_words.clients,
            protocol=load_words.protocol,
            allow_shell=load_words.allow_shell,
        )


def builtin_choices(load_words: LoadWords) -> tuple[ScriptChoice, ...]:
    """Return pgbench's own scripts of -b, -S and -N by their whole names.

    Raises:
        LoadProblem: A wrong weight, or the beginning of none or of several names.
    """
    typed = [*(load_words.builtins or ()), *(["select-only"] * load_words.select_only)]
    choices = []
    for choice in map(parse_choice, [*typed, *(["simple-update"] * load_words.simple_update)]):
        named = [name for name in BUILTIN_SCRIPTS if name.startswith(choice.file)]
        if len(named) != 1:
            raise LoadProblem(f"{choice.file!r} is no script of pgbench", f"its scripts: {', '.join(BUILTIN_SCRIPTS)}")
        choices.append(replace(choice, file=named[0]))
    return tuple(choices)


@contextmanager
def typed_scripts(
    typed: Sequence[str], builtins: Sequence[ScriptChoice] = (), pgbench: Path | None = None
) -> Iterator[tuple[ScriptChoice, ...]]:
    """Yield the scripts of -f, and of -b as files of pgbench's text; standard input becomes a file, which is read
    several times.

    Raises:
        LoadProblem: A word has no file, or a wrong weight.
        UsageProblem: Standard input is a terminal.
    """
    choices = tuple(map(parse_choice, typed))
    from_stdin = any(choice.file in _STDIN for choice in choices)
    if from_stdin and sys.stdin.isatty():
        raise UsageProblem("standard input is a terminal", "pipe a script into it, or name a file: -f load.sql")
    with TemporaryDirectory(prefix="pgtop-tune-") if from_stdin or builtins else nullcontext("") as directory:
        file = Path(directory) / "stdin.sql"
        if from_stdin:
            file.write_bytes(sys.stdin.buffer.read(LONGEST_BYTES + 1))
        scripts = [replace(choice, file=str(file)) if choice.file in _STDIN else choice for choice in choices]
        for builtin in builtins:
            script_file = Path(directory) / f"{builtin.file}.sql"
            script_file.write_text(f"{builtin_text(builtin.file, find_pgbench(pgbench))}\n", encoding="utf-8")
            scripts.append(replace(builtin, file=str(script_file), builtin=True))
        yield tuple(scripts)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageProblem(f"{text!r} is not a variable", "write -D NAME=VALUE")
    return name, value


def kept_scripts(scripts: Sequence[ScriptChoice]) -> tuple[ScriptChoice, ...]:
    """Return the scripts as files of the state directory: a search that is resumed has them as they were.

    Raises:
        LoadProblem: A script is not there, or cannot be kept.
    """
    kept = []
    for choice in scripts:
        script = read_script(Path(choice.file))
        try:
            directory = private(state_dir() / "scripts" / script.sha256[:16])
            for kept_in in (directory.parent, directory):
                check_own_directory(kept_in)
            file = directory / script.file.name
            with replacing(file) as copy:
                copy.write(content_of(script.file, LONGEST_BYTES))
        except NotOurs as problem:
            raise LoadProblem(f"the script {choice.file} cannot be kept: {problem}", problem.hint) from None
        except OSError as problem:
            raise LoadProblem(
                f"the script {choice.file} cannot be kept: {problem.strerror}", "free some space, or pass --profile"
            ) from None
        kept.append(replace(choice, file=str(file)))
    return tuple(kept)


def tell_unused(load_words: LoadWords, reason: str = "--against-load starts no load") -> None:
    """Name the options that count for nothing."""
    if names := typed_options(load_words):
        tell(f"{reason}: {', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect")
