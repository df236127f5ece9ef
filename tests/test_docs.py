"""The documents say what is so: every example is run, every link leads somewhere, every option is there.

Longer than most modules: what reads the documents serves all of these laws.
"""

import os
import pathlib
import re
import subprocess
import sys
import textwrap
import urllib.parse
from collections.abc import Callable, Iterator
from typing import NamedTuple

import click
import pytest

from rnixfs.manifest import parse_agent, parse_skill
from rnixfs.mcp.config import parse_mcp
from rnixfs.providers import parse_providers
from rnixfs.storeconfig import parse_config
from rnixfs_cli import main as cli
from tests.daemon import LEAVE_SECONDS, Daemon, Done, Program, environment, quoted, running
from tests.filetable import PAGELESS, TABLE, Class, of, page_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAN = ROOT / "docs" / "man"
PAGES = sorted(path for path in MAN.glob("*.md") if path.name != "README.md")
# Documents whose examples begin at a host without a mount.
TOURS = [ROOT / "README.md", ROOT / "docs" / "quick-start.md"]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SECTIONS = ("Synopsis", "Reading", "Writing", "Errors", "Example")

# How the examples call what differs from run to run.
HOME = "/home/me"
PROJECT = f"{HOME}/project"
MOUNT = f"{HOME}/rnix"
FILES_OF_PROJECT = {
    "README.md": "# Rocket\n\nFlies to the moon.\n",
    "src/main.py": "import os\n\n\ndef fly():\n    return os.getpid()  # TODO: land\n",
    "src/test_main.py": "def test_fly():\n    pass\n",
}
PLACEHOLDERS = {
    "…": r".*",
    "<pid>": r"[0-9]+",
    "<n>": r"[0-9]+(\.[0-9]+)*",
    "<hex>": r"[0-9a-f]+",
    "<uuid>": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}
END = "\x1e"  # a control character that no example prints: the end of a command's output


# --- examples ---


class Example(NamedTuple):
    """A command of a document and what it should print.

    Args:
        line: where it stands.
        command: what bash is given.
        expected: the lines of output, with placeholders.
    """

    line: int
    command: str
    expected: list[str]


def blocks(path: pathlib.Path) -> Iterator[list[tuple[int, str]]]:
    """The blocks of a document that are marked `sh`: their lines with their numbers."""
    block: list[tuple[int, str]] | None = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if block is None:
            block = [] if line == "```sh" else None
        elif line == "```":
            yield block
            block = None
        else:
            block.append((number, line))
    assert block is None, f"{path}: a block is not closed"


def examples(path: pathlib.Path) -> list[Example]:
    """All examples of a document, in order."""
    found: list[Example] = []
    for block in blocks(path):
        assert "".join(line for _, line in block[:1]).startswith("$ "), (
            f"{path}: a block must begin with a command"
        )
        for number, line in block:
            if line.startswith("$ "):
                found.append(Example(number, line[2:], []))
            elif line.startswith("> ") and not found[-1].expected:
                found[-1] = found[-1]._replace(command=f"{found[-1].command}\n{line[2:]}")
            else:
                found[-1].expected.append(line)
    return found


def pattern(line: str) -> str:
    """A line of expected output as a regular expression."""
    words = re.split("(" + "|".join(map(re.escape, PLACEHOLDERS)) + ")", line)
    return "".join(PLACEHOLDERS.get(word) or re.escape(word) for word in words)


def matches(expected: list[str], output: str) -> bool:
    """Whether output is as expected; a line of `…` alone stands for any number of lines."""
    lines = [r"(?:.*\n)*" if line == "…" else pattern(line.rstrip()) + r"[ ]*\n" for line in expected]
    return re.fullmatch("".join(lines), output + "\n" if output else "") is not None


def session(found: list[Example]) -> str:
    """A script of bash that runs the examples one after the other and marks the end of each one's output."""
    mark = f"{{ _status=$?; printf '{END}'; (exit $_status); }}"
    return "".join(f"{one.command}\n{mark}\n" for one in found)


