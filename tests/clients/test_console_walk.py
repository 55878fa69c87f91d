"""The console after real work: Claude Code, Codex and an agent made with OpenAI's SDK ask models through the running
product, and a browser then finds on each page exactly what they did.

`script/clients --console` runs it alone. The sandbox answers for all models; a script in the SDK agent's prompts states
its usage, so its costs are known to the last digit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest
import requests

from tests.clients import test_claude_code, test_codex
from tests.clients.gateway import Gateway, Key
from tests.clients.test_claude_code import claude_code
from tests.clients.test_codex import codex
from tests.stack.product import eventually
from tests.support.chromium import PROGRAM, Browser, chromium

__all__ = ["claude_code", "codex"]
pytestmark = [
    pytest.mark.stack,
    pytest.mark.agents,
    pytest.mark.timeout(600),
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
]

SDK_SESSION = "weather-agent-1"
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
# 700 tokens at 0.15 USD a million, 300 cached ones at 0.075, and 200 of the answer at 0.6.
QUESTION = 'get_weather({"city": "Zürich"}) [[sandbox usage=1000,200,300 latency=200]]'
STEP_COST, PARTS = "$0.0002475", {"Input": "$0.000105", "Cached input": "$0.0000225", "Output": "$0.00012"}
PHONE = (390, 844)
# The operators' search: results by kind.
_FOUND = """
    Object.fromEntries([...document.querySelectorAll('main section[aria-label]')].map(
        (one) => [one.getAttribute('aria-label'), one.innerText]))
"""
_LIVE = "document.querySelector('[data-live]').dataset.state === 'live'"
_LINK = "document.querySelector('[data-live-link]')"
_WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Rows of the list: the cells' texts by column.
_ROWS = """
    [...document.querySelectorAll('table.requests tbody tr')].map((row) => Object.fromEntries(
        [...row.cells].map((cell, at) => [row.closest('table').tHead.rows[0].cells[at].textContent, cell.innerText])))
"""
_FACTS = """
    (selector) => Object.fromEntries([...document.querySelectorAll(selector + ' dt')].map(
        (one) => [one.firstChild.textContent.trim(), one.nextElementSibling.innerText]))
"""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of the agents: keys, sessions as the agents name them, and the log's entries, oldest first."""

    keys: dict[str, Key]
    sessions: dict[str, str]
    logs: dict[str, list[dict[str, Any]]]

    def cost(self, agent: str) -> Decimal:
        """Return what the log says that an agent spent, in USD."""
        return sum((Decimal(str(log["cost"] or 0)) for log in self.logs[agent]), Decimal(0))


