"""Worker processes, seen from the batch: each runs one job at a time, and a worker that dies fails that job only."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from labkit.batch.messages import AtCell, Job, Kernel, Message, Result
from labkit.batch.scratch import environment, scratch
from labkit.project import PACKAGE

# Not -m: the worker must be of the labkit that is running now, wherever that was imported from.
_START = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); from labkit.batch.worker import main; main()"
_PATIENCE_S = 5.0  # for a worker to end by itself once its input has ended


def run(jobs: Iterable[Job], workers: int) -> Iterator[tuple[Job, Message]]:
    """Run all jobs, `workers` at a time; yields what happens to each, a Result last.

    Workers and kernels end with this process, however it ends: a worker's input is a pipe that only this process
    holds open.
    """
    waiting = deque(jobs)
    with scratch() as folder, selectors.DefaultSelector() as ready, contextlib.ExitStack() as started:
        count = 0
        busy: set[Worker] = set()
        idle: list[Worker] = []
        while waiting or busy:
            while waiting and len(busy) < workers:
                if not idle:
                    count += 1
                    idle.append(started.enter_context(contextlib.closing(Worker(folder, count))))
                    ready.register(idle[-1].output, selectors.EVENT_READ, idle[-1])
                worker = idle.pop()
                worker.start(waiting.popleft())
                busy.add(worker)
            for found, _ in ready.select():
                worker = found.data
                for message in worker.messages():
                    yield worker.job, message
                    if isinstance(message, Result):
                        busy.discard(worker)
                        if worker.alive:
                            idle.append(worker)
                if not worker.alive:
                    ready.unregister(worker.output)
                    idle = [other for other in idle if other is not worker]


class Worker:
    """One worker process."""

    def __init__(self, folder: Path, number: int) -> None:
        self.alive = True
        self.job: Job | None = None
        self._folder = folder
        self._log = folder / f"worker-{number}.log"
        self._kernel: int | None = None
        self._at: AtCell | None = None
        self._begun = 0.0
        self._rest = b""
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(folder),
                start_new_session=True,  # Ctrl-C is for the batch, which then ends its workers
            )
        self.output = self._process.stdout

    def start(self, job: Job) -> None:
        """Hand over a job."""
        self.job, self._kernel, self._at, self._begun = job, None, None, time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it has died: messages() will say so
            self._process.stdin.write(msgspec.json.encode(job) + b"\n")
            self._process.stdin.flush()

    def messages(self) -> Iterator[Message]:
        """What it has said since the last time; if it has died at work, the result is that the job failed."""
        content = os.read(self.output.fileno(), 1 << 16)
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in lines:
            message = msgspec.json.decode(line, type=Message)
            match message:
                case Kernel(pid=pid):
                    self._kernel = pid
                case AtCell():
                    self._at = message
                case Result():
                    yield message
                    self.job = None
                    continue
            yield message
        if not content:
            self.alive = False
            self._process.wait()
            self._end_kernel()
            if self.job is not None:
                yield self._lost(self.job)

    def _lost(self, job: Job) -> Result:
        status = self._process.returncode
        if status < 0:
            why = f"its worker process was killed ({signal.Signals(-status).name})"
        else:
            said = self._log.read_text(errors="replace").strip().splitlines()
            why = f"its worker process ended with status {status}: {said[-1] if said else 'it said nothing'}"
        cell, line = (self._at.cell, self._at.line) if self._at else (None, None)
        return Result(job.notebook, job.chip, "failed", round(time.monotonic() - self._begun, 3), why, cell, line)

    def _end_kernel(self) -> None:
        """Kill a kernel that has lost its worker; it would notice by itself only a second later."""
        if self._kernel is None:
            return
        import psutil

        try:
            # The pid may have passed on: our kernel's command line names its connection file in our folder.
            if any(str(self._folder) in word for word in psutil.Process(self._kernel).cmdline()):
                os.killpg(self._kernel, signal.SIGKILL)
        except (psutil.Error, ProcessLookupError, PermissionError):
            pass

    def close(self) -> None:
        """End the worker and whatever it is running."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._end_kernel()
        self.output.close()
