"""From a request to a launch: which agent, which model, which rights, which folder, which prompt."""

from pathlib import Path

import pytest
import trio

from rnixfs.errors import Code, SyscallError
from rnixfs.llm import Fallback
from rnixfs.manifest import UNRESTRICTED
from rnixfs.proc.process import Process
from rnixfs.types import Caller
from tests.programs.reasonlab import PERSON, Bench, Scripted, answer, failure, log_of, write


def code_of(call) -> tuple[Code, str]:
    """The code and the words that a call fails with."""
    with pytest.raises(SyscallError) as caught:
        call()
    return caught.value.code, caught.value.reason


def agent(process: Process) -> Caller:
    """A process as a caller."""
    return Caller(1000, 1000, agent=process.pid)


class Room(Bench):
    """Four models: two of configuration, and two of those that are tried where nothing is said."""

    def __init__(self, top: Path, default: bool = True) -> None:
        names = ("first", "second", "claude", "script")
        self.fakes = {name: Scripted(name, [answer("done")] * 9) for name in names}
        for fake in self.fakes.values():
            fake.gate = trio.Event()  # nobody is answered, so that parents live
        super().__init__(top, list(self.fakes.values()), first_default=default)


@pytest.fixture
async def room(nursery, tmp_path):
    found = Room(tmp_path)
    await nursery.start(found.kernel.run)
    return found


@pytest.fixture
async def bare(nursery, tmp_path):
    found = Room(tmp_path, default=False)
    await nursery.start(found.kernel.run)
    return found


# --- the model ---


async def test_the_request_names_the_provider_first(room, autojump_clock):
    """Then the agent, then the parent, then the configuration."""
    room.agent("pinned", "models:\n  provider: second\n")
    parent = room.spawn(provider="claude")
    assert room.spawn(agent="pinned", provider="script").launch.provider == "script"
    assert room.spawn(agent="pinned").launch.provider == "second"
    assert room.spawn(agent="pinned", caller=agent(parent)).launch.provider == "second"
    assert room.spawn(caller=agent(parent)).launch.provider == "claude"
    assert room.spawn().launch.provider == "first"


async def test_where_nothing_is_said_the_first_available_answers(bare, autojump_clock):
    """claude, cursor, then script."""
    assert bare.spawn().launch.provider == "claude"
    bare.fakes["claude"].reason = "not installed"
    assert bare.spawn().launch.provider == "script"


async def test_a_project_may_name_the_default(room, autojump_clock):
    """Over the user's own choice."""
    write(room.cwd / ".rnix" / "providers.yaml", "version: 1\ndefault_provider: second\n")
    assert room.spawn().launch.provider == "second"


async def test_a_provider_that_is_not_there(room, autojump_clock):
    """NOT_FOUND with the names there are."""
    code, reason = code_of(lambda: room.spawn(provider="absent"))
    assert code is Code.NOT_FOUND
    assert "'absent'" in reason
    assert "first, second" in reason.replace("claude, cursor, script, ", "")


async def test_a_provider_that_cannot_be_used(room, autojump_clock):
    """SERVICE_UNAVAILABLE with its reason; another is not taken in silence."""
    room.fakes["second"].reason = "the key is missing"
    code, reason = code_of(lambda: room.spawn(provider="second"))
    assert code is Code.SERVICE_UNAVAILABLE
    assert "the key is missing" in reason


async def test_whose_model_is_asked_for(room, autojump_clock):
    """The request's; the agent's where its provider is used; else the provider's default."""
    room.agent("pinned", "models:\n  provider: second\n  preferred: big\n")
    room.agent("free", "models:\n  preferred: any\n")
    assert room.spawn(agent="pinned").launch.model == "big"
    assert room.spawn(agent="pinned", model="small").launch.model == "small"
    assert room.spawn(agent="pinned", provider="first").launch.model == ""
    assert room.spawn(agent="free").launch.model == "any"
    assert room.spawn().launch.model == ""


# --- rights ---


async def test_an_agent_without_restrictions_may_use_every_device(room, autojump_clock):
    """Devices, mounts and children; never the files that command the system."""
    process = room.spawn()
    assert set(process.launch.allowed or ()) == {*UNRESTRICTED, "/dev/llm/first"}
    assert process.rights.permits("/dev/anything")
    assert process.rights.permits("/proc/spawn")
    assert not process.rights.permits("/sys/ctl")


