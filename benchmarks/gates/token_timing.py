"""Checks that the time of a refusal does not reveal whether the id of a wrong token exists."""

import time

import grpc
import numpy as np
from scipy import stats

from benchmarks.gates.gates_bench import GatesBench, identity
from ghostless.client.calls import predict_call
from serving.security.tokens import new_token

_PREDICT = "/ghostless.v1.PredictionService/Predict"
_KNOWN = 50
# Number of tokens of each kind. They are used in turn, so that no single token can decide the result.
_TOKENS = 20


def measure_token_timing(bench: GatesBench) -> None:
    calls = bench.plan.timing_calls
    bench.say(f"refusals of unknown and of wrong tokens, {calls} interleaved calls each")
    parts, tokens = zip(*(identity(f"known-{index}", 'calls = ["predict"]') for index in range(_KNOWN)), strict=True)
    file = bench.write_identities("timing.toml", "".join(parts))
    unknown = [new_token()[0] for _ in range(_TOKENS)]
    # The id of an existing token with the secret of another one.
    wrong = [tokens[index][:13] + new_token()[0][13:] for index in range(_TOKENS)]
    request = predict_call(bench.model.rows(1, seed=0).arguments(bench.model.name)).request
    rng = np.random.default_rng(0)
    took: tuple[list[float], list[float]] = ([], [])
    with (
        bench.server("--identities", str(file), "--workers", "1") as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        predict: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_PREDICT)
        for number in range(-200, calls):
            for kind in rng.permutation(2).tolist():
                token = (unknown, wrong)[kind][number % _TOKENS]
                began = time.perf_counter_ns()
                code = _refusal(predict, request, token)
                elapsed = time.perf_counter_ns() - began
                if code is not grpc.StatusCode.UNAUTHENTICATED:
                    raise AssertionError(f"a token that is not valid ended with {code}")
                if number >= 0:
                    took[kind].append(elapsed / 1000)
    p_value = float(stats.mannwhitneyu(*took).pvalue)
    apart_us = abs(float(np.median(took[0]) - np.median(took[1])))
    bench.say(f"  median {np.median(took[0]):.1f} us unknown, {np.median(took[1]):.1f} us wrong; p = {p_value:.3g}")
    # One of the two is enough: with enough calls any difference is significant, and 2 us can't be seen over a network.
    figure = "unknown against wrong tokens: median difference in us (0 where Mann-Whitney p > 0.001)"
    bench.figures.add(figure, 0.0 if p_value > 0.001 else apart_us, "< 2")


def _refusal(predict: "grpc.UnaryUnaryMultiCallable[bytes, bytes]", request: bytes, token: str) -> grpc.StatusCode:
    try:
        predict(request, timeout=10.0, metadata=(("authorization", f"Bearer {token}"),))
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK
