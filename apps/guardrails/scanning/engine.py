"""Rule engine: segments and files checked against compiled rules, with a verdict. Pure: no Django, no store.

Rules have one order: by priority, higher first; custom rules before system rules where it is equal. A custom rule
with `allow` that matches a text overrides the rules below it on that text: rules of lower priority, and system rules
of the same. `block` beats `neutralize` and `redact`, which beat `warn`. A rule that is observed is counted and does
nothing. A system rule has an action for each kind of speaker; what it would block in an earlier turn is neutralized.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, product
from typing import Any, NamedTuple, cast

import msgspec

from apps.guardrails.custom import MAX_RULES, BadConfig, ConversationMatcher, CustomType, Matcher, custom_types
from apps.guardrails.findings.redaction import bounded, is_masked, mask, replaced_spans
from apps.guardrails.findings.scan_types import (
    DEFAULT_PRIORITY,
    EARLIER_TURN,
    INSTRUCTING_ROLES,
    SPEAKERS,
    SYSTEM,
    UNFINISHED,
    ActiveRule,
    ArgumentMark,
    ConversationText,
    Finding,
    RuleAction,
    RuleSettings,
    ScannedFile,
    Segment,
    Span,
    ToolCallRequest,
    Verdict,
)
from apps.guardrails.findings.text_chunks import split_into_chunks
from apps.guardrails.outside import outside_types
from apps.guardrails.regex.re2_matcher import TimeBudget
from apps.guardrails.rules import PII_RULE, SystemRule, system_rules
from apps.guardrails.scanning.outside_rules import OutsideRule, compile_outside_rule
from apps.guardrails.scanning.scan_memory import ScanRecall
from apps.guardrails.scanning.text_scan import ScanTerms, find_in_text
from apps.guardrails.text.scanned_text import ScannedText


class SystemRuleState(msgspec.Struct, frozen=True):
    """An organization's settings of one system rule; `action` None means the default.

    `roles` has the actions that it chose for speakers (`SPEAKERS`), and for earlier turns (`EARLIER_TURN`); `tools`
    says of tools by their exact names whether they have effects.
    """

    enabled: bool = True
    action: RuleAction | None = None
    observe: bool = False
    restore: bool = True
    roles: Mapping[str, RuleAction] = {}
    tools: Mapping[str, bool] = {}


class RuleSource(msgspec.Struct, frozen=True, kw_only=True):
    """One custom rule as it is stored."""

    id: str
    name: str
    type: str
    config: Any
    priority: int = DEFAULT_PRIORITY
    action: RuleAction = "block"
    observe_only: bool = False
    enabled: bool = True
    restore: bool = True
    # For an outside guard.
    encrypted_secrets: bytes = b""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """An organization's guardrails, as plain values. A system rule that is not named is as it says itself."""

    enabled: bool = True
    system_rules: Mapping[str, SystemRuleState] = {}
    # The action of personal data where `system_rules` names none.
    pii_action: RuleAction | None = None
    max_file_bytes: int = 10_000_000
    allowed_file_types: tuple[str, ...] = ()
    scan_output: bool = False
    custom_rules: tuple[RuleSource, ...] = ()


class RuleMatch(NamedTuple):
    """A match of a rule in the text of one segment."""

    rule: ActiveRule
    segment: int
    spans: tuple[Span, ...]


# Returns a matcher, compiled now or earlier.
FindMatcher = Callable[[], Matcher]


def keep_matcher(compile_matcher: FindMatcher) -> FindMatcher:
    """Compile a matcher and return a function that returns it, and keeps it as long as it is kept itself."""
    matcher = compile_matcher()
    return lambda: matcher


