"""Hooks are found in the module `hooks` of every app, and nowhere else."""

from __future__ import annotations

import pytest

from apps.organizations.app_hooks import find_hook_modules
from gateway_project.configuration.data_directory import PROJECT

APPS = {
    "erase": {
        *("alerts", "batches", "billing", "gateway", "guardrails", "keys", "limits", "log_sinks", "logs"),
        *("mcp_servers", "oauth", "responses"),
    },
    "revoke": {"keys", "logs", "oauth"},
    "end_programs": {"oauth"},
    "rotate": {"alerts", "guardrails", "log_sinks", "mcp_servers"},
    "find_provider": {"catalog"},
    "TABS": {"alerts", "billing", "gateway", "keys", "limits", "log_sinks", "mcp_servers"},
    "BUTTONS": {"billing"},
}


@pytest.mark.parametrize("name", APPS)
def test_apps_with_a_hook(name: str) -> None:
    assert {module.__name__ for module in find_hook_modules(name)} == {f"apps.{app}.hooks" for app in APPS[name]}


def test_no_module_is_named_like_a_hook_that_is_not_called() -> None:
    names = ("erasure", "revocation", "rotation", "organization_page")
    found = {str(path.relative_to(PROJECT)) for name in names for path in PROJECT.glob(f"apps/*/{name}.py")}
    assert found == set()
