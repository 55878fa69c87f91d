"""Estimates of texts without a provider's count, against a real tokenizer's counts (o200k, taken once)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.canonical.chat import Chat, File, Message, OpaqueTool, Part, Text, ToolResult
from apps.gateway.token_estimate import TOKENS_PER_MESSAGE, estimate_prompt_tokens, estimate_tokens, token_weight

# A text, what o200k makes of it, and what it is estimated at.
COUNTED = [
    ("The committee met on Tuesday to discuss the proposal for a new library in the northern district.", 18, 24),
    ("Der Ausschuss trat am Dienstag zusammen, um über den Vorschlag für eine neue Bibliothek im nördl", 22, 25),
    ("Ủy ban đã họp vào thứ Ba để thảo luận về đề xuất xây dựng một thư viện mới ở quận phía bắc. Một ", 31, 28),
    ("Во вторник комитет собрался, чтобы обсудить предложение о строительстве новой библиотеки в север", 21, 31),
    ("У вівторок комітет зібрався, щоб обговорити пропозицію про будівництво нової бібліотеки в північ", 34, 31),
    ("Η επιτροπή συνεδρίασε την Τρίτη για να συζητήσει την πρόταση για μια νέα βιβλιοθήκη στη βόρεια π", 33, 31),
    ("اجتمعت اللجنة يوم الثلاثاء لمناقشة الاقتراح الخاص بإنشاء مكتبة جديدة في الحي الشمالي. وأعرب العد", 29, 31),
    ("समिति ने मंगलवार को उत्तरी जिले में एक नए पुस्तकालय के प्रस्ताव पर चर्चा करने के लिए बैठक की। कई", 24, 31),
    ("คณะกรรมการได้ประชุมกันเมื่อวันอังคารเพื่อหารือเกี่ยวกับข้อเสนอสำหรับห้องสมุดแห่งใหม่ในเขตเหนือ ส", 32, 32),
    (
        "委員會於週二召開會議，討論在北部地區新建圖書館的提案。幾名成員對費用表示擔憂，而其他人則指出現有建築自一九七四年以來從未翻新過。",
        63,
        54,
    ),
    (
        "委員会は火曜日に会合を開き、北部地区に新しい図書館を建設する提案について話し合った。数人の委員は費用について懸念を示した",
        49,
        50,
    ),
    (
        "위원회는 화요일에 모여 북부 지역에 새 도서관을 짓자는 제안을 논의했다. 여러 위원이 비용에 대해 우려를 표했다.",
        38,
        43,
    ),
    ("Great job 🎉🎉 see you soon 👋🏽 ❤️ 😂😂😂 party at 8 🍕🍺 don't be late ⏰", 31, 29),
    ("export function debounce(fn, wait = 100) {\n  let timer = null;\n  return function (...args) {\n   ", 25, 24),
]


@pytest.mark.parametrize(("text", "counted", "estimate"), COUNTED)
def test_an_estimate_is_within_a_half_of_the_count(text: str, counted: int, estimate: int) -> None:
    assert estimate_tokens(text) == estimate
    assert 0.8 * counted < estimate < 1.5 * counted


@given(st.lists(st.text(max_size=40), max_size=20))
def test_the_weights_of_pieces_add_up_to_the_weight_of_the_whole(pieces: list[str]) -> None:
    """However an answer is cut into deltas, its estimate is the same."""
    assert sum(map(token_weight, pieces)) == token_weight("".join(pieces))


@given(st.text(max_size=200))
def test_text_weighs_something_unless_there_is_none(text: str) -> None:
    assert (estimate_tokens(text) > 0) == bool(text)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("\ud800", 1), ("\0", 1)])
def test_the_edges(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def prompt_of(part: Part) -> int:
    """Return what a prompt of one part is estimated at, beside what a message counts."""
    chat = Chat(model="m", messages=[Message(role="user", parts=[part])])
    return estimate_prompt_tokens(chat) - TOKENS_PER_MESSAGE


BASE64 = "TG9yZW0gaXBzdW0gZG9sb3Igc2l0IGFtZXQsIGNvbnNlY3RldHVyIGFkaXBpc2NpbmcgZWxpdC4g" * 20


@pytest.mark.parametrize(
    ("text", "estimate"),
    [
        (BASE64, 507),
        ("\n".join(BASE64[start : start + 76] for start in range(0, len(BASE64), 76)), 513),
        ("0123456789abcdef" * 64, 342),
        # Prose, code, JSON with blanks, other scripts, and short texts are what they were.
        ("Lorem ipsum dolor sit amet. " * 40, 280),
        ('{"name": "value", "number": 1}\n' * 40, 310),
        ("Ж" * 400, 134),
        (BASE64[:255], 64),
        # Blanks that come late count as well.
        (BASE64[:1_000] + " a" * 40, 270),
    ],
)
def test_a_prompt_without_blanks_counts_three_characters_a_token(text: str, estimate: int) -> None:
    assert prompt_of(Text(text=text)) == estimate
    assert prompt_of(ToolResult(call_id="call", parts=[Text(text=text)])) == estimate


def test_a_document_that_is_only_referred_to_is_not_nothing() -> None:
    assert prompt_of(File(url="https://acme.test/report.pdf")) == prompt_of(File(file_id="file-1")) == 4_000
    assert prompt_of(File(data="A" * 8_000)) == 1_000


def test_a_tool_of_one_format_counts_like_any_other() -> None:
    data = {"type": "computer_20250124", "display_width_px": 1024}
    chat = Chat(model="m", messages=[], tools=[OpaqueTool(dialect="anthropic", data=data)])
    assert estimate_prompt_tokens(chat) == TOKENS_PER_MESSAGE + -(-len(msgspec.json.encode(data)) // 4)
