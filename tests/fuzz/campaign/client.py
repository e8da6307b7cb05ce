"""The function that workers of a cluster call: each has a server, a process of its own, which it keeps from task to task."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[3]
_OWN = threading.local()  # a server per thread, because some clusters have several threads per process


def run(request: dict[str, Any]) -> dict[str, Any]:
    """The reply of the server; its key `error` is there if the part cannot be used, `ended` if the server has ended."""
    server = getattr(_OWN, "server", None)
    if server is None or server.poll() is not None:
        server = _OWN.server = _started()
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        line = server.stdout.readline()
    except OSError:
        line = ""
    except BaseException:  # the worker is to end
        server.kill()
        raise
    if not line:
        server.kill()
        return {"ended": server.wait()}
    answer = json.loads(line)
    assert isinstance(answer, dict)
    return answer


def close() -> None:
    """End the server of this thread."""
    server = getattr(_OWN, "server", None)
    if server is not None:
        server.stdin.close()
        server.wait()
        _OWN.server = None


def _started() -> subprocess.Popen[str]:
    paths = [str(_ROOT), str(_ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "LAYOUTOPT_NO_MEASURE": "1",  # outcomes do not depend on the speed of the machine
        "PYTHONHASHSEED": "0",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "fuzz.campaign.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        cwd=_ROOT,
        text=True,
    )
