"""`vflbench --help`."""

import re
import shutil
import textwrap

from vflbench.defaults import config_dir, presets

EXAMPLES = """\
vflbench: which federated method reaches your accuracy with the least communication?

  vflbench                                                         GLASU on Cora, from the US to the UK
  vflbench algorithm=glasu dataset=cora seed=1 network=us_us       other options, other values
  vflbench algorithm=glasu dry_run=true                            parties, shapes, messages, bytes; trains nothing
  vflbench -m algorithm=glasu,standalone_gnn seed=0,1,2            a sweep: every combination
  vflbench experiment=glasu/table3                                 a preset, here a paper's table
  vflbench algorithm=glasu resume=true                             go on where a run was stopped

Other commands
  vflbench choose dataset=cora target=0.8 budget=20m   the method that reaches a target at the least cost
  vflbench tune algorithm=glasu dataset=cora trials=8  one method's settings, searched on validation data
  vflbench figures glasu/table3 scale=small  repeat a paper's figure: runs, picture, numbers beside the paper's
  vflbench list                              algorithms, with the data sets, privacy, models and attacks that fit them
  vflbench list dataset=bank                 what runs on these data, with its defaults
  vflbench explain KEY dataset=bank          what a key is for, and where its value comes from
  vflbench privacy algorithm=glasu           who learns what, without data; without algorithm=: for all methods
  vflbench reprice RUN network=us_us,lan     price finished runs on other networks, within seconds, without training
  vflbench data status                       which data sets are on your disk, real or as synthetic twins
  vflbench data get NAME [NAME ...]          download data sets
  vflbench data check FILE [FILE ...]        what each column of your files is taken for, before anything trains
  vflbench data profile features=50,450      time split learning on this machine, for compute=measured
  vflbench report RUN [RUN ...] --out FILE   compare runs or sweeps on one HTML page with sliders
  vflbench show RUN                          the same in the terminal
  vflbench plot RUN [RUN ...]                draw the pictures that a sweep or plot=none left out
"""
FLAGS = """\
Flags
  -m, --multirun       a sweep over every key with several values: a,b,c or 'range(0,5)' or 'glob(*)'
  --config-dir DIR     a folder with options of your own: DIR/algorithm/mine.yaml, DIR/dataset/..., DIR/experiment/...
  --cfg job            print the composed configuration and stop
  --info, --hydra-help what Hydra itself offers
  -sc install=bash     print what turns completion on in your shell: eval "$(vflbench -sc install=bash)"; or fish
  --version, --help
  hydra.run.dir=DIR    the run's folder; hydra.sweep.dir=DIR a sweep's
  hydra/launcher=joblib           a sweep in parallel (pip install 'vflbench[parallel]')
  hydra/launcher=submitit_slurm   a sweep on a cluster (pip install 'vflbench[slurm]'); or submitit_local
"""


def help_text() -> str:
    """Our own help, made from the folder of options, without Hydra."""
    conf = config_dir()
    drawn = [name for file in (conf / "figure").rglob("*.yaml") for name in presets(file.read_text(encoding="utf-8"))]
    width = max(80, min(shutil.get_terminal_size().columns, 140))
    lines = [EXAMPLES, "Groups (group=option)"]
    for group in sorted(
        path for path in conf.iterdir() if path.is_dir() and path.name not in ("hydra", "tuned", "figure")
    ):
        named = [path.relative_to(group).with_suffix("").as_posix() for path in group.rglob("*.yaml")]
        names = " ".join(sorted([*named, *(drawn if group.name == "experiment" else ())]))
        lines += textwrap.wrap(
            names, width, initial_indent=f"  {group.name:12} ", subsequent_indent=" " * 15, break_on_hyphens=False
        )
    lines += ["", "Keys (key=value), with their defaults; an option's own keys are group.key, e.g. algorithm.lr=0.01"]
    for key, value, comment in re.findall(
        r"^(\w+): (\S+)\s+# (.*)$", (conf / "config.yaml").read_text(encoding="utf-8"), re.MULTILINE
    ):
        lines.append(f"  {key + '=' + value:28} {comment}")
    return "\n".join([*lines, "", FLAGS]).rstrip()
