"""Load profiles, TOML files of the package and of the user's configuration directory, and the scripts that they run.

The name of a profile is the name of its file. Keys are the rows of `KEYS`; a `[[script]]` table has `file` (relative
to the profile) and `weight`; `[variables]` holds values for -D. Script files are read, hashed, and searched for
commands that start programs.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import paths
from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.paths import content_of
from pgtop_tune.base.toml_text import NotToml, tables_of, toml_source
from pgtop_tune.model.bench import LoadSpec, ProfileSummary, ScriptChoice

BUILTIN_SCRIPTS: Final = ("tpcb-like", "select-only", "simple-update")
"""pgbench's own scripts."""
DATASETS: Final = ("pgbench", "bus")
"""Data sets that a profile may need; made by `bench init`."""
PROTOCOLS: Final = ("simple", "extended", "prepared")

LOG_CLASSES: Final = {"commits": 10_000.0, "mixed": 40_000.0, "lookups": 100_000.0}
"""Transactions per second to be prepared for, by kind of load, on a machine of up to `_CORES`; with more, more."""
_CORES: Final = 8
LOGGED_PER_S: Final = 120_000.0
"""Log lines per second at most: 30 to 50 ms of our CPU (tests/benchmarks/transaction_log_cost.py)."""

SHIPPED: Final = Path(__file__).parent / "profiles"

_ORDER: Final = (
    *BUILTIN_SCRIPTS,
    "ticket-read",
    "ticket-insert",
    "read90-insert9-update1",
    "range-report",
    "hot-row",
    "write-heavy",
)
"""Profiles in the order of the load screen: ours first."""


class Script(Struct, frozen=True):
    """A script file of pgbench and how often it is chosen."""

    file: Path
    weight: int = 1


class Profile(Struct, frozen=True):
    """A kind of load.

    Attributes:
        builtin: Name of pgbench's own script; "" where `scripts` are given.
        clients_per_core: Sensible clients, times the cores of this machine.
        log_class: Key of LOG_CLASSES.
        dataset: One of DATASETS; "" where the scripts have tables of their own.
        from_dataset: Variables of the scripts that the data set found says: its numbers of tickets, rides, …
        variables: (name, value) for -D, as the profile has them.
        allow_shell: Whether its scripts may start programs.
    """

    name: str
    title: str
    description: str
    builtin: str = ""
    scripts: tuple[Script, ...] = ()
    protocol: str = "prepared"
    clients_per_core: int = 4
    log_class: str = "mixed"
    dataset: str = ""
    from_dataset: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    allow_shell: bool = False

    def clients(self) -> int:
        """Return a sensible number of clients on this machine."""
        return max(1, self.clients_per_core * (os.cpu_count() or 1))

    def sampling_rate(self, rate_per_s: float | None = None) -> float:
        """Return the share of transactions to log, 0 to 1: all, unless more than LOGGED_PER_S lines may come.

        Args:
            rate_per_s: Transactions per second, where the operator sets them.
        """
        expected = LOG_CLASSES[self.log_class] * max(1.0, (os.cpu_count() or 1) / _CORES)
        if rate_per_s is not None:
            expected = min(expected, rate_per_s)
        return min(1.0, LOGGED_PER_S / max(expected, 1.0))

    def summary(self) -> ProfileSummary:
        """Return the profile as the load screen lists it."""
        dataset = self.dataset or ("pgbench" if self.builtin else "")
        return ProfileSummary(
            name=self.name,
            title=self.title,
            description=self.description,
            clients=self.clients(),
            protocol=self.protocol,
            dataset=dataset,
        )