def check(path: pathlib.Path, found: list[Example], output: str, names: dict[str, str]) -> None:
    """Compare what the examples printed with what the document says."""
    for name, shown in names.items():
        output = output.replace(name, shown)
    outputs = output.split(END)
    assert len(outputs) == len(found) + 1, f"{path.name}: the session ended early: {output!r}"
    for one, printed in zip(found, outputs, strict=False):
        # A script's complaints name its line; those at a prompt do not.
        text = re.sub(r"^bash: line \d+: ", "bash: ", printed, flags=re.MULTILINE).removesuffix("\n")
        assert matches(one.expected, text), (
            f"{path.name}:{one.line}: $ {one.command}\nprints\n{text}\n\nand not\n" + "\n".join(one.expected)
        )


def run(program: Program) -> str:
    """The output of a session, to its end."""
    try:
        return program.end().out
    finally:
        program.clear()


def given(text: str, names: dict[str, str]) -> str:
    """Put the real names in the place of those that the documents use."""
    for name, shown in names.items():
        text = text.replace(shown, name)
    return text


# --- what the examples run in ---


def lay_project(folder: pathlib.Path) -> None:
    """Make the folder that the examples speak of."""
    for name, content in FILES_OF_PROJECT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def lay_command(folder: pathlib.Path) -> None:
    """Put a command `rnix` into a folder, whatever is installed."""
    folder.mkdir()
    program = folder / "rnix"
    program.write_text(f'#!/bin/sh\nexec {quoted(sys.executable)} -P -m rnixfs_cli "$@"\n')
    program.chmod(0o755)


