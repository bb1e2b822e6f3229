"""The port or Unix socket: bound once, by the only process or by the supervisor."""

import os
import resource
import socket
import stat
from contextlib import suppress

from ghostless.contract.errors import ConfigError

BACKLOG = 1024
# Open files of a process in addition to its connections.
_OTHER_FILES = 512
_UNIX = "unix:"


def is_unix(host: str) -> bool:
    return host.startswith(_UNIX)


def shown(host: str, port: int) -> str:
    """The address in the form that gRPC clients accept."""
    return host if is_unix(host) else f"{host}:{port}"


def bound(host: str, port: int) -> socket.socket:
    """A socket that is bound to the port but does not listen yet; port 0 picks a free one. With `host` unix:PATH
    (gRPC's notation for Unix sockets) the port is ignored."""
    family = socket.AF_UNIX if is_unix(host) else socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        if family == socket.AF_UNIX:
            path = host.removeprefix(_UNIX).removeprefix("//")
            _remove_stale(path)
            listener.bind(path)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        flag = "--host" if is_unix(host) else "--port"
        raise ConfigError(f"can't listen on {shown(host, port)}: {error}; choose another with {flag}") from error
    return listener


def bound_port(listener: socket.socket) -> int:
    """The port of a listener; 0 for a Unix socket."""
    return 0 if listener.family == socket.AF_UNIX else int(listener.getsockname()[1])


def is_from(accepted: socket.socket, path: str) -> bool:
    """Whether a connection was accepted on the Unix socket at `path`."""
    return bool(path) and accepted.family == socket.AF_UNIX and accepted.getsockname() == path


def stop_listening(listener: socket.socket) -> None:
    """Close the listener in the process that bound it, and remove the file of a Unix socket. Does nothing if it is
    closed."""
    if listener.fileno() >= 0:
        if listener.family == socket.AF_UNIX:
            with suppress(FileNotFoundError):
                os.unlink(listener.getsockname())
        listener.close()


def allow_open_files(connections: int) -> None:
    """Raise the soft limit of open files, which is often 1024, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _remove_stale(path: str) -> None:
    """Remove the file that a killed server left behind, unless a server listens on it."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return  # binding fails
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
