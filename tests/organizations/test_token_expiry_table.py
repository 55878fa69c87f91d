"""The table of what expires in docs/security.md: every module that makes tokens is in it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "security.md").read_text()
SECTION = DOCUMENT.split("## Expiry\n")[1].split("\n## ")[0]
# Code that makes or signs something that is brought back later.
MAKES = re.compile(
    r"\b(signing\.(dumps|Signer|TimestampSigner)|secrets\.(token_\w+|choice)|(?:from secrets import)|salted_hmac"
    r"|hmac\.(digest|new)|keyed_digest\(|os\.urandom|AuthToken\.objects\.create|\.set_(signed_)?cookie\("
    r"|session\[_\w+\] =|default_token_generator|PasswordResetTokenGenerator|LASTS\b.*=)"
)
# Modules that draw or sign values that let no one in, and what those are.
LETS_NOBODY_IN = {
    "apps/batches/input_lines.py": "digests of the lines of a batch",
    "apps/billing/worker_leases.py": "a name of a process",
    "apps/gateway/access/policy_cache.py": "a key of the process's own cache",
    "apps/gateway/access/policy.py": "a mark that only this process knows, for keys without a token",
    "apps/gateway/client/http_request.py": "the deployment's name in requests that it makes",
    "apps/gateway/dialects/chat/anthropic/wire.py": "ids of answers",
    "apps/gateway/dialects/chat/cohere/wire.py": "ids of answers",
    "apps/gateway/dialects/chat/google/wire.py": "ids of answers",
    "apps/gateway/dialects/chat/openai/wire.py": "ids of answers",
    "apps/gateway/dialects/chat/responses/wire.py": "ids of answers",
    "apps/gateway/endpoints/response_state.py": "ids of answers, which only their own project's keys read",
    "apps/gateway/management/commands/demo.py": "passwords",
    "apps/gateway/management/commands/settler.py": "a name of a process",
    "apps/gateway/response_cache.py": "names of kept answers",
    "apps/gateway/settlement/spool.py": "a mark of a file",
    "apps/guardrails/scanning/scan_memory.py": "a key of the process's own cache",
    "apps/kernel/secrets/encryption.py": "encryption",
    "apps/kernel/ids.py": "ids",
    "apps/kernel/pages/languages.py": "a cookie that names the language of pages",
    "apps/gateway/guard/placeholders.py": "digests of masked values",
    "apps/kernel/secrets/webhook_signature.py": "signatures of what is sent to a receiver",
    "apps/organizations/credentials/credential_state.py": "the digest that others are bound to",
    "apps/organizations/management/commands/create_operator.py": "passwords",
    "apps/organizations/accounts/mail_pages.py": "nonces of a page's style",
    "apps/mcp/protocol/sessions.py": "events of a call, which the session that made it reads alone",
    "apps/responses/event_stream.py": "events of a response, which its project's keys read alone",
    "gateway_project/diagnosis/unsafe_settings.py": "words",
    "gateway_project/configuration/env.py": "the deployment's own secrets",
}


def makers() -> set[str]:
    """Return the modules that make or sign something."""
    files = [file for folder in ("apps", "gateway_project") for file in (ROOT / folder).rglob("*.py")]
    kept = [file for file in files if "migrations" not in file.parts and "sandbox" not in file.parts]
    return {str(file.relative_to(ROOT)) for file in kept if MAKES.search(file.read_text())}


def test_every_module_that_makes_tokens_is_in_the_table() -> None:
    listed = set(re.findall(r"`((?:apps|gateway_project)/[\w/]+\.py)`", SECTION))
    missing = makers() - listed - set(LETS_NOBODY_IN)
    assert missing == set(), "state in docs/security.md how long what they make lives, and what ends it"


def test_nothing_is_excused_that_makes_nothing() -> None:
    assert set(LETS_NOBODY_IN) - makers() == set()


def test_every_row_states_a_life_and_a_test() -> None:
    rows = [line.strip("|").split(" | ") for line in SECTION.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 20
    for row in rows:
        assert len(row) == 5, row[0]
        assert all(cell.strip() for cell in row), row[0]
        assert re.search(r"`\w+/test_\w+\.py", row[4]), row[0]
