"""Client of outside guards: asks one within its time limit, over kept connections, behind a circuit breaker.

Models of this gateway are asked by a function of the caller's, which makes a request of the pipeline of it.

An attempt is repeated once where the connection failed, which is also how a kept connection ends that the guard has
closed. Redirects are refused, because credentials are sent. Answers are bounded in size. Messages contain neither
texts, nor addresses with their query, nor credentials.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, Literal, TypeVar, get_args
from uuid import UUID

import gevent
import msgspec
import requests
import structlog
from gevent.pool import Pool
from urllib3.exceptions import HTTPError

from apps.guardrails.outside import (
    MAX_REASON,
    OUTPUT,
    GuardQuestion,
    GuardRequest,
    ModelAnswer,
    ModelRequest,
    OutsideFinding,
    OutsideText,
    RequestFacts,
    UnusableAnswer,
)
from apps.guardrails.scanning.outside_rules import OutsideRule
from apps.guardrails.scanning.scan_memory import DigestMemory
from apps.kernel.errors import ApiError
from apps.kernel.ids import new_id
from apps.kernel.money import ZERO
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt
from apps.keys.ssrf_guard import SafeAddress, UnsafeAddressError, resolve_safe_address

log = structlog.get_logger(__name__)

# Bytes of an answer, requests for one question and how many of them at a time, characters of a question's texts.
MAX_ANSWER: Final = 4 * 1024 * 1024
MAX_REQUESTS, _AT_ONCE = 250, 16
MAX_CHARACTERS: Final = 1_000_000
MAX_FINDINGS: Final = 10_000
CONNECT_TIMEOUT: Final = 2.0
# A guard is not asked after so many failures in a row, for so many seconds, which double up to the maximum.
OPEN_AFTER: Final = 3
FIRST_PAUSE, MAX_PAUSE = 5.0, 60.0
# Guards whose connections and failures a process keeps.
_MAX_KEPT: Final = 500
Outcome = Literal["passed", "found", "failed", "skipped"]
OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)
Key = TypeVar("Key")
Value = TypeVar("Value")
# Asks a model of this gateway for a rule, by its id. Raises ApiError.
AskModel = Callable[[str, ModelRequest], ModelAnswer]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of asking a guard: its findings, or why there are none; `skipped`: its circuit is open.

    `cost` is in USD, None where the guard does not say it; `log_ids` are the rows of the log of a model's answers.
    """

    outcome: Outcome
    findings: list[OutsideFinding] = []
    milliseconds: int = 0
    requests: int = 0
    error: str = ""
    cost: Decimal | None = None
    log_ids: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether the texts were not judged."""
        return self.outcome in ("failed", "skipped")


class _Circuit(msgspec.Struct):
    """Failures in a row of one guard, and from when (monotonic seconds) it is asked again."""

    failures: int = 0
    pause: float = 0.0
    next_attempt_at: float = 0.0

    def record(self, *, failed: bool) -> None:
        """Count an answer or a failure; the circuit opens after some failures, for longer with each."""
        if not failed:
            self.failures, self.pause, self.next_attempt_at = 0, 0.0, 0.0
            return
        self.failures += 1
        if self.failures >= OPEN_AFTER:
            self.pause = min(max(self.pause * 2, FIRST_PAUSE), MAX_PAUSE)
            self.next_attempt_at = time.monotonic() + self.pause


class _GuardFailed(Exception):
    """A guard could not be asked; the message is for the organization's log."""


_circuits: OrderedDict[str, _Circuit] = OrderedDict()
# Texts that a guard found nothing in lately, so that it is not asked about them again: an agent sends its whole
# conversation with each request. At most so many, and for so many seconds, for the guard's own policy may change.
_passed: Final = DigestMemory[bool](20_000, 600.0)
_sessions: OrderedDict[tuple[str, SafeAddress], requests.Session] = OrderedDict()


