"""From what the user typed to a checked configuration."""

from vflbench.config.composition import compose, configurations, from_environment, plain, session, without_secrets
from vflbench.config.fit import check
from vflbench.config.keys import to_config
from vflbench.config.planning import Plan, check_hydra_keys, checked, plan, profiles
from vflbench.config.typed import convert
from vflbench.hydra_internals import quoted
from vflbench.registry import config_dir

__all__ = [
    "Plan", "check", "check_hydra_keys", "checked", "compose", "config_dir", "configurations", "convert", "from_environment", "plain",
    "plan", "profiles", "quoted", "session", "to_config", "without_secrets",
]  # fmt: skip
