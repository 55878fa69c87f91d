"""Rows of a batch's lines, encrypted and decrypted, and the request of a line in the form of a client's HTTP request.

It goes through its endpoint and the pipeline as any other request of its API key. Requests of batches have a rate of
their own (`batch`), so that they take none from interactive requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from apps.batches.input_lines import LineRequest
from apps.batches.models import Batch, BatchLine
from apps.gateway.access.policy import token_of_key
from apps.gateway.client.client_disconnect import CancelSwitch, ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.kernel.rest.routes import Route, route_table
from apps.kernel.secrets.encryption import decrypt_bytes, encrypt_bytes


class LineResult(msgspec.Struct, frozen=True):
    """The result of a line: an HTTP status, and the JSON of the body."""

    status: int
    body: msgspec.Raw


def line_id(row: Batch, position: int) -> str:
    """Return the id of a line as clients and the log see it, the same for every process."""
    return f"batch_req_{row.pk.partition('_')[2]}_{position}"


def encrypt_request(row: Batch, position: int, request: LineRequest) -> str:
    """Return what a line asks as its column has it."""
    return encrypt_bytes(msgspec.json.encode(request), row.project_id, _place(row.pk, position, "request"))


def request_of(line: BatchLine) -> LineRequest:
    """Return what a line asks. Raises UnreadableSecretError."""
    project_id = line.batch.project_id
    data = decrypt_bytes(line.sealed_request, project_id, _place(line.batch_id, line.position, "request"))
    return msgspec.json.decode(data, type=LineRequest)


def encrypt_result(line: BatchLine, result: LineResult) -> str:
    """Return what a line was answered as its column has it."""
    place = _place(line.batch_id, line.position, "result")
    return encrypt_bytes(msgspec.json.encode(result), line.batch.project_id, place)


def result_of(line: BatchLine) -> LineResult | None:
    """Return what a line was answered, None where it never was. Raises UnreadableSecretError."""
    if not line.sealed_result:
        return None
    place = _place(line.batch_id, line.position, "result")
    return msgspec.json.decode(decrypt_bytes(line.sealed_result, line.batch.project_id, place), type=LineResult)


def encrypt_refusal(row: Batch, result: LineResult) -> str:
    """Return what all unpaid lines of a batch are answered as its column has it."""
    return encrypt_bytes(msgspec.json.encode(result), row.project_id, f"batch:{row.pk}:refusal")


def refusal_of(row: Batch) -> LineResult:
    """Return what all unpaid lines of a batch are answered. Raises UnreadableSecretError."""
    data = decrypt_bytes(row.sealed_refusal, row.project_id, f"batch:{row.pk}:refusal")
    return msgspec.json.decode(data, type=LineResult)


def _place(batch_id: str, position: int, column: str) -> str:
    return f"batch:{batch_id}:{position}:{column}"


# The family of routes that lines are counted with for rate limits.
RATE_FAMILY: Final = "batch"
# Endpoints with JSON bodies and answers that OpenAI's API allows in batches; those with a route here are allowed.
_BATCHED: Final = ("chat/completions", "responses", "completions", "embeddings", "moderations", "images/generations")
MESSAGES: Final = "/v1/messages"


class LineCall(ClientRequest):
    """A request that a worker makes to itself for a line. Raises KeyError for an endpoint that is no more."""

    def __init__(self, line: BatchLine, headers: dict[str, str], body: bytes, switch: CancelSwitch) -> None:
        """Take a line's headers and body; `switch` cancels the call."""
        batch = line.batch
        sent = {
            **headers,
            "x-request-id": line_id(batch, line.position),
            # So that the log finds them together.
            "x-gateway-batch-id": batch.pk,
        }
        environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in sent.items()}
        environ |= {"REQUEST_METHOD": "POST", "PATH_INFO": batch.endpoint, "CONTENT_TYPE": "application/json"}
        environ["CONTENT_LENGTH"] = str(len(body))
        super().__init__(environ, replace(_route_of(batch.endpoint), rate_family=RATE_FAMILY))
        self.log_id = line.log_id
        # Whether it was let in: from then on it has a record, however it ends.
        self.is_admitted = False
        self._body, self._switch, self._key = body, switch, token_of_key(batch.api_key_id)

    @property
    def presented_key(self) -> str:
        """The token that stands for the batch's API key in this process."""
        return self._key

    def body(self) -> bytes:
        """Return the body."""
        return self._body

    def watch_disconnect(self) -> ClientDisconnect:
        """Return the switch that ends the call; the pipeline asks for it once a request has been admitted."""
        self.is_admitted = True
        return self._switch


def batch_endpoints() -> list[str]:
    """Return the endpoints that a batch in OpenAI's format may be for."""
    paths = [f"/v1/{name}" for name in _BATCHED]
    return [path for path in paths if ("POST", path) in route_table().exact]


def _route_of(path: str) -> Route:
    return route_table().exact["POST", path]