@pytest.fixture(scope="module")
def gateway(sandbox_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A product of its own, so that the pages show no other requests; it keeps prompts and answers."""
    gateway = Gateway(tmp_path_factory.mktemp("walk"), sandbox_url)
    answer = requests.patch(
        f"{gateway.url}/organization/{gateway.demo['organizationId']}",
        json={"retentionLevel": "retain"},
        headers={"Authorization": f"Bearer {gateway.demo['sessionToken']}"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    yield gateway
    assert gateway.stop() == 0


def run_sdk_agent(gateway: Gateway, key: Key) -> None:
    """Ask, call the tool, send its result; then a request that the provider refuses."""
    headers = {"x-session-id": SDK_SESSION, "x-source": "weather-bot", "x-gateway-city": "zurich"}
    with openai.OpenAI(
        base_url=gateway.openai_url, api_key=key.token, max_retries=0, default_headers=headers
    ) as client:
        asked: Any = {"model": "sandbox/echo", "tools": [WEATHER]}
        said: list[Any] = [{"role": "system", "content": "You know the weather."}]
        said.append({"role": "user", "content": QUESTION})
        with client.chat.completions.stream(messages=said, **asked) as stream:
            message = stream.get_final_completion().choices[0].message
        assert message.tool_calls is not None
        [call] = message.tool_calls
        function = {"name": call.function.name, "arguments": call.function.arguments}
        said.append({"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": function}]})
        said.append({"role": "tool", "tool_call_id": call.id, "content": "Snow, -3 °C"})
        answer = client.chat.completions.create(messages=said, **asked)
        assert answer.choices[0].message.content == "get_weather answered: Snow, -3 °C"
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(
                model="sandbox/echo", messages=[{"role": "user", "content": "hello [[sandbox status=400]]"}]
            )


@pytest.fixture(scope="module")
def work(
    gateway: Gateway, claude_code: list[str | Path], codex: Path, tmp_path_factory: pytest.TempPathFactory
) -> Work:
    """The three agents at work, one after the other."""
    keys = {name: gateway.new_key(f"{name} key") for name in ("Claude Code", "Codex", "SDK")}
    place = tmp_path_factory.mktemp("agents")
    told = test_claude_code.write_a_file(
        claude_code, gateway, "anthropic/claude-haiku-4-5", keys["Claude Code"], place / "claude"
    )
    events = test_codex.write_a_file(codex, gateway, "openai/gpt-5.3-codex", keys["Codex"], place / "codex")
    run_sdk_agent(gateway, keys["SDK"])
    [begun] = [event for event in events if event["type"] == "thread.started"]
    return Work(
        keys,
        {"Claude Code": told["session_id"], "Codex": begun["thread_id"], "SDK": SDK_SESSION},
        {name: gateway.logs_of(key) for name, key in keys.items()},
    )


@pytest.fixture(scope="module")
def browser(gateway: Gateway, work: Work, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser in which the owner has signed in. `work` comes first."""
    with chromium(tmp_path_factory.mktemp("owner")) as browser:
        sign_in(browser, f"{gateway.url}/app/sign-in", "#sign-in", "/app/", gateway.demo["owner"])
        yield browser


@pytest.fixture(autouse=True)
def _no_complaints(browser: Browser) -> Iterator[None]:
    """Every page was shown without an error in the browser's console, and on a desk's screen before each test."""
    browser.problems.clear()
    show_at(browser, 1280, 900)
    yield
    assert [one for one in browser.problems if not one.startswith("[DOM]")] == []


def sign_in(browser: Browser, address: str, form: str, home: str, person: dict[str, str]) -> None:
    """Sign a person in by the form of a page."""
    browser.open(address)
    browser.fill(f"{form} [name=email], {form} [name=username]", person["email"])
    browser.fill(f"{form} [name=password]", person["password"])
    browser.click(f"{form} [type=submit]")
    browser.wait(f"location.href !== {address!r} && location.pathname.startsWith({home!r})")
    browser.wait("document.readyState === 'complete'")


def show_at(browser: Browser, width: int, height: int) -> None:
    """Show pages at a size from now on; narrow ones as a phone does."""
    browser.ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
    )


def page(gateway: Gateway, path: str = "") -> str:
    """Return the address of a page of the organization."""
    return f"{gateway.url}/app/o/{gateway.demo['organizationId']}/{path}"


def facts(browser: Browser, selector: str) -> dict[str, str]:
    """Return terms and their values below a selector."""
    found: dict[str, str] = browser.run(f"({_FACTS})({json.dumps(selector)})")
    return found


def usd(amount: Decimal) -> str:
    """Return an amount as an English page writes it: all its digits, cents at least."""
    whole, _, fraction = f"{amount:f}".partition(".")
    return f"${whole}.{fraction.rstrip('0').ljust(2, '0')}"


def open_request(browser: Browser, gateway: Gateway, log: dict[str, Any]) -> None:
    browser.open(page(gateway, f"logs/{log['id']}"))
    browser.run("for (const one of document.querySelectorAll('main details')) one.open = true")


def test_the_log_lists_what_each_agent_did(browser: Browser, gateway: Gateway, work: Work) -> None:
    browser.open(page(gateway, f"logs?apiKeyId={work.keys['SDK'].id}"))
    rows = browser.run(_ROWS)
    assert [row["Answer"] for row in rows] == ["–", "get_weather answered: Snow, -3 °C", "calls get_weather"]
    assert [row["Status"] for row in rows] == ["400 Request refused", "Completed", "Asked for tools"]
    assert [row["Model, provider"].split() for row in rows] == [["echo", "sandbox"]] * 3
    assert [row["Tokens"].split() for row in rows[1:]] == [["1,000", "200", "out"]] * 2
    assert [row["Cost"] for row in rows[1:]] == [STEP_COST] * 2
    assert [row["Key, project"].split("\n")[0] for row in rows] == ["SDK key"] * 3
    for agent, calls, answer in (
        ("Claude Code", "calls Write, Bash", "Write answered: File created successfully"),
        ("Codex", "calls exec_command", "exec_command answered"),
    ):
        browser.open(page(gateway, f"logs?apiKeyId={work.keys[agent].id}"))
        last, first = browser.run(_ROWS)
        assert first["Answer"] == calls
        assert last["Answer"].startswith(answer)
        # Costs of a list have four significant digits; the exact amount is the tooltip.
        exact = "[...document.querySelectorAll('table.requests td[data-label=Cost]')]"
        shown = browser.run(f"{exact}.map((one) => one.querySelector('[title]')?.title ?? one.innerText)")
        assert shown == [usd(Decimal(str(log["cost"]))) for log in reversed(work.logs[agent])]


