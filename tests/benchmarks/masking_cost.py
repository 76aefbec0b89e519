"""What masking costs a text that enters, and a text made to make it expensive.

    python -m tests.benchmarks.masking_cost

Prints; asserts nothing.
"""

from __future__ import annotations

import timeit

from pgtop_tune.base.secret import without_secrets

QUERY = "SELECT a.id, b.name FROM orders a JOIN customers b ON a.customer_id = b.id WHERE b.country = ANY($1) "
TEXTS = {
    "pgbench": "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
    "a query of 1 kB": QUERY * 10,
    "a query of 10 kB": QUERY * 100,
    "a password": "ALTER ROLE bob PASSWORD 'sesame'",
    "a token": "INSERT INTO x VALUES ('npm_0A1B2C3D4E5F0A1B2C3D4E5F0A1B2C3D4E5F')",
} | {
    f"1 MB of {part[:12]!r}": part * (1_000_000 // len(part))
    for part in ("a", "A", "'", "password=", "key-----", "eyJ.", "eyJ ", "sk-", "sk-A ", "md5", f"AKIA{'A' * 16} ")
}


def main() -> None:
    """Prints microseconds per text."""
    for name, text in TEXTS.items():
        times = max(1, 20_000 // len(text))
        best = min(timeit.repeat(lambda text=text: without_secrets(text), number=times, repeat=5)) / times
        print(f"{name:24s} {len(text):9d} characters {best * 1e6:12.1f} us")


if __name__ == "__main__":
    main()
