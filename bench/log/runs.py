"""Runs of real processes: their model is a script, and each step calls the tool `read` for a file of its own.

Nothing of it is a stand-in: the system, its kernel, the reasoning loop and the tool are those of a daemon,
without the mount.
"""

import dataclasses
import json
import pathlib
import random
import statistics
import string
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import trio

from bench.servers import BenchError
from rnixfs.bootstrap import Settings, System
from rnixfs.proc.request import SpawnRequest
from rnixfs.state.store import Log
from rnixfs.types import Caller

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
JOURNALS = ("trace", "log")
RUN_SECONDS = 60.0  # for any one run

_PROVIDER = "bench"
_PERSON = Caller(0, 0)
# Bytes that a scenario file may have bound these: 100 answers must fit into one.
_SAID, _READ = 350, 2000
_SHORT_SAID, _SHORT_READ = 60, 150


@dataclasses.dataclass(frozen=True)
class Texts:
    """What a run's model says and its tool finds, by step.

    Args:
        name: for people.
        said: the answers.
        read: the files.
    """

    name: str
    said: list[str]
    read: list[str]


def typical(steps: int) -> Texts:
    """English and Python, as agents read and write them: from this project's documentation and sources."""
    said = _pieces(_gather("docs", "*.md"), steps, _SAID)
    return Texts("English and Python", said, _pieces(_gather("rnixfs", "*.py"), steps, _READ))


def short(steps: int) -> Texts:
    """The same in a few words a step, so that what stands around the words counts most."""
    said = _pieces(_gather("docs", "*.md"), steps, _SHORT_SAID)
    return Texts("the same, short", said, _pieces(_gather("rnixfs", "*.py"), steps, _SHORT_READ))


def noise(steps: int) -> Texts:
    """Letters without any order, which hardly compress."""
    rng = random.Random(4)

    def some(count: int) -> str:
        return "".join(rng.choices(string.ascii_letters + string.digits + " +-/", k=count))

    return Texts("random letters", [some(_SAID) for _ in range(steps)], [some(_READ) for _ in range(steps)])


def marked(texts: Texts, mark: str) -> Texts:
    """The same texts, each of which begins with a mark that can be replaced later."""
    return Texts(texts.name, [mark + text for text in texts.said], [mark + text for text in texts.read])


def _gather(folder: str, pattern: str) -> str:
    return "".join(path.read_text() for path in sorted((ROOT / folder).rglob(pattern)))


def _pieces(text: str, count: int, size: int) -> list[str]:
    # Where there is too little text it begins anew one letter later, so that no piece comes twice.
    starts = [
        (place * size) % (len(text) - size) + place * size // (len(text) - size) for place in range(count)
    ]
    return [text[start : start + size] for start in starts]


class Stage:
    """The folders of a system whose agents are played by a script.

    Args:
        folder: is made for it.
        texts: what they say and find.
    """

    def __init__(self, folder: pathlib.Path, texts: Texts) -> None:
        self.steps = len(texts.said)
        self.host, home = folder / "host", folder / "home"
        config, scenario = home / ".config" / "rnix", folder / "bench.yaml"
        for one in (self.host, config):
            one.mkdir(parents=True)
        for place, text in enumerate(texts.read):
            (self.host / _file(place)).write_text(text)
        scenario.write_text(json.dumps(_scenario(texts), ensure_ascii=False))
        provider = {"name": _PROVIDER, "driver": "script", "scenario": str(scenario)}
        shown = {"version": 1, "default_provider": _PROVIDER, "providers": [provider]}
        (config / "providers.yaml").write_text(json.dumps(shown))
        self.env = {"HOME": str(home), "PATH": "/usr/bin:/bin"}

    def system(self, log: Log) -> System:
        """A system with this log, and what the log restores of an earlier one."""
        return System(Settings((str(self.host),), env=self.env), log=log)

    def run(self, log: Log, intent: str = "Read all the parts, and say what each is about.") -> int:
        """Let one process take all steps; its pid.

        Raises:
            BenchError: it did not end well, or not in time.
        """
        return trio.run(self._run, log, intent)

    async def _run(self, log: Log, intent: str) -> int:
        system = self.system(log)
        with trio.move_on_after(RUN_SECONDS):
            async with trio.open_nursery() as nursery:
                await nursery.start(system.kernel.run)
                request = SpawnRequest(intent=intent, max_steps=self.steps + 1)
                process = system.kernel.spawn(request, _PERSON)
                await process.done.wait()
                nursery.cancel_scope.cancel()
            await system.models.aclose()
            if process.exit is None or process.exit.code or process.steps != self.steps + 1:
                raise BenchError(f"a process ended after step {process.steps}: {process.exit}")
            return process.pid
        raise BenchError(f"a process of {self.steps} steps did not end in {RUN_SECONDS:g} s")


def _file(place: int) -> str:
    return f"part-{place}.txt"


def _scenario(texts: Texts) -> dict[str, Any]:
    rules: list[dict[str, Any]] = [
        {
            "name": f"step-{place}",
            "when": {"step": place},
            "say": said.replace("{", "("),  # no template
            "calls": [{"tool": "read", "arguments": {"path": _file(place)}}],
        }
        for place, said in enumerate(texts.said)
    ]
    return {"name": "bench", "rules": [*rules, {"name": "end", "say": "That is all."}]}


# --- what a log says of a run ---


@dataclasses.dataclass(frozen=True)
class Content:
    """What a run has put into its log, each text counted once.

    Args:
        texts: bytes of the distinct texts in the data of events, wherever in it: prompts, messages, inputs
            and results of tools, answers.
        lines: bytes of the distinct lines of its trace and its log.
    """

    texts: int
    lines: int

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.texts + self.lines


def content(log: Log, pid: int) -> Content:
    """The distinct content of a log with one process."""
    texts = {text for one in (0, pid) for record in log.load(one) for text in _texts(record.data)}
    lines = {line for name in JOURNALS for line in log.read_journal(pid, name).splitlines(keepends=True)}
    return Content(sum(len(text.encode()) for text in texts), sum(map(len, lines)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def conversation(log: Log, pid: int) -> list[dict[str, Any]]:
    """What each step with a tool added to the conversation: the answer's message and the tool's."""
    steps = (record.data["messages"] for record in log.load(pid, ("step",)))
    return [
        {
            "said": said["content"],
            "id": said["tool_calls"][0]["id"],
            "path": said["tool_calls"][0]["arguments"]["path"],
            "result": tool["content"],
        }
        for said, tool, *_ in (step for step in steps if len(step) > 1)
    ]


@dataclasses.dataclass(frozen=True)
class Pace:
    """How long one step takes, from its request to the next one's.

    Args:
        mean: milliseconds.
        p50: milliseconds.
    """

    mean: float
    p50: float

    @classmethod
    def of(cls, times: list[float]) -> "Pace":
        """The pace of requests that began at these times, in seconds.

        Raises:
            BenchError: there are less than two.
        """
        gaps = [(later - earlier) * 1000 for earlier, later in pairwise(times)]
        if not gaps:
            raise BenchError("a run needs two steps to be measured")
        return cls(statistics.fmean(gaps), statistics.median(gaps))


def pace(log: Log, pid: int) -> Pace:
    """The pace of a process, by its log."""
    return Pace.of([record.ts for record in log.load(pid, ("request",))])


def on_disk(folder: pathlib.Path) -> int:
    """Bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


Made = Callable[[int], Texts]
KINDS: tuple[Made, ...] = (typical, short, noise)
"""The texts whose size on disk is measured; the first are those of all other figures."""
