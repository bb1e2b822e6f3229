"""Reflection as tools use it: under both names, and enough to describe every service and message."""

from collections.abc import Iterator

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection_pb2 as pb

from serving.engines.batcher import BatchLimits
from serving.reflection import V1, V1ALPHA
from tests.support.running import FakeEngine, Running, serving


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(FakeEngine(BatchLimits(16, 64, 1))) as server:
        yield server


def ask(running: Running, service: str, request: pb.ServerReflectionRequest) -> pb.ServerReflectionResponse:
    method = running.channel.stream_stream(
        f"/{service}/ServerReflectionInfo",
        request_serializer=pb.ServerReflectionRequest.SerializeToString,
        response_deserializer=pb.ServerReflectionResponse.FromString,
    )
    answer: pb.ServerReflectionResponse = next(iter(method(iter([request]), timeout=10)))
    return answer


@pytest.mark.parametrize("service", [V1, V1ALPHA])
def test_every_listed_service_can_be_described(running: Running, service: str) -> None:
    listed = ask(running, service, pb.ServerReflectionRequest(list_services=""))
    names = {each.name for each in listed.list_services_response.service}
    assert {"ghostless.v1.PredictionService", "inference.GRPCInferenceService", V1, V1ALPHA} <= names
    for name in names:
        described = ask(running, service, pb.ServerReflectionRequest(file_containing_symbol=name))
        pool = descriptor_pool.DescriptorPool()
        # Dependencies come after what needs them.
        for file in reversed(described.file_descriptor_response.file_descriptor_proto):
            pool.AddSerializedFile(file)  # type: ignore[no-untyped-call]
        assert pool.FindServiceByName(name).methods  # type: ignore[no-untyped-call]


def test_v1_describes_itself_in_its_own_package(running: Running) -> None:
    answer = ask(running, V1, pb.ServerReflectionRequest(file_containing_symbol=V1))
    (serialized,) = answer.file_descriptor_response.file_descriptor_proto
    assert b"v1alpha" not in serialized
    file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
    assert [message.name for message in file.message_type] == list(pb.DESCRIPTOR.message_types_by_name)


def test_another_name_is_not_served(running: Running) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        ask(running, "grpc.reflection.v2.ServerReflection", pb.ServerReflectionRequest(list_services=""))
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
