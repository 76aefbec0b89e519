"""Makes the tree that the one file and the packages hold: the program with all that it runs with, for every Python.

    python packaging/tree.py x86_64|aarch64 DIRECTORY    from the wheels that requirements-run.lock names
    python packaging/tree.py here DIRECTORY              from this environment, for its Python alone; without network

    lib/common/        the modules of all packages; the libraries of several Pythons stand side by side
    licences/PACKAGE/  the texts of the licences
    start.py           starts the program from here
    VERSION            of the program
    MANIFEST           SHA-256, size and path of every other file

The same sources and wheels make the same tree.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "requirements-run.lock"
PYTHONS: Final = ("311", "312", "313", "314")
PLATFORMS: Final = ("manylinux2014", "manylinux_2_17", "manylinux_2_26", "manylinux_2_27", "manylinux_2_28")
"""The first is preferred: it runs with the oldest glibc."""
ARCHITECTURES: Final = ("x86_64", "aarch64")
MODULES: Final = "lib/common"
HERE: Final = "here"

_LEFT_OUT: Final = (
    "*.pyc", "*.pyi", "*.pyx", "*.pxd", "*.pxi", "*.c", "*.h", "*/py.typed",
    "*.data/*", "psutil/tests/*", "asyncpg/_testbase/*",
)  # fmt: skip
"""What no program runs."""
_LICENCES: Final = ("*.dist-info/licenses/*", "*.dist-info/LICEN[CS]E*", "*.dist-info/COPYING*", "*.dist-info/NOTICE*")
_STRIPPED: Final = ("asyncpg/*.so",)
"""Libraries whose names for debuggers are most of them. Those of psycopg stay as they are: it is under the LGPL."""
_FILE_MODE: Final = 0o644
_GLIBC: Final = re.compile(rb"\0GLIBC_(\d+)\.(\d+)")
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


class Differs(Exception):
    """Two wheels hold different files under one name: they cannot share a directory."""


class Tree:
    """A tree that is being made.

    Attributes:
        directory: Its root, made anew.
    """

    def __init__(self, directory: Path) -> None:
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
        self.directory: Final = directory

    def add(self, path: str, content: bytes) -> None:
        """Write a file.

        Args:
            path: Below the root.
            content: Of the file; the same where it is there already.

        Raises:
            Differs: Something else is there.
        """
        target = self.directory / path
        if target.exists():
            if target.read_bytes() != content:
                raise Differs(path)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def add_module_file(self, path: str, content: bytes) -> None:
        """Write a file of a wheel to its place in the tree, or nothing where no program needs it.

        Args:
            path: Inside the wheel.
            content: Of the file.

        Raises:
            Differs: See `add`.
        """
        if any(fnmatch(path, pattern) for pattern in _LICENCES):
            package, _, _ = path.partition("-")
            name = path.partition(".dist-info/")[2].removeprefix("licenses/")
            self.add(f"licences/{package}/{name}", content)
        elif path.partition("/")[0].endswith(".dist-info"):
            if path.endswith("/METADATA"):
                self.add(f"{MODULES}/{path}", content)
        elif not any(fnmatch(path, pattern) for pattern in _LEFT_OUT):
            if any(fnmatch(path, pattern) for pattern in _STRIPPED):
                content = stripped(content)
            self.add(f"{MODULES}/{path}", content)

    def add_program(self) -> None:
        """Write the program itself, and what starts it."""
        for source, target in (
            (ROOT / "pgtop_tune", "pgtop_tune"),
            (ROOT / "themes", "pgtop_tune/themes"),
            (ROOT / "docs" / "guide", "pgtop_tune/guide"),
        ):
            for path in sorted(source.rglob("*")):
                name = path.relative_to(source).as_posix()
                if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
                    self.add(f"{MODULES}/{target}/{name}", path.read_bytes())
        self.add("licences/pgtop_tune/LICENSE", (ROOT / "LICENSE").read_bytes())
        self.add("start.py", (ROOT / "packaging" / "start.py").read_bytes())
        self.add("VERSION", f"{version()}\n".encode())

    def finish(self) -> None:
        """Write the manifest, and give every file the permissions and the time of the sources."""
        lines = [f"{hashlib.sha256(content).hexdigest()} {len(content)} {path}\n" for path, content in self.files()]
        self.add("MANIFEST", "".join(lines).encode())
        moment = source_time()
        for path in self.directory.rglob("*"):
            path.chmod(0o755 if path.is_dir() else _FILE_MODE)
            os.utime(path, (moment, moment))

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of every file, in order."""
        paths = {
            path.relative_to(self.directory).as_posix(): path for path in self.directory.rglob("*") if path.is_file()
        }
        for name in sorted(paths):
            yield name, paths[name].read_bytes()


