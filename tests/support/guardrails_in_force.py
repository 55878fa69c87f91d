"""Putting guardrails in force for a caller's organization, and reading back everywhere that content could have gone."""

from __future__ import annotations

import json
from typing import Any

from django.db import connection

from apps.gateway.access import policy
from apps.gateway.settlement import outbox
from apps.guardrails.models import CustomRule, GuardrailConfig, Violation
from apps.guardrails.rules import system_rules
from apps.kernel.valkey.redis import client as valkey
from tests.support.upstream import Caller

# The six rules of the specification, which no other rule changes: category, whether it is on by default, action.
SPECIFIED_RULES = {
    "prompt_injection": ("injection", True, "block"),
    "jailbreak": ("jailbreak", True, "block"),
    "pii_detection": ("pii", True, "redact"),
    "secrets": ("secrets", True, "block"),
    "file_types": ("files", True, "block"),
    "document_leakage": ("document_leakage", False, "warn"),
}


def guard(caller: Caller, *, pii: str | None = None, **columns: Any) -> GuardrailConfig:
    """Configure guardrails: every system rule is off but those named in `rules`, each with its action."""
    rules: dict[str, str] = columns.pop("rules", {})
    states = {
        name: {"enabled": name in rules, "action": rules.get(name, "block"), **columns.pop(name, {})}
        for name in system_rules()
    }
    row, _ = GuardrailConfig.objects.update_or_create(
        organization_id=caller.organization_id,
        defaults={"system_rules": states, "pii_action": rules.get("pii_detection"), **columns},
    )
    policy.forget_all()
    return row


def forbid(caller: Caller, *terms: str, action: str = "block", **columns: Any) -> CustomRule:
    """Add a rule against terms, anywhere in a text."""
    config = {"type": "blocked_terms", "terms": list(terms), "matchType": "contains", "caseSensitive": False}
    rule = CustomRule.objects.create(
        organization_id=caller.organization_id,
        **{"name": "Terms", "type": "blocked_terms", "config": config, "action": action, **columns},
    )
    policy.forget_all()
    return rule


def waiting() -> str:
    """Return the records that wait for settlement, and the notes of requests in progress."""
    stored = [valkey().xrange(outbox.STREAMS[0]), *(_value_of(key) for key in valkey().keys("*"))]
    return json.dumps(stored, default=str)


def written() -> str:
    """Return all rows of the log and of violations, as text."""
    rows: list[Any] = []
    with connection.cursor() as cursor:
        for table in ("request_log", "guardrails_violation"):
            cursor.execute(f"SELECT to_jsonb(it)::text FROM {table} it")
            rows += [row for (row,) in cursor.fetchall()]
    return "\n".join(rows)


def violations() -> list[tuple[str, str, str, str]]:
    """Return the recorded violations: rule, action, pattern, content."""
    rows = Violation.objects.order_by("rule_id", "matched_content")
    return [(row.rule_id, row.action_taken, row.matched_pattern, row.matched_content) for row in rows]


def _value_of(key: Any) -> Any:
    kind = valkey().type(key)
    read = {"string": "get", "hash": "hgetall", "zset": "zrange", "set": "smembers", "list": "lrange"}.get(str(kind))
    if read is None:
        return None
    arguments = (0, -1) if read in {"zrange", "lrange"} else ()
    return getattr(valkey(), read)(key, *arguments)