class CompiledGuardrails(msgspec.Struct, frozen=True, kw_only=True):
    """An organization's guardrails, ready to run; made once a generation. `rules_checked` counts the rules in force.

    `number` is no other's in this process. `system` has the rules with the actions that they have for answers,
    `by_speaker` those for texts of a request: by speaker and whether the turn is an earlier one. `outside` are judged
    by services, which the engine does not ask. `custom` has functions that return matchers, as those are not kept
    forever. `tools` has the tools of which the organization says whether they have effects.
    """

    number: int = 0
    in_force: bool = False
    scan_output: bool = False
    settings: RuleSettings = RuleSettings()
    rules_checked: int = 0
    system: tuple[tuple[ActiveRule, SystemRule], ...] = ()
    by_speaker: Mapping[tuple[str, bool], tuple[tuple[ActiveRule, SystemRule], ...]] = {}
    custom: tuple[tuple[FindMatcher, tuple[ActiveRule, ...]], ...] = ()
    outside: tuple[OutsideRule, ...] = ()
    tools: Mapping[str, bool] = {}

    @property
    def checks_calls(self) -> bool:
        """Whether a rule looks at the tool calls of answers."""
        return any(rule.find_in_calls is not None for _, rule in self.system)


NO_GUARDRAILS = CompiledGuardrails()
_numbers = count(1)
# The action of a system rule depends on the speaker, and on whether the turn is an earlier one.
_PLACES = tuple(product(SPEAKERS, (False, True)))


def compile_guardrails(
    config: EngineConfig, keep: Callable[[FindMatcher], FindMatcher] = keep_matcher
) -> CompiledGuardrails:
    """Return the guardrails of `config`, ready to run. Raises BadConfig for a custom rule that cannot be.

    `keep` takes a function that compiles a matcher, and returns one that returns the matcher whenever it is needed.
    """
    if not config.enabled:
        return NO_GUARDRAILS
    placed = tuple(_system_rules_of(config))
    custom = tuple((keep(compile_matcher), rules) for compile_matcher, rules in _custom_rules_of(config))
    outside = tuple(_outside_rules_of(config))
    checked = len(placed) + sum(len(rules) for _, rules in custom)
    return CompiledGuardrails(
        number=next(_numbers),
        in_force=checked > 0 or bool(outside),
        scan_output=config.scan_output,
        settings=RuleSettings(
            max_file_bytes=config.max_file_bytes, allowed_file_types=frozenset(config.allowed_file_types)
        ),
        rules_checked=checked,
        system=tuple((active, rule) for active, rule, _ in placed if active.action != "allow"),
        by_speaker={
            key: tuple(
                (active._replace(action=actions[key]), rule)
                for active, rule, actions in placed
                if actions[key] != "allow"
            )
            for key in _PLACES
        },
        custom=custom,
        outside=outside,
        tools={tool: has for state in config.system_rules.values() for tool, has in state.tools.items()},
    )


def screen(
    compiled: CompiledGuardrails,
    segments: Sequence[Segment],
    files: Sequence[ScannedFile] = (),
    recall: ScanRecall | None = None,
) -> Verdict:
    """Return the verdict on a client's texts and files. Findings that `recall` remembers are not searched again."""
    if not compiled.in_force:
        return Verdict()
    matches = find_matches(compiled, segments, recall=recall)
    found = [(match.rule, to_finding(match)) for match in drop_overridden(matches, find_allowing_rules(matches))]
    return _verdict(segments, [*found, *_in_files(compiled, files)])


def screen_answer(compiled: CompiledGuardrails, segments: Sequence[Segment]) -> Verdict:
    """Return what becomes of a whole answer's texts, whether or not `scan_output` asks for it."""
    if not compiled.in_force:
        return Verdict()
    matches = find_matches(compiled, segments, answer=True)
    return _verdict(
        segments, [(match.rule, to_finding(match)) for match in drop_overridden(matches, find_allowing_rules(matches))]
    )


def check_calls(
    compiled: CompiledGuardrails, conversation: Sequence[ConversationText], calls: Sequence[ToolCallRequest]
) -> list[tuple[Finding, ArgumentMark]]:
    """Return the marks on the tool calls of an answer, each with the finding that reports it.

    The answer has ended: the action of a rule that is not observed is `warn`, whatever the organization chose. The
    finding's text is the mark's value alone. The organization's word on a tool counts before the tool's own statement.
    """
    calls = [call._replace(has_effects=compiled.tools.get(call.tool, call.has_effects)) for call in calls]
    return [
        (_call_finding(active, mark), mark)
        for active, rule in compiled.system
        if rule.find_in_calls is not None
        for mark in rule.find_in_calls(conversation, calls)
    ]


