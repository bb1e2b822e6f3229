"""Rules of this code base that no linter checks: `python tools/house_rules.py` lists violations and fails.

- No code outside tests imports a private module or name of another package, or names one in a getattr. (basedpyright,
  which `make lint` also runs, finds private attributes of instances, but not imports.)
- In serving/ a file has at most 300 lines and a function at most 60.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("benchmarks", "examples", "export", "ghostless", "learning", "loadtest", "research", "serving", "tools")
GENERATED = "ghostless/v1/"
MEASURED = "serving"
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60
_BY_NAME = ("getattr", "setattr", "hasattr", "delattr")


def broken_rules(root: Path) -> Iterator[str]:
    """Violations, as PATH:LINE: message."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if name.startswith(GENERATED) or "node_modules" in name:
                continue
            text = path.read_text()
            tree = ast.parse(text)
            for line, problem in _private_names(tree):
                yield f"{name}:{line}: {problem}"
            if package == MEASURED:
                for line, problem in _too_long(tree, text.count("\n")):
                    yield f"{name}:{line}: {problem}"


def _private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BY_NAME:
            named = node.args[1] if len(node.args) > 1 else None
            names = [named.value] if isinstance(named, ast.Constant) and isinstance(named.value, str) else []
        for name in names:
            if any(_is_private(part) for part in name.split(".")):
                yield getattr(node, "lineno", 0), f"{name} is private"


def _is_private(part: str) -> bool:
    return part.startswith("_") and not part.endswith("__")


def _too_long(tree: ast.Module, lines: int) -> Iterator[tuple[int, str]]:
    if lines > MAX_FILE_LINES:
        yield 1, f"{lines} lines; a file has at most {MAX_FILE_LINES}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield node.lineno, f"{node.name} has {length} lines; a function has at most {MAX_FUNCTION_LINES}"


if __name__ == "__main__":
    found = list(broken_rules(Path(__file__).resolve().parent.parent))
    print("\n".join(found))
    sys.exit(bool(found))
