"""Provider's batch API over HTTP: JSON, uploads, and lines of results that are read as they come, within bounds.

Every call is made once, over a connection of its own, with the credential that the job was handed over with: only the
account that created a job can see it. Request bodies are never logged.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import msgspec
import structlog

from apps.batches.models import NativeJob
from apps.catalog import catalog_cache
from apps.catalog.offers import CatalogProvider
from apps.gateway.access.credentials import API_KEYS, CREDITS, Credential
from apps.gateway.access.policy import OwnCredential, find_policy, token_of_key
from apps.gateway.access.schemes import SignableRequest, authorize, collect_secrets, fill_base_url, service_secrets
from apps.gateway.access.schemes.aws_sigv4 import authorize_storage, region_of
from apps.gateway.failures import UpstreamFailure, error_type_for_status, retry_after_of
from apps.gateway.upstream import connection_pool
from apps.gateway.upstream.batch_exchange import NO_PLACE, JobPlace, find_place
from apps.gateway.upstream.http_response import Timeouts, UpstreamResponse, default_timeouts
from apps.kernel.errors import ApiError
from apps.kernel.postgres import database
from apps.kernel.secrets.encryption import UnreadableSecretError
from apps.keys.models import ProviderKey

log = structlog.get_logger(__name__)

# Timeout of one call in seconds: less than a job's lease, so that no other worker takes over during a call.
MAX_CALL_SECONDS: Final = 120.0
# Bytes of an answer that is not results, of a refusal's words, and of one line of results.
_ANSWER: Final = 4 * 1024 * 1024
_WORDS: Final = 300
_MAX_LINE_BYTES: Final = 40 * 1024 * 1024
# How the path of a stored object begins.
STORED: Final = "s3://"


class ProviderApi:
    """A provider's batch API, for one credential. A path that begins with `s3://` is that of a stored object."""

    def __init__(
        self,
        provider: CatalogProvider,
        credential: Credential,
        place: JobPlace = NO_PLACE,
        headers: Mapping[str, str] = {},
        beside: str = "",
    ) -> None:
        """`place` is where the job is kept; `headers` and `beside` belong to the format."""
        self.place = place
        self._provider, self._credential, self._headers, self._beside = provider, credential, headers, beside

    def with_headers(self, headers: Mapping[str, str]) -> ProviderApi:
        """Return the same API, asked with these headers."""
        return ProviderApi(self._provider, self._credential, self.place, headers, self._beside)

    def beside(self, folder: str) -> ProviderApi:
        """Return the API in a folder beside the API's address: for `https://a/v1` that is `https://a/folder/v1`."""
        return ProviderApi(self._provider, self._credential, self.place, self._headers, folder)

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Return the object that is answered to JSON, or to nothing. Raises UpstreamFailure."""
        data = b"" if body is None else msgspec.json.encode(body)
        return self.send(method, path, data, "application/json")

    def send(self, method: str, path: str, data: bytes, content_type: str) -> dict[str, Any]:
        """Return the object that is answered to data of a type, empty for no answer. Raises UpstreamFailure."""
        with self._exchange(method, path, data, content_type) as response:
            answered = response.read(_ANSWER)
        if not answered:
            return {}
        try:
            return msgspec.json.decode(answered, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise UpstreamFailure("upstream_error", "the answer is no JSON object") from None

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of results as they come; one that is too long is left out. Raises UpstreamFailure."""
        with self._exchange("GET", path, b"", "application/json") as response:
            rest = bytearray()
            is_skipping = False
            for piece in response.iterate_body():
                *ends, last = piece.split(b"\n")
                for end in ends:
                    if not is_skipping:
                        yield bytes(rest) + end
                    rest.clear()
                    is_skipping = False
                rest += last
                if len(rest) > _MAX_LINE_BYTES:
                    rest.clear()
                    is_skipping = True
            if rest and not is_skipping:
                yield bytes(rest)

    @contextmanager
    def _exchange(self, method: str, path: str, data: bytes, content_type: str) -> Iterator[UpstreamResponse]:
        provider, secret = self._provider, self._credential.secret()
        presented: dict[str, str] = {}
        response: UpstreamResponse | None = None
        try:
            url = self._address_of(path, secret)
            headers = {
                "Content-Type": content_type,
                "Accept": "application/json",
                "User-Agent": "model-gateway",
                **self._headers,
            }
            request = SignableRequest(method, url, headers, data)
            if path.startswith(STORED):
                presented = authorize_storage(secret, request, region_of(_host_of(provider.base_url)))
            else:
                presented = authorize(provider.auth, secret, request)
            sending = connection_pool.send(method, url, headers | presented, data, _timeouts(), new_connection=True)
            response = _result_of(sending)
            if not 200 <= response.status < 300:
                _refuse(response)
            yield response
        except UpstreamFailure as failure:
            failure.redact(collect_secrets(secret, presented))
            raise
        finally:
            if response is not None:
                response.close()

    def _address_of(self, path: str, secret: str) -> str:
        """Return the address of a path of the API, or of a stored object."""
        provider, place = self._provider, self.place
        if path.startswith(STORED):
            storage = place.storage_url or f"https://s3.{region_of(_host_of(provider.base_url))}.amazonaws.com"
            return f"{storage}/{path.removeprefix(STORED)}"
        base = fill_base_url(provider.auth, secret, provider.base_url, own=self._credential.own is not None)
        if place.storage:
            # Jobs are at the control plane, beside the runtime that answers requests.
            return (place.api_url or base.replace("//bedrock-runtime", "//bedrock", 1)) + path
        if self._beside:
            parent, _, version = base.rpartition("/")
            base = f"{parent}/{self._beside}/{version}"
        return base + path


