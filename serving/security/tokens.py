"""Bearer tokens: made at random, stored as hashes, compared in constant time.

    glt_3f9a1c20_kW1...43 characters

The eight digits in the middle name the token, so that it can be found, rotated and withdrawn without its secret. The
secret has 256 random bits: nobody can guess it, so one round of SHA-256 hides it as well as a slow hash would.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

_PREFIX = "glt_"
_ID_AT = slice(len(_PREFIX), len(_PREFIX) + 8)

OwnerT = TypeVar("OwnerT")


@dataclass(frozen=True)
class StoredToken(Generic[OwnerT]):
    """`expires` in seconds since the epoch."""

    id: str
    digest: bytes
    expires: float
    owner: OwnerT


def new_token() -> tuple[str, str, str]:
    """A token, its id, and the SHA-256 to store (hex)."""
    key_id = secrets.token_hex(4)
    token = f"{_PREFIX}{key_id}_{secrets.token_urlsafe(32)}"
    return token, key_id, hash_token(token).hex()


def hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class TokenTable(Generic[OwnerT]):
    def __init__(self, tokens: Iterable[StoredToken[OwnerT]]) -> None:
        self._by_id: dict[str, StoredToken[OwnerT]] = {token.id: token for token in tokens}
        # What an unknown id is compared with, so that it takes as long as a wrong secret. No token has this hash.
        self._nobody = secrets.token_bytes(32)

    def find(self, token: str) -> StoredToken[OwnerT] | None:
        """The one that `token` is; None for an unknown id and for a wrong secret, after the same work."""
        stored = self._by_id.get(token[_ID_AT])
        digest = self._nobody if stored is None else stored.digest
        is_equal = hmac.compare_digest(hash_token(token), digest)
        return stored if is_equal else None
