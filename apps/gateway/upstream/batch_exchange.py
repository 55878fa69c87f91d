"""Batch exchange: a request is handed over to a provider's batch API, and its answer taken up when that has come.

A request passes the pipeline twice. The first time, `BatchHandover` takes what its first candidate would be sent and
ends the run without a record. The second time, `BatchAnswer` gives the answer to the same candidate, at the batch
API's prices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

from apps.billing.pricing import at_share
from apps.catalog.offers import Offer
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Event
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.client.http_request import BatchExchange
from apps.gateway.failures import UpstreamFailure
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.ranking import Ranking
from apps.gateway.upstream.http_response import Timeouts
from apps.gateway.upstream.open_exchange import OpenExchange, ProviderRequest, open_exchange, refusal_of
from apps.kernel.errors import ClientGone, InvalidRequest

# The requests that each batch API takes, by the path below the provider's address.
_TAKEN: Final = {
    "openai": re.compile("/chat/completions|/responses"),
    "anthropic": re.compile("/messages"),
    "google": re.compile("/models/[^/:?]{1,70}:generateContent"),
    "mistral": re.compile("/chat/completions"),
    "bedrock": re.compile("/model/[^/?]{1,80}/converse"),
}
# Fields that Bedrock's batches take: tools and structured outputs are not among them
# (docs.aws.amazon.com/bedrock/latest/userguide/batch-inference.html, read 2026-11-29).
_BEDROCK_FIELDS: Final = frozenset(
    {"messages", "system", "inferenceConfig", "additionalModelRequestFields", "additionalModelResponseFieldPaths"}
)
_PREVIEWS: Final = "anthropic-beta"


class BatchTerms(msgspec.Struct, frozen=True):
    """A provider's batch API: its format, its share of the usual prices, of that of cached tokens if another, and the
    end of the names of deployments that answer batches."""

    format: Literal["openai", "anthropic", "google", "mistral", "bedrock"]
    price_share: Decimal
    cached_share: Decimal | None = None
    deployment_suffix: str = ""


class JobPlace(msgspec.Struct, frozen=True):
    """Where Bedrock keeps a job's lines and answers: a folder in a bucket (`s3://…`), the role that reads and writes
    there, and addresses other than AWS's. Empty in other formats."""

    storage: str = ""
    role: str = ""
    api_url: str = ""
    storage_url: str = ""


NO_PLACE: Final = JobPlace()


