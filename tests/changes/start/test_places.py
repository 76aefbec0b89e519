"""What the server does with postgresql.auto.conf besides our line is known before it is asked to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import resolve
from tests.support.servers import conninfo

WANTED = (WantedParameter("work_mem", "9MB"),)


def _of_dev_null(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/null")


@pytest.mark.parametrize(
    ("spoil", "words", "hint"),
    [
        (lambda file: file.write_text("include_if_exists 'more.conf'\n"), "include_if_exists 'more.conf'", "move that"),
        (lambda file: file.chmod(0o400), "read-only", "managed elsewhere"),
        (_of_dev_null, "read-only", "managed elsewhere"),
    ],
    ids=["include", "read-only", "/dev/null"],
)
async def test_a_file_that_is_not_ours_to_write_is_left_as_it_is(
    make_server: Callable[..., Throwaway], tmp_path: Path, spoil: Callable[[Path], None], words: str, hint: str
) -> None:
    server = make_server()
    file = Path(str(server.data_dir)) / "postgresql.auto.conf"
    spoil(file)
    before = (file.is_symlink(), file.read_bytes(), file.stat().st_mode)
    control = PostgresControl(resolve(conninfo(server)), directory=tmp_path)
    with pytest.raises(ServerProblem, match=words) as refused:
        await control.apply_set(WANTED, Terms())
    assert hint in refused.value.hint
    assert "GRANT" not in refused.value.hint
    assert await control.in_force() == ()
    await control.aclose()
    assert (file.is_symlink(), file.read_bytes(), file.stat().st_mode) == before


async def test_an_include_that_came_meanwhile_is_told_when_a_revert_writes_it_out(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server()
    control = PostgresControl(resolve(conninfo(server)), directory=tmp_path)
    (made,) = await control.apply_set(WANTED, Terms())
    file = Path(str(server.data_dir)) / "postgresql.auto.conf"
    file.write_bytes(file.read_bytes() + b"include_if_exists 'more.conf'\n")
    (undone,) = await control.undo_these([made.id])
    assert "include_if_exists 'more.conf'" in undone.message
    assert undone.shown_after == "4MB"
    await control.aclose()
