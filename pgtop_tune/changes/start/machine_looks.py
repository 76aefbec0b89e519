"""Looks at the server's machine for the next start: the account's permissions, its group, the addresses. Blocking.

Permissions are those of owner, group and mode (path_resolution(7)). A path with access control lists, or one that this
process may not look at, is taken for open: nothing is refused on a guess.
"""

from __future__ import annotations

import errno
import grp
import os
import socket
import stat
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.changes.start.next_start import PASSPHRASE, TLS_FILES, NextStart
from pgtop_tune.changes.statements import elements
from pgtop_tune.cluster.auto_conf import FILE_NAME
from pgtop_tune.host.kernel_text import link_of
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.process.mount_namespace import MountNamespace, namespace_of

_BINDS_ANY_PORT: Final = 1 << 10
"""CAP_NET_BIND_SERVICE (capabilities(7), include/uapi/linux/capability.h)."""
_ACL: Final = "system.posix_acl_access"
_ENTER, _MAKE, _READ = 0o1, 0o3, 0o4
_NOT_HERE: Final = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL})
_EVERY: Final = {"*": None, "0.0.0.0": "0.0.0.0", "::": "::"}
_LISTENING: Final = frozenset({"listen_addresses", "port"})
_DENIED: Final = os.strerror(errno.EACCES)


class _EncryptedKey(Exception):
    """A private key that takes a passphrase."""


