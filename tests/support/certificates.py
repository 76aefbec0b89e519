"""An authority of certificates that exists for a test, made with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

_DAYS = "2"


class Authority:
    """Signs certificates.

    Attributes:
        root: Its own certificate.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.root = directory / "root.crt"
        self._key = directory / "root.key"
        _openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", _DAYS, "-subj", "/CN=authority of a test",
            "-keyout", str(self._key), "-out", str(self.root),
        )  # fmt: skip

    def signed(self, name: str, *, alternatives: str = "", bits: int = 2048) -> tuple[Path, Path]:
        """A certificate and its key.

        Args:
            name: The common name; also that of the files.
            alternatives: subjectAltName, as "DNS:db.internal".
            bits: Of the key.
        """
        certificate, key = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        request, extensions = self._directory / f"{name}.csr", self._directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternatives}\n" if alternatives else "")
        _openssl(
            "req",
            "-newkey",
            f"rsa:{bits}",
            "-nodes",
            "-subj",
            f"/CN={name}",
            "-keyout",
            str(key),
            "-out",
            str(request),
        )
        _openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.root), "-CAkey", str(self._key), "-CAcreateserial",
            "-days", _DAYS, "-extfile", str(extensions), "-out", str(certificate),
        )  # fmt: skip
        key.chmod(0o600)
        return certificate, key


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
