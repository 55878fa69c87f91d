"""localstripe, started with what it lacks: run by the Python of its own environment, on the port it is given.

It keeps nothing on disk, takes a price where it knows plans alone, and sends what it has to tell at once.
"""

from __future__ import annotations

import sys

from aiohttp import web  # type: ignore[import-not-found]  # in localstripe's environment alone
from localstripe import resources, server, webhooks  # type: ignore[import-not-found]  # likewise


async def _at_once(_: float) -> None:
    """Wait for nothing."""


class _Clock:
    sleep = staticmethod(_at_once)


def _with_prices() -> None:
    create = resources.Subscription._api_create.__func__

    def create_with_prices(cls: type, **data: object) -> object:
        items = data.get("items") or []
        data["items"] = [{"plan": item.get("price"), **item} for item in items]  # type: ignore[attr-defined]  # JSON
        for item in data["items"]:
            item.pop("price", None)
        return create(cls, **data)

    resources.Subscription._api_create = classmethod(create_with_prices)


if __name__ == "__main__":
    resources.store.dump_to_disk = lambda: None
    webhooks.asyncio = type(
        "Asyncio", (), {"sleep": _Clock.sleep, "ensure_future": staticmethod(webhooks.asyncio.ensure_future)}
    )
    _with_prices()
    web.run_app(server.app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