async def test_the_tools_of_agent_and_skills_are_the_whitelist(room, autojump_clock):
    """Those of all skills together, and the model's own file."""
    room.skill("one", "body", "allowed-tools: /dev/glob\n")
    room.skill("two", "body", "allowed-tools: shell\n")
    room.agent("skilled", "skills: [one]\nallowed_devices: [/dev/grep]\n")
    process = room.spawn(agent="skilled", skills=["two"])
    assert sorted(process.launch.allowed or ()) == ["/dev/glob", "/dev/grep", "/dev/llm/first", "/dev/shell"]
    assert process.launch.skills == ("one", "two")
    assert process.status()["allowed_devices"] == sorted(process.launch.allowed or ())


@pytest.mark.parametrize(
    ("agents", "asked", "expected"),
    [
        ("[/dev/a, /dev/b]", ["/dev/b", "/dev/c"], ["/dev/b"]),
        ("[/dev]", ["/dev/b", "/mnt"], ["/dev/b"]),
        ("[/dev/a/x, /mnt]", ["/dev/a"], ["/dev/a/x"]),
        ("[/dev/a]", ["/dev/ab"], []),
        ("[/dev/a]", [], []),
        ("[/dev/a]", ["/"], ["/dev/a"]),
        (None, ["/dev/b"], ["/dev/b"]),
    ],
)
async def test_a_request_narrows_what_the_agent_may(room, autojump_clock, agents, asked, expected):
    """What both allow, and the model's own file, without which it could not think."""
    room.agent("some", "" if agents is None else f"allowed_devices: {agents}\n")
    process = room.spawn(agent="some", allowed_devices=asked)
    assert sorted(process.launch.allowed or ()) == sorted([*expected, "/dev/llm/first"])


async def test_a_childs_rights_stay_within_its_parents(room, autojump_clock):
    """Whatever its agent and its request say."""
    parent = room.spawn(allowed_devices=["/dev/glob", "/proc/spawn"])
    child = room.spawn(caller=agent(parent), allowed_devices=["/dev"])
    assert child.rights.permits("/dev/glob")
    assert not child.rights.permits("/dev/shell")


async def test_a_child_may_not_use_a_model_that_its_parent_may_not(room, autojump_clock):
    """Refused at once, with both named."""
    parent = room.spawn(allowed_devices=["/dev/glob"])
    code, reason = code_of(lambda: room.spawn(caller=agent(parent), provider="second"))
    assert code is Code.PERMISSION
    assert "/dev/llm/second" in reason


async def test_writing_needs_the_right_to_edit(room, autojump_clock):
    """And a child writes only where its parent may."""
    assert room.spawn().launch.place.writable
    assert not room.spawn(allowed_devices=["/dev/fs"]).launch.place.writable
    parent = room.spawn(allowed_devices=["/dev/fs"])
    assert not room.spawn(caller=agent(parent)).launch.place.writable
    assert room.spawn(allowed_devices=["/dev/edit"]).launch.place.writable


# --- the folder ---


async def test_where_a_process_stands(room, autojump_clock):
    """Where the request says, else where its parent stands, else where the daemon was started."""
    (room.cwd / "sub" / "deep").mkdir(parents=True)
    assert room.spawn().launch.place.cwd == str(room.cwd)
    parent = room.spawn(cwd=str(room.cwd / "sub") + "/./deep/..")
    assert parent.launch.place.cwd == str(room.cwd / "sub")
    assert parent.launch.place.roots == (str(room.cwd / "sub"),)
    assert room.spawn(caller=agent(parent)).launch.place.cwd == str(room.cwd / "sub")
    deep = str(room.cwd / "sub" / "deep")
    assert room.spawn(caller=agent(parent), cwd=deep).launch.place.cwd == deep


async def test_people_may_start_anywhere_agents_below_their_own(room, autojump_clock):
    """A parent's folders bound its children's."""
    (room.cwd / "sub").mkdir()
    (room.cwd / "subway").mkdir()
    assert room.spawn(cwd=str(room.top)).launch.place.roots == (str(room.top),)
    parent = room.spawn(cwd=str(room.cwd / "sub"))
    for outside in (room.cwd, room.cwd / "subway", Path("/")):
        code, reason = code_of(lambda outside=outside: room.spawn(caller=agent(parent), cwd=str(outside)))
        assert code is Code.PERMISSION
        assert str(room.cwd / "sub") in reason


async def test_no_link_leads_a_child_out_of_its_parents_folders(room, autojump_clock):
    """What counts is where the folder really lies: rights are not gained by spawning."""
    secret = room.top / "secret"
    write(secret / "key.txt", "s3cret")
    (room.cwd / "way-out").symlink_to(secret)
    parent = room.spawn()
    code, _ = code_of(lambda: room.spawn(caller=agent(parent), cwd=str(room.cwd / "way-out")))
    assert code is Code.PERMISSION


