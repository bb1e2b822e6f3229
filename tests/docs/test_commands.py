"""Every command shown in the documentation exists, with the options shown."""

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ghostless.commands.main import COMMANDS, root_app

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
NAMES = "|".join(command.name for command in COMMANDS)
# `ghostless serve --gRPC` in a drawing is an arrow.
OPTION = re.compile(r"--[a-z][a-z0-9-]*[a-z0-9]")


@functools.cache
def help_of(*words: str) -> str:
    shown = CliRunner().invoke(root_app(list(words)), [*words, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0, f"ghostless {' '.join(words)}: {shown.output}"
    return shown.output


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command after `ghostless`; a line that ends with a backslash goes on."""
    for line in re.findall(rf"ghostless ((?:{NAMES})\b[^`\n]*)", text.replace("\\\n", " ")):
        try:
            yield shlex.split(line, comments=True)
        except ValueError:  # a quoted text that goes on in the next line
            yield line.split()


def sub_command(words: list[str]) -> tuple[str, ...]:
    """The words that name the command: one, or two if the first has commands of its own."""
    if words[0] == "evaluate":  # followed by a run or a command
        return tuple(words[:2]) if words[1:2] and words[1] in ("table", "ablation", "ghost") else ("evaluate",)
    listed = re.findall(r"^  ([a-z]+)  ", help_of(words[0]).partition("Commands:")[2], re.MULTILINE)
    if not listed or len(words) == 1 or not re.fullmatch("[a-z]+", words[1]):
        return (words[0],)
    assert words[1] in listed, f"no command `ghostless {words[0]} {words[1]}`"
    return (words[0], words[1])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_the_page_exist_with_their_options(page: Path) -> None:
    for words in commands(page.read_text()):
        text = help_of(*sub_command(words))
        for option in filter(OPTION.fullmatch, (word.partition("=")[0] for word in words[1:])):
            assert re.search(rf"{option}(?![a-z0-9-])", text), f"ghostless {' '.join(words)} has no {option}"


def test_a_wrong_option_or_command_is_found() -> None:
    (words,) = commands("`ghostless models list --adress HOST`")
    assert "--adress" not in help_of(*sub_command(words))
    with pytest.raises(AssertionError, match="no command"):
        sub_command(["models", "prune"])
