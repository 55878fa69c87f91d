"""Joined names: bounded, readable by models, and never the same for two tools."""

from __future__ import annotations

import re
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from apps.mcp_servers.tool_pins import joined_name, joined_names, server_of

SERVERS = st.from_regex(r"[a-z0-9-]{1,40}", fullmatch=True)
TOOLS = st.text(min_size=1, max_size=128)


def test_a_plain_name_stays_readable() -> None:
    assert joined_name("tickets", "create_ticket") == "tickets__create_ticket"
    assert server_of("tickets__create_ticket") == "tickets"
    assert (server_of("create_ticket"), server_of("a___b")) == ("", "a")


def test_a_name_that_does_not_fit_is_its_beginning_and_a_digest() -> None:
    long = "x" * 80
    assert joined_name("s", long) == "s__" + "x" * 48 + "-" + sha256(long.encode()).hexdigest()[:12]
    assert joined_name("s", "a.b/ü") == "s__a_b__-" + sha256("a.b/ü".encode()).hexdigest()[:12]


def test_a_tool_cannot_take_the_shortened_name_of_another() -> None:
    taken = joined_name("s", "x" * 80).removeprefix("s__")
    assert joined_name("s", taken) != "s__" + taken
    assert len(joined_names("s", ["x" * 80, taken])) == 2


def test_of_two_with_one_name_the_first_has_it() -> None:
    assert joined_names("s", ["a", "a", "b"]) == {"s__a": "a", "s__b": "b"}


@given(SERVERS, TOOLS, SERVERS, TOOLS)
def test_two_tools_have_two_names_that_every_provider_takes(a: str, x: str, b: str, y: str) -> None:
    one, other = joined_name(a, x), joined_name(b, y)
    assert (one == other) == ((a, x) == (b, y))
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one)
    assert server_of(one) == a