def find_matches(
    compiled: CompiledGuardrails,
    segments: Sequence[Segment],
    *,
    answer: bool = False,
    recall: ScanRecall | None = None,
) -> list[RuleMatch]:
    """Return all that matches in these texts, rules with `allow` included."""
    custom = tuple((find_matcher(), rules) for find_matcher, rules in compiled.custom)
    budget = TimeBudget.for_characters(sum(len(segment.text.raw) for segment in segments))
    terms = ScanTerms(budget, answer, recall)
    found: defaultdict[tuple[ActiveRule, int], list[Span]] = defaultdict(list)
    kept = _kept_by_operator((rule for _, rule in compiled.system), () if answer else segments, recall)
    for index, segment in enumerate(segments):
        settings = msgspec.structs.replace(compiled.settings, role=segment.role, kept=kept)
        key = segment.speaker, segment.is_earlier
        system = compiled.system if answer else compiled.by_speaker[key]
        for rule, span in find_in_text(system, custom, segment.text, settings, terms._replace(speaker=key[0])):
            found[rule, index].append(span)
    for matcher, rules in custom:
        if hasattr(matcher, "find_in_conversation") and not answer:
            for owner, index, span in cast(ConversationMatcher, matcher).find_in_conversation(segments):
                # A rule with `allow` cannot allow off-topic texts.
                if rules[owner].action != "allow":
                    found[rules[owner], index].append(span)
    return [RuleMatch(rule, index, bounded(spans)) for (rule, index), spans in found.items() if spans]


def find_allowing_rules(matches: Iterable[RuleMatch]) -> dict[int, ActiveRule]:
    """Return the first rule that allows each segment; an unfinished scan allows nothing."""
    allowed: dict[int, ActiveRule] = {}
    for match in matches:
        if (
            match.rule.action == "allow"
            and not match.rule.observed
            and any(s.pattern != UNFINISHED for s in match.spans)
        ):
            allowed[match.segment] = min(match.rule, allowed.get(match.segment, match.rule))
    return allowed


def drop_overridden(matches: Iterable[RuleMatch], allowed: Mapping[int, ActiveRule]) -> list[RuleMatch]:
    """Return the matches that are not overridden, without those that allow; in the order of checking."""
    return sorted(
        match
        for match in matches
        if match.rule.action != "allow"
        and not (match.segment in allowed and match.rule.is_overridden_by(allowed[match.segment]))
    )


def to_finding(match: RuleMatch) -> Finding:
    """Return the finding that reports a match."""
    rule = match.rule
    return Finding(
        rule_id=rule.id,
        rule_name=rule.name,
        category=rule.category,
        action=rule.action,
        spans=match.spans,
        segment=match.segment,
        observed=rule.observed,
        restore=rule.restore,
    )


def _call_finding(rule: ActiveRule, mark: ArgumentMark) -> Finding:
    pattern = f"{mark.kind} in {mark.tool}.{mark.argument} from {mark.source}"
    return Finding(
        rule_id=rule.id,
        rule_name=rule.name,
        category=rule.category,
        action="warn",
        spans=(Span(0, len(mark.value), pattern),),
        segment=0,
        observed=rule.observed,
        restore=rule.restore,
    )


def _verdict(segments: Sequence[Segment], found: Iterable[tuple[ActiveRule, Finding]]) -> Verdict:
    findings = tuple(finding for _, finding in sorted(found, key=lambda pair: pair[0].rank))
    masks: defaultdict[int, list[Span]] = defaultdict(list)
    for finding in findings:
        if finding.segment is not None and is_masked(finding):
            masks[finding.segment] += replaced_spans(finding, segments[finding.segment])
    return Verdict(
        blocked=next((one for one in findings if one.action == "block" and not one.observed), None),
        findings=findings,
        redactions={index: mask(segments[index].text.raw, spans) for index, spans in masks.items()},
    )


def _in_files(compiled: CompiledGuardrails, files: Sequence[ScannedFile]) -> Iterator[tuple[ActiveRule, Finding]]:
    for index, file in enumerate(files):
        for rule, system_rule in compiled.by_speaker[file.speaker, file.is_earlier]:
            reason = system_rule.find_in_file(file, compiled.settings) if system_rule.find_in_file is not None else None
            if reason is not None:
                # Nothing of a file can be masked.
                action = "block" if rule.action == "redact" else rule.action
                yield (
                    rule,
                    Finding(
                        rule_id=rule.id,
                        rule_name=rule.name,
                        category=rule.category,
                        action=action,
                        file=index,
                        reason=reason,
                        observed=rule.observed,
                    ),
                )


