"""The ways to be uncertain that are compared, each as a model that a server of its own can serve."""

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
    # 25 masks, drawn once and shared by all rows: as cheap as it gets, but then it is 25 fixed subnetworks.
    "mc-dropout-fixed": "25 fixed masks",
    # As published, and as `learning` has it: masks of its own for every row and pass.
    "mc-dropout": "MC-dropout, S = 25",
}


@dataclass(frozen=True)
class Variant:
    """`model` as a request names it, in a `repository` of its own, so that a server holds this variant and no other.
    `members` are the repository's models where `model` is an ensemble of calls and not a model itself."""

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
