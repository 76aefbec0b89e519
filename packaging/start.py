"""Starts pgtop-tune from the directory of this file: `python -I -S start.py WORD…`, or another module of it:
`python -I -S start.py --module=pgtop_tune.cli.unit WORD…`, with --archive=FILE before it where the one file has
unpacked the directory.

Packages come from this directory, everything else from Python's own library. The directory is locked for as long as
one of its programs runs, so that nobody removes it meanwhile.
"""

import os
import sys

TREE = os.path.dirname(os.path.abspath(__file__))
_ARCHIVE = "--archive="
_MODULE = "--module="
_ELSEWHERE = ("site-packages", "dist-packages")


def hold():
    """Return a descriptor of the directory, which is locked; None where nothing locks.

    Raises:
        SystemExit: The directory is being removed.
    """
    import fcntl

    descriptor = os.open(TREE, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.stat(TREE)):
            raise BlockingIOError
    except (BlockingIOError, FileNotFoundError):
        sys.exit("pgtop-tune: its files are being removed (--uninstall-cache); start it again")
    except OSError:
        # A file system without locks.
        os.close(descriptor)
        return None
    return descriptor


def start(module="pgtop_tune", archive=""):
    """Run a module of pgtop-tune."""
    sys.path[:] = [each for each in sys.path if os.path.basename(each) not in _ELSEWHERE]
    sys.path.insert(0, os.path.join(TREE, "lib", "common"))
    held = hold()
    from pgtop_tune.process.own_program import started_by

    started_by(os.path.join(TREE, "start.py"), held, archive)
    if module == "pgtop_tune":
        from pgtop_tune.cli.app import main
    else:
        from importlib import import_module

        main = import_module(module).main
    main()


if __name__ == "__main__":
    unpacked_by = ""
    if sys.argv[2:] and sys.argv[1].startswith(_ARCHIVE) and sys.argv[2].startswith(_MODULE):
        unpacked_by = sys.argv.pop(1)[len(_ARCHIVE) :]
    try:
        if sys.argv[1:] and sys.argv[1].startswith(_MODULE + "pgtop_tune."):
            start(sys.argv.pop(1)[len(_MODULE) :], unpacked_by)
        else:
            start()
    except KeyboardInterrupt:
        # Stopped while it begins, before it handles signals: nothing has been done yet.
        sys.exit(130)