def test_a_request_shows_what_was_said_when_and_at_what_cost(browser: Browser, gateway: Gateway, work: Work) -> None:
    asked, answered, _ = work.logs["SDK"]
    open_request(browser, gateway, asked)
    assert {name: facts(browser, "[aria-labelledby=cost]")[name] for name in PARTS} == PARTS
    assert facts(browser, "[aria-labelledby=cost]")["Total"] == STEP_COST
    assert facts(browser, "[aria-labelledby=tokens]") == {
        "Prompt": "1,000",
        "of which read from the cache": "300",
        "Completion": "200",
        "Total": "1,200",
    }
    [attempt] = asked["routingMetadata"]["routing"]
    assert attempt["first_byte_ms"] - attempt["start_ms"] >= 200
    assert_waterfall(browser, attempt)

    open_request(browser, gateway, answered)
    said = browser.run(
        "[...document.querySelectorAll('.said')].map((one) => one.innerText.split('\\n').map("
        "(line) => line.trim()).filter(Boolean))"
    )
    assert said == [
        ["system", "You know the weather."],
        ["user", QUESTION],
        ["assistant", "tool call get_weather", "{", '"city": "Zürich"', "}"],
        ["tool", "tool result", "Snow, -3 °C"],
        ["answer", "get_weather answered: Snow, -3 °C"],
    ]
    code = browser.text("#snippet-1")
    assert code.startswith(f"curl {gateway.openai_url}/chat/completions")
    assert "Snow, -3 °C" in code
    assert work.keys["SDK"].token not in code

    open_request(browser, gateway, work.logs["SDK"][2])
    assert "Status 400" in browser.text(".message.error")


def assert_waterfall(browser: Browser, attempt: dict[str, Any]) -> None:
    """Assert that the shown request has its only attempt's times, and a bar for each of its parts."""
    times = browser.text(".timeline li small")
    is_new = "connect_end_ms" in attempt
    for words, since, until in (
        *([("connected in", "connect_start_ms", "connect_end_ms")] if is_new else []),
        ("first byte after", "start_ms", "first_byte_ms"),
        ("took", "start_ms", "end_ms"),
    ):
        duration = attempt[until] - attempt[since]
        shown = f"{duration} ms" if duration < 1_000 else f"{duration / 1_000:.2f} s"
        assert f"{words} {shown}" in times
    assert browser.run("document.querySelectorAll('.timeline rect').length") == (3 if is_new else 2)


def test_a_request_of_claude_code_and_of_codex_has_their_calls_and_results(
    browser: Browser, gateway: Gateway, work: Work
) -> None:
    for agent, calls in (
        ("Claude Code", {"Write": test_claude_code.CONTENT, "Bash": test_claude_code.COMMAND}),
        ("Codex", {"exec_command": test_codex.COMMAND}),
    ):
        asked, answered = work.logs[agent]
        open_request(browser, gateway, asked)
        [attempt] = asked["routingMetadata"]["routing"]
        # The product's first request makes a connection.
        assert ("connect_end_ms" in attempt) or agent != "Claude Code"
        assert_waterfall(browser, attempt)
        made = browser.run(
            "[...document.querySelectorAll('.said.answer details')].map((one) => "
            "[one.querySelector('summary').textContent, one.querySelector('pre').textContent])"
        )
        assert [title for title, _ in made] == [f"tool call {name}" for name in calls]
        for (_, arguments), value in zip(made, calls.values(), strict=True):
            assert value in json.loads(arguments).values()
        open_request(browser, gateway, answered)
        results = "[...document.querySelectorAll('.said details summary')].map((one) => one.textContent)"
        assert browser.run(results).count("tool result") == len(calls)
        assert facts(browser, "[aria-labelledby=facts]")["Session"] == work.sessions[agent]