class Profiles(Struct, frozen=True):
    """The profiles of all directories.

    Attributes:
        by_name: Ours first; a profile of the user with the name of one of ours takes its place.
        problems: What was wrong with files that were left out, one sentence each.
    """

    by_name: dict[str, Profile]
    problems: tuple[str, ...] = ()

    def get(self, name: str) -> Profile:
        """Return the profile of that name.

        Raises:
            LoadProblem: There is none.
        """
        if name not in self.by_name:
            near = difflib.get_close_matches(name, self.by_name, 1, 0.6)
            meant = f"did you mean {near[0]}? " if near else ""
            raise LoadProblem(f"no load profile named {name!r}", f"{meant}known names: {', '.join(self.by_name)}")
        return self.by_name[name]


def user_profiles_dir() -> Path:
    return paths.config_dir() / "profiles"


def profile_directories(further: Path | None = None) -> tuple[Path, ...]:
    """Return the directories with profiles: ours, the user's, and one that the user names.

    Raises:
        LoadProblem: The directory named is none.
    """
    if further is not None and not further.is_dir():
        raise LoadProblem(f"{further} is not a directory", "pass a directory with *.toml files")
    return (SHIPPED, user_profiles_dir(), *([] if further is None else [further]))


def load_profiles(directories: Sequence[Path] | None = None) -> Profiles:
    """Read all profiles; a broken one is left out and named, the others are there.

    Args:
        directories: Later ones win; None means ours and the user's.
    """
    profiles: dict[str, Profile] = {}
    problems: list[str] = []
    for directory in profile_directories() if directories is None else directories:
        for path in sorted(directory.glob("*.toml")):
            try:
                profile = read_profile(path)
            except LoadProblem as problem:
                problems.append(problem.message)
            else:
                profiles[profile.name] = profile
    return Profiles(dict(sorted(profiles.items(), key=_place)), tuple(problems))


def _place(named: tuple[str, Profile]) -> tuple[int, str]:
    """Ours in their own order, the user's by name behind them."""
    name = named[0]
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def read_profile(path: Path) -> Profile:
    """Read a profile.

    Raises:
        LoadProblem: Unreadable, not TOML, or a key that is unknown, missing or out of range; names file and key.
    """
    try:
        keys = tables_of(toml_source(paths.content_of(path)))
    except OSError as problem:
        raise LoadProblem(f"{path} cannot be read: {problem.strerror}", "check its name and permissions") from None
    except NotToml as problem:
        raise LoadProblem(f"{path}: {problem}") from problem
    where = str(path)
    _check(where, keys, KEYS)
    if not _NAME.fullmatch(path.stem):
        raise LoadProblem(f"{where}: the file name of a profile must be letters, digits, '.', '_' and '-'")
    if ("builtin" in keys) == ("script" in keys):
        raise LoadProblem(f"{where}: needs either 'builtin' or [[script]] tables, but not both")
    tables = keys.pop("script", [])
    for number, table in enumerate(tables, 1):
        _check(f"{where}, script {number}", table, _SCRIPT_KEYS)
    scripts = tuple(Script(path.parent / table["file"], table.get("weight", 1)) for table in tables)
    if scripts and not any(script.weight for script in scripts):
        raise LoadProblem(f"{where}: at least one script needs a weight above 0")
    variables = tuple((name, str(value)) for name, value in keys.pop("variables", {}).items())
    from_dataset = tuple(keys.pop("from_dataset", ()))
    if from_dataset and not keys.get("dataset"):
        raise LoadProblem(f"{where}: from_dataset needs a dataset", f"dataset is one of {', '.join(DATASETS)}")
    return Profile(name=path.stem, scripts=scripts, variables=variables, from_dataset=from_dataset, **keys)


