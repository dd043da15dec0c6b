"""Error messages for steps that cannot be traced: what the step does, in which line, and what to write instead."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stretto.errors import PlanError

from .side_effects import CannotCapture
from .source_lines import at, line_of_error

_TORCH = Path(torch.__file__).parent
_SPARSE = (
    "sparse gradients have no fixed size, so no memory can be planned for them; use sparse=False with an ordinary "
    "optimizer (SGD, Adam and others update a large table chunk by chunk)"
)
# Part of torch's message, and what it means for the step.
_MEANINGS = (
    ("SparseTensorImpl", f"it makes {_SPARSE}"),
    ("_pack_padded_sequence", "it packs sequences by their lengths; pad them, and mask the loss instead"),
    (
        "_local_scalar_dense",
        "it reads a value of a tensor into Python (.item(), float(), a tensor in an `if`, one_hot without num_classes)"
        "; keep it a tensor, and decide with torch.where",
    ),
    ("nonzero", "the size of a result depends on values (a boolean mask as an index); use torch.where or multiply"),
    ("masked_select", "the size of a result depends on values; use torch.where or multiply by the mask"),
    ("unique", "the size of a result depends on values"),
    ("repeat_interleave", "the size of a result depends on values; give output_size="),
)
# Functions of torch that cannot be traced as they were called.
_FUNCTIONS = {
    "_detect_is_causal_mask": "torch's transformer layers compare the mask with a causal one, which reads its values; "
    "pass is_causal= (tgt_is_causal=)",
    "ctc_loss": "ctc_loss receives lengths as Python numbers; pass tensors",
}


def reason(error: Exception) -> str:
    """Explain an error that was raised while a step was traced."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    frames = traceback.extract_tb(error.__traceback__)
    where = at(line_of_error(error))
    if any(_TORCH / "distributions" in Path(one.filename).parents for one in frames):
        return f"torch.distributions validates its arguments, which reads values; pass validate_args=False{where}"
    functions = {one.name for one in frames}
    meanings = [meaning for name, meaning in _FUNCTIONS.items() if name in functions]
    meanings += [meaning for part, meaning in _MEANINGS if part in first]
    if meanings:
        return f"the step cannot be traced as one fixed list of operations: {meanings[0]}{where}"
    return (
        f"the step cannot be traced as one fixed list of operations: {first}{where}; steps must not read "
        "values (.item(), if loss > …) and must use parameters of the modules given"
    )


def check_kinds(modules: Sequence[nn.Module], optimizers: Sequence[Any]) -> None:
    """Refuse modules and optimizers that are known not to work, before anything is traced."""
    for name, one in (pair for module in modules for pair in module.named_modules()):
        what = f"layer {name or 'of the model'} ({type(one).__name__})"
        if isinstance(one, (nn.Embedding, nn.EmbeddingBag)) and one.sparse and one.weight.requires_grad:
            raise CannotCapture(f"{what} has sparse=True: {_SPARSE}")
        if isinstance(one, torch.jit.ScriptModule):
            raise CannotCapture(f"{what} is compiled by TorchScript; pass the module that it was compiled from")
        if any(isinstance(p, nn.UninitializedParameter) for p in one._parameters.values()):
            raise PlanError(f"{what} has no parameters yet; call the model once on a batch before the step is made")
    for optimizer in optimizers:
        if isinstance(optimizer, torch.optim.SparseAdam):
            raise CannotCapture(f"SparseAdam takes sparse gradients only: {_SPARSE}")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise CannotCapture(
                "LBFGS calls the step several times and needs all parameters at once, which is not supported; use an "
                "optimizer that treats parameters one by one (SGD, Adam and others)"
            )


def compiled(modules: Sequence[nn.Module]) -> str:
    """Name the first module that was compiled with `torch.compile(module)` or `module.compile()`; "" if none was.

    A trace records the operations of a compiled module, not its kernels.
    """
    for name, one in (pair for module in modules for pair in module.named_modules()):
        if type(one).__name__ == "OptimizedModule" or one._compiled_call_impl is not None:
            inside = getattr(one, "_orig_mod", one)
            return f"layer {name} ({type(inside).__name__})" if name else f"the model ({type(inside).__name__})"
    return ""
