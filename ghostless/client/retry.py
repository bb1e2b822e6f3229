"""Retries, as gRPC's own retry policy: the channel retries by itself, in C, for both clients alike."""

from dataclasses import dataclass
from typing import Any

from ghostless.contract.errors import ConfigError
from ghostless.v1 import prediction_pb2 as pb

_SERVICE = pb.DESCRIPTOR.services_by_name["PredictionService"].full_name
# gRPC makes no more attempts than this, whatever a policy asks for.
_MOST_ATTEMPTS = 5
_MOST_TOKENS = 1000


@dataclass(frozen=True)
class RetryPolicy:
    """When the channel repeats a call that failed with UNAVAILABLE or RESOURCE_EXHAUSTED.

    Retry i = 0, 1.. waits min(max_backoff_s, initial_backoff_s multiplier^i), give or take 20% of jitter. If the server
    names a wait of its own (`grpc-retry-pushback-ms`), that one is waited instead; a negative one forbids the retry.

    Throttling keeps retries from adding load to servers that are down: all clients of a process with the same addresses
    share `throttle_tokens`. A failure takes one, a success returns `throttle_ratio` of one, and there are no retries
    while half of them or fewer are left.
    """

    max_attempts: int = 4
    """The first attempt included, at most 5; 1: no retries."""
    initial_backoff_s: float = 0.01
    multiplier: float = 2.0
    max_backoff_s: float = 1.0
    throttle_tokens: int = 100
    throttle_ratio: float = 0.1

    def __post_init__(self) -> None:
        # gRPC would accept the channel and then fail every call.
        if not 1 <= self.max_attempts <= _MOST_ATTEMPTS:
            raise ConfigError(f"max_attempts is {self.max_attempts}; gRPC allows 1 to {_MOST_ATTEMPTS}")
        if not 1 <= self.throttle_tokens <= _MOST_TOKENS:
            raise ConfigError(f"throttle_tokens is {self.throttle_tokens}; gRPC allows 1 to {_MOST_TOKENS}")
        for name in ("initial_backoff_s", "multiplier", "max_backoff_s", "throttle_ratio"):
            # Durations and the ratio are written with three decimals or more.
            if not getattr(self, name) >= 0.001:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least 0.001")


def retry_config(policy: RetryPolicy) -> dict[str, Any]:
    """The policy as the part of a gRPC service config that says so; empty for one attempt."""
    if policy.max_attempts == 1:
        return {}
    return {
        "methodConfig": [
            {
                "name": [{"service": _SERVICE}],
                "retryPolicy": {
                    "maxAttempts": policy.max_attempts,
                    "initialBackoff": f"{policy.initial_backoff_s:.6f}s",
                    "maxBackoff": f"{policy.max_backoff_s:.6f}s",
                    "backoffMultiplier": policy.multiplier,
                    "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
                },
            }
        ],
        "retryThrottling": {"maxTokens": policy.throttle_tokens, "tokenRatio": policy.throttle_ratio},
    }
