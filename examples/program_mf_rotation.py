"""Matrix factorization as a program: workers own rows, blocks of columns go round, and every job is compiled code.

python examples/program_mf_rotation.py                 generated ratings
python examples/program_mf_rotation.py ratings.dat     a file of yours, in any format that `st.read` knows

The schedule is `st.schedule.rotation`: in each of its turns worker p works on one block of columns, never two workers
on the same. `sync` and `first` say when jobs may start; the numbers are the same for all of them.
"""

import sys

import numba
import numpy as np

import stretto as st


@numba.njit(nogil=True)  # without the interpreter's lock, so that jobs run side by side
def descend(i, j, r, W, H, lr, lam):
    loss = 0.0
    for t in range(len(r)):
        w, h = W[i[t]], H[j[t]]
        e = r[t]
        for k in range(len(w)):
            e -= w[k] * h[k]
        loss += e * e
        for k in range(len(w)):
            w[k], h[k] = w[k] + lr * (e * h[k] - lam * w[k]), h[k] + lr * (e * w[k] - lam * h[k])
    return loss


class Factorization(st.Program):
    def __init__(self, ratings, rank=16, blocks=8, lr=0.02, lam=0.05, seed=0, **switches):
        draw, shape = np.random.default_rng(seed), ratings.shape
        self.blocks, self.lr, self.lam, self.count = blocks, lr, lam, len(ratings)
        self.bounds = [np.linspace(0, n, blocks + 1).astype(int) for n in shape]
        worker = np.searchsorted(self.bounds[0], ratings.rows, "right") - 1
        block = np.searchsorted(self.bounds[1], ratings.cols, "right") - 1
        weight = np.bincount(worker * blocks + block, minlength=blocks * blocks)
        self.data = {}
        for k, part in enumerate(np.split(np.lexsort((block, worker)), np.cumsum(weight)[:-1])):
            p, b = divmod(k, blocks)
            rows, cols = ratings.rows[part] - self.bounds[0][p], ratings.cols[part] - self.bounds[1][b]
            self.data[p, b] = rows, cols, ratings.values[part] - ratings.values.mean()
        self.params = {
            "W": 0.1 * draw.standard_normal((shape[0], rank)),
            "H": 0.1 * draw.standard_normal((shape[1], rank)),
            "loss": np.zeros((blocks, blocks)),  # a place for each job, so that no sum depends on who is first
        }
        self.schedule = st.schedule.rotation(blocks, weight=weight.reshape(blocks, blocks), **switches)

    def part(self, axis, k):
        return slice(self.bounds[axis][k], self.bounds[axis][k + 1])

    def update(self, job, data, params):
        W, H = params["W"][self.part(0, job.worker)].copy(), params["H"][self.part(1, job.block)].copy()
        return job, W, H, descend(*data[job], W, H, self.lr, self.lam)

    def aggregate(self, results, params):
        for job, W, H, loss in results:
            params["W"][self.part(0, job.worker)] = W
            params["H"][self.part(1, job.block)] = H
            params["loss"][job] = loss

    def objective(self, data, params):
        return np.sqrt(params["loss"].sum() / self.count)


def train(ratings, rounds=10, runtime=None, **settings):
    program = Factorization(ratings, **settings)
    print(program.explain(runtime=runtime))
    result = st.run(program, rounds=rounds, runtime=runtime)
    for look in result.history[1:]:
        print(f"round {look.round:2}: RMSE {look.objective:.4f} met on the way, {look.seconds:.2f} s")
    return result


if __name__ == "__main__":
    train(st.read(sys.argv[1]) if len(sys.argv) > 1 else st.generate_ratings(500_000, 5_000, 2_000).data)