class HandedOver(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the provider's batch API is to get it.

    `credential` is the name of what it is paid with, `is_own_key` tells that this is an organization's own key's id;
    `path` is below the provider's address.
    """

    format: str
    price_share: Decimal
    cached_share: Decimal | None = None
    provider_id: str
    mapping: str
    model_name: str
    dialect: str
    credential: str
    is_own_key: bool
    discount: Decimal
    path: str
    body: bytes
    place: JobPlace = NO_PLACE


class BatchHandover:
    """Takes over what the first candidate would be sent, where its provider has a batch API that takes it."""

    is_settled = False

    def __init__(self, switch: ClientDisconnect) -> None:
        """`switch` ends the run, which leaves no record then."""
        self.taken: HandedOver | None = None
        self._switch = switch

    def direct(self, ranking: Ranking, chat: Chat) -> Ranking:
        """Return the ranking, its first candidate to be asked through this where it has a batch API."""
        first, *rest = ranking.candidates
        is_plain = not chat.stream and chat.answers == 1 and chat.embedding is None
        if not is_plain or ranking.probe or find_terms(first.offer) is None or first.credential.base_url:
            return ranking
        return msgspec.structs.replace(ranking, candidates=(replace(first, exchange=self), *rest))

    def open(
        self,
        candidate: Candidate,
        request: ProviderRequest,
        timeouts: Timeouts,
        client_disconnect: ClientDisconnect,
        **options: Any,
    ) -> Generator[Event, None, OpenExchange]:
        """Take the request, and end the run; what the batch API does not take is exchanged as usual.

        Raises ClientGone, and what `open_exchange` raises.
        """
        taken = self._take(candidate, request)
        if taken is None:
            return (yield from open_exchange(candidate, request, timeouts, client_disconnect, **options))
        self.taken = taken
        self._switch.is_abandoned = True
        raise ClientGone("The request was handed over to the provider's batch API")

    def _take(self, candidate: Candidate, request: ProviderRequest) -> HandedOver | None:
        terms, path = find_terms(candidate.offer), request.url_for("")
        previews = request.dialect.headers(request.chat, request.target)
        if (
            terms is None
            or not _TAKEN[terms.format].fullmatch(path)
            or any(name.lower() == _PREVIEWS for name in previews)
            or (terms.format == "bedrock" and not _is_for_storage(candidate, request.body))
        ):
            return None
        return HandedOver(
            format=terms.format,
            price_share=terms.price_share,
            cached_share=terms.cached_share,
            provider_id=candidate.provider_id,
            mapping=candidate.mapping,
            model_name=candidate.model_name,
            dialect=request.dialect.name,
            credential=candidate.credential.name,
            is_own_key=candidate.credential.own is not None,
            discount=candidate.discount,
            path=path,
            body=_to_deployment(request.body, candidate.model_name + terms.deployment_suffix)
            if terms.deployment_suffix
            else request.body,
            place=find_place(candidate.offer),
        )


def _is_for_storage(candidate: Candidate, body: bytes) -> bool:
    """Return whether Bedrock's batches take a request: only the operator's access keys reach the bucket."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return ":" in (candidate.credential.service_secret or "") and fields.keys() <= _BEDROCK_FIELDS


def _to_deployment(body: bytes, deployment: str) -> bytes:
    """Return a request's body with another model's name; all else stays as it is."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return msgspec.json.encode(fields | {"model": msgspec.Raw(msgspec.json.encode(deployment))})


class BatchAnswer:
    """Gives what a provider's batch API answered to the candidate that was asked, at the prices it has there."""

    is_settled = True

    def __init__(self, handed_over: HandedOver, status: int, body: bytes) -> None:
        self._asked, self._status, self._body = handed_over, status, body

    def direct(self, ranking: Ranking, _: Chat) -> Ranking:
        """Return a ranking of that candidate alone. Raises InvalidRequest where the caller may not use it any more."""
        asked = self._asked
        for one in ranking.candidates:
            if (one.mapping, one.credential.name, one.model_name) == (
                asked.mapping,
                asked.credential,
                asked.model_name,
            ):
                offer = replace(one.offer, prices=at_share(one.offer.prices, asked.price_share, asked.cached_share))
                answering = replace(one, offer=offer, batch_share=asked.price_share, exchange=self)
                return msgspec.structs.replace(ranking, candidates=(answering,), probe=False)
        raise InvalidRequest("The provider that answered may no longer be used", code="model_not_found", param="model")

    def open(
        self, candidate: Candidate, request: ProviderRequest, *_: Any, **__: Any
    ) -> Generator[Event, None, OpenExchange]:
        """Return the answer. Raises UpstreamFailure for a refusal."""
        yield from ()
        response = KeptResponse(self._status, self._body)
        if 200 <= self._status < 300:
            return OpenExchange(response, "", {}, "")
        raise refusal_of(request.dialect, response)


def exchange_of(exchange: BatchExchange) -> BatchHandover | BatchAnswer:
    """Return the exchange of a line or a candidate as one of the two kinds. Raises TypeError for anything else."""
    if isinstance(exchange, BatchHandover | BatchAnswer):
        return exchange
    raise TypeError(f"{type(exchange).__name__} is no batch exchange")


class KeptResponse:
    """A provider's answer that is here already."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.headers, self.bytes_received = status, dict[str, str](), len(body)
        self._body = body

    def read(self, limit: int, report_size: Callable[[int], object] | None = None) -> bytes:
        """Return the body. Raises UpstreamFailure where it is longer than `limit` bytes."""
        if len(self._body) > limit:
            raise UpstreamFailure("network", f"the answer is longer than {limit} bytes")
        return self._body

    def iterate_body(self) -> Iterator[bytes]:
        """Yield the body."""
        yield self._body

    def close(self) -> None:
        """Do nothing: there is no connection."""


def find_terms(offer: Offer) -> BatchTerms | None:
    """Return the terms of the batch API that an offer can be asked through, None where there is none."""
    stated = offer.facts.get("batch")
    return None if not stated else msgspec.convert(stated, BatchTerms, strict=False)


def find_place(offer: Offer) -> JobPlace:
    """Return where the jobs of an offer's batch API are kept, an empty place where the catalog states none."""
    return msgspec.convert(offer.facts.get("batch") or {}, JobPlace)
