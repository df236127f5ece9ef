"""Scenarios: what the scripted model answers, as data.

A scenario is a YAML file with rules; the first rule whose conditions hold decides.

    name: greeter
    rules:
      - name: greet
        help: "hello: greets back"      # shown to people when no rule fits
        when: {intent: hello, step: 0}
        say: "Hello. I was asked: {{ intent }}"

Conditions (`when`, of a rule, or of a scenario for all its rules; all must hold):

- `intent`, `system_prompt`, `last_tool`, `last_result`: a text that must occur, in any case of letters; or a
  pattern between slashes, `/^run:/` or `/^run:/i`; or a list, of which one must hold. Patterns see the first
  64 Ki characters.
- `step`: assistant's turns since the intent: `0`, `2+`, `1-3`.
- `tools`: names that the request must offer.
- `if`: an expression.

Actions: `say` (template), `calls` (list of `tool`, `arguments`, `as`, `if`; or a template that makes such a
list), `fail` (`code`, `message`), `delay_ms`, `word_delay_ms` (streams), `tokens` (`input`, `output`),
`cost_usd`. Arguments that work out to null are left out. `as` names a call, so that later rules find its
result as `got.<name>`.

Names in templates: `intent`, `system_prompt`, `step`, `tools` (names), `results` (of all calls in order,
decoded where they are JSON), `last` (the last of them), `got`, `history` (`tool`, `arguments`, `result` of
all calls), `said` (texts of the user since the intent), and what the scenario adds under `names`: values
worked out once for each answer, in their order, after the scenario's own conditions.

A recorded case is a scenario, too; what it has under `case` is read by `casefile` alone.
"""

import re
from collections.abc import Sequence

from rnixfs import limits
from rnixfs.expressions import TemplateError
from rnixfs.rules import NAME, NAME_RIGHT, Maker, Rule, read_conditions, read_maker
from rnixfs.scene import Cue, Scene
from rnixfs.yamlread import Bounds, Fields, ManifestError
from rnixfs.yamlread import load as load_yaml

BOUNDS = Bounds(limits.SCENARIO_FILE_MAX, limits.SCENARIO_NODES_MAX, limits.SCENARIO_ITEMS_MAX)


class Scenario:
    """A scenario that was read.

    Args:
        fields: the file.

    Raises:
        ManifestError: it cannot be read.
    """

    def __init__(self, fields: Fields) -> None:
        fields.only(["name", "description", "when", "names", "rules", "case"])
        fields.need("name", "a name")
        self.file = fields.file
        self.name = fields.text("name", pattern=NAME, right=NAME_RIGHT, limit=64)
        self.description = fields.text("description", limit=1000)
        self._conditions = read_conditions(fields.mapping("when"))
        self._names = _names(fields.mapping("names"))
        self.rules = tuple(Rule(entry) for entry in fields.mappings("rules"))
        if not self.rules:
            raise fields.error("rules", "is missing or empty", "write at least one rule")

    def cue(self, scene: Scene) -> Cue | None:
        """What its first fitting rule says to do, None if no rule fits.

        Raises:
            ManifestError: a template could not be worked out.
        """
        try:
            names = scene.names()
            if not all(condition(scene, names) for condition in self._conditions):
                return None
            for name, make in self._names:
                names[name] = make(names)
            rule = next((rule for rule in self.rules if rule.holds(scene, names)), None)
            return rule.play(self.name, names) if rule else None
        except TemplateError as error:
            raise ManifestError(self.file, error.line, error.what, error.right) from None


def _names(fields: Fields | None) -> tuple[tuple[str, Maker], ...]:
    """The names that a scenario gives to values of its own, in the order of the file."""
    if fields is None:
        return ()
    for name in fields.entries:
        if name in Scene("").names() or not re.fullmatch(r"[A-Za-z]\w*", name):
            raise fields.error(name, "cannot be a name here", "take a word that no name of the language is")
    return tuple((name, read_maker(entry.value, fields.file)) for name, entry in fields.entries.items())


def load(text: str, file: str = "scenario") -> Scenario:
    """Read a scenario.

    Args:
        text: its YAML.
        file: its name, for messages.

    Raises:
        ManifestError: with the line, what is wrong there and what would be right.
    """
    return Scenario(load_yaml(text, file, bounds=BOUNDS).fields())


def choose(scenarios: Sequence[Scenario], scene: Scene) -> Cue | None:
    """What the first fitting rule of the first fitting scenario says to do.

    Raises:
        ManifestError: a template could not be worked out.
    """
    return next((cue for scenario in scenarios if (cue := scenario.cue(scene)) is not None), None)
