"""Run an optimizer for some of its parameters, and find what state it keeps.

Nothing of an optimizer is rewritten. Its own `step` runs with a list of parameters that is reduced to a few, so
learning rates, schedules, weight decay and `state_dict` work as usual.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from stretto.errors import PlanError
from stretto.memory.capture.side_effects import CannotCapture


def state_bytes(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter) -> dict[str, int]:
    """{name: bytes} of the state tensors, as large as the parameter, that the optimizer keeps for it.

    >>> p = torch.nn.Parameter(torch.zeros(3, 4))
    >>> state_bytes(torch.optim.AdamW([p]), p)
    {'exp_avg': 48, 'exp_avg_sq': 48}
    """
    state = optimizer.state.get(parameter)
    if not state:
        state = _state_after_trial(optimizer, parameter)
        shape: Any = _small(parameter.shape)
    else:
        shape = tuple(parameter.shape)
    return {
        name: parameter.numel() * tensor.element_size()
        for name, tensor in state.items()
        if isinstance(tensor, torch.Tensor) and tuple(tensor.shape) == shape and tensor.dim() > 0
    }


def _small(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(min(n, 2) for n in shape)


def _state_after_trial(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter) -> dict[str, Any]:
    """The optimizer's state of a tiny parameter of the same kind, after one step."""
    tiny = torch.nn.Parameter(torch.zeros(_small(parameter.shape), dtype=parameter.dtype))
    tiny.grad = torch.zeros_like(tiny)
    trial = _trial(optimizer, group_of(optimizer, parameter), [tiny])
    try:
        type(optimizer).step(trial)
    except Exception as error:
        raise PlanError(
            f"{type(optimizer).__name__} failed on a single parameter ({error}), so its step cannot be planned; use an "
            "optimizer that treats each parameter by itself"
        ) from error
    found: dict[str, Any] = trial.state[tiny]
    return found


def _trial(optimizer: torch.optim.Optimizer, group: dict[str, Any], parameters: list[Any]) -> Any:
    """The optimizer without state, with a group of the same options that has these parameters."""
    options = {k: copy.copy(v) for k, v in group.items() if k != "params"}
    if options.get("fused"):
        options["fused"] = False  # not supported on every device; keeps the same state
    if options.get("capturable"):
        options["capturable"] = False
    trial = copy.copy(optimizer)
    trial.__dict__ = dict(optimizer.__dict__)
    trial.state = type(optimizer.state)(dict)
    trial.param_groups = [options | {"params": parameters}]
    return trial


def check_separate(optimizer: torch.optim.Optimizer) -> None:
    """Refuse a user-defined optimizer that combines several parameters: planned steps run it for a few at a time."""
    if type(optimizer).__module__.startswith("torch.optim"):
        return
    try:
        both, numbers = _trial_on(optimizer, 0, 1)
        alone = [_trial_on(optimizer, k) for k in (0, 1)]
        separate = all(torch.equal(one, other[0][0]) for one, other in zip(both, alone, strict=True))
        separate &= all(str(other[1]) == str(numbers) for other in alone)
    except Exception:
        return  # the real update reports the error
    if not separate:
        raise CannotCapture(
            f"{type(optimizer).__name__} combines several parameters, so its step cannot be planned; use an optimizer "
            "that treats each parameter by itself"
        )


