"""Which words of `set` and `reset` are about the machine, and which about the server. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from pgtop_tune.advice.knobs.system import BY_NAME, knob_of
from pgtop_tune.changes.model.change import WantedSetting
from pgtop_tune.errors import UsageProblem


def is_machine_name(name: str) -> bool:
    """Whether a name is one of the operating system: in its catalogue, and no parameter without a dot."""
    return ("." in name or "/" in name) and knob_of(name) is not None


def split_names(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of parameters, and those of settings of the machine."""
    return (
        tuple(name for name in names if not is_machine_name(name)),
        tuple(name for name in names if is_machine_name(name)),
    )


def split_words(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[WantedSetting, ...]]:
    """NAME=VALUE words of the server, and what is wanted of the machine."""
    parts = [(word, *word.partition("=")) for word in words]
    of_machine = [(word, name.strip(), value.strip()) for word, name, equals, value in parts if equals]
    settings = {word: WantedSetting(name, value) for word, name, value in of_machine if is_machine_name(name)}
    rest = tuple(word for word in words if word not in settings)
    return rest, tuple(settings[word] for word in words if word in settings)


def check_machine_options(settings: Sequence[WantedSetting], *, persist: bool, on_trial: bool, of_load: bool) -> None:
    """Options of `set` that have a meaning for settings of the machine, or have none.

    Raises:
        UsageProblem: They contradict each other.
    """
    if persist and not settings:
        raise UsageProblem("--persist is for settings of the machine", "ALTER SYSTEM survives a restart by itself")
    if persist and on_trial:
        raise UsageProblem("--persist and --for contradict each other", "pass one of them")
    if settings and of_load:
        raise UsageProblem(f"{settings[0].name} is one value for the whole machine", "leave --scope load out")


def nearest_settings(names: Sequence[str]) -> tuple[str, ...]:
    """Settings of the machine that may be meant by names that the server does not know."""
    known = [each for each in BY_NAME if "." in each or "/" in each]
    return tuple(near for name in names for near in difflib.get_close_matches(name, known, 2, 0.75))
