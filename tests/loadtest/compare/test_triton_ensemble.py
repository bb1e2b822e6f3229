"""Triton's own ensemble on a real Triton, against the same networks fused into one graph."""

import os
from pathlib import Path

import numpy as np

from ghostless.client import Client
from loadtest.compare import triton_ensemble
from loadtest.compare.servers import running_variant
from loadtest.compare.variants import Variant
from loadtest.workload import find_model
from tests.support.tritons import require_triton


def test_it_answers_as_the_fused_graph_does(variants: list[Variant], folder: Path, tmp_path: Path) -> None:
    require_triton()
    added = triton_ensemble.add(variants, folder, instances=1)
    ensemble = next(variant for variant in added if variant.kind == "triton-ensemble")
    fused = next(variant for variant in variants if variant.kind == "ensemble")
    model = find_model(fused.repository, fused.model)
    rows = model.rows(50, seed=2)
    cores = frozenset(os.sched_getaffinity(0))
    with running_variant(ensemble, "triton", cores, tmp_path) as running, Client(running.address) as client:
        answer = client.predict(**rows.arguments(ensemble.model))
        assert len(running.pids) == 2
    expected = model.infer(rows)
    for name, values in (
        ("mean", answer.mean),
        ("quantiles", answer.quantiles),
        ("bins", answer.bins),
        ("aleatoric", answer.aleatoric),
        ("epistemic", answer.epistemic),
        ("categorical_epistemic", answer.categorical_epistemic),
    ):
        assert values is not None
        np.testing.assert_allclose(values, expected[name], rtol=1e-3, atol=2e-5, err_msg=name)
