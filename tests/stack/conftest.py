"""One running product for all tests that only use it; those that break things start their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.batches import SETTINGS, keep_content
from tests.stack.product import Product


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A server that every test may use and none may harm."""
    product = Product(
        tmp_path_factory.mktemp("product home"),
        HEARTBEAT_INTERVAL="0.3",
        UPSTREAM_FIRST_BYTE_TIMEOUT="3",
        BODY_LIMIT="200000",
        BODY_TIMEOUT="1",
        CORS_ALLOWED_ORIGINS="https://app.example.com",
    )
    yield product
    assert product.stop() == 0


@pytest.fixture(scope="session")
def keeping_product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A server of an organization that keeps content; tests of work in the background kill its processes."""
    product = Product(tmp_path_factory.mktemp("keeping"), WEB_WORKERS="2", **SETTINGS)
    keep_content(product)
    yield product
    product.stop()
