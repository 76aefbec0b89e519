"""A client beside a load: it commits in a loop, and notes its first error and its first commit after it.

python commit_observer.py CONNINFO prints a line "ERROR COMMIT", seconds since the epoch, for each outage.
"""

from __future__ import annotations

import sys
import time

import psycopg


def main(text: str) -> None:
    connection: psycopg.Connection | None = None
    error_s: float | None = None
    while True:
        try:
            if connection is None:
                connection = psycopg.connect(text, connect_timeout=2, autocommit=True)
                connection.execute("CREATE TABLE IF NOT EXISTS public.observed (n int)")
                print("ready", flush=True) if error_s is None else None
            connection.execute("INSERT INTO public.observed VALUES (1)")
            if error_s is not None:
                print(error_s, time.time(), flush=True)
                error_s = None
            time.sleep(0.002)
        except psycopg.Error:
            if error_s is None:
                error_s = time.time()
            connection = None
            time.sleep(0.005)


if __name__ == "__main__":
    main(sys.argv[1])
