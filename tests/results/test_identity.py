"""Equal experiments have equal hashes, different ones different."""

import pytest

from vflbench import registry
from vflbench.config.typed import fields_of
from vflbench.results.identity import RETIRED, config_hash

CONFIG = {
    "seed": 0,
    "algorithm": {"name": "glasu", "lr": 0.1, "aggregation_layers": [2, 4]},
    "device": "cpu",
    "resume": False,
}


def test_hash_is_stable():
    assert config_hash(CONFIG) == "8ed74ee96566c75e"  # a change here orphans every finished run
    assert config_hash(dict(reversed(CONFIG.items()))) == config_hash(CONFIG)
    assert config_hash({**CONFIG, "algorithm": {**CONFIG["algorithm"], "aggregation_layers": (2, 4)}}) == config_hash(
        CONFIG
    )


@pytest.mark.parametrize(
    "key",
    [
        *("resume", "device", "overwrite", "dry_run", "plot", "hydra", "hydra.run.dir", "data_root", "predictions"),
        *("objective", "logger"),
    ],
)
def test_how_and_where_is_no_identity(key):
    assert config_hash({**CONFIG, key: "other"}) == config_hash(CONFIG)


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"algorithm": {**CONFIG["algorithm"], "lr": 0.2}}, {"rounds": None}, {"checkpoint_every": 5}],
)
def test_what_is_computed_is(change):
    assert config_hash({**CONFIG, **change}) != config_hash(CONFIG)


def test_excluded_names_count_below_the_top():
    assert config_hash({**CONFIG, "algorithm": {**CONFIG["algorithm"], "device": "x"}}) != config_hash(CONFIG)


@pytest.mark.parametrize(("group", "names", "keys"), [(*where, keys) for where, keys in RETIRED.items()])
def test_a_run_from_when_there_was_a_key_is_the_same_experiment_where_it_had_todays_value(group, names, keys):
    for name in names:
        now, before = {**CONFIG, group: {"name": name}}, {**CONFIG, group: {"name": name, **keys}}
        assert config_hash(now) == config_hash(before)
        for key in keys:
            assert config_hash(now) != config_hash({**CONFIG, group: {"name": name, key: "other"}})
        assert not keys.keys() & fields_of(registry.option_config(group, name)).keys()
