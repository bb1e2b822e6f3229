"""The compared ways to estimate uncertainty, each as a model with its own server."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HeadName = Literal["qr", "cr"]
VariantKind = Literal[
    "deterministic", "vbll", "ensemble", "five-call", "triton-ensemble", "mc-dropout-fixed", "mc-dropout"
]
TITLES: dict[VariantKind, str] = {
    "deterministic": "deterministic",
    "vbll": "VBLL",
    "ensemble": "5x ensemble, fused",
    "five-call": "5x ensemble, five calls",
    "triton-ensemble": "5x ensemble, Triton's own",
    # 25 masks, drawn once and shared by all rows: the cheapest form, but then it is just 25 fixed subnetworks.
    "mc-dropout-fixed": "25 fixed masks",
    # As published, and as in `learning`: separate masks for every row and pass.
    "mc-dropout": "MC-dropout, S = 25",
}


@dataclass(frozen=True)
class Variant:
    """`model` is the name that requests use. The variant has its own `repository`, so that a server loads nothing else.
    `members` are the repository's models if `model` is an ensemble of calls rather than a model."""

    head: HeadName
    kind: VariantKind
    repository: Path
    model: str
    members: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.head}-{self.kind}"

    @property
    def title(self) -> str:
        return f"{self.head.upper()} {TITLES[self.kind]}"