def judge(
    rule: OutsideRule,
    direction: str,
    facts: RequestFacts,
    texts: Sequence[OutsideText],
    ask_model: AskModel | None = None,
) -> Judged:
    """Ask a guard about texts and return the outcome, which may be that it failed. Takes at most the rule's seconds.

    A guard that judges each text by itself is not asked about those that it let pass some minutes ago. `ask_model` asks
    models of this gateway.
    """
    if not rule.type.JUDGES_EACH_TEXT:
        return _ask(rule, direction, facts, texts, ask_model)
    judged_by = repr((rule.id, rule.config, direction, facts.prompt if direction == OUTPUT else ""))
    digests = [_passed.digest(f"{judged_by}{one.role}", one.text.encode("utf-8", "surrogatepass")) for one in texts]
    new = [index for index, digest in enumerate(digests) if not _passed.find(digest)]
    if not new:
        return Judged(outcome="passed")
    judged = _ask(rule, direction, facts, [texts[index] for index in new], ask_model)
    if judged.has_failed:
        return judged
    found = {one.text for one in judged.findings}
    for place, index in enumerate(new):
        if place not in found:
            _passed.remember(digests[index], True)
    moved = [msgspec.structs.replace(one, text=new[one.text]) for one in judged.findings]
    return msgspec.structs.replace(judged, findings=moved)


def forget_all() -> None:
    """Close all connections, and forget all failures and passed texts."""
    _passed.forget_all()
    for session in _sessions.values():
        session.close()
    _sessions.clear()
    _circuits.clear()


def _ask(
    rule: OutsideRule,
    direction: str,
    facts: RequestFacts,
    texts: Sequence[OutsideText],
    ask_model: AskModel | None,
) -> Judged:
    circuit = _kept(_circuits, rule.id, _Circuit)
    started = time.monotonic()
    if started < circuit.next_attempt_at:
        return Judged(outcome="skipped", error="it has failed several times and is asked again shortly")
    if circuit.failures >= OPEN_AFTER:
        # One request finds out; the others go on without until it has.
        circuit.next_attempt_at = started + rule.timeout
    asked: Sequence[GuardRequest | ModelRequest] = ()
    sender = _Sender(rule, UUID(facts.organization_id), ask_model)
    findings, error = [], ""
    try:
        question = _question(rule, direction, facts, texts)
        asked = rule.type.requests_of(question)
        findings = _checked(rule.type.read_answers(question, sender.send_all(asked)), texts)
    except (_GuardFailed, UnusableAnswer) as failure:
        error = str(failure)
        log.warning("guardrails.outside_guard_failed", rule=rule.id, type=rule.type.TYPE, error=error[:200])
    circuit.record(failed=bool(error))
    return Judged(
        outcome="failed" if error else "found" if findings else "passed",
        findings=findings,
        milliseconds=round((time.monotonic() - started) * 1000),
        requests=len(asked),
        error=error,
        cost=sender.cost,
        log_ids=tuple(sender.log_ids),
    )


class _Sender:
    """Sends the requests of one question within the rule's time limit, and adds up the cost of models' answers."""

    def __init__(self, rule: OutsideRule, owner: UUID, ask_model: AskModel | None) -> None:
        self.cost: Decimal | None = None
        self.log_ids: list[str] = []
        self._rule, self._owner, self._ask_model = rule, owner, ask_model
        self._ends = time.monotonic() + rule.timeout
        self._late = _GuardFailed(f"it did not answer within {rule.timeout:g} s")

    def send_all(self, asked: Sequence[GuardRequest | ModelRequest]) -> list[bytes]:
        """Return the bodies of the answers, or their texts from models. Raises _GuardFailed."""
        if len(asked) > MAX_REQUESTS:
            raise _GuardFailed(f"the texts would take {len(asked)} requests; {MAX_REQUESTS} are the maximum")
        pool = Pool(_AT_ONCE)
        try:
            with gevent.Timeout(self._rule.timeout, requests.Timeout()):
                # A single request needs no other greenlet.
                answers = list(map(self._send, asked) if len(asked) == 1 else pool.imap(self._send, asked))
        except requests.Timeout as error:
            raise self._late from error
        finally:
            pool.kill(block=False)
        for answer in answers:
            if isinstance(answer, _GuardFailed):
                raise answer
        return [answer for answer in answers if isinstance(answer, bytes)]

    def _send(self, request: GuardRequest | ModelRequest) -> bytes | _GuardFailed:
        """Return the answer, or the error instead of raising it: a greenlet that fails would print it."""
        try:
            return self._ask(request) if isinstance(request, ModelRequest) else self._post(request)
        except _GuardFailed as failure:
            return failure
        except (requests.Timeout, TimeoutError):
            return self._late
        except (requests.RequestException, HTTPError, OSError):
            # The message of the error may quote the address with its query.
            return _GuardFailed("it could not be reached")

    def _ask(self, request: ModelRequest) -> bytes:
        if self._ask_model is None:
            raise _GuardFailed("models cannot be asked here")
        try:
            answer = self._ask_model(self._rule.id, request)
        except ApiError as error:
            raise _GuardFailed(f"its model answered {error.status}: {str(error)[:MAX_REASON]}") from error
        self.cost = (self.cost or ZERO) + answer.cost
        self.log_ids.append(answer.log_id)
        return answer.text

    def _post(self, request: GuardRequest) -> bytes:
        try:
            address = resolve_safe_address(request.url, self._owner)
        except UnsafeAddressError as error:
            raise _GuardFailed(f"its address cannot be called: {error}") from error
        session = _kept(_sessions, (self._rule.id, address), lambda: _new_session(address))
        # A guard gets no cookies back: it would tell requests apart by them.
        session.cookies.clear()
        try:
            return _exchange(session, request, self._ends)
        except requests.Timeout:
            raise
        except (requests.ConnectionError, HTTPError) as error:
            # urllib3 takes a time limit that ends its wait for a broken connection.
            if time.monotonic() >= self._ends:
                raise requests.Timeout from error
            return _exchange(session, request, self._ends)


