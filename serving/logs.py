"""Log messages of the server's processes, as text or as one JSON object per line, each with its process."""

import json
import logging
import multiprocessing
from datetime import UTC, datetime
from typing import Any

WORKER_NAME = "worker-{}"
_TEXT = "%(asctime)s %(levelname)s %(processName)s %(process)d %(name)s: %(message)s"


def set_up(level: str, log_format: str, process_name: str) -> None:
    """`log_format`: text or json. `process_name` is this process's; forked workers have their own (WORKER_NAME)."""
    multiprocessing.current_process().name = process_name
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(log_format == "json")


def worker_number(process_name: str | None = None) -> int:
    """Of this process; 0 if it is the only one."""
    name = multiprocessing.current_process().name if process_name is None else process_name
    number = name.removeprefix(WORKER_NAME.format(""))
    return int(number) if number.isdecimal() else 0


class JsonFormatter(logging.Formatter):
    """`process` is supervisor, server (the only process) or worker-N."""

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": record.processName,
            "pid": record.process,
            "worker": worker_number(record.processName),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content)
