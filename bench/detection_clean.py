"""Texts without secrets or personal data: documentation, programs, prompts and lock files of public repositories.

Pieces with an e-mail address are left out of the measurement of personal data: whether the address belongs to a person
is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bench.detection_sources import SampleSource

_MAX_LENGTH = 1500
_MAX_PIECES = 600
_UNSEEN = "held-out, unseen"


def _pieces(family: str, *patterns: str) -> Callable[[Path], Iterator[tuple[str, tuple[str, ...], str]]]:
    """Return what reads pieces of about 1,500 characters, evenly chosen from all files of these patterns."""

    def read(folder: Path) -> Iterator[tuple[str, tuple[str, ...], str]]:
        pieces = [
            piece
            for pattern in patterns
            for path in sorted(folder.glob(pattern))
            if path.is_file() and not {"test", "tests", "__tests__"} & set(path.parts)
            for piece in _split(path.read_text(errors="replace"))
        ]
        step = max(1, len(pieces) // _MAX_PIECES)
        yield from ((piece, (), family) for piece in pieces[::step])

    return read


def _split(text: str) -> Iterator[str]:
    piece: list[str] = []
    length = 0
    for line in text.splitlines():
        if length + len(line) > _MAX_LENGTH and length > 200:
            yield "\n".join(piece)
            piece, length = [], 0
        piece.append(line)
        length += len(line) + 1
    if length > 200:
        yield "\n".join(piece)


CLEAN = (
    SampleSource(
        "deepset-ai+haystack", "", "tuning", _pieces("clean: documentation", "docs-website/docs/**/*.mdx", "*.md")
    ),
    SampleSource("googleapis+python-genai", "", "tuning", _pieces("clean: code", "google/**/*.py")),
    SampleSource("f+awesome-chatgpt-prompts", "", "tuning", _pieces("clean: prose", "**/*.md", "**/*.mdx", "**/*.csv")),
    SampleSource("asgeirtj+system_prompts_leaks", "", "tuning", _pieces("hard: system prompts", "**/*.md")),
    SampleSource("mistralai+client-python", "", "tuning", _pieces("hard: lock files", "**/uv.lock")),
    SampleSource("modelcontextprotocol+conformance", "", "tuning", _pieces("hard: lock files", "package-lock.json")),
    SampleSource("trufflesecurity+trufflehog", "", "tuning", _pieces("hard: lock files", "go.sum")),
    SampleSource(
        "yizhongw+self-instruct",
        # Its articles tell when people were born.
        "secrets",
        "held-out",
        _pieces("clean: prose", "human_eval/*.jsonl", "data/finetuning/t0_train_50k/data_per_template/[c-x]*.jsonl"),
    ),
    SampleSource("lm-sys+FastChat", "", "held-out", _pieces("clean: code", "**/*.py", "**/*.md")),
    SampleSource("groq+groq-python", "", "held-out", _pieces("clean: code", "src/**/*.py", "*.md")),
    SampleSource(
        "modelcontextprotocol+modelcontextprotocol",
        "",
        "held-out",
        _pieces("clean: documentation", "docs/**/*.mdx", "docs/**/*.md", "blog/content/**/*.md"),
    ),
    SampleSource("validatorjs+validator.js", "", "held-out", _pieces("clean: code", "src/**/*.js")),
    SampleSource(
        "NVIDIA+garak", "", "held-out", _pieces("clean: code", "garak/*.py", "garak/generators/*.py", "docs/**/*.rst")
    ),
    SampleSource(
        "x1xhlol+system-prompts-and-models-of-ai-tools",
        "",
        "held-out",
        _pieces("hard: system prompts", "**/*.txt", "**/*.json"),
    ),
    SampleSource("google-gemini+generative-ai-js", "", "held-out", _pieces("hard: lock files", "package-lock.json")),
    SampleSource("promptfoo+modelaudit", "", "held-out", _pieces("hard: lock files", "uv.lock", "package-lock.json")),
    SampleSource("praetorian-inc+noseyparker", "", "held-out", _pieces("hard: lock files", "Cargo.lock")),
    # No text of these has been looked at.
    SampleSource("logpai+loghub", "secrets", _UNSEEN, _pieces("clean: logs", "*/*_2k.log")),
    SampleSource("actions+starter-workflows", "secrets", _UNSEEN, _pieces("clean: settings", "**/*.yml", "**/*.json")),
    SampleSource("terraform-aws-modules+terraform-aws-eks", "secrets", _UNSEEN, _pieces("clean: settings", "**/*.tf")),
    SampleSource("h5bp+server-configs-nginx", "secrets", _UNSEEN, _pieces("clean: settings", "**/*.conf", "**/*.yml")),
    SampleSource("BurntSushi+ripgrep", "secrets", _UNSEEN, _pieces("clean: code", "crates/**/*.rs", "*.md")),
    SampleSource("google+gson", "secrets", _UNSEEN, _pieces("clean: code", "gson/src/main/**/*.java", "*.md")),
    SampleSource("composer+composer", "secrets", _UNSEEN, _pieces("clean: code", "src/**/*.php", "doc/**/*.md")),
    SampleSource("junegunn+fzf", "secrets", _UNSEEN, _pieces("clean: code", "src/**/*.go", "shell/*", "*.md")),
    SampleSource("Alamofire+Alamofire", "secrets", _UNSEEN, _pieces("clean: code", "Source/**/*.swift", "*.md")),
    SampleSource("rack+rack", "secrets", _UNSEEN, _pieces("clean: code", "lib/**/*.rb", "*.md")),
    SampleSource("jqlang+jq", "secrets", _UNSEEN, _pieces("clean: code", "src/*.c", "src/*.h")),
    SampleSource("Alamofire+Alamofire", "secrets", _UNSEEN, _pieces("clean: pages made by programs", "docs/**/*.html")),
    SampleSource(
        "jakevdp+PythonDataScienceHandbook", "secrets", _UNSEEN, _pieces("hard: notebooks", "notebooks/*.ipynb")
    ),
    SampleSource("BurntSushi+ripgrep", "secrets", _UNSEEN, _pieces("hard: lock files", "Cargo.lock")),
    SampleSource("composer+composer", "secrets", _UNSEEN, _pieces("hard: lock files", "composer.lock")),
    SampleSource("junegunn+fzf", "secrets", _UNSEEN, _pieces("hard: lock files", "go.sum")),
)
