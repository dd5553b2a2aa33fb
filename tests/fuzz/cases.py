"""What the fuzzer types, and the files and folders that its commands find."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.options import read_yaml
from vflbench import config, registry

# --- what is typed ----------------------------------------------------------------------------------------------------

HOSTILE = (
    *("null", "true", "false", "0", "-1", "1", "2", "1.5", "-0.0", "nan", "inf", "-inf", "1e300", "1e-300", "1e400"),
    *(
        "99999999999999999999999",
        "9223372036854775808",
        "''",
        '""',
        "x",
        "none",
        "auto",
        "all",
        "[]",
        "{}",
        "[1]",
        "[[]]",
        "[null]",
    ),
    *(
        "{a:b}",
        "{a:{b:c}}",
        "[1,2",
        "{a",
        "a,b",
        "1,2",
        "'a,b'",
        "${nope}",
        "${oc.env:NOPE}",
        "${oc.env:HOME}",
        "${now:%Y}",
    ),
    *(
        "${idiv:1,0}",
        "${by:a,b}",
        "${profile:x,y}",
        "$(date)",
        "`date`",
        "a b",
        "'a b'",
        "ä",
        "日本",
        "🙂",
        "\\",
        "'",
        '"',
        "a=b",
        "=",
        "~",
    ),
    *(
        "..",
        "../up",
        ".",
        "/dev/null",
        "mine.csv",
        "a" * 300,
        "../" * 2,
        "%s%n",
        "\t",
        "\udcff",
        "0x10",
        "1_000",
        "1e3",
        "+3",
        "01",
        "--",
    ),
    *(
        "${seed}",
        "range(1,3)",
        "choice(1,2)",
        "glob(*)",
        "sort(2,1)",
        "int(1.5)",
        "str(3)",
        "json_str({a:1})",
        "float('nan')",
        "[1,a]",
        "@x",
    ),
)
NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "7",
    "30",
    "-1",
    "0.0",
    "1e-300",
    "1e-8",
    "0.01",
    "0.5",
    "0.999999",
    "1.0",
    "1e3",
    "1e30",
    "1e300",
)
FLAGS = (
    *(
        "-m",
        "--multirun",
        "--cfg",
        "--cfg=job",
        "--cfg=hydra",
        "--cfg=all",
        "--cfg=x",
        "--info",
        "--info=all",
        "--info=x",
        "--resolve",
    ),
    *(
        "--hydra-help",
        "--package=model",
        "--package=nope",
        "-p",
        "-sc",
        "--shell-completion",
        "--run",
        "-r",
        "-c",
        "--help",
        "--version",
    ),
    *(
        "--config-dir",
        "--config-dir=mine",
        "--config-dir=.",
        "--config-dir=nope",
        "--config-name=x",
        "--config-path=x",
        "--nope",
        "-",
        "--",
    ),
    *(
        "--experimental-rerun=x",
        "-h",
        "query=bash",
        "install=bash",
        "",
        " ",
        "=",
        "=x",
        "x",
        "+",
        "~",
        "~seed",
        "+x=1",
        "++seed=1",
        "@",
    ),
)
HYDRA = (
    *(
        "run.dir",
        "run",
        "sweep.dir",
        "sweep.subdir",
        "mode",
        "verbose",
        "sweeper",
        "sweeper.params",
        "sweeper.params.seed",
        "searchpath",
    ),
    *(
        "sweeper.max_batch_size",
        "sweeper._target_",
        "launcher",
        "launcher._target_",
        "launcher.n_jobs",
        "launcher.timeout_min",
        "nope",
    ),
    *(
        "job_logging",
        "job_logging.version",
        "job_logging.root",
        "job_logging.root.level",
        "job_logging.root.handlers",
        "output_subdir",
    ),
    *(
        "job_logging.handlers.console.class",
        "hydra_logging",
        "hydra_logging.version",
        "hydra_logging.root.level",
        "hydra_help.template",
    ),
    *(
        "callbacks",
        "callbacks.x._target_",
        "job.name",
        "job.num",
        "job.id",
        "job.chdir",
        "job.env_set",
        "job.env_set.A",
        "job.config",
    ),
    *("runtime.output_dir", "runtime.cwd", "runtime.choices", "overrides.task", "help.template", "env", ""),
)
HYDRA_GROUPS = ("launcher", "sweeper", "job_logging", "hydra_logging", "callbacks", "help", "env", "output", "nope")
HYDRA_OPTIONS = (
    "basic",
    "none",
    "disabled",
    "default",
    "stdout",
    "stderr",
    "nope",
    "",
    "null",
    "submitit_slurm",
    "mine",
)
# Runs of a fraction of a second each. The others' data sets are asked for in an empty folder, which ends behind every
# check.
TABLE = ("dataset=tabular_files", "dataset.files=[mine.csv]", "dataset.label=y")
GRAPH = ("dataset=graph_files", "dataset.features=x.csv", "dataset.edges=edges.csv", "dataset.labels=labels.csv")
STAR = ("dataset=star_schema", "dataset.rows=60", "dataset.dimension_rows=20", "dataset.width=2")
SQL = ("--config-dir", "options", "dataset=sql")
LAYOUTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "aligned": (TABLE,),
    "convex": (("dataset=ridge", "dataset.source=synthetic"), ("dataset=breast_cancer",)),
    "sharded": (TABLE, ("dataset=digits",)),
    "graph": (GRAPH, ("dataset=digits_graph",)),
    "relational": (STAR, SQL),
}
CONVEX = ("mtcd", "stcd", "svfl", "dcpa", "centralized_gd")
SHORT = ("rounds=1", "device=cpu")
FITTING = {
    "parties": 2,
    "workers": 3,
    "batch_size": 8,
    "passive_workers": 1,
    "active_workers": 1,
}  # keys of algorithms whose defaults are for more data


def listed_keys() -> dict[str, list[str]]:
    """Every key that a file of ours lists: group -> dotted keys; the root's group is ''."""

    def dotted(values: Any, prefix: str) -> Iterator[str]:
        for key, value in values.items() if isinstance(values, dict) else ():
            if key not in ("defaults", "hydra"):
                yield f"{prefix}{key}"
                yield from dotted(value, f"{prefix}{key}.")

    conf = config.config_dir()
    found = {"": list(dotted(read_yaml(conf / "config.yaml"), ""))}
    for folder in sorted(
        path for path in conf.iterdir() if path.is_dir() and path.name not in ("hydra", "experiment", "figure", "tuned")
    ):
        keys = [key for file in sorted(folder.glob("*.yaml")) for key in dotted(read_yaml(file), "")]
        found[folder.name] = [f"{folder.name}.{key}" for key in dict.fromkeys(keys)]
    return found


