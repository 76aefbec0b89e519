"""Load profiles as files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.datasets.bus import table_sizes
from pgtop_tune.bench.profiles import (
    LOGGED_PER_S,
    SHIPPED,
    Profile,
    Script,
    load_profiles,
    profile_directories,
    read_profile,
    read_script,
    with_variables,
)
from pgtop_tune.model.bench import LoadSpec, ScriptChoice

GOOD = 'title = "T"\ndescription = "D"\n'


def write(directory: Path, text: str, name: str = "mine.toml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_ours_are_there_and_whole() -> None:
    profiles = load_profiles((SHIPPED,))
    builtin = {name: profile.dataset for name, profile in profiles.by_name.items() if profile.builtin == name}
    assert builtin == dict.fromkeys(("tpcb-like", "select-only", "simple-update"), "pgbench")
    assert list(profiles.by_name) == [
        *builtin,
        "ticket-read",
        "ticket-insert",
        "read90-insert9-update1",
        "range-report",
        "hot-row",
        "write-heavy",
    ]
    assert profiles.problems == ()
    assert all(profile.summary().clients >= 1 for profile in profiles.by_name.values())
    assert [script.weight for script in profiles.get("read90-insert9-update1").scripts] == [90, 9, 1]


@pytest.mark.parametrize("profile", [each for each in load_profiles((SHIPPED,)).by_name.values() if each.scripts])
def test_our_scripts_are_given_every_variable_they_use(profile: Profile) -> None:
    given = {name for name, _ in profile.variables} | set(profile.from_dataset)
    assert set(profile.from_dataset) <= set(table_sizes(1000))
    for script in profile.scripts:
        text = re.sub(r"--.*", "", read_script(script.file).text)
        own = set(re.findall(r"\\set (\w+)", text))
        used = set(re.findall(r"(?<!:):([a-z]\w*)", text))
        assert used - own <= given
        assert "random()" not in text


def test_what_a_load_is_given_wins_over_the_profile_and_that_over_the_data_set() -> None:
    profile = Profile(
        "n", "t", "d", dataset="bus", from_dataset=("tickets", "rides", "days"), variables=(("rides", "2"),)
    )
    spec = LoadSpec(variables=(("days", "3"), ("more", "4")))
    found = {"tickets": "10", "rides": "20", "days": "30", "unused": "1"}
    assert dict(with_variables(spec, profile, found).variables) == {
        "tickets": "10",
        "rides": "2",
        "days": "3",
        "more": "4",
    }


def test_a_number_that_no_data_set_has_is_asked_for() -> None:
    profile = load_profiles((SHIPPED,)).get("ticket-read")
    with pytest.raises(LoadProblem, match="ticket-read needs tickets from the bus data set") as caught:
        with_variables(LoadSpec(), profile, {})
    assert "pgtop-tune bench init --dataset bus" in caught.value.hint
    assert with_variables(LoadSpec(variables=(("tickets", "7"),)), profile, {}).variables == (("tickets", "7"),)
    own = LoadSpec(scripts=(ScriptChoice("my.sql"),))
    assert with_variables(own, profile, {}) == own


def test_a_directory_named_wins_and_must_be_there(tmp_path: Path) -> None:
    write(tmp_path, GOOD + 'builtin = "select-only"\n', "tpcb-like.toml")
    profiles = load_profiles(profile_directories(tmp_path))
    assert profiles.get("tpcb-like").builtin == "select-only"
    with pytest.raises(LoadProblem, match="is not a directory"):
        profile_directories(tmp_path / "missing")


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(LoadProblem, match="tpcb-like"):
        load_profiles((SHIPPED,)).get("tpcc")


def test_the_users_profiles_come_from_his_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    directory = tmp_path / "pgtop-tune" / "profiles"
    directory.mkdir(parents=True)
    write(
        directory,
        GOOD + '[[script]]\nfile = "a.sql"\nweight = 3\n[[script]]\nfile = "/abs/b.sql"\n[variables]\nn = 5\n',
    )
    write(directory, GOOD + 'builtin = "select-only"\nprotocol = "simple"\n', "tpcb-like.toml")
    write(directory, "nonsense", "broken.toml")
    profiles = load_profiles()
    assert profiles.get("mine").scripts == (Script(directory / "a.sql", 3), Script(Path("/abs/b.sql"), 1))
    assert profiles.get("mine").variables == (("n", "5"),)
    assert profiles.get("tpcb-like").builtin == "select-only"
    assert len(profiles.problems) == 1
    assert "broken.toml" in profiles.problems[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("title = 1", "title must be text"),
        ('title = "T"\nbuiltin = "select-only"', "description is missing"),
        (GOOD, "either 'builtin' or"),
        (GOOD + 'builtin = "select-only"\n[[script]]\nfile = "a"', "not both"),
        (GOOD + 'builtin = "tpcc"', "builtin must be one of tpcb-like"),
        (GOOD + 'builtin = "select-only"\nclients_per_core = true', "clients_per_core must be a whole number"),
        (GOOD + 'builtin = "select-only"\ncleints = 3', "unknown key 'cleints'"),
        (GOOD + "script = []", "script must be one to 128"),
        (GOOD + "[[script]]\nweight = 1", "script 1: file is missing"),
        (GOOD + '[[script]]\nfile = "a"\nweight = -1', "weight must be a whole number"),
        (GOOD + '[[script]]\nfile = "a"\nweight = 0', "weight above 0"),
        (GOOD + 'builtin = "select-only"\ndataset = "tpch"', "dataset must be one of pgbench, bus"),
        (GOOD + 'builtin = "select-only"\nfrom_dataset = ["scale"]', "from_dataset needs a dataset"),
        (GOOD + 'builtin = "select-only"\nfrom_dataset = ["a b"]', "from_dataset must be a list of variable names"),
        (GOOD + 'builtin = "select-only"\nallow_shell = 1', "allow_shell must be true or false"),
        (GOOD + 'builtin = "select-only"\n[variables]\n"a=b" = 1', "variables must be a table"),
        (GOOD + 'builtin = "select-only"\n[variables]\na = [1]', "variables must be a table"),
        ("title = ", "mine.toml"),
    ],
)
def test_a_broken_profile_names_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(LoadProblem) as caught:
        read_profile(write(tmp_path, text))
    assert says in caught.value.message
    assert "mine.toml" in caught.value.message


@given(st.none() | st.floats(0.001, 1e7), st.sampled_from(("commits", "mixed", "lookups")))
def test_the_log_is_sampled_so_that_its_lines_stay_few(rate: float | None, log_class: str) -> None:
    share = Profile("n", "t", "d", log_class=log_class).sampling_rate(rate)
    assert 0 < share <= 1
    assert rate is None or rate * share <= LOGGED_PER_S or share == 1
