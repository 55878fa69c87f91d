"""`script/bench clean_corpus FOLDER`: how often the default rules act on ordinary files that agents read.

Reads copies of public repositories, `FOLDER/OWNER+NAME` (a work tree, a bare repository, or a folder `repo` with one).
`--fetch` clones those that are not there, `--split` takes other sources, and `--named` writes the path of each file
before its text, as many agents do. Every text file up to 64 KB and the history of
each repository counts, once as a user's text and once as a result of a tool. Rules that only mask or warn there are
left out. None of the texts is kept in this project.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from apps.guardrails.findings.scan_types import TOOL_RESULT, Finding, Segment
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import CompiledGuardrails, EngineConfig, SystemRuleState
from apps.guardrails.text.scanned_text import ScannedText
from bench.attack_recall import wilson


class CleanSource(NamedTuple):
    """The licence of a public repository, and the commit of it that was measured."""

    licence: str
    commit: str


# Sources whose texts served to mend the rules.
SOURCES: Final = {
    "actions/starter-workflows": CleanSource("MIT", "103524488"),
    "Aider-AI/aider": CleanSource("Apache-2.0", "5dc9490bb"),
    "ansible/ansible": CleanSource("GPL-3.0", "c9ac477e5"),
    "anthropics/skills": CleanSource("Apache-2.0, but for four skills that are not read", "9d2f1ae18"),
    "BurntSushi/ripgrep": CleanSource("MIT or Unlicense", "3fce3b5bb"),
    "caddyserver/caddy": CleanSource("Apache-2.0", "0cf03d32f"),
    "composer/composer": CleanSource("MIT", "eba7baa59"),
    "continuedev/continue": CleanSource("Apache-2.0", "d0a3c0b62"),
    "danielmiessler/fabric": CleanSource("MIT", "272f04dd3"),
    "deepset-ai/haystack": CleanSource("Apache-2.0", "c7cb46c0f"),
    "docker-library/docs": CleanSource("MIT", "c4a9ba414"),
    "encode/httpx": CleanSource("BSD-3-Clause", "ae1b9f662"),
    "expressjs/express": CleanSource("MIT", "a3714473f"),
    "gin-gonic/gin": CleanSource("MIT", "dcaa4296d"),
    "github/awesome-copilot": CleanSource("MIT", "ab7544d03"),
    "github/gitignore": CleanSource("CC0-1.0", "dcc0fc7bc"),
    "h5bp/server-configs-nginx": CleanSource("MIT", "663057006"),
    "hashicorp/terraform-provider-google": CleanSource("MPL-2.0", "e03b7622a"),
    "jestjs/jest": CleanSource("MIT", "52db46e50"),
    "junegunn/fzf": CleanSource("MIT", "956562daa"),
    "lm-sys/FastChat": CleanSource("Apache-2.0", "0e6d3e4be"),
    "logpai/loghub": CleanSource("for research", "dd61d0952"),
    "microsoft/semantic-kernel": CleanSource("MIT", "b39d95a34"),
    "modelcontextprotocol/modelcontextprotocol": CleanSource("MIT", "b0f60ba54"),
    "modelcontextprotocol/servers": CleanSource("MIT", "76d64c822"),
    "pallets/flask": CleanSource("BSD-3-Clause", "2ac89889f"),
    "PatrickJS/awesome-cursorrules": CleanSource("CC0-1.0", "b044f956f"),
    "prometheus/prometheus": CleanSource("Apache-2.0", "d15adb9ad"),
    "psf/requests": CleanSource("Apache-2.0", "1f6589ec3"),
    "rails/rails": CleanSource("MIT", "2a2db1e8d"),
    "simonw/llm": CleanSource("Apache-2.0", "f3f4f29c6"),
    "spring-projects/spring-boot": CleanSource("Apache-2.0", "c329ffa25"),
    "vitejs/vite": CleanSource("MIT", "a98c8d95d"),
    "VoltAgent/awesome-claude-code-subagents": CleanSource("MIT", "c9e51ec0b"),
    "wshobson/agents": CleanSource("MIT", "367cb6a4a"),
}
# Sources that were measured after the rules were mended, each time once. Their texts served nothing.
HELD_BACK: Final = {
    "cline/cline": CleanSource("Apache-2.0", "21cb8d252"),
    "kubernetes/ingress-nginx": CleanSource("Apache-2.0", "dbb11b92d"),
    "laravel/framework": CleanSource("MIT", "bd71b45fb"),
    "obra/superpowers": CleanSource("MIT", "44c9b2d6e"),
    "tokio-rs/tokio": CleanSource("MIT", "ea91b33ca"),
}
# Sources that were chosen by name and fetched on 2026-11-28, after the rules were frozen. Rules were mended with them
# later.
FRESH: Final = {
    "axios/axios": CleanSource("MIT", "23a25af06"),
    "dotnet/eShop": CleanSource("MIT", "5624ad564"),
    "elixir-lang/elixir": CleanSource("Apache-2.0", "63a7a054c"),
    "fastapi/fastapi": CleanSource("MIT", "c3f316b7e"),
    "github/spec-kit": CleanSource("MIT", "27f50f7e6"),
    "google-gemini/gemini-cli": CleanSource("Apache-2.0", "5411f113c"),
    "helm/helm": CleanSource("Apache-2.0", "e9b85e4de"),
    "puma/puma": CleanSource("BSD-3-Clause", "ff2e2126e"),
    "traefik/traefik": CleanSource("MIT", "fd5a576df"),
    "vuejs/core": CleanSource("MIT", "e2bede961"),
}
# Sources of December 2026: measured with the rules as they were, then read to mend them. Others, measured after that.
DECEMBER: Final = {
    "All-Hands-AI/OpenHands": CleanSource("MIT, but for enterprise/", "156d0686c"),
    "browser-use/browser-use": CleanSource("MIT", "85ddbfedf"),
    "crewAIInc/crewAI": CleanSource("MIT", "f4731f502"),
    "curl/curl": CleanSource("curl", "5c61e1686"),
    "encode/django-rest-framework": CleanSource("BSD-3-Clause", "751a19fe1"),
    "humanlayer/12-factor-agents": CleanSource("Apache-2.0", "dea2264b3"),
    "keycloak/keycloak-documentation": CleanSource("none stated", "5e86a8ded"),
    "langchain-ai/langgraph": CleanSource("MIT", "f09cfe8ff"),
    "mattermost/docs": CleanSource("BSD-3-Clause", "9dd1c713e"),
    "ollama/ollama": CleanSource("MIT", "fb3076099"),
    "pydantic/pydantic-ai": CleanSource("MIT", "4fda38988"),
    "redis/redis-py": CleanSource("MIT", "34817ce2a"),
    "stripe/stripe-python": CleanSource("MIT", "6c6e3736d"),
    "supabase/auth": CleanSource("MIT", "bc32168e1"),
    "x1xhlol/system-prompts-and-models-of-ai-tools": CleanSource("GPL-3.0", "b8e95891f"),
}
DECEMBER_FRESH: Final = {
    "agno-agi/agno": CleanSource("Apache-2.0", "9644f2298"),
    "astral-sh/uv": CleanSource("MIT or Apache-2.0", "26a9dd4b2"),
    "grafana/loki": CleanSource("AGPL-3.0", "65e30f848"),
    "microsoft/autogen": CleanSource("CC-BY-4.0 and MIT", "027ecf0a3"),
    "minio/mc": CleanSource("AGPL-3.0", "77f82e18b"),
    "sveltejs/svelte": CleanSource("MIT", "15720b16a"),
}
SPLITS: Final = {
    "known": SOURCES,
    "held-back": HELD_BACK,
    "fresh": FRESH,
    "december": DECEMBER,
    "december-fresh": DECEMBER_FRESH,
}
_NOT_READ: Final = re.compile(r"^skills/(?:docx|pdf|pptx|xlsx)/")
MAX_BYTES: Final = 64 * 1024
# Commits of a repository's history that are read, and in one text.
MAX_COMMITS: Final = 2000
COMMITS_A_TEXT: Final = 20
# Kinds of files by their path; the first that matches.
_KINDS: Final = (
    (
        "fixtures of tests",
        r"(?:^|/)(?:test_?data|fixtures?|__snapshots__|test_files|cassettes)/|\.(?:pem|key|crt|cer)$",
    ),
    (
        "CI",
        r"(?:^|/)\.(?:github/workflows|circleci|azure-pipelines|buildkite)/|(?:^|/)ci/.*\.ya?ml$|^\.gitlab-ci|"
        r"action\.ya?ml$",
    ),
    (
        "prompts and skills",
        r"(?:SKILL|AGENTS|CLAUDE|GEMINI)\.md$|\.(?:prompt|instructions|agent|chatmode|mdc)(?:\.md)?$|\.cursorrules|"
        r"(?:^|/)(?:agents|skills|prompts|commands|subagents|categories|rules)/.*\.(?:md|mdc|txt)$",
    ),
    ("schemas", r"(?:schema|openapi|swagger|mcp)[\w.-]*\.(?:json|ya?ml)$"),
    ("lock files", r"(?:lock|\.sum|package-lock\.json|lock\.json|lock\.yaml)$"),
    ("logs", r"\.(?:log|out)$|_2k\.log"),
    ("tests", r"(?:^|/)(?:tests?|spec|__tests__)/|_test\.\w+$|(?:^|/)test_\w+\.py$|\.(?:test|spec)\.[jt]sx?$"),
    (
        "documentation",
        r"\.(?:md|mdx|rst|adoc|txt|html?|rdoc)$|(?:^|/)(?:README|CHANGELOG|LICENSE|NOTICE)[^/]*$",
    ),
    ("settings", r"\.(?:json|ya?ml|toml|ini|cfg|conf|env|properties|tf|xml|csv)$"),
    ("notebooks", r"\.ipynb$"),
    ("code", r""),
)
_COMPILED: Final = tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS)

# The default rules, without those that never block.
RULES: Final = {
    "pii_detection": SystemRuleState(enabled=False),
    "secrets": SystemRuleState(roles={TOOL_RESULT: "allow"}),
}


class CleanText(NamedTuple):
    """One text of a source, its kind, and the name of its file."""

    kind: str
    name: str
    text: str


class Tally(NamedTuple):
    """By kind of text: how many there are, and how many are blocked, neutralized, or either, by one rule or another;
    of the last, how many hold a whole private key and nothing else that is found."""

    texts: Counter[str]
    blocked: Counter[str]
    neutralized: Counter[str]
    either: Counter[str]
    private_keys: Counter[str]
    by_rule: Counter[str]


def git_directory(folder: Path, source: str) -> Path | None:
    """Return the git directory of a source's copy; None where there is none."""
    copy = folder / source.replace("/", "+")
    return next((one for one in (copy / ".git", copy / "repo", copy) if (one / "HEAD").exists()), None)


