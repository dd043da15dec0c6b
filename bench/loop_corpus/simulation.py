"""Simulation and time series: bodies, spins, neurons, prices, smoothing and residuals of many series."""

import math

import numpy as np

import stretto as st

from .entry import CorpusLoop


def nbody(position, mass, force, soft):
    """Forces between all pairs of bodies."""
    n = len(position)
    for i in range(n):
        f = np.zeros(3)
        for j in range(n):
            if i != j:
                d = position[j] - position[i]
                r2 = np.sum(d * d) + soft
                f += mass[j] * d / (r2 * np.sqrt(r2))
        force[i] = mass[i] * f


def nbody_hand(position, mass, force, soft):
    n = len(position)
    for i in range(n):
        fx, fy, fz = 0.0, 0.0, 0.0
        for j in range(n):
            if i != j:
                x, y, z = (
                    position[j, 0] - position[i, 0],
                    position[j, 1] - position[i, 1],
                    position[j, 2] - position[i, 2],
                )
                r2 = x * x + y * y + z * z + soft
                q = mass[j] / (r2 * math.sqrt(r2))
                fx += q * x
                fy += q * y
                fz += q * z
        force[i, 0], force[i, 1], force[i, 2] = mass[i] * fx, mass[i] * fy, mass[i] * fz


def nbody_pairs(position, mass, force, soft):
    """The same with every pair once, and Newton's third law."""
    n = len(position)
    for i in range(n):
        for j in range(i + 1, n):
            d = position[j] - position[i]
            r2 = d @ d + soft
            f = mass[i] * mass[j] / (r2 * math.sqrt(r2)) * d
            force[i] += f
            force[j] -= f


def nbody_pairs_hand(position, mass, force, soft):
    n, width = position.shape
    d = np.zeros(width)
    for i in range(n):
        for j in range(i + 1, n):
            r2 = soft
            for k in range(width):
                d[k] = position[j, k] - position[i, k]
                r2 += d[k] * d[k]
            q = mass[i] * mass[j] / (r2 * math.sqrt(r2))
            for k in range(width):
                force[i, k] += q * d[k]
                force[j, k] -= q * d[k]


def ising(spin, beta, t):
    """A sweep of Gibbs sampling of the Ising model on a torus."""
    n, m = spin.shape
    for i in range(n):
        for j in range(m):
            h = spin[(i - 1) % n, j] + spin[(i + 1) % n, j] + spin[i, (j - 1) % m] + spin[i, (j + 1) % m]
            p = 1.0 / (1.0 + math.exp(-2.0 * beta * h))
            spin[i, j] = 1 if st.uniform(t, i, j) < p else -1


def ising_checkerboard(spin, beta, t):
    """The same in two colours, with free edges."""
    n, m = spin.shape
    for colour in range(2):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                if (i + j) % 2 == colour:
                    h = spin[i - 1, j] + spin[i + 1, j] + spin[i, j - 1] + spin[i, j + 1]
                    p = 1.0 / (1.0 + math.exp(-2.0 * beta * h))
                    spin[i, j] = 1 if st.uniform(t, i, j) < p else -1


def exponential_smoothing(y, alpha, level, sse):
    """Simple exponential smoothing of many series, each with its own factor."""
    n, length = y.shape
    for s in range(n):
        now = y[s, 0]
        e2 = 0.0
        for t in range(1, length):
            e = y[s, t] - now
            e2 += e * e
            now += alpha[s] * e
            level[s, t] = now
        sse[s] = e2


def holt_winters(y, alpha, beta, gamma, period, fitted):
    """Additive Holt–Winters of many series."""
    for s in range(len(y)):
        season = np.zeros(period)
        level = np.mean(y[s, :period])
        trend = 0.0
        for k in range(period):
            season[k] = y[s, k] - level
        for t in range(period, y.shape[1]):
            fitted[s, t] = level + trend + season[t % period]
            last = level
            level = alpha * (y[s, t] - season[t % period]) + (1 - alpha) * (level + trend)
            trend = beta * (level - last) + (1 - beta) * trend
            season[t % period] = gamma * (y[s, t] - level) + (1 - gamma) * season[t % period]


def arima_residuals(y, phi, theta, residual):
    """Residuals of an ARMA(p, q) model of each series."""
    n, length = y.shape
    p, q = phi.shape[1], theta.shape[1]
    for s in range(n):
        for t in range(length):
            guess = 0.0
            for k in range(p):
                if t - k - 1 >= 0:
                    guess += phi[s, k] * y[s, t - k - 1]
            for k in range(q):
                if t - k - 1 >= 0:
                    guess += theta[s, k] * residual[s, t - k - 1]
            residual[s, t] = y[s, t] - guess


