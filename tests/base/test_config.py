"""The configuration: the file of the machine, over it the user's, over it the variables; and whose files are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgtop_tune.base import config
from pgtop_tune.base.config import load_config
from pgtop_tune.base.errors import UsageProblem


@pytest.fixture
def of_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file, over one of the machine."""
    machine = tmp_path / "machine.toml"
    machine.write_text('theme = "light"\ninterval = 5\n[keys]\nquit = "q"\nhelp = "h"\n')
    machine.chmod(0o644)
    monkeypatch.setattr(config, "OF_MACHINE", machine)
    user = tmp_path / "user.toml"
    user.write_text('interval = 2\n[keys]\nquit = "f10"\n')
    monkeypatch.setenv("PGTOP_TUNE_CONFIG", str(user))
    return user


def test_the_users_file_wins_over_the_machines_and_a_variable_over_both(
    of_user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = load_config()
    assert (read.theme, read.interval, read.keys) == ("light", 2, {"quit": "f10", "help": "h"})
    for name, value in {"INTERVAL": "500ms", "MOUSE": "off", "DISK_CAPS": "vda=6000iops,90MB/s sda=1kiops"}.items():
        monkeypatch.setenv(f"PGTOP_TUNE_{name}", value)
    read = load_config()
    assert (read.interval, read.mouse) == (0.5, False)
    assert read.disk_caps == ("vda=6000iops,90MB/s", "sda=1kiops")
    monkeypatch.setenv("PGTOP_TUNE_INTERVAL", "5m")
    with pytest.raises(UsageProblem, match="PGTOP_TUNE_INTERVAL=5m cannot be used"):
        load_config()


def test_a_file_that_others_could_have_written_is_refused(of_user: Path) -> None:
    for mode in (0o666, 0o660):
        of_user.chmod(mode)
        with pytest.raises(UsageProblem, match="is writable by others") as refused:
            load_config()
        assert refused.value.hint == f"inspect it, then run: chmod go-w {of_user}"


@pytest.mark.root
def test_a_file_of_another_account_is_refused(of_user: Path) -> None:
    os.chown(of_user, 65534, 65534)
    with pytest.raises(UsageProblem, match=r"belongs to (nobody|user 65534), but this process runs as root") as refused:
        load_config()
    assert "--config" in refused.value.hint


def test_a_file_that_is_named_must_be_there(of_user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGTOP_TUNE_CONFIG", f"{of_user}x")
    with pytest.raises(UsageProblem, match="there is no configuration file"):
        load_config()
    monkeypatch.setenv("PGTOP_TUNE_CONFIG", os.devnull)
    assert load_config().interval == 5