def with_variables(spec: LoadSpec, profile: Profile, dataset_variables: Mapping[str, str]) -> LoadSpec:
    """Return the load with all variables of its scripts: from the data set, the profile, and the operator.

    Args:
        dataset_variables: Variable → value of the data set that is there (`bench.datasets.recognise`).

    Returns:
        Variables in this order of strength: given with the load, set by the profile, found. Scripts in place of the
        profile's need nothing of it.

    Raises:
        LoadProblem: The profile needs one that none of them has.
    """
    if spec.scripts:
        return spec
    own_variables = dict(spec.variables)
    missing = [name for name in profile.from_dataset if name not in dataset_variables and name not in own_variables]
    if missing:
        raise LoadProblem(
            f"the profile {profile.name} needs {', '.join(missing)} from the {profile.dataset} data set",
            f"create it: pgtop-tune bench init --dataset {profile.dataset}; or pass -D {missing[0]}=NUMBER",
        )
    variables = (
        {name: dataset_variables[name] for name in profile.from_dataset if name in dataset_variables}
        | dict(profile.variables)
        | own_variables
    )
    return replace(spec, variables=tuple(variables.items()))


_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,40}")
_VARIABLE: Final = re.compile(r"[A-Za-z0-9_]{1,60}")


class _ProfileKey(Struct, frozen=True):
    """The values that a key may hold: a predicate and its description."""

    fits: Callable[[Any], bool]
    expected: str
    required: bool = False


