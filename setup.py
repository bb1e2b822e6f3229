"""Version and dependencies of `ghostless-server`: it requires the client of the same version."""

import re
from pathlib import Path

from setuptools import setup

source = Path(__file__).with_name("ghostless").joinpath("__init__.py").read_text()
found = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
if found is None:
    raise SystemExit('ghostless/__init__.py has no line __version__ = "..."')
version = found[1]

# Without any extra, `ghostless predict` and `ghostless outcomes` work.
setup(
    version=version,
    install_requires=[f"ghostless=={version}", "numpy>=2,<3", "pyarrow>=20", "rich>=13", "typer>=0.15"],
)
