"""Chains of messages: by hand, against the engine, and what cannot be priced."""

from pathlib import Path

import numpy as np
import pytest

import vflbench
from tests.contracts.test_algorithms import represented
from vflbench.results import pricing
from vflbench.results.pricing import CLIENT_CLIENT, CLIENT_SERVER
from vflbench.results.reader import Arrays, Coded


def test_seconds():
    """2 x 100 ms + 1,000,000 bytes at 8 Mbit/s is 1.2 s; 5 x 100 ms + 100,000 bytes 0.6 s: the longest counts."""
    chains = ((5, 100_000), (2, 1_000_000))
    assert pricing.seconds(chains, 100.0, 0.008) == pytest.approx(1.2)
    assert pricing.seconds(chains, 1000.0, 0.008) == pytest.approx(5.1)
    assert pricing.seconds(chains, 100.0, None) == pytest.approx(0.5)
    assert pricing.cost(300, 40, 10.0) == 3040


def test_latest():
    assert pricing.latest(((2, 5),), ((1, 5),)) == ((2, 5),)
    assert pricing.latest(((2, 5),), ((1, 9),)) == ((2, 5), (1, 9))
    # (3, 2) lies on the line from (4, 0) to (2, 4), (3, 1) below it, (3, 3) above it
    assert pricing.latest(((4, 0), (2, 4)), ((3, 2),)) == ((4, 0), (2, 4))
    assert pricing.latest(((4, 0), (2, 4)), ((3, 1),)) == ((4, 0), (2, 4))
    assert pricing.latest(((4, 0), (2, 4)), ((3, 3),)) == ((4, 0), (3, 3), (2, 4))


def arrays(rows):
    """A ledger or trace of `rows`, one dictionary each, as Run.arrays gives them."""
    numbers, texts = {}, {}
    for key in rows[0]:
        values = [row[key] for row in rows]
        if any(isinstance(value, str) for value in values):
            names = list(dict.fromkeys(value for value in values if value is not None))
            texts[key] = Coded(names, np.array([-1 if value is None else names.index(value) for value in values]))
        else:
            numbers[key] = np.array(values)
    return Arrays(numbers, texts, len(rows))


def recorded(events, links):
    """Ledger and trace of `events`: (party, kind, peer, bytes | round) in an order in which they can happen."""
    rows, trace, counts = [], [], {}
    for party, kind, peer, value in events:
        seq = 0
        if kind != "mark":
            pair = (party, peer) if kind == "send" else (peer, party)
            seq = counts.get((kind, *pair), 0)
            counts[kind, *pair] = seq + 1
        if kind == "send":
            rows.append(
                {
                    "round": 1,
                    "src": party,
                    "dst": peer,
                    "link": links(party, peer),
                    "tag": "x",
                    "bytes": value,
                    "seq": seq,
                }
            )
        trace.append(
            {"party": party, "kind": kind, "peer": peer, "seq": seq, "value": value if kind == "mark" else 0.0}
        )
    order = list(dict.fromkeys(["server", *(event[0] for event in events)]))
    trace.sort(key=lambda row: order.index(row["party"]))  # a run's trace has one party after the other
    return arrays(rows), arrays(trace)


def test_an_exchange():
    """Two clients send 100 bytes each, the server answers with 30 each: 2 L + 260 bytes; by latencies=1, L + 260
    bytes."""
    up = [event for k in "ab" for event in ((k, "send", "server", 100), ("server", "recv", k, 0))]
    down = [event for k in "ab" for event in (("server", "send", k, 30), (k, "recv", "server", 0))]
    marks = [(party, "mark", None, 1) for party in ("server", "a", "b")]
    ledger, trace = recorded([*up, *down, *marks], lambda a, b: CLIENT_SERVER)
    assert pricing.chains(ledger, trace, 2) == {1: ((2, 260),)}
    assert pricing.chains(ledger, trace, 1) == {1: ((1, 260),)}


def test_messages_among_clients():
    """a sends 10 bytes to b, b 10 to c: 2 L + 20 bytes; meanwhile a sends 500 to c: L + 500 bytes. Either may be the
    later one."""
    hops = [("a", "send", "b", 10), ("b", "recv", "a", 0), ("b", "send", "c", 10), ("c", "recv", "b", 0)]
    long = [("a", "send", "c", 500), ("c", "recv", "a", 0)]
    marks = [(party, "mark", None, 1) for party in "abc"]
    ledger, trace = recorded([*hops, *long, *marks], lambda a, b: CLIENT_CLIENT)
    assert pricing.chains(ledger, trace, 2) == {1: ((2, 20), (1, 500))}
    # One after the other over the same link: 10 bytes, then 500, one latency. Inside an organisation nothing costs
    # anything.
    one = [("a", "send", "b", 10), ("a", "send", "b", 500), ("b", "recv", "a", 0), ("b", "recv", "a", 0), *marks[:2]]
    assert pricing.chains(*recorded(one, lambda a, b: CLIENT_CLIENT), 2) == {1: ((1, 510),)}
    assert pricing.chains(*recorded(one, lambda a, b: "local"), 2) == {1: ((0, 0),)}


