"""`python -m reproductions [NAME …]`: reproduce figures of papers and write the numbers to reproductions/results.

python -m reproductions                     all of them; this takes hours
python -m reproductions smpframe bosen_mf   these two
python -m reproductions --list              which there are
"""

from __future__ import annotations

import argparse
import importlib

NAMES = {
    "memory_chapter": "the experiments of the dissertation's chapter on memory, its policy and ours",
    "lasso_rounds": "the Lasso by rounds on 1 to 64 simulated nodes: seconds to 1 % of the optimum",
    "smpframe": "the claims of scheduled model parallelism, figure by figure",
    "smpframe_hosts": "its Figures 7 and 12 and Table 3 on four namespace hosts",
    "flexps": "FlexPS's figures on a simulated cluster: automatic width, SVRG, growing batches, transitions",
    "lda_parallel": "topic models: serial, data-parallel, managed and rotation, by epoch and by bytes",
    "bosen_lda": "Bösen's topic models on a simulated cluster: managed communication, shorter clocks, rotation",
    "bosen_mf": "managed communication: matrix factorisation on a simulated cluster",
    "bosen_mlr": "managed communication: logistic regression on a simulated cluster",
    "replica_filters": "replicated states: the objective against bytes for four filters",
    "cocoa": "CoCoA on 2 to 64 simulated nodes: rounds to a duality gap, adding against averaging, bytes of a round",
    "cluster_scaling": "predicted scaling of matrix factorisation and topic models to 256 nodes",
    "rotation_scaling": "predicted scaling of matrix factorisation and topic models by rotation to 256 nodes",
    "orion_distributed": "loops on 12 simulated nodes, ordered and unordered: the distributed figures of Orion",
    "redraw": "the pictures whose numbers are stored, from those; runs nothing",
    "spark_elastic_net": "elastic nets beside Spark MLlib: seconds to the same objective (needs pyspark and Java)",
    "spark_logistic": "logistic regression with an L1 penalty beside Spark MLlib",
    "spark_mf": "matrix factorisation beside Spark: ALS of MLlib, and SGD with joins and with broadcast factors",
    "spark_lda": "topic models beside Spark MLlib: seconds to the same perplexity of held-out words",
}


def main() -> None:
    """Run the reproductions that were named."""
    parser = argparse.ArgumentParser(prog="python -m reproductions", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="which reproductions; none: all")
    parser.add_argument("--list", action="store_true", help="list them")
    chosen = parser.parse_args()
    if chosen.list:
        for name, about in NAMES.items():
            print(f"{name:20} {about}")
        return
    for name in chosen.names or NAMES:
        if name not in NAMES:
            parser.error(f"no reproduction {name!r}; there are {', '.join(NAMES)}")
        print(f"== {name}: {NAMES[name]}", flush=True)
        importlib.import_module(f"reproductions.{name}").main()


if __name__ == "__main__":
    main()