def _question(rule: OutsideRule, direction: str, facts: RequestFacts, texts: Sequence[OutsideText]) -> GuardQuestion:
    characters = sum(len(one.text) for one in texts)
    if characters > MAX_CHARACTERS:
        raise _GuardFailed(f"the texts have {characters} characters; {MAX_CHARACTERS} are the maximum")
    try:
        secrets = msgspec.json.decode(decrypt(rule.encrypted_secrets)) if rule.encrypted_secrets else {}
    except UnreadableSecretError as error:
        raise _GuardFailed("its credentials cannot be decrypted: enter them again") from error
    return GuardQuestion(
        id=str(new_id()),
        rule_id=rule.id,
        rule_name=rule.active.name,
        direction=direction,
        facts=facts,
        texts=texts,
        config=rule.config,
        secrets=secrets,
        now=datetime.now(UTC),
    )


def _exchange(session: requests.Session, request: GuardRequest, ends: float) -> bytes:
    left = max(ends - time.monotonic(), 0.001)
    answer = session.post(
        request.url,
        data=request.body,
        headers=request.headers,
        timeout=(min(CONNECT_TIMEOUT, left), left),
        allow_redirects=False,
        stream=True,
    )
    try:
        body: bytes = answer.raw.read(MAX_ANSWER + 1)
    finally:
        # A body that was read whole leaves the connection to the next request.
        answer.close()
    if 300 <= answer.status_code < 400:
        raise _GuardFailed("it redirects, which is not followed: enter the final address")
    if not 200 <= answer.status_code < 300:
        raise _GuardFailed(f"it answered {answer.status_code}")
    if len(body) > MAX_ANSWER:
        raise _GuardFailed(f"it answered with more than {MAX_ANSWER} bytes")
    return body


def _checked(findings: list[OutsideFinding], texts: Sequence[OutsideText]) -> list[OutsideFinding]:
    """Return findings whose places exist. Raises UnusableAnswer."""
    if len(findings) > MAX_FINDINGS:
        raise UnusableAnswer(f"the answer has more than {MAX_FINDINGS} findings")
    for one in findings:
        if not 0 <= one.text < len(texts):
            raise UnusableAnswer(f"the answer names text {one.text}; there are {len(texts)}")
        end = len(texts[one.text].text) if one.end is None else one.end
        if not 0 <= one.start < end <= len(texts[one.text].text):
            raise UnusableAnswer(f"the answer names characters {one.start} to {end} of text {one.text}")
    return findings


def _new_session(address: SafeAddress) -> requests.Session:
    session = address.session()
    session.headers.update({"User-Agent": "model-gateway", "Accept-Encoding": "identity"})
    return session


def _kept(kept: OrderedDict[Key, Value], key: Key, make: Callable[[], Value]) -> Value:
    """Return what a process keeps for a guard, made where there is none; the least recently used goes first."""
    value = kept.pop(key, None)
    kept[key] = value = make() if value is None else value
    while len(kept) > _MAX_KEPT:
        kept.popitem(last=False)
    return value
