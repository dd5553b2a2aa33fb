"""Codecs by hand: what is sent, what arrives, how far that is off, and what a run with one charges, remembers and
repeats."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from tests.federation.toys import TOYS, Outcome, difference, network, rows_of, run_toy
from tests.options import codec_config
from vflbench.federation import replay
from vflbench.federation.codec import Encoder
from vflbench.federation.party import Party, PartySpec
from vflbench.federation.simulated import SimulatedEngine
from vflbench.types import FederationError, module_of

INF, NAN = float("inf"), float("nan")
CODECS = [
    codec_config("fp16"),
    codec_config("int8"),
    codec_config("topk", fraction=0.3),
    codec_config("topk", fraction=0.3, feedback=True),
]
RNG = np.random.default_rng


class Draws:
    """In place of a generator: the draws that a test gives."""

    def __init__(self, *draws: float) -> None:
        self.draws = draws

    def random(self, size: int) -> np.ndarray:
        assert size == len(self.draws)
        return np.array(self.draws)


def encode(codec: Any, values: Any, rng: Any) -> tuple[torch.Tensor, ...]:
    sent: tuple[torch.Tensor, ...] = module_of(codec).encode(values, rng, codec)
    return sent


def through(codec: Any, values: Any, rng: Any = None) -> torch.Tensor:
    x = torch.as_tensor(values)
    arrived: torch.Tensor = module_of(codec).decode(encode(codec, x, rng or RNG(0)), len(x), x.dtype, codec)
    assert arrived.dtype == x.dtype and arrived.shape == x.shape
    return arrived


def samples(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Arrays of many sizes and magnitudes."""
    rng = RNG(7)
    return [
        torch.from_numpy(rng.standard_t(2, size=n) * 10.0 ** rng.integers(-6, 4)).to(dtype)
        for n in (1, 2, 7, 100, 1000)
        for _ in range(4)
    ]


# --- fp16 -------------------------------------------------------------------------------------------------------------


def test_fp16_by_hand(caplog: pytest.LogCaptureFixture) -> None:
    """11 bits: 2049 lies between 2048 and 2050, and goes to the even one; 1/3 is 1365 / 4096."""
    arrived = through(codec_config("fp16"), [1.0, -0.5, 2049.0, 1 / 3, 2.0**-24, 65504.0, 0.0])
    assert arrived.tolist() == [1.0, -0.5, 2048.0, 1365 / 4096, 2.0**-24, 65504.0, 0.0]
    assert not caplog.records
    codec = codec_config("fp16")
    for _ in range(2):
        assert through(codec, [1e5, -3e38, 65520.0, INF, -INF]).tolist() == [65504.0, -65504.0, 65504.0, INF, -INF]
    assert len(caplog.records) == 1 and "3e+38 is sent as 65504" in caplog.text  # once
    assert through(codec_config("fp16"), [NAN]).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fp16_is_off_by_half_a_unit_of_its_last_place(dtype: torch.dtype) -> None:
    for x in samples(dtype):
        x = x.clamp(-65504, 65504)
        assert ((through(codec_config("fp16"), x) - x).abs() <= x.abs() * 2.0**-11 + 2.0**-25).all()


# --- int8 -------------------------------------------------------------------------------------------------------------


def test_int8_by_hand() -> None:
    """The scale is 127 / 127 = 1, then 254 / 127 = 2: a code is floor(x / scale + draw)."""
    codec = codec_config("int8")
    codes, scale = encode(codec, torch.tensor([127.0, 0.5, -0.25, 0.0, -3.0]), Draws(0.99, 0.4, 0.2, 0.99, 0.99))
    assert codes.dtype == torch.int8 and scale.dtype == torch.float32 and scale.tolist() == [1.0]
    assert codes.tolist() == [127, 0, -1, 0, -3]
    codes, scale = encode(
        codec, torch.tensor([-254.0, 1.0, -0.5, 3.0], dtype=torch.float64), Draws(0.0, 0.5, 0.25, 0.4)
    )
    assert (codes.tolist(), scale.tolist()) == ([-127, 1, 0, 1], [2.0])
    assert module_of(codec).decode((codes, scale), 4, torch.float64, codec).tolist() == [-254.0, 2.0, 0.0, 2.0]


