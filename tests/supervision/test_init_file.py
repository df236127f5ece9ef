"""`init.yaml`: what it may say, what is said of a wrong one, and whose file counts."""

import textwrap

import pytest

from rnixfs.errors import Code, SyscallError
from rnixfs.initfile import InitPlan, InitUnit, UnitKind, merge, parse_init
from rnixfs.initsource import init_plan
from rnixfs.loader import Library
from rnixfs.proc.request import SpawnRequest
from rnixfs.proc.supervision import ChildSpec, Restart, Strategy, SupervisorSpec
from rnixfs.yamlread import ManifestError

WHOLE = """\
version: 1
supervisors:
  - name: pair
    required: true
    strategy: one_for_all
    max_restarts: 5
    max_window: 2.5
    provider: local
    cwd: /srv
    children:
      - name: worker
        intent: |
          work
          well
        agent: coder
        provider: claude
        model: haiku
        context_budget: 1000
        restart: transient
      - name: inner
        restart: temporary
        supervisor:
          name: deep
          children:
            - {name: x, intent: "1"}
services:
  - {name: greeter, intent: say hello, cwd: /tmp}
"""


def parse(text, file="/c/init.yaml"):
    """The plan of a text."""
    return parse_init(textwrap.dedent(text), file)


def test_everything_is_read_services_first():
    """Each field arrives, and each unit knows where it is written."""
    plan = parse_init(WHOLE, "/c/init.yaml")
    worker = ChildSpec("worker", "work\nwell", "coder", "claude", "haiku", 1000, Restart.TRANSIENT)
    deep = SupervisorSpec("deep", (ChildSpec("x", "1"),))
    inner = ChildSpec("inner", restart=Restart.TEMPORARY, supervisor=deep)
    spec = SupervisorSpec("pair", (worker, inner), Strategy.ONE_FOR_ALL, 5, 2.5)
    assert plan == InitPlan(
        (
            InitUnit(
                "greeter",
                UnitKind.SERVICE,
                False,
                SpawnRequest(intent="say hello", cwd="/tmp"),
                "/c/init.yaml:27",
            ),
            InitUnit(
                "pair",
                UnitKind.SUPERVISOR,
                True,
                SpawnRequest(provider="local", cwd="/srv", supervisor=spec),
                "/c/init.yaml:3",
            ),
        ),
        ("/c/init.yaml",),
    )


def test_an_empty_file_starts_nothing():
    """It is there, and says nothing."""
    assert parse("") == InitPlan(files=("/c/init.yaml",))


WRONG = [
    ("services: 3", 1, "services is a whole number; write a list"),
    ("service: []", 1, "service is not a field here; the fields are services, supervisors, version"),
    ("version: 2", 1, "version is 2; this release knows version 1"),
    ("services: [{intent: x}]", 1, "services[1].name is missing; add name: a name of letters"),
    ("services: [{name: a}]", 1, "services[1].intent is missing; add intent: what is to be done"),
    ("services:\n  - name: a b\n    intent: x", 2, "services[1].name is 'a b'; write a name of letters"),
    (
        "services:\n- name: a\n  intent: x\n  cwd: here",
        4,
        "services[1].cwd is 'here'; write the absolute path",
    ),
    (
        "services:\n- name: a\n  intent: x\n  required: 1",
        4,
        "required is a whole number; write true or false",
    ),
    ("services:\n- name: a\n  type: log_aggregator", 3, "type is not a field here; a service is a process"),
    (
        "services:\n- name: a\n  restart: permanent",
        3,
        "what is to be started again is a child of a supervisor",
    ),
    ("services:\n- name: a\n  command: ls", 3, "init.yaml starts agents; write what is to be done as intent"),
    (
        "services:\n- {name: a, intent: x}\nsupervisors:\n- {name: a, children: [{name: b, intent: x}]}",
        4,
        "the name 'a' is given to two units, also in /c/init.yaml:2; rename one of them",
    ),
    ("supervisors:\n- name: s", 2, "supervisors[1].children is missing; add children: a list of entries"),
    ("supervisors:\n- name: s\n  children: []", 3, "supervisors[1].children has 0 entries; write 1 to 256"),
    (
        "supervisors:\n- name: s\n  strategy: one_for_al\n  children: [{name: a, intent: x}]",
        3,
        "'one_for_al'; write one of one_for_one, one_for_all, rest_for_one (did you mean one_for_all?)",
    ),
    ("supervisors:\n- name: s\n  max_restarts: -1", 3, "max_restarts is -1; write a whole number from 0 to"),
    ("supervisors:\n- name: s\n  max_window: 0", 3, "max_window is 0; write a number from 0.001 to 86400"),
    ("supervisors:\n- name: s\n  period: 5", 3, "period is not a field here; write max_window, in seconds"),
    (
        "supervisors:\n- name: s\n  children:\n  - name: a\n    intent: x\n  - name: a\n    intent: y",
        6,
        "supervisors[1].children[2].name 'a' is given to two children; rename one of them",
    ),
    (
        "supervisors:\n- name: s\n  children:\n  - name: a\n    intent: x\n    restart: never",
        6,
        "children[1].restart is 'never'; write one of permanent, transient, temporary",
    ),
    ("supervisors:\n- name: s\n  children:\n  - name: a", 4, "children[1].intent is missing; add intent"),
    (
        "supervisors:\n- name: s\n  children:\n  - name: a\n    agent: g\n    supervisor: {name: t}",
        5,
        "children[1].agent means nothing to a supervisor; give it to its children",
    ),
    (
        "supervisors:\n- name: s\n  children:\n  - name: a\n    supervisor:\n      required: true",
        6,
        "children[1].supervisor.required is not a field here",
    ),
    ("services: [", 1, ""),
]


