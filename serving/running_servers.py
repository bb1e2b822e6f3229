"""For `ghostless models`: asks running servers which version of each model they serve, and why others failed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc

from ghostless.contract.errors import RepositoryError
from ghostless.v1 import prediction_pb2 as pb
from ghostless.v1 import prediction_pb2_grpc as pb_grpc

_TIMEOUT_S = 5.0
_POLL_S = 0.25


@dataclass(frozen=True)
class ServerAccess:
    """How servers are reached. `credentials` None: plain text. `server_name`: the name in their certificates, if it is
    not the host. `metadata`: the token, if they need one."""

    credentials: grpc.ChannelCredentials | None = None
    server_name: str = ""
    metadata: tuple[tuple[str, str], ...] = ()

    def channel(self, address: str) -> grpc.Channel:
        if self.credentials is None:
            return grpc.insecure_channel(address)
        options = [("grpc.ssl_target_name_override", self.server_name)] if self.server_name else []
        return grpc.secure_channel(address, self.credentials, options)


@dataclass(frozen=True)
class ServedVersion:
    """The version of one model that a server serves, 0 if none. `failed`: why versions failed to load."""

    version: int
    failed: dict[int, str] = field(default_factory=dict)


# The models of a server by name, or the reason why it could not be asked.
ServerAnswer = dict[str, ServedVersion] | str


def ask(address: str, access: ServerAccess) -> ServerAnswer:
    """The versions that a server serves; one of its workers answers."""
    with access.channel(address) as channel:
        stub = pb_grpc.PredictionServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
        try:
            listed: pb.ListModelsResponse = stub.ListModels(
                pb.ListModelsRequest(), timeout=_TIMEOUT_S, metadata=access.metadata
            )
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    return {model.name: _served(model) for model in listed.models}


def wait_until_served(
    addresses: Sequence[str],
    access: ServerAccess,
    name: str,
    version: int,
    wait_s: float,
    report: Callable[[str], None],
) -> None:
    """Wait until every server serves `version`. Raises RepositoryError if one reports that it can't, or after
    `wait_s`."""
    until = time.monotonic() + wait_s
    for address in addresses:
        while (why := _why_not(ask(address, access), name, version)) is not None:
            refused = why.startswith("version ")
            if refused or time.monotonic() > until:
                raise RepositoryError(f"{address} does not serve {name} version {version}: {why}")
            time.sleep(_POLL_S)
        report(address)


def _why_not(answer: ServerAnswer, name: str, version: int) -> str | None:
    if isinstance(answer, str):
        return answer
    served = answer.get(name)
    if served is None:
        return "it has no such model"
    if served.version == version:
        return None
    if version in served.failed:
        return f"version {served.version} stays in service: {served.failed[version]}"
    return f"it still serves version {served.version}"


def _served(model: pb.Model) -> ServedVersion:
    in_service = next((each.version for each in model.versions if each.in_service), 0)
    failed = {each.version: each.message for each in model.versions if each.state == pb.Model.FAILED}
    return ServedVersion(in_service, failed)
