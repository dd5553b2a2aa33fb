import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, stack_module_state, vmap

from vflbench.cards.data.shapes import modelnet as modelnet_card
from vflbench.cards.models import mvcnn as mvcnn_card
from vflbench.cards.models import resnet as resnet_card
from vflbench.cards.models import resnet_bn as resnet_bn_card
from vflbench.config import convert
from vflbench.models import image, resnet
from vflbench.models.vertical import Aggregation, fusion


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def parameters(network: torch.nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


CONFIGS = [
    mvcnn_card.Config(),
    mvcnn_card.Config(norm="none", channels=[4, 6]),
    resnet_card.Config(width=8),
    resnet_card.Config(width=8, stem="large", norm="none", embedding=5),
]
IDS = ["mvcnn", "mvcnn-plain", "resnet", "resnet-large"]


@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
@pytest.mark.parametrize(("channels", "size"), [(1, 32), (3, (16, 32))])
def test_shapes_types_and_finite_gradients(config, channels, size):
    network = image.make_client(config, channels, generator())
    shape = (4, channels, *((size, size) if isinstance(size, int) else size))
    out = network(torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator()))
    assert out.shape == (4, config.embedding) and out.dtype == torch.float32
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.abs().sum() > 0 for p in network.parameters())


@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_the_generator_alone_decides(config):
    before = torch.get_rng_state()
    one, same, other = (image.make_client(config, 1, generator(seed)) for seed in (1, 1, 2))
    fusions = [fusion(config, Aggregation("sum", 12), 10, generator(1)) for _ in range(2)]
    assert torch.equal(before, torch.get_rng_state())
    for a, b in ((one, same), fusions):
        assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(next(one.parameters()), next(other.parameters()))
    assert not list(one.buffers()), "nothing is kept beside parameters: no running statistics"


@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_a_sample_does_not_see_the_others_of_its_batch(config):
    config.dtype = "float64"
    network = image.make_client(config, 1, generator())
    x = torch.randint(0, 256, (5, 1, 32, 32), generator=generator())
    together, alone = network(x), torch.cat([network(row[None]) for row in x])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    # training and evaluation are the same function
    torch.testing.assert_close(network.eval()(x), together, rtol=0, atol=0)
    config.dtype = "float32"


def test_batch_normalisation_is_of_the_batch_in_training_and_of_all_batches_in_evaluation():
    """And starts as torch's does, whatever memory held."""
    network = image.make_client(resnet_bn_card.Config(width=8, dtype="float64"), 1, generator())
    layer = next(module for module in network if isinstance(module, torch.nn.BatchNorm2d))
    fresh = torch.nn.BatchNorm2d(8).double()
    assert all(torch.equal(layer.state_dict()[name], value) for name, value in fresh.state_dict().items())
    assert parameters(network) == parameters(image.make_client(resnet_card.Config(width=8), 1, generator()))
    x = torch.randint(0, 256, (5, 1, 16, 16), generator=generator())
    inside = network[1](x.double() / 255)
    together = network(x)
    torch.testing.assert_close(layer.running_mean, 0.1 * inside.mean((0, 2, 3)))  # momentum 0.1, from 0
    assert not torch.allclose(together[:2], network(x[:2]))
    network.eval()
    torch.testing.assert_close(network(x)[:2], network(x[:2]), rtol=1e-12, atol=1e-12)


def test_bytes_and_numbers_of_the_same_size_are_the_same():
    network = image.make_client(mvcnn_card.Config(), 1, generator())
    x = torch.randint(0, 256, (2, 1, 32, 32), dtype=torch.uint8, generator=generator())
    assert torch.equal(network(x), network(x.float()))
    dark = image.Scaled(torch.float32)(torch.tensor([0, 51, 255], dtype=torch.uint8))
    assert dark.tolist() == pytest.approx([0, 0.2, 1])


def test_parameters_by_hand():
    # 3 x 3 filters and biases: 1-16, 16-32, 32-64; a scale and a shift a channel; 64 x 4 x 4 inputs of the linear
    # layer.
    convolutions = (9 + 1) * 16 + (9 * 16 + 1) * 32 + (9 * 32 + 1) * 64
    assert (
        parameters(image.make_client(mvcnn_card.Config(), 1, generator()))
        == convolutions + 2 * (16 + 32 + 64) + (1024 + 1) * 16
    )
    # The ResNet18 of the literature, for 1,000 classes of colour images, has 11,689,512.
    full = resnet_card.Config(width=64, stem="large", embedding=1000)
    assert parameters(image.make_client(full, 3, generator())) == 11_689_512
    # MTCD's, section 7: channels 32, 64, 128, 256, and a stem of 3 x 3.
    reduced = image.make_client(resnet_card.Config(), 3, generator())
    widths = [block.second.out_channels for block in reduced if isinstance(block, resnet.Block)]
    assert widths == [32, 32, 64, 64, 128, 128, 256, 256]
    assert reduced[1].weight.shape == (32, 3, 3, 3) and reduced[1].stride == (1, 1)
    assert not any(isinstance(module, torch.nn.MaxPool2d) for module in reduced)


