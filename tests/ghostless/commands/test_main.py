import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ghostless import __version__
from ghostless.commands.loadtest import COMMANDS as LOADTEST_COMMANDS
from ghostless.commands.main import COMMANDS, Command, main, run
from learning.errors import DataError
from tests.support.command_line import Ghostless

ROOT = Path(__file__).parents[3]


def test_help_names_every_command_and_imports_no_package() -> None:
    program = (
        "import sys; sys.argv = ['ghostless', '--help']\n"
        "from ghostless.commands.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "loaded = {'torch', 'onnxruntime', 'learning', 'export', 'serving'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for command in COMMANDS:
        assert command.name in done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help(ghostless: Ghostless, command: Command) -> None:
    status, out, err = ghostless(command.name, "--help")
    assert status == 0, err
    assert "Usage:" in out


def test_a_users_error_is_one_line_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise DataError("views.csv: column 'user_id' is missing")

    with pytest.raises(SystemExit) as ended:
        run(fails)
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: views.csv: column 'user_id' is missing\n"


def test_a_programming_error_keeps_its_traceback() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(fails)


def test_a_missing_extra_is_named() -> None:
    absent = Command("train", "no_such_package.cli:train", "Train.", "train")
    expected = r"needs ghostless-server with the extra 'train'.*pip install 'ghostless-server\[train\]'"
    with pytest.raises(SystemExit, match=expected):
        absent.load()


def test_a_command_of_the_checkout_says_so() -> None:
    absent = Command("evaluate", "no_such_package.cli:evaluate", "Judge.", in_checkout=True)
    with pytest.raises(SystemExit, match=r"is not part of ghostless-server.*make install.*checkout of the source"):
        absent.load()


def test_a_module_of_ours_that_is_not_there_keeps_its_traceback() -> None:
    with pytest.raises(ModuleNotFoundError):
        Command("serve", "serving.no_such_module:serve", "Serve.", "serve").load()


def test_every_extra_is_one_of_the_server() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for command in (*COMMANDS, *LOADTEST_COMMANDS):
        assert set(filter(None, command.extra.split(","))) <= set(extras)


def test_the_version(ghostless: Ghostless) -> None:
    assert ghostless("--version")[1] == f"ghostless {__version__}\n"
    assert "--version" in ghostless("--help")[1]


@pytest.fixture
def only_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if neither typer nor rich were installed."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.usefixtures("only_the_client")
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--version"], None, f"ghostless {__version__}"),
        ([], 0, "pip install 'ghostless-server[serve]'"),
        (["--help"], 0, "pip install 'ghostless-server[train]'"),
        (["serve", "--port", "1"], 1, "`ghostless serve` needs ghostless-server with the extra 'serve'"),
        (["predict"], 1, "`ghostless predict` needs ghostless-server: pip install ghostless-server"),
        (
            ["bench", "serve"],
            1,
            "`ghostless bench` is not part of ghostless-server: `make install` in a checkout of the source",
        ),
        (["trian"], 2, "no such command or option: trian"),
    ],
)
def test_with_only_the_client_it_says_what_to_install(
    words: list[str],
    status: int | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["ghostless", *words])
    ended: int | str | None = None
    try:
        main()
    except SystemExit as end:
        ended = end.code
    assert ended == status
    written = capsys.readouterr()
    assert said in (written.err if status else written.out)


def test_an_unknown_command_is_refused() -> None:
    command = [sys.executable, "-m", "ghostless", "trian"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "No such command" in done.stderr
