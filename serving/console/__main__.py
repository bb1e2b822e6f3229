"""The console's process. Its argument is a ConsoleSettings as JSON; it exits when the process that started it does."""

import os
import signal
import sys
import threading
import time

from serving import logs
from serving.console.http_server import HttpServer
from serving.console.settings import console_socket, read_settings

_LOOK_EVERY_S = 0.5


def main() -> None:
    parent = os.getppid()
    # A terminal sends SIGINT to the whole group; the process that owns the port decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = read_settings(sys.argv[1])
    logs.set_up(settings.log_level, settings.log_format, "console")
    from serving.console.application import application

    router = application(settings)
    server = HttpServer(console_socket(settings.directory), router.answer, settings.max_body_bytes)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    server.serve_forever()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    os._exit(0)


if __name__ == "__main__":
    main()
