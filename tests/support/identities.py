"""Identities files for tests."""

from pathlib import Path

from serving.security.tokens import new_token


class IdentitiesWriter:
    """Writes the file at `path`; `tokens` are those that it made, by identity."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokens: dict[str, str] = {}
        self._parts: list[str] = []

    def add(self, name: str, *lines: str, expires: str = "") -> str:
        """An identity with these lines and one token, which is returned."""
        token, key_id, digest = new_token()
        self.tokens[name] = token
        self._parts += [f"[{name}]", *lines, f"[[{name}.tokens]]", f'id = "{key_id}"', f'sha256 = "{digest}"']
        if expires:
            self._parts.append(f"expires = {expires}")
        self.write()
        return token

    def remove_all(self) -> None:
        self._parts.clear()
        self.write()

    def write(self) -> None:
        draft = self.path.with_suffix(".new")
        draft.write_text("\n".join(self._parts) + "\n")
        draft.chmod(0o600)
        draft.replace(self.path)


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """The metadata that carries it."""
    return (("authorization", f"Bearer {token}"),)
