"""Rights that change while processes run: who may change them, and that no child has more than its parent."""

import json

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.proc.capabilities import clean_path
from rnixfs.proc.process import Process
from rnixfs.proc.signals import Signal
from rnixfs.proc.view import Rights
from rnixfs.syscalls import Syscalls
from tests.groups.grouplab import Lab, refused
from tests.kernel.kernellab import PERSON, agent, sleeper


async def test_an_ancestor_grants_and_revokes(lab, autojump_clock):
    """And the calls of the process see it at once."""
    _, parent = await lab.puppet()
    child, sys = await lab.puppet(parent=parent.pid, allowed_devices=["/dev/fs"])
    assert not await sys.cap_check("/dev/shell")
    await parent.cap_grant(child.pid, "/dev/shell")
    assert await sys.cap_check("/dev/shell")
    assert await parent.cap_list(child.pid) == {"granted": ["/dev/fs", "/dev/shell"], "denied": []}
    await parent.cap_revoke(child.pid, "/dev/shell")
    assert not await sys.cap_check("/dev/shell")
    assert await sys.cap_list() == {"granted": ["/dev/fs"], "denied": ["/dev/shell"]}
    assert json.loads(lab.read(f"/proc/{child.pid}/caps")) == await sys.cap_list()


async def test_nobody_grants_rights_to_itself_or_to_strangers(lab, autojump_clock):
    """But may give up its own."""
    _, sys = await lab.puppet(allowed_devices=["/dev"])
    stranger, _ = await lab.puppet()
    with refused(Code.PERMISSION, "to itself"):
        await sys.cap_grant(sys.pid, "/mnt")
    with refused(Code.PERMISSION, "to itself"):
        lab.write(f"/proc/{sys.pid}/ctl", "grant /mnt\n", agent(sys.pid))
    for call in (sys.cap_grant, sys.cap_revoke):
        with refused(Code.PERMISSION, "no power"):
            await call(stranger.pid, "/dev")
    with refused(Code.PERMISSION, "no power"):
        await sys.cap_list(stranger.pid)
    await sys.cap_revoke(sys.pid, "/dev/shell")
    assert not await sys.cap_check("/dev/shell")
    assert await sys.cap_check("/dev/fs")


async def test_nobody_grants_more_than_the_parent_may(lab, autojump_clock):
    """Not even people, and not an ancestor that may itself."""
    _, top = await lab.puppet()
    middle, _ = await lab.puppet(parent=top.pid, allowed_devices=["/dev"])
    low, sys = await lab.puppet(parent=middle.pid, allowed_devices=[])
    with refused(Code.PERMISSION, "/mnt cannot be granted"):
        await top.cap_grant(low.pid, "/mnt")
    with refused(Code.PERMISSION, "/mnt cannot be granted"):
        lab.write(f"/proc/{low.pid}/ctl", "grant /mnt\n")
    await top.cap_grant(low.pid, "/dev/shell")
    assert await sys.cap_check("/dev/shell")


async def test_a_revocation_from_a_parent_holds_below(lab, autojump_clock):
    """At every depth, at once, and for what is made later; a grant further down does not bring it back."""
    _, top = await lab.puppet()
    middle, _ = await lab.puppet(parent=top.pid)
    low, sys = await lab.puppet(parent=middle.pid, allowed_devices=["/dev/shell"])
    assert await sys.cap_check("/dev/shell")
    await top.cap_revoke(top.pid, "/dev")
    assert not await sys.cap_check("/dev/shell")
    with refused(Code.PERMISSION):
        await top.cap_grant(low.pid, "/dev/shell")
    _, late = await lab.puppet(parent=low.pid)
    assert not await late.cap_check("/dev/shell")


