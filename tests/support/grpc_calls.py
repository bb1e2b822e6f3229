"""Calls through gRPC's own client, typed: neither grpc's stubs nor the generated code say what they carry."""

import grpc

from ghostless.v1 import prediction_pb2_grpc as pb_grpc


def raw_method(channel: grpc.Channel, path: str) -> "grpc.UnaryUnaryMultiCallable[bytes, bytes]":
    """A method that takes and gives bytes."""
    method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
    return method


def stub_on(channel: grpc.Channel) -> pb_grpc.PredictionServiceStub:
    return pb_grpc.PredictionServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
