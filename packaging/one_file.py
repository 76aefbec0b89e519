"""Makes the one file of an architecture: a program that unpacks its tree once, and starts it.

    python packaging/one_file.py DIRECTORY               both architectures and SHA256SUMS (make dist)
    python packaging/one_file.py DIRECTORY here          this environment's own packages, for its Python alone

It is a shell script, which finds a Python, with a zip archive behind it, which Python runs: `bootstrap.py` as
`__main__`, and the tree packed as one member, so that a start reads a directory of five names.
"""

from __future__ import annotations

import hashlib
import io
import platform
import re
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

import tree

SHELL: Final = """#!/bin/sh
# pgtop-tune {version} for {machine}: a shell script with a zip archive behind it. `python3 FILE` runs it, too.
for python in python3 python3.14 python3.13 python3.12 python3.11; do
  if command -v "$python" >/dev/null 2>&1; then exec "$python" -IS "$0" "$@"; fi
done
echo "pgtop-tune: there is no python3 on PATH, and Python 3.11.2 to 3.14 is needed" >&2
echo "pgtop-tune: {hint}" >&2
exit 2
"""
_MODULES: Final = ("pythons", "unpacking")
_MOMENT: Final = (1980, 1, 1, 0, 0, 0)
_LEAST_PACKED, _MOST_PACKED = 1, 9
_HINT: Final = re.compile(r'^SHELL_HINT = "(.*)"$', re.MULTILINE)


def build(directory_of_tree: Path, machine: str, directory: Path, *, quick: bool = False) -> Path:
    """Make the file.

    Args:
        directory_of_tree: What `tree.make` has made.
        machine: Its architecture.
        directory: Takes the file.
        quick: Packs less, in a tenth of the time.

    Returns:
        The file.
    """
    manifest = (directory_of_tree / "MANIFEST").read_bytes()
    names = [line.split(" ", 2)[2] for line in manifest.decode().splitlines()]
    payload = io.BytesIO()
    with zipfile.ZipFile(payload, "w") as inner:
        for name in names:
            _add(inner, name, (directory_of_tree / name).read_bytes(), _LEAST_PACKED if quick else _MOST_PACKED)
    packed = io.BytesIO()
    shell = SHELL.format(version=tree.version(), machine=machine, hint=_HINT.findall(_source("pythons"))[0])
    packed.write(shell.encode())
    with zipfile.ZipFile(packed, "a") as outer:
        _add(outer, "__main__.py", _beginning(manifest, machine, directory_of_tree).encode())
        for name in _MODULES:
            _add(outer, f"{name}.py", _source(name).encode())
        _add(outer, "MANIFEST", manifest)
        _add(outer, "tree.zip", payload.getvalue(), None)
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / f"pgtop-tune-{tree.version()}-{machine}.pyz"
    target.write_bytes(packed.getvalue())
    target.chmod(0o755)
    return target


def _add(archive: zipfile.ZipFile, name: str, content: bytes, level: int | None = _MOST_PACKED) -> None:
    member = zipfile.ZipInfo(name, _MOMENT)
    member.external_attr = 0o644 << 16
    kind = zipfile.ZIP_STORED if level is None else zipfile.ZIP_DEFLATED
    archive.writestr(member, content, kind, level)


def _source(name: str) -> str:
    return (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")


def _beginning(manifest: bytes, machine: str, directory_of_tree: Path) -> str:
    text = _source("bootstrap")
    facts = {
        'VERSION = "@VERSION@"': f'VERSION = "{tree.version()}"',
        'TREE = "@TREE@"': f'TREE = "{hashlib.sha256(manifest).hexdigest()[:16]}"',
        'MACHINE = "@MACHINE@"': f'MACHINE = "{machine}"',
        "GLIBC = (0, 0)": f"GLIBC = {tree.least_glibc(directory_of_tree)}",
    }
    for before, after in facts.items():
        assert text.count(before) == 1
        text = text.replace(before, after)
    return text


def build_all(directory: Path, wheels: Path) -> list[Path]:
    """Make the files of all architectures, and their checksums.

    Args:
        directory: Takes them.
        wheels: Keeps what was fetched, for the next time.
    """
    made = []
    for architecture in tree.ARCHITECTURES:
        with tempfile.TemporaryDirectory() as scratch:
            tree.make(architecture, Path(scratch) / "tree", wheels)
            made.append(build(Path(scratch) / "tree", architecture, directory))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made]
    (directory / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    return made


def build_here(directory: Path) -> Path:
    """Make a file of this environment's own packages, for its Python alone, without network."""
    with tempfile.TemporaryDirectory() as scratch:
        tree.make(tree.HERE, Path(scratch) / "tree")
        return build(Path(scratch) / "tree", platform.machine(), directory, quick=True)


def main() -> None:
    """Makes the files that the arguments name, and says how large they are."""
    directory = Path(sys.argv[1])
    here = sys.argv[2:] == [tree.HERE]
    made = [build_here(directory)] if here else build_all(directory, tree.ROOT / "build" / "wheels")
    for path in made:
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
