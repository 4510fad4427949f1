"""The help of every command: each option says what it is for, and takes something that a user knows the name of."""

import re

import pytest

from trot.cli import COMMANDS, main
from trot.command_line import parse_call
from trot.help_words import readable
from trot.learn.algorithms import ALGORITHMS
from trot.study import STUDIES

OF_OTHERS = ["check ant", *(f"study {name}" for name in STUDIES), *(f"train ant --algo {name}" for name in ALGORITHMS)]
# Where the output takes ASCII alone there are no frames, and everything stands a space further in.
OPTION = re.compile(r" {1,2}(-h|--[a-z][\w.-]*|[A-Z_]+(?:\.\.\.)?)(?:, --[\w.-]+)?( \S.*?)?(?:  +(.*))?$")
BENCHES = ["bench env", "bench train", "bench scale"]


def shown(command, capsys, monkeypatch):
    # Wide enough for a line per sentence, and not for two columns of boxes.
    monkeypatch.setenv("COLUMNS", "119")
    with pytest.raises(SystemExit) as end:
        main([*command.split(), "--help"])
    assert not end.value.code
    return capsys.readouterr().out


def options(text):
    """By name: what an option takes, and what its help says. The names stand in a column, the help in another."""
    found = {}
    for line in text.splitlines():
        inside = line.strip("│|").rstrip()
        if match := OPTION.match(inside):
            name, takes, told = match.groups()
            found[name] = [(takes or "").strip(), told or ""]
        elif found and inside.startswith("    "):
            found[name][1] += f" {inside.strip()}"
    return found


@pytest.mark.parametrize("command", [*(name for name in COMMANDS if name != "study"), *BENCHES, *OF_OTHERS])
def test_every_option_says_what_it_is_for_and_what_it_takes(command, capsys, monkeypatch):
    text = shown(command, capsys, monkeypatch)
    for name, (takes, told) in options(text).items():
        assert re.match(r"(?!\()\S.*", told.strip()), f"{command} {name}: no help: {told}"
        assert not re.search(r"None|STR|INT|FLOAT|\[\[|\[[A-Z]+ ", takes), f"{command} {name} {takes}"
        # A comma between two settings' names is fine, a default that nobody can type is not.
        assert "(default: )" not in told and "(default: None)" not in told, f"{command} {name}: {told}"
    assert "--num-worlds" not in text and "--root" not in text


def test_the_options_of_a_help_are_found(capsys, monkeypatch):
    """So that the test above looks at something."""
    found = options(shown("view", capsys, monkeypatch))
    assert found["--html"][0] == "PATH" and "(default: none)" in found["--html"][1]
    assert found["--agent"][0] == "{policy,zero,random}"
    assert found["SOURCE"][1].startswith("A run folder")
    assert {"--worlds", "--steps", "--port", "--forces"} <= found.keys()
    assert options(shown("train ant", capsys, monkeypatch))["--actor-hidden"][0] == "N ..."


@pytest.mark.parametrize(
    ("tyros", "ours"),
    [
        ("STR", "TEXT"),
        ("{None}|INT", "N"),
        ("{None}|PATH", "PATH"),
        ("FLOAT FLOAT", "NUMBER NUMBER"),
        ("[STR [STR ...]]", "TEXT ..."),
        ("{None,policy,zero}", "{policy,zero}"),
        ("{gaussian,INT}", "{gaussian,INT}"),
        ("{[FLOAT [FLOAT ...]]}|{[STR FLOAT [STR FLOAT ...]]}", "NUMBER ... | TEXT NUMBER ..."),
    ],
)
def test_words_for_what_an_option_takes(tyros, ours):
    assert readable(tyros) == ours


def test_nothing_can_still_be_given():
    def ended(minutes: float | None = 3.0) -> float | None:
        return minutes

    assert parse_call(ended, "trot end", "End.", ["--minutes", "None"])() is None
    assert parse_call(ended, "trot end", "End.", ["--minutes", "2"])() == 2.0
