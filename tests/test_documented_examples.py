"""Examples of the documents: each is text of its language, and is run by a test or listed with the reason why not."""

from __future__ import annotations

import re
from argparse import ArgumentParser, _SubParsersAction
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from gateway_project.__main__ import _COMMANDS
from gateway_project.configuration.data_directory import PROJECT
from tests.support.documented_examples import DOCUMENTS, NOT_RUN, Example, examples, why_not_run

EXAMPLES = [example for document in DOCUMENTS for example in examples(document)]
SCRIPT = re.compile(r"(?<![\w/.])(script/[\w-]+)(.*)")
MANAGE = re.compile(r"(?:\./manage\.py|gateway manage) ([a-z]\w+)([^|;)\n#]*)")
GATEWAY = re.compile(r"bin/gateway (\w+)")
OPTION = re.compile(r"(?<!\S)(--[a-z][a-z-]+)")
# Which script/test passes on.
OF_PYTEST = "--durations "
# Commands that do without Django.
PLAIN = {"doctor", "drain"}


def described(example: Example) -> str:
    return f"{example.document}:{example.line}"


@pytest.mark.parametrize("example", EXAMPLES, ids=described)
def test_an_example_is_text_of_its_language(example: Example) -> None:
    assert example.problem() is None


def test_what_is_not_run_is_there() -> None:
    assert [place for place in NOT_RUN if not any(one.place.startswith(place) for one in EXAMPLES)] == []


def test_what_is_run_has_no_open_places() -> None:
    """An ellipsis, or `<key>`, is nothing that a reader can type."""
    shown = [one for one in EXAMPLES if one.language in {"sh", "python"} and why_not_run(one) is None]
    assert len(shown) > 25
    assert [one.place for one in shown if re.search(r"…|<key>|\blocalhost:8000", one.text)] == []


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.language == "sh"], ids=described)
def test_the_scripts_commands_and_options_of_an_example_are_there(example: Example) -> None:
    for script, words in SCRIPT.findall(example.text):
        known = OF_PYTEST + "".join(path.read_text() for path in [PROJECT / script, *_parts_of(script)])
        assert [option for option in OPTION.findall(words) if option not in known] == []
    for command, words in MANAGE.findall(example.text):
        if command in PLAIN:
            continue
        parser = load_command_class(get_commands()[command], command).create_parser("manage.py", command)
        known = parser.format_help() + "".join(_helps_of_subcommands(parser))
        assert [option for option in OPTION.findall(words) if option not in known] == []
    assert {*GATEWAY.findall(example.text)} <= {*_COMMANDS}


def _helps_of_subcommands(parser: ArgumentParser) -> list[str]:
    """Return the help of each subcommand."""
    choices = (action.choices for action in parser._actions if isinstance(action, _SubParsersAction))
    return [subcommand.format_help() for some in choices for subcommand in some.values()]


def _parts_of(script: str) -> list[Path]:
    """Return the files that read the options of a script which passes them on."""
    name = script.removeprefix("script/")
    folders = {"bench": PROJECT / "bench", "clients": PROJECT / "tests" / "clients", "test": PROJECT / "tests"}
    return list(folders[name].rglob("*.py")) if name in folders else []
