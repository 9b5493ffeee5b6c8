"""A Python that has its libraries imported, and forks for each script that a test runs.

Dozens of scripts run for a second each, and a Python that begins takes three to import torch and
the rest. What a script imports of this project it imports itself, from the copy it stands in.

    python -S tests/warm.py SOCKET SCRIPT ARGUMENT …

does what ``python SCRIPT ARGUMENT …`` does, with this process's folder, environment and streams; a
signal that ends or stops it reaches the script. A Python that a script's ``multiprocessing`` would
begin is forked from the script.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time

LIBRARIES = (
    "torch", "torch._dynamo", "torch.utils.tensorboard", "torch.utils.flop_counter", "datasets",
    "tokenizers", "hydra", "hydra.core.config_store", "matplotlib.backends.backend_agg", "pandas",
    "scipy.stats", "sacrebleu", "jinja2", "rich.progress", "tensorboard.summary",
)  # fmt: skip


def ask(address: str, arguments: list[str]) -> int:
    """Have a script run; its exit status, negative where a signal ended it."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        asked = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
        message = json.dumps(asked).encode()
        socket.send_fds(server, [len(message).to_bytes(8, "little")], [0, 1, 2])
        server.sendall(message)
        answer = server.makefile("r")
        script = int(answer.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(script, number))
        return int(answer.readline())


def serve(address: str) -> list[str]:
    """Fork for whoever asks; returns in the child alone, with what it shall run.

    Ends with the process that began it, however that ends.
    """
    parent = os.getppid()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{address}.new")
        listening.listen(64)
        os.rename(f"{address}.new", address)  # by which it is known that somebody listens
        for name in LIBRARIES:
            with contextlib.suppress(ModuleNotFoundError):  # one that a fork has done without
                __import__(name)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those below
        listening.settimeout(1.0)
        while True:
            try:
                asking, _ = listening.accept()
            except TimeoutError:
                if os.getppid() != parent:
                    os._exit(0)
                continue
            if not os.fork():
                break
            asking.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, *_ = socket.recv_fds(asking, 8, 3)
    message = asking.makefile("rb").read(int.from_bytes(size, "little"))
    child = os.fork()
    if child:
        asking.sendall(f"{child}\n".encode())
        ended = 0
        while not ended:
            if select.select([asking], [], [], 0.02)[0]:
                os.kill(child, signal.SIGKILL)  # as who asked was
            ended, status = os.waitpid(child, os.WNOHANG)
        with contextlib.suppress(OSError):
            asking.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    asking.close()
    asked = json.loads(message)
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    return asked["arguments"]


def forked(path: object, arguments: list[str], kept: list[int]) -> int:
    """In place of ``multiprocessing.util.spawnv_passfds``: this process's copy runs the code.

    A lock that another thread holds stays locked in a copy for ever. compare.py imports its report
    in a thread, whose modules are locked so long: that thread is waited for. Where one stays, the
    code is run as multiprocessing would.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(10)
    if threading.active_count() > 1:
        return spawn(path, arguments, kept)
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number in map(int, os.listdir("/dev/fd")):
            if number > 2 and number not in kept:
                with contextlib.suppress(OSError):
                    os.close(number)
        sys.argv = ["-c", *arguments[arguments.index("-c") + 2 :]]
        exec(arguments[arguments.index("-c") + 1], {"__name__": "__main__"})
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else end.code is not None
    finally:
        os._exit(status)


def started(folder: str) -> "subprocess.Popen[bytes]":  # noqa: F821
    """A server that lives as long as this process does; its address is its last argument."""
    import subprocess  # not by those who ask: it takes as long as all that they do

    address = os.path.join(folder, "warm")
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    server = subprocess.Popen(
        [sys.executable, __file__, address], env={**alone, "OMP_NUM_THREADS": "1"}, cwd=folder
    )
    while not os.path.exists(address):
        if server.poll() is not None:
            raise RuntimeError(f"{__file__} ended with {server.returncode}")
        time.sleep(0.01)
    return server


if __name__ == "__main__":
    if len(sys.argv) > 2:
        status = ask(sys.argv[1], sys.argv[2:])
        if status < 0:
            with contextlib.suppress(OSError):  # SIGKILL has no other
                signal.signal(-status, signal.SIG_DFL)
            os.kill(os.getpid(), -status)
        sys.exit(status)
    import multiprocessing.util
    import runpy

    here = sys.path[0]
    script, *rest = serve(sys.argv[1])
    spawn = multiprocessing.util.spawnv_passfds
    multiprocessing.util.spawnv_passfds = forked
    sys.argv = [script, *rest]
    script = os.path.abspath(script)
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [os.path.dirname(script), *paths, *(path for path in sys.path if path != here)]
    runpy.run_path(script, run_name="__main__")
