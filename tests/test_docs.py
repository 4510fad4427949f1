"""The documentation site builds, every link in it leads somewhere, and it loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