def test_int8_of_what_has_no_scale() -> None:
    assert through(codec_config("int8"), [0.0, 0.0, -0.0]).tolist() == [0.0, 0.0, 0.0]
    for lost in ([1.0, INF], [NAN, 0.0], [-INF]):
        assert through(codec_config("int8"), lost).isnan().all()  # a run that diverges must be seen to
    assert through(codec_config("int8"), torch.tensor([1e300, 1.0], dtype=torch.float64)).isnan().all()
    small = through(codec_config("int8"), [1e-45, 0.0])
    assert small[1] == 0 and 0 <= small[0] <= 3e-45


def test_int8_is_right_in_the_mean_over_all_draws() -> None:
    """Of x / scale = 0.25 one draw in four rounds up; the mean over evenly spaced draws is x itself."""
    x = torch.tensor([127.0, 0.25, -0.75, 41.5])
    grid = [through(codec_config("int8"), x, Draws(*[(i + 0.5) / 4] * 4)) for i in range(4)]
    assert torch.stack(grid).double().mean(0).tolist() == x.tolist()
    assert [y[1].item() for y in grid] == [0.0, 0.0, 0.0, 1.0]


def test_int8_is_right_in_the_mean_of_its_stream() -> None:
    """The largest of 200 means lies within 4.5 standard errors: 1 in 700 by chance; the seed is fixed."""
    rng, x = RNG(3), torch.from_numpy(RNG(5).normal(size=200))
    draws = torch.stack([through(codec_config("int8"), x, rng) for _ in range(4000)])
    scale = x.abs().max() / 127
    part = (x / scale).frac().abs()
    error = (part * (1 - part)).sqrt() * scale / 4000**0.5
    assert ((draws.mean(0) - x).abs() <= 4.5 * error + 1e-7 * scale * 127).all()
    assert (draws.std(0) > 0).sum() >= 195  # all but the largest and what happens to be a multiple


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_int8_is_off_by_less_than_a_scale(dtype: torch.dtype) -> None:
    for x in samples(dtype):
        scale = x.double().abs().max() / 127
        assert ((through(codec_config("int8"), x).double() - x.double()).abs() <= scale * (1 + 1e-5)).all()


# --- topk -------------------------------------------------------------------------------------------------------------


def test_topk_by_hand() -> None:
    x = torch.tensor([1.0, -3.0, 2.0, 3.0, 0.5])
    values, places = encode(codec_config("topk", fraction=0.4), x, RNG(0))
    assert (values.tolist(), places.tolist()) == ([-3.0, 3.0], [1, 3])
    assert (values.dtype, places.dtype) == (torch.float32, torch.int32)
    assert through(codec_config("topk", fraction=0.2), x).tolist() == [0.0, -3.0, 0.0, 0.0, 0.0]  # of equals the first
    assert through(codec_config("topk", fraction=0.01), x).tolist() == [0.0, -3.0, 0.0, 0.0, 0.0]  # at least one
    assert through(codec_config("topk", fraction=0.5), x).tolist() == [0.0, -3.0, 0.0, 3.0, 0.0]  # 2.5 rounded to even
    assert through(codec_config("topk", fraction=0.2), [1.0, NAN, 5.0, INF, 2.0]).isnan().tolist() == [
        False,
        True,
        False,
        False,
        False,
    ]
    wide = torch.tensor([0.1, 7.0, 7.0], dtype=torch.float64)
    values, _ = encode(codec_config("topk", fraction=0.3), wide, RNG(0))
    assert values.dtype == torch.float32


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5, 0.9])
def test_topk_is_off_by_its_bound(fraction: float) -> None:
    for x in samples():
        kept = max(1, round(fraction * len(x)))
        y = through(codec_config("topk", fraction=fraction), x)
        assert (y != 0).sum() == kept
        assert (y - x).norm() <= (1 - kept / len(x)) ** 0.5 * x.norm() * (1 + 1e-6)


def encoder(config: Any, *remembered: str, rng: Any = None) -> Encoder:
    return Encoder(config, rng or RNG(0), remembered)


