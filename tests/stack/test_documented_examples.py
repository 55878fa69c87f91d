"""Examples of the documents to the letter: a reader's shell and Python against the running product, block by block."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_project.configuration.data_directory import PROJECT
from tests.stack.product import Product, free_port
from tests.support import own_servers
from tests.support.documented_examples import DOCUMENTS, Example, examples, why_not_run

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

PLACE = "http://127.0.0.1:8000"
# The values that a reader puts in place of words in capitals, and the waits that the test leaves out.
README = {
    "EMAIL": "reader@example.com",
    "ORG": shlex.quote("Demo Organization"),
    "AMOUNT": "5",
    "PLAN": "enterprise",
    "drain 15": "drain 0",
}
# The refusal of an example's address where DNS does not resolve public names: the rest of the request was valid.
UNRESOLVED = [{"path": "url", "message": "Its host is not known"}]
# Examples with such addresses.
ELSEWHERE = {"docs/alerts.md", "docs/log-sinks.md", "docs/mcp-servers.md"}
# The document with servers of models of the reader's own.
OWN_SERVERS = "docs/self-hosted.md"
RUN = {document: [one for one in examples(document) if why_not_run(one) is None] for document in DOCUMENTS}
PROGRAMS = {
    document: shown for document, shown in RUN.items() if any(one.language in {"sh", "python"} for one in shown)
}


# Documents that a reader tries first; the examples of all others together take minutes.
FIRST = {"README.md", "docs/clients/agents.md", "docs/clients/sdks.md"}


def marked(document: Path) -> Any:
    """Return a document as a parameter of the test, as a long one unless readers try it first."""
    name = document.relative_to(PROJECT).as_posix()
    return pytest.param(document, id=name, marks=[] if name in FIRST else [pytest.mark.long])


@pytest.fixture(scope="module")
def read_product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A server of the examples' own: they change the organization's retention, its plan and its people."""
    product = Product(tmp_path_factory.mktemp("read"), GATEWAY_ALLOW_PRIVATE_ADDRESSES="true")
    yield product
    assert product.stop() == 0


class Reader:
    """A reader in a folder like the project's, whose shell keeps its variables from one block to the next."""

    def __init__(self, folder: Path, product: Product, places: dict[str, str]) -> None:
        """`places` are addresses in the examples, and those that stand for them."""
        for path in PROJECT.iterdir():
            (folder / path.name).symlink_to(path)
        programs = folder / "read-programs"
        programs.mkdir()
        # An error is a failure, as it is for a reader.
        (programs / "curl").write_text('#!/bin/sh\nexec /usr/bin/curl --silent --show-error --fail-with-body "$@"\n')
        (programs / "curl").chmod(0o755)
        self._folder, self._places = folder, {PLACE: product.url, **places}
        path = f"{programs}:{os.environ['PATH']}"
        self._environment = {**product.environment, "PATH": path}
        self._names: dict[str, Any] = {"__name__": "__main__"}

    def run_shell(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run a block in a shell of its own, and keep its variables."""
        kept = self._folder / "variables"
        done = subprocess.run(
            ["/bin/sh", "-ec", f"set -a\n{self._here(text)}\nenv -0 >{shlex.quote(str(kept))}"],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        if done.returncode == 0:
            self._environment = dict(one.partition("=")[::2] for one in kept.read_text().split("\0") if one)
        return done

    def run_python(self, example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run a block among the names of those before it."""
        for name, value in self._environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(self._folder)
        exec(compile(self._here(example.text), example.place, "exec"), self._names)

    def _here(self, text: str) -> str:
        for place, here in self._places.items():
            text = text.replace(place, here)
        return text


@pytest.fixture
def own_places() -> Iterator[dict[str, str]]:
    """Two servers of models with one model each, at the addresses of the examples."""
    with own_servers.serve() as left, own_servers.serve() as right:
        for server in (left, right):
            server.answers = own_servers.OLLAMA | {"/v1/chat/completions": own_servers.chat_answer({"content": "Hi"})}
        yield {"http://127.0.0.1:11434": left.url, "http://127.0.0.1:11435": right.url}
        assert "/v1/chat/completions" in left.paths


@pytest.mark.parametrize("document", [marked(one) for one in PROGRAMS])
def test_the_examples_of_a_document_work(
    document: Path,
    read_product: Product,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    name = document.relative_to(PROJECT).as_posix()
    reader = Reader(tmp_path, read_product, request.getfixturevalue("own_places") if name == OWN_SERVERS else {})
    for example in PROGRAMS[document]:
        if example.language == "python":
            reader.run_python(example, monkeypatch)
        elif name == "docs/sandbox.md" and example.language == "sh":
            assert_the_sandbox_listens(example.text, tmp_path)
        elif example.language == "sh":
            text = example.text
            for word, value in README.items() if name == "README.md" else ():
                text = re.sub(rf"\b{word}\b", value, text)
            done = reader.run_shell(text)
            if done.returncode and name in ELSEWHERE:
                assert json.loads(done.stdout)["issues"] == UNRESOLVED
                continue
            assert done.returncode == 0, f"{example.place}\n{done.stdout}\n{done.stderr}"


def assert_the_sandbox_listens(command: str, folder: Path) -> None:
    """Start the sandbox as its document says, on a free port, and stop it."""
    port = free_port()
    text = command.partition("#")[0].replace("8001", str(port))
    with subprocess.Popen(shlex.split(text), cwd=folder, stdout=subprocess.PIPE, text=True) as sandbox:
        assert sandbox.stdout is not None
        select.select([sandbox.stdout], [], [], 30)
        assert sandbox.stdout.readline() == f"sandbox listening on http://127.0.0.1:{port}\n"
        sandbox.terminate()
    assert sandbox.returncode == 0


def test_the_start_is_quiet_and_ends_with_the_key(read_product: Product) -> None:
    """Until it is ready, the terminal shows steps: no banners, no warnings, nothing twice."""
    told = [line.rstrip("\n") for line in read_product.output]
    assert [line for line in told if re.search(r"[Ww]arning|celery|gunicorn|Traceback", line)] == []
    assert [line for line in told if told.count(line) > 1] == []
    assert told[-1] == f"ready {read_product.url}"


def test_the_demo_tells_what_a_shell_takes_from_it(read_product: Product) -> None:
    told = json.loads(read_product.manage("demo", "--json"))
    assert read_product.manage("demo", "--key") == f"{told['apiKey']}\n"
    done = subprocess.run(
        [str(PROJECT / "manage.py"), "demo", "--session"],
        env={**read_product.environment, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, sys.prefix != sys.base_prefix) == (0, f"{told['sessionToken']}\n", True)
