"""A kernel that only its own batch can reach: unix sockets in a private folder, no TCP port, nothing left behind."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_client import AsyncKernelManager
from traitlets import default


def private_kernels(folder: Path, on_start: Callable[[int], None]) -> type[AsyncKernelManager]:
    """A kernel manager class whose sockets lie under `folder`; `on_start` gets each kernel's pid.

    `folder` must be short: macOS allows a socket's path 103 bytes.

    papermill takes a class: given a manager *object*, it leaves the kernel running.
    """

    class PrivateKernelManager(AsyncKernelManager):
        @default("transport")
        def _default_transport(self) -> str:
            return "ipc"

        @default("ip")
        def _default_ip(self) -> str:
            # Jupyter appends "-<number>" for each channel's socket.
            self.sockets = tempfile.mkdtemp(prefix="k", dir=folder)
            return os.path.join(self.sockets, "s")

        async def _async_post_start_kernel(self, **kwargs: Any) -> None:
            await super()._async_post_start_kernel(**kwargs)
            on_start(self.provisioner.pid)

        async def _async_cleanup_resources(self, restart: bool = False) -> None:
            await super()._async_cleanup_resources(restart=restart)
            if not restart and hasattr(self, "sockets"):
                shutil.rmtree(self.sockets, ignore_errors=True)

    return PrivateKernelManager
