"""What is no option of an open group is refused when it is loaded, with file and what is expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.test_contracts import module
from vflbench import contract_checks, contracts, registry
from vflbench.types import VflbenchError

HEAD = """
from __future__ import annotations
from dataclasses import dataclass
from vflbench.types import OptionInfo, KEYS

OPTIONS = (OptionInfo("mine", ""),)

@dataclass
class Config(KEYS):
    name: str = "mine"

"""
GOOD = {
    "attack": "def watch(task, config, hubs): ...\ndef attack(view, task, config, hubs): ...\ndef check_task(task, "
    "config): ...",
    "codec": "def encode(values, rng, config): ...\ndef decode(sent, size, dtype, config): ...\ndef check(config): ...",
    "privacy": "def make(config, facts): ...\ndef check_labels(config, labels, classes): ...",
    "topology": "def edges(config, servers, clients, seed): ...\ndef check(config): ...",
    "network": "def link(config, kind, pair): ...\ndef check(config): ...",
    "launcher": "def launch(jobs, config): ...\ndef check(config): ...",
    "logger": "def start(config, run): ...\ndef check(config): ...",
    "protection": "def slots(config, terms, numbers): ...\ndef seal(config, values, slots): ...\n"
    "def unseal(sealed, values, numbers, dtype, slots): ...\n"
    "def seconds(config, encrypted=0, decrypted=0, added=0, multiplied=0): ...",
    "accounting": "def price(rows, payload): ...\ndef seconds(rows, payload, network): ...",
}


def text(group: str) -> str:
    keys = contracts.OPTIONS[group].keys
    return (
        HEAD.replace("KEYS", keys.__name__) if keys is not None else HEAD[: HEAD.index("@")].replace(", KEYS", "")
    ) + GOOD[group]


BROKEN = [
    (
        "attack",
        "watch(task, config, hubs)",
        "watch(task)",
        "watch takes (task), and is called as watch(task, config, hubs)",
    ),
    (
        "attack",
        "def attack",
        "def attacks",
        "attack(view, task, config, hubs) is missing: What it finds in the messages, for the summary",
    ),
    (
        "attack",
        "check_task(task, config)",
        "check_task(config)",
        "check_task takes (config), and is called as check_task(task, config)",
    ),
    (
        "codec",
        "encode(values, rng, config)",
        "encode(values)",
        "encode takes (values), and is called as encode(values, rng, config)",
    ),
    (
        "codec",
        "def decode",
        "def undo",
        "decode(sent, size, dtype, config) is missing: What the receiver makes of what was",
    ),
    ("codec", "def check(config)", "def check()", "check takes (), and is called as check(config)"),
    ("codec", "(CodecConfig)", "", "Config must have the key feedback, of type bool"),
    ("codec", "def check(", "def chek(", "chek is never called. Did you mean 'check'?"),
    ("privacy", "make(config, facts)", "make(config)", "make takes (config), and is called as make(config, facts)"),
    ("privacy", "def make", "def build", "make(config, facts) is missing: The mechanism of one party"),
    ("privacy", "def check_labels", "def check_label", "check_label is never called. Did you mean 'check_labels'?"),
    ("privacy", "(PrivacyConfig)", "", "Config must have the key secure_rng, of type bool | None"),
    (
        "topology",
        "edges(config, servers, clients, seed)",
        "edges(config, clients)",
        "edges takes (config, clients), and is called as",
    ),
    ("topology", "def edges", "def graph", "edges(config, servers, clients, seed) is missing: The pairs that may"),
    (
        "network",
        "link(config, kind, pair)",
        "link(config, pair)",
        "link takes (config, pair), and is called as link(config, kind, pair)",
    ),
    ("network", "def link", "def links", "link(config, kind, pair) is missing: The link `pair`"),
    ("network", "(NetworkConfig)", "", "Config must have the key client_server, of type LinkConfig"),
    ("launcher", "launch(jobs, config)", "launch(jobs)", "launch takes (jobs), and is called as launch(jobs, config)"),
    ("launcher", "def launch", "def start", "launch(jobs, config) is missing: Call each job, here or pickled"),
    ("logger", "start(config, run)", "start(run)", "start takes (run), and is called as start(config, run)"),
    ("logger", "def start", "def begin", "start(config, run) is missing: What logs one run"),
    ("protection", "seal(config, values, slots)", "seal(values)", "seal takes (values), and is called as seal(config,"),
    ("accounting", "price(rows, payload)", "price(rows)", "price takes (rows), and is called as price(rows, payload)"),
    ("accounting", "def price", "def cost", "price(rows, payload) is missing: Bytes charged for each message"),
    ("accounting", "def seconds", "def second", "second is never called. Did you mean 'seconds'?"),
]


@pytest.mark.parametrize("group", contracts.OPTIONS)
def test_an_option_that_keeps_the_contract_is_taken(group: str, tmp_path: Path) -> None:
    contract_checks.check_option(group, module(tmp_path, text(group)))


def test_every_option_of_ours_keeps_it() -> None:
    assert set(registry.GROUPS) == set(contracts.OPTIONS) == set(GOOD)
    for group in registry.GROUPS:
        modules = [registry.load_option(group, name) for name in registry.option_entries(group)]
        assert bool(modules) == (contracts.OPTIONS[group].bare != "*")


@pytest.mark.parametrize(("group", "before", "after", "told"), BROKEN, ids=[told for _, _, _, told in BROKEN])
def test_one_that_breaks_it_is_told_what_is_expected(
    group: str, before: str, after: str, told: str, tmp_path: Path
) -> None:
    refused(group, before, after, told, tmp_path)


@pytest.mark.parametrize("group", contracts.OPTIONS)
@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("OPTIONS = ", "OPTION = ", "OPTIONS is missing"),
        (
            '(OptionInfo("mine", ""),)',
            'OptionInfo("mine", "")',
            "OPTIONS must be a tuple of OptionInfo(...), at least one",
        ),
    ],
)
def test_facts_are_checked_in_every_group(group: str, before: str, after: str, told: str, tmp_path: Path) -> None:
    refused(group, before, after, told, tmp_path)


@pytest.mark.parametrize("group", [group for group, kind in contracts.OPTIONS.items() if kind.keys is not None])
@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("@dataclass\n", "", "Config must be a dataclass: add @dataclass"),
        ('    name: str = "mine"', "    rows: int = 3", "Config has name='NAME' by default: it must be mine"),
        ('name: str = "mine"', 'name: str = "other"', "Config has name='other' by default: it must be mine"),
        (
            'name: str = "mine"',
            'name: str = "mine"\nConfig.__module__ = "elsewhere"',
            "it must be a class of this file",
        ),
    ],
)
def test_keys_are_checked_in_every_group_that_has_some(
    group: str, before: str, after: str, told: str, tmp_path: Path
) -> None:
    keys = contracts.OPTIONS[group].keys
    assert keys is not None
    refused(group, before, after, told.replace("NAME", keys().name), tmp_path)


def refused(group: str, before: str, after: str, told: str, tmp_path: Path) -> None:
    good = text(group)
    assert before in good
    with pytest.raises(VflbenchError) as error:
        contract_checks.check_option(group, module(tmp_path, good.replace(before, after)))
    assert told in str(error.value) and str(tmp_path / "mine.py") in str(error.value)
