"""What the rounds of a comparison ask of each server and see in its answers."""

import os
from pathlib import Path

from ghostless.v1 import prediction_pb2 as pb
from loadtest.compare.batch_counts import BatchCounter
from loadtest.compare.cores import split_cores
from loadtest.compare.findings import Measured
from loadtest.compare.rounds import Rounds, Settings
from loadtest.compare.servers import RunningVariant
from loadtest.compare.variants import Variant
from tests.support.scripted_servicers import EditingServicer, serving

SETTINGS = Settings(candidates=16, rounds=1, round_s=0.4, round_turns=2)
NO_METRICS = BatchCounter("http://127.0.0.1:1/metrics", ("rows", "runs"))


def _not_finite(response: pb.PredictResponse) -> None:
    response.quantiles.values[0] = float("nan")


def test_wrong_answers_are_found_and_end_no_comparison() -> None:
    variant = Variant("cr", "vbll", Path(), "")
    measured = Measured(variant.name, variant.title, variant.head, variant.kind)
    with serving(EditingServicer(_not_finite)) as address:
        server = RunningVariant(variant, address, (os.getpid(),), NO_METRICS)
        rounds = Rounds(SETTINGS, split_cores(), {variant.name: measured}, [server], lambda _: None)
        rounds.saturate()
        rounds.curves()
        rounds.search()
    assert measured.check_failures["non-finite numbers"] > 0
    assert measured.saturated_per_s == [0.0]
    assert measured.rate_at_objective == 0.0
