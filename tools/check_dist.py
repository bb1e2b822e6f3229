"""`make check-dist`: install the wheels of `make dist` in new environments outside the checkout, and use them there."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
CLIENT_ONLY = {"ghostless", "grpcio", "numpy", "protobuf", "typing-extensions"}
APPLICATIONS = ("serving", "export", "learning", "loadtest", "research", "benchmarks")
NAMESAKES = ("serving", "export", "cli")
OURS_MB, ALL_MB = 2.0, 100.0
READY_TIMEOUT_S = 120.0

DESCRIBE = """
import importlib.metadata, importlib.util, json
sizes = {}
for found in importlib.metadata.distributions():
    files = [found.locate_file(file) for file in found.files or []]
    name = found.metadata["Name"].lower().replace("_", "-")
    sizes[name] = [found.version, sum(file.stat().st_size for file in files if file.is_file())]
from ghostless import Client
print(json.dumps({"sizes": sizes, "specs": [name for name in APPLICATIONS if importlib.util.find_spec(name)]}))
"""
PREDICT = """
import sys
from ghostless import Client
with Client(sys.argv[1]) as client:
    answer = client.predict(
        context={"user_id": 7, "hour": 12.0}, candidates={"item_id": [1, 2], "duration": [8.0, 15.0]}
    )
assert answer.rows == 2 and answer.mean is not None and answer.mean.shape == (2,), answer
print("mean", answer.mean.tolist())
"""


class Environment:
    """A virtual environment with the wheels installed; nothing of this checkout is on its path."""

    def __init__(self, folder: Path, *requirements: str) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / "bin"
        self.run("pip", "install", "--quiet", "--disable-pip-version-check", *requirements)

    def run(self, *command: str, status: int = 0) -> str:
        done = subprocess.run(
            [self.bin / command[0], *command[1:]],
            cwd=self.bin.parent,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        written = done.stdout + done.stderr
        require(done.returncode == status, f"{command[:3]} ended with {done.returncode}, not {status}:\n{written}")
        require("Traceback" not in written, f"{command[:3]} shows a traceback:\n{written}")
        return written if status else done.stdout


def clean_environment() -> dict[str, str]:
    dropped = ("PYTHONPATH", "PYTHONSAFEPATH", "VIRTUAL_ENV", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in dropped}


def require(holds: bool, complaint: str) -> None:
    if not holds:
        raise SystemExit(f"check-dist: {complaint}")


def check_client(client: Environment) -> None:
    program = DESCRIBE.replace("APPLICATIONS", repr(APPLICATIONS))
    described = json.loads(client.run("python", "-c", program))
    sizes = {name: size for name, size in described["sizes"].items() if name not in ("pip", "setuptools")}
    require(set(sizes) == CLIENT_ONLY, f"the client installs {sorted(sizes)}, expected {sorted(CLIENT_ONLY)}")
    require(not described["specs"], f"with only the client installed, {described['specs']} can be imported")
    megabytes = {name: size / 1e6 for name, (_, size) in sizes.items()}
    for name, (version, _) in sorted(sizes.items()):
        print(f"  {name} {version}: {megabytes[name]:.2f} MB")
    print(f"  all: {sum(megabytes.values()):.1f} MB")
    require(megabytes["ghostless"] <= OURS_MB, f"ghostless has {megabytes['ghostless']:.2f} MB, over {OURS_MB}")
    require(sum(megabytes.values()) <= ALL_MB, f"all packages have {sum(megabytes.values()):.1f} MB, over {ALL_MB}")
    require(client.run("ghostless", "--version").startswith("ghostless "), "`ghostless --version` prints no version")
    require("ghostless-server[train]" in client.run("ghostless"), "the list of commands does not name the extras")
    refused = client.run("ghostless", "serve", status=1).strip()
    require("pip install 'ghostless-server[serve]'" in refused, f"`ghostless serve` says {refused!r}")
    print(f"  {refused}")


@contextmanager
def serving(command: list[str | Path], folder: Path, repository: Path) -> Iterator[str]:
    """The address of a server that runs in `folder`."""
    flags = ["serve", "--repository", str(repository), "--host", "127.0.0.1", "--port", "0", "--workers", "2"]
    process = subprocess.Popen(
        [*command, *flags],
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    # Ends the loop below if the server hangs.
    signal.signal(signal.SIGALRM, lambda *_: process.kill())
    signal.setitimer(signal.ITIMER_REAL, READY_TIMEOUT_S)
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("ready:"):
                break
        else:
            raise SystemExit(f"check-dist: {command} did not start in {folder}:\n{''.join(lines)}")
        signal.setitimer(signal.ITIMER_REAL, 0)
        yield line.split(" on ")[1].split(",")[0].strip()
    finally:
        process.terminate()
        process.communicate()
    require(process.returncode == 0, f"the server ended with status {process.returncode}")


def lowest_requirements() -> list[str]:
    """The lower bounds of the client's dependencies."""
    project = tomllib.loads((ROOT / "packaging" / "client" / "pyproject.toml").read_text())["project"]
    lowest = []
    for requirement in map(Requirement, project["dependencies"]):
        bounds = [specifier.version for specifier in requirement.specifier if specifier.operator == ">="]
        lowest.append(f"{requirement.name}=={bounds[0]}")
    return lowest


def newest_wheel(name: str) -> Path:
    wheels = sorted(DIST.glob(f"{name}-*.whl"), key=lambda wheel: wheel.stat().st_mtime)
    require(bool(wheels), f"no wheel of {name} in {DIST}; run `make dist`")
    return wheels[-1]


def main() -> None:
    client_wheel, server_wheel = newest_wheel("ghostless"), newest_wheel("ghostless_server")
    sys.path.insert(0, str(ROOT))
    from tests.support.onnx_models import write_version

    with tempfile.TemporaryDirectory(prefix="check-dist-") as name:
        folder = Path(name)
        work = folder / "work"
        for namesake in NAMESAKES:
            (work / namesake).mkdir(parents=True)
            (work / namesake / "__init__.py").write_text("raise RuntimeError(f'{__file__} was imported')\n")
        write_version(folder / "models", 1)

        print(f"client, newest dependencies: {client_wheel.name}")
        client = Environment(folder / "client", str(client_wheel))
        check_client(client)
        lowest = lowest_requirements()
        print(f"client, lowest dependencies: {', '.join(lowest)}")
        oldest = Environment(folder / "oldest", str(client_wheel), *lowest)

        print(f"server: {server_wheel.name}[serve]")
        constraints = ("--constraint", str(ROOT / "constraints.txt"))
        server = Environment(folder / "server", *constraints, str(client_wheel), f"{server_wheel}[serve]")
        require("torch" not in server.run("pip", "list"), "the extra serve installs torch")
        commands: tuple[list[str | Path], ...] = (
            [server.bin / "ghostless"],
            [server.bin / "python", "-m", "ghostless"],
        )
        for command in commands:
            with serving(command, work, folder / "models") as address:
                for caller, label in ((client, "newest"), (oldest, "lowest")):
                    answer = caller.run("python", "-W", "error", "-c", PREDICT, address).strip()
                    shown = " ".join(Path(word).name for word in command)
                    print(f"  {shown} serve --workers 2, client with {label} dependencies: {answer}")
    print("check-dist: passed")


if __name__ == "__main__":
    main()
