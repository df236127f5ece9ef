"""What one call costs through us, beside the same call without us."""

import dataclasses
import pathlib
import random
import statistics
from collections.abc import Callable, Iterator

from bench.models import answers, programs
from bench.models.bare import WARM_UP
from bench.models.setting import COMMAND_ENV, DOUBLE_SAYS, Setting

_HELLO = "Say hello."
_CLAUDE = (
    "-p", "--tools", "", "--system-prompt=Be brief.", "--max-turns=1", f"--model={answers.MODEL}",
    "--strict-mcp-config", "--no-session-persistence", "--output-format=stream-json", "--verbose",
    "--include-partial-messages", "--bare",
)  # fmt: skip
_CURSOR = ("--print", "--mode", "ask", "--trust", "--output-format", "json")


@dataclasses.dataclass
class Rival:
    """A driver, and what does the same without it.

    Args:
        name: the driver.
        ours: seconds of each of some calls through the mount.
        bare: seconds of as many without us; None where there is nothing that does the same.
        share: which part of the usual number of calls is made.
        rounds: for each round, the medians of ours and of the other.
    """

    name: str
    ours: Callable[[int], list[float]]
    bare: Callable[[int], list[float]] | None
    share: float = 1.0
    rounds: list[tuple[float, float]] = dataclasses.field(default_factory=list)

    def run(self, count: int) -> None:
        """Do one round, in random order."""
        some = max(1, round(count * self.share))
        medians = [0.0, 0.0]
        sides = [(0, self.ours)] + ([(1, self.bare)] if self.bare is not None else [])
        random.shuffle(sides)
        for place, side in sides:
            medians[place] = statistics.median(side(some))
        self.rounds.append((medians[0], medians[1]))

    @property
    def ms(self) -> float:
        """Milliseconds of a call through us."""
        return statistics.median(ours for ours, _ in self.rounds) * 1000

    @property
    def bare_ms(self) -> float:
        """Milliseconds of a call without us, 0 where there is none."""
        return statistics.median(bare for _, bare in self.rounds) * 1000

    @property
    def more_ms(self) -> float:
        """Milliseconds that we add to a call."""
        return statistics.median(ours - bare for ours, bare in self.rounds) * 1000

    @property
    def ratio(self) -> float:
        """Our time as a multiple of the other's."""
        return statistics.median(ours / bare for ours, bare in self.rounds)

    def row(self) -> str:
        """Its line of the table."""
        if self.bare is None:
            return f"{self.name:16}{self.ms:12.2f}{'-':>12}{'-':>12}{'-':>10}"
        return f"{self.name:16}{self.ms:12.2f}{self.bare_ms:12.2f}{self.more_ms:12.2f}{self.ratio:10.2f}"

    def summary(self) -> str:
        """Its part of the last line."""
        if self.bare is None:
            return f"{self.name} {self.ms:.2f} ms"
        return f"{self.name} {self.more_ms:+.2f} ms (ratio {self.ratio:.2f})"


HEAD = f"{'':16}{'ours, ms':>12}{'bare, ms':>12}{'more, ms':>12}{'times':>10}"


def rivals(setting: Setting) -> Iterator[Rival]:
    """The drivers that can be measured here."""
    user = [{"role": "user", "content": _HELLO}]
    chat = {"model": answers.MODEL, "messages": user}
    bodies = {
        "openai-compat": (answers.OPENAI, chat),
        "anthropic": (answers.ANTHROPIC, chat | {"max_tokens": 4096}),
        "gemini": (
            f"{answers.GEMINI}models/{answers.MODEL}:generateContent",
            {"contents": [{"role": "user", "parts": [{"text": _HELLO}]}]},
        ),
    }
    for name, (path, body) in bodies.items():
        yield Rival(name, _ours(setting, name, answers.TEXT, WARM_UP), _http(setting.url + path, body))
    if setting.claude:
        bare = _command([setting.claude, *_CLAUDE], setting)
        yield Rival("claude", _ours(setting, "claude", answers.TEXT.strip(), 1), bare, 0.05)
    bare = _command([str(setting.cursor), *_CURSOR], setting)
    yield Rival("cursor", _ours(setting, "cursor", DOUBLE_SAYS, 1), bare, 0.2)
    yield Rival("script", _ours(setting, "script", "", WARM_UP), None)


def _ours(setting: Setting, provider: str, right: str, warm_up: int) -> Callable[[int], list[float]]:
    device: pathlib.Path = setting.mountpoint / "dev" / "llm" / provider
    request = {"intent": _HELLO, "system_prompt": "Be brief."} if provider == "claude" else {"intent": _HELLO}
    return lambda count: programs.through_mount(device, request, count, right, warm_up)


def _http(url: str, body: object) -> Callable[[int], list[float]]:
    return lambda count: programs.bare_http(url, body, count)


def _command(argv: list[str], setting: Setting) -> Callable[[int], list[float]]:
    env = setting.environment(*COMMAND_ENV)
    return lambda count: programs.bare_command(argv, env, _HELLO, count)
