"""Secrets: exactly the right characters; placeholders, documented examples and code are none.

The bars hold for the labelled texts, which the rule was improved on: they keep the figures from falling, and say less
about new texts. The file of texts has one character of each secret escaped, so that scanners of
repositories, which read bytes, find none in it.
"""

from __future__ import annotations

import re
import sys

import pytest

from tests.guardrails.corpus.making_pii import secret
from tests.guardrails.measuring import CORPUS, found, labelled, measured, rows_of, spans

RULE = "secrets"
PRECISION, RECALL = 0.98, 0.95
BODY = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgXf3Qy8m1n2b3v4c5"


def test_labelled_texts_reach_the_bars(capsys: pytest.CaptureFixture[str]) -> None:
    figures = measured(RULE, labelled(RULE))
    with capsys.disabled():
        sys.stdout.write(f"\n{RULE}, spans of the corpus: {figures}\n")
    assert (figures.precision >= PRECISION, figures.recall >= RECALL) == (True, True), figures.failures


def test_made_texts_reach_the_bars(capsys: pytest.CaptureFixture[str]) -> None:
    figures = measured(RULE, [(made.text, list(made.found)) for made in secret(20)])
    with capsys.disabled():
        sys.stdout.write(f"\n{RULE}, spans of made texts: {figures}\n")
    assert (figures.precision >= PRECISION, figures.recall >= RECALL) == (True, True), figures.failures


def test_half_of_the_texts_only_look_alike() -> None:
    rows = rows_of(RULE)
    assert len(rows) >= 200
    assert sum(not row["attack"] for row in rows) * 2 >= len(rows)
    assert len({row["text"] for row in rows}) == len(rows)


def test_the_file_of_texts_holds_no_secret_itself() -> None:
    bytes_of_file = (CORPUS / f"{RULE}.jsonl").read_text()
    secrets = [text for row in rows_of(RULE) for _, text in row.get("found", [])]
    assert [text for text in secrets if len(text) > 16 and "\n" not in text and text in bytes_of_file] == []


def test_the_whole_block_of_a_private_key_is_the_finding() -> None:
    block = f"-----BEGIN EC PRIVATE KEY-----\n{BODY}\n{BODY}\n-----END EC PRIVATE KEY-----"
    assert found(RULE, f"Look:\n{block}\nis it right?") == [("PRIVATE_KEY", block)]


def test_a_private_key_without_its_end_is_found_as_far_as_it_goes() -> None:
    begun = f"-----BEGIN PRIVATE KEY-----\n{BODY}\n{BODY}"
    [span] = spans(RULE, begun)
    assert (span.start, span.end, span.pattern) == (0, len(begun), "private_key")


def test_only_the_value_is_the_finding() -> None:
    assert found(RULE, "DATABASE_URL=postgres://app:kJ8s0q2LmZ@db/main") == [("PASSWORD", "kJ8s0q2LmZ")]
    assert found(RULE, 'password = "S3cure!Pass9", user = "bob"') == [("PASSWORD", "S3cure!Pass9")]


def test_a_web_token_needs_a_header_that_names_an_algorithm() -> None:
    assert found(RULE, "eyJmb28iOiJiYXIiLCJ4IjoxfQ.eyJzdWIiOiI3NyJ9.c2lnbmF0dXJl") == []


def test_of_a_json_web_key_the_private_member_is_the_finding() -> None:
    private = "nbQ7xWv2Kz9Lr4Tt0Ypa-e8Jm1CsGd5Hf6Uo3Ik_RwM"
    assert found(RULE, f'{{"kty": "EC", "crv": "P-256", "d": "{private}"}}') == [("PRIVATE_KEY", private)]
    assert found(RULE, f'{{"kind": "row", "d": "{private}"}}') == []


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("otpauth://totp/Shop:ann?secret=", "JERZOR2XLQYTUQG7YBZYHLK3KSLRYTWB", "&issuer=Shop"),
        ("key=secret-token:", "q8Zr2Lm6Xt0Vb4Nc9Ks7", " "),
        ("kubeadm join 10.0.0.5:6443 --token ", "x7k2qp.9f3mz4w8t1vb6n5c", " --discovery-token-unsafe"),
        ("sign with ", "signkey-prod-" + "9f3e1b7c5d2a80647e93bc15fa20d846" * 2, " on start"),
        ("of LinkedIn: ", "WPL_AP1." + "kT7wQ2zR9mX4vB6n.Lp3sYg==", " (app)"),
        ("psql with ", "AVNS_" + "x7Kq2Wp9Lr4Tt0Ypae8", " as avnadmin"),
    ],
)
def test_keys_of_standards_and_issuers_are_found_alone(before: str, value: str, after: str) -> None:
    assert found(RULE, before + value + after) == [("SECRET", value)]
    assert found(RULE, before + "x" * len(value) + after) == []


def test_something_invisible_inside_hides_nothing() -> None:
    token = "gw_live_" + "aB3dE5gH7jK9mN1pQ2sT\u200b4vW6yZ8bC0dF2hJ4kL6n"
    assert found(RULE, f"use {token} now") == [("SECRET", token)]


def test_patterns_have_short_stable_names() -> None:
    names = {span.pattern for row in rows_of(RULE) for span in spans(RULE, row["text"])}
    assert [name for name in names if not re.fullmatch(r"[a-z][a-z0-9_]{1,30}", name)] == []


@pytest.mark.parametrize(
    "line",
    [
        # The first lines of keys without their heads: OpenSSH's, and RSA's of 1,024 bits.
        "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW",
        "MIICWwIBAAKBgQCd8LR3+AogzYh2k+zOacr5csOwNoZWbb7Ta8luLtsGIs+TU8FM",
    ],
)
def test_a_private_key_without_its_head_is_found(line: str) -> None:
    assert found("secrets", f"{line}\nQyNTUxOQ\n") == [("PRIVATE_KEY", line)]