def test_a_round_that_not_all_have_finished_has_no_end():
    events = [("a", "send", "b", 10), ("b", "recv", "a", 0), ("a", "mark", None, 1)]
    ledger, trace = recorded([*events, ("b", "mark", None, 1), ("a", "mark", None, 2)], lambda a, b: CLIENT_CLIENT)
    assert list(pricing.chains(ledger, trace, 2)) == [1]


TABLES = ["dataset=star_schema", "dataset.rows=300", "dataset.dimension_rows=60", "dataset.width=3"]
CONVEX = ["dataset=ridge", "dataset.samples=40", "dataset.features=24", "algorithm.parties=4"]
ROWS = ["dataset=digits", "model.widths=[16]"]
SPLIT = [*TABLES, "model.width=8", "model.depth=3", "algorithm.batch_size=64"]
GRAPH = ["dataset=digits_graph", "model.hidden=24"]
PRICED = {  # with and without a server, one at a time and all at once
    **dict.fromkeys(("glasu", "glasu_exact"), GRAPH),
    **dict.fromkeys(("rfl_admm_v", "gd_join"), TABLES),
    **dict.fromkeys(("mtcd", "dcpa", "extra"), CONVEX),
    **dict.fromkeys(("leasgd", "easgd"), ROWS),
    **{"vfl": SPLIT, "vfl_ps": [*SPLIT, "algorithm.workers=2"]},
}


@pytest.mark.parametrize(("algorithm", "data"), represented(PRICED.items(), {"mtcd"}))
def test_prices_are_what_the_engine_takes(
    algorithm: str, data: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a run under timing=causal, with computing: the times of another run under timing=round, at that run's
    latency and bandwidth."""
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)
    small = [
        f"algorithm={algorithm}",
        *data,
        *(["rounds=2"] if data[:4] == TABLES else ["rounds=4", "eval_every=2"]),
        "engine.threads=1",
        "plot=none",
    ]
    run = vflbench.run([*small, "network=us_us", f"hydra.run.dir={tmp_path / 'causal'}"])
    other = vflbench.run([*small, "network=us_uk", "network.timing=round", f"hydra.run.dir={tmp_path / 'round'}"])
    priced = pricing.price(run, run.arrays("ledger"), time_dependent=False)
    ours = [pricing.seconds(chains, 136.0, 0.42) for chains in priced.chains]
    assert ours == pytest.approx(other.curve["communication_seconds"].tolist(), rel=1e-12)
    assert ours[-1] > 0
    assert [pricing.cost(*sums, 1.0) for sums in priced.bytes_by_link] == other.curve["bytes"].tolist()
    assert [
        pricing.cost(*sums, run.manifest["config"]["network"]["ratio"]) for sums in priced.bytes_by_link
    ] == run.curve["cost"].tolist()


def test_what_cannot_be_priced_says_why(convex, monkeypatch):
    assert "depends on time" in pricing.price(convex, convex.arrays("ledger"), True).why
    assert "is not known" in pricing.price(convex, convex.arrays("ledger"), None).why
    assert (
        pricing.price(convex, convex.arrays("ledger"), True).bytes_by_link
        == pricing.price(convex, convex.arrays("ledger"), False).bytes_by_link
    )
    monkeypatch.setattr(pricing, "MOST_MESSAGES", 10)
    assert "messages" in pricing.price(convex, convex.arrays("ledger"), False).why
    monkeypatch.undo()
    convex.summary["accounting"] = "tablepuppet"
    assert "accounting=tablepuppet" in pricing.price(convex, convex.arrays("ledger"), False).why
    convex.summary["accounting"] = "strict"
    (convex.folder / "trace.parquet").unlink()
    assert "trace.parquet is missing" in pricing.price(convex, convex.arrays("ledger"), False).why


@pytest.fixture
def convex(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.plots.curves.draw_run", lambda folder, summary: None)
    return vflbench.run(
        ["algorithm=svfl", *CONVEX, "rounds=2", "engine.threads=1", "plot=none", f"hydra.run.dir={tmp_path / 'run'}"]
    )


def test_traffic():
    rows = [("a", "b", "x", 5), ("a", "b", "x", 7), ("b", "a", "y", 1), ("server", "a", "x", 2)]
    ledger = arrays([{"src": s, "dst": d, "tag": t, "bytes": n, "link": CLIENT_CLIENT} for s, d, t, n in rows])
    found = pricing.traffic(ledger)
    assert found.parties == ["server", "a", "b"] and not found.families
    assert set(found.rows) == {
        ("x", "a", "b", CLIENT_CLIENT, 2, 12),
        ("y", "b", "a", CLIENT_CLIENT, 1, 1),
        ("x", "server", "a", CLIENT_CLIENT, 1, 2),
    }


def test_many_parties_are_shown_by_family():
    ledger = arrays(
        [{"src": "server", "dst": f"client_{k}", "tag": "x", "bytes": 10, "link": CLIENT_SERVER} for k in range(20)]
    )
    found = pricing.traffic(ledger)
    assert found.families and found.parties == ["server", "client_*"]
    assert found.rows == [("x", "server", "client_*", CLIENT_SERVER, 20, 200)]
