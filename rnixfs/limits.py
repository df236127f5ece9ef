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
EVENT_TEXT = 2000  # characters shown of one text in a line of proc/events
JOURNAL_MAX = 64 << 20  # bytes of one journal in memory; later records are counted, not kept

# --- the mount ---
WAITING_MAX = 20_000  # requests that may wait at once on the mount; the next is refused with EAGAIN

# --- processes ---
PROCESSES_MAX = 20_000  # live processes
OPEN_FILES_MAX = 1024  # open files of one process
SPAWN_DEPTH_MAX = 4  # generations below process 0
INTENT_MAX = 256 << 10  # bytes of an intent
ARGUMENT_MAX = 128 << 10  # bytes of one string handed to a program of the host, as MAX_ARG_STRLEN
DEAD_VISIBLE_SECONDS = 60.0  # how long a dead process stays in proc/ before it moves to history
HISTORY_MAX = 1000  # finished processes kept where nothing else is configured
HISTORY_CACHE = 64  # of them, how many are held in memory after somebody looked at them
TERM_GRACE_SECONDS = 10.0  # from TERM to KILL
STEPS_MAX = 50  # reasoning steps where nothing else is configured
STEPS_CEILING = 100_000  # the most steps that can be asked for
TOOL_OUTPUT_MAX = 100_000  # characters of one tool result in the context
CONTEXT_MESSAGES_MAX = 10_000  # messages of one context
CONTEXT_BYTES_MAX = 32 << 20  # bytes of one context
OLD_RESULT_BYTES = 1000  # bytes from which an old tool result is removed to make room, as in the reference
CARRIED_SKILLS_MAX = 100_000  # characters of loaded skills that outlive a compaction, as in the reference
COMPACTION_GAIN = 0.05  # share of the window that making room must win, as in the reference
CONTEXTS_MAX = 64  # contexts of one process
SUPERVISOR_CHILDREN_MAX = 256  # children of one supervisor
SUPERVISOR_RESTARTS = 3  # restarts within the window where a supervisor names no number, as in the reference
SUPERVISOR_WINDOW_SECONDS = 60.0  # the window where a supervisor names none, as in the reference
SUPERVISOR_RESTARTS_MAX = 10_000  # the most restarts that can be asked for
SUPERVISOR_WINDOW_MAX = 86_400.0  # seconds of the longest window that can be asked for
SUPERVISOR_STOP_SECONDS = 5.0  # from TERM to KILL for a supervisor's child, as in the reference
SUPERVISOR_ORDERS_MAX = 1000  # orders that may wait for one supervisor
INIT_CHECK_SECONDS = 0.2  # how long something that init started must last, as in the reference
FAILURES_ALIKE_MAX = 3  # equal tool failures in a row that end a process
FAILURES_MAX = 6  # tool failures in all that end a process
NO_PROGRESS_MAX = 10  # steps in a row with the same actions and the same results that end a process
PARALLEL_TOOLS_MAX = 16  # tool calls of one reply that run at once

# --- manifests and configuration files ---
CONFIG_FILE_MAX = 64 << 10  # bytes of agent.yaml, providers.yaml or a skill's front matter
PROSE_FILE_MAX = 256 << 10  # bytes of instructions.md or SKILL.md
YAML_DEPTH_MAX = 32  # levels of lists and mappings
YAML_NODES_MAX = 10_000  # values of one file, those that aliases repeat included
MANIFEST_NAME_MAX = 64  # characters of an agent's, skill's or provider's name, as the SKILL.md format has it
DESCRIPTION_MAX = 1024  # characters of a description, as the SKILL.md format has it
COMPATIBILITY_MAX = 500  # characters of a skill's compatibility, as the SKILL.md format has it
MANIFEST_ITEMS_MAX = 256  # entries of one list in a manifest
BUDGET_TOKENS_MAX = 1_000_000_000  # tokens that a context budget can ask for
COST_USD_MAX = 1_000_000.0  # dollars that a cost limit can ask for
TIMEOUT_MS_MAX = 7 * 24 * 3600 * 1000  # milliseconds of the longest time limit that can be asked for
PROVIDER_TIMEOUT_MS = 300_000  # milliseconds of one call where a provider's entry names none
CONFIG_CACHE_MAX = 4096  # parsed files kept; the one read longest ago goes first
PROJECT_DEPTH_MAX = 64  # folders above the working folder that are searched for .rnix
SHELF_NAMES_MAX = 1000  # agents, or skills, listed of one folder
SCENARIO_FILE_MAX = 4 << 20  # bytes of a scenario, so that a recorded run fits
SCENARIO_NODES_MAX = 200_000  # values of a scenario
SCENARIO_ITEMS_MAX = 20_000  # entries of one list in a scenario

