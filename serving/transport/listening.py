"""The port: bound once, by the only process or by the one that shares connections out among workers."""

import socket

from ghostless.contract.errors import ConfigError

BACKLOG = 1024


def bound(host: str, port: int) -> socket.socket:
    """A socket that holds the port, and does not listen yet; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"can't listen on {host}:{port}: {error}; choose another with --port") from error
    return listener
