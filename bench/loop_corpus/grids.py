"""Grids: stencils in space and time, filters of images, fractals."""

import math

import numpy as np

import stretto as st

from .entry import CorpusLoop


def heat(u, alpha):
    """The heat equation in two dimensions; u[t] is the plate at time t."""
    for t in range(u.shape[0] - 1):
        for i in range(1, u.shape[1] - 1):
            for j in range(1, u.shape[2] - 1):
                around = u[t, i - 1, j] + u[t, i + 1, j] + u[t, i, j - 1] + u[t, i, j + 1]
                u[t + 1, i, j] = u[t, i, j] + alpha * (around - 4 * u[t, i, j])


def wave(u, c2):
    """The wave equation in two dimensions, by leapfrog."""
    T, n, m = u.shape
    for t in range(1, T - 1):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                around = u[t, i - 1, j] + u[t, i + 1, j] + u[t, i, j - 1] + u[t, i, j + 1] - 4 * u[t, i, j]
                u[t + 1, i, j] = 2 * u[t, i, j] - u[t - 1, i, j] + c2 * around


def life(old, new):
    """Conway's Game of Life on a torus."""
    n, m = old.shape
    for i in range(n):
        for j in range(m):
            alive = 0
            for di in range(-1, 2):
                for dj in range(-1, 2):
                    if di != 0 or dj != 0:
                        alive += old[(i + di) % n, (j + dj) % m]
            new[i, j] = 1 if alive == 3 or (alive == 2 and old[i, j] == 1) else 0


def red_black(u, f, h):
    """A sweep of red-black Gauss–Seidel."""
    n, m = u.shape
    for colour in range(2):
        for i in range(1, n - 1):
            for j in range(1 + (i + colour) % 2, m - 1, 2):
                u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - h * h * f[i, j])


def jacobi(u, new, f, h, change):
    """A sweep of Jacobi's method, with the size of the step."""
    for i in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            new[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - h * h * f[i, j])
            change += abs(new[i, j] - u[i, j])


def convolve(image, kernel, out):
    """A convolution without padding."""
    h, w = kernel.shape
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            s = 0.0
            for a in range(h):
                for b in range(w):
                    s += image[i + a, j + b] * kernel[a, b]
            out[i, j] = s


def bilateral(image, out, radius, space, tone):
    """A bilateral filter: neighbours count by their distance and by how much they are alike."""
    n, m = image.shape
    for i in range(n):
        for j in range(m):
            total = 0.0
            weight = 0.0
            for a in range(max(0, i - radius), min(n, i + radius + 1)):
                for b in range(max(0, j - radius), min(m, j + radius + 1)):
                    d = (a - i) ** 2 + (b - j) ** 2
                    g = (image[a, b] - image[i, j]) ** 2
                    w = math.exp(-d / (2 * space**2) - g / (2 * tone**2))
                    total += w * image[a, b]
                    weight += w
            out[i, j] = total / weight


def mandelbrot(out, left, top, step, limit):
    """Steps until a point leaves the Mandelbrot set."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            c = complex(left + j * step, top - i * step)
            z = 0j
            k = 0
            while abs(z) <= 2 and k < limit:
                z = z * z + c
                k += 1
            out[i, j] = k


def mandelbrot_real(out, left, top, step, limit):
    """The same with real and imaginary parts apart."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            a, b = left + j * step, top - i * step
            x, y = 0.0, 0.0
            k = 0
            while x * x + y * y <= 4 and k < limit:
                x, y = x * x - y * y + a, 2 * x * y + b
                k += 1
            out[i, j] = k


def median_filter(image, out):
    """The median of nine pixels, sorted by insertion."""
    for i in range(1, image.shape[0] - 1):
        for j in range(1, image.shape[1] - 1):
            window = np.zeros(9)
            n = 0
            for a in range(i - 1, i + 2):
                for b in range(j - 1, j + 2):
                    x = image[a, b]
                    k = n
                    while k > 0 and window[k - 1] > x:
                        window[k] = window[k - 1]
                        k -= 1
                    window[k] = x
                    n += 1
            out[i, j] = window[4]


def integral_image(image, S):
    """Sums over all rectangles that start in the corner."""
    n, m = image.shape
    for i in range(n):
        for j in range(m):
            S[i + 1, j + 1] = image[i, j] + S[i, j + 1] + S[i + 1, j] - S[i, j]


def plate_data(rng, steps, n, m):
    u = np.zeros((steps, n, m))
    u[0] = rng.random((n, m))
    return {"u": u, "alpha": 0.1}


def wave_data(rng, steps, n, m):
    u = np.zeros((steps, n, m))
    u[0] = u[1] = rng.random((n, m))
    return {"u": u, "c2": 0.25}


def life_data(rng, n, m):
    return {"old": (rng.random((n, m)) < 0.4).astype(np.int64), "new": np.zeros((n, m), np.int64)}


def poisson_data(rng, n, m):
    return {"u": rng.random((n, m)), "f": rng.random((n, m)), "h": 1 / n}


def jacobi_data(rng, n, m):
    return {
        "u": rng.random((n, m)),
        "new": np.zeros((n, m)),
        "f": rng.random((n, m)),
        "h": 1 / n,
        "change": st.accumulator(0.0),
    }


def convolve_data(rng, n, m, side):
    return {
        "image": rng.random((n, m)),
        "kernel": rng.random((side, side)),
        "out": np.zeros((n - side + 1, m - side + 1)),
    }


def bilateral_data(rng, n, m, radius):
    return {"image": rng.random((n, m)), "out": np.zeros((n, m)), "radius": radius, "space": 2.0, "tone": 0.2}


def mandelbrot_data(rng, n, m, limit):
    return {"out": np.zeros((n, m), np.int64), "left": -2.0, "top": 1.2, "step": 2.4 / n, "limit": limit}


def image_data(rng, n, m):
    return {"image": rng.random((n, m)), "out": np.zeros((n, m))}


def integral_data(rng, n, m):
    return {"image": rng.random((n, m)), "S": np.zeros((n + 1, m + 1))}


LOOPS = (
    CorpusLoop(heat, plate_data, (5, 9, 8), (50, 300, 300)),
    CorpusLoop(wave, wave_data, (5, 9, 8), (50, 300, 300)),
    CorpusLoop(life, life_data, (9, 8), (1500, 1500)),
    CorpusLoop(red_black, poisson_data, (9, 8), (2000, 2000)),
    CorpusLoop(jacobi, jacobi_data, (9, 8), (2000, 2000)),
    CorpusLoop(convolve, convolve_data, (9, 8, 3), (1000, 1000, 7)),
    CorpusLoop(bilateral, bilateral_data, (9, 8, 2), (400, 400, 3)),
    CorpusLoop(mandelbrot, mandelbrot_data, (9, 8, 20), (400, 500, 200), refused="complex", instead="mandelbrot_real"),
    CorpusLoop(mandelbrot_real, mandelbrot_data, (9, 8, 20), (400, 500, 200), follows=True),
    CorpusLoop(median_filter, image_data, (9, 8), (1000, 1000)),
    CorpusLoop(integral_image, integral_data, (9, 8), (2500, 2500)),
)
