"""The publish workflow: its commands exist, its actions are pinned, and it uploads only under a name that is owned."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from pgtop_tune import __version__
from tests.support.packaging_step import ROOT

WORKFLOW: Any = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text(encoding="utf-8"))
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def _commands() -> str:
    return "\n".join(step["run"] for step in STEPS if "run" in step)


def test_actions_are_pinned_by_their_commits() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    for action in used:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action), action


def test_the_targets_and_files_it_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"\bmake ([a-z-]+)", _commands())
    assert targets == ["packages"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    for file in re.findall(r"(?:bash|-r) (\S+)", _commands()):
        assert (ROOT / file).is_file(), file


def test_only_the_job_of_the_index_has_an_identity_and_only_with_a_name_that_is_owned() -> None:
    assert WORKFLOW["permissions"] == {}
    with_identity = {name for name, job in WORKFLOW["jobs"].items() if "id-token" in job["permissions"]}
    assert with_identity == {"index"}
    assert "INDEX_NAME_OWNED" in WORKFLOW["jobs"]["index"]["if"]


def test_the_notes_of_a_release_are_its_section_of_the_changelog(tmp_path: Path) -> None:
    (step,) = (step for step in STEPS if "notes.md" in step.get("run", "") and "awk" in step["run"])
    for path in ("CHANGELOG.md", "pgtop_tune/__init__.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes((ROOT / path).read_bytes())

    def ran(tag: str) -> int:
        words = ["bash", "-eo", "pipefail", "-c", step["run"]]
        environment = {"GITHUB_REF_NAME": tag, "PATH": "/usr/local/bin:/usr/bin:/bin"}
        return subprocess.run(words, cwd=tmp_path, env=environment, check=False).returncode

    assert ran("v99.0.0") != 0
    assert ran(f"v{__version__}") == 0
    notes = (tmp_path / "notes.md").read_text(encoding="utf-8")
    assert notes.startswith("\n### Added\n")
    assert not re.search(r"^## ", notes, re.MULTILINE)