# --- programs of the host and the shell ---
CHILD_GRACE_SECONDS = 2.0  # from TERM to KILL for programs of the host
CHILD_KILL_SECONDS = 5.0  # how long KILL may take before what is left is only reported
CHILD_LINGER_SECONDS = 0.5  # how long pipes are still read that outlive the program that was started
CHILD_CHUNK = 64 << 10  # bytes taken from a pipe at once, the size of a pipe of Linux
SHELL_TIMEOUT_MS = 30_000  # milliseconds of a shell command where the request names no limit
SHELL_TIMEOUT_MAX_MS = 600_000  # the longest limit that can be asked for, in milliseconds
SHELL_OUTPUT_MAX = 30_000  # characters kept of one output of a shell command
SHELL_TAIL = 10_000  # how many of them are its end

# --- models ---
MODEL_CONNECT_SECONDS = 15.0  # until a provider's server takes the connection
MODEL_DRAIN_SECONDS = 0.1  # for the end of a stream after its end mark, so that its connection serves again
MODEL_REPLY_MAX = 16 << 20  # bytes of one reply of a provider, as it comes over the wire
MODEL_RETRIES = 2  # further attempts of a call that may succeed a little later, as in the reference
MODEL_ERROR_MAX = 600  # characters of a provider's own words in an error text
MODEL_ARGUMENTS_DEPTH_MAX = 100  # levels of a call's arguments; below EVENT_DEPTH_MAX, as events hold them
MODEL_ANSWER_TOKENS = 16_384  # most tokens of an answer where a server must be told and nobody says
MODEL_IDLE_SECONDS = 60.0  # how long an unused connection to a provider's server is kept
MODEL_IDLE_LOCAL_SECONDS = 4.0  # the same on this machine: llama.cpp and vLLM hang up after 5 s
MODEL_WAITING_MAX = 10_000  # calls that may wait for one provider; the next is refused with EAGAIN
MODEL_CALLS_PROGRAM = 4  # calls at once of a command line model: a process of about 200 MB each
MODEL_CALLS_HTTP = 64  # calls at once of a model behind HTTP, more than providers' usual limits
MODEL_PASSED_OVER_MAX = 8  # calls that may go before a waiting one of lower priority
MODEL_GRACE_SECONDS = 1.0  # for a driver to end a call whose time is over, and to say what was spent
MODEL_CHECK_SECONDS = 10.0  # for asking a provider whether it would answer
MODEL_BACKOFF_SECONDS = 0.5  # the longest wait before the second attempt; twice that before each later one
MODEL_BACKOFF_MAX_SECONDS = 30.0  # the longest of these waits
MODEL_LIMITED_SECONDS = 1.0  # until the next call after a 429 without a time; twice that for each in a row
MODEL_LIMITED_MAX_SECONDS = 60.0  # the longest of these waits: limits are counted by the minute, as a rule
MODEL_HOLD_MAX_SECONDS = 86_400.0  # the longest wait that a provider can ask for: quotas are for a day
BREAKER_FAILURES = 5  # failures in a row that open a circuit: more than one call makes with its retries
BREAKER_SECONDS = 5.0  # until an open circuit lets a trial pass: the time of a server's restart
BREAKER_MAX_SECONDS = 120.0  # it doubles with each trial that fails, up to this: a person notices a repair
BREAKER_PATIENCE_SECONDS = 10.0  # a call that its caller cuts off sooner says nothing of the provider
STREAM_LINE_SECONDS = 0.05  # pieces that come within this of the last line share one line of a stream

# --- command line models ---
COMMAND_OUTPUT_MAX = 256 << 20  # bytes that the program prints in one call: a word may come in a line of 400
COMMAND_LINES_MAX = 1_000_000  # lines that it prints in one call
COMMAND_ERROR_MAX = 64 << 10  # bytes kept of what it prints as errors
COMMAND_GRACE_SECONDS = 0.05  # from TERM to KILL: it has nothing to tidy up, and is to be gone within 0.1 s
COMMAND_HELP_SECONDS = 5.0  # for asking the program for its options, as in the reference
COMMAND_HELP_MAX = 4 << 20  # bytes of that answer, as in the reference

