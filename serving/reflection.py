"""Server reflection under both names: grpc.reflection.v1, which current tools try first, and v1alpha.

grpcio-reflection only serves v1alpha. The two differ only in their package name, so v1 uses the same servicer and the
same messages.
"""

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection, reflection_pb2

V1 = "grpc.reflection.v1.ServerReflection"
V1ALPHA: str = reflection.SERVICE_NAME


def add_reflection(services: Iterable[str], registrar: Any) -> None:
    """Serve reflection of `services` and of itself. `registrar` has the methods of grpc.Server that register
    handlers."""
    pool = descriptor_pool.Default()  # type: ignore[no-untyped-call]
    pool.AddSerializedFile(_v1_file().SerializeToString())
    names = (*services, V1, V1ALPHA)
    reflection.enable_server_reflection(names, registrar, pool)
    handler = grpc.stream_stream_rpc_method_handler(
        reflection.ReflectionServicer(names, pool).ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    registrar.add_registered_method_handlers(V1, {"ServerReflectionInfo": handler})


def _v1_file() -> descriptor_pb2.FileDescriptorProto:
    """The file descriptor of v1: that of v1alpha with the package renamed."""
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    return text_format.Parse(text_format.MessageToString(file).replace("v1alpha", "v1"), type(file)())
