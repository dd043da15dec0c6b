"""`python -m bench [NAME …]`: run measurements and write their tables to bench/results.

python -m bench                   everything that can run here
python -m bench libmf recommend   these two
python -m bench --list            what there is
python -m bench memory_zoo --help  options of a measurement that has some
"""

from __future__ import annotations

import argparse
import importlib
import sys

NAMES = {
    "libmf": "time to LIBMF's test RMSE at 1 and 2 threads, on six sets",
    "mf_scores": "test RMSE of SGD factorisation with its defaults on nine sets, beside LIBMF; time of setting up",
    "threads": "ratings per second at 1, 2, 4, 8, 16 threads",
    "optimizers": "SGD, AdaGrad and AdaRevision: time to a test RMSE, ratings per second, learning rates",
    "als": "implicit ALS: time to the ranking of the implicit library",
    "confidence": "implicit feedback: NDCG@10 by how confidence grows with the value, beside popularity",
    "ranking": "losses that rank: NDCG@10 and samples per second, beside BPR of implicit and cornac",
    "side_features": "errors on cold users and items from their features, beside cmfrec and models without features",
    "factorization_machines": "factorization machines: log loss and RMSE beside linear models, libFM, libFFM and myFM",
    "recommend": "top 10 for every user, beside the implicit library",
    "evaluate": "ranking metrics of every user, beside the implicit library; has options",
    "start": "import time, and the first fit in a new process",
    "serving": "loading a factor model in a new process, and its first calls",
    "watching": "what a run record and its live page cost a run",
    "front_chart": "the chart of README, from the results of the others; measures nothing",
    "memory": "growth of resident memory during fit",
    "memory_sizes": "the largest models that train on one GPU, under a cap of 12 GiB and on the whole card",
    "memory_batches": "the largest batches under a cap of 12 GiB, eager and ours, with items per second",
    "memory_frontier": "training steps on a GPU: time against peak memory, beside what PyTorch offers",
    "memory_charts": "the charts of memory_frontier and memory_zoo, from their tables; measures nothing",
    "memory_zoo": "thirty models under budgets on a GPU: whether they hold, time, results beside eager's; has options",
    "memory_addresses": "whether tensors are where plans of the zoo say, on a GPU; has options",
    "memory_graphs": "the zoo's steps as costed graphs, and plans of them without a GPU; has options",
    "memory_chunks": "models in which single operations are too large: budgets, peaks and seconds with chunks",
    "memory_side_by_side": "parts of these five side by side on one GPU, taking turns: for when its minutes are few",
    "loops": "a user's loop beside the kernel written by hand and plain Numba",
    "loop_corpus": "loops from textbooks: accepted or refused, milliseconds beside three forms of Numba; has options",
    "loop_bodies": "thousands of random loop functions beside the reference interpreter: equal bits; has options",
    "loops_speed": "fifteen loops beside kernels by hand and their bodies in plain Numba: run time, compile time",
    "loops_oracle": "dependences and strategies of 20,000 random nests beside the integer set library; has options",
    "orders": "ordered, unordered and buffered loops: time and convergence",
    "compile": "compile time of every example, warm and cold",
    "prefetch": "sparse logistic regression with its weights in another process",
    "plan_overhead": "seconds of an epoch on threads, beside another source tree (--against FOLDER); has options",
    "program_pipeline": "programs on a simulated cluster: rounds per second by depth and latency",
    "program_bits": "schedules, losses and storages, programs and estimators: equal bits on five runtimes; has options",
    "stages": "the time between two stages of a task, on threads and on four namespace hosts",
    "state_placements": "what the planner proposes for states, beside all placements on simulated nodes",
    "stage_transfers": "states between stages on four namespace hosts: direct or not, prepared whole or on demand",
    "chunk_sizes": "how many locks a table has, and how many bytes of a state move together",
    "stage_reading": "a task that reads its data while it trains, beside one that loads them first",
    "replica_exchanges": "replicated states on 2 to 32 simulated nodes: seconds and bytes of four ways to exchange",
    "stage_widths": "the time of an iteration against the width of its stage, and the automatic width",
    "adaptive": 'sync="adaptive" beside fixed settings on three simulated workloads: time to a loss; has options',
    "adaptive_measured": "adaptive settings in wall-clock time on threads or namespace hosts; has options",
    "adaptive_choice": "adaptive settings on the drawn workloads that the controller was chosen on; has options",
    "schedule_auto": "schedules chosen by progress beside fixed ones: work and seconds to the same objective",
    "static": "rotation: a barrier at every turn or none, heaviest jobs first or as given",
    "overhead": "what choosing costs: schedules beside the updates they choose",
    "lasso": "the Lasso to a duality gap, beside celer, skglm and scikit-learn",
    "penalties": "groups, several targets, Poisson and Huber loss beside skglm, celer and scikit-learn",
    "lasso_cluster": "a Lasso of svmlight files on four hosts, none of which may hold the data; has options",
    "lasso_path": "paths of 100 penalties, beside the same",
    "lda": "topic models to the same log-likelihood, beside tomotopy, scikit-learn and gensim",
    "lda_scale": "topic models at 1 to 16 threads, and for 100 to 10,000 topics",
    "lda_samplers": "the exact sampler of topic models beside Metropolis-Hastings steps, for 50 to 5,000 topics",
    "text_topics": "a folder of 20,000 text files to a page of topics, beside scikit-learn with tomotopy and gensim",
    "lda_perplexity": "topic models to the same held-out perplexity, beside tomotopy; one judge for both",
    "lda_inference": "topic shares of unseen documents, beside tomotopy",
    "lda_memory": "a corpus larger than memory: speed and peak memory",
    "tables": "parameter tables on threads: rows per second by keys, shared tables beside raw arrays",
    "simulated": "the simulated cluster: messages per second, what a message costs, memory",
    "cluster_calibration": "the simulator beside the laboratory: seconds of a pass, predicted and measured",
    "cluster_kills": "fifty random kills across ten jobs on the laboratory: what a kill costs",
    "cluster_files": "ratings and documents that nodes read: memory of driver and nodes, stall; has options",
    "cluster_stall": "rotation on the laboratory: how long machines wait for blocks",
    "cluster_managed": "managed communication on cables of 100 Mbit; a factor served, replicated and rotating",
    "rotation_calibration": "rotation: seconds of an epoch on simulated nodes and on four hosts of the laboratory",
    "softmax": "many classes jointly: time to within 1e-3 of the optimum, beside scikit-learn's solvers",
    "linear_svc": "linear support vector machines to the same objective, beside liblinear in scikit-learn",
    "svrg": "logistic regression by stochastic steps with variance reduction, beside saga and lbfgs",
    "sparse_logistic": "L1 logistic regression, beside liblinear, skglm, celer and scikit-learn",
    "logistic_grid": "L1 logistic regression over a grid of C: objective and seconds, beside liblinear",
    "scoreboard": "every estimator × peer × set: best peer's time over ours, quality, memory; has options",
    "support": "what runs where: estimators and loops on every runtime, in memory and from disk; has options",
    "wire": "what travels between two processes: blocks and rows with CURVE and without, beside a Ray actor",
}
GATHERED = (
    "adaptive_choice",
    "adaptive_measured",
    "memory_side_by_side",
    "memory_graphs",
    "memory_addresses",
    "plan_overhead",
    "support",
    "cluster_files",
    "lasso_cluster",
)  # made of others, or for others, or in need of an option: only when named
# All that follows their name is theirs.
OPTIONS = (
    "evaluate",
    "loop_corpus",
    "loop_bodies",
    "loops_oracle",
    "scoreboard",
    "adaptive",
    "adaptive_choice",
    "adaptive_measured",
    "memory_zoo",
    "memory_graphs",
    "memory_addresses",
    "plan_overhead",
    "support",
    "cluster_files",
    "cluster_kills",
    "lasso_cluster",
)


def main() -> None:
    """Run the measurements that were named."""
    if sys.argv[1:2] and sys.argv[1] in OPTIONS:
        importlib.import_module(f"bench.{sys.argv[1]}").main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="which measurements; none: all")
    parser.add_argument("--list", action="store_true", help="say what there is")
    chosen = parser.parse_args()
    if chosen.list:
        for name, about in NAMES.items():
            print(f"{name:20} {about}")
        return
    for name in chosen.names or [name for name in NAMES if name not in GATHERED]:
        if name not in NAMES:
            parser.error(f"no measurement {name!r}; there are {', '.join(NAMES)}")
        print(f"== {name}: {NAMES[name]}", flush=True)
        importlib.import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