def _text(limit: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and 0 < len(value) <= limit


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _one_of(*choices: str) -> _ProfileKey:
    return _ProfileKey(lambda value: isinstance(value, str) and value in choices, f"one of {', '.join(choices)}")


def _tables(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= 128 and all(isinstance(table, dict) for table in value)


def _named(name: object) -> bool:
    return isinstance(name, str) and _VARIABLE.fullmatch(name) is not None


def _values(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _named(name) and type(variable) in (int, float, str) and "\0" not in str(variable)
        for name, variable in value.items()
    )


KEYS: Final = {
    "title": _ProfileKey(_text(40), "text of up to 40 characters", required=True),
    "description": _ProfileKey(_text(300), "text of up to 300 characters", required=True),
    "builtin": _one_of(*BUILTIN_SCRIPTS),
    "script": _ProfileKey(_tables, "one to 128 [[script]] tables"),
    "protocol": _one_of(*PROTOCOLS),
    "clients_per_core": _ProfileKey(_whole(1, 1000), "a whole number from 1 to 1000"),
    "log_class": _one_of(*LOG_CLASSES),
    "dataset": _one_of(*DATASETS),
    "from_dataset": _ProfileKey(
        lambda value: isinstance(value, list) and all(map(_named, value)), "a list of variable names"
    ),
    "variables": _ProfileKey(_values, "a table of variables, each a number or text"),
    "allow_shell": _ProfileKey(lambda value: type(value) is bool, "true or false"),
}
_SCRIPT_KEYS: Final = {
    "file": _ProfileKey(_text(1000), "the name of a file", required=True),
    "weight": _ProfileKey(_whole(0, 1_000_000), "a whole number from 0 to 1000000"),
}


def _check(where: str, table: dict[str, Any], keys: dict[str, _ProfileKey]) -> None:
    """Raise a LoadProblem for the first key that is unknown, missing or does not fit."""
    for name, value in table.items():
        if name not in keys:
            raise LoadProblem(f"{where}: unknown key {name!r}", f"known keys: {', '.join(keys)}")
        if not keys[name].fits(value):
            raise LoadProblem(f"{where}: {name} must be {keys[name].expected}")
    for name, key in keys.items():
        if key.required and name not in table:
            raise LoadProblem(f"{where}: {name} is missing")


LONGEST_BYTES: Final = 1_000_000

_SHELL: Final = re.compile(r"\\(?:\s|\\\r?\n)*(?:set)?shell\b", re.IGNORECASE)
"""pgbench takes meta commands in any case, also behind SQL in a line, and folds `\\` and a line break to nothing.
Wherever the word stands, a comment included, it counts: better one refusal too many."""
_WEIGHT: Final = re.compile(r"\d{1,10}")


BUILTIN_STATEMENTS: Final = {"tpcb-like": 7, "select-only": 1, "simple-update": 5}
"""Number of statements of pgbench's own scripts, BEGIN and END among them."""
_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|--[^\n\r]*|/\*.*?\*/)
      | (?P<quoted>[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$)
      | (?P<end>\\?;)
      | \\(?:[ \t\r\f\v]|\\\r?\n)*(?P<meta>\w+)(?:\\\r?\n|[^\n])*
      | (?P<other>\w[\w$]*|.)""",
    re.DOTALL | re.VERBOSE,
)
"""What a script is made of, as pgbench's scanner has it (src/fe_utils/psqlscan.l, src/bin/pgbench/exprscan.l)."""


class ScriptText(Struct, frozen=True):
    """The content of a script file.

    Attributes:
        text: Text as it is run. Foreign.
        sha256: SHA-256 of the bytes, in hexadecimal.
        shell_line: Line of the first `\\shell` or `\\setshell`, from 1; None when there is none.
    """

    file: Path
    text: str
    sha256: str
    shell_line: int | None


_SCALE: Final = re.compile(r"(?<!:):scale\b")


def reads_scale(spec: LoadSpec) -> bool:
    """Return whether a script of the operator's reads :scale and nothing gives it.

    Raises:
        LoadProblem: As `read_script`.
    """
    is_given = any(name == "scale" for name, _ in spec.variables)
    return not is_given and any(_SCALE.search(read_script(Path(script.file)).text) for script in spec.scripts)


def read_script(file: Path) -> ScriptText:
    """Read a script file.

    Raises:
        LoadProblem: It is not there, cannot be read, or holds more than a megabyte.
    """
    try:
        data = content_of(file, LONGEST_BYTES)
    except OSError as problem:
        hint = "check that the file is a pgbench script" if problem.errno == errno.EFBIG else "check its name"
        raise LoadProblem(f"the script {file} cannot be read: {problem.strerror}", hint) from None
    text = data.decode("utf-8", "replace")
    match = _SHELL.search(text)
    line = None if match is None else text.count("\n", 0, match.start()) + 1
    return ScriptText(file=file, text=text, sha256=hashlib.sha256(data).hexdigest(), shell_line=line)


def meta_commands(text: str) -> set[str]:
    """Return the names of a script's meta commands in lower case; pgbench takes them behind SQL in a line, too."""
    return {token["meta"].lower() for token in _TOKEN.finditer(text) if token["meta"]}


def statements_in(text: str) -> int | None:
    """Return the number of statements in a transaction of a script; None where it decides that itself (`\\if`)."""
    count, depth, pending = 0, 0, False
    for token in _TOKEN.finditer(text):
        if token["blank"]:
            continue
        if (token["meta"] or "").lower() in ("if", "elif"):
            return None
        depth = max(depth + {"(": 1, ")": -1}.get(token["other"] or "", 0), 0)
        if token["meta"] or (token["end"] and not depth):
            count, pending, depth = count + pending, False, 0
        else:
            pending = True
    return count + pending


def check_script(script: ScriptText, *, allow_shell: bool) -> None:
    r"""Refuse a script that would run programs with the operator's rights.

    Raises:
        LoadProblem: It has \shell or \setshell, and that was not allowed.
    """
    if script.shell_line is not None and not allow_shell:
        raise LoadProblem(
            f"{script.file}, line {script.shell_line}: \\shell and \\setshell run programs on this machine",
            "to allow this, pass --allow-shell, or set allow_shell = true in your own profile",
        )


def parse_choice(text: str) -> ScriptChoice:
    """Parse FILE or FILE@WEIGHT, as pgbench's -f has it.

    Raises:
        LoadProblem: No file, or a weight that is not a whole number.
    """
    file, at, weight = text.rpartition("@")
    if not at:
        file, weight = text, "1"
    if not file:
        raise LoadProblem(f"{text!r} does not name a script file", "write -f FILE or -f FILE@WEIGHT")
    if not _WEIGHT.fullmatch(weight):
        raise LoadProblem(f"{weight!r} is not a script weight", "write a whole number, as in -f my.sql@3")
    return ScriptChoice(file, int(weight))
