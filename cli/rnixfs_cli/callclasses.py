"""The classes of system calls that `rnix strace -e` knows; a test compares them with the kernel's."""

CLASSES: dict[str, tuple[str, ...]] = {
    "process": ("Spawn", "Kill", "Wait", "WaitAny", "GetPID", "PS"),
    "context": ("CtxAlloc", "CtxRead", "CtxWrite", "CtxFree"),
    "file": ("Open", "Read", "Write", "Close", "Stat", "ReadDir"),
    "ipc": (
        "Send",
        "Recv",
        "Pipe",
        "JoinGroup",
        "LeaveGroup",
        "GetProcGroup",
        "SignalGroup",
        "Mount",
        "Unmount",
        "UnmountAll",
    ),
    "signal": ("Signal", "SigHandle", "SigBlock", "SigUnblock", "SigPending", "SignalTree"),
    "capability": ("CapGrant", "CapRevoke", "CapCheck", "CapList"),
    "supervisor": ("SpawnSupervisor", "StartChild", "StopChild", "RestartChild", "ListChildren"),
    "init": ("Bootstrap", "Reap", "Suspend", "Resume", "Shutdown"),
    "thread": ("SpawnThread", "JoinThread", "SpawnCoroutine", "Yield", "ResumeCoroutine"),
}
ALL = frozenset(name for names in CLASSES.values() for name in names)
_BY_LOWER = {name.lower(): name for name in ALL}


def calls_of(word: str) -> frozenset[str]:
    """The calls that a word of `-e` stands for.

    Args:
        word: a call as traces show it (`Signal`), or in any case a class, with or without `%` (`signal`), or
            a call (`open`); a class comes before a call. `all` is every call.

    Raises:
        ValueError: it is neither; says what there is.
    """
    if word in ALL:
        return frozenset({word})
    name = word.removeprefix("%").lower()
    if name == "all":
        return ALL
    if name in CLASSES:
        return frozenset(CLASSES[name])
    if name in _BY_LOWER and not word.startswith("%"):
        return frozenset({_BY_LOWER[name]})
    raise ValueError(
        f"no system call or class {word!r}; classes: all, {', '.join(CLASSES)}; "
        f"calls: {', '.join(name for names in CLASSES.values() for name in names)}"
    )