def _system_rules_of(
    config: EngineConfig,
) -> Iterator[tuple[ActiveRule, SystemRule, dict[tuple[str, bool], RuleAction]]]:
    """Yield the system rules in force, with their actions by speaker and for earlier turns."""
    for place, (name, rule) in enumerate(system_rules().items()):
        default = SystemRuleState(enabled=rule.default_enabled, observe=rule.default_observe)
        state = config.system_rules.get(name, default)
        preset = config.pii_action if name == PII_RULE else None
        action = state.action or preset or rule.default_action
        actions = {key: _action_at(rule, state, action, *key) for key in _PLACES}
        # A system rule that allows what it finds has nothing to look for: it overrides no other rule.
        if state.enabled and {action, *actions.values()} != {"allow"}:
            if rule.load is not None:
                rule.load()
            rank = (-DEFAULT_PRIORITY, 1, place)
            active = ActiveRule(rank, rule.rule_id, rule.name, rule.category, action, state.observe, state.restore)
            yield active, rule, actions


def _action_at(
    rule: SystemRule, state: SystemRuleState, action: RuleAction, speaker: str, is_earlier: bool
) -> RuleAction:
    """Return the action on a speaker's text: as the organization chose for the speaker, or by default."""
    here = state.roles.get(speaker) or rule.default_action_for(speaker, action)
    # A turn that was refused when it was new comes again with every later one.
    if here == "block" and is_earlier and speaker != SYSTEM:
        return state.roles.get(EARLIER_TURN, "neutralize")
    return here


def _custom_rules_of(config: EngineConfig) -> Iterator[tuple[FindMatcher, tuple[ActiveRule, ...]]]:
    """Yield the rules of each type that has any, with a function that compiles their matcher."""
    by_type: defaultdict[str, list[tuple[int, RuleSource]]] = defaultdict(list)
    for place, source in enumerate(config.custom_rules):
        if source.enabled and source.type not in outside_types():
            by_type[source.type].append((place, source))
    if sum(map(len, by_type.values())) > MAX_RULES:
        raise BadConfig("", f"There are more than {MAX_RULES} rules")
    for name, sources in by_type.items():
        type_ = custom_types().get(name)
        if type_ is None:
            raise BadConfig("type", f"Must be one of {', '.join(custom_types())}")
        # As bytes: the configurations are kept for as long as the rules are in force.
        configs = msgspec.json.encode([source.config for _, source in sources])
        yield partial(_compile_rules, type_, configs), tuple(_active_rule(source, place) for place, source in sources)


def _compile_rules(type_: CustomType, configs: bytes) -> Matcher:
    return type_.compile_rules([type_.read_config(config) for config in msgspec.json.decode(configs)])


def _outside_rules_of(config: EngineConfig) -> Iterator[OutsideRule]:
    for place, source in enumerate(config.custom_rules):
        if source.enabled and source.type in outside_types():
            yield compile_outside_rule(
                _active_rule(source, place), source.type, source.config, source.encrypted_secrets
            )


def _active_rule(source: RuleSource, place: int) -> ActiveRule:
    rank = (-source.priority, 0, place)
    observed, restore = source.observe_only, source.restore
    return ActiveRule(rank, source.id, source.name, source.type, source.action, observed, restore)


def _kept_by_operator(
    rules: Iterable[SystemRule], segments: Sequence[Segment], recall: ScanRecall | None
) -> frozenset[str]:
    """Return what all rules read in what a program's instructions say; of long ones, in the first chunk."""
    readers = [rule.read_operator for rule in rules if rule.read_operator is not None]

    def read(text: ScannedText) -> frozenset[str]:
        first = next(split_into_chunks(text)).text
        return frozenset[str]().union(*(read_operator(first) for read_operator in readers))

    instructions = [one.text for one in segments if readers and one.role in INSTRUCTING_ROLES]
    return frozenset[str]().union(
        *(read(text) if recall is None else recall.read_instructions(text, read) for text in instructions)
    )
