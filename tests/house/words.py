"""Finds words and turns of phrase that the project does not use (CONTRIBUTING, "Words"), with their places.

`script/words [FOLDER ...]` prints them; `test_words.py` counts them. Read are docstrings, comments and messages (string
literals with a space in them) of Python modules, and the whole text of templates, pages, documents and scripts.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from gateway_project.configuration.data_directory import PROJECT

_WORDS = [
    # Pronouns that take the place of a noun which the reader needs.
    "whoever",
    "whosoever",
    "nobody",
    "somebody",
    "anybody",
    "what (?:is|are|was|were) (?!(?:wrong|new|next|the)\\b)",
    "that one",
    "those that there are",
    "who knows",
    # Words from older English.
    "anew",
    "hardly",
    "lest",
    "thereof",
    "wherein",
    "once more",
    "in (?:the|its|their) (?:place|stead) of",
    "(?:is|are|be|was|were|been) (?:told|hushed)",
    "(?:stand|stands|stood|standing) in",
    "(?:speak|speaks|spoke|spoken) (?:of|for|to)",
    "(?:hear|hears|heard) of",
    "held against",
    "requests? to come",
    "of (?:itself|themselves)",
    "(?:is|are|as) it were",
    # The glossary has one spelling of it.
    "catalogues?",
    # The formula that modules once opened with; import contracts say it better.
    "must never know",
]
"""Regular expressions without regard to case; a space in them matches any white space."""

_OPENINGS = "Of|What|Who|Whoever|Whatever|Knows"
_BANNED = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b".replace(" ", r"\s+"), re.IGNORECASE)
_OPENING = re.compile(rf"(?:^[\s#>*|/-]*|[.!?:>]\s+|>\s*)(?P<word>{_OPENINGS})\s", re.MULTILINE)
_EXAMPLES = re.compile(r"<!-- words: examples -->.*?<!-- words: end -->", re.DOTALL)
_QUESTION = re.compile(r"[^.!?<]*\?")
_CONSTANT = re.compile(r"^_?(?:MOST|LONGEST)(?:_|$)")

_TEXT_ENDINGS = {".html", ".js", ".css", ".md", ".txt", ".toml", ".sh"}
_SKIPPED = {"migrations", "vendor", "node_modules", "__pycache__", "corpora", "corpus", "wire"}


class Hit(NamedTuple):
    """A banned word: the file, relative to the project, its line, and the words found."""

    path: Path
    line: int
    words: str


def read_files(folder: str) -> Iterator[Path]:
    """Yield the files below a folder of the project whose text people read, or the file itself."""
    root = PROJECT / folder
    for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
        if not path.is_file() or _SKIPPED & set(path.relative_to(PROJECT).parts):
            continue
        if path.suffix in {".py", *_TEXT_ENDINGS} or path.parent == PROJECT / "script":
            yield path


def find_hits(path: Path) -> list[Hit]:
    """Return the banned words of one file. The messages of tests and benchmarks are data, and are not read."""
    text = path.read_text()
    parts = path.relative_to(PROJECT).parts
    product = parts[0] not in {"tests", "bench"}
    if path.suffix == ".toml" and "guardrails" in parts:
        # The rest is the patterns of attacks.
        text = "\n".join(line if line.startswith("#") else "" for line in text.split("\n"))
    pieces = _prose_of_python(text, messages=product) if path.suffix == ".py" else _prose_of_text(text)
    found = [(line, words) for start, piece in pieces for line, words in _find_in_prose(start, piece)]
    if path.suffix == ".py":
        found += _old_constants(text)
    return [Hit(path.relative_to(PROJECT), line, words) for line, words in sorted(found)]


def _find_in_prose(start: int, text: str) -> Iterator[tuple[int, str]]:
    for match in _BANNED.finditer(text):
        yield start + text.count("\n", 0, match.start()), " ".join(match[0].split())
    for match in _OPENING.finditer(text):
        if not _QUESTION.match(text, match.end()):
            yield start + text.count("\n", 0, match.start("word")), f"{match['word']} …"


def _prose_of_python(text: str, *, messages: bool) -> Iterator[tuple[int, str]]:
    """Yield docstrings, comments (lines that follow one another as one) and messages, each with its first line."""
    tree = ast.parse(text)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstrings |= {id(statement.value) for statement in node.body if isinstance(statement, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or " " not in node.value:
            continue
        if messages or id(node) in docstrings:
            yield node.lineno, node.value
    yield from _comments(text)


def _prose_of_text(text: str) -> Iterator[tuple[int, str]]:
    """Yield the text with blank lines for the examples that a guide quotes."""
    yield 1, _EXAMPLES.sub(lambda match: "\n" * match[0].count("\n"), text)


def _comments(text: str) -> Iterator[tuple[int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {token.start[0]: token.string.lstrip("#! ") for token in tokens if token.type == tokenize.COMMENT}
    if not lines:
        return
    numbers = sorted(lines)
    starts = [numbers[0], *(after for before, after in pairwise(numbers) if after != before + 1)]
    for first, end in pairwise([*starts, numbers[-1] + 1]):
        yield first, "\n".join(lines[number] for number in numbers if first <= number < end)


def _old_constants(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and _CONSTANT.match(node.id):
            yield node.lineno, node.id


def main(folders: list[str]) -> None:
    """Print each hit as `path:line: words`, then their number."""
    hits = [hit for folder in folders for path in read_files(folder) for hit in find_hits(path)]
    for hit in hits:
        sys.stdout.write(f"{hit.path}:{hit.line}: {hit.words}\n")
    sys.stdout.write(f"{len(hits)} found\n")


if __name__ == "__main__":
    main(sys.argv[1:] or ["."])