def keeps_numbers(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer keeps counts for all of its parameters, in attributes or in options of its groups.

    >>> keeps_numbers(torch.optim.SGD([torch.zeros(1)]))
    False
    """
    if type(optimizer).__module__.startswith("torch.optim"):
        return False
    try:
        return str(_trial_on(optimizer, 0)[1]) != str(_numbers(optimizer))
    except Exception:
        return False


def _trial_on(optimizer: torch.optim.Optimizer, *which: int) -> tuple[list[torch.Tensor], Any]:
    """Two small parameters, or one of them, after two steps; and the optimizer's own numbers then."""
    values, gradients = torch.linspace(-1, 1, 8).view(2, 4), torch.linspace(2, -1, 16).view(2, 2, 4)
    few = [torch.nn.Parameter(values[k].clone()) for k in which]
    trial = _trial(optimizer, optimizer.param_groups[0], few)
    trial.param_groups += [{**copy.copy(group), "params": []} for group in optimizer.param_groups[1:]]
    for gradient in gradients:
        for k, p in zip(which, few, strict=True):
            p.grad = gradient[k].clone()
        type(optimizer).step(trial)
    return [p.detach() for p in few], _numbers(trial)


_PLAIN = (bool, int, float, str, type(None), tuple)


def _numbers(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Numbers among the attributes of an optimizer and the options of its groups."""
    own = {k: v for k, v in optimizer.__dict__.items() if isinstance(v, _PLAIN) and k != "_opt_called"}
    named = {"fused", "capturable"}  # a trial does without
    groups = optimizer.param_groups
    return [own, *({k: v for k, v in g.items() if isinstance(v, _PLAIN) and k not in named} for g in groups)]


class OptimizerCounters:
    """Numbers that an optimizer keeps for all of its parameters, such as a count of steps.

    They change once per step of the optimizer, in however many parts its parameters are updated. Every part begins
    with the numbers from before the first and stores those that it changed.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._before: list[dict[str, Any]] = []
        self._after: list[dict[str, Any]] = []
        self._had: set[Any] = set()

    def begin(self, turn: Any) -> None:
        """Begin a part; one that has run before begins the next step of the optimizer."""
        if turn in self._had or not self._had:
            self._before = _numbers(self._optimizer)
            self._after, self._had = [dict(one) for one in self._before], set()
        self._had.add(turn)

    @contextlib.contextmanager
    def part(self, groups: Sequence[dict[str, Any]]) -> Iterator[None]:
        """Update some parameters of these groups within the block."""
        self._put(self._before)
        yield
        all_groups = self._optimizer.param_groups
        taking = [True, *(any(group is one for one in groups) for group in all_groups)]
        now = _numbers(self._optimizer)
        self._after = [new if took else old for old, new, took in zip(self._after, now, taking, strict=True)]
        self._put(self._after)

    def _put(self, numbers: list[dict[str, Any]]) -> None:
        places = [self._optimizer.__dict__, *self._optimizer.param_groups]
        for place, wanted, now in zip(places, numbers, _numbers(self._optimizer), strict=True):
            for name in now.keys() - wanted.keys():
                del place[name]
            place.update(wanted)


def group_of(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter) -> dict[str, Any]:
    """The group of a parameter."""
    for group in optimizer.param_groups:
        if any(p is parameter for p in group["params"]):
            found: dict[str, Any] = group
            return found
    raise PlanError(f"the optimizer no longer has the parameter of shape {tuple(parameter.shape)}; make a new step")


# Elementwise optimizers: they can update a part of a parameter.
_SEPARATE = ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop")
_LEAST = 16 << 20


def update_chunk_bytes(optimizer: torch.optim.Optimizer, budget: int) -> int:
    """Bytes of a parameter to update at a time, so that temporary results are small; 0: the whole parameter.

    >>> update_chunk_bytes(torch.optim.SGD([torch.zeros(1)]), 1 << 32) >> 20
    32
    """
    known = any(type(optimizer) is getattr(torch.optim, name) for name in _SEPARATE)
    if not known or any(group.get("fused") for group in optimizer.param_groups):  # a fused one has no temporary results
        return 0
    return max(_LEAST, budget // 128)


_TRIED = 4 << 20  # elements of the parameter for a trial update


def workspace_ratios(
    optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter, device: torch.device
) -> tuple[float, float]:
    """Bytes that an update takes on a GPU beside the parameter, its gradient and its state.

    Returns
    -------
    tuple of float
        Multiples of the parameter's bytes: for a first update, which creates the state, and for later ones.
    """
    shape = (_TRIED // 1024, 1024) if parameter.dim() > 1 else (_TRIED,)
    found = 0.0, 0.0
    for _ in range(2):  # libraries allocate their workspaces the first time
        with torch.random.fork_rng([device]):
            tried = torch.nn.Parameter(torch.zeros(shape, dtype=parameter.dtype, device=device))
            tried.grad = torch.ones_like(tried)
            trial = _trial(optimizer, group_of(optimizer, parameter), [tried])
            for name, kept in optimizer.state.get(
                parameter, {}
            ).items():  # some create their state before the first step
                large = _as_large(kept, parameter)
                trial.state[tried][name] = torch.zeros_like(tried, dtype=kept.dtype) if large else copy.copy(kept)
            nbytes = tried.numel() * tried.element_size()
            found = _peak_of_step(trial, device) / nbytes, _peak_of_step(trial, device, again=True) / nbytes
    return found


def _peak_of_step(optimizer: Any, device: torch.device, *, again: bool = False) -> int:
    """The most bytes that a step takes on a GPU, without state that is created anew in every step."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    type(optimizer).step(optimizer)
    made = torch.cuda.memory_allocated(device) - before if again else 0
    return int(torch.cuda.max_memory_allocated(device) - before - made)


Rows = Callable[[int, int], torch.Tensor]


class PartialUpdates:
    """Runs an optimizer's own step for some of its parameters. Groups are read anew each time, since rates change."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[torch.nn.Parameter],
        counts: OptimizerCounters | None = None,
    ) -> None:
        self.optimizer, self.parameters, self._counts = optimizer, list(parameters), counts
        self._chosen = {id(p) for p in parameters}
        self._found: dict[
            int, tuple[list[Any], int, list[Any]]
        ] = {}  # by group: its list, its length, and the parameters to update

    def _mine(self, group: dict[str, Any]) -> list[Any]:
        """The parameters of a group that this object updates. Searching thousands takes longer than their update."""
        whole = group["params"]
        known = self._found.get(id(group))
        if known is None or known[0] is not whole or known[1] != len(whole):
            known = self._found[id(group)] = whole, len(whole), [p for p in whole if id(p) in self._chosen]
        return list(known[2])

    def run(
        self, chunk_bytes: int = 0, places: dict[str, torch.Tensor] | None = None, gradient: Rows | None = None
    ) -> None:
        """One step for the parameters, which have their gradients.

        Parameters
        ----------
        chunk_bytes : int
            Bytes at a time, if there is only one parameter; 0: all.
        places : dict, optional
            By name: memory, on the device or on the host, for state that is created in chunks.
        gradient : callable, optional
            Gives rows of the gradient, if the parameter has none.
        """
        p = self.parameters[0]
        if self._counts is not None:
            self._counts.begin(self)
        count = -(-p.numel() * p.element_size() // chunk_bytes) if chunk_bytes and len(self.parameters) == 1 else 1
        if count > 1:
            self._run_in_chunks(p, count, places or {}, gradient)
        else:
            groups = self.optimizer.param_groups
            self._step([(group, mine) for group in groups if (mine := self._mine(group))])

    def _run_in_chunks(
        self, p: torch.nn.Parameter, count: int, places: dict[str, torch.Tensor], gradient: Rows | None
    ) -> None:
        """Update a parameter chunk of rows by chunk of rows, each as a parameter of its own.

        State on the host is copied in rows, too.
        """
        optimizer, state, group = self.optimizer, self.optimizer.state[p], group_of(self.optimizer, p)
        large = {name: x for name, x in state.items() if _as_large(x, p)}
        small = {name: x for name, x in state.items() if name not in large}
        made = dict(large)  # and what a first step creates
        dim = max(range(p.dim()), key=lambda d: (p.stride(d) if p.shape[d] > 1 else 0, p.shape[d]))
        size = -(-p.shape[dim] // count)
        done: dict[str, Any] = {}
        for at in range(0, p.shape[dim], size):
            rows = (dim, at, min(size, p.shape[dim] - at))
            part = torch.nn.Parameter(p.data.narrow(*rows))
            part.grad = p.grad.narrow(*rows) if gradient is None else gradient(*rows[1:])
            given = {name: x.narrow(*rows).to(p.device, non_blocking=True) for name, x in large.items()}
            own = {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in small.items()}
            optimizer.state[part] = {**own, **given}
            try:
                self._step([(group, [part])])
            finally:
                done = optimizer.state.pop(part)
            for name in [name for name, x in done.items() if _as_large(x, part)]:
                if done[name] is not given.get(name) or made[name].device != p.device:
                    self._put(done, name, made, rows, p, places)
        state.update({name: made.get(name, x) for name, x in done.items()})

    @staticmethod
    def _put(
        done: dict[str, Any],
        name: str,
        made: dict[str, Any],
        rows: tuple[int, int, int],
        p: torch.nn.Parameter,
        places: dict[str, torch.Tensor],
    ) -> None:
        """Copy the state of some rows to that of all rows, and free it: the next rows need the memory."""
        x = done[name]
        if name not in made and name in places:
            made[name] = places[name].view(x.dtype).as_strided(p.shape, p.stride())
        elif name not in made:
            made[name] = torch.empty_like(p.data, dtype=x.dtype)
        made[name].narrow(*rows).copy_(x, non_blocking=True)
        done[name] = None

    def _step(self, parts: list[tuple[dict[str, Any], list[Any]]]) -> None:
        """The optimizer's own step with groups that have these parameters only."""
        optimizer, groups = self.optimizer, self.optimizer.param_groups
        whole = [(group, group["params"]) for group, _ in parts]
        used = [group for group, _ in parts]
        with contextlib.nullcontext() if self._counts is None else self._counts.part(used):
            for group, mine in parts:
                group["params"] = mine
            try:
                optimizer.param_groups = used
                type(optimizer).step(optimizer)
            finally:
                optimizer.param_groups = groups
                for group, parameters in whole:
                    group["params"] = parameters
        optimizer._opt_called = True  # schedulers read this flag


def _as_large(x: Any, p: torch.Tensor) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() > 0 and x.shape == p.shape