def garch(returns, omega, a, b, variance, loglik):
    """The likelihood of GARCH(1, 1) for each series."""
    n, T = returns.shape
    for s in range(n):
        variance[s, 0] = np.var(returns[s])
        total = 0.0
        for t in range(1, T):
            variance[s, t] = omega + a * returns[s, t - 1] ** 2 + b * variance[s, t - 1]
            total -= 0.5 * (np.log(2 * np.pi * variance[s, t]) + returns[s, t] ** 2 / variance[s, t])
        loglik[s] = total


def binomial_tree(S, K, r, sigma, T, steps, price):
    """American puts by the tree of Cox, Ross and Rubinstein."""
    for o in range(len(S)):
        dt = T[o] / steps
        u = math.exp(sigma[o] * math.sqrt(dt))
        d = 1 / u
        p = (math.exp(r * dt) - d) / (u - d)
        discount = math.exp(-r * dt)
        value = np.zeros(steps + 1)
        for j in range(steps + 1):
            value[j] = max(K[o] - S[o] * u**j * d ** (steps - j), 0.0)
        for i in range(steps - 1, -1, -1):
            for j in range(i + 1):
                hold = discount * (p * value[j + 1] + (1 - p) * value[j])
                value[j] = max(hold, K[o] - S[o] * u**j * d ** (i - j))
        price[o] = value[0]


def asian_option(S0, strike, rate, sigma, dt, steps, paths, seed, payoff):
    """An Asian option by Monte Carlo."""
    for path in range(paths):
        s = S0
        total = 0.0
        for t in range(steps):
            s *= math.exp((rate - 0.5 * sigma**2) * dt + sigma * math.sqrt(dt) * st.normal(seed, path, t))
            total += s
        payoff += max(total / steps - strike, 0.0)


def lorenz(state, sigma, rho, beta, dt, steps):
    """Many trajectories of Lorenz' equations by the classical Runge–Kutta method."""

    def slope(x, y, z):
        return sigma * (y - x), x * (rho - z) - y, x * y - beta * z

    for k in range(len(state)):
        x, y, z = state[k]
        for _ in range(steps):
            a1, b1, c1 = slope(x, y, z)
            a2, b2, c2 = slope(x + dt / 2 * a1, y + dt / 2 * b1, z + dt / 2 * c1)
            a3, b3, c3 = slope(x + dt / 2 * a2, y + dt / 2 * b2, z + dt / 2 * c2)
            a4, b4, c4 = slope(x + dt * a3, y + dt * b3, z + dt * c3)
            x += dt / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
            y += dt / 6 * (b1 + 2 * b2 + 2 * b3 + b4)
            z += dt / 6 * (c1 + 2 * c2 + 2 * c3 + c4)
        state[k] = x, y, z


def lorenz_slope(x, y, z, sigma, rho, beta):
    return sigma * (y - x), x * (rho - z) - y, x * y - beta * z


def lorenz_outside(state, sigma, rho, beta, dt, steps):
    """The same with its function outside, and elements one by one."""
    for k in range(len(state)):
        x, y, z = state[k, 0], state[k, 1], state[k, 2]
        for _ in range(steps):
            h = dt / 2
            a1, b1, c1 = lorenz_slope(x, y, z, sigma, rho, beta)
            a2, b2, c2 = lorenz_slope(x + h * a1, y + h * b1, z + h * c1, sigma, rho, beta)
            a3, b3, c3 = lorenz_slope(x + h * a2, y + h * b2, z + h * c2, sigma, rho, beta)
            a4, b4, c4 = lorenz_slope(x + dt * a3, y + dt * b3, z + dt * c3, sigma, rho, beta)
            x += dt / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
            y += dt / 6 * (b1 + 2 * b2 + 2 * b3 + b4)
            z += dt / 6 * (c1 + 2 * c2 + 2 * c3 + c4)
        state[k, 0], state[k, 1], state[k, 2] = x, y, z


def izhikevich(v, u, a, b, c, d, weights, current, fired, steps):
    """Spiking neurons; spikes of one step reach the others in the next."""
    n = len(v)
    for t in range(steps):
        for i in range(n):
            total = current[t, i]
            for j in range(n):
                if fired[t, j]:
                    total += weights[i, j]
            if v[i] >= 30:
                v[i] = c[i]
                u[i] += d[i]
            v[i] += 0.5 * (0.04 * v[i] ** 2 + 5 * v[i] + 140 - u[i] + total)
            v[i] += 0.5 * (0.04 * v[i] ** 2 + 5 * v[i] + 140 - u[i] + total)
            u[i] += a[i] * (b[i] * v[i] - u[i])
            fired[t + 1, i] = v[i] >= 30


