import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = Path("ghostless") / "v1"


def test_the_generated_code_is_current(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed: make install")
    outputs = [f"--{kind}={tmp_path}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    source = str(PACKAGE / "prediction.proto")
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I", "protos", *outputs, source], cwd=ROOT, check=True)
    made = sorted((tmp_path / PACKAGE).iterdir())
    assert [file.name for file in made] == ["prediction_pb2.py", "prediction_pb2.pyi", "prediction_pb2_grpc.py"]
    for file in made:
        assert file.read_text() == (ROOT / PACKAGE / file.name).read_text(), f"{file.name} is stale: make protos"
