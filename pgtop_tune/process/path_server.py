"""Answers questions about paths, one after the other, until the pipe is closed.

Run as a file, not imported: `python -I -S path_server.py`; see process/path_looks.py. It imports nothing that takes
time. A question is one letter and a path; questions and answers end with a zero byte.
"""

from __future__ import annotations

import os

_CHUNK_BYTES = 65_536


def answer_questions() -> None:
    """Say that we are there, then answer until the other end closes the pipe."""
    received = b""
    os.write(1, b"\0")
    while chunk := os.read(0, _CHUNK_BYTES):
        *questions, received = (received + chunk).split(b"\0")
        for question in questions:
            os.write(1, _answer(question[:1], question[1:]) + b"\0")


def _answer(kind: bytes, path: bytes) -> bytes:
    try:
        if kind == b"l":
            return b"=" + os.readlink(path)
        return b"=" + " ".join(map(str, os.stat(path) if kind == b"s" else os.statvfs(path))).encode()
    except OSError as problem:
        return f"!{problem.errno}".encode()


if __name__ == "__main__":
    try:
        answer_questions()
    except BrokenPipeError:
        pass
