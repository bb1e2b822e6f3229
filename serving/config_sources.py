"""Where settings come from besides the command line: the environment and a TOML file."""

import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource

from ghostless.contract.errors import ConfigError

# Kubernetes sets GHOSTLESS_PORT=tcp://10.0.0.1:8500 in every pod if there is a Service called ghostless, and
# GHOSTLESS_METRICS_PORT if there is one called ghostless-metrics.
_PORTS = ("port", "metrics_port")


class EnvironmentSource(EnvSettingsSource):
    """GHOSTLESS_* variables, except ports that are not a number."""

    def __call__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__call__().items() if not is_invalid_port(name, value)}


class FileSource(PydanticBaseSettingsSource):
    """The TOML file named by --config; without a path it has no settings."""

    def __init__(self, settings_cls: type[BaseSettings], path: Path | str | None) -> None:
        super().__init__(settings_cls)
        self._path = path

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError("the file is read all at once, not field by field")

    def __call__(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            return tomllib.loads(Path(self._path).read_text())
        except (OSError, tomllib.TOMLDecodeError) as broken:
            raise ConfigError(f"config file {self._path}: {broken}") from broken


def is_invalid_port(name: str, value: Any) -> bool:
    """Whether the setting `name` is a port and `value` is not a number."""
    return name in _PORTS and re.fullmatch(r"[+-]?\d+", str(value).strip()) is None