async def test_the_nearest_word_on_a_path_counts(lab, autojump_clock):
    """A grant below something revoked opens just that; a revocation below a grant closes just that."""
    process, sys = await lab.puppet()
    lab.write(f"/proc/{process.pid}/ctl", "revoke /dev\ngrant /dev/fs\nrevoke /dev/fs/secret\n")
    allowed = {
        path: await sys.cap_check(path) for path in ("/dev", "/dev/shell", "/dev/fs/a", "/dev/fs/secret/b")
    }
    assert allowed == {"/dev": False, "/dev/shell": False, "/dev/fs/a": True, "/dev/fs/secret/b": False}
    assert await sys.cap_list() == {"granted": ["/", "/dev/fs"], "denied": ["/dev", "/dev/fs/secret"]}
    lab.write(f"/proc/{process.pid}/ctl", "grant /\n")
    assert await sys.cap_list() == {"granted": None, "denied": []}


async def test_orphans_stay_within_the_rights_of_the_parent_they_had(lab, autojump_clock):
    """Though nobody stands above them any more; and people cannot lift that either."""
    _, top = await lab.puppet(allowed_devices=["/dev"])
    child, sys = await lab.puppet(parent=top.pid, allowed_devices=["/dev", "/mnt"])
    lab.kernel.signal(lab.kernel.process(top.pid), Signal.KILL, PERSON)
    assert child.ppid == 0
    assert await sys.cap_check("/dev/shell")
    assert not await sys.cap_check("/mnt/mcp")
    with refused(Code.PERMISSION, "the parent may not"):
        lab.write(f"/proc/{child.pid}/ctl", "grant /mnt\n")
    lab.write(f"/proc/{child.pid}/ctl", "revoke /dev/shell\n")
    assert not await sys.cap_check("/dev/shell")


async def test_rights_of_who_has_ended_do_not_change(lab, autojump_clock):
    """They are part of its record."""
    process, _ = await lab.puppet()
    lab.kernel.signal(process, Signal.KILL, PERSON)
    for command in ("grant /dev", "revoke /dev"):
        with refused(Code.INVALID, "has ended"):
            lab.write(f"/proc/{process.pid}/ctl", f"{command}\n")


@pytest.mark.parametrize(
    ("text", "path"),
    [("/", "/"), ("//dev//fs/", "/dev/fs"), ("/dev/./fs", "/dev/fs"), ("/dev/...", "/dev/...")],
)
def test_paths_of_rights_are_plain(text, path):
    """However they are written."""
    assert clean_path(text) == path


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", Code.INVALID),
        ("dev", Code.INVALID),
        ("/dev/../proc", Code.INVALID),
        ("/\ud800", Code.INVALID),
        ("/" + "a" * limits.PATH_MAX, Code.NAME_TOO_LONG),
    ],
)
def test_paths_that_rights_cannot_hold(text, code):
    """With a sentence that says what would be right."""
    with refused(code, "a path"):
        clean_path(text)


async def test_the_number_of_rules_is_limited(lab, autojump_clock, monkeypatch):
    """A folder that holds some of them takes their place, so power can always be taken back."""
    monkeypatch.setattr(limits, "CAPS_MAX", 3)
    process, _ = await lab.puppet(allowed_devices=["/dev/1", "/dev/2", "/dev/3"])
    path = f"/proc/{process.pid}/ctl"
    with refused(Code.RESOURCE_EXHAUSTED, "3 granted"):
        lab.write(path, "grant /dev/4\n")
    lab.write(path, "grant /dev\n")
    lab.write(path, "revoke /dev/1\nrevoke /dev/2\nrevoke /dev/3\n")
    with refused(Code.RESOURCE_EXHAUSTED, "3 denied"):
        lab.write(path, "revoke /dev/4\n")
    lab.write(path, "revoke /dev\n")
    assert process.rights.listing() == {"granted": [], "denied": ["/dev"]}


async def test_each_change_of_rights_is_an_event(lab, autojump_clock):
    """What limits power is in the log; what is refused is not."""
    process, _ = await lab.puppet()
    lab.write(f"/proc/{process.pid}/ctl", "revoke /dev\ngrant /dev/fs/\n")
    with refused(Code.INVALID):
        lab.write(f"/proc/{process.pid}/ctl", "grant dev\n")
    found = [(record.event, record.data) for record in lab.kernel.log.load(process.pid)]
    assert found == [
        found[0],
        ("revoke", {"path": "/dev", "by": 0}),
        ("grant", {"path": "/dev/fs", "by": 0}),
    ]


