"""Every exception of the package arrives whole in another process: engine=ray, joblib and multiprocessing send them as
pickles."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil

import pytest

import vflbench
from vflbench.types import Problem

# How those are made that take more than a message.
MADE_OF = {
    "ConfigError": ([Problem("seed", -1, "must be at least 0", "speed"), Problem("rounds", 0, "must be at least 1")],),
    "PartyLost": ("client_3",),
    "Wrong": (7, "'x' is no number"),
}


def exceptions() -> list[type[BaseException]]:
    found = {}
    for module in pkgutil.walk_packages(vflbench.__path__, "vflbench."):
        if not module.name.endswith("__main__"):
            for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if issubclass(kind, BaseException) and kind.__module__.startswith("vflbench"):
                    found[kind.__qualname__] = kind
    return list(found.values())


def test_every_exception_survives_pickling() -> None:
    kinds = exceptions()
    assert {"VflbenchError", "ConfigError", "DataError", "FederationError", "PartyLost", "Taken", "Wrong"} <= {
        kind.__name__ for kind in kinds
    }
    for kind in kinds:
        error = kind(*MADE_OF.get(kind.__name__, ("a message",)))
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind and str(copy) == str(error) and vars(copy) == vars(error)


def test_what_they_say() -> None:
    from vflbench.federation.party import PartyLost
    from vflbench.types import ConfigError

    lines = ["seed=-1: must be at least 0. Did you mean 'speed'?", "rounds=0: must be at least 1."]
    assert str(ConfigError(MADE_OF["ConfigError"][0])).splitlines() == lines
    assert str(PartyLost("client_3")) == "the process of client_3 has died"
    with pytest.raises(ConfigError, match="seed=-1"):
        raise ConfigError(MADE_OF["ConfigError"][0])