def test_weights_have_the_spread_that_they_should():
    network = image.make_client(resnet_card.Config(), 3, generator())
    block = next(module for module in network if isinstance(module, resnet.Block))
    assert block.first.weight.std().item() == pytest.approx((2 / (32 * 9)) ** 0.5, rel=0.05)
    last = network[-1]
    assert last.weight.abs().max().item() <= 256**-0.5 and last.weight.std().item() == pytest.approx(
        (3 * 256) ** -0.5, rel=0.05
    )


def test_fusion_by_hand():
    h = [torch.randn(2, 3, generator=generator(k)) for k in range(4)]
    total, concat = (
        fusion(mvcnn_card.Config(embedding=3), Aggregation(how, 4), 5, generator(9)) for how in ("sum", "concat")
    )
    torch.testing.assert_close(total(sum(h)), total.linear(sum(h) / 4))
    weight, bias = concat.linear.weight, concat.linear.bias
    torch.testing.assert_close(concat(torch.cat(h, dim=1)), torch.cat(h, dim=1) @ weight.T + bias)
    assert weight.shape == (5, 12) and total.linear.weight.shape == (5, 3)


@pytest.mark.parametrize("config", CONFIGS[:3], ids=IDS[:3])
def test_clients_in_one_call_equal_the_loop(config):
    clients = [image.make_client(config, 1, generator(k)) for k in range(3)]
    x = torch.randint(0, 256, (3, 2, 1, 32, 32), dtype=torch.uint8, generator=generator())
    y = torch.tensor([1, 0])

    def loss(params, x):
        return F.cross_entropy(functional_call(clients[0], params, (x,)), y)

    stacked, _ = stack_module_state(clients)
    together = vmap(grad(loss))(stacked, x)
    for k, client in enumerate(clients):
        alone = grad(loss)(dict(client.named_parameters()), x[k])
        for name, value in alone.items():
            torch.testing.assert_close(together[name][k], value, rtol=1e-4, atol=1e-6)


def test_wrong_values_are_problems():
    assert not mvcnn_card.check(mvcnn_card.Config()) and not resnet_card.check(resnet_card.Config())
    assert [problem.key for problem in convert(mvcnn_card.Config, {"embedding": 0})[1]] == ["embedding"]
    (wrong,) = mvcnn_card.check(mvcnn_card.Config(channels=[16, 12]))
    assert wrong.key == "model.channels" and "multiples of 8" in str(wrong)
    assert [problem.key for problem in mvcnn_card.check(mvcnn_card.Config(channels=[]))] == ["model.channels"]
    assert [problem.key for problem in resnet_card.check(resnet_card.Config(width=0))] == ["model.width"]
    assert not mvcnn_card.check(mvcnn_card.Config(channels=[3, 5], norm="none"))


def test_an_unknown_layer_is_not_left_unfilled():
    with pytest.raises(TypeError, match="PReLU"):
        image.initialise(torch.nn.Sequential(torch.nn.PReLU()), torch.float32, generator())


@pytest.mark.slow
def test_twelve_small_networks_learn_the_twin():
    from vflbench.data.shapes import modelnet

    task = modelnet.load(modelnet_card.Config(source="synthetic", size=32, validation=0.0), "aligned", 12, 0, None)
    x, new = (
        [torch.from_numpy(block) for block in blocks] for blocks in (task.features, task.held_out_features["test"])
    )
    y, config, rng = torch.from_numpy(task.labels), mvcnn_card.Config(), generator()
    clients = [image.make_client(config, 1, rng) for _ in range(12)]
    top = fusion(config, Aggregation("sum", 12), 10, rng)
    optimizer = torch.optim.SGD([p for network in (*clients, top) for p in network.parameters()], lr=0.1)
    for _ in range(6):
        for at in torch.randperm(len(y), generator=rng).split(20):
            scores = top(sum(network(view[at]) for network, view in zip(clients, x, strict=True)))
            optimizer.zero_grad()
            F.cross_entropy(scores, y[at]).backward()
            optimizer.step()
    with torch.no_grad():
        scores = top(sum(network(view) for network, view in zip(clients, new, strict=True)))
    assert np.mean(scores.argmax(dim=1).numpy() == task.held_out_labels["test"]) > 0.6
