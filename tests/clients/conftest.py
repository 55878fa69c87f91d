"""One running product for all clients, and the formats that their tests run over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.clients.gateway import BEHIND, Behind, Gateway
from tests.support.upstream import sandbox_url as sandbox_url


@pytest.fixture(scope="package")
def gateway(sandbox_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The product, with the sandbox as its providers."""
    gateway = Gateway(tmp_path_factory.mktemp("gateway"), sandbox_url)
    yield gateway
    assert gateway.stop() == 0


@pytest.fixture(params=BEHIND, ids=[behind.format for behind in BEHIND])
def behind(request: pytest.FixtureRequest) -> Behind:
    """The provider that answers: one for each of the formats that differ most; some clients' tests say otherwise."""
    chosen: Behind = request.param
    return chosen


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous clients run on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
async def one_loop(anyio_backend: str) -> AsyncIterator[None]:
    """Keep one event loop for all tests: some clients keep their connections from one to the next."""
    yield  # noqa: PT022 - it is the waiting for its end that keeps the loop
