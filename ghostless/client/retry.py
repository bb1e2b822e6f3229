"""Retries with gRPC's own retry policy: the channel retries by itself, in C, for both clients."""

from dataclasses import dataclass
from typing import Any

from ghostless.contract.errors import ConfigError
from ghostless.v1 import prediction_pb2 as pb

_SERVICE = pb.DESCRIPTOR.services_by_name["PredictionService"].full_name
# gRPC's own limit; it never makes more attempts.
_MOST_ATTEMPTS = 5
_MOST_TOKENS = 1000


@dataclass(frozen=True)
class RetryPolicy:
    """When the channel retries a call that failed with UNAVAILABLE or RESOURCE_EXHAUSTED.

    Retry i = 0, 1, ... waits min(max_backoff_s, initial_backoff_s * multiplier^i), with 20% jitter. If the server
    sends its own delay (`grpc-retry-pushback-ms`), that is used instead; a negative one forbids the retry.

    Throttling keeps retries from adding load to servers that are down: all clients of a process with the same addresses
    share `throttle_tokens` tokens. A failure takes one token, a success returns `throttle_ratio` of one, and there are
    no retries while half of the tokens or fewer are left.
    """

    max_attempts: int = 4
    """Attempts including the first, at most 5; 1 means no retries."""
    initial_backoff_s: float = 0.01
    multiplier: float = 2.0
    max_backoff_s: float = 1.0
    throttle_tokens: int = 100
    throttle_ratio: float = 0.1

    def __post_init__(self) -> None:
        # Otherwise gRPC would accept the channel and then fail every call.
        if not 1 <= self.max_attempts <= _MOST_ATTEMPTS:
            raise ConfigError(f"max_attempts is {self.max_attempts}; gRPC allows 1 to {_MOST_ATTEMPTS}")
        if not 1 <= self.throttle_tokens <= _MOST_TOKENS:
            raise ConfigError(f"throttle_tokens is {self.throttle_tokens}; gRPC allows 1 to {_MOST_TOKENS}")
        for name in ("initial_backoff_s", "multiplier", "max_backoff_s", "throttle_ratio"):
            # Durations and the ratio have three decimals in gRPC's configuration.
            if not getattr(self, name) >= 0.001:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least 0.001")


def retry_config(policy: RetryPolicy) -> dict[str, Any]:
    """The policy as part of a gRPC service config; empty for a single attempt."""
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
