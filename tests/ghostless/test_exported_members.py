"""The public surface is there on purpose: `__all__` names it, completely and in order."""

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest


@pytest.mark.parametrize("name", ["ghostless", "ghostless.client", "ghostless.heads"])
def test_every_public_name_is_exported(name: str) -> None:
    module = importlib.import_module(name)
    for member in module.__all__:
        assert getattr(module, member) is not None
    ours = {
        member for member, value in vars(module).items() if getattr(value, "__module__", "").startswith("ghostless")
    }
    public = {
        member for member in ours if not member.startswith("_") and not isinstance(vars(module)[member], ModuleType)
    }
    assert public <= set(module.__all__)
    assert module.__all__ == sorted(module.__all__)


def test_the_contract_exports_its_modules() -> None:
    contract = importlib.import_module("ghostless.contract")
    assert contract.__all__ == sorted(module.name for module in pkgutil.iter_modules(contract.__path__))


def test_importing_ghostless_loads_no_grpc() -> None:
    """The server's supervisor imports it, and forks."""
    program = "import ghostless, sys; print({'grpc', 'numpy', 'google.protobuf'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\n"