def prefix_sum(x, s):
    """Sums of all beginnings."""
    s[0] = x[0]
    for i in range(1, len(x)):
        s[i] = s[i - 1] + x[i]


def nbody_data(rng, n):
    return {"position": rng.normal(size=(n, 3)), "mass": rng.random(n), "force": np.zeros((n, 3)), "soft": 1e-3}


def spins_data(rng, n, m):
    return {"spin": np.where(rng.random((n, m)) < 0.5, 1, -1), "beta": 0.4, "t": 3}


def smoothing_data(rng, n, length):
    y = rng.normal(size=(n, length)).cumsum(axis=1)
    return {"y": y, "alpha": rng.random(n), "level": np.zeros((n, length)), "sse": np.zeros(n)}


def winters_data(rng, n, length):
    y = rng.normal(size=(n, length)) + np.sin(np.arange(length))
    return {"y": y, "alpha": 0.3, "beta": 0.1, "gamma": 0.2, "period": 6, "fitted": np.zeros((n, length))}


def arima_data(rng, n, length, p, q):
    phi, theta = rng.random((n, p)) * 0.3, rng.random((n, q)) * 0.3
    return {"y": rng.normal(size=(n, length)), "phi": phi, "theta": theta, "residual": np.zeros((n, length))}


def garch_data(rng, n, length):
    return {
        "returns": rng.normal(size=(n, length)) * 0.01,
        "omega": 1e-6,
        "a": 0.08,
        "b": 0.9,
        "variance": np.zeros((n, length)),
        "loglik": np.zeros(n),
    }


def tree_data(rng, n, steps):
    return {
        "S": rng.random(n) * 50 + 75,
        "K": np.full(n, 100.0),
        "r": 0.03,
        "sigma": rng.random(n) * 0.3 + 0.1,
        "T": rng.random(n) + 0.2,
        "steps": steps,
        "price": np.zeros(n),
    }


def asian_data(rng, paths, steps):
    return {
        "S0": 100.0,
        "strike": 100.0,
        "rate": 0.02,
        "sigma": 0.2,
        "dt": 1 / steps,
        "steps": steps,
        "paths": paths,
        "seed": 7,
        "payoff": st.accumulator(0.0),
    }


def lorenz_data(rng, n, steps):
    return {"state": rng.normal(size=(n, 3)), "sigma": 10.0, "rho": 28.0, "beta": 8 / 3, "dt": 0.01, "steps": steps}


def neurons_data(rng, n, steps):
    r = rng.random(n)
    return {
        "v": np.full(n, -65.0),
        "u": np.full(n, -13.0),
        "a": 0.02 + 0.08 * r,
        "b": 0.25 - 0.05 * r,
        "c": -65 + 15 * r**2,
        "d": 8 - 6 * r**2,
        "weights": rng.normal(size=(n, n)),
        "current": rng.normal(size=(steps, n)) * 5 + 5,
        "fired": np.zeros((steps + 1, n), bool),
        "steps": steps,
    }


def prefix_data(rng, n):
    return {"x": rng.normal(size=n), "s": np.zeros(n)}


PREFIX = CorpusLoop(
    prefix_sum,
    prefix_data,
    (20,),
    (3_000_000,),
    warns="serial=True",
)
LOOPS = (
    CorpusLoop(nbody, nbody_data, (12,), (1500,), nbody_hand),
    CorpusLoop(nbody_pairs, nbody_data, (12,), (1500,), hand=nbody_pairs_hand),
    CorpusLoop(ising, spins_data, (9, 8), (1000, 1000)),
    CorpusLoop(ising_checkerboard, spins_data, (9, 8), (1000, 1000)),
    CorpusLoop(exponential_smoothing, smoothing_data, (7, 20), (5000, 300)),
    CorpusLoop(holt_winters, winters_data, (7, 30), (5000, 300)),
    CorpusLoop(arima_residuals, arima_data, (7, 20, 2, 2), (2000, 300, 3, 2)),
    CorpusLoop(garch, garch_data, (7, 20), (2000, 300)),
    CorpusLoop(binomial_tree, tree_data, (7, 10), (300, 200)),
    CorpusLoop(asian_option, asian_data, (20, 10), (10_000, 100)),
    CorpusLoop(
        lorenz,
        lorenz_data,
        (7, 10),
        (2000, 200),
        tolerance=1e-8,
    ),
    CorpusLoop(lorenz_outside, lorenz_data, (7, 10), (2000, 200), tolerance=1e-8, follows=True),
    CorpusLoop(izhikevich, neurons_data, (9, 20), (300, 200)),
    PREFIX,
)
