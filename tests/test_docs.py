"""The documentation site builds, loads nothing from elsewhere, and what README and docs name exists."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_run import make_run

from bench.docs_commands import UNKNOWN, make_folder, small, told_commands
from bench.docs_commands import main as run_docs_commands
from trot.cli import COMMANDS
from trot.learn.train import parse_settings

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", str(tmp_path / "cache")]
    built = subprocess.run([*command, str(ROOT / "docs"), str(tmp_path / "site")], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "site").glob("*.html"))
    assert {"index.html", "learning.html", "your_own.html", "results.html", "api.html"} <= {page.name for page in pages}
    for page in pages:
        assert not re.search(r"<(?:script|img)[^>]+src=\"https?:", page.read_text()), page.name
        assert not re.search(r"<link[^>]+stylesheet[^>]+https?:", page.read_text()), page.name


def test_every_local_link_of_readme_and_docs_exists():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_links_are_called_by_titles_and_commands_are_highlighted():
    for page in PAGES:
        text = page.read_text()
        named_by_file = re.findall(r"\[(?:docs/)?\w+\.md\]\(", text)
        assert not named_by_file, f"{page.name}: {named_by_file}"
        plain = re.findall(r"(?:\A|\n\n)```\n((?:\$ )?(?:trot|python3?|pip|torchrun) .*)", text)
        assert not plain, f"{page.name}: ```sh before {plain}"


def test_every_command_that_readme_and_docs_name_exists():
    named = [(page.name, command) for page in PAGES for command in commands(page.read_text())]
    assert len({command for _, command in named}) > 10
    for page, command in named:
        assert command in COMMANDS, f"{page}: trot {command}"


def commands(text: str) -> list[str]:
    """What follows `trot` where it is typed: in a block of code or between backticks, not in a sentence."""
    typed = [
        line
        for block in re.findall(r"^```[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]
    typed += re.findall(r"^ {4}(trot .*)", text, re.MULTILINE)
    # The first word of a motion file is no command.
    typed += re.findall(r"`(trot (?!trajectory 1)[^`]*)`", text)
    return [command for line in typed for command in re.findall(r"(?:^|&& |; do )trot ([a-z][a-z-]*)", line)]


def test_every_file_that_readme_and_docs_name_exists():
    for page in PAGES:
        text = page.read_text()
        # Not Gymnasium's ids, such as trot/Ant-v0.
        for path in re.findall(r"\b(?:trot|tests|bench|docs|examples)/(?!\w+-v\d)[\w/*.]*\w", text):
            assert list(ROOT.glob(path)), f"{page.name}: {path}"
        for header in re.findall(r"\b(\w+\.h)\b", text):
            assert list((ROOT / "trot").rglob(header)), f"{page.name}: {header}"


def test_the_speed_that_readme_tells_is_the_one_in_the_table():
    """Milliseconds of an iteration and of the program of 2022 stand in docs/performance.md."""
    performance = (ROOT / "docs" / "performance.md").read_text()
    _, _, table = performance.partition("the program of 2022, same GPU, ms |\n")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.partition("\n\n")[0].splitlines()[1:]]
    ratios = [float(row[-1]) / float(row[6]) for row in rows if row[-1]]
    told = f"{min(ratios):.0f} to {max(ratios):.0f} times as fast"
    assert told in performance
    assert told in (ROOT / "README.md").read_text()


def test_every_sentence_that_troubleshooting_quotes_is_one_that_trot_prints():
    source = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "trot").rglob("*.py")))
    # A sentence may go over several lines of the source, and name what it speaks of by an expression.
    source = re.sub(r"[^\S\n]*\"\n\s*f?\"", "", source.replace(' "\n', '"\n'))
    source = re.sub(r"\{[^{}]*\}|\s+", " ", source).replace("  ", " ")
    tables = re.findall(r"^\| trot says \|.*?(?=\n\n)", (ROOT / "docs" / "troubleshooting.md").read_text(), re.M | re.S)
    quoted = [line.split("|")[1] for table in tables for line in table.splitlines()[2:]]
    sentences = [sentence for cell in quoted for sentence in re.findall(r"`([^`]{20,})`", cell)]
    assert len(sentences) > 10
    for sentence in sentences:
        longest = max(
            re.split(r"\w+\(\)|\.\.\.|\bN+\b%?|\bFILE\b|\b\d+\b|'[^']*'|\b(?:Walker|nan)\b", sentence), key=len
        )
        assert longest.strip(" ,.;:()") in source, f"trot does not say: {longest}"


def test_every_command_of_readme_and_docs_can_be_run_by_the_script_or_has_a_reason_not_to(tmp_path, monkeypatch):
    """`python -m bench.docs_commands` runs them; nothing that a reader types is passed over without a word."""
    told = [one for page in PAGES for one in told_commands(page)]
    unknown = [f"{one.page}: {one.text}" for one in told if one.reason == UNKNOWN]
    assert not unknown
    run = [one for one in told if not one.reason]
    assert len({one.words for one in run}) > 100
    assert {one.words[1] for one in run if one.words[0] == "trot"} - {"--help"} == set(COMMANDS) - {"replay-fault"}
    make_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    # The run that some go on from, which the command before them trains.
    made, _ = make_run(tmp_path / "made", "ant")
    shutil.copytree(made.path, tmp_path / "runs" / "ant-shac-0")
    # What is run stays small, and can be read by the command that it is for.
    for one in run:
        if one.words[:2] == ("trot", "train") and "--help" not in one.words:
            assert parse_settings(list(one.words[2:])).settings.iterations == 2, one


def test_a_command_is_made_small_by_hand():
    assert small(["train", "ant", "--iterations", "300", "--seed", "1"]) == [
        "train", "ant", "--seed", "1", "--iterations", "2", "--worlds", "8",
    ]  # fmt: skip
    assert small(["resume", "runs/x"]) == ["resume", "runs/x", "--iterations", "12"]
    assert small(["compare", "ant", "--algos", "shac", "ppo", "--seeds", "0", "1", "--minutes", "5"]) == [
        "compare", "ant", "--algos", "shac", "ppo", "--seeds", "0", "--minutes", "0.2",
    ]  # fmt: skip
    assert small(["tasks"]) == ["tasks"]


def test_a_page_that_does_not_exist_is_no_success(capsys):
    assert run_docs_commands(["quickstart", "quickstrat"]) == 2
    said = capsys.readouterr().err
    assert "there is no page quickstrat; there are: README, " in said and "quickstart" in said


@pytest.mark.campaign
def test_every_command_of_readme_and_docs_runs():
    """In small, in half an hour on two cores."""
    assert run_docs_commands([]) == 0
