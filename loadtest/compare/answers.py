"""The uncertainty that each variant returns for the same requests: a fast variant must not lack it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ghostless.client import Client
from loadtest.compare.findings import Uncertainty
from loadtest.errors import GeneratorError
from loadtest.workload import Rows, ServedModel

_REQUESTS = 8
_TIMEOUT_S = 30.0
# Larger than any id in a vocabulary.
_UNKNOWN = 1_000_000_000


@dataclass(frozen=True)
class Questions:
    """The same candidates twice: with ids from the training data, and with unknown ids."""

    known: Sequence[Rows]
    unknown: Sequence[Rows]

    @classmethod
    def about(cls, model: ServedModel, candidates: int) -> "Questions":
        known = [model.rows(candidates, seed) for seed in range(_REQUESTS)]
        ids = {feature.name for feature in model.features if feature.vocabulary}
        return cls(known, [Rows(_strange(rows.context, ids), _strange(rows.candidates, ids)) for rows in known])


def _strange(columns: dict[str, Any], ids: set[str]) -> dict[str, Any]:
    return {name: values + _UNKNOWN if name in ids else values for name, values in columns.items()}


def ask_uncertainty(address: str, model: str, questions: Questions) -> Uncertainty:
    with Client(address, timeout_s=_TIMEOUT_S) as client:
        known, unknown = (_means(client, model, rows) for rows in (questions.known, questions.unknown))
    return Uncertainty(*known, *unknown)


def _means(client: Client, model: str, requests: Sequence[Rows]) -> tuple[float, float]:
    aleatoric, epistemic = [], []
    for rows in requests:
        answer = client.predict(**rows.arguments(model))
        if answer.aleatoric is None or answer.epistemic is None:
            raise GeneratorError(f"{model!r} returns no uncertainty, so it can't be compared")
        aleatoric.append(answer.aleatoric)
        epistemic.append(answer.epistemic)
    return float(np.mean(aleatoric)), float(np.mean(epistemic))
