"""Removes the working directory from the import path: it may contain other folders called serving/ or export/."""

import os
import sys

_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def ignore_working_folder() -> None:
    """Undo what `python -m` does, and `python -c`, which multiprocessing uses: both put the working directory first on
    the path. A checkout that is not installed can still be imported from its own folder."""
    working_folder = os.getcwd()
    if os.path.realpath(working_folder) == os.path.realpath(_PACKAGES):
        return
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", working_folder):
        del sys.path[0]
    os.environ["PYTHONSAFEPATH"] = "1"
