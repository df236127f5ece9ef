"""Laws of dev/edit, dev/glob and dev/grep, on real folders and with real children."""

import hashlib
import json
import os
import pathlib
import stat
import threading

import pytest
import trio

from rnixfs import limits, search
from rnixfs.drivers.files import Edit, Glob, Grep
from rnixfs.errors import Code, SyscallError
from rnixfs.globs import compile_glob
from rnixfs.grepjob import clip_line
from rnixfs.hostpath import Roots
from rnixfs.search import StoppedError
from rnixfs.types import Caller, Place

ME = Caller(os.getuid(), os.getgid(), agent=1)


class Out:
    """Where a job writes."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with some files, and a secret beside it."""
    root = tmp_path / "root"
    for name, text in {
        "README.md": "# Title\nhello world\n",
        "src/main.py": "import os\n\n\ndef main():\n    return os\n",
        "src/deep/util.py": "def util():\n    pass\n",
        ".hidden/x.py": "def hidden(): pass\n",
        ".git/config": "def git\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("def secret\n")
    (root / "way_out").symlink_to(tmp_path / "outside")
    return root


def place_at(root: pathlib.Path, writable: bool = True):
    return lambda _caller: Place(str(root), {}, (str(root),), writable)


async def ask(device, body: object) -> dict:
    out = Out()
    await device.accept(ME, body)(out)
    assert out.data.endswith(b"\n")
    return json.loads(out.data)


async def fails(device, body: object) -> tuple[Code, str]:
    with pytest.raises(SyscallError) as caught:
        await ask(device, body)
    return caught.value.code, caught.value.reason


def children() -> list[str]:
    """Command lines of the searches that this process has running."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.append((path.parent / "cmdline").read_text())
        except OSError:
            continue
    return [line for line in found if "grepjob" in line]


def wait_for_child() -> None:
    """Return once a search runs."""
    while not children():
        threading.Event().wait(0.01)


# --- edit ---


async def test_an_edit_replaces_and_answers_with_the_new_state(root):
    """The hash, size and time in the answer are those of the file, so the next edit can expect them."""
    edit = Edit(place_at(root))
    answer = await ask(edit, {"path": "README.md", "old": "hello", "new": "goodbye"})
    file = root / "README.md"
    assert file.read_text() == "# Title\ngoodbye world\n"
    assert answer == {
        "path": "README.md",
        "replaced": 1,
        "created": False,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "size": file.stat().st_size,
        "mtime_ns": file.stat().st_mtime_ns,
    }
    expected = {"expected_sha256": answer["sha256"], "expected_mtime_ns": answer["mtime_ns"]}
    again = await ask(edit, {"path": str(file), "old": "goodbye", "new": "hi", **expected})
    assert again["replaced"] == 1
    code, reason = await fails(edit, {"path": str(file), "old": "hi", "new": "ho", **expected})
    assert (code, again["sha256"] in reason) == (Code.INVALID, True)
    assert file.read_text() == "# Title\nhi world\n"


async def test_a_whole_file_is_written_with_the_folders_it_needs(root):
    """`create: false` asks for one that is there, an empty hash for one that is not."""
    edit = Edit(place_at(root))
    answer = await ask(edit, {"path": "new/er/file", "content": "text"})
    assert (answer["created"], answer["path"]) == (True, "new/er/file")
    assert (root / "new" / "er" / "file").read_text() == "text"
    (root / "new" / "er" / "file").chmod(0o600)
    assert (await ask(edit, {"path": "new/er/file", "content": ""}))["created"] is False
    assert stat.S_IMODE((root / "new" / "er" / "file").stat().st_mode) == 0o600
    assert (await fails(edit, {"path": "other", "content": "x", "create": False}))[0] is Code.NOT_FOUND
    assert (await fails(edit, {"path": "README.md", "content": "x", "expected_sha256": ""}))[0] is Code.EXISTS
    assert (await fails(edit, {"path": "other", "old": "a", "new": "b"}))[0] is Code.NOT_FOUND
    assert (await fails(edit, {"path": "src", "content": "x"}))[0] is Code.IS_DIRECTORY
    assert not (root / "other").exists()


async def test_an_edit_goes_through_links_inside_and_through_none_outside(root):
    """The link stays a link; a way out is refused when the request is written, with the roots."""
    (root / "link").symlink_to("src/main.py")
    edit = Edit(place_at(root))
    answer = await ask(edit, {"path": "link", "old": "main", "new": "start"})
    assert answer["path"] == "src/main.py"
    assert (root / "link").is_symlink()
    assert "def start()" in (root / "src" / "main.py").read_text()
    for path in ("way_out/secret", "../outside/secret", "/etc/passwd", "way_out/new"):
        with pytest.raises(SyscallError, match=str(root)) as caught:
            edit.accept(ME, {"path": path, "content": "x"})
        assert caught.value.code is Code.PERMISSION
    assert os.listdir(root.parent / "outside") == ["secret"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("text", "JSON object"),
        ({"path": "x"}, "either"),
        ({"path": "x", "old": "a"}, "both"),
        ({"path": "x", "old": "a", "new": "b", "content": "c"}, "either"),
        ({"path": "x", "content": "c", "replace_all": True}, "belong to old"),
        ({"path": "x", "content": "c", "typo": 1}, "typo"),
        ({"path": 5, "content": "c"}, "path"),
        ({"path": "", "content": "c"}, "at least one"),
        ({"path": "x", "content": "c", "timeout_ms": 0}, "timeout_ms"),
    ],
)
def test_a_request_that_cannot_be_done_is_refused_while_it_is_written(root, body, word):
    """With a sentence on what would be right."""
    with pytest.raises(SyscallError, match=word) as caught:
        Edit(place_at(root)).accept(ME, body)
    assert caught.value.code is Code.INVALID


def test_without_the_right_to_write_nothing_is_edited(root):
    """The description says so, too."""
    edit = Edit(place_at(root, writable=False))
    with pytest.raises(SyscallError) as caught:
        edit.accept(ME, {"path": "README.md", "content": ""})
    assert caught.value.code is Code.READ_ONLY
    description = edit.describe(ME)
    assert (description.available, "read" in description.reason) == (False, True)


async def test_edits_of_one_file_at_once_lose_nothing(root):
    """Forty edits that run together all have their effect."""
    (root / "many").write_text("".join(f"[{index}]" for index in range(40)))
    edit = Edit(place_at(root))
    async with trio.open_nursery() as nursery:
        for index in range(40):
            nursery.start_soon(ask, edit, {"path": "many", "old": f"[{index}]", "new": f"<{index}>"})
    assert (root / "many").read_text() == "".join(f"<{index}>" for index in range(40))


async def test_an_edit_of_a_file_that_is_no_file_ends_at_once(root):
    """A pipe is refused, and stays."""
    os.mkfifo(root / "pipe")
    for body in ({"content": "x"}, {"old": "a", "new": "b"}):
        assert (await fails(Edit(place_at(root)), {"path": "pipe", **body}))[0] is Code.PERMISSION
    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)


# --- glob ---


async def test_a_glob_lists_in_order_with_totals(root):
    """Hidden names, .git and what is behind links are left out."""
    answer = await ask(Glob(place_at(root)), {"pattern": "**"})
    assert [one["path"] for one in answer["matches"]] == [
        "README.md",
        "src",
        "src/deep",
        "src/deep/util.py",
        "src/main.py",
        "way_out",
    ]
    assert [one["kind"] for one in answer["matches"]] == ["file", "folder", "folder", "file", "file", "link"]
    sizes = [(root / path).stat().st_size for path in ("README.md", "src/main.py", "src/deep/util.py")]
    assert answer["bytes"] == sum(sizes)
    assert answer["matches"][0]["size"] == sizes[0]
    assert answer["matches"][0]["mtime"] == int((root / "README.md").stat().st_mtime)
    assert (answer["total"], answer["files"], answer["folders"], answer["truncated"]) == (6, 3, 2, False)
    assert answer["by_extension"] == {".py": 2, ".md": 1}


async def test_totals_are_exact_where_the_list_is_cut(root):
    """The limit is about the list, not about what is counted."""
    for index in range(300):
        (root / "src" / f"f{index:03}.{index % 25:02}").write_text("12")
    answer = await ask(Glob(place_at(root)), {"pattern": "src/f*", "limit": 7})
    assert (len(answer["matches"]), answer["total"], answer["files"], answer["bytes"]) == (7, 300, 300, 600)
    assert answer["truncated"] is True
    assert answer["matches"][6]["path"] == "src/f006.06"
    assert len(answer["by_extension"]) == limits.GLOB_EXTENSIONS
    assert list(answer["by_extension"])[:2] == [".00", ".01"]


async def test_a_glob_starts_from_anywhere_below_the_roots(root):
    """A folder, an absolute pattern, plain text, everything."""
    glob = Glob(place_at(root))

    async def paths(body) -> list[str]:
        return [one["path"] for one in (await ask(glob, body))["matches"]]

    assert await paths({"pattern": "*.py", "path": "src"}) == ["src/main.py"]
    assert await paths({"pattern": f"{root}/src/**/*.py"}) == ["src/deep/util.py", "src/main.py"]
    assert await paths("**/*.md\n") == ["README.md"]
    assert await paths({"pattern": "**/*.py", "path": ".hidden"}) == [".hidden/x.py"]
    assert ".git/config" in await paths({"pattern": "**", "all": True})
    assert await paths({"pattern": "../root/*.md"}) == ["README.md"]
    assert (await fails(glob, {"pattern": "*", "path": "nothing"}))[0] is Code.NOT_FOUND
    assert (await fails(glob, {"pattern": "*", "path": "README.md"}))[0] is Code.NOT_DIRECTORY
    for outside in ({"pattern": "/etc/*"}, {"pattern": "../*"}, {"pattern": "*", "path": "way_out"}):
        code, reason = await fails(glob, outside)
        assert (code, str(root) in reason) == (Code.PERMISSION, True)
    for body in (
        {"pattern": "*", "limit": 0},
        {"pattern": "*", "limit": 10_001},
        {"pattern": ""},
        {},
        None,
        5,
    ):
        assert (await fails(glob, body))[0] is Code.INVALID


async def test_names_that_are_no_utf8_can_be_listed_and_searched(root):
    """They are shown with the bytes spelled out; the answer stays JSON."""
    (root / os.fsdecode(b"caf\xe9.txt")).write_text("needle\n")
    answer = await ask(Glob(place_at(root)), "*.txt")
    assert answer["matches"][0]["path"] == "caf\\xe9.txt"
    answer = await ask(Grep(place_at(root)), "needle")
    assert answer["matches"] == [{"path": "caf\\xe9.txt", "line": 1, "text": "needle"}]


async def test_the_mountpoint_is_neither_entered_nor_asked(root):
    """A search over a folder that holds our own mount ends, and gives nothing of it."""
    mountpoint = root / "src" / "rnix"
    mountpoint.mkdir()
    (mountpoint / "trap.py").write_text("def trap\n")
    for device in (Glob, Grep):
        tool = device(place_at(root), lambda: str(mountpoint))
        answer = await ask(tool, {"pattern": "**" if device is Glob else "def"})
        assert not [one for one in answer["matches"] if "rnix" in one["path"]]
        assert (await fails(tool, {"pattern": "x", "path": "src/rnix"}))[0] is Code.PERMISSION
    edit = Edit(place_at(root), lambda: str(mountpoint))
    assert (await fails(edit, {"path": "src/rnix/ctl", "content": "kill"}))[0] is Code.PERMISSION


def test_a_walk_ends_when_nobody_wants_it(root):
    """It asks in every folder, also in one of many names."""
    roots = Roots([str(root)])
    base = search.folder_at(roots, ".", str(root))
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(StoppedError):
        list(search.walk(roots, base, compile_glob("**"), stop))
    assert len(asked) == 3


async def test_work_in_a_thread_is_told_when_nobody_waits(root):
    """After a cancellation and after the time limit the loop goes on at once and the thread ends."""
    device = Glob(place_at(root))
    ended = threading.Semaphore(0)
    started = threading.Semaphore(0)

    def work(stop) -> None:
        started.release()
        while not stop():
            threading.Event().wait(0.01)
        ended.release()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(device.in_thread, work, 600_000, "")
        await trio.to_thread.run_sync(started.acquire)
        nursery.cancel_scope.cancel()
    with trio.fail_after(60):
        await trio.to_thread.run_sync(ended.acquire)
    with pytest.raises(SyscallError, match="not done after 1 ms; try") as caught:
        await device.in_thread(work, 1, "try")
    assert caught.value.code is Code.TIMEOUT
    with trio.fail_after(60):
        await trio.to_thread.run_sync(ended.acquire)


async def test_a_folder_swapped_during_a_walk_is_left_out(root):
    """The walk saw a folder; when it comes to enter it there is a link, and the link is not followed."""
    roots = Roots([str(root)])
    base = search.folder_at(roots, ".", str(root))
    found = []
    for one in search.walk(roots, base, compile_glob("**"), lambda: False):
        found.append(one.spot.rel)
        if one.spot.rel == "src":
            (root / "src").rename(root.parent / "aside")
            (root / "src").symlink_to(root.parent / "outside")
    assert found == ["README.md", "src", "way_out"]


# --- grep ---


async def test_a_grep_gives_lines_and_totals(root):
    """Matches come by path and line; hidden folders are left out."""
    answer = await ask(Grep(place_at(root)), {"pattern": r"^def \w+"})
    assert answer == {
        "matches": [
            {"path": "src/deep/util.py", "line": 1, "text": "def util():"},
            {"path": "src/main.py", "line": 4, "text": "def main():"},
        ],
        "total": 2,
        "files": 2,
        "searched": 3,
        "skipped": 0,
        "truncated": False,
    }
    assert children() == []


async def test_what_a_grep_can_be_asked(root):
    """Files by pattern, one file, context, case, plain text, everything, a cut list."""
    grep = Grep(place_at(root))

    async def lines(**body) -> list[tuple[str, int]]:
        return [(one["path"], one["line"]) for one in (await ask(grep, body))["matches"]]

    assert await lines(pattern="e", glob="*.md") == [("README.md", 1), ("README.md", 2)]
    assert await lines(pattern="def", glob="src/*.py") == [("src/main.py", 4)]
    assert await lines(pattern="DEF", path="src/main.py", ignore_case=True) == [("src/main.py", 4)]
    assert await lines(pattern="main()", fixed=True) == [("src/main.py", 4)]
    assert await lines(pattern="MAIN()", fixed=True, ignore_case=True) == [("src/main.py", 4)]
    assert (".git/config", 1) in await lines(pattern="git", all=True)
    context = await ask(grep, {"pattern": "^$", "path": "src/main.py", "context": 1, "limit": 1})
    assert context["matches"] == [
        {"path": "src/main.py", "line": 2, "text": "", "before": ["import os"], "after": [""]}
    ]
    assert (context["total"], context["truncated"]) == (2, True)
    last = await ask(grep, {"pattern": "return", "context": 3})
    assert last["matches"][0]["before"] == ["", "", "def main():"]
    assert last["matches"][0]["after"] == []


async def test_grep_skips_and_counts_what_is_no_text(root):
    """Binary files, pipes, and what cannot be decoded do no harm."""
    (root / "binary").write_bytes(b"needle\0needle\n")
    (root / "latin").write_bytes(b"caf\xe9 needle\r\n")
    os.mkfifo(root / "pipe")
    answer = await ask(Grep(place_at(root)), "needle")
    assert answer["matches"] == [{"path": "latin", "line": 1, "text": "caf� needle"}]
    assert answer["skipped"] == 1


async def test_long_lines_are_clipped_around_the_match(root):
    """The match is in what is shown, within the limit, and signs tell where something is missing."""
    (root / "long").write_text("x" * 5000 + "needle" + "y" * 5000 + "\n")
    answer = await ask(Grep(place_at(root)), "needle")
    text = answer["matches"][0]["text"]
    assert len(text) == limits.GREP_LINE_MAX
    assert "needle" in text
    assert text.startswith("…x")
    assert text.endswith("y…")
    assert clip_line("short") == "short"
    assert clip_line("a" * 501) == "a" * 498 + "…"
    assert clip_line("a" * 1000, 999) == "…" + "a" * 498


async def test_the_text_of_all_matches_is_bounded(root):
    """Past the limit the rest is only counted; matches begun before get their context."""
    (root / "wide").write_text(("needle" + "x" * 494 + "\n") * 3000)
    answer = await ask(Grep(place_at(root)), {"pattern": "needle", "limit": 2000, "context": 20})
    shown = sum(len(one["text"]) + sum(map(len, one["before"] + one["after"])) for one in answer["matches"])
    assert shown <= limits.GREP_TEXT_MAX + 20 * 21 * limits.GREP_LINE_MAX
    assert (answer["total"], answer["truncated"]) == (3000, True)


async def test_a_pattern_that_never_ends_is_ended(root):
    """A time limit kills it, a cancellation kills it, and meanwhile the loop runs."""
    (root / "evil").write_text("a" * 60 + "b\n")
    grep = Grep(place_at(root))
    body = {"pattern": "(a+)+$", "path": "evil"}
    code, reason = await fails(grep, {**body, "timeout_ms": 1000})
    assert (code, "1000 ms" in reason) == (Code.TIMEOUT, True)
    assert children() == []
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, grep, body)
            await trio.to_thread.run_sync(wait_for_child, abandon_on_cancel=True)
            nursery.cancel_scope.cancel()
    assert children() == []


@pytest.mark.parametrize(
    "body",
    [
        {"pattern": "("},
        {"pattern": ""},
        {"pattern": "a\nb"},
        {"pattern": "a{99999999999999999999}"},
        {"pattern": "(" * 2000 + ")" * 2000},
        {"pattern": "x" * 5000},
        {"pattern": "x", "context": 21},
        {"pattern": "x", "limit": 0},
        {"pattern": "x", "glob": "../*"},
        {"pattern": "x", "timeout_ms": 600_001},
        {"pattern": "x", "no": 1},
        [1],
    ],
)
def test_a_search_that_cannot_be_done_is_refused_while_it_is_written(root, body):
    """INVALID with a sentence, and no child is started."""
    with pytest.raises(SyscallError) as caught:
        Grep(place_at(root)).accept(ME, body)
    assert caught.value.code is Code.INVALID
    assert caught.value.reason


async def test_failures_of_the_child_are_those_of_the_request(root):
    """A code and a reason, as from any other device."""
    grep = Grep(place_at(root))
    assert await fails(grep, {"pattern": "x", "path": "nothing"}) == (
        Code.NOT_FOUND,
        "no such file or directory: nothing",
    )
    code, reason = await fails(grep, {"pattern": "x", "path": "way_out"})
    assert (code, str(root) in reason) == (Code.PERMISSION, True)
    assert (await fails(Grep(lambda _caller: Place("/", {}, (), False)), "x"))[0] is Code.PERMISSION


@pytest.mark.parametrize("device", [Edit, Glob, Grep])
def test_each_tool_describes_itself_with_a_request_that_works(root, device):
    """The example is taken, every field of the schemas is known, and reading changes nothing."""
    tool = device(place_at(root))
    description = tool.describe(ME)
    assert description.available
    assert not device(lambda _caller: Place("/", {}, (), True)).describe(ME).available
    tool.accept(ME, description.example)
    for info in description.tools:
        assert info.read_only == (device is not Edit)
        for name in info.input_schema["required"]:
            assert name in info.input_schema["properties"]
        with pytest.raises(SyscallError, match=r"path|pattern"):
            tool.accept(ME, {})
