"""The job of docs/cluster.md as written: it goes through `ray job submit` to a cluster with a token."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import stretto as st

pytest.importorskip("zmq", reason="the extra stretto[cluster] is not installed")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
FENCED = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
RAY = [sys.executable, "-m", "ray.scripts.scripts"]


def block(language: str, word: str) -> str:
    """The only block of a language that has a word in it."""
    (found,) = [text for kind, text in FENCED.findall(PAGE) if kind == language and word in text]
    return str(found)


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0", **more}


def test_the_job_of_kubernetes_is_the_one_that_is_submitted() -> None:
    yaml = pytest.importorskip("yaml", reason="no YAML reader is installed")
    job = yaml.safe_load(block("yaml", "RayJob"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    python, script, nodes, threads = spec["entrypoint"].split()
    assert python == "python"
    assert Path(script).name == block("python", "# job.py").split()[1]
    submitted = block("bash", "ray job submit").split(" -- ")[1].split()
    assert [submitted[0], submitted[1]] == ["python", Path(script).name]
    cluster = spec["rayClusterSpec"]
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert head["rayStartParams"] == {"num-cpus": "0"}
    assert int(nodes) == workers["replicas"] <= workers["maxReplicas"]
    for group in (head, workers):
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
    assert workers["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] == threads


# -- a Ray cluster with a token ---------------------------------------------------------------------------------------


class Head:
    """`ray start --head` in a folder of its own; ended by its process numbers, for others may run Ray here too."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="st", dir="/tmp")  # short: paths of sockets have 107 letters at most
        self.port, self.board = free_port(), free_port()
        self.environment = environment(
            RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(24), RAY_TMPDIR=self.folder
        )

    def start(self) -> None:
        words = f"start --head --port {self.port} --temp-dir {self.folder} --num-cpus 2 --dashboard-port {self.board}"
        done = self.run([*words.split(), "--include-dashboard", "true", "--dashboard-host", "127.0.0.1"])
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, words: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*RAY, *words], env=self.environment, capture_output=True, text=True, timeout=240, check=False, **more
        )

    def processes(self, word: str = "") -> list[int]:
        """Those that were started for this folder, with a word in what they were started with."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (entry / "cmdline").read_text()
                if self.folder in words and word in words:
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'stretto[cluster]'")
    if find_spec("aiohttp_cors") is None or find_spec("opencensus") is None:
        pytest.skip("Ray takes in no jobs here: pip install 'ray[default]'")
    made = Head()
    try:
        made.start()
        yield made
    finally:
        made.close()


SMALLER = ("1_000_000, 6_000, 4_000", "60_000, 900, 700")


@pytest.mark.timeout(400)
def test_the_job_of_the_page_runs_through_ray_job_submit(head: Head, tmp_path: Path) -> None:
    script = block("python", "# job.py")
    assert SMALLER[0] in script
    saved = tmp_path / "model.safetensors"
    script = script.replace(*SMALLER).replace("/tmp/model.safetensors", str(saved))
    (tmp_path / "job.py").write_text(script, encoding="utf-8")
    words = block("bash", "ray job submit").split()
    assert words[:3] == ["ray", "job", "submit"]
    address = words.index("--address") + 1
    words[address] = f"http://127.0.0.1:{head.board}"
    program = words.index("--") + 1
    words[program:] = [sys.executable, words[program + 1], "2", "1"]
    done = head.run(words[1:], cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "succeeded" in said
    error = float(re.findall(r"rmse ([\d.]+)", said)[-1])
    here = st.MatrixFactorization(n_components=32, random_state=0, runtime=st.Threads(2))
    here.fit(st.generate_ratings(60_000, 900, 700).data)
    there = st.MatrixFactorization.load(saved)
    assert (there.user_factors_ == here.user_factors_).all()
    assert 0 < error < 1


ASK = """
import json, sys, warnings
from stretto.runtime.cluster.hosts.ray_address import found
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    print(json.dumps([found("auto"), [str(one.message) for one in said]]))
"""


def ask(head: Head) -> tuple[str, list[str]]:
    words = [sys.executable, "-c", ASK]
    done = subprocess.run(words, env=head.environment, capture_output=True, text=True, timeout=60, check=True)
    address, said = json.loads(done.stdout)
    return address, said


def test_a_cluster_of_this_machine_is_found_while_it_is_there(head: Head) -> None:
    """The last test: it ends the cluster."""
    address, said = ask(head)
    assert address.endswith(f":{head.port}")
    assert said == []
    (server,) = head.processes("gcs_server")
    os.kill(server, signal.SIGKILL)
    address, said = ask(head)
    assert not address.endswith(f":{head.port}")
    assert any(f":{head.port} (Connection refused)" in text for text in said) or address