def fitting(algorithm: str) -> list[str]:
    listed = read_yaml(config.config_dir() / "algorithm" / f"{algorithm}.yaml")
    return [f"algorithm.{key}={value}" for key, value in FITTING.items() if key in listed]


KEYS = listed_keys()
OPTIONS = {group: sorted(file.stem for file in (config.config_dir() / group).glob("*.yaml")) for group in KEYS if group}
# A large value of these is a long run, not a wrong one.
LONG = (
    "rounds",
    "epochs",
    "local_steps",
    "rows",
    "samples",
    "parties",
    "workers",
    "layers",
    "parts",
    "dimensions",
    "duplication",
)


@dataclass
class Case:
    kind: str
    args: list[str]


class Maker:
    """The case of one seed and number: its command line, and the files that it writes to the current folder.

    `runs` : folders of runs, of which it damages a copy.
    """

    def __init__(self, seed: int, number: int, runs: list[Path]) -> None:
        self.draw, self.runs = random.Random(f"{seed}/{number}"), runs

    def case(self) -> Case:
        kinds: dict[str, tuple[int, Callable[[], list[str]]]] = {
            "option": (4, self.option),
            "value": (10, self.value),
            "pair": (5, self.pair),
            "hydra": (7, self.hydra),
            "flag": (4, self.flag),
            "verb": (5, self.verb),
            "data": (8, self.data),
            "folder": (7, self.folder),
            "combination": (6, self.combination),
        }
        kind = self.draw.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
        write_table(Path("mine.csv"))
        write_graph()
        write_options()
        words = kinds[kind][1]()
        if [word for word in words if word.startswith("dataset=")][-1:] == ["dataset=synthetic"] and "-m" not in words:
            words = [*words, "dataset.samples=200"]  # always made up, of a million rows
        return Case(kind, words)

    def one(self, options: Any) -> Any:
        return self.draw.choice(list(options))

    def base(self, layout: str | None = None) -> list[str]:
        """A command that would run."""
        layout = layout or self.one(LAYOUTS)
        names = [
            name
            for name, info in registry.algorithms().items()
            if layout in info.layouts and name not in ("stcd", "dcpa", "tree_cg", "extra")
        ]
        algorithm = self.one(CONVEX if layout == "convex" else names)
        return [f"algorithm={algorithm}", *self.one(LAYOUTS[layout]), *SHORT, *fitting(algorithm)]

    def dry(self) -> list[str]:
        return ["dry_run=true"] if self.draw.random() < 0.7 else []

    def any_value(self, key: str) -> str:
        huge = key.rpartition(".")[2] in LONG
        return str(self.one(text for text in HOSTILE if not (huge and len(text) > 6 and text.isdigit())))

    def any_key(self) -> str:
        group = self.one(KEYS)
        return str(self.one(KEYS[group]))

    def option(self) -> list[str]:
        group = self.one(OPTIONS)
        return [*self.base(), f"{group}={self.one((*OPTIONS[group], *HOSTILE))}", *self.dry()]

    def value(self) -> list[str]:
        words = self.base()
        if self.draw.random() < 0.3:
            key = self.any_key()  # mostly one that is not there
            return [*words, *self.dry(), f"{key}={self.any_value(key)}"]
        chosen = {word.split("=")[0]: word.split("=")[1] for word in words if word.split("=")[0] in OPTIONS}
        group = self.one(
            ("algorithm", "algorithm", "dataset", "dataset", "", "engine", "network", "compute", "model", "privacy")
        )
        default = {
            "engine": "simulated",
            "network": "us_uk",
            "compute": "modelled",
            "privacy": "gaussian_embedding",
            "model": "mlp",
        }
        file = config.config_dir() / (
            f"{group}/{chosen.get(group, default.get(group))}.yaml" if group else "config.yaml"
        )
        found = {f"{group}.{key}" if group else key: value for key, value in read_yaml(file).items()}
        key = self.one(key for key in found if key not in ("defaults", "hydra"))
        number = isinstance(found[key], int | float) or found[key] is None
        value = self.one(NUMBERS) if number and self.draw.random() < 0.7 else self.any_value(key)
        return [*words, *(self.dry() if self.draw.random() < 0.5 else []), f"{key}={value}"]

    def pair(self) -> list[str]:
        words = self.value()
        key = self.any_key()
        return [*words, f"{self.one(('', '', '+', '++', '~'))}{key}={self.any_value(key)}"]

    def hydra(self) -> list[str]:
        sweep = [
            "-m",
            f"seed={self.one(('1,2', 'range(0,3)', 'range(0,3,0)', 'range(0,1e18)', 'choice(1)', 'interval(0,1)'))}",
        ]
        words = [*(sweep if self.draw.random() < 0.4 else []), *self.base("aligned")]
        if self.draw.random() < 0.25:
            return [*words, f"hydra/{self.one(HYDRA_GROUPS)}={self.one(HYDRA_OPTIONS)}", "seed=-1"]
        mark, key = self.one(("", "", "", "+", "++", "~")), self.one(HYDRA)
        return [*words, f"{mark}hydra{'.' if key else ''}{key}={self.any_value(key)}", *self.dry()]

    def flag(self) -> list[str]:
        words = [str(self.one((*FLAGS, *HOSTILE))) for _ in range(self.draw.randint(1, 3))]
        return [
            *words,
            *(["seed=-1"] if "-m" in words else ["algorithm=vfl", "dataset=ridge", "dry_run=true", "seed=-1"]),
        ]

    def verb(self) -> list[str]:
        keys = (
            "scale",
            "jobs",
            "out",
            "network",
            "network.timing",
            "accounting",
            "overwrite",
            "data_root",
            "features",
            "--out",
        )
        verb = self.one(
            ("list", "data", "data status", "data get", "data profile", "figures", "reprice", "report", "show")
        )
        words = []
        for _ in range(self.draw.randint(0, 3)):
            key = self.one(keys)
            pool = (
                *HOSTILE,
                f"{key}={self.any_value(key)}",
                "nope",
                "glasu/nope",
                "folder",
                "--csv",
                "--config-dir",
                "--nope",
                "us_us",
            )
            words.append(str(self.one(pool)))
        if verb in ("figures", "data profile"):
            words.append("nope=")  # nothing long is started
        return [*verb.split(), *words]

    def combination(self) -> list[str]:
        words = [
            f"algorithm={self.one(OPTIONS['algorithm'])}",
            f"dataset={self.one(OPTIONS['dataset'])}",
            "data_root=empty",
            "rounds=1",
        ]
        if self.draw.random() < 0.6:
            words = [word for word in self.base() if word != "device=cpu"]
        info = registry.algorithms().get(words[0].partition("=")[2])
        fitting = (
            {"privacy": info.privacy, "topology": info.topologies, "model": info.models, "attack": info.attacks}
            if info
            else {}
        )
        for group in ("privacy", "topology", "model", "codec", "attack", "compute", "network"):
            if self.draw.random() < 0.4:
                allowed = fitting.get(group) if self.draw.random() < 0.8 else None
                words.append(f"{group}={self.one(allowed or OPTIONS[group])}")
        if self.draw.random() < 0.15:
            words += ["engine=ray", "dry_run=true"]  # to start Ray takes seconds
        if (
            "privacy=none" not in words
            and self.draw.random() < 0.7
            and any(word.startswith("privacy=") for word in words)
        ):
            words.append(self.one(("privacy.epsilon=8", "privacy.noise_multiplier=1")))
        return [*words, *(self.dry() if "dry_run=true" not in words else [])]

    # --- files --------------------------------------------------------------------------------------------------------

    def data(self) -> list[str]:
        layout = self.one(("aligned", "aligned", "sharded", "graph", "relational"))
        words = [f"algorithm={self.one(('vfl', 'mtcd', 'svfl', 'vfl_ps'))}", *TABLE, *SHORT]
        names = ["mine.csv"]
        if layout == "sharded":
            words[0] = f"algorithm={self.one(('local_sgd', 'centralized_sgd', 'allreduce_sgd'))}"
        elif layout == "graph":
            names = ["x.csv", "edges.csv", "labels.csv"]
            words = [f"algorithm={self.one(('standalone_gnn', 'glasu'))}", *GRAPH, *SHORT]
        elif layout == "relational":
            names = ["options/sales.csv", "options/shops.csv", "options/dataset/sql.yaml"]
            words = [f"algorithm={self.one(('rfl_sgd', 'gd_join', 'centralized_join'))}", *SQL, *SHORT]
        words += fitting(words[0].partition("=")[2])
        for _ in range(self.one((1, 1, 2))):
            self.mutate(Path(self.one(names)))
        return [*words, *(["dry_run=true"] if self.draw.random() < 0.3 else [])]

    def mutate(self, path: Path) -> None:
        """Something that a file of the user's could be."""
        if path.is_dir():
            return
        text = path.read_bytes() if path.exists() else b""
        lines = text.split(b"\n")
        cell = self.one(
            (
                "nan",
                "inf",
                "-inf",
                "",
                "1e300",
                "-1e308",
                "1e-320",
                "x",
                "ä",
                "9" * 30,
                '"',
                "NULL",
                "true",
                "2020-01-01",
                "-1",
                "1e5",
            )
        )
        line, column = self.draw.randrange(max(len(lines), 1)), self.draw.randrange(4)

        def with_cell(where: bytes) -> bytes:
            cells = where.split(b",")
            cells[min(column, len(cells) - 1)] = cell.encode()
            return b",".join(cells)

        def one_cell() -> bytes:
            return b"\n".join([*lines[:line], with_cell(lines[line]), *lines[line + 1 :]])

        def flipped() -> bytes:
            flip = bytearray(text or b"x")
            flip[self.draw.randrange(len(flip))] ^= 1 << self.draw.randrange(8)
            return bytes(flip)

        ways: tuple[Callable[[], bytes], ...] = (
            one_cell,
            one_cell,
            flipped,
            lambda: b"",
            lambda: lines[0],
            lambda: b"\n".join(lines[:2]),
            lambda: b"\n".join(lines[:4]),
            lambda: b"\n".join([lines[0], *map(with_cell, lines[1:])]),
            lambda: b"\n".join(row.rpartition(b",")[0] for row in lines),
            lambda: b"\n".join([with_cell(lines[0]), *lines[1:]]),
            lambda: b"\n".join([b",".join([lines[0].split(b",")[0]] * (lines[0].count(b",") + 1)), *lines[1:]]),
            lambda: b"\n".join(lines[1:]),
            lambda: text[: self.draw.randrange(len(text) + 1)],
            lambda: b"\xef\xbb\xbf" + text,
            lambda: text.decode("utf-8", "replace").encode("utf-16"),
            lambda: text + b"\xff\xfe,\x80\n",
            lambda: text + b"1,2\n",
            lambda: text + b"1," * 30 + b"\n",
            lambda: text.replace(b",", self.one((b";", b"\t", b", "))),
            lambda: text.replace(b"\n", b"\r\n"),
            lambda: text.replace(b"\n", b"\r"),
            lambda: b"\x00" * 100,
            lambda: b"PK\x03\x04" + text,
            lambda: b"\x1f\x8b\x08" + text,
            lambda: text * 2,
        )
        path.write_bytes(self.one(ways)())
        if self.draw.random() < 0.05:
            path.unlink()
            if self.draw.random() < 0.5:
                path.mkdir()

    def folder(self) -> list[str]:
        shutil.copytree(self.one(self.runs), "folder", dirs_exist_ok=True)
        files = sorted(path for path in Path("folder").rglob("*") if path.is_file())
        for _ in range(self.one((1, 1, 2))):
            self.damage(self.one(files))
        verb = self.one(("resume", "overwrite", "again", "report", "show", "reprice", "reprice"))
        if verb == "report":
            return ["report", "folder", "--out", "page.html", "--csv", "table.csv", "--markdown", "table.md"]
        if verb == "show":
            return ["show", "folder"]
        if verb == "reprice":
            return ["reprice", "folder", f"network={self.one(('us_us', 'lan', 'ideal,us_us'))}"]
        words = {"resume": ["resume=true"], "overwrite": ["overwrite=true"], "again": []}[verb]
        return [*FINISHED, "hydra.run.dir=folder", *words]

    def damage(self, path: Path) -> None:
        if not path.exists():
            return
        raw = bytearray(path.read_bytes())
        where = self.draw.randrange(max(len(raw), 1))
        text = path.read_text(encoding="utf-8", errors="replace")
        ways: tuple[Callable[[], bytes | None], ...] = (
            lambda: None,
            lambda: b"",
            lambda: bytes(raw[:where]),
            lambda: bytes(raw[:where]) + bytes(64) + bytes(raw[where + 64 :]),
            lambda: (
                bytes(raw[:where])
                + bytes([(raw[where] if raw else 0) ^ (1 << self.draw.randrange(8))])
                + bytes(raw[where + 1 :])
            ),
            lambda: self.poisoned(text).encode("utf-8", "surrogateescape"),
            lambda: self.poisoned(text).encode("utf-8", "surrogateescape"),
            lambda: self.one((b"[]", b"{}", b"null", b"3", b'"x"', b"{", b"\xff", b"NaN")),
        )
        made = self.one(ways)()
        path.unlink() if made is None else path.write_bytes(made)

    def poisoned(self, text: str) -> str:
        """A JSON file with one value of another kind, or without it; another text with one word replaced."""
        new = self.one((None, [], {}, -1, 1e300, math.nan, "x", "<b>", True, "nan", [[1]], {"a": None}))
        try:
            whole = json.loads(text)
        except ValueError:
            words = text.split(",")
            words[self.draw.randrange(len(words))] = str(new)
            return ",".join(words)
        inside = whole
        while isinstance(inside, dict) and inside:
            key = self.one(inside)
            if not isinstance(inside[key], dict) or self.draw.random() < 0.4:
                if self.draw.random() < 0.3:
                    del inside[key]
                else:
                    inside[key] = new
                break
            inside = inside[key]
        return json.dumps(whole)