def test_what_topk_left_out_crosses_later() -> None:
    """One of three entries a message: the largest of what the receiver does not know yet."""
    one = encoder(codec_config("topk", fraction=0.3, feedback=True), "model")
    x = np.array([4.0, 2.0, 1.0], np.float32)
    assert [one.encode(x, "a", "model").value.tolist() for _ in range(4)] == [
        [4, 0, 0],
        [4, 2, 0],
        [4, 2, 1],
        [4, 2, 1],
    ]
    assert one.encode(x + np.float32([0, 0, 5]), "a", "model").value.tolist() == [4, 2, 6]
    assert one.encode(x, "b", "model").value.tolist() == [4, 0, 0]  # another receiver knows nothing
    # nor is another place in the payload this one
    assert one.encode((1, x), "a", "model").value[1].tolist() == [4, 0, 0]
    assert one.encode(np.float32([9, 8, 7, 6]), "a", "model").value.tolist() == [9, 0, 0, 0]  # nor another shape
    assert [one.encode(x, "a", "embedding").value.tolist() for _ in range(2)] == [[4, 0, 0]] * 2  # not remembered


def test_what_topk_left_out_of_a_row_crosses_with_that_row() -> None:
    """Two of four numbers a message, of two rows; rows that are in no message keep what has arrived of them."""
    one = encoder(codec_config("topk", fraction=0.5, feedback=True), "h")
    table = torch.tensor([[4.0, 1], [3, 2], [0, 0], [8, 7]], dtype=torch.float64)  # an entry has 12 of 16 bytes

    def arrives(*rows: int, tag: str = "h") -> list[list[float]]:
        one.rows = torch.tensor(rows)
        found: list[list[float]] = one.encode(table[one.rows], "a", tag).value.tolist()
        return found

    assert arrives(0, 1) == [[4, 0], [3, 0]]
    assert arrives(3, 1) == [[8, 7], [3, 0]]  # of row 1 the 2 is less than 8 and 7
    assert arrives(1, 0) == [[3, 2], [4, 1]]
    table += 1
    assert arrives(1, 2) == [[4, 3], [0, 0]]  # all differ by 1; topk takes the first
    assert one.encode(table[:3], "a", "h").value.shape == (3, 2)  # not as long as the rows: remembered as ever
    assert arrives(1, 0, tag="embedding") == [[4, 0], [5, 0]]  # not remembered


def test_only_the_first_array_of_a_message_is_about_the_rows() -> None:
    """A fusion model may have as many numbers as the batch has rows."""
    one = encoder(codec_config("topk", fraction=0.5, feedback=True), "token")
    arrived = []
    for rows in ([0, 1], [2, 3]):
        one.rows = torch.tensor(rows)
        message = (torch.zeros(2, 2, dtype=torch.float64), torch.tensor([5.0, 3], dtype=torch.float64))
        arrived.append(one.encode(message, "a", "token").value[1].tolist())
    assert arrived == [[5, 0], [5, 3]]


def test_all_rows_are_remembered_as_the_same_entries() -> None:
    config, rng = codec_config("topk", fraction=0.2, feedback=True), RNG(2)
    always, by_row = encoder(config, "m"), encoder(config, "m")
    by_row.rows = torch.arange(10)
    for _ in range(5):
        x = torch.from_numpy(rng.normal(size=(10, 3)))
        assert torch.equal(always.encode(x, "a", "m").value, by_row.encode(x, "a", "m").value)


def test_the_memory_contracts() -> None:
    """EF21: |x - g'|^2 <= (1 - k/n) |x - g|^2."""
    rng, one, g = (
        RNG(1),
        encoder(codec_config("topk", fraction=0.1, feedback=True), "m"),
        torch.zeros(50, dtype=torch.float64),
    )
    for _ in range(30):
        x = torch.from_numpy(rng.normal(size=50))
        new = one.encode(x, "a", "m").value
        assert (x - new).square().sum() <= (1 - 5 / 50) * (x - g).square().sum() * (1 + 1e-6)
        g = new


# --- payloads ---------------------------------------------------------------------------------------------------------


