"""Running products that tests share: one to use, and two whose parts are killed; others start their own.

They end with the last test of this folder, not of the run: a product that nothing uses takes processor time all the
same.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.batches import SETTINGS, keep_content
from tests.stack.product import Product


@pytest.fixture(scope="package")
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


@pytest.fixture(scope="package")
def keeping_product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A server of two workers, of an organization that keeps content; tests kill its processes."""
    product = Product(tmp_path_factory.mktemp("keeping"), WEB_WORKERS="2", **SETTINGS)
    keep_content(product)
    yield product
    product.stop()


@pytest.fixture(scope="package")
def harmed_product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A server of one worker; tests stop, kill and replace its processes and stores, and leave it well."""
    product = Product(tmp_path_factory.mktemp("harmed"), HEARTBEAT_INTERVAL="0.3")
    yield product
    assert product.stop() == 0
