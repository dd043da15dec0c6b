"""Options of every training: where it runs, what it leaves behind, what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from stretto.cli.options_file import take_options

from .choices import Profile
from .declare import RUN, SOLVER, option

SeedOption = Annotated[int, option("--seed", help="Same seed, same bits.", panel=SOLVER, min=0)]
WidthOption = Annotated[
    int,
    option("--width", help="Workers the plan is cut for; changes the answer, --workers does not.", panel=SOLVER, min=1),
]
ProfileOption = Annotated[
    Profile, option("--profile", help="'exact': same bits on every x86-64 processor.", panel=SOLVER)
]
WorkersOption = Annotated[
    int | None,
    option("--workers", "-w", help="Threads; never changes the answer.", panel=RUN, min=1, show_default="every core"),
]
RuntimeOption = Annotated[
    str | None,
    option(
        "--runtime",
        help="threads, serial, cluster (a Ray cluster, or a local one that is started), cluster:ADDRESS, or "
        "cluster:processes; --workers then counts threads of each node. Never changes the answer.",
        panel=RUN,
        metavar="WHERE",
        show_default="threads",
    ),
]
NodesOption = Annotated[int | None, option("--nodes", help="Nodes of the cluster.", panel=RUN, min=1, show_default="2")]
MemoryOption = Annotated[
    str | None,
    option(
        "--memory",
        help="Budget such as 2GiB: the file is streamed and what does not fit stays on disk; never changes the answer.",
        panel=RUN,
        show_default="everything in memory",
    ),
]
OutOption = Annotated[
    str | None,
    option(
        "--out", "-o", help="Folder of the run record, not there yet.", panel=RUN, show_default="runs/MODEL-1, -2, …"
    ),
]
EveryOption = Annotated[
    str | None,
    option(
        "--checkpoint-every",
        help="'5 epochs', '30s' or '10min'.",
        panel=RUN,
        show_default="by what saving costs",
    ),
]
QuietOption = Annotated[bool, option("--quiet", "-q", help="Say nothing but errors.", panel=RUN)]
VerboseOption = Annotated[bool, option("--verbose", "-v", help="Print the plan too.", panel=RUN)]
LogOption = Annotated[
    list[str] | None,
    option(
        "--log",
        help="Send the numbers of epochs on: tensorboard:FOLDER, mlflow:EXPERIMENT or wandb:PROJECT; may be repeated.",
        panel=RUN,
        metavar="SERVICE:NAME",
        show_default=False,
    ),
]
ConfigOption = Annotated[
    Path | None,
    option(
        "--config",
        help="Take options from this TOML file; what is typed as well wins. A run keeps its own in options.toml.",
        panel=RUN,
        metavar="FILE",
        is_eager=True,
        callback=take_options,
        show_default=False,
    ),
]
DashboardOption = Annotated[
    bool, option("--dashboard", help="Serve a live page of the run to this machine, and print its link.", panel=RUN)
]
