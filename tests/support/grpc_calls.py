"""Typed calls through gRPC's own client: neither grpc's stubs nor the generated code have message types."""

import grpc

from ghostless.v1 import prediction_pb2_grpc as pb_grpc


def raw_method(channel: grpc.Channel, path: str) -> "grpc.UnaryUnaryMultiCallable[bytes, bytes]":
    """A method whose request and response are bytes."""
    method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
    return method


def stub_on(channel: grpc.Channel) -> pb_grpc.PredictionServiceStub:
    return pb_grpc.PredictionServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