async def test_a_link_that_stays_inside_is_fine(room, autojump_clock):
    """Links are no reason to refuse by themselves."""
    (room.cwd / "real").mkdir()
    (room.cwd / "alias").symlink_to(room.cwd / "real")
    parent = room.spawn()
    assert room.spawn(caller=agent(parent), cwd=str(room.cwd / "alias")).live


@pytest.mark.parametrize("name", ["absent", "file.txt"])
async def test_a_folder_that_is_none(room, autojump_clock, name):
    """NOT_FOUND, naming it."""
    (room.cwd / "file.txt").write_text("x")
    code, reason = code_of(lambda: room.spawn(cwd=str(room.cwd / name)))
    assert code is Code.NOT_FOUND
    assert name in reason


async def test_no_process_stands_in_the_mount(room, autojump_clock):
    """The daemon would have to ask itself; refused before anything there is touched."""
    room.mountpoint = str(room.top / "mnt")
    for inside in ("mnt", "mnt/proc/1", "other/../mnt"):
        code, reason = code_of(lambda inside=inside: room.spawn(cwd=str(room.top / inside)))
        assert code is Code.INVALID
        assert room.mountpoint in reason
    (room.top / "mnt2").mkdir()
    assert room.spawn(cwd=str(room.top / "mnt2")).live


async def test_no_link_leads_into_the_mount(room, autojump_clock):
    """Whoever starts it: what lies there must not even be looked at, or the daemon waits for itself."""
    room.mountpoint = str(room.top / "mnt")
    (room.cwd / "inward").symlink_to(room.top / "mnt")
    (room.cwd / "again").symlink_to("inward")
    for name in ("inward", "inward/proc/1", "again"):
        code, reason = code_of(lambda name=name: room.spawn(cwd=str(room.cwd / name)))
        assert code in (Code.INVALID, Code.PERMISSION)
        assert "mount" in reason


async def test_the_environment(room, autojump_clock):
    """The request's replaces the daemon's, and children have their parent's."""
    assert room.spawn().launch.place.env == {"HOME": "/home/x"}
    parent = room.spawn(env={"A": "b"})
    assert parent.launch.place.env == {"A": "b"}
    assert room.spawn(caller=agent(parent)).launch.place.env == {"A": "b"}


# --- agents, skills, limits, prompt ---


async def test_an_agent_that_is_not_there(room, autojump_clock):
    """NOT_FOUND with the names there are, and the nearest one."""
    room.agent("reviewer", "")
    code, reason = code_of(lambda: room.spawn(agent="reviewr"))
    assert code is Code.NOT_FOUND
    assert "no agent 'reviewr'; there are: default, reviewer" in reason


@pytest.mark.parametrize("name", ["../default", "a/b", "a b", ".hidden", "x" * 65, "default\n"])
async def test_what_cannot_be_the_name_of_an_agent(room, autojump_clock, name):
    """Refused before any file is looked at."""
    code, reason = code_of(lambda: room.spawn(agent=name))
    assert code is Code.INVALID
    assert "cannot be the name" in reason


async def test_a_bad_manifest_is_named_with_its_line(room, autojump_clock):
    """File and line, for agents and skills."""
    room.agent("broken", "max_steps: many\n")
    code, reason = code_of(lambda: room.spawn(agent="broken"))
    assert code is Code.INVALID
    assert "agents/broken/agent.yaml:3" in reason
    code, reason = code_of(lambda: room.spawn(skills=["absent"]))
    assert code is Code.NOT_FOUND
    assert "no skill 'absent'" in reason


async def test_limits_come_from_the_request_then_the_agent(room, autojump_clock):
    """0 is a value like any other: it lifts the agent's limit."""
    room.agent("limited", "max_steps: 7\ncontext_budget: 1000\nmax_cost_usd: 2.5\ntimeout_ms: 60000\n")
    budget = room.spawn(agent="limited").budget
    assert (budget.max_steps, budget.tokens, budget.cost_usd, budget.timeout_ms) == (7, 1000, 2.5, 60000)
    budget = room.spawn(agent="limited", max_steps=3, context_budget=0, max_cost_usd=0, timeout_ms=0).budget
    assert (budget.max_steps, budget.tokens, budget.cost_usd, budget.timeout_ms) == (3, 0, 0, 0)
    budget = room.spawn().budget
    assert (budget.max_steps, budget.tokens, budget.cost_usd, budget.timeout_ms) == (50, 0, 0, 0)


