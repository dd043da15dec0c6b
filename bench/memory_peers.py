"""What PyTorch offers to train with less memory, each as a change of a `Job`.

A change takes a job that nothing has run on yet and returns its step function as it is afterwards, or None where the
method has nothing to work on.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable
from typing import Any


def saved_on_cpu(job: Any) -> Any:
    """Every saved tensor goes to the host and comes back."""
    import torch

    def step(batch: Any) -> Any:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return job.step(batch)

    return step


def checkpointed(job: Any) -> Any:
    """Every block's insides are computed again."""
    from torch.utils.checkpoint import checkpoint

    if not job.blocks:
        return None
    for block in job.blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    return job.step


def compiled(budget: float) -> Callable[[Any], Any]:
    """torch.compile, with a share of activations to keep."""

    def change(job: Any) -> Any:
        import torch

        torch._functorch.config.activation_memory_budget = budget
        for module in job.modules:
            module.compile()
        return job.step

    return change


def fully_sharded(job: Any) -> Any:
    """FSDP2 on one rank: parameters, gradients and optimizer on the host."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    if not dist.is_initialized():
        with socket.socket() as free:  # others on this machine may be doing the same
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
        dist.init_process_group("cpu:gloo,cuda:nccl")
    if len(job.modules) > 1 or len(job.optimizers) > 1:
        return None
    (model,), (optimizer,) = job.modules, job.optimizers
    model.cpu()
    names = {id(p): name for name, p in model.named_parameters()}
    groups = [[names[id(p)] for p in group["params"]] for group in optimizer.param_groups]
    for block in job.blocks:
        fully_shard(block, offload_policy=CPUOffloadPolicy())
    fully_shard(model, offload_policy=CPUOffloadPolicy())
    sharded = dict(model.named_parameters())
    for group, of_group in zip(optimizer.param_groups, groups, strict=True):
        group["params"] = [sharded[name] for name in of_group]
    optimizer.state.clear()
    torch.cuda.empty_cache()
    return job.step
