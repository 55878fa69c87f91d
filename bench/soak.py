"""`script/bench soak`: how much memory the default guardrail rules take, after many varied and crafted texts.

Prints texts scanned, megabytes that the process has grown by, and milliseconds of computing for each thousand bytes.
Growth counts from a process that has imported the engine, as every worker has, and loaded no rule. Texts are generated,
the same ones every time: prose, programs, settings, logs, JSON, base64 and random tokens in several scripts; every
third one is made of pieces of the rules' own patterns, so that it brings their automata into as many states as it can.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

_FIRST_REPORT = 500
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
    "0123456789abcdef",
    "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "的一是不了人我在有他这中大来上个国到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可",
    "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらりるれろわをん",
    "àéèêëîïôöùûüçñßøåæœąćęłńśźżěščřžýáíúůăâșț",
)
_FORMS = (
    '{a}_{b} = "{c}"',
    "{a}: {c}",
    "export {a}={c}",
    "--{a}-{b} {c}",
    "if ({a}.{b} == '{c}') {{ return {a}; }}",
    "2026-11-02T08:{n}:31Z {a}[{n}]: {b} {c} from 10.{n}.3.{n}",
    '<{a} {b}="{c}">{a}</{a}>',
    "{a} {b} {a}, {b} {a} {a} {b}. {a} {b}?",
    "https://{a}.example.org/{b}?{a}={c}",
    "{n} {n} {n}-{n} {n}/{n} +{n}",
    '{{"{a}": "{b}", "{b}_{n}": [{n}, null, "{c}"], "{a}_token": {{"type": "{b}"}}}}',
)


def pieces_of_rules() -> list[str]:
    """Return literal pieces of the tables of the rules."""
    folder = Path(__file__).parents[1] / "apps" / "guardrails"
    words: set[str] = set()
    for path in sorted(folder.rglob("*.toml")) + sorted(folder.glob("secret_formats/*.py")):
        words.update(re.findall(r"[^\W\d_][\w' -]{2,24}", path.read_text(encoding="utf-8")))
    return sorted(words)


def texts(count: int) -> Iterator[tuple[str, str]]:
    """Yield texts of 100 to 6,000 characters, each with the role that says it."""
    chosen = random.Random(20)
    pieces = pieces_of_rules()
    for number in range(count):
        size = chosen.choice((100, 300, 600, 1200, 6000))
        parts: list[str] = []
        while sum(map(len, parts)) < size:
            alphabet = chosen.choice(_ALPHABETS)
            word, other = ("".join(chosen.choices(alphabet, k=chosen.randint(2, 12))) for _ in range(2))
            token = "".join(chosen.choices(_ALPHABETS[1] + "_-./+=", k=chosen.randint(6, 60)))
            if number % 3 == 0:
                word, other = chosen.choice(pieces), chosen.choice(pieces)
                parts.append(f"{word}{chosen.choice(' _-=:/.')}{chosen.choice((other, token))}")
            else:
                form = chosen.choice(_FORMS)
                parts.append(form.format(a=word, b=other, c=token, n=chosen.randint(0, 99)))
        text = chosen.choice(("\n", " ")).join(parts)
        if number % 25 == 1:
            text = base64.b64encode(text.encode()).decode()
        yield ("user", "tool_result")[number % 2], text


def resident_megabytes() -> float:
    """Return how much memory this process takes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


def main() -> None:
    """Scan the texts and print what it takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=50_000)
    count = parser.parse_args().texts
    engine = importlib.import_module("apps.guardrails.scanning.engine")
    types = importlib.import_module("apps.guardrails.findings.scan_types")
    scanned = importlib.import_module("apps.guardrails.text.scanned_text")
    before = resident_megabytes()
    compiled = engine.compile_guardrails(engine.EngineConfig())
    print(f"0 {resident_megabytes() - before:.1f} MB", flush=True)
    scanned_bytes, started = 0, time.process_time()
    report = _FIRST_REPORT
    for number, (role, text) in enumerate(texts(count), 1):
        engine.screen(compiled, [types.Segment(scanned.ScannedText(text), role)])
        scanned_bytes += len(text.encode())
        if number in (report, count):
            report *= 2
            took = (time.process_time() - started) * 1e6 / scanned_bytes
            print(f"{number} {resident_megabytes() - before:.1f} MB {took:.3f} ms/KB", flush=True)


if __name__ == "__main__":
    main()
