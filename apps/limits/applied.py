"""Limits as requests meet them: which of a key's limits hold for a request, their counters, and what it adds to them.

Amounts are whole units: 1e-9 USD of money, else requests or tokens. Without a query. The limits that hold
for requests alike are prepared once, in the forms of admission and settlement, until a window or a raise ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from hashlib import blake2b
from math import inf
from typing import Final
from uuid import UUID

import msgspec

from apps.billing import balances
from apps.billing.limit_holds import LimitHold, LimitHolds, MeasuredUse, letters_of
from apps.kernel.money import LARGEST, NANO, ZERO, plain, storable
from apps.keys.own_models import DEFAULT_TAG
from apps.limits.models import Limit
from apps.limits.windows import Window, WindowKind, first_day_of, window_at, windows_before

# Limits that hold for one request; `actions.py` refuses more.
MAX_APPLYING = 16
# Before the name of a model of an organization's own server.
OWN_SERVER = "custom:"
# The limit of one that refuses nothing.
_UNLIMITED = 9 * 10**15
# Sets of limits that a policy keeps prepared, and the longest id of an end user among them.
_MAX_PREPARED, _MAX_PREPARED_ID = 64, 256
_USD, _TOKENS = Limit.Counts.USD.value, Limit.Counts.TOKENS.value
_INPUT_TOKENS, _OUTPUT_TOKENS = Limit.Counts.INPUT_TOKENS.value, Limit.Counts.OUTPUT_TOKENS.value
_OF_PROMPTS = frozenset({_TOKENS, _INPUT_TOKENS})
_OF_ANSWERS = frozenset({_TOKENS, _OUTPUT_TOKENS})
# A model's id, and that of a provider that may answer with it.
Answerer = tuple[str, str]
# The facts that decide which limits hold: the models that may answer and the end user, where limits name some.
_Alike = tuple[tuple[Answerer, ...], str | None]
_ALIKE: Final[_Alike] = ((), None)


class LimitRule(msgspec.Struct, frozen=True):
    """A limit that may hold for requests of a key; `raised_until` is in seconds since 1970."""

    id: UUID
    organization_id: UUID
    name: str
    scope: str
    end_user: str
    model: str
    provider: str
    counts: str
    window: WindowKind
    time_zone: str
    # The hours or days that count together, and the first day of weeks or months (`windows.py`).
    rolling: int
    first_day: int
    amount: Decimal
    refuses: bool
    # Models that answer instead of others beyond it; it counts them, and refuses none of their requests.
    reroutes_to: tuple[str, ...] = ()
    raised_amount: Decimal | None = None
    raised_until: float = 0.0
    # The field of the API key that sets it (`key_limits.py`); empty for a row of limits.
    field: str = ""
    # Where `model` is the alias of a model of an own server: its full name, which it also counts.
    alias_of: str = ""

    @property
    def is_money(self) -> bool:
        """Whether it counts USD."""
        return self.counts == Limit.Counts.USD

    def amount_at(self, moment: float) -> Decimal:
        """Return the amount in force at a moment, in USD or as a whole number."""
        return self.amount if self.raised_amount is None or moment >= self.raised_until else self.raised_amount

    def covers(self, model_id: str, provider_id: str) -> bool:
        """Return whether answers of a model at a provider count."""
        return self.provider in ("", provider_id) and (
            not self.model
            or matches_model(self.model, model_id)
            or (bool(self.alias_of) and matches_model(self.alias_of, model_id))
        )


class Bucket(msgspec.Struct, frozen=True):
    """A counter that a limit counts in or has counted in: its id and Redis key, its window, and the end of its use."""

    counter_id: UUID
    counter: str
    organization_id: UUID
    window: Window
    used_until: int | None


class AppliedLimit(msgspec.Struct, frozen=True):
    """A limit that holds for a request: its counters, of which the first counts the request, and the most that they may
    reach together, in units.

    One of a provider is optional where others may answer, too: then routing leaves the provider out instead. One that
    reroutes to the request's own models is open: it counts the request, and does not refuse it. The counter of a key's
    own limit is the balance of the key's usage, which the ledger counts.
    """

    rule: LimitRule
    counter_id: UUID
    counter: str
    window: Window
    capacity: int
    is_optional: bool
    buckets: tuple[Bucket, ...]
    is_open: bool = False
    # The amount of its counter that was used before its window: a key's usage is never counted from 0 again.
    used_before: int = 0

    @property
    def counts_tokens(self) -> bool:
        """Whether it counts tokens, of which a request may use less than it holds."""
        return self.rule.counts in _OF_PROMPTS or self.rule.counts in _OF_ANSWERS

    @property
    def hold(self) -> LimitHold:
        """Its hold, as requests take it."""
        refuses = self.rule.refuses
        return LimitHold(
            counter=self.counter,
            ceiling=self.used_before + self.capacity if refuses and not self.is_open else _UNLIMITED,
            measure=self.rule.counts,
            warns_at=None if refuses else self.capacity,
            is_whole=self.is_optional,
            older=tuple(one.counter for one in self.buckets[1:]),
        )


class _Counting(msgspec.Struct, frozen=True):
    """The limits that count the answers of a model at a provider: the counters in a record as JSON, empty without any,
    and parts of a use."""

    counters: str
    letters: str
    money: tuple[str, ...]

    @classmethod
    def prepare(cls, limits: Iterable[AppliedLimit], model_id: str, provider_id: str) -> _Counting:
        every = [(one, one.rule.covers(model_id, provider_id)) for one in limits if not one.rule.field]
        counting = [one for one, is_counting in every if is_counting]
        counters = [
            RecordedCounter(
                one.counter_id, one.rule.id, one.window.starts_at, one.window.ends_at, Limit.Counts(one.rule.counts)
            )
            for one in counting
        ]
        return cls(
            counters=msgspec.json.encode(counters).decode() if counters else "",
            letters=letters_of((one.rule.counts, is_counting) for one, is_counting in every),
            money=tuple(one.counter for one in counting if one.rule.is_money),
        )


class AppliedLimits(msgspec.Struct, frozen=True):
    """The limits that hold for requests alike, and what these hold of them.

    They hold from a moment on until another, in seconds since 1970: then a window or a raise ends.
    """

    limits: tuple[AppliedLimit, ...]
    holds: LimitHolds
    holds_from: float
    holds_until: float
    # By the model and the provider that may have answered.
    countings: dict[Answerer, _Counting]

    @classmethod
    def prepare(cls, limits: Iterable[AppliedLimit], moment: float) -> AppliedLimits:
        """Return limits as they hold at a moment."""
        every = tuple(limits)
        starts, ends = [-inf], [inf]
        for one in every:
            if one.rule.field:
                # It holds until the key's policy is read again.
                continue
            starts.append(one.window.starts_at)
            ends.append(inf if one.window.ends_at is None else one.window.ends_at)
            if one.rule.raised_amount is not None:
                (ends if moment < one.rule.raised_until else starts).append(one.rule.raised_until)
        return cls(every, LimitHolds.prepare(one.hold for one in every), max(starts), min(ends), {})

    def count(
        self, *, model_id: str, provider_id: str, cost: Decimal, input_tokens: int, output_tokens: int
    ) -> tuple[msgspec.Raw | None, MeasuredUse]:
        """Return what a request adds to its counters: for its record, which `read_counted` reads, None where none
        counts it; and for its holds.

        Limits of models and providers that did not answer are left out.
        """
        known = self.countings.get((model_id, provider_id))
        if known is None:
            if len(self.countings) >= _MAX_PREPARED:
                self.countings.clear()
            known = self.countings[model_id, provider_id] = _Counting.prepare(self.limits, model_id, provider_id)
        use = MeasuredUse(known.letters, known.money if cost else (), input_tokens, output_tokens)
        if not known.counters:
            return None, use
        return msgspec.Raw(
            f'{{"amounts":{{"usd":"{cost!s}","requests":1,"tokens":{input_tokens + output_tokens},'
            f'"input_tokens":{input_tokens},"output_tokens":{output_tokens}}},"counters":{known.counters}}}'
        ), use

    @property
    def buckets(self) -> list[Bucket]:
        """All counters, in the order of the places that the script names."""
        older = [bucket for one in self.limits for bucket in one.buckets[1:]]
        return [*(one.buckets[0] for one in self.limits), *older]


class PolicyLimits:
    """The limits that may hold for requests of a key, by their rules, and the key's own, which holds for all of them.

    The key's own is the tightest of those that its columns set: they have the same counter.
    """

    def __init__(self, rules: Iterable[LimitRule], of_key: AppliedLimit | None = None) -> None:
        self.rules = tuple(rules)
        self.of_key = None if of_key is None else AppliedLimits.prepare([of_key], 0)
        # Whether a limit is for some models or providers or reroutes to some, and whether one is for end users.
        self.names_answerers = any(rule.model or rule.provider or rule.reroutes_to for rule in self.rules)
        self.names_end_users = any(rule.scope == Limit.Scope.END_USER for rule in self.rules)
        self._prepared: dict[_Alike, AppliedLimits] = {}
        # Limits of providers that are used up, with the window in which they are.
        self._used_up: dict[LimitRule, Window] = {}

    @cached_property
    def of_money(self) -> PolicyLimits | None:
        """The limits of USD alone; None without any."""
        rules, of_key = [rule for rule in self.rules if rule.is_money], self._of_key
        return PolicyLimits(rules, *of_key) if rules or of_key else None

    @property
    def _of_key(self) -> tuple[AppliedLimit, ...]:
        return () if self.of_key is None else self.of_key.limits

    def find(self, answerers: tuple[Answerer, ...], end_user: str | None, moment: float) -> AppliedLimits | None:
        """Return the limits that hold for a request, as `find_applying` does; None where none holds.

        Answerers and end user are not read unless a limit names some.
        """
        alike = _ALIKE
        if self.names_answerers or self.names_end_users:
            alike = answerers if self.names_answerers else (), end_user if self.names_end_users else None
        applied = self._prepared.get(alike)
        if applied is None or not applied.holds_from <= moment < applied.holds_until:
            every = (*self._of_key, *find_applying(self.rules, *alike, moment))
            applied = AppliedLimits.prepare(every, moment)
            if len(self._prepared) >= _MAX_PREPARED:
                self._prepared.clear()
            if len(end_user or "") <= _MAX_PREPARED_ID:
                self._prepared[alike] = applied
        return applied if applied.limits else None

    def note_used_up(self, limit: AppliedLimit) -> None:
        """Remember a limit of a provider of which nothing is left until its window ends, or this value is replaced."""
        if limit.rule.scope != Limit.Scope.END_USER:
            self._used_up[limit.rule] = limit.window

    def used_up_at(self, moment: float) -> list[LimitRule]:
        """Return the limits of providers that are known to be used up."""
        return [rule for rule, window in self._used_up.items() if window.contains(moment)] if self._used_up else []


class RecordedCounter(msgspec.Struct, frozen=True, array_like=True):
    """A counter in a record, with the measure that it counts."""

    counter_id: UUID
    limit_id: UUID
    starts_at: int
    ends_at: int | None
    counts: Limit.Counts


class _Amounts(msgspec.Struct, frozen=True):
    """The amounts in a record, by measure."""

    usd: Decimal
    requests: int
    tokens: int
    input_tokens: int
    output_tokens: int


class _Record(msgspec.Struct, frozen=True):
    """The part of a record that is about limits (`AppliedLimits.count`)."""

    amounts: _Amounts
    counters: msgspec.Raw


class RecordedCounters(msgspec.Struct, frozen=True, eq=False):
    """The counters in a record. Requests alike have the same, so that they are read once and charged together.

    `parts` has for each its measure, and how its charge begins as JSON.
    """

    counters: tuple[RecordedCounter, ...]
    measures: frozenset[str]
    parts: tuple[tuple[str, str], ...]


class CountedUse(msgspec.Struct, frozen=True):
    """The use that a recorded request adds to counters: the amount of each measure that any counts, as a column holds
    it, in USD or as a whole number, without those of 0."""

    counters: RecordedCounters
    amounts: Mapping[str, Decimal | int]

    @property
    def text(self) -> str:
        """The charges of the counters, as JSON: a list of `[counter, amount]`."""
        ends = {measure: f'{amount}"]' for measure, amount in self.amounts.items()}
        return f"[{','.join([begin + ends[measure] for measure, begin in self.counters.parts if measure in ends])}]"


_decode_record = msgspec.json.Decoder(_Record).decode
_decode_counters = msgspec.json.Decoder(tuple[RecordedCounter, ...]).decode


def read_counted(record: msgspec.Raw) -> CountedUse:
    """Return what a record says of limits. Raises MsgspecError."""
    read = _decode_record(record)
    counters, amounts = _read_counters(bytes(read.counters)), dict[str, Decimal | int]()
    for measure in counters.measures:
        amount = getattr(read.amounts, measure)
        amount = storable(amount) if measure == _USD else min(amount, LARGEST)
        if amount > ZERO:
            amounts[measure] = amount
    return CountedUse(counters, amounts)


@lru_cache(maxsize=1024)
def _read_counters(text: bytes) -> RecordedCounters:
    counters = _decode_counters(text)
    measures = frozenset(one.counts.value for one in counters)
    return RecordedCounters(
        counters, measures, tuple([(one.counts.value, f'["{one.counter_id}","') for one in counters])
    )


def rule_of(row: Limit, alias_of: str = "") -> LimitRule:
    """Return a row as requests read it, with the model of which its `model` is the alias, if it is one."""
    return LimitRule(
        id=row.id,
        organization_id=row.organization_id,
        name=row.name,
        scope=row.scope,
        end_user=row.end_user,
        model=row.model,
        provider=row.provider,
        counts=row.counts,
        window=WindowKind(row.window),
        time_zone=row.time_zone,
        rolling=row.rolling or 1,
        first_day=first_day_of(WindowKind(row.window), row.starts_on),
        amount=row.amount,
        refuses=row.action != Limit.Action.WARN,
        reroutes_to=tuple(row.reroute_models),
        raised_amount=row.raised_amount,
        raised_until=0.0 if row.raised_until is None else row.raised_until.timestamp(),
        alias_of=alias_of,
    )


def find_applying(
    rules: Sequence[LimitRule], answerers: Iterable[Answerer], end_user: str | None, moment: float
) -> tuple[AppliedLimit, ...]:
    """Return the limits that hold for a request that any of these models at providers may answer.

    An end user's own limit takes the place of the project's limits for each end user with the same model, provider,
    count and window.
    """
    every = frozenset(answerers)
    own = {_kind_of(rule) for rule in rules if rule.end_user and rule.end_user == end_user}
    applied = []
    for rule in rules:
        subject = ""
        if rule.scope == Limit.Scope.END_USER:
            if end_user is None or rule.end_user not in ("", end_user) or (not rule.end_user and _kind_of(rule) in own):
                continue
            subject = end_user
        covered = [one for one in every if rule.covers(*one)] if rule.model or rule.provider else every
        if (rule.model or rule.provider) and not covered:
            continue
        is_optional = bool(rule.provider) and rule.refuses and len(covered) < len(every)
        is_open = bool(rule.reroutes_to and covered) and {one for one, _ in covered} <= set(rule.reroutes_to)
        applied.append(apply_rule(rule, subject, moment, is_optional=is_optional, is_open=is_open))
    return tuple(applied)


def counter_id_of(limit_id: UUID, end_user: str, starts_at: int) -> UUID:
    """Return the id of a counter. An end user's id is not stored: it may be long, and is personal data."""
    text = f"{starts_at}:{end_user}".encode("utf-8", "surrogatepass")
    return UUID(bytes=blake2b(text, digest_size=16, key=limit_id.bytes).digest())


