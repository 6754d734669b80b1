"""Why an embedded server does not run; each is one line that says what to do.

TurnlogError
└── EmbeddedError
    ├── BinariesMissing        the wheel, or the directory named instead, has no such program
    ├── UnreachablePlace       the account the servers run under cannot get at the data or the binaries
    ├── DataMismatch           the data directory belongs to another major version
    ├── ServerAlreadyRunning   somebody else serves this data directory
    └── ServerFailed           it exited, or was not ready in time
"""

from domain.errors import TurnlogError


class EmbeddedError(TurnlogError):
    """Root of this package's errors."""

    code = "embedded"


class BinariesMissing(EmbeddedError):
    code = "embedded_binaries_missing"
    sentence = "There is no {program} in {place}: {remedy}."


class UnreachablePlace(EmbeddedError):
    code = "embedded_unreachable"
    sentence = "{place} cannot be used by the account (uid {uid}) that the embedded servers run under: {remedy}."


class DataMismatch(EmbeddedError):
    code = "embedded_data_mismatch"
    sentence = (
        "{place} was made by PostgreSQL {found}, but the binaries are {wanted}: choose that version, or another --data."
    )


class ServerAlreadyRunning(EmbeddedError):
    code = "embedded_already_running"
    sentence = "{place} is already being served (process {pid}): stop that one first, or choose another --data."


class ServerFailed(EmbeddedError):
    code = "embedded_failed"
    sentence = "{program} did not start: {reason} (its log: {log})."
