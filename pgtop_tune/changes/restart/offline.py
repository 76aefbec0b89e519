"""Recovery while the server is down: restores the old values in postgresql.auto.conf. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.base.paths import NotOurs, read_own
from pgtop_tune.changes.model.change import ChangeState, ParameterChange, ScopeKind
from pgtop_tune.changes.server.markers import is_marker, marker_name
from pgtop_tune.changes.server.one_change import is_ours
from pgtop_tune.changes.statements import out_of_order, same
from pgtop_tune.cluster import auto_conf
from pgtop_tune.model.instance import ServerPlace


def restore(place: ServerPlace, changes: Sequence[ParameterChange]) -> bool:
    """Gives postgresql.auto.conf the values back that it had before some changes; safe to be done again.

    Args:
        place: Of the server, which does not run.
        changes: In force, in the order they were made.

    Returns:
        Whether the file is another than before.

    Raises:
        ClusterProblem: It cannot be read or written.
    """
    now = auto_conf.read(place.data_directory)
    text = put_back(now.decode("utf-8", "surrogateescape"), changes)
    content = text.encode("utf-8", "surrogateescape")
    copy = _copy(place)
    if copy is not None and _lines(copy.decode("utf-8", "surrogateescape")) == _lines(text):
        # It says the same, and has the comments that ALTER SYSTEM drops.
        content = copy
    if content == now:
        return False
    auto_conf.write(place.data_directory, content)
    return True


def in_file(place: ServerPlace, changes: Sequence[ParameterChange]) -> tuple[ParameterChange, ...]:
    """Remove the markers of changes that `restore` has put back, and return the changes as the journal gets them.

    Args:
        place: Of the server, which does not run.
        changes: Of the system's scope; no other change of these parameters is in force.

    Raises:
        ClusterProblem: The file cannot be read or written.
    """
    now = auto_conf.read(place.data_directory)
    text = now.decode("utf-8", "surrogateescape")
    for change in changes:
        text = auto_conf.with_value(text, marker_name(change.name), None)
    if (content := text.encode("utf-8", "surrogateescape")) != now:
        auto_conf.write(place.data_directory, content)
    values = {name.lower(): value for name, value in auto_conf.settings(text).items()}
    return tuple(_as_in_file(change, values.get(change.name.lower())) for change in reversed(changes))


def _as_in_file(change: ParameterChange, value: str | None) -> ParameterChange:
    if same(change.name, value, change.auto_conf_before):
        words, state = "the server was down: it starts with this value", ChangeState.REVERTED
        return replace(change, state=state, shown_after=change.shown_before, message=words)
    since = "left alone: reset since" if value is None else f"left alone: another user has set it to {value} since"
    return replace(change, state=ChangeState.SUPERSEDED, message=since, displaced=change.kept)


def restore_copy(
    place: ServerPlace,
    changes: Sequence[ParameterChange],
    in_force: Sequence[ParameterChange],
    sure: Callable[[str], bool],
) -> bool:
    """Puts the copy of postgresql.auto.conf back where `restore` did not bring the server up; lines of others stay.

    Args:
        place: Of the server, which does not run.
        changes: To be taken back.
        in_force: All of the journal.
        sure: Asked where lines that would go are not as we have left them; told which, and of what file.

    Returns:
        Whether the file is another than before.

    Raises:
        ClusterProblem: A file cannot be read or written.
    """
    copy = _copy(place)
    if copy is None:
        return False
    now = auto_conf.read(place.data_directory)
    current, before = _by_name(now), _by_name(copy)
    ours = {change.name.lower() for change in changes if change.scope.kind is ScopeKind.SYSTEM}
    text = copy.decode("utf-8", "surrogateescape")
    for name in dict.fromkeys((*before, *current)):
        if name not in ours and current.get(name) != before.get(name):
            text = auto_conf.with_value(text, name, current.get(name))
    others = [
        name
        for name in sorted(ours & current.keys())
        if current[name] != before.get(name) and not _left_by_one(in_force, name, current[name])
    ]
    content = text.encode("utf-8", "surrogateescape")
    if content == now or (others and not sure(f"{', '.join(others)} in {place.data_directory}/{auto_conf.FILE_NAME}")):
        return False
    auto_conf.write(place.data_directory, content)
    return True


def put_back(text: str, changes: Sequence[ParameterChange]) -> str:
    """The text without some changes, last first; what somebody else has set since is left alone. Pure."""
    for change in reversed(changes):
        if change.scope.kind is not ScopeKind.SYSTEM:
            continue
        current = {name.lower(): value for name, value in auto_conf.settings(text).items()}
        now, before = current.get(change.name.lower()), change.auto_conf_before
        if is_ours(change, now) and not same(change.name, now, before):
            text = auto_conf.with_value(text, change.name, before)
        elif not same(change.name, now, before):
            continue
        text = _in_order_again(text, change)
    return text


def _in_order_again(text: str, change: ParameterChange) -> str:
    have = list(auto_conf.settings(text))
    own = () if change.auto_conf_before is None else (change.name,)
    # Programs that know no markers have written down their lines as well.
    wanted = [name for name in (*own, *change.followed_by) if name in have and not is_marker(name)]
    return auto_conf.at_the_end(text, out_of_order([name for name in have if name in wanted], wanted))


def _by_name(content: bytes) -> dict[str, str]:
    return {
        name.lower(): value for name, value in auto_conf.settings(content.decode("utf-8", "surrogateescape")).items()
    }


def _left_by_one(changes: Sequence[ParameterChange], name: str, value: str) -> bool:
    return any(change.name.lower() == name and is_ours(change, value) for change in changes)


def _lines(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in auto_conf.settings(text).items() if not is_marker(name)]


def _copy(place: ServerPlace) -> bytes | None:
    if not place.copy:
        return None
    try:
        return read_own(Path(place.copy))
    except NotOurs as why:
        raise ClusterProblem(f"the copy is not used: {why}", why.hint) from None
    except OSError as error:
        raise ClusterProblem(f"{place.copy} cannot be read: {error.strerror}") from None
