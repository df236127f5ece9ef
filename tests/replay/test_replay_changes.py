"""What changed since a run was recorded: a replay names the first step and the field in which it shows."""

import shutil

import msgspec
import pytest

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.llm import ModelAnswer
from rnixfs.proc.context import Context
from rnixfs.proc.request import ForkFrom, SpawnRequest
from rnixfs.programs.tools import collect
from rnixfs.recording import read_recording
from tests.programs.reasonlab import act, answer, call, uses
from tests.replay.replaylab import Echo, Life


def two_steps(native: bool = True) -> list[ModelAnswer]:
    """A tool, then the end."""
    if native:
        return [uses(call("alpha", n=1), content="look"), answer("done")]
    return [answer(act("tool_call", "alpha", n=1)), answer("done")]


async def lived(top, replies=None, native=True, **more) -> Life:
    """A life that is over, and replays as it was."""
    life = Life(top, two_steps(native) if replies is None else replies, native=native, **more)
    life.bench.skill("notes", "Take notes.")
    life.bench.agent("worker", "skills: [notes]\n", "Work.")
    if "agent" not in more:
        life.request.agent = "worker"
    await life.live()
    await life.both()
    return life


async def found(life: Life) -> tuple[int, str]:
    """Step and field of the difference to what would be launched today; what was launched is as it was."""
    assert (await life.replay(recorded=True)).equal
    difference = (await life.replay()).difference
    assert difference is not None
    return difference.step, difference.field


# --- the launch ---


@pytest.mark.parametrize("native", [True, False])
async def test_changed_instructions_of_the_agent(tmp_path, autojump_clock, native):
    """They are part of the first prompt; both first lines that differ are shown."""
    life = await lived(tmp_path, native=native)
    life.bench.agent("worker", "skills: [notes]\n", "Work.\nAnd rest.")
    outcome = await life.replay()
    difference = outcome.difference
    assert difference is not None
    assert not outcome.equal
    assert (difference.step, difference.field) == (1, "system_prompt")
    assert "And rest." in difference.now
    first = f"{outcome.uuid} diverges at step 1: system_prompt\n"
    assert outcome.lines() == f"{first}  recorded (line 2): \n  now (line 2): And rest."


async def test_a_changed_description_of_a_skill(tmp_path, autojump_clock):
    """The prompt lists the skills."""
    life = await lived(tmp_path)
    path = life.bench.built_in / "skills" / "notes" / "SKILL.md"
    path.write_text(path.read_text().replace("about notes", "about everything"))
    assert await found(life) == (1, "system_prompt")


async def test_the_body_of_a_skill_shows_only_where_it_was_read(tmp_path, autojump_clock):
    """What a tool gave is in the log, so a replay does not look at it again."""
    life = await lived(tmp_path, [uses(call("skill", skill="notes")), answer("done")])
    life.bench.skill("notes", "Take no notes.")
    assert (await life.replay()).equal


async def test_a_skill_that_the_agent_lost(tmp_path, autojump_clock):
    """As a changed prompt."""
    life = await lived(tmp_path)
    life.bench.agent("worker", "", "Work.")
    assert await found(life) == (1, "system_prompt")


async def test_a_tool_that_was_taken_away(tmp_path, autojump_clock):
    """By the agent's list of devices."""
    life = await lived(tmp_path)
    life.bench.agent("worker", "skills: [notes]\nallowed_devices: [/dev/beta, /dev/fs]\n", "Work.")
    assert await found(life) == (1, "tools[alpha]")
    difference = (await life.replay()).difference
    assert difference is not None
    assert difference.now == "(not offered)"


async def test_a_tool_that_text_models_lost(tmp_path, autojump_clock):
    """They read of their tools in the prompt."""
    life = await lived(tmp_path, native=False)
    life.bench.agent("worker", "skills: [notes]\nallowed_devices: [/dev/beta, /dev/fs]\n", "Work.")
    assert await found(life) == (1, "system_prompt")