def test_sessions_and_their_trees_have_agent_turns_tools_and_cost(
    browser: Browser, gateway: Gateway, work: Work
) -> None:
    browser.open(page(gateway, "sessions"))
    listed = {row["Client"].split("\n")[0]: row for row in browser.run(_ROWS)}
    tools = {"Claude Code": "Bash, Write", "Codex": "exec_command"}
    for agent in tools:
        row = listed[agent]
        assert row["Cost"] == usd(work.cost(agent))
        assert row["Requests"].split() == ["2", "1", "turn"]
        assert (row["Tools called"], row["Errors"]) == (tools[agent], "0")
        assert row["Client"].split("\n")[1] == work.sessions[agent]
    for agent, session in work.sessions.items():
        browser.open(page(gateway, f"sessions/{session}"))
        logs = work.logs[agent]
        stats = facts(browser, ".stats")
        assert stats["Cost"] == usd(work.cost(agent))
        assert stats["Tokens in"].split("\n")[0] == f"{sum(int(log['promptTokens'] or 0) for log in logs):,}"
        steps = "[...document.querySelectorAll('.tree ol > li')].map((one) => one.innerText)"
        texts = browser.run(steps)
        assert len(texts) == len(logs)
        assert f"total {usd(work.cost(agent))}" in texts[-1]
    # The last one is the SDK's.
    assert browser.run("document.querySelectorAll('.tree > li').length") == 2
    assert "calls get_weather" in texts[0]
    assert "not ended" in browser.text(".tree > li:last-child h3")
    assert (stats["Errors"], stats["Requests"].split()) == ("1", ["3", "1", "turn"])


def test_new_requests_are_counted_live_and_loaded(browser: Browser, gateway: Gateway, work: Work) -> None:
    key = gateway.new_key("Live key")
    browser.open(page(gateway, f"logs?apiKeyId={key.id}"))
    browser.wait(_LIVE)
    with openai.OpenAI(base_url=gateway.openai_url, api_key=key.token) as client:
        for number in range(2):
            client.chat.completions.create(
                model="sandbox/tools", messages=[{"role": "user", "content": f"live {number}"}]
            )
    browser.wait(f"{_LINK}.textContent === '2 new requests'")
    browser.click("[data-live-link]")
    browser.wait("document.querySelectorAll('table.requests tbody tr').length === 2")
    assert [row["Answer"] for row in browser.run(_ROWS)] == ["You said: live 1", "You said: live 0"]


def test_filters_search_saved_view_columns_and_export(browser: Browser, gateway: Gateway, work: Work) -> None:
    browser.open(page(gateway, "logs?source=weather-bot&unifiedFinishReason=completed"))
    assert [row["Answer"] for row in browser.run(_ROWS)] == ["get_weather answered: Snow, -3 °C"]

    csv = "fetch(document.querySelector('a[download]').href).then((one) => one.text())"
    head, *lines = browser.run(csv).splitlines()
    assert len(lines) == 1
    assert work.logs["SDK"][1]["id"] in lines[0]
    assert "0.0002475" in lines[0]
    assert {"id", "cost", "sessionId"} <= set(head.split(","))

    browser.click("details.more summary")
    browser.fill("details.more [name=name]", "Answered by the weather bot")
    browser.click("form[action$='/views'] [name=shared]")
    browser.click("form[action$='/views'] button:not([name])")
    browser.wait("document.querySelector('nav[aria-label=\"Saved views\"] a')")
    assert browser.text("nav[aria-label='Saved views']") == "Answered by the weather bot"
    browser.open(page(gateway, "logs"))
    browser.click("nav[aria-label='Saved views'] a")
    browser.wait("location.search.includes('source=weather-bot') && document.querySelector('table.requests')")
    assert [row["Answer"] for row in browser.run(_ROWS)] == ["get_weather answered: Snow, -3 °C"]

    browser.open(page(gateway, "logs"))
    browser.fill("#log-text", SDK_SESSION[:9])
    browser.run("document.querySelector('#log-text').dispatchEvent(new Event('input', {bubbles: true}))")
    browser.wait(f"document.querySelector('[data-suggestions]').textContent.includes('{SDK_SESSION}')")
    browser.fill("#log-text", "rooibos or Snow")
    browser.click(".log-search [type=submit]")
    browser.wait("location.search.includes('rooibos') && document.querySelector('table.requests')")
    assert [row["Answer"] for row in browser.run(_ROWS)] == ["get_weather answered: Snow, -3 °C"]

    browser.open(page(gateway, f"logs?apiKeyId={work.keys['SDK'].id}"))
    browser.click("details.more summary")
    browser.click("details.more [name=column][value=tags]")
    browser.click("details.more form[method=get] button")
    browser.wait("[...document.querySelectorAll('table.requests th')].some((one) => one.textContent === 'Tags')")
    assert [row["Tags"] for row in browser.run(_ROWS)] == ["city: zurich"] * 3