# --- files of the host and the file tools ---
HOST_READ_MAX = 8 << 20  # bytes given by one read of a host file; a longer read is answered short
PATTERN_MAX = 4096  # characters of a pattern for names or for text
BRACES_MAX = 1000  # patterns that the braces of one pattern may stand for
GLOB_MATCHES = 200  # matches given where a glob request names no limit
GLOB_MATCHES_MAX = 10_000  # the most matches that can be asked for
GLOB_EXTENSIONS = 20  # rows of by_extension; the rarer ones are only part of the totals
GREP_MATCHES = 100  # matches given where a grep request names no limit
GREP_MATCHES_MAX = 2000  # the most matches that can be asked for
GREP_LINE_MAX = 500  # characters shown of one line
GREP_CONTEXT_MAX = 20  # lines shown before and after a match
GREP_TEXT_MAX = 1 << 20  # characters of all matches of one answer
GREP_FILE_MAX = 64 << 20  # bytes of a file that is searched; larger ones are counted as skipped
SEARCH_MS = 30_000  # milliseconds of a file tool where the request names no limit
SEARCH_MS_MAX = 600_000  # the longest limit that can be asked for, in milliseconds
EDIT_MAX = 16 << 20  # bytes of a file that is edited, before and after
READ_LINES = 2000  # lines given where a read names no limit
READ_TEXT_MAX = 80_000  # characters given by one read, below TOOL_OUTPUT_MAX with the rest of the answer
LIST_MAX = 2000  # entries given by one list
FILE_THREADS_MAX = 8  # file tools that work at once; the next waits

# --- messages and pipes ---
MESSAGE_MAX = 256 << 10  # bytes of one message, as JSON
QUEUE_MESSAGES_MAX = 1000  # messages that may wait for one process; Send says EAGAIN beyond
QUEUE_BYTES_MAX = 1 << 20  # bytes of the messages that may wait for one process, as JSON
PIPE_BYTES = 64 << 10  # bytes that a pipe holds, as on Linux
PIPE_BUF = 4 << 10  # bytes that one write puts into a pipe in one piece, as on Linux
PIPES_MAX = 256  # pipes in dev/pipes
PIPE_UNUSED_SECONDS = 3600.0  # how long a pipe of dev/pipes stays that nobody has open

# --- groups, capabilities, threads and mounts ---
GROUPS_MAX = 1000  # process groups
CAPS_MAX = 1000  # granted and denied paths of one process
THREADS_MAX = 256  # threads and coroutines of one process that have not ended
THREADS_KEPT = 256  # ended ones that stay visible and can be joined; joined ones go first
MOUNTS_MAX = 256  # mounts below mnt/mcp
MOUNT_CONNECT_SECONDS = 30.0  # until a mount must have connected
MOUNT_CLOSE_SECONDS = 10.0  # for closing a connection when it is unmounted

# --- idempotency keys ---
IDEMPOTENCY_KEY_MAX = 200  # characters of an idempotency key
KEYED_ANSWER_MAX = 16 << 20  # bytes of an answer that is kept for its key, as MODEL_REPLY_MAX
KEYED_LINGER_SECONDS = 5.0  # how long a person's request with a key runs on that nobody waits for

# --- queries of the log ---
QUERY_SECONDS = 1.0  # seconds of processor time of one query
QUERY_WALL_SECONDS = 10.0  # seconds until a query is answered, its wait for others included
QUERY_MEMORY_MAX = 512 << 20  # bytes of memory of one query's process
QUERY_ROWS = 10_000  # rows of one query
QUERY_BYTES_MAX = 16 << 20  # bytes of one query's answer, and of one value in it
QUERY_ARGUMENTS_MAX = 1000  # arguments of one query
QUERIES_MAX = 4  # queries that run at once; the next waits

