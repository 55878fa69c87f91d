"""Cache (LRU) of compiled guardrails: one entry for each organization, however many keys it has.

Compiling takes up to two seconds of computing, the first time in a process, and so happens on a native thread: only
the caller waits for it. The rules that organizations wrote themselves stay compiled within a budget (`MatcherBudget`).
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from hashlib import blake2b
from uuid import UUID

import msgspec
import structlog
from django.db.models import Exists, OuterRef

from apps.guardrails.configuration.load_config import load_engine_config
from apps.guardrails.configuration.matcher_budget import MatcherBudget
from apps.guardrails.configuration.rule_warmup import warm_up_rules_once
from apps.guardrails.custom import BadConfig
from apps.guardrails.models import CustomRule, GuardrailConfig
from apps.guardrails.rule_thread import on_rule_thread
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import CompiledGuardrails, EngineConfig
from apps.kernel.errors import InternalError
from apps.organizations.models import Organization
from apps.organizations.plans import PLANS, limits_of

log = structlog.get_logger(__name__)

# Configurations whose compiled form a process keeps; the least recently used goes first.
MAX_CACHED = 500
# By organization, with the digest of its configuration.
_compiled: OrderedDict[UUID, tuple[bytes, CompiledGuardrails]] = OrderedDict()
_matchers = MatcherBudget()


def find_config_in_force(organization_id: UUID, plan: str) -> EngineConfig | None:
    """Return the configuration in force for an organization's requests; None without one. Raises DatabaseError."""
    config = load_engine_config(organization_id) if limits_of(plan).guardrails else None
    return config if config is not None and config.enabled else None


def compiled_guardrails(organization_id: UUID, config: EngineConfig | None) -> CompiledGuardrails | None:
    """Return an organization's configuration, ready to hold requests against; None when nothing is in force.

    Raises InternalError where a rule cannot be put in force: then nothing passes by it.
    """
    if config is None:
        _compiled.pop(organization_id, None)
        return None
    digest = blake2b(msgspec.msgpack.encode(config), digest_size=16).digest()
    known = _compiled.get(organization_id)
    if known is None or known[0] != digest:
        compiled = on_rule_thread(partial(_compile, organization_id, config, digest))
        known = _compiled[organization_id] = (digest, compiled)
        while len(_compiled) > MAX_CACHED:
            _compiled.popitem(last=False)
    _compiled.move_to_end(organization_id)
    return known[1] if known[1].in_force else None


def is_any_organization_guarded() -> bool:
    """Tell whether any organization has its guardrails switched on or a custom rule without a configuration, whatever
    its plan. Raises DatabaseError."""
    configured = GuardrailConfig.objects.filter(organization=OuterRef("organization"))
    return (
        GuardrailConfig.objects.filter(enabled=True).exists()
        or CustomRule.objects.filter(~Exists(configured), enabled=True).exists()
    )


def may_any_organization_be_guarded() -> bool:
    """Tell whether any organization that is in use has a plan with guardrails. Raises DatabaseError."""
    plans = [plan for plan, limits in PLANS.items() if limits.guardrails]
    return Organization.objects.filter(plan__in=plans, status=Organization.Status.ACTIVE).exists()


def _compile(organization_id: UUID, config: EngineConfig, digest: bytes) -> CompiledGuardrails:
    known = _compiled.get(organization_id)
    if known is not None and known[0] == digest:
        # For another who asked at the same time.
        return known[1]
    warm_up_rules_once()
    try:
        return engine.compile_guardrails(config, _matchers.hold)
    except BadConfig as error:
        log.error("guardrails.not_in_force", organization=str(organization_id), error=str(error)[:200])
        raise InternalError(
            "The guardrails of this organization cannot be put in force: ask an administrator to correct its rules"
        ) from error
