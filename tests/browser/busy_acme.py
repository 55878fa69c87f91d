"""Acme as it is after some weeks: two keys, a log with a failover and a failure, refusals, a violation.

Names and texts are hostile where a stranger could choose them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from apps.guardrails.models import Violation
from apps.logs.models import RefusedHour
from apps.organizations.models import Plan, RetentionLevel
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key

# The session of an agent.
SESSION = "0f3c1d52-6c0e-4f51-9f52-3f1c8ad1c0aa"
HOSTILE = "<script>document.title = 'taken over'</script>"


def stock_acme(world: World) -> str:
    """Stock Acme with what its pages show; return the id of a request that failed over."""
    world.acme.plan, world.acme.retention_level = Plan.ENTERPRISE, RetentionLevel.RETAIN
    world.acme.save()
    crawler = world.acme.projects.create(name="Crawler")
    keys = make_key(world.olivia, world.project, "Web shop").key, make_key(world.olivia, crawler, "Nightly crawl").key
    told = entry(
        keys[0],
        id=id_at(ago(minutes=2)),
        used_model="gpt-5-mini",
        duration=2_430,
        time_to_first_token=640,
        streamed=True,
        prompt_tokens=1_840,
        cached_tokens=1_024,
        completion_tokens=312,
        total_tokens=2_152,
        cost=Decimal("0.000853600000"),
        input_cost=Decimal("0.000204000000"),
        cached_input_cost=Decimal("0.000025600000"),
        output_cost=Decimal("0.000624000000"),
        temperature=0.2,
        custom_headers={"team": "search", "feature": HOSTILE},
        source="shop.example.com",
        session_id=SESSION,
        user_agent="claude-cli/2.1.197",
        finish_reason="stop",
        messages=[
            {"role": "system", "content": "You answer questions about our shop in one paragraph."},
            {"role": "user", "content": f"Which of your teas are decaffeinated? {HOSTILE}"},
        ],
        content="Our rooibos, peppermint and fennel teas have no caffeine at all.",
        retention_level=RetentionLevel.RETAIN,
        routing_metadata={
            "selectedProvider": "azure",
            "selectionReason": "weighted-score",
            "providerScores": [
                {"providerId": name, "score": score, "price": 0.6, "uptime": up, "latency": ms, "throughput": 92.4}
                for name, score, up, ms in (("azure", 0.9132, 99.87, 512.0), ("openai", 0.8871, 99.95, 634.5))
            ],
            "routing": [
                {
                    "provider": "azure",
                    "model": "gpt-5-mini-2026",
                    "status_code": 503,
                    "error_type": "upstream_error",
                    "succeeded": False,
                    "used_model": "gpt-5-mini",
                    "start_ms": 12,
                    "end_ms": 312,
                },
                {
                    "provider": "openai",
                    "model": "gpt-5-mini",
                    "status_code": 200,
                    "error_type": "none",
                    "succeeded": True,
                    "used_model": "gpt-5-mini",
                    "start_ms": 402,
                    "connect_start_ms": 404,
                    "connect_end_ms": 451,
                    "first_byte_ms": 590,
                    "first_content_ms": 640,
                    "end_ms": 2_430,
                },
            ],
        },
    )
    models = (
        ("gpt-5", "openai", "0.412"),
        ("claude-sonnet-4-5", "anthropic", "0.287"),
        ("gemini-2.5-flash", "google", "0.041"),
    )
    others = [
        entry(
            keys[day % 2],
            id=id_at(ago(days=day, minutes=5 + number)),
            used_model=model,
            used_provider=provider,
            cost=Decimal(cost) * (1 + (day * 7 + number) % 5),
            prompt_tokens=900 * (1 + day % 4),
            completion_tokens=250,
            custom_headers={"team": ("search", "support")[number % 2]},
        )
        for day in range(25)
        for number, (model, provider, cost) in enumerate(models)
    ]
    failed = entry(
        keys[1],
        id=id_at(ago(minutes=1)),
        used_model=HOSTILE,
        used_provider="groq",
        has_error=True,
        status_code=502,
        unified_finish_reason="upstream_error",
        error_details={"status": 502, "type": "upstream_error", "code": "all_providers_failed", "message": HOSTILE},
    )
    tools = ({"Read": 3, "Bash": 1}, {"Edit": 1}, {"mcp__tickets__find_every_open_ticket": 12})
    steps = [
        entry(
            keys[0],
            id=id_at(ago(minutes=6 - number)),
            session_id=SESSION,
            user_agent="claude-cli/2.1.197",
            used_model="claude-sonnet-4-5",
            requested_model="claude-sonnet-4-5",
            used_provider="anthropic",
            unified_finish_reason="tool_calls",
            tool_call_counts=calls,
            duration=24_000,
            time_to_first_token=1_900,
            prompt_tokens=18_400 + 900 * number,
            cached_tokens=16_000,
            completion_tokens=812,
            cost=Decimal("0.0412"),
        )
        for number, calls in enumerate(tools)
    ]
    write(*others, told, failed, *steps)
    now = datetime.now(UTC)
    for status, code, count in ((402, "insufficient_credits", 1_204), (429, "rate_limit_exceeded", 87)):
        RefusedHour.objects.create(
            organization_id=world.acme.id,
            api_key_id=keys[1].id,
            hour=now.replace(minute=0, second=0, microsecond=0),
            status=status,
            code=code,
            count=count,
            last_at=now - timedelta(minutes=3),
        )
    Violation.objects.create(
        organization_id=world.acme.id,
        log_id=told.id,
        rule_id="system:secrets",
        rule_name="Secrets",
        category="secrets",
        action_taken="blocked",
        matched_pattern=HOSTILE,
        matched_content="sk-…",
        content_hash="x",
        model="gpt-5",
    )
    return str(told.id)
