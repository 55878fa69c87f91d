"""The tree of a pattern: what it is made of, as RE2 reads it."""

from __future__ import annotations

import pytest

from apps.guardrails.regex.pattern_tree import Alternatives, Character, Node, Repeat, Sequence, parse


def written(text: str, *, ignores_case: bool = False) -> tuple[Node, ...]:
    """Return the characters of a text."""
    return tuple(Character(one, (one,), ignores_case) for one in text)


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("ab", written("ab")),
        (r"\bab$", (Sequence(()), *written("ab"), Sequence(()))),
        (
            r"\.\x{e9}\n",
            (Character(r"\.", (".",), False), Character(r"\x{e9}", ("é",), False), Character(r"\n", ("\n",), False)),
        ),
        (r".\d\pL\p{Greek}", tuple(Character(one, None, False) for one in (".", r"\d", r"\pL", r"\p{Greek}"))),
        ("[]_-]", (Character("[]_-]", ("]", "_", "-"), False),)),
        (
            r"[^a][a-c][\w.][[:alpha:]]",
            tuple(Character(one, None, False) for one in ("[^a]", "[a-c]", r"[\w.]", "[[:alpha:]]")),
        ),
        (
            "a*b+?c{2}d{3,}e{4,5}{",
            (
                *(
                    Repeat(written(one)[0], *bounds)
                    for one, *bounds in (("a", 0, None), ("b", 1, None), ("c", 2, 2), ("d", 3, None), ("e", 4, 5))
                ),
                *written("{"),
            ),
        ),
        (
            "a?(?P<name>b|c)",
            (Repeat(written("a")[0], 0, 1), Alternatives((Sequence(written("b")), Sequence(written("c"))))),
        ),
        (
            "(?i)a(?-i:b)(?s:c)",
            (
                Sequence(()),
                *written("a", ignores_case=True),
                Sequence(written("b")),
                Sequence(written("c", ignores_case=True)),
            ),
        ),
        (
            "(?:(?i)a|b)c",
            (
                Alternatives(
                    (
                        Sequence((Sequence(()), *written("a", ignores_case=True))),
                        Sequence(written("b", ignores_case=True)),
                    )
                ),
                *written("c"),
            ),
        ),
    ],
)
def test_a_pattern_is_read_as_re2_does(pattern: str, parts: tuple[Node, ...]) -> None:
    assert parse(pattern) == Sequence(parts)


def test_an_end_without_a_beginning_is_refused() -> None:
    with pytest.raises(ValueError, match="has not begun"):
        parse("a)b")
