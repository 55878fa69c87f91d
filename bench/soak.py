"""`script/bench soak`: how much memory the default guardrail rules take, after many varied and crafted texts.

Prints first the megabytes that automata may take at most, then, as it goes on, texts scanned, megabytes that the
process has grown by, and milliseconds of computing for each thousand bytes. Growth counts from a process that has
imported the engine, as every worker has, and loaded no rule.

Texts are generated, the same ones every time: prose, programs, settings, logs, JSON, base64 and random tokens in
several scripts. A third is made of words of the rules, and a quarter is crafted against their patterns
(`bench.crafted`), so that it brings their automata into as many states as it can.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from apps.guardrails.findings.scan_types import Segment
from apps.guardrails.regex.re2_patterns import known_patterns, max_automata_bytes
from apps.guardrails.rules import system_rules
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import EngineConfig
from apps.guardrails.text.scanned_text import ScannedText
from bench.crafted import crafted_text

_FIRST_REPORT, _REPORT_EACH = 500, 5000
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
    """Yield texts of 100 to 6,000 characters, each with the role that says it. The rules must be loaded."""
    chosen = random.Random(20)
    pieces, patterns = pieces_of_rules(), known_patterns()
    for number in range(count):
        size = chosen.choice((100, 300, 600, 1200, 6000))
        if number % 4 == 3:
            yield ("user", "tool_result")[number // 4 % 2], crafted_text(patterns, size, chosen)
            continue
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


def texts_of_another_process(count: int) -> Iterator[tuple[str, str]]:
    """Yield the same texts, made in a process of their own: making them takes memory as well."""
    command = [sys.executable, "-m", "bench.soak", "--texts", str(count), "--print"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            role, text = json.loads(line)
            yield role, text
    if process.returncode:
        raise RuntimeError(f"the process that makes texts ended with {process.returncode}")


def main() -> None:
    """Scan the texts and print what it takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=50_000)
    parser.add_argument("--print", action="store_true", help="only print the texts, as lines of JSON")
    chosen = parser.parse_args()
    if chosen.print:
        print_texts(chosen.texts)
    else:
        scan(chosen.texts)


def print_texts(count: int) -> None:
    """Print texts as [role, text]."""
    system_rules()
    for role, text in texts(count):
        print(json.dumps([role, text]))


def scan(count: int) -> None:
    """Scan so many texts with the default rules, and report."""
    before = resident_megabytes()
    compiled = engine.compile_guardrails(EngineConfig())
    print(f"automata take at most {max_automata_bytes() / 1e6:.1f} MB")
    print(f"0 {resident_megabytes() - before:.1f} MB", flush=True)
    scanned_bytes, seconds = 0, 0.0
    report = _FIRST_REPORT
    for number, (role, text) in enumerate(texts_of_another_process(count), 1):
        started = time.thread_time()
        engine.screen(compiled, [Segment(ScannedText(text), role)])
        seconds += time.thread_time() - started
        scanned_bytes += len(text.encode())
        if number in (report, count) or number % _REPORT_EACH == 0:
            took = seconds * 1e6 / scanned_bytes
            print(f"{number} {resident_megabytes() - before:.1f} MB {took:.3f} ms/KB", flush=True)
        report *= 1 + (number == report)


if __name__ == "__main__":
    main()
