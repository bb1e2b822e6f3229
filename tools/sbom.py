"""Write the SBOM of a distribution as CycloneDX JSON: sbom.py REQUIREMENT OUTPUT.

REQUIREMENT, for example 'ghostless-server[serve]', must be installed here. Its dependencies are followed with their
extras.
"""

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def write_sbom(requirement: str, output: Path) -> int:
    """Write the file; returns the number of components besides the distribution itself."""
    bom = Bom()
    known: dict[str, Component] = {}
    edges: dict[str, set[str]] = {}
    asked: set[tuple[str, str]] = set()
    pending = [Requirement(requirement)]
    root = canonicalize_name(pending[0].name)
    while pending:
        wanted = pending.pop()
        name = canonicalize_name(wanted.name)
        found = distribution(name)
        known.setdefault(name, _component(name, found))
        for extra in ("", *wanted.extras):
            if (name, extra) in asked:
                continue
            asked.add((name, extra))
            for needed in _requirements(found, extra):
                edges.setdefault(name, set()).add(canonicalize_name(needed.name))
                pending.append(needed)
    bom.metadata.component = known[root]
    for key, component in known.items():
        if key != root:
            bom.components.add(component)
        bom.register_dependency(component, [known[needed] for needed in edges.get(key, set()) - {key}])
    output.write_text(JsonV1Dot6(bom).output_as_string(indent=2) + "\n")
    return len(bom.components)


def _requirements(found: Distribution, extra: str) -> Iterator[Requirement]:
    for text in found.requires or []:
        needed = Requirement(text)
        if needed.marker is None:
            holds = extra == ""
        else:
            holds = needed.marker.evaluate({"extra": extra}) and (
                extra == "" or not needed.marker.evaluate({"extra": ""})
            )
        if holds:
            yield needed


def _component(name: str, found: Distribution) -> Component:
    # A local version, such as torch's +cpu, names a build, not a release.
    version = found.version.partition("+")[0]
    address = PackageURL("pypi", None, name, version)
    expression = found.metadata.json.get("license_expression")
    licenses = [LicenseFactory().make_with_expression(str(expression))] if expression else []
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        purl=address,
        bom_ref=str(address),
        licenses=licenses,
    )


if __name__ == "__main__":
    requirement, output = sys.argv[1:]
    print(f"{output}: {write_sbom(requirement, Path(output))} components")
