"""Handlers for gRPC's two Python servers: raw bytes in the messages.

python -m benchmarks.peers.grpc_handlers {sync,aio} PORT
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from benchmarks.peers.raw_model import served_model

OPTIONS = [("grpc.so_reuseport", 1), ("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
_THREADS = 2


class AnyMethod(grpc.GenericRpcHandler):
    def __init__(self, behaviour: Any) -> None:
        self._handler: Any = grpc.unary_unary_rpc_method_handler(behaviour)

    def service(self, handler_call_details: Any) -> Any:
        return self._handler


def serve(port: int) -> None:
    model = served_model()
    handler = AnyMethod(lambda message, context: model.answer(message))
    server = grpc.server(ThreadPoolExecutor(_THREADS), handlers=[handler], options=OPTIONS)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


async def serve_aio(port: int) -> None:
    model = served_model()

    async def answer(message: bytes, context: object) -> bytes:
        return model.answer(message)

    server = grpc.aio.server(handlers=[AnyMethod(answer)], options=OPTIONS)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "aio":
        import uvloop

        uvloop.install()
        asyncio.run(serve_aio(port))
    else:
        serve(port)
