"""Every limit of the system, with its unit. Reaching one gives a clear error, never a silent cut."""

# --- names and requests ---
NAME_MAX = 255  # bytes of one name, as on Linux
PATH_MAX = 4096  # bytes of a path, as on Linux
LINK_DEPTH_MAX = 40  # symbolic links followed in one walk, as on Linux
REQUEST_MAX = 1 << 20  # bytes of one request to a device; FUSE splits longer writes at this size
ANSWER_MAX = 64 << 20  # bytes of one device's answer kept for its readers

# --- exchanges ---
MAILBOX_SECONDS = 3600.0  # how long an answer that nobody replaced stays readable
MAILBOXES_MAX = 1000  # mailboxes a device keeps; the oldest idle one goes first

# --- streams and journals ---
STREAM_RECORDS_MAX = 4096  # records a slow reader of a stream may lag before it sees {"dropped": n}
JOURNAL_MAX = 64 << 20  # bytes of one journal in memory; later records are counted, not kept

# --- the mount ---
WAITING_MAX = 20_000  # requests that may wait at once on the mount; the next is refused with EAGAIN

# --- processes ---
PROCESSES_MAX = 20_000  # live processes
OPEN_FILES_MAX = 1024  # open files of one process
SPAWN_DEPTH_MAX = 8  # generations below process 0
INTENT_MAX = 256 << 10  # bytes of an intent
ARGUMENT_MAX = 128 << 10  # bytes of one string handed to a program of the host, as MAX_ARG_STRLEN
DEAD_VISIBLE_SECONDS = 60.0  # how long a dead process stays in proc/ before it moves to history
HISTORY_MAX = 1000  # finished processes kept
TERM_GRACE_SECONDS = 10.0  # from TERM to KILL
STEPS_MAX = 50  # reasoning steps where nothing else is configured
STEPS_CEILING = 100_000  # the most steps that can be asked for
TOOL_OUTPUT_MAX = 100_000  # characters of one tool result in the context
CONTEXT_MESSAGES_MAX = 10_000  # messages of one context
CONTEXT_BYTES_MAX = 32 << 20  # bytes of one context
FAILURES_ALIKE_MAX = 3  # equal tool failures in a row that end a process
FAILURES_MAX = 6  # tool failures in all that end a process
PARALLEL_TOOLS_MAX = 16  # tool calls of one reply that run at once