# --- the event store ---
CONTENT_MIN = 96  # bytes from which a text in an event is kept once and referred to
EVENT_DEPTH_MAX = 128  # levels of lists and objects in an event's data
JOURNAL_SECONDS = 0.2  # how long a journal's bytes may wait in memory before they are on disk
JOURNAL_BLOCK = 64 << 10  # bytes of a journal that are put on disk at once without waiting that long
JOURNALS_WAITING_MAX = 64 << 20  # bytes of journals that may wait for a full disk; more is counted, not kept
HISTORY_DAYS = 90.0  # days that a finished process is kept where nothing else is configured
HISTORY_BYTES = 1 << 30  # bytes of the log on disk where nothing else is configured
COLLECT_MAX = 200  # processes that one collection removes before it lets others work
SYSTEM_EVENTS_MAX = 10_000  # events of the system in a log in memory; the oldest requests go first
MEMORY_LOG_BYTES = 256 << 20  # bytes of a log in memory; the oldest finished processes go first
LOG_CHECK_BYTES = 256 << 20  # bytes of a log up to which a start compares its indexes with its tables
LOG_LOCKED_SECONDS = 1.0  # how long another program may hold the log's file locked before an event is refused

# --- the configuration of the log ---
KEEP_PROCESSES_MAX = 1_000_000_000  # finished processes that can be asked to be kept
KEEP_DAYS_MAX = 36_500  # days that they can be asked to be kept
KEEP_BYTES_MAX = 1 << 50  # bytes of the log that can be asked to be kept
GC_SECONDS = 3600.0  # between two looks for what the log need not keep

# --- providers ---
PROVIDER_CONCURRENCY_MAX = 1000  # calls at once of one provider that can be asked for
PROVIDER_RETRIES_MAX = 10  # further attempts of one call that can be asked for
FALLBACKS_MAX = 8  # providers that can be named to be asked instead of one
PRICE_USD_MAX = 100_000.0  # dollars for a million tokens that can be given as a price
DISCOVERY_SECONDS = 0.5  # for a server of this machine to show that it serves models
DISCOVERY_BYTES = 1 << 20  # bytes of its list of models
DISCOVERY_MODELS = 256  # of its models, how many are remembered
DISCOVERY_AGE_SECONDS = 2.0  # how old the last look for servers may be before interest makes a new one
CHECK_SECONDS = 15.0  # until sys/check stops waiting for a provider, somewhat more than a provider has itself
CHECKS_MAX = 16  # providers that sys/check asks at once

# --- MCP ---
MCP_REQUEST_MS = 60_000  # milliseconds of one request to a server where its configuration names none
MCP_TOOL_NAME_MAX = 64  # characters of a tool's name that the interfaces of models take
MCP_OUTPUT_MAX = 16 << 20  # bytes of one message of a server; an answer that is longer fails, nothing else
MCP_SKIPPED_MAX = 1 << 30  # bytes of one message that are thrown away before its server is given up
MCP_JUNK_MAX = 1000  # lines in a row that are no message before a server is given up
MCP_MESSAGES_SECOND = 4000  # messages taken of one server in a second; it waits beyond that
MCP_STDERR_MAX = 64 << 10  # bytes kept of what a server says on its standard error
MCP_STDERR_SECOND = 1 << 20  # bytes taken of it in a second; the server waits beyond that
MCP_LOGGED_MAX = 200  # lines of it that go to the daemon's log for one start of the server
MCP_LEAVE_SECONDS = 1.0  # for a server to end by itself after its input was closed, before TERM
MCP_ITEMS_MAX = 10_000  # tools, resources, templates or prompts of one server
MCP_PAGES_MAX = 100  # pages of one of its lists
MCP_CALLS_MAX = 1000  # requests to one server at once; the next is refused with EAGAIN
MCP_CALL_SECONDS = 3600.0  # until a request ends that its server keeps alive by progress
MCP_ERROR_MAX = 64 << 10  # characters of a server's own words in an error
MCP_PATTERN_TEXT = 4096  # characters of an argument up to which a schema's pattern is tried on it
MCP_SUBSCRIPTIONS_MAX = 64  # resources of one server that are subscribed; the one opened longest ago goes
MCP_SIZES_MAX = 10_000  # resources of one server whose size is remembered
MCP_QUESTIONS_MAX = 100  # questions of one server that wait for an answer
MCP_QUESTION_SECONDS = 3600.0  # until a question is taken back that nobody answers
MCP_LISTEN_SECONDS = 1.0  # until a server is asked again to tell of changes that has stopped to
MCP_PING_SECONDS = 5.0  # for a server to say that it is there, after a request got no answer
MOUNT_RESTART_SECONDS = 1.0  # until the first restart; twice that before each later one
MOUNT_RESTART_MAX_SECONDS = 60.0  # the longest of these waits
MOUNT_HEALTHY_SECONDS = 60.0  # a mount that was ready for so long begins again with the first of them