def read_texts(git: Path) -> Iterator[CleanText]:
    """Yield a repository's history, then the text files of its newest commit in an order that has nothing to do with
    their places."""
    log = _git(git, "log", f"-n{MAX_COMMITS}", "--format=%x00commit %H%nAuthor: %an <%ae>%nDate: %ad%n%n%B", "--stat")
    commits = log.decode("utf-8", "replace").split("\0")[1:]
    while commits:
        text, commits = "".join(commits[:COMMITS_A_TEXT]), commits[COMMITS_A_TEXT:]
        yield CleanText("git logs", text[7:19], text)
    listed = _git(git, "ls-tree", "-r", "-z", "HEAD").decode("utf-8", "replace").split("\0")
    blobs = [(line.partition("\t")[2], line.split()[2]) for line in listed if line.startswith("100")]
    with subprocess.Popen(
        ("git", f"--git-dir={git}", "cat-file", "--batch"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for name, blob in sorted(blobs, key=lambda blob: sha256(blob[0].encode()).digest()):
            if _NOT_READ.match(name):
                continue
            reader.stdin.write(f"{blob}\n".encode())
            reader.stdin.flush()
            head = reader.stdout.readline().split()
            if len(head) < 3:
                continue
            data = reader.stdout.read(int(head[2]))
            reader.stdout.read(1)
            text = _text_of(data)
            if text is not None:
                yield CleanText(kind_of(name), name, text)
        reader.stdin.close()


def kind_of(name: str) -> str:
    """Return the kind of a file by its path."""
    return next(kind for kind, pattern in _COMPILED if pattern.search(name))


def acts(compiled: CompiledGuardrails, text: ScannedText, role: str) -> list[Finding]:
    """Return the findings of a text that are blocked or neutralized."""
    findings = engine.screen(compiled, [Segment(text, role)]).findings
    return [finding for finding in findings if not finding.observed and finding.action in ("block", "neutralize")]


def measure(
    compiled: CompiledGuardrails, texts: Iterator[CleanText], source: str, shown: dict[str, list[str]]
) -> dict[str, Tally]:
    """Return what the rules do to the texts of a source, by role; `shown` takes in those blocked or neutralized."""
    tallies = {role: _empty() for role in ("user", TOOL_RESULT)}
    for kind, name, text in texts:
        scanned = ScannedText(text)
        for role, tally in tallies.items():
            tally.texts[kind] += 1
            findings = acts(compiled, scanned, role)
            actions = {finding.action for finding in findings}
            tally.blocked[kind] += "block" in actions
            tally.neutralized[kind] += "neutralize" in actions
            tally.either[kind] += bool(actions)
            tally.private_keys[kind] += {span.pattern for one in findings for span in one.spans} == {"private_key"}
            tally.by_rule.update({finding.rule_id for finding in findings})
            shown[role] += [
                f"{kind}\t{finding.rule_id}\t{span.pattern}\t{source}/{name}\t"
                f"{text[max(0, span.start - 60) : span.end + 60]!r}"
                for finding in findings
                for span in finding.spans[:3]
            ]
    return tallies


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fetch", action="store_true", help="clone the sources that are not there")
    parser.add_argument("--shown", type=Path, help="folder for lists of what was blocked, by role")
    parser.add_argument("--most", type=int, help="texts of one source that are read at most")
    parser.add_argument("--named", action="store_true", help="write the path of each file before its text")
    parser.add_argument("--sources", nargs="*", help="these alone")
    parser.add_argument("--split", choices=SPLITS, default="known", help="which sources")
    asked = parser.parse_args()
    sources = asked.sources or list(SPLITS[asked.split])
    compiled = engine.compile_guardrails(EngineConfig(system_rules=RULES))
    totals: dict[str, Tally] = {}
    shown: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        if asked.fetch and git_directory(asked.folder, source) is None:
            address, copy = f"https://github.com/{source}.git", asked.folder / source.replace("/", "+")
            subprocess.run(("git", "clone", "--bare", "--depth", str(MAX_COMMITS), address, str(copy)), check=True)
        git = git_directory(asked.folder, source)
        if git is None:
            sys.stderr.write(f"{source} is not there\n")
            continue
        texts = islice(read_texts(git), asked.most)
        if asked.named:
            texts = (one._replace(text=f"{one.name}\n```\n{one.text}") for one in texts)
        found = measure(compiled, texts, source, shown)
        for role, tally in found.items():
            known = totals.setdefault(role, _empty())
            totals[role] = Tally(*(before + new for before, new in zip(known, tally, strict=True)))
        counts = ", ".join(
            f"{role} {sum(tally.either.values())} of {sum(tally.texts.values())}" for role, tally in found.items()
        )
        listed = next((known[source] for known in SPLITS.values() if source in known), None)
        sys.stderr.write(f"{source} ({listed.licence if listed else 'licence not listed'}): {counts}\n")
    for role, tally in totals.items():
        print_table(role, tally)
        if asked.shown is not None:
            (asked.shown / f"{role}.tsv").write_text("\n".join(shown[role]), encoding="utf-8")


def print_table(role: str, tally: Tally) -> None:
    """Print what rules do to the texts of one role, by kind."""
    sys.stdout.write(
        f"\n{role}\n| kind | texts | blocked | neutralized | either | private keys |\n|---|--:|--:|--:|---|--:|\n"
    )
    for kind in ["", *(kind for kind, _ in tally.texts.most_common())]:
        texts, blocked, neutralized, either, keys = (
            sum(counted.values()) if not kind else counted[kind] for counted in tally[:5]
        )
        low, high = wilson(either, max(1, texts))
        share = f"{either / max(1, texts):.2%} ({low:.2%} to {high:.2%})"
        sys.stdout.write(f"| {kind or 'all'} | {texts:,} | {blocked} | {neutralized} | {share} | {keys} |\n")
    sys.stdout.write("".join(f"{rule}: {count}\n" for rule, count in tally.by_rule.most_common()))


def _empty() -> Tally:
    return Tally(Counter(), Counter(), Counter(), Counter(), Counter(), Counter())


def _text_of(data: bytes) -> str | None:
    if not data or len(data) > MAX_BYTES or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _git(git: Path, *command: str) -> bytes:
    # A copy may lack objects that some commits need.
    return subprocess.run(("git", f"--git-dir={git}", *command), check=False, capture_output=True).stdout


if __name__ == "__main__":
    main()
