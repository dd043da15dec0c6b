"""Verify a planned step against the plain one: the step function runs once unplanned, before anything is planned."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from stretto.errors import RunError


class Expected:
    """Results and parameters after the plain step."""

    def __init__(self, results: list[Any], parameters: list[torch.Tensor], random: Any) -> None:
        self.results, self.parameters, self.random = results, parameters, random

    @classmethod
    def of(
        cls,
        function: Callable[[Any], Any],
        modules: Sequence[nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        batch: Any,
    ) -> Expected:
        """Run the step where the modules are, remember its outcome, and restore everything."""
        where = next(p.device for module in modules for p in module.parameters())
        every = [t for module in modules for t in (*module.parameters(), *module.buffers())]
        before = [t.detach().clone() for t in every]
        kept = [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers]
        random = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        placed = pytree.tree_map(lambda x: x.to(where) if isinstance(x, torch.Tensor) else x, batch)
        results = [_kept(x) for x in pytree.tree_leaves(function(placed))]
        after = [v.detach().cpu().clone() for module in modules for v in module.state_dict().values()]
        with torch.no_grad():
            for tensor, then in zip(every, before, strict=True):
                tensor.copy_(then)
        for module in modules:
            module.zero_grad(set_to_none=True)
        for optimizer, state in zip(optimizers, kept, strict=True):
            optimizer.state.clear()
            optimizer.load_state_dict(state)
        _restore(random)
        return cls(results, after, random)

    def compare(self, results: Any, modules: Sequence[nn.Module]) -> None:
        """Raise RunError unless the planned step did the same, up to rounding."""
        found = [_kept(x) for x in pytree.tree_leaves(results)]
        after = [v.detach().cpu() for module in modules for v in module.state_dict().values()]
        names = [name for module in modules for name in module.state_dict()]
        for what, said, mine in [
            *(("a result", a, b) for a, b in zip(self.results, found, strict=True)),
            *((name, a, b) for name, a, b in zip(names, self.parameters, after, strict=True)),
        ]:
            if not isinstance(said, torch.Tensor):
                continue
            wide, other = said.double(), mine.double()
            if not torch.allclose(wide, other, rtol=1e-2, atol=1e-4, equal_nan=True):
                worst = float((wide - other).abs().max())
                raise RunError(
                    f"verify=True: the planned step differs from the plain one: {what} by up to {worst:.3g}; pass "
                    "verify=False for a step that draws random numbers or depends on values, and report any other "
                    "difference with the model: it is a bug in the plan"
                )


def _kept(x: Any) -> Any:
    return x.detach().cpu().clone() if isinstance(x, torch.Tensor) else x


def _restore(random: Any) -> None:
    torch.set_rng_state(random[0])
    if random[1]:
        torch.cuda.set_rng_state_all(random[1])