FINISHED = ("algorithm=vfl", *TABLE, *fitting("vfl"), "epochs=4", "checkpoint_every=1", "device=cpu")


def write_table(path: Path, rows: int = 60) -> None:
    numbers = random.Random(0)
    lines = ["a,b,c,d,y"]
    for row in range(rows):
        a, b, c = (numbers.gauss(0, 1) for _ in range(3))
        lines.append(f"{a:.4f},{b:.4f},{c:.4f},{'xyz'[row % 3]},{int(a + b > 0)}")
    path.write_text("\n".join(lines) + "\n")


def write_graph(nodes: int = 40) -> None:
    numbers = random.Random(1)
    labels = [node % 3 for node in range(nodes)]
    Path("x.csv").write_text(
        "p,q,r,s\n" + "".join(f"{label},{numbers.random():.3f},{numbers.random():.3f},1\n" for label in labels)
    )
    edges = [
        (a, b) for a in range(nodes) for b in range(a) if numbers.random() < (0.3 if labels[a] == labels[b] else 0.05)
    ]
    Path("edges.csv").write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in edges))
    Path("labels.csv").write_text("label\n" + "".join(f"{label}\n" for label in labels))


def write_options() -> None:
    """A --config-dir with a data set of two tables in CSV."""
    folder = Path("options")
    (folder / "dataset").mkdir(parents=True)
    numbers = random.Random(2)
    sales = [(number % 8, numbers.random()) for number in range(60)]
    (folder / "sales.csv").write_text(
        "shop,hour,cost\n" + "".join(f"{shop},{hour:.3f},{hour + shop:.3f}\n" for shop, hour in sales)
    )
    (folder / "shops.csv").write_text("shop,size\n" + "".join(f"{shop},{shop * 2}\n" for shop in range(8)))
    sql = {
        "tables": {
            "sales": {"url": "options/sales.csv", "organisation": "grocer", "label": "cost"},
            "shops": {"url": "options/shops.csv", "organisation": "town"},
        },
        "joins": ["sales.shop = shops.shop"],
    }
    original = (config.config_dir() / "dataset" / "sql.yaml").read_text(encoding="utf-8")
    (folder / "dataset" / "sql.yaml").write_text(yaml.safe_dump(yaml.safe_load(original) | sql))