def apply_rule(
    rule: LimitRule, end_user: str, moment: float, *, is_optional: bool = False, is_open: bool = False
) -> AppliedLimit:
    """Return the limit as it holds for requests of an end user (empty: not a limit of end users) at a moment."""
    window = window_at(rule.window, rule.time_zone, moment, rule.first_day)
    before = windows_before(window, rule.window, rule.time_zone, rule.rolling - 1) if rule.rolling > 1 else []
    amount = rule.amount_at(moment)
    capacity = int(amount * NANO) if rule.is_money else int(amount)
    buckets = tuple([_bucket_of(rule, end_user, one) for one in (window, *before)])
    first = buckets[0]
    return AppliedLimit(rule, first.counter_id, first.counter, window, capacity, is_optional, buckets, is_open)


def _bucket_of(rule: LimitRule, end_user: str, window: Window) -> Bucket:
    counter_id = counter_id_of(rule.id, end_user, window.starts_at)
    counter = balances.key("limit", counter_id, rule.organization_id)
    used_until = window.ends_at
    if used_until is not None:
        used_until += (rule.rolling - 1) * (used_until - window.starts_at)
    return Bucket(counter_id, counter, rule.organization_id, window, used_until)


def text_of(units: int, *, is_money: bool) -> str:
    """Return an amount of units as text: USD, or a whole number."""
    return plain(Decimal(units) / NANO) if is_money else str(units)


