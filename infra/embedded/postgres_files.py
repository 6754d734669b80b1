"""The files of an embedded PostgreSQL: configuration, who may connect, and what its pid file says."""

from collections.abc import Mapping
from pathlib import Path

# Line 8 of postmaster.pid (PM_STATUS_READY in pidfile.h).
_STATUS_LINE = 7

HBA = """\
# Written by Turnlog at every start. Passwords everywhere: other users of this machine can reach a loopback port.
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
"""

_SETTINGS: dict[str, str] = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "password_encryption": "scram-sha-256",
    # The promise is that what was answered is on disk.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # Short statements over few rows: compiling them costs more than running them.
    "jit": "off",
    # What people wrote must not reach a log: neither the text of a failed statement nor the row of a broken constraint.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length_on_error": "0",
    "log_statement": "none",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "timezone": "UTC",
    "lc_messages": "C",
}


def configuration(*, port: int, sockets: Path, further: Mapping[str, str]) -> str:
    """The text of the file that postgresql.conf includes last; `further` wins over our choices."""
    ours = {**_SETTINGS, "port": str(port), "unix_socket_directories": str(sockets)}
    lines = ["# Written by Turnlog at every start."]
    for name, value in {**ours, **further}.items():
        quoted = value.replace("'", "''")
        lines.append(f"{name} = '{quoted}'")
    return "\n".join(lines) + "\n"


def is_ready(data: Path, pid: int) -> bool:
    """Whether the server with this pid says that it accepts connections."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) > _STATUS_LINE and lines[0].strip() == str(pid) and lines[_STATUS_LINE].strip() == "ready"


def foreign_server(data: Path) -> int | None:
    """The pid of a server that serves this data without having our lock (someone used pg_ctl), else None.

    A pid alone proves nothing: after a crash another process may have it, in a container it usually does.
    """
    try:
        pid = int((data / "postmaster.pid").read_text().split(maxsplit=1)[0])
        directory = Path(f"/proc/{pid}/cwd").resolve(strict=True)
    except (OSError, ValueError, IndexError):
        return None
    return pid if directory == data.resolve() else None


def remove_stale(data: Path, sockets: Path) -> None:
    """Remove what a killed server left. Only for the holder of the lock, after `foreign_server` said None.

    PostgreSQL would refuse to start over a pid file whose pid now belongs to another process of the same account.
    """
    (data / "postmaster.pid").unlink(missing_ok=True)
    for leftover in sockets.glob(".s.PGSQL.*"):
        leftover.unlink(missing_ok=True)
