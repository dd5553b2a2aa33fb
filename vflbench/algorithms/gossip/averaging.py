"""What methods share whose workers average with all neighbours, by the weights of a mixing matrix W."""

from functools import partial

from vflbench.algorithms.gossip import worker_sgd
from vflbench.cards.algorithms.gossip.gossip_methods import AveragingKeys
from vflbench.data.tasks import ShardedTask
from vflbench.federation import topology
from vflbench.federation.party import PartySpec, Program, party_names
from vflbench.types import ConfigError, Problem, RunConfig


def averaging(program: Program, task: ShardedTask, config: RunConfig[AveragingKeys]) -> dict[str, PartySpec]:
    """One worker per shard; its program is told `weights`, its row of W by name: its own weight and its neighbours'.

    Raises
    ------
    ConfigError : as `shared.check_data`; or the topology falls into pieces, whose models would never meet.
    """
    worker_sgd.check_data(config, task.public)
    names = party_names("worker", len(task.shards))
    graph = topology.build(config.topology, [], names, config.seed)
    if len(graph.components) > 1:
        first = ", ".join(graph.components[0][:5])
        pieces = f"falls into {len(graph.components)} pieces with {len(names)} workers, the first {first}"
        allowed = f"{pieces}: averages need a path between any two workers"
        raise ConfigError([Problem("topology", config.topology.name, allowed)])
    matrix = graph.mixing(config.algorithm.weights)
    specs = {}
    for m, (name, shard) in enumerate(zip(names, task.shards, strict=True)):
        row = {other: float(matrix[m, j]) for j, other in enumerate(names) if j == m or graph.connected(name, other)}
        specs[name] = PartySpec(partial(program, weights=row), shard, role="worker")
    return specs
