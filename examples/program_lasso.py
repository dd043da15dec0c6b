"""The Lasso as a program, under several schedules: what is chosen next changes, the update does not.

python examples/program_lasso.py                       generated data, columns correlated in groups
python examples/program_lasso.py X.npy y.npy 0.1       your own, and the weight of the penalty as a share of its largest

½‖y − Xβ‖² + λ‖β‖₁ by coordinate descent. All coordinates of a round are computed from the same residual, so those that
are correlated disturb each other. `random` does not care; `prioritised` draws those that still move and leaves out
whoever would disturb another.
"""

import sys

import numpy as np

import stretto as st


class Lasso(st.Program):
    def __init__(self, X, y, lam, schedule):
        self.schedule, self.lam = schedule, lam
        self.columns = np.asfortranarray(X)  # what a schedule finds conflicts in
        self.data = self.columns, (X * X).sum(axis=0)
        self.params = {"beta": np.zeros(X.shape[1]), "r": np.array(y, dtype=float)}

    def update(self, job, data, params):
        X, squares = data
        beta = params["beta"][job]
        z = X[:, job] @ params["r"] + squares[job] * beta
        return job, np.sign(z) * max(abs(z) - self.lam, 0.0) / squares[job] - beta

    def aggregate(self, results, params):
        jobs, steps = [job for job, _ in results], np.array([step for _, step in results])
        params["beta"][jobs] += steps
        params["r"] -= self.columns[:, jobs] @ steps
        return steps  # how far each has moved: what prioritised schedules learn from

    def objective(self, data, params):
        return 0.5 * params["r"] @ params["r"] + self.lam * np.abs(params["beta"]).sum()


def schedules(width):
    return {
        "cyclic, one at a time": st.schedule.cyclic(),
        "random": st.schedule.random(width=width),
        "prioritised": st.schedule.prioritised(width=width, conflicts=None),
        "prioritised, conflicts": st.schedule.prioritised(width=width),
    }


def compare(X, y, share=0.1, width=32, rounds=400, pipeline=1, runtime=None):
    lam = share * np.abs(X.T @ y).max()
    results = {}
    for name, schedule in schedules(width).items():
        # one at a time makes as many updates, in more rounds
        factor = width if name.startswith("cyclic") else 1
        results[name] = result = st.run(
            Lasso(X, y, lam, schedule),
            rounds=rounds * factor,
            every=20 * factor,
            pipeline=pipeline,
            runtime=runtime,
            until=lambda look: look.objective > 1e3 * y @ y,  # it runs away
        )
        falls = "  ".join(f"{look.objective:9.4g}" for look in result.history[:6])
        print(f"{name:24} {falls} … {result.objective:9.4g} after {result.updates} updates")
    return results


def generate(n=400, p=1200, group=6, seed=0):
    draw = np.random.default_rng(seed)
    shared = np.repeat(draw.standard_normal((n, p // group)), group, axis=1)
    X = 0.8 * shared + 0.6 * draw.standard_normal((n, p))
    beta = np.zeros(p)
    beta[draw.choice(p, 40, replace=False)] = draw.standard_normal(40)
    return X, X @ beta + draw.standard_normal(n)


if __name__ == "__main__":
    X, y = (np.load(sys.argv[1]), np.load(sys.argv[2])) if len(sys.argv) > 2 else generate()
    compare(X, y, float(sys.argv[3]) if len(sys.argv) > 3 else 0.1)