def test_only_floating_arrays_of_a_payload_are_encoded() -> None:
    ids, x = np.arange(6), torch.linspace(-1, 1, 24).reshape(4, 6).requires_grad_()
    payload = {"ids": ids, "x": x, "head": (3, 0.1, "text", True, None), "more": [x.double(), x[0, 0]]}
    sent = encoder(codec_config("fp16")).encode(payload)
    assert sent.nbytes == 6 * 8 + 24 * 2 + (8 + 8 + 8 + 4 + 1 + 1) + (8 + 24 * 2 + 2)
    assert sent.vectors == 4
    assert sent.value["head"] == payload["head"] and isinstance(sent.value["more"], list)
    assert np.array_equal(sent.value["ids"], ids) and sent.value["ids"] is not ids
    assert torch.equal(sent.value["x"], x.detach().half().float()) and not sent.value["x"].requires_grad
    assert sent.value["more"][0].dtype == torch.float64
    with pytest.raises(FederationError, match="text as keys"):
        encoder(codec_config("fp16")).encode({1: x})
    with pytest.raises(FederationError, match="must be dense"):
        encoder(codec_config("fp16")).encode(x.detach().to_sparse())


@pytest.mark.parametrize(
    ("config", "float32", "float64"),
    [
        (codec_config("fp16"), 2 * 1000, 2 * 1000),
        (codec_config("int8"), 1000 + 4, 1000 + 4),
        (codec_config("topk", fraction=0.1), 100 * 8, 100 * 8),
        (codec_config("topk", fraction=0.6), 4 * 1000, 600 * 8),  # 4800 bytes would be more than the 4000 that it has
        (codec_config("topk", fraction=1.0), 4 * 1000, 8 * 1000),
    ],
    ids=str,
)
def test_bytes_of_a_thousand_numbers(config: Any, float32: int, float64: int) -> None:
    x = RNG(0).normal(size=(100, 10))
    for array, expected in ((x.astype(np.float32), float32), (x, float64), (torch.from_numpy(x), float64)):
        sent = encoder(config).encode(array)
        assert sent.nbytes == expected and sent.vectors == 1
        assert type(sent.value) is type(array) and sent.value.dtype == array.dtype and sent.value.shape == array.shape
        untouched = expected == array.nbytes
        assert np.array_equal(np.asarray(sent.value), np.asarray(array)) == untouched


def test_arrays_that_would_not_get_smaller_cross_as_they_are() -> None:
    for config in CODECS:
        for x in (
            np.zeros((0, 3), np.float32),
            torch.arange(5),
            np.array(["a"]),
            torch.ones(3, dtype=torch.float16)[:0],
        ):
            sent = encoder(config, "m").encode(x, "a", "m")
            assert sent.nbytes == x.nbytes and len(sent.value) == len(x)
    assert encoder(codec_config("int8")).encode(np.float32([0.3])).value.tolist() == [np.float32(0.3)]  # 4 bytes, not 5
    assert encoder(codec_config("fp16")).encode(torch.tensor([0.3], dtype=torch.bfloat16)).value.dtype == torch.bfloat16
    swapped = encoder(codec_config("fp16")).encode(np.array([1.5, -2.0], ">f4"))
    assert swapped.value.tolist() == [1.5, -2.0] and swapped.nbytes == 4


@pytest.mark.parametrize(
    "array", [np.zeros(3, complex), torch.zeros(3, dtype=torch.complex64), np.zeros(3, np.longdouble)]
)
def test_complex_and_wider_numbers_are_refused(array: Any) -> None:
    with pytest.raises(FederationError, match="cannot be compressed"):
        encoder(codec_config("int8")).encode(array)


# --- in the engine ----------------------------------------------------------------------------------------------------


X = np.random.default_rng(0).normal(size=40).astype(np.float32)


