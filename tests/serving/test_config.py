from pathlib import Path

import pytest
from typer.testing import CliRunner

from ghostless.commands.main import COMMANDS, build
from ghostless.contract.errors import ConfigError
from serving.config import ServeConfig, load_config


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


def test_a_misspelt_environment_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GHOSTLESS_PROT", "1")
    with pytest.raises(ConfigError, match="GHOSTLESS_PROT"):
        load_config({})


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