async def test_a_device_that_is_new_or_gone_or_says_something_else(tmp_path, autojump_clock):
    """Each tool by its name."""
    life = await lived(tmp_path)
    life.devices.append(Echo("delta"))
    assert await found(life) == (1, "tools[delta]")
    del life.devices[-2:]
    assert await found(life) == (1, "tools[gamma]")

    class Loud(Echo):
        def describe(self, caller):
            description = super().describe(caller)
            description.tools[0].description = "LOUD"
            return description

    life.devices[:] = [Loud("alpha"), life.devices[1], Echo("gamma", False)]
    difference = (await life.replay()).difference
    assert difference is not None
    assert difference.field == "tools[alpha]"
    assert "LOUD" in difference.lines()


async def test_another_model_of_the_provider(tmp_path, autojump_clock):
    """It is asked for by name."""
    life = await lived(tmp_path)
    life.bench.agent("worker", "skills: [notes]\nmodels:\n  preferred: big\n", "Work.")
    assert await found(life) == (1, "model")


async def test_a_provider_that_is_not_there_any_more(tmp_path, autojump_clock):
    """Its answers are in the log; whether it could be asked today does not matter."""
    life = await lived(tmp_path)
    life.model.reason = "not installed"
    (life.bench.user / "providers.yaml").write_text("version: 1\nproviders: []\n")
    assert (await life.replay()).equal


# --- limits show where they begin to matter ---


async def test_fewer_steps(tmp_path, autojump_clock):
    """In the step that would not be begun."""
    life = await lived(tmp_path, [*two_steps()[:1] * 3, answer("done")])
    life.bench.agent("worker", "skills: [notes]\nmax_steps: 2\n", "Work.")
    assert await found(life) == (3, "max_steps")
    life.bench.agent("worker", "skills: [notes]\nmax_steps: 4\n", "Work.")
    assert (await life.replay()).equal, "four are enough"


async def test_more_steps(tmp_path, autojump_clock):
    """In the step at which the recorded process ended."""
    life = await lived(tmp_path, two_steps()[:1] * 3, max_steps=2)
    assert await changed_limit(life, "max_steps") == (3, "max_steps")


async def changed_limit(life: Life, name: str) -> tuple[int, str]:
    """The difference, where the recorded request named no such limit."""
    (born,) = life.log.load(life.pid, ("spawn",))
    del born.data["request"][name]
    life.log = Edited(life.log, born)
    return await found(life)


class Edited:
    """A log in which one event reads otherwise."""

    def __init__(self, log, record) -> None:
        self._log = log
        self._record = record

    def __getattr__(self, name):
        return getattr(self._log, name)

    def load(self, pid, events=()):
        for record in self._log.load(pid, events):
            yield self._record if record.seq == self._record.seq else record


async def test_another_budget_of_tokens(tmp_path, autojump_clock):
    """Where it ends the process, and where it no longer does."""
    life = await lived(tmp_path, [uses(call("alpha", n=1), tokens_used=900), answer("done")])
    life.bench.agent("worker", "skills: [notes]\ncontext_budget: 800\n", "Work.")
    assert await found(life) == (1, "context_budget")
    life = await lived(tmp_path / "other", [uses(call("alpha", n=1), tokens_used=900)], context_budget=800)
    assert await changed_limit(life, "context_budget") == (1, "context_budget")


async def test_another_budget_of_money(tmp_path, autojump_clock):
    """Named as the request names it."""
    life = await lived(tmp_path, [uses(call("alpha", n=1), cost_usd=2.0), answer("done")])
    life.bench.agent("worker", "skills: [notes]\nmax_cost_usd: 1\n", "Work.")
    assert await found(life) == (1, "max_cost_usd")


async def test_rules_of_the_loop_that_changed(tmp_path, autojump_clock, monkeypatch):
    """A release that gives up sooner shows in the step in which it does."""
    life = await lived(tmp_path, [uses(call("alpha", n=1))] * 5 + [answer("done")])
    monkeypatch.setattr(limits, "NO_PROGRESS_MAX", 4)
    difference = (await life.replay(recorded=True)).difference
    assert difference is not None
    assert (difference.step, difference.field, difference.recorded) == (4, "exit", "goes on")
    assert "no_progress" in difference.now


