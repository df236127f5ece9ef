"""What a supervisor may look like in a spawn request, and what is said of one that is wrong."""

import pytest

from rnixfs import limits
from rnixfs.errors import Code, SyscallError
from rnixfs.proc.request import REQUEST_SCHEMA, read_spawn
from rnixfs.proc.supervision import ChildSpec, Restart, Strategy, SupervisorSpec, stop_seconds
from tests.supervision.supervisorlab import child, supervisor


def refusal(**fields):
    """Why a request is refused."""
    with pytest.raises(SyscallError) as caught:
        read_spawn(fields)
    return caught.value


def test_what_is_left_out_has_the_values_of_the_reference():
    """One for one, three restarts in a minute, and permanent children."""
    request = read_spawn({"supervisor": {"name": "s", "children": [{"name": "a", "intent": "x"}]}})
    assert request.supervisor == SupervisorSpec(
        "s", (ChildSpec("a", "x", restart=Restart.PERMANENT),), Strategy.ONE_FOR_ONE, 3, 60.0
    )


def test_all_fields_are_read():
    """Every field of the format arrives."""
    fields = {"name": "a", "intent": "x", "agent": "g", "provider": "p", "model": "m", "context_budget": 9}
    request = read_spawn(
        {
            "supervisor": {
                "name": "s",
                "strategy": "rest_for_one",
                "max_restarts": 0,
                "max_window": 0.5,
                "children": [{**fields, "restart": "transient"}],
            }
        }
    )
    made = ChildSpec("a", "x", "g", "p", "m", 9, Restart.TRANSIENT)
    assert request.supervisor == SupervisorSpec("s", (made,), Strategy.REST_FOR_ONE, 0, 0.5)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (supervisor(), '"supervisor.children" holds 0 children; it must hold 1 to 256'),
        (supervisor("a", "a"), "has two called 'a'; rename one of them"),
        (supervisor("a b"), "\"supervisor.children[0].name\" is 'a b'; write letters, digits, - and _"),
        (supervisor("a", name=""), "\"supervisor.name\" is ''; write letters"),
        (supervisor("a", name="../x"), "\"supervisor.name\" is '../x'; write letters"),
        (supervisor("a", max_restarts=-1), '"supervisor.max_restarts" is -1; it must be 0 to 10000'),
        (supervisor("a", max_window=0), '"supervisor.max_window" is 0; it must be more than 0'),
        (supervisor("a", max_window=1e9), "at most 86400 seconds"),
        (
            supervisor("a", strategy="one"),
            "Invalid enum value 'one' - at `$.supervisor.strategy`; write one of one_for_one,",
        ),
        (
            supervisor("a:always"),
            "children[0].restart`; write one of permanent, transient, temporary",
        ),
        (supervisor("a", period=3), "unknown field `period` - at `$.supervisor`"),
        (supervisor({"name": "a"}), '"supervisor.children[0]" needs "intent": what \'a\' is to do'),
        (supervisor({"name": "a", "intent": " "}), '"supervisor.children[0]" needs "intent"'),
        (
            supervisor({"name": "a", "intent": "x", "context_budget": -1}),
            '"supervisor.children[0].context_budget" is -1; it must be 0 to',
        ),
        (
            supervisor({"name": "a", "agent": "g", "supervisor": supervisor("b")}),
            '"supervisor.children[0].agent" means nothing to a supervisor; give it to its children',
        ),
        (
            supervisor({"name": "a", "supervisor": supervisor("b", "b")}),
            "\"supervisor.children[0].supervisor.children\" has two called 'b'",
        ),
    ],
)
def test_a_wrong_one_is_refused_with_what_would_be_right(spec, said):
    """The message names the field by its place, and what it must be."""
    error = refusal(supervisor=spec)
    assert error.code is Code.INVALID
    assert said in error.reason


@pytest.mark.parametrize(
    "fields",
    [
        {"agent": "g"},
        {"model": "m"},
        {"skills": ["s"]},
        {"max_steps": 3},
        {"context_budget": 1},
        {"max_cost_usd": 1.0},
        {"system_prompt": "x"},
    ],
)
def test_fields_of_agents_mean_nothing_to_a_supervisor(fields):
    """What would be ignored is refused."""
    (name,) = fields
    error = refusal(supervisor=supervisor("a"), **fields)
    assert error.reason == f'"{name}" means nothing to a supervisor; give it to its children'


def test_a_long_intent_of_a_child_is_refused_like_any_other():
    """The limit of intents holds inside a supervisor too."""
    error = refusal(supervisor=supervisor({"name": "a", "intent": "x" * (limits.INTENT_MAX + 1)}))
    assert error.code is Code.TOO_LARGE


def test_supervisors_in_supervisors_end_somewhere():
    """As deep as processes may be, no deeper, and no depth breaks the reader."""
    nested = supervisor("leaf")
    for _ in range(limits.SPAWN_DEPTH_MAX - 1):
        nested = supervisor({"name": "inner", "supervisor": nested})
    assert read_spawn({"supervisor": nested}).supervisor is not None
    assert "deep, no more" in refusal(supervisor=supervisor({"name": "x", "supervisor": nested})).reason
    for _ in range(20_000):
        nested = {"name": "s", "children": [{"name": "x", "supervisor": nested}]}
    assert refusal(supervisor=nested).code is Code.INVALID


def test_a_supervisor_has_the_time_of_its_children_to_stop():
    """Else it would be killed while it waits for them."""
    inner = SupervisorSpec("i", (ChildSpec("a", "x"), ChildSpec("b", "x")))
    outer = SupervisorSpec("o", (ChildSpec("i", supervisor=inner), ChildSpec("c", "x")))
    assert stop_seconds(ChildSpec("a", "x")) == limits.SUPERVISOR_STOP_SECONDS
    assert stop_seconds(ChildSpec("o", supervisor=outer)) == 5 * limits.SUPERVISOR_STOP_SECONDS


def test_the_schema_explains_itself():
    """Every reference in the schema that proc/spawn shows leads somewhere."""
    text = str(REQUEST_SCHEMA)
    defs = REQUEST_SCHEMA["$defs"]
    assert set(defs) == {"SupervisorSpec", "ChildSpec", "Strategy", "Restart", "ForkFrom", "Fallback"}
    for name in defs:
        assert f"#/$defs/{name}" in text


def test_the_helper_of_these_tests_makes_what_it_says():
    """`name:restart` is a child."""
    assert child("a:temporary") == {"name": "a", "intent": "a", "restart": "temporary"}
