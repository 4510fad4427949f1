"""trot commands in processes of their own that something kills: each is forked, so that PyTorch is imported once."""

import json
import subprocess
import sys

FORKING = """
import json, os, sys, time
import torch
from trot.cli import main

torch.set_num_threads(1)
# All that a command imports, builds and loads is there before it is forked.
main(json.loads(sys.argv[1]))
print("ready", flush=True)

for line in sys.stdin:
    arguments, seconds, number = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 130
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1), os.dup2(nowhere, 2)
            code = main(arguments)
        except SystemExit as end:
            code = end.code
        finally:
            os._exit(code)
    began = time.monotonic()
    if number:
        time.sleep(seconds)
        os.kill(child, number)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, time.monotonic() - began]), flush=True)
"""


class KilledTrot:
    """Runs commands one after the other, first one that nothing kills. Use it as a context."""

    def __init__(self, first):
        self._first = first

    def __enter__(self):
        command = [sys.executable, "-c", FORKING, json.dumps(self._first)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while self._process.stdout.readline() not in ("ready\n", ""):
            pass
        return self

    def __exit__(self, *raised):
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def run(self, arguments, seconds=0.0, number=0):
        """The command's exit code and how long it took. After so many seconds it gets the signal, unless that is 0."""
        self._process.stdin.write(json.dumps([arguments, seconds, int(number)]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())