@pytest.mark.parametrize(("text", "line", "said"), WRONG)
def test_a_wrong_file_is_refused_with_its_line_and_what_is_right(text, line, said):
    """File, line, what is wrong there; what would be right."""
    with pytest.raises(ManifestError) as caught:
        parse_init(text, "/c/init.yaml")
    assert str(caught.value).startswith(f"/c/init.yaml:{line}: ")
    assert said in str(caught.value)


def test_supervisors_too_deep_are_refused_with_the_line_of_the_outermost():
    """Deeper than processes may be."""
    inner = "{name: s, children: [{name: a, intent: x}]}"
    for _ in range(9):
        inner = f"{{name: s, children: [{{name: a, supervisor: {inner}}}]}}"
    with pytest.raises(
        ManifestError, match=r"/c/init.yaml:2: supervisors\[1\] cannot be taken; .* deep, no more"
    ):
        parse_init(f"supervisors:\n- {inner}", "/c/init.yaml")


def test_a_later_file_takes_the_place_of_units_by_name():
    """The project's file is laid over the user's; services still come before supervisors."""
    user = parse(
        "services: [{name: a, intent: old}]\nsupervisors: [{name: s, children: [{name: x, intent: y}]}]"
    )
    project = parse("services: [{name: a, intent: new}, {name: b, intent: more}]", "/p/.rnix/init.yaml")
    plan = merge([user, project])
    assert [(unit.name, unit.request.intent) for unit in plan.units] == [
        ("a", "new"),
        ("b", "more"),
        ("s", ""),
    ]
    assert plan.files == ("/c/init.yaml", "/p/.rnix/init.yaml")


# --- whose file counts ---


@pytest.fixture
def places(tmp_path):
    """A built-in folder, the user's folder and a project, each with an init.yaml that starts one service."""
    for name in ("built-in", "user", "project/.rnix"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        word = name.partition("/")[0]
        (folder / "init.yaml").write_text(f"services: [{{name: {word}, intent: x}}]")
    return tmp_path


def plan_of(places, trusted=()):
    """The plan for the project."""
    return init_plan(Library([places / "built-in", places / "user"], trusted).for_cwd(places / "project"))


def test_the_file_of_a_cloned_project_starts_nothing(places):
    """Only the user's counts; a warning says how to allow the project's."""
    plan = plan_of(places)
    assert [unit.name for unit in plan.units] == ["user"]
    path = places / "project/.rnix/init.yaml"
    assert plan.warnings == (
        f"{path} is not used because it would start agents; "
        f"to allow it, list {places / 'project'} in RNIX_TRUSTED",
    )


def test_the_file_of_a_trusted_project_counts(places):
    """Beside the user's."""
    plan = plan_of(places, [places / "project"])
    assert [unit.name for unit in plan.units] == ["user", "project"]
    assert plan.warnings == ()


def test_no_file_is_no_plan(tmp_path):
    """Most users have none."""
    assert init_plan(Library([tmp_path / "b", tmp_path / "u"]).for_cwd(tmp_path)) == InitPlan()


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (lambda path: path.write_bytes(b"\xff"), Code.INVALID, "init.yaml:1: byte 0xff is not UTF-8"),
        (lambda path: path.write_text("x: 1"), Code.INVALID, "init.yaml:1: x is not a field here"),
        (lambda path: path.mkdir(), Code.INVALID, "is not a regular file"),
        (lambda path: path.write_text("#" * (65 << 10)), Code.TOO_LARGE, "is larger than 65536 bytes"),
    ],
)
def test_a_file_that_cannot_be_taken_is_named(tmp_path, make, code, said):
    """Whatever is wrong with it, the message has its path."""
    (tmp_path / "u").mkdir()
    make(tmp_path / "u" / "init.yaml")
    with pytest.raises(SyscallError) as caught:
        init_plan(Library([tmp_path / "b", tmp_path / "u"]).for_cwd(tmp_path))
    assert caught.value.code is code
    assert f"{tmp_path / 'u' / 'init.yaml'}" in caught.value.reason
    assert said in caught.value.reason
