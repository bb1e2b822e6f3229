"""The example call that `ghostless serve` prints once it is ready."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from ghostless.contract.metadata import FeatureSpec
from serving.config import ServeConfig
from serving.engines.interface import Engine
from serving.transport.listening import is_unix

_ROWS = 3


def example_call(engine: Engine, config: ServeConfig, port: int) -> str:
    """A `ghostless predict` command for the default model, with typical values of each feature if the file has them."""
    models = {status.name: status.serving for status in engine.models() if status.serving is not None}
    default = engine.default_model()
    model = models.get(default) or next(iter(models.values()))
    request: dict[str, dict[str, Any]] = {"context": {}, "candidates": {}}
    for feature in model.metadata.features:
        if feature.role == "context":
            request["context"][feature.name] = _value(feature, 0)
        else:
            request["candidates"][feature.name] = [_value(feature, row) for row in range(_ROWS)]
    host = config.host
    is_default = not is_unix(host) and port == ServeConfig.model_fields["port"].default
    address = "" if is_default else f" --address {host if is_unix(host) else f'localhost:{port}'}"
    named = "" if default else f" --model {model.name}"
    return f"{_command()} predict{address}{_credentials(config)}{named} --request '{json.dumps(request)}'"


def _credentials(config: ServeConfig) -> str:
    """The flags of a client of this server; the names of files that only the client has are left to be filled in."""
    words = []
    if config.tls_paths is not None:
        words.append("--ca CA.pem")
        if config.tls_paths.requires_client:
            words.append("--cert CLIENT.pem --key CLIENT-key.pem")
    if config.identities is not None:
        words.append("--token-file TOKEN")
    return "".join(f" {word}" for word in words)


def _value(feature: FeatureSpec, row: int) -> int | float | str:
    if feature.examples:
        return feature.examples[row % len(feature.examples)]
    match feature.type:
        case "int64":
            return row + 1
        case "float32":
            return 10.0 * (row + 1)
        case "string":
            return str(row + 1)


def _command() -> str:
    """The command as this process was started: .venv/bin/ghostless in a checkout, ghostless if it is on the PATH."""
    started = Path(sys.argv[0])
    on_path = shutil.which("ghostless")
    if started.name != "ghostless" or (on_path and Path(on_path).resolve() == started.resolve()):
        return "ghostless"
    here = Path.cwd()
    return str(started.relative_to(here)) if started.is_relative_to(here) else str(started)
