from pathlib import Path

import pytest
from typer.testing import CliRunner

from ghostless import Client
from ghostless.commands.main import COMMANDS, build
from ghostless.contract.errors import ConfigError
from serving.config import ServeConfig, load_config
from serving.ignored_variables import log_ignored_variables
from tests.support.onnx_models import write_version
from tests.support.processes import served


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("port = 1001\nworkers = 2\nqueue_rows = 3\n")
    monkeypatch.setenv("GHOSTLESS_PORT", "1002")
    monkeypatch.setenv("GHOSTLESS_WORKERS", "4")
    config = load_config({"config": file, "port": 1003})
    assert (config.port, config.workers, config.queue_rows, config.max_rows) == (1003, 4, 3, 10_000)


def test_the_file_can_be_named_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("batch_window_ms = 1.5\n")
    monkeypatch.setenv("GHOSTLESS_CONFIG", str(file))
    assert load_config({}).batch_window_ms == 1.5


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prot = 1\n", "unknown setting 'prot'"),
        ("port = 70000\n", "port = 70000"),
        ("workers = -1\n", "workers = -1"),
        ("log_level = 'loud'\n", "log_level = 'loud'"),
        ("port =\n", "config file"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_config({"config": file})


KUBERNETES = {
    "GHOSTLESS_SERVICE_HOST": "10.0.0.1",
    "GHOSTLESS_SERVICE_PORT": "8500",
    "GHOSTLESS_SERVICE_PORT_GRPC": "8500",
    "GHOSTLESS_PORT": "tcp://10.0.0.1:8500",
    "GHOSTLESS_PORT_8500_TCP": "tcp://10.0.0.1:8500",
    "GHOSTLESS_PORT_8500_TCP_ADDR": "10.0.0.1",
    "GHOSTLESS_METRICS_PORT": "tcp://10.0.0.2:9500",
    "GHOSTLESS_METRICS_SERVICE_HOST": "10.0.0.2",
}


def test_what_kubernetes_sets_for_services_does_not_count(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in KUBERNETES.items():
        monkeypatch.setenv(name, value)
    config = load_config({})
    assert (config.port, config.metrics_port) == (8500, 9500)
    with caplog.at_level("DEBUG"):
        log_ignored_variables(KUBERNETES)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text.split(" ")[0] for text in warnings] == [
        "GHOSTLESS_METRICS_PORT=tcp://10.0.0.2:9500",
        "GHOSTLESS_PORT=tcp://10.0.0.1:8500",
    ]


def test_a_port_of_the_file_counts_where_that_of_the_environment_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("port = 1001\n")
    monkeypatch.setenv("GHOSTLESS_PORT", "tcp://10.0.0.1:8500")
    assert load_config({"config": file}).port == 1001


def test_a_port_out_of_range_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GHOSTLESS_PORT", "70000")
    with pytest.raises(ConfigError, match="port = '70000'"):
        load_config({})


def test_a_misspelt_environment_variable_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    strange = {"GHOSTLESS_PROT": "1", "GHOSTLESS_DATA": "/data", "GHOSTLESS_WORKRES": "2"}
    for name, value in strange.items():
        monkeypatch.setenv(name, value)
    assert load_config({}).port == 8500
    with caplog.at_level("INFO"):
        log_ignored_variables(strange)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "GHOSTLESS_PROT, GHOSTLESS_WORKRES;" in record.getMessage()


def test_a_server_starts_beside_a_kubernetes_service_of_its_name(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    # A free port: what GHOSTLESS_PORT gives does not count.
    (tmp_path / "serve.toml").write_text("port = 0\n")
    environment = {**KUBERNETES, "GHOSTLESS_CONFIG": str(tmp_path / "serve.toml")}
    with served(tmp_path, environment=environment, port=None) as server:
        assert "GHOSTLESS_PORT=tcp://10.0.0.1:8500 in the environment is ignored" in server.output
        with Client(server.address) as client:
            answer = client.predict(
                context={"user_id": 7, "hour": 12.0}, candidates={"item_id": [1, 2], "duration": [8.0, 15.0]}
            )
        assert answer.rows == 2
        assert server.stop() == 0


def test_slots_share_the_cores_among_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.config.available_cores", lambda: 8)
    assert (ServeConfig().worker_count, ServeConfig().slots_per_worker) == (8, 1)
    assert ServeConfig(workers=1).slots_per_worker == 8
    assert ServeConfig(workers=4).slots_per_worker == 2
    assert ServeConfig(workers=16).slots_per_worker == 1
    assert ServeConfig(workers=4, slots=3).slots_per_worker == 3


def test_help_documents_every_knob() -> None:
    help_text = CliRunner().invoke(build(COMMANDS, ["serve"], ""), ["serve", "--help"], terminal_width=200).output
    flat = " ".join(help_text.split())
    for name, field in ServeConfig.model_fields.items():
        assert f"--{name.replace('_', '-')}" in flat
        assert f"GHOSTLESS_{name.upper()}" in flat
        assert field.description is not None
        assert field.description in flat
