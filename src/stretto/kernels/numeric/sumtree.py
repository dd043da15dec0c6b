"""Sum tree: draw a leaf with probability proportional to its weight, and change a weight, in O(log leaves).

A tree is a row of `tree` [Q, 2·cap] float64, cap a power of two: leaf l is at cap + l, and node k is the sum of nodes
2k and 2k + 1. So a node depends only on the leaves below it, not on earlier changes: a tree rebuilt from its leaves has
the same bits. Only the first leaves need be in use: `root` is the node above all of those, a power of two, and nodes
above it are not updated. With few leaves in use paths are short and stay in the cache.

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
    """Return the weight of one leaf."""
    return tree[q, tree.shape[1] // 2 + leaf]


@merged
def draw(tree, q, root, u):
    """Return the leaf at the fraction u of the weight below the root, which must not be 0; its weight is positive."""
    leaves = tree.shape[1] // 2
    x = u * tree[q, root]
    at = root
    while at < leaves:
        at *= 2
        # Rounding may leave x at the end of the total weight: if the right side is empty, go left.
        if x >= tree[q, at] and tree[q, at + 1] > 0.0:
            x -= tree[q, at]
            at += 1
    return at - leaves


@kernel
def add_up(tree):
    """Compute every node from the leaves [Q, cap:]."""
    for q in range(tree.shape[0]):
        for at in range(tree.shape[1] // 2 - 1, 0, -1):
            tree[q, at] = tree[q, 2 * at] + tree[q, 2 * at + 1]