async def test_a_conversation_that_is_kept_otherwise(tmp_path, autojump_clock, monkeypatch):
    """The messages of each request are compared with those that were sent then."""
    life = await lived(tmp_path)
    append = Context.append

    def forgetful(self, *messages):
        append(self, *(msgspec.structs.replace(one, tool_calls=[]) for one in messages))

    monkeypatch.setattr(Context, "append", forgetful)
    difference = (await life.replay(recorded=True)).difference
    assert difference is not None
    assert (difference.step, difference.field, difference.now) == (2, "messages[1].tool_calls", "[]")


async def test_a_tool_that_must_not_run_again(tmp_path, autojump_clock):
    """Of a call that a stop cut off, today's model would hear something else."""
    life = Life(tmp_path, [uses(call("alpha", n=0)), uses(call("beta", stop=True)), answer("done")])
    life.echo("beta").stop = lambda: life.tell("restart")
    await life.live()
    await life.both()
    life.echo("beta").again = False
    assert await found(life) == (2, "tool_calls[0].error")


async def test_a_tool_beside_others_that_must_not_run_again(tmp_path, autojump_clock):
    """As above, whichever of them comes first now."""
    calls = [call("alpha", "a", n=1), call("alpha", "b", n=2), call("beta", stop=True, seconds=3)]
    life = Life(tmp_path, [uses(*calls), answer("done")])
    life.echo("beta").stop = lambda: life.tell("restart")
    await life.live()
    life.echo("beta").again = False
    for _ in range(12):
        assert await found(life) == (1, "tool_calls[2].error")


async def test_words_of_the_loop_that_changed(tmp_path, autojump_clock, monkeypatch):
    """What the loop itself tells the model is compared, too."""
    life = await lived(tmp_path, [uses(call("nothing"), call("alpha")), answer("done")])
    monkeypatch.setattr("rnixfs.programs.reason.refused", lambda _tools, _call: None)
    monkeypatch.setattr("rnixfs.programs.reason._names", lambda _calls: "names")
    difference = (await life.replay(recorded=True)).difference
    assert difference is not None
    assert (difference.step, difference.field) == (1, "summary")


# --- rights ---


async def test_rights_that_changed_while_it_ran_come_again(tmp_path, autojump_clock):
    """After a stop it found fewer tools; it finds them again at the same place."""
    life = Life(tmp_path, [uses(call("alpha")), "restart", uses(call("beta")), answer("done")])
    life.between = [lambda world, process: world.kernel.happen(process, "revoke", {"path": "/dev/beta"})]
    await life.live()
    requests = [{tool.name for tool in request.tools} for request in life.model.requests]
    assert ["beta" in tools for tools in requests] == [True, True, False, False]
    await life.both()


async def test_a_child_is_bound_as_it_was(tmp_path, autojump_clock):
    """Its parent had lost a device before its birth, and loses another one while it runs."""
    life = Life(tmp_path, [])

    def revoke(path):
        def reply(_request):
            life.world.kernel.happen(life.process, "revoke", {"path": path})
            return uses(call("spawn", intent="help", agent="kid")) if path == "/dev/alpha" else answer("done")

        return reply

    life.model.replies = [revoke("/dev/alpha"), uses(call("wait")), answer("done")]
    life.kid.replies = [uses(call("beta"), call("alpha")), answer("kid")]
    await life.live()
    child = life.pid + 1
    await life.both(child)
    assert "alpha" not in {tool.name for tool in life.kid.requests[0].tools}
    (born,) = life.log.load(life.pid, ("spawn",))
    born.data["allowed_devices"] = ["/dev/gamma", "/proc/spawn", "/dev/llm"]
    life.log = Edited(life.log, born)
    difference = (await life.replay(who=child)).difference
    assert difference is not None
    assert (difference.step, difference.field) == (1, "tools[beta]")


