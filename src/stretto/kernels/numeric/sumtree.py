"""A sum tree: draw a leaf with probability in proportion to its weight, and change a weight, in O(log leaves).

A tree is a row of `tree` [Q, 2·cap] float64, cap a power of two: leaf l stands at cap + l, and node k is the sum of
nodes 2k and 2k + 1. So a node depends on the leaves below it and on nothing that happened before: a tree made again
from its leaves has the same bits. Only the first leaves need be in use: `root` is the node above all of those, a power
of two, and nodes above it are not kept up to date. With few leaves in use a path is short, and what is touched stays in
cache.

    put_leaf(tree, q, root, leaf, weight)       leaf_weight(tree, q, leaf)       draw(tree, q, root, u), u in [0, 1)
"""

from __future__ import annotations

from stretto.kernels.core.compile import kernel, merged


@merged
def put_leaf(tree, q, root, leaf, weight):
    """Set the weight of one leaf below the root."""
    at = tree.shape[1] // 2 + leaf
    if tree[q, at] == weight:
        return
    tree[q, at] = weight
    while at > root:
        at >>= 1
        tree[q, at] = tree[q, 2 * at] + tree[q, 2 * at + 1]


@merged
def leaf_weight(tree, q, leaf):
    """The weight of one leaf."""
    return tree[q, tree.shape[1] // 2 + leaf]


@merged
def draw(tree, q, root, u):
    """The leaf at the share u of all weight below the root, which must not be 0; its own weight is positive."""
    leaves = tree.shape[1] // 2
    x = u * tree[q, root]
    at = root
    while at < leaves:
        at *= 2
        # Rounding may leave x at the end of all weight: where nothing is on the right it goes left.
        if x >= tree[q, at] and tree[q, at + 1] > 0.0:
            x -= tree[q, at]
            at += 1
    return at - leaves


@kernel
def add_up(tree):
    """Every node from the leaves [Q, cap:]."""
    for q in range(tree.shape[0]):
        for at in range(tree.shape[1] // 2 - 1, 0, -1):
            tree[q, at] = tree[q, 2 * at] + tree[q, 2 * at + 1]


@kernel
def try_tree(tree, root, leaves, weights, u, out):
    """put_leaf for many, then out[k] = draw for many u; what tests compare with a plain search."""
    for k in range(leaves.shape[0]):
        put_leaf(tree, 0, root, leaves[k], weights[k])
    for k in range(u.shape[0]):
        out[k] = draw(tree, 0, root, u[k])