def star(codec: Any, seen: dict[str, Any], **options: Any) -> SimulatedEngine:
    """Two clients, one of which is at the server's; everything that can be sent, with what arrived of it in `seen`."""

    async def server(me: Party, data: Any, public: Any, config: Any) -> None:
        seen["before"] = await me.recv("far", "labels")
        async for _ in me.rounds():
            seen["near"] = await me.recv("near", "x")
            seen["far"] = await me.recv("far", "x")
            seen["ids"] = await me.recv("far", "ids")
            await me.send_many(me.clients, X, "down")
            async with me.evaluating():
                seen["evaluation"] = await me.recv("far", "x")

    async def client(me: Party, data: Any, public: Any, config: Any) -> None:
        if me.name != "near":
            await me.send("server", X, "labels")
        async for t in me.rounds():
            own = X.copy()
            await me.send("server", own, "x")
            if me.name == "far":
                await me.send("server", np.arange(9), "ids")
            seen[f"down {me.name}"] = await me.recv("server", "down")
            assert np.array_equal(own, X)
            if me.name == "far":
                async with me.evaluating():
                    await me.send("server", X, "x")
            elif me.name == "other":
                seen["other"] = await me.recv("far", "y") if t > 1 else None
            if me.name == "far":
                await me.send_many(["other"], X, "y")

    async def other(me: Party, data: Any, public: Any, config: Any) -> None:
        async for _ in me.rounds():
            seen["down other"] = await me.recv("server", "down")

    specs = {
        "server": PartySpec(server, role="server", organisation="hospital"),
        "near": PartySpec(client, organisation="hospital"),
        "far": PartySpec(client),
        "other": PartySpec(other),
    }
    engine = SimulatedEngine(specs, network=network(0.01, 1e4), rounds=2, codec=codec, **options)
    engine.run()
    return engine


@pytest.mark.parametrize(
    ("config", "nbytes"),
    [
        (None, 160),
        (codec_config("none"), 160),
        (codec_config("fp16"), 80),
        (codec_config("int8"), 44),
        (codec_config("topk", fraction=0.3), 96),
    ],
)
def test_the_ledger_charges_what_is_sent_and_the_receiver_sees_what_arrives(config: Any, nbytes: int) -> None:
    seen: dict[str, Any] = {}
    rows = rows_of(star(config, seen))
    charged = {(row["src"], row["dst"], row["tag"]): row["bytes"] for row in rows}
    assert charged == {
        ("far", "server", "labels"): 160,  # before the first round
        ("near", "server", "x"): 160,  # inside the organisation
        ("far", "server", "x"): nbytes,
        ("far", "server", "ids"): 72,
        ("far", "other", "y"): nbytes,
        ("server", "near", "down"): 160,
        ("server", "far", "down"): nbytes,
        ("server", "other", "down"): nbytes,
    }
    assert all(row["vectors"] == 1 for row in rows)
    times = [row["delivered"] - row["sent"] for row in rows if row["tag"] == "y"]
    assert times == pytest.approx([0.01 + nbytes / 1e4] * 2)  # 1e4 bytes a second
    for exact in ("before", "near", "evaluation", "down near"):
        assert np.array_equal(seen[exact], X), exact
    assert np.array_equal(seen["ids"], np.arange(9))
    assert np.array_equal(seen["far"], X) == (nbytes == 160)
    assert np.array_equal(seen["down far"], X) == (nbytes == 160)
    assert np.array_equal(seen["down far"], seen["down other"])  # one broadcast is rounded once
    assert seen["down far"] is not seen["down other"] and not np.shares_memory(seen["down far"], seen["down other"])
    if config is not None and config.name == "topk":
        kept = np.sort(np.argsort(-np.abs(X), kind="stable")[:12])
        assert np.array_equal(np.flatnonzero(seen["far"]), kept) and np.array_equal(seen["far"][kept], X[kept])


def test_draws_are_the_senders_own_and_differ_from_message_to_message_and_seed_to_seed() -> None:
    seen: list[dict[str, Any]] = [{}, {}, {}]
    for found, seed in zip(seen, (0, 0, 1), strict=True):
        star(codec_config("int8"), found, seed=seed)
    assert np.array_equal(seen[0]["far"], seen[1]["far"])
    assert not np.array_equal(seen[0]["far"], seen[2]["far"])
    assert not np.array_equal(seen[0]["far"], seen[0]["down far"])