async def test_rights_that_changed_while_it_was_starting(tmp_path, autojump_clock, monkeypatch):
    """Whether it had looked for its tools before or after that, the log cannot tell; so both will do."""
    for late in (False, True):
        life = Life(tmp_path / str(late), [uses(call("beta")), answer("done")])

        async def collected(sys, life=life, late=late):
            found = await collect(sys) if late else {}
            life.world.kernel.happen(life.process, "revoke", {"path": "/dev/alpha"})
            return found if late else await collect(sys)

        with monkeypatch.context() as patched:
            patched.setattr("rnixfs.programs.reason.collect", collected)
            await life.live()
        assert ("alpha" in {tool.name for tool in life.model.requests[0].tools}) is late
        await life.both()


async def test_a_tool_that_was_gone_for_a_while(tmp_path, autojump_clock):
    """Of the call that a stop had cut off nothing was known; later the tool was there again."""
    calls = [call("alpha", stop=True), call("gamma", stop=True)]
    life = Life(tmp_path, [uses(*calls), uses(call("alpha", n=1)), answer("done")])
    kinds = iter(["revoke", "grant"])

    def change(world, process):
        world.kernel.happen(process, next(kinds), {"path": "/dev/alpha"})

    def stop():
        life.between = [change]
        life.tell("restart")

    life.echo("alpha").stop = life.echo("gamma").stop = stop
    await life.live()
    first = read_recording(life.log, life.pid).steps[0]
    assert [done.device for done in first.done.values()] == ["", "/dev/gamma"]
    await life.both()


async def test_a_fork_is_launched_as_its_origin_was_asked_for(tmp_path, autojump_clock):
    """Its own request names no agent."""
    life = await lived(tmp_path)
    life.model.replies = [answer("again")]
    fork = await life.fork(1, SpawnRequest(fork=ForkFrom(str(life.pid), 1)))
    await life.both(fork)
    life.bench.agent("worker", "skills: [notes]\n", "Work more.")
    difference = (await life.replay(who=fork)).difference
    assert difference is not None
    assert (difference.step, difference.field) == (2, "system_prompt")


async def test_a_fork_is_bound_as_its_origin_was(tmp_path, autojump_clock):
    """Also where the parent of both has ended."""
    replies = [uses(call("spawn", intent="help", agent="kid"), call("wait")), answer("done")]
    life = Life(tmp_path, replies, allowed_devices=["/dev/beta", "/dev/llm", "/proc/spawn"])
    life.kid.replies = [uses(call("beta")), answer("kid"), uses(call("beta")), answer("fork")]
    await life.live()
    life.pid += 1
    fork = await life.fork(0)
    assert {"alpha", "beta"} & {tool.name for tool in life.kid.requests[2].tools} == {"beta"}
    await life.both(fork)


# --- what cannot be launched any more ---


async def test_what_is_gone_is_named_with_the_way_round(tmp_path, autojump_clock):
    """The agent, a skill, the working folder."""
    life = await lived(tmp_path)
    shutil.rmtree(life.bench.built_in / "skills" / "notes")
    assert "no skill 'notes'" in await refused(life)
    shutil.rmtree(life.bench.built_in / "agents" / "worker")
    assert "no agent 'worker'" in await refused(life)
    life.bench.cwd.rmdir()
    assert f"its working folder {life.bench.cwd} is gone" in await refused(life)
    assert (await life.replay(recorded=True)).equal


async def refused(life: Life) -> str:
    """Why it cannot be launched."""
    with pytest.raises(SyscallError) as caught:
        await life.replay()
    assert caught.value.code in (Code.NOT_FOUND, Code.INVALID)
    assert caught.value.reason.startswith(f"process {life.pid} cannot be launched as it would be today: ")
    assert caught.value.reason.endswith("; with --recorded it is launched as it was")
    return caught.value.reason


