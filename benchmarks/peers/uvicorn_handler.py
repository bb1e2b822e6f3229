"""A handler for uvicorn: raw bytes over HTTP/1.1. It runs the model inline, because a thread would only add to its
cost."""

from typing import Any

from benchmarks.peers.raw_model import served_model

MODEL = served_model()


async def app(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        event = await receive()
        body += event["body"]
        more = event["more_body"]
    answer = MODEL.answer(body)
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
