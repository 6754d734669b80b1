"""Binding a role's address, with an error that says what to do."""

import socket

from domain.errors import TurnlogError
from services.lifecycle import listen


class CannotListen(TurnlogError):
    """Another process has the port, or the address is not this machine's."""

    code = "cannot_listen"
    sentence = "Cannot listen on {host} port {port} ({reason}): set {variable} to another one."


def bound(host: str, port: int, variable: str, user_timeout: float = 30.0) -> socket.socket:
    """A listening socket (see `listen`). Raises CannotListen, which names the setting to change."""
    try:
        return listen(host, port, user_timeout)
    except OSError as error:
        raise CannotListen(host=host, port=port, reason=error.strerror or error, variable=variable) from error
