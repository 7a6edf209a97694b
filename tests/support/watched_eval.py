"""eval.py, whose process records the code files that it opens after a worker's first request.

python -m nogpu tests/support/watched_eval.py FILE EVAL_ARGUMENTS...
"""

import atexit
import json
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = (".py", ".pyc", ".so", ".pth", ".zip")

sys.path.insert(0, str(ROOT))
output, sys.argv[:] = open(sys.argv[1], "w"), [str(ROOT / "eval.py"), *sys.argv[2:]]

from harness.worker import WorkerProcess  # noqa: E402

asked, found = [], []


def ask(process, request, *arguments):
    asked.append(type(request).__name__)
    return original(process, request, *arguments)


def watch(event, arguments):
    if asked and (
        event in ("import", "ctypes.dlopen", "marshal.loads", "compile")
        or (event == "open" and str(arguments[0]).endswith(CODE))
    ):
        found.append(f"{event} {arguments[0]!r:.100} after {asked[-1]}")


original, WorkerProcess.ask = WorkerProcess.ask, ask
sys.addaudithook(watch)
atexit.register(lambda: (json.dump([asked, found], output), output.close()))
runpy.run_path(sys.argv[0], run_name="__main__")
