"""The console's paths, beneath `/app/`; each module of pages has its own."""

from __future__ import annotations

from apps.console.pages import (
    account,
    alerts,
    audit,
    billing,
    guardrails,
    keys,
    limits,
    log_sinks,
    logs,
    management_keys,
    mcp_servers,
    members,
    model_detail,
    organizations,
    overview,
    playground,
    programs,
    projects,
    provider_keys,
    refusals,
    sessions,
    sign_in,
    usage,
)
from apps.console.pages.logs import live, text

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
    *live.PATHS,
    *text.PATHS,
    *logs.PATHS,
    *sessions.PATHS,
    *refusals.PATHS,
    *usage.PATHS,
    *provider_keys.PATHS,
    *limits.PATHS,
    *log_sinks.PATHS,
    *alerts.PATHS,
    *mcp_servers.PATHS,
    *guardrails.PATHS,
    *billing.PATHS,
    *playground.PATHS,
    *model_detail.PATHS,
    *programs.PATHS,
]
