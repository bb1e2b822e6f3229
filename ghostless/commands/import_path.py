"""Keep the working folder off the import path: it may hold folders called serving/ or export/ of its own."""

import os
import sys

_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def ignore_working_folder() -> None:
    """`python -m` puts the working folder first on the path, and so does `python -c`, which is how multiprocessing
    starts processes. An uninstalled checkout stays importable from its own folder."""
    working_folder = os.getcwd()
    if os.path.realpath(working_folder) == os.path.realpath(_PACKAGES):
        return
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", working_folder):
        del sys.path[0]
    os.environ["PYTHONSAFEPATH"] = "1"
