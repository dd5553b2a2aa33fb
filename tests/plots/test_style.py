"""Every algorithm keeps one look."""

from vflbench import registry
from vflbench.plots import style

NAMES = [
    "glasu",
    "glasu_exact",
    "centralized_gnn",
    "standalone_gnn",
    "simulated_centralized",
    "rfl_sgd_v",
    "rfl_admm_v",
    "rfl_sgd",
    "rfl_admm",
    "vfl_sgd",
    "vfl_admm",
    "gd_join",
    "centralized_join",
    "mtcd",
    "stcd",
    "svfl",
    "dcpa",
    "tree_cg",
    "extra",
    "centralized_gd",
    "leasgd",
    "leasgd_async",
    "d_psgd",
    "choco_sgd",
    "powergossip",
    "easgd",
    "local_sgd",
    "fedavg",
    "fedbuff",
    "allreduce_sgd",
    "centralized_sgd",
    "pubsub_vfl",
    "vfl",
    "vfl_ps",
    "avfl",
    "avfl_ps",
    "hetero_lr",
    "secureboost",
    "send_once",
    "gram_once",
    "graph_once",
    "ensemble",
]  # ARCHITECTURE.md, section 6


def test_all_algorithms_have_a_look_of_their_own():
    families = {
        family: [name for name, info in registry.algorithms().items() if info.family == family]
        for family in style.FAMILIES
    }
    assert {name for family in families.values() for name in family} == set(NAMES)
    looks = [style.look(name) for name in NAMES]
    assert len({(look.color, look.marker) for look in looks}) == len({look.label for look in looks}) == len(NAMES)
    for family in families.values():
        assert len({style.look(name).marker for name in family}) == len(family)
        assert len({style.look(name).color for name in family}) == min(len(family), len(style.PALETTE))


def test_lines_of_one_picture_differ_in_colour():
    """Also where two methods of different families have one colour, and where one method has several lines."""
    everyone = style.looks(NAMES[: len(style.PALETTE)])
    assert len({look["color"] for look in everyone}) == len(style.PALETTE)
    several = style.looks(["vfl", "avfl", "vfl", "vfl"])
    assert len({look["color"] for look in several}) == 4 and several[0]["color"] == style.look("vfl").color
    assert len({look["linestyle"] for look in (several[0], *several[2:])}) == 3
    many = style.looks(["glasu"] * (len(style.PALETTE) + 2))
    assert len({(look["color"], look["linestyle"]) for look in many}) == len(many)


def test_strangers():
    assert style.look("mine") == style.look("mine")
    assert style.look("mine").label == "mine"
    assert style.dataset_label("cora") == "Cora"
    assert style.dataset_label("my_graph") == "My graph"
