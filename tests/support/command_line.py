"""Runs `ghostless` in this process, through the entry point of the installed script."""

import sys
from collections.abc import Sequence

import pytest

from ghostless.commands.main import main


class Ghostless:
    """`before` and `after` are added before and after the arguments of every call."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        before: Sequence[object] = (),
        after: Sequence[object] = (),
    ) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self._before, self._after = before, after

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Exit status, stdout and stderr."""
        words = (*self._before, *arguments, *self._after)
        self._monkeypatch.setattr(sys, "argv", ["ghostless", *map(str, words)])
        self._monkeypatch.setenv("COLUMNS", "200")
        status = 0  # the command returned without exiting
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        printed = self._capsys.readouterr()
        return status, printed.out, printed.err