def version() -> str:
    """Return the version of the program."""
    found = re.search(r'__version__: Final = "([^"]+)"', (ROOT / "pgtop_tune/__init__.py").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def source_time() -> int:
    """Return the time of the sources, in seconds since the epoch: SOURCE_DATE_EPOCH, or that of the last commit.

    Python takes a compiled module for that of a source of the same time and size, so each version has its own.
    """
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    asked = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    return int(asked.stdout) if asked.returncode == 0 else int((ROOT / "pgtop_tune/__init__.py").stat().st_mtime)


def pins() -> dict[str, str]:
    """Return the version of every package that the program runs with, by name."""
    return dict(_PIN.findall(LOCK.read_text(encoding="utf-8")))


def tag_of(path: str) -> str:
    """Return the Python that a file of a tree is for, as in `PYTHONS`; "" is every one."""
    found = re.search(r"\.cpython-(3\d+)-[^/]*\.so$", path)
    return found[1] if found else ""


def least_glibc(directory: Path) -> tuple[int, int]:
    """Return the newest version of glibc that a library of a tree takes a symbol of."""
    wanted = [_GLIBC.findall(path.read_bytes()) for path in directory.rglob("*.so*")]
    return max((int(major), int(minor)) for versions in wanted for major, minor in versions)


def download(architecture: str, directory: Path) -> None:
    """Fetch the wheels of all Pythons from the index that pip is configured for, by their hashes.

    Args:
        architecture: One of `ARCHITECTURES`.
        directory: Takes them; those that it holds are not fetched again.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for python in PYTHONS:
        if _has_all(_locked(directory), python):
            continue
        words = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        words += ["--require-hashes", "--only-binary=:all:", "--find-links", str(directory), "--dest", str(directory)]
        words += ["--implementation", "cp", "--python-version", f"3.{python[1:]}", "--requirement", str(LOCK)]
        for abi in (f"cp{python}", "abi3", "none"):
            words += ["--abi", abi]
        for platform in PLATFORMS:
            words += ["--platform", f"{platform}_{architecture}"]
        subprocess.run(words, check=True)


def _has_all(wheels: Iterable[Path], python: str) -> bool:
    """Return whether every package is among these wheels, for a Python as in `PYTHONS`."""
    packages = set()
    for path in wheels:
        name, _, _, abi, _ = path.stem.rsplit("-", 4)
        if abi in (f"cp{python}", "abi3", "none"):
            packages.add(name.replace("_", "-").lower())
    return packages >= set(pins())


def make_of_wheels(wheels: Iterable[Path], directory: Path) -> None:
    """Make a tree of wheels and the program.

    Args:
        wheels: Of one architecture.
        directory: Becomes the tree; what it holds is removed.

    Raises:
        Differs: The wheels of a package for two Pythons do not agree on a file.
    """
    tree = Tree(directory)
    for path in sorted(wheels):
        with zipfile.ZipFile(path) as wheel:
            for member in wheel.infolist():
                if not member.is_dir():
                    tree.add_module_file(member.filename, wheel.read(member))
    tree.add_program()
    tree.finish()


def make_of_environment(directory: Path) -> None:
    """Make a tree of the packages that are installed beside this Python, for it alone.

    Args:
        directory: Becomes the tree; what it holds is removed.
    """
    tree = Tree(directory)
    for name in pins():
        installed = distribution(name)
        for path in installed.files or ():
            if ".." not in PurePosixPath(path).parts and "__pycache__" not in path.parts:
                tree.add_module_file(str(path), Path(str(installed.locate_file(path))).read_bytes())
    tree.add_program()
    tree.finish()


def make(architecture: str, directory: Path, wheels: Path | None = None) -> None:
    """Make the tree of an architecture.

    Args:
        architecture: One of `ARCHITECTURES`, or `HERE`.
        directory: Becomes the tree; what it holds is removed.
        wheels: Keeps what was fetched, for the next time.
    """
    if architecture == HERE:
        make_of_environment(directory)
        return
    with tempfile.TemporaryDirectory() as scratch:
        kept = Path(scratch) if wheels is None else wheels / architecture
        download(architecture, kept)
        make_of_wheels(_locked(kept), directory)


def _locked(directory: Path) -> list[Path]:
    """Return the wheels that the lock names; an older one may be kept beside them."""
    wanted = LOCK.read_text(encoding="utf-8")
    return [path for path in directory.glob("*.whl") if hashlib.sha256(path.read_bytes()).hexdigest() in wanted]


# A program is loaded by its segments. Its sections, and the names of its functions, are for linkers and debuggers.

_SEGMENTS: Final = struct.Struct("<IIQQQQQQ")
_ELF_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"


def stripped(library: bytes) -> bytes:
    """Return a library of any 64-bit architecture without what loading it does not need."""
    if not library.startswith(_ELF_64_LITTLE):
        return library
    header = list(_ELF_HEADER.unpack_from(library))
    segments_at, segment_bytes, segments = header[5], header[9], header[10]
    end = segments_at + segment_bytes * segments
    for number in range(segments):
        _, _, offset, _, _, size, _, _ = _SEGMENTS.unpack_from(library, segments_at + number * segment_bytes)
        end = max(end, offset + size)
    # Neither place nor number of sections.
    header[6] = header[11] = header[12] = header[13] = 0
    return _ELF_HEADER.pack(*header) + library[_ELF_HEADER.size : end]


def main() -> None:
    """Makes the tree that the arguments name."""
    architecture, directory, *wheels = sys.argv[1:]
    make(architecture, Path(directory), Path(wheels[0]) if wheels else None)


if __name__ == "__main__":
    main()
