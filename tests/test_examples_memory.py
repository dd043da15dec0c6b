"""The examples of training under a budget: fine-tuning of a whole model, and of adapters beside a frozen one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch

from examples_run import EXAMPLES, load

pytestmark = pytest.mark.usefixtures("one_torch_thread")
SIZES = {"width": 32, "layers": 1, "length": 32, "batch": 4, "steps": 16, "every": 8, "budget": "70%"}
SMALL = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return load("finetune_llama"), load("finetune_lora")


@pytest.mark.slow
def test_fine_tuning_learns_under_a_budget_and_adapters_go_on_from_there(
    programs: tuple[Any, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, adapters = programs
    first = whole.main([*SMALL, "--lr", "0.01", "--out", str(tmp_path / "first.pt")])
    said = capsys.readouterr().out
    assert "held-out" in said
    assert "copies to the host" in said
    assert first[-1][1] < first[0][1] < 5.0
    second = adapters.main([*SMALL, "--start", str(tmp_path / "first.pt"), "--out", str(tmp_path / "adapters.pt")])
    assert "of the parameters are trained" in capsys.readouterr().out
    assert second[-1][1] < first[-1][1]
    saved = torch.load(tmp_path / "adapters.pt")
    assert len(saved) == 8
    assert all(name.endswith((".a", ".b")) for name in saved)


def test_the_model_is_causal_and_adapters_change_nothing_at_first(programs: tuple[Any, Any]) -> None:
    torch.manual_seed(0)
    model = programs[0].Llama(length=16)
    tokens = torch.randint(0, 256, (2, 16))
    changed = tokens.clone()
    changed[:, 9:] = 0
    with torch.no_grad():
        before = model(tokens)
        torch.testing.assert_close(before[:, :9], model(changed)[:, :9])
        torch.testing.assert_close(before, programs[1].adapt(model, 4)(tokens))
    assert {name.split(".")[-1] for name, p in model.named_parameters() if p.requires_grad} == {"a", "b"}


def test_plans_are_drawn_without_memory(
    programs: tuple[Any, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for k, program in enumerate(programs):
        picture = tmp_path / f"{k}.png"
        program.main([*SMALL, "--width", "4096", "--length", "512", "--bf16", "--draw", str(picture)])
        assert picture.stat().st_size > 10_000
        assert "iB on the device" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("program", ["finetune_llama", "finetune_lora"])
def test_programs_run_from_the_shell(program: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{program}.py")]
    done = subprocess.run([*command, "--help"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"python examples/{program}.py --" in done.stdout
    done = subprocess.run([*command, *SMALL], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("held-out") == 2
