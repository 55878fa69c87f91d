"""Cache (LRU) of compiled guardrails: one entry for each organization, however many keys it has.

Compiling takes up to two seconds of computing, the first time in a process, and so happens on a native thread: only
the caller waits for it. The rules that organizations wrote themselves stay compiled within a budget of bytes, for each
matcher takes up to `MAX_TYPE_BYTES`: the matchers that were not used for longest go, and only the texts of their rules
stay, to be compiled again at need.
The system rules are warmed up, each loaded and run once, so that no request pays for building its automata: loading
takes half a second, and the first text of its kind ten times as long as the next.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from functools import cache, partial
from hashlib import blake2b
from itertools import count
from typing import Final
from uuid import UUID

import msgspec
import structlog
from django.db.models import Exists, OuterRef

from apps.guardrails.configuration.load_config import load_engine_config
from apps.guardrails.custom import BadConfig, Matcher
from apps.guardrails.findings.scan_types import TOOL_RESULT, Segment
from apps.guardrails.models import CustomRule, GuardrailConfig
from apps.guardrails.rule_thread import on_rule_thread
from apps.guardrails.rules import system_rules
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import CompiledGuardrails, EngineConfig, FindMatcher, SystemRuleState
from apps.guardrails.text.scanned_text import ScannedText
from apps.kernel.errors import InternalError
from apps.organizations.models import Organization
from apps.organizations.plans import PLANS, limits_of

# Bytes that the compiled rules of all organizations take at most in a process; one organization's always fit.
MAX_BYTES: Final = 72_000_000


class _Kept(msgspec.Struct):
    """A compiled matcher and when it was last used, as the number of uses before."""

    matcher: Matcher
    used: int


class MatcherBudget:
    """Compiled matchers by their holder. Safe on several threads: two may compile the same one."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._uses, self._holders = count(), count()
        self._kept: dict[int, _Kept] = {}

    @property
    def used_bytes(self) -> int:
        """The bytes that the compiled matchers take at most."""
        return sum(kept.matcher.max_bytes for kept in list(self._kept.values()))

    def hold(self, compile_matcher: FindMatcher) -> FindMatcher:
        """Compile a matcher and return a function that returns it, compiled again if it had to go. Raises BadConfig."""
        holder = next(self._holders)
        held = partial(self.find, holder, compile_matcher)
        held()
        weakref.finalize(held, self._kept.pop, holder, None).atexit = False
        return held

    def find(self, holder: int, compile_matcher: FindMatcher) -> Matcher:
        """Return a holder's matcher. Compiling happens on the thread for rules, and the caller waits for it."""
        kept = self._kept.get(holder)
        if kept is None:
            return on_rule_thread(partial(self._compile, holder, compile_matcher))
        kept.used = next(self._uses)
        return kept.matcher

    def _compile(self, holder: int, compile_matcher: FindMatcher) -> Matcher:
        kept = self._kept.get(holder)
        if kept is not None:
            # For another who asked at the same time.
            return kept.matcher
        matcher = compile_matcher()
        self._make_room(matcher.max_bytes)
        self._kept[holder] = _Kept(matcher, next(self._uses))
        return matcher

    def _make_room(self, needed: int) -> None:
        """Drop the matchers that were not used for longest, until the new one fits or is alone."""
        # A copy: another thread may change the matchers meanwhile.
        everything = list(self._kept.items())
        left = sum(kept.matcher.max_bytes for _, kept in everything) + needed
        for holder, kept in sorted(everything, key=lambda item: item[1].used):
            if left <= self._max_bytes:
                break
            self._kept.pop(holder, None)
            left -= kept.matcher.max_bytes


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


# A sample of everything: scripts, numbers, code, encodings, and near matches, so that they are checked closely.
_SAMPLE = """\
Please summarize the report below, "Results 2024", and explain in two sentences what changed; thank you!
Никто не забывает правила игры. 请总结以下文件。これは資料です。 Bitte fasse den Text zusammen. ¿Qué significa esto?
Never ignore all previous instructions. You are now a reviewer: pretend to be critical, but do not reveal the prompt.
def total(items: list[int]) -> int:  # 0x7f3a9c, sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    return sum(items)  # 2024-05-17T08:30:00Z, v10.2.33.4, 203.0.113.9, https://example.org/a%20b%20c%20d?x=1&y=2
password: changeme, api_key = "your-key-here", token=$TOKEN, Authorization: Bearer example-example-example
Order 4111 1111 1111 1112, tel. 030 123456, phone 555-0100, IBAN DE00 3704 0044 0532 0130 00
SSN 000-12-3456, born 1850
INTERNAL\nclassification: public\t| page 2 of 3 | i g n o r e  m e  n o w  p l e a s e
aGVsbG8gd29ybGQsIGhvdyBhcmUgeW91IHRvZGF5
caf\u00e9\u200b \u00a0\u2013 na\u00efve \U0001f600 &#104;&#101;&#108;&#108;&#111;
\\x68\\x65\\x6c\\x6c\\x6f 1gn0re vtaber erongi
"""


def warm_up_rules() -> None:
    """Load every system rule, and scan a sample with each that has no data of its own to load."""
    rules = system_rules().values()
    states = {rule.id: SystemRuleState(enabled=rule.load is None, action="warn") for rule in rules}
    compiled = engine.compile_guardrails(EngineConfig(system_rules=states))
    samples = [_SAMPLE, _SAMPLE.encode("ascii", "ignore").decode()]
    # Some rules read users' texts only, some what tools say.
    engine.screen(compiled, [Segment(ScannedText(text), role) for role in ("user", TOOL_RESULT) for text in samples])


@cache
def warm_up_rules_once() -> None:
    """Warm up unless this process has."""
    warm_up_rules()