async def test_an_ancestor_whose_log_is_gone(tmp_path, autojump_clock):
    """What bounded the process is unknown then; nothing is guessed."""
    life = Life(tmp_path, [uses(call("spawn", intent="help", agent="kid"), call("wait")), answer("done")])
    life.kid.replies = [uses(call("beta")), answer("kid")]
    await life.live()
    life.log = Without(life.log, life.pid)
    with pytest.raises(SyscallError, match=f"the log of process {life.pid}, whose rights bound it, is gone"):
        await life.replay(who=life.pid + 1)
    assert (await life.replay(who=life.pid + 1, recorded=True)).equal


class Without(Edited):
    """A log that has forgotten a process."""

    def __init__(self, log, pid) -> None:
        super().__init__(log, None)
        self._pid = pid

    def load(self, pid, events=()):
        return self._log.load(pid, events) if pid != self._pid else iter(())


async def test_a_process_that_could_not_even_look_for_its_tools(tmp_path, autojump_clock, monkeypatch):
    """Its log ends there; that the replay cannot look for them either is no difference."""
    life = Life(tmp_path, [])
    reasons = iter(["", "gone"])
    monkeypatch.setattr(life.model, "unavailable", lambda: next(reasons, ""))
    process = await life.live()
    assert process.exit is not None
    assert "SERVICE_UNAVAILABLE" in process.exit.reason
    await life.both()

    async def refuse(_sys):
        raise SyscallError(Code.PERMISSION, "gone")

    monkeypatch.setattr("rnixfs.tape.collect", refuse)
    assert (await life.replay()).equal


async def test_tools_that_cannot_be_looked_for_today(tmp_path, autojump_clock, monkeypatch):
    """Then there is nothing to compare, and why."""
    life = await lived(tmp_path)

    async def refuse(_sys):
        raise SyscallError(Code.PERMISSION, "a device does not answer")

    monkeypatch.setattr("rnixfs.tape.collect", refuse)
    with pytest.raises(SyscallError, match="a device does not answer"):
        await life.replay()
    assert (await life.replay(recorded=True)).equal


# --- runs that are not over ---


async def test_a_run_that_is_not_over_replays_as_far_as_it_goes(tmp_path, autojump_clock):
    """To where its model thinks."""
    life = Life(tmp_path, [uses(call("alpha"), call("beta")), "restart"])
    await life.live(wake=False)
    outcome = await life.both()
    assert (outcome.steps, outcome.equal) == (1, True)


async def test_tools_that_had_not_all_ended(tmp_path, autojump_clock):
    """What had ended is there; nothing is made up for the rest."""
    calls = [call("alpha", "a", n=1), call("beta", "b", stop=True, seconds=3), call("alpha", "c", seconds=9)]
    life = Life(tmp_path, [uses(call("gamma")), uses(*calls)])
    life.echo("beta").stop = lambda: life.tell("restart")
    await life.live(wake=False)
    outcome = await life.both()
    assert outcome.steps == 1


async def test_a_tool_that_never_ended_though_its_step_did(tmp_path, autojump_clock):
    """A stop cut it off, and with a smaller budget the process ended as soon as it was woken."""
    calls = [call("beta", "b", stop=True, seconds=3), call("alpha", "a", n=1), call("alpha", "c", seconds=1)]
    life = Life(tmp_path, [uses(*calls)])
    life.echo("beta").stop = lambda: life.tell("restart")
    life.between = [lambda world, process: world.kernel.happen(process, "budget", {"tokens": 5})]
    process = await life.live()
    assert process.exit is not None
    assert process.exit.reason == "budget_exceeded: 10 of 5 tokens used"
    (first, _) = read_recording(life.log, life.pid).steps
    assert sorted(first.done) == [1, 2]
    for _ in range(8):
        await life.both()


async def test_a_process_that_was_killed(tmp_path, autojump_clock):
    """Its end came from outside; up to there all is equal."""
    life = Life(tmp_path, [uses(call("alpha"))] * 2, timeout_ms=1500)
    life.model.replies += [uses(call("alpha", seconds=3600)), answer("never")]
    process = await life.live()
    assert process.exit is not None
    assert process.exit.reason.startswith("timeout")
    outcome = await life.both()
    assert outcome.steps == 2
