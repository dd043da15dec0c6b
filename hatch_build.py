"""The wheel's name: one that ships compiled kernels is for one version of Python on one platform, another for all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Looks whether `make wheel` has compiled kernels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Give the wheel the tag of this Python where kernels are in it; editable installations ship nothing."""
        shipped = Path(self.root) / "src" / "stretto" / "kernels" / "compiled"
        if version == "editable" or not any(shipped.rglob("*.bin")):
            return
        # Numba's compiled code is position independent and takes from the C library what Numba itself takes.
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["pure_python"] = False
        build_data["tag"] = f"{python}-{python}-manylinux_2_17_x86_64"