async def test_the_system_prompt_is_the_same_for_the_same_request(room, autojump_clock):
    """Words of the request, instructions, skills by their descriptions, the folder; no time, no pid."""
    room.skill("notes", "the body")
    room.skill("maps", "the body")
    room.agent("skilled", "skills: [notes]\n", "Be careful.\n")
    prompts = set()
    for _ in range(3):
        process = room.spawn(agent="skilled", skills=["maps"], system_prompt="Speak German.")
        prompts.add(process.context.system_prompt)
        await trio.sleep(1000)
    (prompt,) = prompts
    assert prompt == (
        "Speak German.\n\nBe careful.\n\n"
        "Skills (load one with the tool `skill` when its task comes up):\n"
        "- notes: about notes\n- maps: about maps\n\n"
        f"Working folder: {room.cwd}"
    )


async def test_a_process_sees_its_own_folder_models_and_library(room, autojump_clock):
    """The binds of its view belong to where it stands, not to where the daemon does."""
    project = room.top / "project"
    write(project / ".rnix" / "agents" / "local" / "agent.yaml", "name: local\ndescription: of the project\n")
    write(project / "here.txt", "x")
    process = room.spawn(cwd=str(project), agent="local")
    assert process.launch.agent == "local"
    lib = process.view.root.lookup("lib", PERSON).lookup("agents", PERSON)
    assert "local" in [name for name, _ in lib.entries(PERSON)]
    node = process.view.root.lookup("dev", PERSON).lookup("fs", PERSON)
    for name in str(project).strip("/").split("/"):
        node = node.lookup(name, PERSON)
    assert "here.txt" in [name for name, _ in node.entries(PERSON)]


# --- fallback and effort ---


async def test_who_is_asked_instead(room, autojump_clock):
    """The request's list counts, then what the agent says of its own provider; another provider's words mean
    nothing."""
    models = "models:\n  provider: first\n  fallback: small\n  fallback_provider: second\n"
    models += "  reasoning_effort: low\n"
    room.agent("careful", models)
    launch = room.spawn(agent="careful").launch
    assert (launch.fallback, launch.effort) == ((Fallback("second", "small"),), "low")
    assert launch.allowed[-2:] == ("/dev/llm/first", "/dev/llm/second")
    named = room.spawn(agent="careful", fallback=[Fallback("claude")], effort="high").launch
    assert (named.fallback, named.effort) == ((Fallback("claude"),), "high")
    assert room.spawn(agent="careful", fallback=[]).launch.fallback == ()
    other = room.spawn(agent="careful", provider="script").launch
    assert (other.fallback, other.effort) == ((), "")


async def test_a_fallback_that_is_not_there(room, autojump_clock):
    """It is refused when the process is to be made, with the names there are."""
    code, reason = code_of(lambda: room.spawn(fallback=[Fallback("secnd")]))
    assert code is Code.NOT_FOUND
    assert "secnd" in reason
    assert "second" in reason


async def test_a_child_falls_back_only_to_what_its_parent_may(room, autojump_clock):
    """What a request names is refused, what an agent names is left out."""
    models = "models:\n  provider: first\n  fallback_provider: second\n"
    room.agent("careful", models)
    parent = room.spawn(provider="first", allowed_devices=["/dev/shell", "/proc/spawn"])
    code, reason = code_of(lambda: room.spawn(caller=agent(parent), fallback=[Fallback("second")]))
    assert code is Code.PERMISSION
    assert "/dev/llm/second" in reason
    assert room.spawn(caller=agent(parent), agent="careful").launch.fallback == ()


async def test_a_process_goes_on_with_its_fallback(nursery, tmp_path, autojump_clock):
    """The model that answers is told in the log, and what was said is the fallback's."""
    first = Scripted("first", [failure(Code.PERMISSION, "first: wrong key")])
    second = Scripted("second", [answer("from the second")])
    bench = Bench(tmp_path, [first, second])
    await nursery.start(bench.kernel.run)
    process = await bench.run(effort="high", fallback=[Fallback("second", "small")])
    assert process.result == "from the second"
    assert (first.requests[0].effort, second.requests[0].model) == ("high", "small")
    assert ("warning", "first could not answer; second did") in log_of(process)


@pytest.mark.parametrize(("configured", "name"), [(True, "first"), (False, "claude")])
async def test_sys_providers_tells_the_default(nursery, tmp_path, autojump_clock, configured, name):
    """The configured one, else the first that is available: the one that a process gets which names none."""
    place = Room(tmp_path, default=configured)
    await nursery.start(place.kernel.run)
    rows = place.models.states(place.library.for_cwd(str(place.cwd)))
    assert [row["name"] for row in rows if row["default"]] == [name]
    assert place.spawn().launch.provider == name
