"""What the one file does where its Python is too old, too new, or a special build: another one is looked for, and
where there is none, the package that brings one is named. Python 3.6 reads this.
"""

import os
import subprocess
import sys

import __main__ as bootstrap

_NAMES = ("python3.14", "python3.13", "python3.12", "python3.11")
_ASKED = "import sys; print(sys.version_info[:3] >= (3, 11, 2) and not set(getattr(sys, 'abiflags', '')) - {'m'})"
_PATIENCE_S = 10
_WANTED = "Python 3.11.2 to 3.14 is needed"
_PACKAGES = (
    ("debian", "12", "apt-get install python3"),
    ("ubuntu", "24.04", "apt-get install python3"),
    ("fedora", "37", "dnf install python3"),
    ("amzn", "2023", "dnf install python3.11"),
    ("rhel", "8", "dnf install python3.12"),
    ("centos", "8", "dnf install python3.12"),
    ("sles", "15", "zypper install python311"),
    ("suse", "15", "zypper install python311"),
    ("arch", "", "pacman -S python"),
    ("alpine", "", "apk add python3 (this file itself is for glibc)"),
)
"""ID of os-release, the oldest version with such a package, and the command that installs it."""
SHELL_HINT = "Debian 12, Ubuntu 24.04, Fedora: package python3; RHEL 8, 9: python3.12; SLES 15: python311"


def start_newer(reason):
    """Run the file with another Python of this machine; without one say what is missing, and end.

    Args:
        reason: What is wrong with this one.
    """
    if bootstrap.FOUND_BY_US not in getattr(sys, "_xoptions", {}):
        for program in _programs():
            if _is_usable(program):
                words = [program, "-IS", "-X", bootstrap.FOUND_BY_US, bootstrap.FILE]
                os.execv(program, words + sys.argv[1:])
    bootstrap.refuse(f"{reason}, and {_WANTED}", _hint(_os_release()))


def _programs():
    directories = [each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if each.startswith("/")]
    for name in _NAMES:
        for directory in directories:
            program = os.path.join(directory, name)
            if os.access(program, os.X_OK):
                yield program


def _is_usable(program):
    try:
        words = [program, "-IS", "-c", _ASKED]
        answer = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.stdout.strip() == b"True"


def _hint(system):
    """Return the command that brings a Python, by what /etc/os-release says."""
    version = _numbers(system.get("VERSION_ID", ""))
    title = system.get("PRETTY_NAME") or "this system"
    for name in (system.get("ID", ""), *system.get("ID_LIKE", "").split()):
        known = [row for row in _PACKAGES if row[0] == name]
        if known:
            _, oldest, command = known[0]
            # A relative of a distribution may count its versions in its own way.
            if name != system.get("ID") or not version or version >= _numbers(oldest):
                return f"{title}: {command}"
            break
    return f"{title} has no package of one; a newer release has, or `uv python install 3.12` brings one"


def _numbers(text):
    return [int(number) for number in text.split(".") if number.isdigit()]


def _os_release():
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                pairs = [line.strip().partition("=") for line in file if "=" in line]
        except OSError:
            continue
        return {name: value.strip("\"'") for name, _, value in pairs}
    return {}