def _host_of(address: str) -> str:
    return urlsplit(address).hostname or ""


def _result_of(sending: Generator[None, None, UpstreamResponse]) -> UpstreamResponse:
    while True:
        try:
            next(sending)
        except StopIteration as done:
            response: UpstreamResponse = done.value
            return response


def _refuse(response: UpstreamResponse) -> NoReturn:
    words = response.read(_ANSWER)[:_WORDS].decode("utf-8", "replace")
    raise UpstreamFailure(
        error_type_for_status(response.status),
        words,
        status=response.status,
        retry_after=retry_after_of(response.headers, response.status),
    )


def _timeouts() -> Timeouts:
    return msgspec.structs.replace(default_timeouts(), total=MAX_CALL_SECONDS)


class NoCredential(Exception):
    """The credential of a job, or its provider, is gone."""


def api_of(job: NativeJob) -> ProviderApi:
    """Return the batch API that a job is at. Raises NoCredential, DatabaseError."""
    provider = catalog_cache.current().providers.get(job.provider_id)
    if provider is None:
        raise NoCredential
    place = _place_of(job)
    if not job.is_own_key:
        secrets = service_secrets(provider.auth, provider.api_key_env, os.environ)
        named = {f"{provider.id}#{number}": secret for number, secret in enumerate(secrets, start=1)}
        if job.credential not in named:
            raise NoCredential
        label = job.credential
        return ProviderApi(provider, Credential(CREDITS, service_secret=named[label], label=label), place)
    rows = ProviderKey.objects.filter(pk=job.credential, organization_id=job.batch.organization_id)
    row = database.read(rows.filter(status=ProviderKey.Status.ACTIVE).first)
    if row is None:
        raise NoCredential
    token, owner = bytes(row.encrypted_token), row.organization_id
    own = OwnCredential(row.id, row.provider, row.provider_name, row.base_url, token, owner)
    credential = Credential(API_KEYS, own=own)
    try:
        credential.secret()
    except UnreadableSecretError:
        raise NoCredential from None
    return ProviderApi(provider, credential, place)


def _place_of(job: NativeJob) -> JobPlace:
    """Return the place that the job was gathered for; that of the catalog for a job without one."""
    if job.storage:
        return JobPlace(job.storage, job.role, job.api_url, job.storage_url)
    offer = catalog_cache.current().find_offer(job.provider_id, job.model_name)
    return NO_PLACE if offer is None else find_place(offer)


def is_key_revoked(job: NativeJob) -> bool:
    """Return whether the API key of a job's batch is refused by now."""
    try:
        find_policy(token_of_key(job.batch.api_key_id))
    except ApiError as error:
        return error.status in {401, 403, 410}
    return False