def variables(folder: pathlib.Path) -> dict[str, str]:
    """Variables by which sessions find the command and the packages of this checkout."""
    return {
        "PATH": f"{folder / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'cli'}",
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all pages of the manual; each runs in a login session of its own."""
    folder = tmp_path_factory.mktemp("docs")
    lay_command(folder / "bin")
    with running(folder, env=variables(folder) | {"RNIX_MOUNT": str(folder / "m")}) as made:
        lay_project(made.host)
        yield made


@pytest.mark.parametrize("page", [MAN / "README.md", *PAGES], ids=lambda page: page.stem)
def test_examples_of_the_manual_print_what_they_say(daemon: Daemon, page: pathlib.Path) -> None:
    """Whoever types an example of the manual sees what the page shows."""
    found = examples(page)
    assert found, "a page has at least one example"
    names = {str(daemon.host): PROJECT, str(daemon.mount): MOUNT}
    # What a page starts it must end, or the next one would see it in the files that show everything.
    over = f'while [ -n "$(cat {MOUNT}/proc/processes)" ]; do sleep 0.02; done'
    script = given(f"cd {MOUNT}\nexec 2>&1\n{session(found)}{over}", names)
    check(page, found, run(daemon.script(script)), names)


def leave(mount: pathlib.Path) -> bool:
    """Take away what is mounted on a folder; its daemon ends by itself. Says whether anything was."""
    left = False
    while f" {mount} " in pathlib.Path("/proc/self/mountinfo").read_text():
        left = True
        subprocess.run(["fusermount3", "-u", "-z", str(mount)], timeout=LEAVE_SECONDS, check=True)
    return left


@pytest.mark.parametrize("tour", TOURS, ids=lambda tour: tour.stem)
def test_examples_of_a_tour_print_what_they_say(tmp_path: pathlib.Path, tour: pathlib.Path) -> None:
    """Whoever follows the README or the quick start from a host without a mount sees what they show."""
    found = examples(tour)
    assert found, "a tour has examples"
    lay_command(tmp_path / "bin")
    env = environment(tmp_path, **variables(tmp_path))
    home = pathlib.Path(env["HOME"])
    lay_project(home / "project")
    names = {str(home): HOME}
    program = Program(["bash", "-c", given(f"exec 2>&1\n{session(found)}", names)], env, home)
    try:
        check(tour, found, run(program), names)
    finally:
        left = leave(home / "rnix")
    assert not left, "a tour takes its mount away at its end"


def demo(folder: pathlib.Path, *arguments: str) -> Done:
    """Run the demo in surroundings of its own."""
    folder.mkdir()
    lay_command(folder / "bin")
    (folder / "tmp").mkdir()
    env = environment(folder, **variables(folder), TMPDIR=str(folder / "tmp"))
    program = Program(["bash", str(ROOT / "docs" / "demo.sh"), *arguments], env, folder)
    try:
        return program.end()
    finally:
        program.clear()
        for own in (folder / "tmp").iterdir():
            leave(own / "rnix")


def test_the_demo_shows_the_main_job_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """The demo mounts, shows an agent at work on the folder it is given, and takes everything away again."""
    lay_project(tmp_path / "project")
    done = demo(tmp_path / "first", str(tmp_path / "project"))
    assert (done.status, done.err) == (0, ""), done
    for line in (
        "$ cat proc/1/status",
        '$ echo \'{"intent":"hello"}\' > dev/llm/script; cat dev/llm/script',
        "$ rnix strace -e stat,write 1",
        "3 files in 1 folders",
        "(This report was made by a script, not by an AI; each number is from a tool's result.)",
    ):
        assert f"\n{line}" in done.out
    assert re.search(r"^\[ +[0-9.]+s\] Write\(FD\(4\), .* = \d+ bytes", done.out, re.MULTILINE)
    assert list((tmp_path / "first" / "tmp").iterdir()) == []


def test_the_numbers_of_the_demo_are_those_of_its_folder(tmp_path: pathlib.Path) -> None:
    """The report follows from what is in the folder: one with other files gives other numbers."""
    lay_project(tmp_path / "a project")
    (tmp_path / "a project" / "lib").mkdir()
    (tmp_path / "a project" / "lib" / "more.py").write_text("class Moon:\n    pass\n")
    done = demo(tmp_path / "second", str(tmp_path / "a project"))
    assert (done.status, done.err) == (0, ""), done
    assert "\n4 files in 2 folders" in done.out
    assert "\n3 definitions in 3 files" in done.out


def test_the_demo_says_what_is_wrong_with_its_folder(tmp_path: pathlib.Path) -> None:
    """A folder that is not there ends the demo with one sentence, before anything is mounted."""
    done = demo(tmp_path / "third", str(tmp_path / "nothing"))
    assert done == Done(
        1, "", f"demo: {tmp_path / 'nothing'} is no folder that can be entered; name another\n"
    )


# --- pages, tables and links ---


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_have_the_same_sections(page: pathlib.Path) -> None:
    """Each page says how to call, what is read and written, what fails, and shows it."""
    found = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    wanted = SECTIONS if page.stem != "rnix" else ("Synopsis", "Errors", "Example")
    assert [section for section in found if section in wanted] == list(wanted)


def test_the_index_lists_every_page_once() -> None:
    """The index of the manual is complete and names nothing that is not there."""
    links = re.findall(r"^\| \[[^]]+\]\(([^)]+)\) \|", (MAN / "README.md").read_text(), re.MULTILINE)
    assert sorted(links) == [page.name for page in PAGES]


def test_pages_are_of_files_that_are_there() -> None:
    """Each file of the tree has a page, and no page describes a file that is not there."""
    files = {page_of(row) for row in TABLE if row.kind not in PAGELESS}
    folders = {row.page for row in of(Class.FOLDER)}
    pages = {page.name for page in PAGES} - {"rnix.md"}
    assert files - pages == set(), "files without a page"
    assert pages - files - folders == set(), "pages without a file"


LINK = re.compile(r"(?<!!)\[[^]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: pathlib.Path) -> None:
    """A link of a document leads to a file of this repository, and to a heading that is in it."""
    text = FENCED.sub("", document.read_text())
    for link in LINK.findall(text):
        if link.startswith(("http:", "https:")):
            continue
        name, _, heading = urllib.parse.unquote(link).partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
        assert target.exists(), f"{link} leads nowhere"
        if heading:
            assert heading in set(anchors(target)), f"{link}: there is no such heading"


def anchors(document: pathlib.Path) -> Iterator[str]:
    """The names of a document's headings, as links have them."""
    for heading in re.findall(r"^#+ (.+)$", FENCED.sub("", document.read_text()), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# --- the command ---


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that can be called, with its name as it is typed."""

    def below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            yield name, command
            return
        context = click.Context(command)
        for one in command.list_commands(context):
            found = command.get_command(context, one)
            assert found is not None
            yield from below(f"{name} {one}", found)

    return below("rnix", cli.cli)


def options(command: click.Command) -> set[str]:
    """The options of a command, as they are typed."""
    return {
        word
        for one in command.params
        if isinstance(one, click.Option)
        for word in (*one.opts, *one.secondary_opts)
    }


def sections(page: pathlib.Path) -> dict[str, str]:
    """The text of each section of a page by its heading."""
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


EVERYWHERE = {"--mount", "--json", "-h", "--help"}


def test_every_command_and_option_is_on_its_page() -> None:
    """The page of the command has a section for each command, and in it a row for each of its options."""
    page = sections(MAN / "rnix.md")
    common = page["Options of every command"]
    assert all(f"`{word}" in common for word in EVERYWHERE)
    found = {heading for heading in page if heading.startswith("rnix ")}
    for name, command in commands():
        heading = next((one for one in found if f"{one} ".startswith(f"{name} ")), None)
        assert heading is not None, f"{name} has no section"
        found.remove(heading)
        names = re.findall(r"^\| (.*?) \|", page[heading], re.MULTILINE)
        rows = set(re.findall(r"`(--?[a-z-]+)", " ".join(names)))
        assert rows == options(command) - EVERYWHERE, f"the options of {name}"
    assert not found, "sections of commands that are not there"


CALL = re.compile(r"\brnix ((?:(?:daemon|mcp) )?[a-z][a-z-]*)((?: [^`|;&)\n]*)?)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_documents_name_are_there(document: pathlib.Path) -> None:
    """A document names no command of rnix, no option and no target of make that does not exist."""
    there = {name.removeprefix("rnix "): options(command) | EVERYWHERE for name, command in commands()}
    text = document.read_text()
    spans, lines = re.findall(r"`([^`\n]+)`", text), re.findall(r"^(?:    |\$ ).+$", text, re.MULTILINE)
    code = " \n".join([*spans, *lines])
    for name, rest in CALL.findall(code):
        if name in ("daemon", "command", "mcp"):
            continue
        assert name in there, f"rnix {name}"
        rest = rest.partition(" -- ")[0]  # what follows is another program's
        words = re.sub(r"'[^']*'|\"[^\"]*\"", "", rest).split()
        unknown = {word for word in words if word.startswith("-") and word != "-"} - there[name]
        assert not unknown, f"rnix {name} {unknown}"
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)\b", code)) - targets == set()


# --- configuration ---

PARSERS: dict[str, Callable[[str, str], object]] = {
    "version:": parse_providers,
    "name:": parse_agent,
    "---": parse_skill,
    "store:": parse_config,
    "servers:": parse_mcp,
}


def test_examples_of_configuration_are_right() -> None:
    """The files that documents show as examples are taken as they stand."""
    seen = set()
    for document in DOCUMENTS:
        for block in re.findall(r"(?:^    .*\n)+", document.read_text(), re.MULTILINE):
            text = textwrap.dedent(block)
            first = text.split()[0]
            if first in PARSERS:
                PARSERS[first](text, document.name)
                seen.add(first)
    assert seen == set(PARSERS), "each kind of file is shown somewhere"
