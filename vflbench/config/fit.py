"""Whether algorithm, data set, model, topology, privacy and codec fit together.

What the registry knows comes first, then the rules of modules.
"""

import contextlib

from vflbench import adapt, registry
from vflbench.cards.privacy.keys import serving_of
from vflbench.config.refused import REFUSED, RefusedError, sound
from vflbench.config.typed import KEYED, as_typed
from vflbench.federation import delays
from vflbench.types import AlgorithmInfo, Problem, RunConfig, division, hook, rounds_per_epoch, rules_of


def check(config: RunConfig, whole: bool = True) -> list[Problem]:
    """What does not fit together; a rule that asks for a value that was refused (`refused.REFUSED`) is skipped.

    `whole`: the rules of cards and modules are checked too.
    """
    info: AlgorithmInfo = REFUSED
    with contextlib.suppress(RefusedError):
        info = registry.algorithms()[config.algorithm.name]
        config = adapt.parties(config, info) if whole else config
    problems = sound(_dataset_problems, config, info)
    for group in CHOSEN:
        problems += sound(_choice_problems, config, info, group)
    problems += sound(_length_problems, config, info) + sound(_serving_problems, config, info)
    problems += sound(_copies_problems, config) + sound(objective_problems, config.objective, config.target)
    for group in (*KEYED, "model") if whole else ():
        check_keys = rules_of(getattr(config, group))
        if check_keys and not any(problem.key == group for problem in problems):
            problems += sound(check_keys, getattr(config, group))
    problems += sound(delays.check, config.compute) + sound(_codec_problems, config, info)
    if whole:
        problems += sound(_transport_problems, config, info) + sound(_module_problems, config, info, problems)
    return problems


def _module_problems(config: RunConfig, info: AlgorithmInfo, before: list[Problem]) -> list[Problem]:
    """What the modules of the data set and the algorithm refuse, where `before` has no problem with the model."""
    data, problems = registry.datasets()[config.dataset.name], list[Problem]()
    if check_data := hook(registry.load_dataset(data.name), "check"):
        layout = registry.fit(info, data) or data.layouts[0]
        problems += sound(check_data, config.dataset, layout, division(config.algorithm))
    # An algorithm's own rules read the model's keys.
    check_own = rules_of(config.algorithm)
    if check_own and not any(problem.key == "model" for problem in [*before, *problems]):
        problems += sound(check_own, config)
    return problems


def _dataset_problems(config: RunConfig, info: AlgorithmInfo) -> list[Problem]:
    """The data set that the algorithm cannot run with."""
    data = registry.datasets()[config.dataset.name]
    if registry.fit(info, data) is not None:
        return []
    fitting = [name for name, other in registry.datasets().items() if registry.fit(info, other)]
    allowed = f"{info.name} runs on {' or '.join(info.layouts)} data: {', '.join(fitting)}"
    return [Problem("dataset", data.name, allowed)]


# Group -> the field of AlgorithmInfo with the options that the algorithm can have.
CHOSEN = {
    **{"privacy": "privacy", "protection": "protections", "attack": "attacks", "accounting": "accounting"},
    **{"topology": "topologies", "model": "models"},
}


def _choice_problems(config: RunConfig, info: AlgorithmInfo, group: str) -> list[Problem]:
    """The option of a group that the algorithm cannot run with."""
    chosen, own = getattr(config, group), getattr(info, CHOSEN[group])
    allowed_names = own if group == "model" else registry.options(group, info, own)
    name = chosen if chosen is None or group == "accounting" else chosen.name
    if name in allowed_names or (name is None and not allowed_names):
        return []
    has = f"{info.name} can have: {', '.join(allowed_names)}" if allowed_names else f"{info.name} takes no {group}"
    if name is None:  # an option file of the user's that names none
        has += (
            f"; say model={allowed_names[0]}, or `- override /model@_global_.model: {allowed_names[0]}` in its defaults"
        )
    why = dict(info.refuses) if group == "privacy" else {}
    if reason := why.get(name or "", why.get("any")):
        has += f" ({reason})"
    return [Problem(group, as_typed(name), has)]


def objective_problems(objective: str | None, target: float | None) -> list[Problem]:
    """What is wrong with `objective`: a cost up to a target needs one."""
    if objective is None or objective == "metric" or target is not None:
        return []
    return [Problem("objective", objective, "needs a target to count up to: give target=..., or use objective=metric")]


def _serving_problems(config: RunConfig, info: AlgorithmInfo) -> list[Problem]:
    """Whether the algorithm can serve held-out rows with noise; mechanisms that cannot have no such key."""
    if serving_of(config.privacy) != "noisy" or info.noisy_serving:
        return []
    able = ", ".join(name for name, other in registry.algorithms().items() if other.noisy_serving)
    allowed = f"{info.name} does not add noise to held-out rows: use clean. Those that do: {able}"
    return [Problem("privacy.serving", "noisy", allowed)]


def _copies_problems(config: RunConfig) -> list[Problem]:
    """Whether epsilon would count copies of one sample as samples."""
    copies = vars(config.dataset).get("augment")
    if not copies or config.privacy.name == "none":
        return []
    allowed = f"every image would be {copies} rows, and privacy={config.privacy.name} protects single rows: 0"
    return [Problem("dataset.augment", copies, allowed)]


def _length_problems(config: RunConfig, info: AlgorithmInfo) -> list[Problem]:
    """What is wrong with `epochs`."""
    if config.epochs is not None and not info.epochs:
        return [Problem("epochs", config.epochs, f"{info.name} counts rounds, not epochs: use rounds")]
    if config.epochs is not None and config.rounds is not None:
        per_epoch = rounds_per_epoch(config.algorithm)
        length = "an epoch" if per_epoch == 1 else f"1/{per_epoch} of an epoch"
        given = f"a round of {info.name} is {length}, and rounds={config.rounds} is given: use one"
        return [Problem("epochs", config.epochs, given)]
    return []


def _transport_problems(config: RunConfig, info: AlgorithmInfo) -> list[Problem]:
    """What does not go with the engine and the broker."""
    problems: list[Problem] = []
    if config.engine.name == "ray":
        from vflbench.federation import ray

        problems += ray.check(config)
    if config.broker.name == "nats":
        from vflbench.federation.ray import nats_broker

        publishers = [name for name, other in registry.algorithms().items() if other.published]
        problems += nats_broker.check(config, info, publishers)
    return problems


def _codec_problems(config: RunConfig, info: AlgorithmInfo) -> list[Problem]:
    """Whether the algorithm works with compressed messages, and whether the ledger charges their true size."""
    codec = config.codec
    if codec.name == "none":
        return []
    if info.exact:
        return [Problem("codec", codec.name, f"{info.name} takes none: {info.exact}")]
    problems = []
    if config.accounting not in ("strict", "framed", "everything"):
        allowed = (
            f"accounting={config.accounting} charges every number by its own rule, which knows no codec: "
            "use accounting=strict"
        )
        problems.append(Problem("codec", codec.name, allowed))
    if codec.feedback and not info.remembered:
        having = ", ".join(name for name, other in registry.algorithms().items() if other.remembered)
        allowed = (
            f"messages of {info.name} are about other entries every time, so there is nothing to remember; "
            f"codec.feedback works with: {having}"
        )
        problems.append(Problem("codec.feedback", "true", allowed))
    return problems
