"""Real Triton servers for tests. Without `make triton`, the tests that need one are skipped with a message."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from export import triton_config
from export.triton_config import TritonOptions
from ghostless.contract import repository
from ghostless.contract.errors import ConfigError
from serving.config import ServeConfig
from serving.engines.embedded import load_model
from serving.engines.triton import TritonEngine
from serving.engines.triton.local_server import INSTALL_COMMAND, TritonServer, find_binary
from serving.server import triton_engine
from tests.support.running import Running, serving

OPTIONS = TritonOptions(cpu_instances=1, warm_up_rows=(1,))


def require_triton() -> None:
    try:
        find_binary()
    except ConfigError:
        pytest.skip(f"there is no tritonserver here; `{INSTALL_COMMAND}` installs it")


def add_triton_files(root: Path, options: TritonOptions = OPTIONS) -> None:
    """Write the files that an export writes for Triton, for every version in the repository."""
    for entry in repository.scan(root).values():
        for version in entry.versions:
            model = load_model(entry.model_file(version), entry.name, version, warm_up_rows=())
            triton_config.stage(entry.path / str(version))
            triton_config.write(entry.path, version, model.metadata, model.outputs, options)


@contextlib.contextmanager
def tritons(root: Path, count: int = 1) -> Iterator[list[TritonServer]]:
    """Servers for the repository at `root`, once they are ready."""
    require_triton()
    servers = [TritonServer(root, root.parent / f"triton-{root.name}-{index}.log") for index in range(count)]
    with contextlib.ExitStack() as stack:
        for server in servers:
            server.start()
            stack.callback(server.kill)
        for server in servers:
            server.wait_ready()
        yield servers


@contextlib.contextmanager
def engine_on(servers: list[TritonServer], **settings: object) -> Iterator[TritonEngine]:
    """A started engine that uses these servers, once it is ready."""
    addresses = ",".join(server.address for server in servers)
    config = ServeConfig.model_validate({"engine": "triton", "triton": addresses, "poll_s": 0.2, **settings})
    engine = triton_engine(config)
    try:
        assert engine.wait_ready(20), "no Triton became ready"
        yield engine
    finally:
        engine.stop()


@contextlib.contextmanager
def serving_triton(root: Path, **settings: object) -> Iterator[Running]:
    """Serve the repository at `root` with a facade and a real Triton."""
    add_triton_files(root)
    with tritons(root) as servers, engine_on(servers, **settings) as engine, serving(engine, **settings) as running:
        running.root = root
        yield running