class ServerAccount(Struct, frozen=True, kw_only=True):
    """The account of a postmaster, with its rights.

    Attributes:
        uid: Its effective user.
        groups: Its effective group and the supplementary ones.
        capabilities: The effective set.
        namespace: Its mounts.
        has_our_network: Whether its addresses are ours; also where that cannot be seen.
    """

    uid: int
    groups: frozenset[int]
    capabilities: int
    namespace: MountNamespace
    has_our_network: bool

    def fault(self, path: str, needed: int) -> str:
        """Return why it may not use an absolute path, "" where it may or that cannot be said.

        Args:
            path: Of a file or directory; one that is not there is judged by the directory that it would be made in.
            needed: Permission bits of the file itself.
        """
        real = None if self.uid == 0 else self.namespace.real_path(path)
        if real is None:
            return ""
        try:
            for directory in reversed(PurePosixPath(real).parents):
                if not self._has(str(directory), _ENTER):
                    return _DENIED
            if not self._has(real, needed):
                return _DENIED
            is_fixed = needed == _MAKE and self.namespace.statvfs(real).f_flag & os.ST_RDONLY
            return os.strerror(errno.EROFS) if is_fixed else ""
        except FileNotFoundError:
            return self.fault(os.path.dirname(real), _MAKE) if needed == _MAKE and real != "/" else ""
        except OSError:
            return ""

    def fault_of_key(self, path: str) -> str:
        """Return why it would not use a private key (be-secure-common.c, check_ssl_key_file_permissions)."""
        status = self._status(path)
        if status is None:
            return ""
        if status.st_uid not in (self.uid, 0):
            return "it must be owned by the server's account or root"
        is_open = status.st_mode & (0o077 if status.st_uid == self.uid else 0o037)
        return "it has group or world access" if is_open else ""

    def fault_of_pair(self, certificate: str, key: str, *, asks: bool) -> str:
        """Return why a private key is not the one of a certificate; "" where it is, or that cannot be said.

        Args:
            certificate: Its path.
            key: The key's.
            asks: Whether ssl_passphrase_command opens an encrypted one.
        """
        import ssl

        def no_passphrase() -> str:
            raise _EncryptedKey

        paths = [path for file in (certificate, key) if (path := self.namespace.real_path(file)) is not None]
        try:
            with ExitStack() as stack:
                opened = [stack.enter_context(self.namespace.open_file(path)) for path in paths]
                names = [f"/proc/self/fd/{file.fileno()}" for file in opened]
                if len(names) == len((certificate, key)):
                    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(names[0], names[1], no_passphrase)
        except _EncryptedKey:
            return "" if asks else "it is encrypted, and ssl_passphrase_command is empty"
        except ssl.SSLError as error:
            return "key values mismatch" if error.reason == "KEY_VALUES_MISMATCH" else ""
        except OSError:
            return ""
        return ""

    def fault_of_data(self, path: str) -> str:
        """Return why it would not use a data directory (miscinit.c, checkDataDir)."""
        status = self._status(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return ""
        if status.st_uid != self.uid:
            return "has wrong ownership: another account owns it"
        return f"has invalid permissions {stat.S_IMODE(status.st_mode):04o}" if status.st_mode & 0o027 else ""

    def _status(self, path: str) -> os.stat_result | None:
        real = self.namespace.real_path(path)
        with suppress(OSError):
            return None if real is None else self.namespace.stat(real)
        return None

    def _has(self, real_path: str, needed: int) -> bool:
        status = self.namespace.stat(real_path)
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid in self.groups else 0
        if status.st_mode >> shift & needed == needed:
            return True
        return _ACL in os.listxattr(f"{self.namespace.top or ''}{real_path}")


def account_of(pid: int, root: Path = Path("/")) -> ServerAccount | None:
    """Return the account of a postmaster from /proc/PID/status; None where it runs in a container of its own."""
    try:
        text = (root / f"proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        fields = {name: values.split() for name, _, values in (line.partition(":") for line in text.splitlines())}
        own_status = (root / "proc/self/status").read_text(encoding="ascii", errors="replace")
        own_depth = next((len(line.split()) - 1 for line in own_status.splitlines() if line.startswith("NSpid:")), 1)
        if len(fields.get("NSpid", [str(pid)])) > own_depth:
            return None
        return ServerAccount(
            uid=int(fields["Uid"][1]),
            groups=frozenset(map(int, (fields["Gid"][1], *fields["Groups"]))),
            capabilities=int(fields["CapEff"][0], 16),
            namespace=namespace_of(pid, root),
            has_our_network=link_of(root / f"proc/{pid}/ns/net") in ("", link_of(root / "proc/self/ns/net")),
        )
    except (OSError, KeyError, ValueError, IndexError):
        return None


def at_place(
    start: NextStart, server_place: ServerPlace, pid: int | Unavailable, touched: Collection[str]
) -> NextStart:
    """Return the next start of a server of this machine with what the machine says of it.

    Args:
        start: Its values.
        server_place: The place of the server.
        pid: Its postmaster, not as a file of its directory names it: that may be closed to us.
        touched: Parameters whose rules are going to be asked, in lower case.
    """
    account = account_of(pid) if server_place.program and not isinstance(pid, Unavailable) else None
    listening = not _LISTENING.isdisjoint(touched)
    return start if account is None else with_machine(start, account, listening=listening)


def with_machine(start: NextStart, account: ServerAccount, *, listening: bool = True) -> NextStart:
    """Return the next start with what its machine says of it.

    Args:
        start: Its values; with `data_directory`, and `config_file` where that is known.
        account: Account of the running server.
        listening: Whether its addresses are looked at as well.
    """
    group = start.text("unix_socket_group")
    return replace(
        start,
        has_group=_has_group(group) if group and not group.isdecimal() and account.namespace.top == "" else None,
        closed=_closed(start, account),
        cannot_listen=_cannot_listen(start, account) if listening and account.has_our_network else "",
    )


def _closed(start: NextStart, account: ServerAccount) -> dict[str, str]:
    data = start.text("data_directory")
    if not data.startswith("/"):
        return {}

    def readable(path: str) -> str:
        return account.fault(os.path.join(data, path), _READ)

    def usable_key(path: str) -> str:
        full, certificate = os.path.join(data, path), os.path.join(data, start.text("ssl_cert_file"))
        return (
            readable(path)
            or account.fault_of_key(full)
            or account.fault_of_pair(certificate, full, asks=start.text(PASSPHRASE) != "")
        )

    def writable(path: str) -> str:
        return account.fault(os.path.join(data, path), _MAKE)

    looks: dict[str, Callable[[str], str]] = {data: account.fault_of_data, f"{data}/{FILE_NAME}": readable}
    if start.is_on("ssl"):
        looks |= {start.text(name): usable_key if name == "ssl_key_file" else readable for name in TLS_FILES}
    if start.is_on("logging_collector"):
        looks[start.text("log_directory")] = writable
    looks |= dict.fromkeys(start.socket_directories(), writable)
    rules = start.rows.get("hba_file")
    if rules is not None and start.text("hba_file") != rules.running:
        looks[start.text("hba_file")] = readable
    looks[start.text("config_file")] = readable
    return {path: fault for path, look in looks.items() if path and (fault := look(path))}


def _cannot_listen(start: NextStart, account: ServerAccount) -> str:
    """Return why no address could be opened; the port that it has now is its own, so that any port stands for it."""
    addresses = elements("listen_addresses", start.text("listen_addresses"))
    if addresses is None:
        return 'invalid list syntax in parameter "listen_addresses"'
    port, row = start.text("port"), start.rows.get("port")
    number = 0 if row is None or port == row.running or not port.isdecimal() else int(port)
    if not addresses or (
        not _is_reserved(number, account) and any(_can_listen(address, number) for address in addresses)
    ):
        return ""
    return f"could not create any TCP/IP sockets at {', '.join(addresses)}, port {port}"


def _is_reserved(port: int, account: ServerAccount) -> bool:
    """Return whether a port surely is for root alone: ip(7), ip_unprivileged_port_start and CAP_NET_BIND_SERVICE."""
    try:
        first_free = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    except (OSError, ValueError):
        return False
    return 0 < port < first_free and account.uid != 0 and not account.capabilities & _BINDS_ANY_PORT


def _can_listen(address: str, port: int) -> bool:
    """Return whether a socket can be bound, which is closed at once and never listens."""
    try:
        ways = socket.getaddrinfo(_EVERY.get(address, address), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    for family, kind, _, _, address_of_way in ways:
        try:
            with socket.socket(family, kind) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address_of_way)
        except OSError as error:
            if error.errno in _NOT_HERE:
                continue
        return True
    return False


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True
