"""The console's paths, beneath `/app/`; each module of pages has its own."""

from __future__ import annotations

from apps.console.pages import (
    account,
    alerts,
    audit,
    billing,
    guardrails,
    keys,
    log_sinks,
    logs,
    management_keys,
    mcp_servers,
    members,
    organizations,
    overview,
    playground,
    programs,
    projects,
    provider_keys,
    refusals,
    sign_in,
    usage,
)

# Under the namespace `console`.
PATTERNS = [
    *sign_in.PATHS,
    *account.PATHS,
    *organizations.PATHS,
    *overview.PATHS,
    *keys.PATHS,
    *management_keys.PATHS,
    *projects.PATHS,
    *members.PATHS,
    *audit.PATHS,
    *logs.PATHS,
    *refusals.PATHS,
    *usage.PATHS,
    *provider_keys.PATHS,
    *log_sinks.PATHS,
    *alerts.PATHS,
    *mcp_servers.PATHS,
    *guardrails.PATHS,
    *billing.PATHS,
    *playground.PATHS,
    *programs.PATHS,
]
