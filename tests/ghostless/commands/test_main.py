import subprocess
import sys

import pytest

from ghostless.commands.main import COMMANDS, Command, run
from learning.errors import DataError
from tests.support.command_line import Ghostless


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
    absent = Command("train", "no_such_package.cli:train", "Train.", "learning")
    with pytest.raises(SystemExit, match=r"needs the 'learning' extra.*pip install 'ghostless\[learning\]'"):
        absent.load()


def test_an_unknown_command_is_refused() -> None:
    command = [sys.executable, "-m", "ghostless", "trian"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "No such command" in done.stderr
