"""GHOSTLESS_* variables in the environment that are not settings of the server: named in its log, then ignored."""

import logging
import os
import re
from collections.abc import Mapping

from serving.config import ENV_PREFIX, ServeConfig
from serving.config_sources import is_invalid_port

_log = logging.getLogger(__name__)

# Set for other purposes: the folder of real data, what clients read, and the variables that Kubernetes sets for a
# Service.
_FOREIGN = re.compile(r"GHOSTLESS_(DATA|CLIENT_\w+|(\w+_)?SERVICE_(HOST|PORT\w*)|(\w+_)?PORT(_\d+_(TCP|UDP|SCTP)\w*)?)")


def log_ignored_variables(environment: Mapping[str, str] = os.environ) -> None:
    """Log the GHOSTLESS_* variables that are ignored; a warning for those that may be a misspelt setting."""
    settings = {ENV_PREFIX + name.upper(): name for name in ServeConfig.model_fields}
    ours = sorted(name for name in environment if name.startswith(ENV_PREFIX))
    for name in ours:
        if name in settings and is_invalid_port(settings[name], environment[name]):
            _log.warning("%s=%s in the environment is ignored: a port must be a number", name, environment[name])
    unknown = [name for name in ours if name not in settings]
    foreign = [name for name in unknown if _FOREIGN.fullmatch(name)]
    if foreign:
        _log.debug("environment variables that are not settings of the server are ignored: %s", ", ".join(foreign))
    misspelt = [name for name in unknown if name not in foreign]
    if misspelt:
        _log.warning(
            "environment variables ignored, no such setting: %s; `ghostless serve --help` lists the settings",
            ", ".join(misspelt),
        )
