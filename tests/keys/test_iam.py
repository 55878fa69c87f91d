"""Access rules about tools of MCP servers: what they leave of a server."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.keys.iam import AccessRule, allows_some_tool, allows_tool


def rule(effect: str, *names: str) -> AccessRule:
    return AccessRule(uuid4(), f"{effect}_mcp_servers", {"mcpServers": list(names)})


@pytest.mark.parametrize(
    ("rules", "server", "echo", "add"),
    [
        ([], True, True, True),
        ([rule("deny", "files")], True, True, True),
        ([rule("deny", "tickets")], False, False, False),
        ([rule("deny", "all")], False, False, False),
        ([rule("deny", "tickets/echo")], True, False, True),
        ([rule("allow", "tickets")], True, True, True),
        ([rule("allow", "all")], True, True, True),
        ([rule("allow", "files", "ticket", "tickets2")], False, False, False),
        ([rule("allow", "tickets/echo")], True, True, False),
        ([rule("allow", "files"), rule("allow", "tickets/add")], True, False, True),
        ([rule("allow", "tickets"), rule("deny", "tickets/echo")], True, False, True),
        ([rule("allow", "tickets"), rule("deny", "all")], False, False, False),
    ],
)
def test_a_deny_wins_and_allow_rules_add_up(rules: list[AccessRule], server: bool, echo: bool, add: bool) -> None:
    assert allows_some_tool(rules, "tickets") is server
    assert (allows_tool(rules, "tickets", "echo"), allows_tool(rules, "tickets", "add")) == (echo, add)
    assert all(one.is_about_tools for one in rules)


def test_other_rules_are_about_offers() -> None:
    assert not AccessRule(uuid4(), "deny_providers", {"providers": ["openai"]}).is_about_tools