def test_numbers_that_a_codec_can_hold_arrive_as_without_it() -> None:
    """The star's means of multiples of 1/8 with fp16, and of anything with topk of everything."""

    async def server(me: Party, data: Any, public: Any, config: Any) -> None:
        async for t in me.rounds():
            await me.send_many(me.clients, torch.arange(64.0) / 8 - t, "down")
            me.report(train_loss=float(sum(await me.recv_all(me.clients, "up")).sum()))  # type: ignore[arg-type]

    async def client(me: Party, data: Any, public: Any, config: Any) -> None:
        async for _ in me.rounds():
            await me.send("server", await me.recv("server", "down") * me.index, "up")

    def losses(config: Any, **options: Any) -> list[float]:
        found: list[float] = []
        specs = {"server": PartySpec(server, role="server"), "a": PartySpec(client), "b": PartySpec(client)}
        on_report = lambda name, round, values: found.append(values["train_loss"])  # noqa: E731
        SimulatedEngine(specs, rounds=3, codec=config, on_report=on_report, **options).run()
        return found

    assert losses(codec_config("fp16")) == losses(codec_config("topk", fraction=1.0)) == losses(codec_config("none"))
    assert losses(codec_config("topk", fraction=1.0, feedback=True), remembered=("up", "down")) == losses(
        codec_config("none")
    )
    assert losses(codec_config("int8")) != losses(codec_config("none")) != losses(codec_config("topk", fraction=0.3))


# --- a run that was stopped and goes on -------------------------------------------------------------------------------

REMEMBERED = ("up", "down", "late", "value", "gradient", "model")
_WHOLE: dict[tuple[str, str], Outcome] = {}


def stopped(toy: str, config: Any, *kills: int, **options: Any) -> Outcome:
    return run_toy(TOYS[toy], kills=kills, codec=config, remembered=REMEMBERED, **options)


def whole(toy: str, config: Any) -> Outcome:
    if (toy, str(config)) not in _WHOLE:
        _WHOLE[toy, str(config)] = stopped(toy, config)
    return _WHOLE[toy, str(config)]


@pytest.mark.parametrize("config", CODECS[1::2], ids=str)  # those that have something to go on from
@pytest.mark.parametrize(
    "toy", ["ring", "async", *(pytest.param(name, marks=pytest.mark.slow) for name in ("star", "round_star"))]
)
def test_random_kills(toy: str, config: Any) -> None:
    rng = random.Random(toy)
    assert difference(whole(toy, config), run_toy(TOYS[toy])) is not None  # the codec does something
    for shuffle in range(2):
        kills = sorted(rng.randrange(2, whole(toy, config).steps // 2) for _ in range(2))
        assert difference(whole(toy, config), stopped(toy, config, *kills, shuffle=shuffle)) is None


@pytest.mark.parametrize(("key", "config"), [("codec", CODECS[3]), ("generators", CODECS[1])])
def test_a_cut_needs_what_codecs_remember_and_their_stream(key: str, config: Any) -> None:
    def harm(cut: Any) -> None:
        for party in cut.parties.values():
            party[key] = {}

    steps = whole("ring", config).steps
    harmed = [stopped("ring", config, kill, harm=harm) for kill in range(steps // 3, steps, steps // 4)]
    assert any(difference(whole("ring", config), outcome) is not None for outcome in harmed)


@pytest.mark.parametrize("config", CODECS[1::2], ids=str)
def test_a_run_with_a_codec_is_re_timed_exactly(config: Any) -> None:
    toy = TOYS["star"]

    def drive(rate: float) -> tuple[SimulatedEngine, dict[int, float]]:
        ends: dict[int, float] = {}

        def on_round(round: int, engine: SimulatedEngine) -> bool:
            ends[round] = engine.boundary_clock
            return False

        options = {**toy.options, "network": network(0.02, rate)}
        engine = SimulatedEngine(
            toy.specs(), rounds=8, codec=config, remembered=REMEMBERED, on_round=on_round, **options
        )
        engine.run()
        return engine, ends

    (slow, slow_ends), (_, fast_ends) = drive(1e3), drive(1e5)
    ledger, traces = slow.ledger.take(), slow.take_trace()
    assert slow_ends != fast_ends
    assert replay.Program(ledger, traces, toy.specs()).retime(network(0.02, 1e5)).ends == fast_ends
