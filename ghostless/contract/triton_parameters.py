"""The `ghostless.*` metadata in the `parameters` of a Triton model config, so that a facade can read it from Triton.

A config belongs to a model, but metadata belongs to one version of it, hence keys such as "3/ghostless.head". The
config also contains the version in service once `ghostless models promote --triton` has set it; all facades use it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ghostless.contract.metadata import PREFIX, ModelMetadata

IN_SERVICE = PREFIX + "in_service"


def version_key(version: int, key: str) -> str:
    return f"{version}/{key}"


def fill(parameters: Any, version: int, properties: Mapping[str, str]) -> None:
    """Add one version's metadata to ModelConfig.parameters."""
    for key, text in sorted(properties.items()):
        parameters[version_key(version, key)].string_value = text


def properties_by_version(parameters: Any) -> dict[int, dict[str, str]]:
    """The `ghostless.*` metadata of each version, from ModelConfig.parameters; other parameters are ignored."""
    found: dict[int, dict[str, str]] = {}
    for key, value in parameters.items():
        version, slash, name = key.partition("/")
        if slash and version.isdecimal() and name.startswith(PREFIX):
            found.setdefault(int(version), {})[name] = value.string_value
    return found


def in_service(parameters: Any) -> int:
    """The version in service; 0 if it was never set."""
    text = parameters[IN_SERVICE].string_value if IN_SERVICE in parameters else ""
    return int(text) if text.isdecimal() else 0


def have_same_tensors(one: ModelMetadata, other: ModelMetadata) -> bool:
    """Whether two versions can share one Triton config, which fixes the names, types and widths of a model's
    tensors."""

    def tensors(described: ModelMetadata) -> tuple[Iterable[tuple[str, str]], Mapping[str, int]]:
        return sorted((f.name, f.type) for f in described.features), described.widths()

    return tensors(one) == tensors(other)