async def test_the_calls_on_rights_are_traced_by_name(lab, autojump_clock):
    """With their paths, which are also those of their errors."""
    process, sys = await lab.puppet()
    child, _ = await lab.puppet(parent=sys.pid)
    await sys.cap_grant(child.pid, "/dev")
    await sys.cap_revoke(child.pid, "/dev")
    await sys.cap_check("/dev")
    await sys.cap_list()
    with pytest.raises(SyscallError) as caught:
        await sys.cap_grant(child.pid, "dev")
    assert (caught.value.syscall, caught.value.device, caught.value.pid) == ("CapGrant", "dev", sys.pid)
    calls = [(call["syscall"], call.get("result", "")) for call in lab.trace(process)]
    assert calls[:4] == [
        ("CapGrant", "0"),
        ("CapRevoke", "0"),
        ("CapCheck", "yes"),
        ("CapList", "everything"),
    ]


async def test_generations_are_limited(lab, autojump_clock):
    """Four below process 0; the death of an ancestor gives no room."""
    processes = [lab.spawn(sleeper)]
    while len(processes) < 4:
        processes.append(lab.spawn(sleeper, parent=processes[-1].pid))
    with refused(Code.RESOURCE_EXHAUSTED, "4 generations"):
        lab.spawn(sleeper, parent=processes[-1].pid)
    lab.kernel.signal(processes[0], Signal.KILL, PERSON)
    with refused(Code.RESOURCE_EXHAUSTED, "4 generations"):
        lab.spawn(sleeper, parent=processes[-1].pid)


# --- at random ---

PATHS = ["/", "/dev", "/dev/fs", "/dev/fs/a", "/dev/shell", "/mnt", "/mnt/mcp", "/proc/spawn"]
STEP = st.tuples(
    st.sampled_from(["spawn", "grant", "revoke", "kill"]),
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from(PATHS),
    st.none() | st.lists(st.sampled_from(PATHS), max_size=3),
)


async def live(steps: list[tuple[str, int, int, str, list[str] | None]]) -> None:
    """Do the steps, and look at every process after each."""
    lab = Lab()
    async with trio.open_nursery() as nursery:
        await nursery.start(lab.kernel.run)
        found: list[tuple[Process, Syscalls]] = [await lab.puppet()]
        bound: dict[int, Rights] = {}
        for what, one, other, path, allowed in steps:
            process, _ = found[one % len(found)]
            actor, sys = found[other % len(found)]
            before, refusal = _permitted(found), None
            try:
                if what == "spawn":
                    found.append(await lab.puppet(parent=process.pid, allowed_devices=allowed))
                    bound[found[-1][0].pid] = process.rights
                elif what == "kill" and len(found) > 1:
                    lab.kernel.signal(process, Signal.KILL, PERSON)
                    found = [row for row in found if row[0] is not process]
                elif what in ("grant", "revoke"):
                    await (sys.cap_grant if what == "grant" else sys.cap_revoke)(process.pid, path)
            except SyscallError as error:
                refusal = error.code
                assert _permitted(found) == before
            own = process is actor
            ruled = process.descends_from(actor.pid)
            parents = bound.get(process.pid)
            within = parents is None or parents.permits(path)
            if what == "grant":
                assert (refusal is None) is (ruled and not own and within)
                assert refusal is not None or process.rights.permits(path)
            if what == "revoke":
                assert (refusal is None) is ruled
                assert refusal is not None or not process.rights.permits(path)
            for process, _ in found:
                above = bound.get(process.pid)
                for place in PATHS:
                    assert not process.rights.permits(place) or above is None or above.permits(place)
        nursery.cancel_scope.cancel()


def _permitted(found: list[tuple[Process, Syscalls]]) -> dict[int, list[str]]:
    return {one.pid: [path for path in PATHS if one.rights.permits(path)] for one, _ in found}


@given(st.lists(STEP, max_size=30))
def test_no_child_ever_has_more_than_the_parent_it_was_born_to(steps):
    """Whatever is spawned, granted, revoked and killed; and what is refused changes nothing."""
    trio.run(live, steps, clock=MockClock(autojump_threshold=0))