def test_a_refused_view_says_what_to_do(browser: Browser, gateway: Gateway) -> None:
    browser.open(page(gateway, "logs"))
    browser.fill("details.more [name=name]", "Everything")
    browser.click("form[action$='/views'] button:not([name])")
    browser.wait("document.querySelector('.error')")
    assert "Choose at least one filter or a period before you save the view" in browser.text()
    # The browser notes the refusal itself.
    browser.run("1")
    assert [one for one in browser.problems if "status of 400" not in one] == []
    browser.problems.clear()


def test_the_page_of_a_model_has_the_own_usage_and_the_comparison_both_models(
    browser: Browser, gateway: Gateway, work: Work
) -> None:
    def is_counted() -> bool:
        browser.open(page(gateway, "models/echo"))
        return facts(browser, ".stats").get("Requests") == "3"

    eventually(is_counted, patience=150)
    stats = facts(browser, ".stats")
    assert (stats["Spend"], stats["Failed"], stats["Tokens out"]) == ("<$0.01", "1", "400")
    # 600 tokens were read from the cache for half the price.
    assert stats["Saved by caches, about"] == "$0.000045"
    assert "sandbox/echo" in browser.text("table.cards")

    browser.open(page(gateway, "models/compare?model=echo&model=tools"))
    compared = browser.run(
        "Object.fromEntries([...document.querySelectorAll('table.comparison tbody tr')].map((row) => "
        "[row.cells[0].textContent, [...row.cells].slice(1).map((one) => one.innerText)]))"
    )
    assert compared["Input"] == ["$0.15", "$0.37"]
    assert compared["Output"] == ["$0.60", "$1.13"]
    assert compared["Your requests in 30 days"][0] == "3"


def test_a_phone_shows_each_page_without_sideways_scrolling(browser: Browser, gateway: Gateway, work: Work) -> None:
    show_at(browser, *PHONE)
    paths = ["", "logs", "sessions", "models/echo", "models/compare?model=echo&model=tools", "usage", "keys"]
    paths += [f"logs/{log['id']}" for logs in work.logs.values() for log in logs]
    paths += [f"sessions/{session}" for session in work.sessions.values()]
    found = {}
    for path in paths:
        browser.open(page(gateway, path))
        found[path] = browser.run(_WIDER)
    assert found == dict.fromkeys(paths, 0)


def test_an_operator_finds_customer_key_request_and_model(
    browser: Browser, gateway: Gateway, work: Work, tmp_path: Path
) -> None:
    key, log = work.keys["SDK"], work.logs["SDK"][0]
    with chromium(tmp_path) as operator:
        sign_in(operator, f"{gateway.url}/admin/login/", "#login-form", "/admin/", gateway.demo["operator"])
        for term, kind, title in (
            ("demo", "Customers", "Demo Organization"),
            (key.token[-4:], "API keys", "SDK key"),
            (log["id"], "Requests", "sandbox/echo"),
            (log["requestId"], "Requests", "sandbox/echo"),
            ("gpt-5.3-codex", "Models", "gpt-5.3-codex"),
        ):
            operator.open(f"{gateway.url}/admin/find/?s={term}")
            found = operator.run(_FOUND)
            assert title in found.get(kind, ""), (term, found)
        operator.open(f"{gateway.url}/admin/find/?s={log['id']}")
        operator.click("section[aria-label=Requests] a")
        operator.wait("document.querySelector('.board-timeline')")
        assert STEP_COST in operator.text("main")
        # Operators do not read what customers said, unless they ask for it.
        assert "Zürich" not in operator.text("main")
