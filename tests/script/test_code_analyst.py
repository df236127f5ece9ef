"""The scenario code-analyst: its report says what the tools found, whatever folder that was."""

import posixpath
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnixfs.drivers.script import ScriptModel
from tests.script.play import Play, shipped_model

PROMPT = "You are an analyst of source code."


class Folder:
    """File tools over files that exist only here.

    Args:
        files: texts by path.
        listed: how many matches glob lists at most.
    """

    def __init__(self, files: dict[str, str], listed: int = 200) -> None:
        self.files = files
        self.listed = listed
        self.folders = {posixpath.dirname(path) for path in files} - {""}

    def glob(self, arguments: dict[str, Any]) -> object:
        top = arguments["pattern"] == "README*"
        paths = [path for path in self.files if not top or path.startswith("README")]
        matches: list[dict[str, Any]] = [
            {"path": path, "size": len(self.files[path]), "kind": "file", "mtime": 0} for path in paths
        ]
        if not top:
            matches += [{"path": path, "size": 0, "kind": "folder", "mtime": 0} for path in self.folders]
        most = min(self.listed, arguments["limit"])
        kinds = Counter(posixpath.splitext(path)[1] for path in paths)
        return {
            "matches": matches[:most],
            "total": len(matches),
            "truncated": len(matches) > most,
            "files": len(paths),
            "folders": 0 if top else len(self.folders),
            "bytes": sum(len(self.files[path]) for path in paths),
            "by_extension": dict(kinds.most_common(20)),
        }

    def grep(self, arguments: dict[str, Any]) -> object:
        pattern = re.compile(arguments["pattern"])
        found = [
            {"path": path, "line": number, "text": line}
            for path, text in self.files.items()
            for number, line in enumerate(text.splitlines(), 1)
            if pattern.search(line)
        ]
        most = arguments["limit"]
        files = len({match["path"] for match in found})
        return {"matches": found[:most], "total": len(found), "files": files, "truncated": len(found) > most}

    def read(self, arguments: dict[str, Any]) -> object:
        text = self.files[arguments["path"]]
        return {
            "path": arguments["path"],
            "content": text,
            "lines": len(text.splitlines()),
            "size": len(text),
            "truncated": False,
        }

    def play(self, intent: str = "Analyse this folder", prompt: str = PROMPT) -> Play:
        return Play(intent, {"glob": self.glob, "grep": self.grep, "read": self.read}, prompt)


@pytest.fixture(scope="module")
def model() -> ScriptModel:
    return shipped_model()


PROJECT = {
    "README.md": "\n# Rocket\n\nFlies.\n",
    "src/main.py": "import os\n\ndef fly():\n    pass  # TODO: land\n\nclass Rocket:\n    pass\n",
    "src/util.py": "x = 1\n",
    "Makefile": "all:\n",
}


async def test_the_report_says_what_is_there(model):
    """Files, folders, lines, kinds, sizes, heading, definitions and open tasks of a small project."""
    play = Folder(PROJECT).play()
    report = await play.finish(model)
    assert "4 files in 1 folders, 98 B in all. 13 lines of text in 4 files." in report
    assert "- .py: 2 (50 %)" in report
    assert "- without extension: 1 (25 %)" in report
    assert "- src/main.py: 69 B\n- README.md: 18 B" in report
    assert "README.md begins: Rocket" in report
    assert "2 definitions in 1 files, 1 open tasks" in report
    assert "src/main.py with 7 lines. It begins: import os" in report
    assert "- src/main.py:4: pass  # TODO: land" in report
    assert "not by an AI" in report


async def test_it_explores_with_several_calls_at_once_and_then_reads(model):
    """The first turn searches, the second reads the README and the largest source file, the third reports."""
    play = Folder(PROJECT).play()
    await play.finish(model)
    assert [[call.name for call in turn] for turn in play.calls] == [
        ["glob", "glob", "grep", "grep", "grep"],
        ["read", "read"],
    ]
    assert [call.arguments["path"] for call in play.calls[1]] == ["README.md", "src/main.py"]


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3})?\.(py|md|bin)", fullmatch=True), st.text("ab\n# ")
    )
)
async def test_other_folders_make_other_numbers(files):
    """Whatever the folder holds, the numbers of the report are its own, and nothing fails."""
    folder = Folder(files)
    report = await folder.play().finish(shipped_model())
    if not files:
        assert "empty" in report
        return
    lines = sum(len(text.splitlines()) for text in files.values())
    assert f"{len(files)} files in {len(folder.folders)} folders" in report
    assert f" {lines} lines of text" in report
    for kind, count in Counter(posixpath.splitext(path)[1] for path in files).items():
        assert f"- {kind}: {count} (" in report


async def test_a_folder_without_readme_and_source(model):
    """There is nothing to read, so the report comes a turn sooner."""
    play = Folder({"a.bin": "x", "b": "y"}).play()
    report = await play.finish(model)
    assert "There is no README" in report
    assert "largest source file" not in report
    assert len(play.calls) == 1


async def test_a_huge_folder_is_reported_with_its_exact_totals(model):
    """The names are cut, the totals are not, and the report says which is which."""
    files = {f"d{number % 7}/f{number}.py": "x\n" * (number % 5) for number in range(5000)}
    report = await Folder(files).play().finish(model)
    assert "5000 files in 7 folders" in report
    assert "10000 lines of text" in report
    assert "(of the first 200 names)" in report


async def test_a_folder_that_cannot_be_searched(model):
    """The tool's own words are passed on."""
    play = Folder({}).play()
    play.tools["glob"] = lambda arguments: {
        "error": {"code": "NOT_FOUND", "message": "no such folder: /nope"}
    }
    assert "no such folder: /nope" in await play.finish(model)
    play = Folder({}).play()
    play.tools["glob"] = lambda arguments: "error: time is up"
    assert "time is up" in await play.finish(model)


async def test_a_search_that_fails_costs_only_its_own_line(model):
    """Without grep's numbers the report still says what glob found."""
    play = Folder(PROJECT).play()
    play.tools["grep"] = lambda arguments: {"error": {"code": "TIMEOUT", "message": "too slow"}}
    play.tools["read"] = lambda arguments: "error: no rights"
    report = await play.finish(model)
    assert "4 files in 1 folders" in report
    assert "An unknown number of lines" in report


@pytest.mark.parametrize(
    ("intent", "path"),
    [
        ("Analyse this folder", None),
        ("Analyse /usr/lib/python3.", "/usr/lib/python3"),
        ("Please explore ./src and report", "./src"),
        ("Survey '../other-one/x_y'", "../other-one/x_y"),
        ("explore ~/code", "~/code"),
        ("Explore input/output and either/or", None),
        ("describe /", "/"),
    ],
)
async def test_a_path_in_the_intent_is_the_folder(model, intent, path):
    """A path with a slash names the folder; else the process's own is meant."""
    play = Folder(PROJECT).play(intent, prompt="")
    await play.turn(model)
    assert [call.arguments.get("path") for call in play.calls[0]] == [path] * 5


async def test_without_the_tools_it_does_not_pretend(model):
    """Asked without tools, nothing is analysed and nothing is claimed."""
    answer = await Play("Analyse this folder", {}, PROMPT).finish(model)
    assert "not an AI" in answer
    assert "files in" not in answer
