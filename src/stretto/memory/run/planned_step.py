"""A training step under a memory budget: planned when made, checked when it first runs, one plan per shape of batch."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stretto.errors import RunError
from stretto.memory.capture.read_values import OtherBranch
from stretto.memory.capture.side_effects import CannotCapture
from stretto.memory.capture.source_lines import line_of_error
from stretto.memory.measure.update_memory import UpdateMemory
from stretto.memory.options import StepOptions, StepSource
from stretto.memory.planner.planner import Infeasible, PlannedProgram, PlannerSettings
from stretto.memory.planning import CapturedStep, bytes_on, states_of, tensors_of
from stretto.memory.report.recorded import StepListener
from stretto.memory.report.report import Report
from stretto.memory.shape_plans import KEPT, ShapePlan, ShapePlanner, numbers_of, shapes_of
from stretto.text import show_bytes

from .devices import Device
from .execute import Runner
from .host_buffers import HostBuffers
from .invariants import StepHook, StepInvariants, claim_parameters
from .persistent_storages import owners
from .random_state import RandomState
from .verify import Expected

_LOG = logging.getLogger("stretto.memory")
_BRANCHES = 64  # branches to try for one batch
_REPLANS = 3  # how often a step may take more than its plan
_MARGIN, _MORE = 1.1, 1 / 256  # shares of the excess and of the budget by which the next plan's budget is smaller
_WASTE = 1.5  # host memory of several plans, as a multiple of what the largest needs


class Step:
    """A training step under a memory budget. Call it with a batch like the one it was planned with.

    `report` has the plan. A batch of another shape gets a plan of its own, which is kept. Parameters, buffers and
    optimizer state are on the device or on the host, as planned; `state_dict()` of modules and optimizers works as
    usual (it waits for copies in flight). `with step.paused():` brings parameters and buffers back to their original
    device, for an evaluation; `close()` brings everything back permanently. Use `st.memory.step` or
    `st.memory.train_step` to make one.

    Parameters
    ----------
    source : StepSource
        The step function with the modules and optimizers that it uses, and a batch to plan with.
    settings : PlannerSettings
        Budget and policy.
    device : Device
        Where it runs.
    options : StepOptions
        How it is planned and run: `verify`, `chunks`, `record` and `compile` of `st.memory.step`, and speeds that times
        are estimated from.

    Examples
    --------
    >>> import torch, stretto as st
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> batch = torch.zeros(8, 4), torch.zeros(8, 2)
    >>> loss_fn = torch.nn.functional.mse_loss
    >>> step = st.memory.train_step(model, loss_fn, optimizer, batch, budget="1MiB", device="cpu")
    >>> loss = step(batch)
    >>> step.close()
    """

    def __init__(
        self,
        source: StepSource,
        settings: PlannerSettings,
        device: Device,
        options: StepOptions,
    ) -> None:
        self._modules, self._optimizers = list(source.modules), list(source.optimizers)
        self._settings, self._device = settings, device
        function, batch = source.function, source.batch
        self._expected = Expected.of(function, self._modules, self._optimizers, batch) if options.verify else None
        self._came_from = {id(p): p.device for p in tensors_of(self._modules)}
        self._replanned = 0
        ours = [*tensors_of(self._modules), *states_of(self._optimizers), *pytree.tree_leaves(batch)]
        # Measured first: what the device then holds besides the step's tensors stays there.
        updates = UpdateMemory(self._optimizers, device) if device.torch.type == "cuda" else None
        others = max(0, device.in_use() - bytes_on(ours, device.torch)) + device.slack(settings.budget)
        source = replace(source, modules=self._modules, optimizers=self._optimizers, batch=None)
        options = replace(options, record=options.record and device.records)
        self._planner = ShapePlanner(source, settings, device, options, others, updates)
        self._plans: list[ShapePlan] = []  # the one in use last
        self._current: ShapePlan | None = None
        self._host = HostBuffers(device)
        self._paused = 0
        self._closed_because = ""  # why the step cannot be called any more
        self._listener: StepListener | None = None
        self._standing = StepInvariants(self._modules, self._optimizers, device.torch.type)
        self._use(self._planner.made(batch), batch)
        everybody = (*self._modules, *self._optimizers)
        self._hooks = [owner.register_state_dict_pre_hook(StepHook(self, "settle")) for owner in everybody]
        self._hooks += [owner.register_load_state_dict_pre_hook(StepHook(self, "settle")) for owner in everybody]
        self._hooks += [owner.register_load_state_dict_post_hook(StepHook(self, "loaded")) for owner in everybody]

    def report_to(self, listener: StepListener) -> None:
        """Report plans, and what steps really take, to a listener until the step is closed.

        Parameters
        ----------
        listener : StepListener
            `st.memory.step(…, session=…)` makes one.
        """
        self._listener = listener
        listener.planned(self.report)

    # -- plans ---------------------------------------------------------------------------------------------------------

    @property
    def planned(self) -> PlannedProgram:
        """The plan in use."""
        return self._now.planned

    @property
    def report(self) -> Report:
        """The report of the plan in use."""
        return self._now.report

    @property
    def plans(self) -> list[Report]:
        """Reports of the plans that are kept; the one in use is last."""
        return [one.report for one in self._plans]

    @property
    def _now(self) -> ShapePlan:
        assert self._current is not None
        return self._current

    @property
    def _captured(self) -> CapturedStep:
        return self._now.captured

    @property
    def _runner(self) -> Runner | None:
        return None if self._current is None else self._current.runner

    def _plan_for(self, batch: Any) -> ShapePlan:
        """The plan that holds for a batch; a new one if there is none."""
        shapes, values = shapes_of(batch), numbers_of(batch)
        alike = [one for one in reversed(self._plans) if one.shapes == shapes]
        for one in alike:
            if one.numbers.fit(values):
                return one
        if alike:
            self._planner.warn(alike[0].numbers, values)
        else:
            _LOG.info("making a plan for a batch of another shape")
        return self._made_beside(batch)

    def _made_beside(self, batch: Any, known: ShapePlan | None = None, read: Sequence[Any] = ()) -> ShapePlan:
        """Make another plan while one is in use.

        The recording of the plan in use frees its memory, since operations are measured on the device. If no plan is
        found, the present one stays in use.
        """
        runner = self._runner
        if runner is not None:
            runner.suspend()
        try:
            return self._planner.made(batch, known, read)
        except BaseException:
            if runner is not None:
                runner.resume()
            raise

    def _use(self, plan: ShapePlan, batch: Any) -> ShapePlan:
        """Switch to a plan, or to one for a smaller budget if it would take too much beside other memory on the device.

        Blocks of the caller's own tensors may be free in part, and that part cannot be used.
        """
        self._switch(plan)
        while plan.runner is not None and plan.runner.over > 0 and self._replanned < _REPLANS:
            plan = self._replan(plan, batch, plan.runner.over, logging.DEBUG)
        return plan

    def _switch(self, plan: ShapePlan) -> None:
        """Switch to a plan.

        Plans share host memory. Only the present plan has device memory beside persistent storages: its CUDA graphs are
        recorded again.
        """
        claim_parameters(self._modules, self)
        before, self._current = self._current, plan
        others = [one for one in self._plans if one is not plan]
        self._plans = [*others[1 - KEPT :], plan]
        if self._listener is not None:
            self._listener.planned(plan.report)
        if before is not None and before is not plan and before.runner is not None:
            before.runner.suspend()
        if plan.runner is not None:
            plan.runner.resume()
            return
        lifted, program = plan.captured.lifted, plan.planned.program
        own = owners(lifted)
        held = self._host.nbytes + self._host.missing(program, own)
        most = _WASTE * max(one.planned.costs.host for one in self._plans)
        if self._settings.host_budget is not None:
            most = min(most, self._settings.host_budget)
        if self._host.nbytes and held > most:
            self._leave(before)
        plan.runner = Runner(
            lifted,
            program,
            plan.order,
            plan.captured.traced.watched,
            self._optimizers,
            self._device,
            record=plan.segments,
            host=self._host,
            budget=self._settings.budget,
        )

    def _leave(self, plan: ShapePlan | None) -> None:
        """Copy persistent storages out of the host memory that plans share, and free it. Plans are kept, their code
        is not."""
        if plan is not None and plan.runner is not None:
            plan.runner.detach()
        for one in self._plans:
            one.runner = None
        self._host = HostBuffers(self._device)
        gc.collect()  # free what runners hold, before there is another

    # -- a step --------------------------------------------------------------------------------------------------------

    def __call__(self, batch: Any) -> Any:
        """Train on one batch; the result of the step function."""
        if self._closed_because:
            raise RunError(self._closed_because)
        if self._paused:
            raise RunError("the step was called while it is paused; call it after the `with step.paused():` block")
        self._standing.check()
        plan, results = self._run(self._checked(self._plan_for(batch), batch), batch)
        shown = plan.numbers.shown(plan.captured.traced.reads.shown(results))
        result = pytree.tree_unflatten(shown, plan.captured.traced.result_spec)
        if self._expected is not None:
            self.settle()
            self._expected.compare(result, self._modules)
            self._expected = None
        if plan.unwatched:
            plan.unwatched -= 1
            self._compare_peak(plan, batch)
        return result

    def _run(self, plan: ShapePlan, batch: Any) -> tuple[ShapePlan, list[Any]]:
        """Run one step; with another plan if it takes another branch. The plan that was used, and its results."""
        tensors = [x for x in pytree.tree_leaves(batch) if isinstance(x, torch.Tensor)]
        for _ in range(_BRANCHES):
            if plan is not self._current or plan.runner is None:
                plan = self._use(plan, batch)
            plan.numbers.fill(numbers_of(batch))
            assert plan.runner is not None
            if plan.unwatched:
                self._device.reset_peak()
            reads = plan.captured.traced.reads
            if not reads.conditions:
                return plan, plan.runner(tensors)
            drawn = RandomState(self._device)
            try:
                with reads.checked():
                    return plan, plan.runner(tensors)
            except OtherBranch as other:
                plan.runner.abandon()
                drawn.restore()
                plan = self._branch(plan, batch, other.values)
        raise RunError(
            f"the step took {_BRANCHES} different branches for one batch; use conditions on values that it computes"
        )

    def _branch(self, plan: ShapePlan, batch: Any, values: list[Any]) -> ShapePlan:
        """The plan of a step that reads these values first."""
        numbers = numbers_of(batch)
        for one in reversed(self._plans):
            alike = one.shapes == plan.shapes and one.numbers.fit(numbers)
            if one is not plan and alike and one.captured.traced.reads.agree(values):
                return self._checked(one, batch, values)
        _LOG.info("making a plan for another branch of the step")
        try:
            return self._made_beside(batch, read=values)
        except CannotCapture as error:
            if error.__cause__ is not None and line_of_error(error.__cause__, last=True):
                raise error.__cause__ from None  # the step's own error, which it raises in that branch
            error.add_note("the step takes this branch for the first time; move what cannot be planned behind the step")
            raise

    def _compare_peak(self, plan: ShapePlan, batch: Any) -> None:
        """Plan again with a margin if the device reserved more than predicted."""
        real, budget = self._device.peak(), self._settings.budget
        if self._listener is not None and real is not None:
            self._listener.measured(real)
        if real is None or real <= budget:
            return
        if self._replanned >= _REPLANS:
            raise RunError(
                f"budget={show_bytes(budget)}: steps take {show_bytes(real)} on the device after planning "
                f"{self._replanned + 1} times; pass a budget of {show_bytes(real)}, or free other memory on the device"
            )
        self._replan(plan, batch, real - budget, logging.WARNING)

    def _replan(self, plan: ShapePlan, batch: Any, over: int, level: int) -> ShapePlan:
        """Plan again for a budget that is smaller by the excess."""
        budget = self._settings.budget
        smaller = self._planner.budget - int(over * _MARGIN + budget * _MORE)
        if smaller <= 0:
            raise RunError(
                f"budget={show_bytes(budget)}: steps take {show_bytes(budget + over)} on the device, and the budget is "
                "too small for such a margin; free other memory on the device, or pass a larger budget"
            )
        self._replanned += 1
        self._planner.budget = smaller
        _LOG.log(level, "steps take %s more than the budget: planning again with that margin", show_bytes(over))
        try:
            new = self._made_beside(batch, plan)
        except Infeasible as error:
            error.add_note(
                f"a step takes {show_bytes(over)} more than planned; memory that a plan does not see must fit, too"
            )
            raise
        self._leave(plan)
        self._plans, self._current = [], None
        self._switch(new)
        return new

    def _checked(self, plan: ShapePlan, batch: Any, read: Sequence[Any] = ()) -> ShapePlan:
        """The plan, or a new one if a number that the step reads has changed since."""
        if self._planner.holds(plan, batch):
            return plan
        self._plans = []
        return self._made_beside(batch, read=read)

    # -- between steps -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def paused(self, device: torch.device | str | None = None) -> Iterator[None]:
        """Use the modules outside the step, for an evaluation: `with step.paused(): loss = model(x)`.

        Inside, parameters and buffers are on one device, so that the modules can be called, changed and loaded.
        Optimizer state stays where it is, and recorded CUDA graphs free their memory. Afterwards training continues
        with the same plan, from the values that parameters and buffers have then; `train()` and `eval()` are as they
        were before.

        Parameters
        ----------
        device : torch.device, str or None, default None
            Where parameters and buffers are brought; None: where they were when the step was made.
        """
        if self._closed_because:
            raise RunError(self._closed_because)
        modes = [(one, one.training) for module in self._modules for one in module.modules()]
        with torch.inference_mode(False):  # inference tensors cannot be trained on
            if not self._paused and self._runner is not None:
                self._runner.suspend()
        self._paused += 1
        try:
            with torch.inference_mode(False):
                self._bring(device)
            yield
        finally:
            self._paused -= 1
            for module, training in modes:
                module.training = training
            if not self._paused and not self._closed_because and self._runner is not None:
                with torch.inference_mode(False):
                    self._runner.resume()

    def _bring(self, device: torch.device | str | None) -> None:
        """Move parameters and buffers to a device, or to their original one."""
        try:
            with torch.no_grad():
                for tensor in tensors_of(self._modules):
                    where = torch.device(device) if device is not None else self._came_from[id(tensor)]
                    tensor.data = tensor.data.to(where)
        except torch.OutOfMemoryError as error:
            nbytes = sum(one.numel() * one.element_size() for one in tensors_of(self._modules))
            raise RunError(
                f"paused(): parameters and buffers take {show_bytes(nbytes)}, more than the device has free; "
                'pass device="cpu" to evaluate on the host'
            ) from error

    def settle(self) -> None:
        """Wait until all copies are done: parameters can be read after it."""
        if self._runner is not None:
            self._runner.settle()

    def loaded(self) -> None:
        """Move loaded state to where the plan stores it. Modules and optimizers call this after `load_state_dict`."""
        if self._runner is not None and not self._paused:
            self._runner.adopt_loaded_state()

    def revoke(self) -> None:
        """Free everything: another step owns the parameters now."""
        self._leave(self._current)
        self._forget()
        self._closed_because = (
            "the step cannot be called: another step was made with these parameters and moved them; write both into "
            "one step function, or make this step again before it runs"
        )

    def close(self) -> None:
        """Bring parameters, buffers and state back to their original devices."""
        self.settle()
        if self._closed_because:
            return
        self._closed_because = "the step cannot be called: it was closed; make a new one"
        with torch.no_grad():
            for tensor in tensors_of(self._modules):
                tensor.data = tensor.data.to(self._came_from[id(tensor)], copy=True)
            for optimizer in self._optimizers:
                for p, state in optimizer.state.items():
                    for name, kept in state.items():
                        if isinstance(kept, torch.Tensor) and kept.shape == p.shape and kept.dim():
                            state[name] = kept.to(p.device, copy=True)
        self._forget()

    def _forget(self) -> None:
        """Drop plans with all that they hold; the last one stays for its report."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for hook in self._hooks:
            hook.remove()
        for one in self._plans:
            one.runner = None
        self._plans = []
        self._host = HostBuffers(self._device)
