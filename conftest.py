"""Leave out doctests of modules whose optional packages are not installed."""

from __future__ import annotations

from importlib.util import find_spec

# package: the modules that cannot be imported without it
NEEDED = {
    "torch": "src/stretto/memory/*",
    "transformers": "src/stretto/memory/integrations/transformers.py",
    "lightning": "src/stretto/memory/integrations/lightning.py",
    "zmq": "src/stretto/runtime/cluster/*",
    "cloudpickle": "src/stretto/runtime/cluster/*",
    "ray": "src/stretto/runtime/cluster/hosts/ray_fleet.py",
}
collect_ignore_glob = [pattern for package, pattern in NEEDED.items() if find_spec(package) is None]
