"""A worker process: runs one notebook after another for the batch that started it, and never outlives it.

Jobs come in on standard input, messages go out on standard output. When standard input ends, the batch is gone,
however it went: the worker kills its kernel and itself.
"""

import contextlib
import os
import queue
import threading
from pathlib import Path

import msgspec
import psutil

from labkit.batch.execute import execute
from labkit.batch.messages import Job, Message


def main() -> None:
    """Work until standard input ends."""
    jobs_in, messages_out = os.dup(0), os.dup(1)
    # What the kernel or a library prints must not end up between the messages.
    os.dup2(2, 1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)

    def send(message: Message) -> None:
        line = msgspec.json.encode(message) + b"\n"
        while line:
            line = line[os.write(messages_out, line) :]

    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs_in, jobs), daemon=True).start()
    sockets = Path(os.environ["JUPYTER_RUNTIME_DIR"])
    while True:
        send(execute(jobs.get(), sockets, send))


def _listen(jobs_in: int, jobs: "queue.SimpleQueue[Job]") -> None:
    try:
        with open(jobs_in, "rb") as lines:
            for line in lines:
                jobs.put(msgspec.json.decode(line, type=Job))
    finally:
        _end()


def _end() -> None:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    os._exit(1)
