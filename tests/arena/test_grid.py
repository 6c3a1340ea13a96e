"""The grid file: what is wrong with one is said at once, with its place and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from arena.mistakes import MistakesError
from arena.plan import Study
from arena.planning import plan_study

Plan = Callable[..., Study]
Mistakes = Callable[..., list[str]]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Plans the text of a grid with assignments, and sees to it that nothing is created."""
    monkeypatch.chdir(tmp_path)

    def plan_text(text: str, *assignments: str) -> Study:
        Path("g.yaml").write_text(text)
        try:
            return plan_study(Path("g.yaml"), assignments, studies=tmp_path / "studies")
        finally:
            assert [path.name for path in tmp_path.iterdir()] == ["g.yaml"]

    return plan_text


@pytest.fixture
def mistakes(plan: Plan) -> Mistakes:
    def find(text: str, *assignments: str) -> list[str]:
        with pytest.raises(MistakesError) as caught:
            plan(text, *assignments)
        return str(caught.value).splitlines()

    return find


BAD = {
    "unknown option": (
        "name: a\naxes:\n  is_clipping: [token, cipso]\n",
        "g.yaml:3:24: axes.is_clipping.1: unknown option 'cipso'; did you mean 'cispo'? (options: ",
    ),
    "option that is no word": (
        "name: a\naxes:\n  is_clipping: [[token]]\n",
        "g.yaml:3:17: axes.is_clipping.0: expected a name or {name: {parameter: value}}, got ['token']",
    ),
    "null for none": (
        "name: a\naxes:\n  dynamic_filtering: [null]\n",
        "g.yaml:3:23: axes.dynamic_filtering.0: expected a name or {name: {parameter: value}}, got null",
    ),
    "unknown axis": (
        "name: a\naxes:\n  clipping: [token]\n",
        "g.yaml:3:3: axes.clipping: unknown axis 'clipping'; did you mean 'is_clipping'? (axes: ",
    ),
    "unknown parameter": (
        "name: a\naxes:\n  is_clipping: [{cispo: {high: 4}}]\n",
        "g.yaml:3:26: axes.is_clipping.0.cispo.high: unknown key 'high'; did you mean 'hi'? (param",
    ),
    "wrong parameter": (
        "name: a\naxes:\n  is_clipping: [{cispo: {hi: -4}}]\n",
        "g.yaml:3:30: axes.is_clipping.0.cispo.hi: should be greater than or equal to 0, got -4",
    ),
    "dual clip that would clip ratios of one": (
        "name: a\naxes:\n  is_clipping: [{token: {dual_clip: 1}}]\n",
        "g.yaml:3:37: axes.is_clipping.0.token.dual_clip: should be greater than 1, got 1",
    ),
    "wrong nested parameter": (
        "name: a\naxes:\n  is_clipping: [{token: {sequence_mask: {delta: 0.1, denominator: most}}}]\n",
        "g.yaml:3:67: axes.is_clipping.0.token.sequence_mask.denominator: unknown value 'most' (",
    ),
    "missing nested parameter": (
        "name: a\naxes:\n  is_clipping: [{token: {sequence_mask: {denominator: all}}}]\n",
        "g.yaml:3:55: axes.is_clipping.0.token.sequence_mask.delta: missing",
    ),
    "parameter of the option that has none": (
        "name: a\naxes:\n  is_clipping: [token, soft]\noverrides: {is_clipping.hi: 0.3}\n",
        "g.yaml:4:13: overrides.is_clipping.hi: unknown key 'hi' (parameters of soft: ",
    ),
    "no options": (
        "name: a\naxes: {is_clipping: []}\n",
        "g.yaml:2:21: axes.is_clipping: empty; list at least one",
    ),
    "option twice": (
        "name: a\naxes: {advantage: [grpo, grpo]}\n",
        "g.yaml:2:26: axes.advantage.1: grpo is listed twice",
    ),
    "function that is not there": (
        "name: a\naxes:\n  advantage: [{mine: {function: nowhere.mine}}]\n",
        "g.yaml:3:33: axes.advantage.0.mine.function: no module 'nowhere'; is it installed, or ",
    ),
    "known option with a function": (
        "name: a\naxes:\n  advantage: [{grpo: {function: a.b}}]\n",
        "g.yaml:3:33: axes.advantage.0.grpo.function: grpo has a function; give an option of",
    ),
    "unknown key": (
        "name: a\nsedes: 3\n",
        "g.yaml:2:1: sedes: unknown key 'sedes'; did you mean 'seeds'? (keys: ",
    ),
    "configuration key at the top": (
        "name: a\ntrainer.steps: 3\n",
        "g.yaml:2:1: trainer.steps: unknown key 'trainer.steps'; configuration keys go under `overrides`",
    ),
    "duplicate key": (
        "name: a\nseeds: 3\nseeds: 4\n",
        "g.yaml:3:1: seeds: duplicate key (first on line 2); remove one of them",
    ),
    "no name": ("seeds: 3\n", "g.yaml:1:1: name: missing; add `name: ...`"),
    "name that is no folder": (
        "name: ../a\n",
        "g.yaml:1:7: name: '../a' cannot name a folder; use letters, ",
    ),
    "name that is taken": (
        "name: mlflow.db\n",
        "g.yaml:1:7: name: runs of all studies are kept in mlflow.db; choose another",
    ),
    "name that is a number": ("name: 3\n", "g.yaml:1:7: name: should be a valid string, got 3"),
    "unknown method": (
        "name: a\nmethods: [SAMPPO]\n",
        "g.yaml:2:11: methods.0: unknown method 'SAMPPO'; did you mean 'SAMPO'? (methods: ",
    ),
    "method with another option": (
        "name: a\nmethods: [{GRPO: {is_clipping: cispo}}]\n",
        "g.yaml:2:19: methods.0.GRPO.is_clipping: options are chosen under `axes`",
    ),
    "method with an unknown key": (
        "name: a\nmethods: [{GRPO: {is_clipping.top: 1}}]\n",
        "g.yaml:2:19: methods.0.GRPO.is_clipping.top: unknown key 'top' (parameters of token: ",
    ),
    "unknown environment": (
        "name: a\nenvs: [sokobann]\n",
        "g.yaml:2:8: envs.0: unknown environment 'sokobann'; did you mean 'sokoban'? (environments: ",
    ),
    "environment twice": (
        "name: a\nenvs: [sokoban, sokoban]\n",
        "g.yaml:2:17: envs.1: sokoban is listed twice",
    ),
    "no environments": ("name: a\nenvs: []\n", "g.yaml:2:7: envs: empty; list at least one"),
    "negative steps": (
        "name: a\noverrides:\n  trainer.steps: -5\n",
        "g.yaml:3:18: overrides.trainer.steps: should be greater than or equal to 1, got -5",
    ),
    "a number in quotes": (
        "name: a\noverrides: {trainer: {steps: '5'}}\n",
        "g.yaml:2:30: overrides.trainer.steps: should be a valid integer, got '5'",
    ),
    "half a step": (
        "name: a\noverrides: {trainer.steps: 2.5}\n",
        "g.yaml:2:28: overrides.trainer.steps: should be a valid integer, got 2.5",
    ),
    "no is no boolean": (
        "name: a\ncollapse: {stop: no}\n",
        "g.yaml:2:18: collapse.stop: should be a valid boolean, got 'no'",
    ),
    "not a number": (
        "name: a\noverrides: {trainer.learning_rate: .nan}\n",
        "g.yaml:2:36: overrides.trainer.learning_rate: should be greater than 0, got nan",
    ),
    "misspelt configuration key": (
        "name: a\noverrides: {trainer.stepps: 2}\n",
        "g.yaml:2:13: overrides.trainer.stepps: unknown key 'stepps'; did you mean 'steps'? (keys: ",
    ),
    "key without its section": (
        "name: a\noverrides: {learning_rate: 2}\n",
        "g.yaml:2:13: overrides.learning_rate: unknown key 'learning_rate'; did you mean 'trainer.",
    ),
    "key of the environment": (
        "name: a\noverrides: {env.sise: 2}\n",
        "g.yaml:2:13: overrides.env.sise: unknown key 'sise'; did you mean 'size'? (keys of sokoban: ",
    ),
    "seed as a setting": ("name: a\noverrides: {seed: 2}\n", "g.yaml:2:13: overrides.seed: set by `seeds`"),
    "environment as a setting": (
        "name: a\noverrides: {env.name: x}\n",
        "g.yaml:2:13: overrides.env.name: environments are chosen under `envs`",
    ),
    "unknown model": (
        "name: a\noverrides: {model: tinny}\n",
        "g.yaml:2:20: overrides.model: unknown model 'tinny'; did you mean 'tiny'? (models: ",
    ),
    "unknown profile": (
        "name: a\nprofile: labtop\n",
        "g.yaml:2:10: profile: unknown profile 'labtop'; did you mean 'laptop'? (profiles: auto, ",
    ),
    "unknown design": (
        "name: a\ndesign: ful\n",
        "g.yaml:2:9: design: unknown value 'ful'; did you mean 'full'? (values: d_optimal, fraction, ",
    ),
    "design without its number": (
        "name: a\ndesign: d_optimal\n",
        "g.yaml:2:9: design: expected full, one_factor, pairwise, points, {fraction: SHARE} or {d_optimal: ",
    ),
    "more than all": (
        "name: a\ndesign: {fraction: 1.5}\n",
        "g.yaml:2:9: design: should be less than or equal to 1, got 1.5",
    ),
    "too few runs to show anything": (
        "name: a\naxes: {advantage: [grpo, rloo, lite]}\ndesign: {d_optimal: 2}\n",
        "g.yaml:3:9: design: 2 runs cannot separate the main effects of these axes; give at least 3",
    ),
    "k1 in the loss": (
        "name: a\noverrides: {trainer.kl.estimator: k1}\n",
        "g.yaml:2:35: overrides.trainer.kl.estimator: k1 in the loss has no gradient in expectation",
    ),
    "trajectories without their rows": (
        "name: a\naxes: {is_clipping: [{sequence: {unit: trajectory}}]}\n",
        "g.yaml:2:40: axes.is_clipping.0.sequence.unit: sequence with `unit: trajectory` needs",
    ),
    "an expert whose transcripts are not what it did": (
        "name: a\nmethods: [GRPO, {GSPO: {rows: transcript}}]\n",
        "g.yaml:2:31: methods.1.GSPO.rows: a transcript shows what was written as what was done",
    ),
    "an advantage of turns in rows of trajectories": (
        "name: a\nmethods: [EMPG]\noverrides: {rows: transcript, cloning.explore: 0}\n",
        "g.yaml:2:11: methods.0: empg gives every turn an advantage of its own",
    ),
    "step advantages in rows of trajectories": (
        "name: a\naxes: {advantage: [grpo, gigpo]}\noverrides: {rows: transcript, cloning.explore: 0}\n",
        "g.yaml:2:26: axes.advantage.1: gigpo gives every turn an advantage of its own",
    ),
    "a gate that is a band and a share": (
        "name: a\naxes: {is_clipping: [{gated: {low: {level: token, eps: 0.1, share: 0.1}}}]}\n",
        "g.yaml:2:68: axes.is_clipping.0.gated.low.share: give exactly one of eps",
    ),
    "empty sweep": (
        "name: a\nsweep: {trainer.steps: []}\n",
        "g.yaml:2:24: sweep.trainer.steps: empty; list at least one",
    ),
    "sweep of an unknown key": (
        "name: a\nsweep: {trainer.step: [1]}\n",
        "g.yaml:2:24: sweep.trainer.step.0: unknown key",
    ),
    "wrong swept value": (
        "name: a\nsweep: {trainer.steps: [1, 0]}\n",
        "g.yaml:2:28: sweep.trainer.steps.1: should be greater than or equal to 1, got 0",
    ),
    "swept value twice": (
        "name: a\nsweep: {trainer.steps: [60, 6e1]}\n",
        "g.yaml:2:29: sweep.trainer.steps.1: 60.0 is listed",
    ),
    "adaptive seeds without an end": (
        "name: a\nseeds: {min: 3, max: 10}\n",
        "g.yaml:2:8: seeds.until: missing; add `until: ...`",
    ),
    "adaptive seeds with a typing error": (
        "name: a\nseeds: {min: 3, max: 10, until: {ci_with: 0.1, ci_width: 0.1}}\n",
        "g.yaml:2:34: seeds.until.ci_with: unknown key 'ci_with'; did you mean 'ci_width'?",
    ),
    "an interval wider than everything": (
        "name: a\nseeds: {min: 3, max: 10, until: {ci_width: 1.5}}\n",
        "g.yaml:2:44: seeds.until.ci_width: should be less than 1, got 1.5",
    ),
    "an interval of one seed": (
        "name: a\nseeds: {min: 1, max: 10, until: {ci_width: 0.1}}\n",
        "g.yaml:2:14: seeds.min: should be greater than or equal to 2, got 1",
    ),
    "no seeds to add": (
        "name: a\nseeds: {min: 3, max: 3, until: {ci_width: 0.1}}\n",
        "g.yaml:2:8: seeds: max (3) leaves nothing to add to min (3); raise it, or give a count",
    ),
    "no seeds": ("name: a\nseeds: 0\n", "g.yaml:2:8: seeds: a count is at least 1 and a seed at least 0"),
    "empty seeds": (
        "name: a\nseeds: []\n",
        "g.yaml:2:8: seeds: expected a count (3), a list ([0, 1, 2])"
        " or {min: 3, max: 10, until: {ci_width: 0.1}}, got []",
    ),
    "negative seed": (
        "name: a\nseeds: [0, -1]\n",
        "g.yaml:2:8: seeds: a count is at least 1 and a seed at least 0",
    ),
    "seed twice": ("name: a\nseeds: [1, 2, 1]\n", "g.yaml:2:8: seeds: seed 1 is listed twice"),
    "seeds that are a word": ("name: a\nseeds: three\n", "g.yaml:2:8: seeds: expected a count (3), a list"),
    "tuning without keys": (
        "name: a\ntuning: {per: method}\n",
        "g.yaml:2:9: tuning.params: missing; add `params: ...`",
    ),
    "tuning with a typing error": (
        "name: a\ntuning: {sampler: tbe, params: {trainer.epochs: [1, 2]}}\n",
        "g.yaml:2:19: tuning.sampler: unknown value 'tbe'; did you mean 'tpe'?",
    ),
    "tuning over an unknown key": (
        "name: a\ntuning: {params: {trainer.learning_rat: [1e-4, 1e-3]}}\n",
        "g.yaml:2:19: tuning.params.trainer.learning_rat: unknown key 'trainer.learning_rat'",
    ),
    "tuning over a value that cannot be": (
        "name: a\ntuning: {params: {trainer.learning_rate: {low: -1e-4, high: 1e-3}}}\n",
        "g.yaml:2:48: tuning.params.trainer.learning_rate: should be greater than 0",
    ),
    "tuning over an empty range": (
        "name: a\ntuning: {params: {trainer.learning_rate: {low: 1e-3, high: 1e-4}}}\n",
        "g.yaml:2:42: tuning.params.trainer.learning_rate: low (0.001) is not below high (0.0001)",
    ),
    "tuning over half a range": (
        "name: a\ntuning: {params: {trainer.learning_rate: {low: 1e-3}}}\n",
        "g.yaml:2:42: tuning.params.trainer.learning_rate: give a list of values, or both low and high",
    ),
    "tuning over one value": (
        "name: a\ntuning: {params: {trainer.epochs: [1]}}\n",
        "g.yaml:2:35: tuning.params.trainer.epochs: list at least two values",
    ),
    "tuning over what an option lacks": (
        "name: a\nmethods: [GRPO]\ntuning: {params: {is_clipping.width: [0.1, 0.2]}}\n",
        "g.yaml:3:19: tuning.params.is_clipping.width: unknown key 'width'",
    ),
    "tuning over what is swept": (
        "name: a\nsweep: {trainer.epochs: [1, 2]}\ntuning: {params: {trainer.epochs: [1, 2]}}\n",
        "g.yaml:3:19: tuning.params.trainer.epochs: swept as well as tuned",
    ),
    "tuning into a conflict": (
        "name: a\nmethods: [GSPO]\ntuning: {params: {is_clipping.unit: [row, trajectory]}}\n",
        "g.yaml:3:43: tuning.params.is_clipping.unit: sequence with `unit: trajectory` needs whole",
    ),
    "tuning the environment": (
        "name: a\ntuning: {params: {env.max_turns: [5, 8]}}\n",
        "g.yaml:2:19: tuning.params.env.max_turns: env is the same for all that is compared",
    ),
    "tuning of nobody": (
        "name: a\ntuning: {params: {trainer.epochs: {choices: [1, 2], when: {is_clipping: cispo}}}}\n",
        "g.yaml:2:19: tuning.params.trainer.epochs: its `when` never holds; nothing is tuned",
    ),
    "a seed of tuning": (
        "name: a\nseeds: [0, 1000000]\n",
        "g.yaml:2:8: seeds: seeds from 1000000 on are those of tuning; take lower ones",
    ),
    "rule over an unknown key": (
        "name: a\nexclude: [{advantag: grpo}]\n",
        "g.yaml:2:12: exclude.0.advantag: unknown key of a rule 'advantag'; did you mean 'advantage'?",
    ),
    "rule over an unknown option": (
        "name: a\nexclude: [{advantage: gipo}]\n",
        "g.yaml:2:23: exclude.0.advantage: unknown option 'gipo'; did you mean 'gigpo'?",
    ),
    "rule over another environment": (
        "name: a\nexclude: [{env: webshop}]\n",
        "g.yaml:2:17: exclude.0.env: unknown environment 'webshop' (in this grid: sokoban)",
    ),
    "rule that removes nothing": (
        "name: a\naxes: {advantage: [grpo, rloo]}\nexclude: [{advantage: rloo}, {advantage: gigpo}]\n",
        "g.yaml:3:30: exclude.1: this rule removes nothing; correct it or take it out",
    ),
    "empty product": (
        "name: a\naxes: {advantage: [grpo, rloo]}\nexclude: [{advantage: [grpo, rloo]}]\n",
        "g.yaml:3:11: exclude.0: this rule removes everything; nothing is left to run",
    ),
    "rules that leave nothing together": (
        "name: a\naxes: {advantage: [grpo, rloo]}\nexclude: [{advantage: grpo}, {advantage: rloo}]\n",
        "g.yaml:3:1: exclude: these rules remove everything; nothing is left to run",
    ),
    "requirement that nothing meets": (
        "name: a\nrequire: [{trainer.epochs: '> 9'}]\n",
        "g.yaml:2:11: require.0: this rule removes everything; nothing is left to run",
    ),
    "requirement that everything meets": (
        "name: a\nrequire: [{trainer.epochs: 1}]\n",
        "g.yaml:2:11: require.0: this rule removes nothing; correct it or take it out",
    ),
    "requirement of nothing": (
        "name: a\nrequire: [{when: {advantage: grpo}}]\n",
        "g.yaml:2:18: require.0.when: expected something to require beside it",
    ),
    "when that is no condition": (
        "name: a\nrequire: [{advantage: grpo, when: grpo}]\n",
        "g.yaml:2:35: require.0.when: expected {key: value}",
    ),
    "rule over a misspelt configuration key": (
        "name: a\nexclude: [{trainer.epoch: 1}]\n",
        "g.yaml:2:12: exclude.0.trainer.epoch: unknown key 'epoch'; did you mean 'epochs'? (keys: ",
    ),
    "rule over a parameter that no option has": (
        "name: a\nexclude: [{is_clipping.tau: 1}]\n",
        "g.yaml:2:12: exclude.0.is_clipping.tau: unknown key 'tau' (parameters of options of is_clipping in ",
    ),
    "rule over a key that the environment does not have": (
        "name: a\nexclude: [{env.sise: 1}]\n",
        "g.yaml:2:11: exclude.0: nothing in this grid has env.sise; correct it or take it out",
    ),
    "comparison of no number": (
        "name: a\nexclude: [{trainer.epochs: '> some'}]\n",
        "g.yaml:2:28: exclude.0.trainer.epochs: `>` compares numbers, got 'some'",
    ),
    "comparison with an unknown option": (
        "name: a\nexclude: [{advantage: '!= gipo'}]\n",
        "g.yaml:2:23: exclude.0.advantage: unknown option 'gipo'; did you mean 'gigpo'?",
    ),
    "rule without values": (
        "name: a\nexclude: [{advantage: []}]\n",
        "g.yaml:2:23: exclude.0.advantage: empty; list at least one",
    ),
    "sweep of what some options lack": (
        "name: a\naxes: {is_clipping: [token, soft]}\nsweep: {is_clipping.hi: [0.2]}\n",
        "g.yaml:3:26: sweep.is_clipping.hi.0: unknown key 'hi' (parameters of soft: ",
    ),
    "condition that never holds": (
        "name: a\nsweep: {trainer.epochs: {values: [1, 2], when: {advantage: gigpo}}}\n",
        "g.yaml:2:25: sweep.trainer.epochs: its `when` never holds; nothing takes these values",
    ),
    "condition that says nothing": (
        "name: a\nsweep: {trainer.epochs: {values: [1, 2], when: {}}}\n",
        "g.yaml:2:25: sweep.trainer.epochs: `when` is empty; say when to take these values, or remove it",
    ),
    "keys together under a key": (
        "name: a\nsweep: {trainer.epochs: {a: {trainer.steps: 1}}}\n",
        "g.yaml:2:25: sweep.trainer.epochs: expected a list of values of trainer.epochs; keys that move",
    ),
    "keys together that are values": (
        "name: a\nsweep: {pace: {slow: 3}}\n",
        "g.yaml:2:15: sweep.pace: expected a list of values, or {name: {key: value}} for keys that move",
    ),
    "wrong value of keys together": (
        "name: a\nsweep: {pace: {slow: {trainer.steps: 0}}}\n",
        "g.yaml:2:38: sweep.pace.slow.trainer.steps: should be greater than or equal to 1, got 0",
    ),
    "unknown key among keys together": (
        "name: a\nsweep: {pace: {slow: {trainer.stepps: 3}}}\n",
        "g.yaml:2:23: sweep.pace.slow.trainer.stepps: unknown key 'stepps'; did you mean 'steps'?",
    ),
    "empty rule": ("name: a\nexclude: [{}]\n", "g.yaml:2:11: exclude.0: empty; list at least one"),
    "axes beside design points": (
        "name: a\ndesign: points\naxes: {advantage: [grpo]}\npoints: [{advantage: rloo}]\n",
        "g.yaml:3:7: axes: not used by `design: points`",
    ),
    "design points without points": (
        "name: a\ndesign: points\n",
        "g.yaml:2:9: design: `design: points` needs `points`",
    ),
    "wrong budget": (
        "name: a\nbudget: {trials: 0}\n",
        "g.yaml:2:18: budget.trials: should be greater than or equal to 1",
    ),
    "unknown limit": (
        "name: a\nlimits: {hang_minute: 1}\n",
        "g.yaml:2:10: limits.hang_minute: unknown key 'hang_minute'; did you mean 'hang_minutes'?",
    ),
    "negative retries": (
        "name: a\nretries: -1\n",
        "g.yaml:2:10: retries: should be greater than or equal to 0",
    ),
    "unknown remedy": (
        "name: a\non_out_of_memory: retry\n",
        "g.yaml:2:19: on_out_of_memory: unknown value 'retry' (values: fail, halve_micro_batch)",
    ),
    "priority without a meaning": (
        "name: a\npriority: [{is_cliping: token}]\n",
        "g.yaml:2:13: priority.0.is_cliping: unknown key of a rule 'is_cliping'; did you mean 'is_clipping'?",
    ),
    "priority of nothing": (
        "name: a\npriority: [{trainer.epochs: 77}]\n",
        "g.yaml:2:12: priority.0: nothing in this grid is meant by this; correct it or take it out",
    ),
    "unknown budget": (
        "name: a\nbudget: {trails: 1}\n",
        "g.yaml:2:10: budget.trails: unknown key 'trails'; did you mean 'trials'?",
    ),
    "wrong resources": (
        "name: a\nresources: {cpus: 0}\n",
        "g.yaml:2:19: resources.cpus: should be greater than 0, got 0",
    ),
    "two ways to cut mini-batches": (
        "name: a\noverrides: {trainer.minibatch: {rows: 64, count: 2}}\n",
        "g.yaml:2:50: overrides.trainer.minibatch.count: give exactly one of count and rows",
    ),
    "a section that is a value": (
        "name: a\noverrides: {trainer: 3}\n",
        "g.yaml:2:22: overrides.trainer: should be an object, got 3",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_grid_gives_one_message_with_place_and_remedy(
    text: str, message: str, mistakes: Mistakes
) -> None:
    (found,) = mistakes(text)
    assert found.startswith(message)


def test_all_mistakes_of_a_file_come_at_once_in_its_order(mistakes: Mistakes) -> None:
    text = (
        "name: a b\n"
        "axes:\n"
        "  is_clipping: [tokn, {cispo: {hi: x}}]\n"
        "  advantage: 3\n"
        "  dynamic_filtering: [non]\n"
        "methods: [GRPOO]\n"
        "envs: [sokobn, sokoban]\n"
        "seeds: -1\n"
        "overrides: {trainer.steps: 0, trainer.epoch: 2}\n"
        "sweep: {trainer.groups: [0]}\n"
        "profile: x\n"
        "unknown: 1\n"
    )
    found = mistakes(text, "trainer.group_size=0", "budget.trials=none", "seedss=1")
    assert [line.partition(": ")[0] for line in found] == [
        "command line (budget.trials=none)",
        "command line (seedss=1)",
        "command line (trainer.group_size=0)",
        "g.yaml:1:7",
        "g.yaml:3:17",
        "g.yaml:3:36",
        "g.yaml:4:14",
        "g.yaml:5:23",
        "g.yaml:6:11",
        "g.yaml:7:8",
        "g.yaml:8:8",
        "g.yaml:9:28",
        "g.yaml:9:31",
        "g.yaml:10:26",
        "g.yaml:11:10",
        "g.yaml:12:1",
    ]


COMMAND_LINE = {
    "no value": ("seeds", "expected key=value"),
    "broken value": ("seeds=[1", "not valid YAML"),
    "wrong value": ("seeds=-2", "seeds: a count is at least 1 and a seed at least 0"),
    "unknown key": ("steps=2", "unknown key 'steps'; did you mean 'trainer.steps'?"),
    "misspelt grid key": ("seed=2", "set by `seeds`"),
    "wrong configuration": ("trainer.steps=0", "trainer.steps: should be greater than or equal to 1, got 0"),
    "unknown option": (
        "axes.advantage=[grop]",
        "axes.advantage.0: unknown option 'grop'; did you mean 'grpo'?",
    ),
}


@pytest.mark.parametrize(("assignment", "message"), COMMAND_LINE.values(), ids=COMMAND_LINE.keys())
def test_mistakes_on_the_command_line_are_placed_there(
    assignment: str, message: str, mistakes: Mistakes
) -> None:
    (found,) = mistakes("name: a\n", assignment)
    assert found.startswith(f"command line ({assignment}): {message}")


def test_a_grid_of_a_name_alone_is_the_default_point(plan: Plan) -> None:
    study = plan("name: a\n")
    (trial,) = study.trials
    assert (trial.label, trial.env, trial.seed, trial.state) == ("GRPO", "sokoban", 0, "pending")


def test_numbers_and_words_mean_what_yaml_12_says(plan: Plan) -> None:
    settings = "{trainer.learning_rate: 1e-3, trainer.steps: 6e1}"
    study = plan(f"name: a\noverrides: {settings}\naxes: {{dynamic_filtering: [none]}}\n")
    (trial,) = study.trials
    assert trial.config.trainer.learning_rate == 0.001
    assert trial.config.trainer.steps == 60