def matches_model(pattern: str, model_id: str) -> bool:
    """Return whether a model's id matches a pattern, in which `*` is any text; patterns have no `?` and no `[`.

    An own server's model may be named with its default tag and without.
    """
    if pattern == model_id:
        return True
    names = [model_id]
    if model_id.startswith(OWN_SERVER):
        bare = model_id.removesuffix(DEFAULT_TAG)
        names = [bare, bare + DEFAULT_TAG]
    return any(fnmatchcase(name, pattern) if "*" in pattern else name == pattern for name in names)


def describe(applied: AppliedLimit) -> str:
    """Return which limit it is, whose and how much, for messages: `limit "Daily" of the project, 10 requests a day`."""
    rule = applied.rule
    amount = text_of(applied.capacity, is_money=rule.is_money)
    counted = "USD" if rule.is_money else rule.counts.replace("_", " ").removesuffix("s" if amount == "1" else "")
    article = "an" if rule.window is WindowKind.HOUR else "a"
    window = "in all" if rule.window is WindowKind.LIFETIME else f"{article} {rule.window}"
    if rule.rolling > 1:
        window = f"in {rule.rolling} {rule.window}s"
    model = f" on {rule.model}" if rule.model and rule.scope != Limit.Scope.MODEL else ""
    provider = f" at {rule.provider}" if rule.provider and rule.scope != Limit.Scope.PROVIDER else ""
    named = rule.provider if rule.scope == Limit.Scope.PROVIDER else rule.model
    whose = _OWNERS.get(rule.scope) or f"{rule.scope} {named}"
    return f'limit "{rule.name}" of the {whose}{model}{provider}, {amount} {counted} {window}'


def resets_at(applied: AppliedLimit) -> str:
    """Return when the limit counts from 0 again, for messages."""
    if applied.window.ends_at is None:
        return "it does not reset"
    moment = datetime.fromtimestamp(applied.window.ends_at, UTC).isoformat().replace("+00:00", "Z")
    if applied.rule.rolling > 1:
        return f"the oldest {applied.rule.window} stops counting at {moment}"
    return f"it resets at {moment}"


_OWNERS: dict[str, str] = {
    Limit.Scope.ORGANIZATION: "organization",
    Limit.Scope.TEAM: "team",
    Limit.Scope.PROJECT: "project",
    Limit.Scope.MEMBER: "member",
    Limit.Scope.KEY: "API key",
    Limit.Scope.END_USER: "end user",
}


def _kind_of(rule: LimitRule) -> tuple[str, str, str, str, int]:
    return rule.model, rule.provider, rule.counts, rule.window, rule.rolling
