"""A real JupyterLab in a real Chromium: open a notebook, Run All Cells, read back every cell.

Nothing of the user's is touched: settings, kernels' files and workspaces live in a folder of their own, and the
browser can reach no address but 127.0.0.1.
"""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",  # containers have 64 MB there
    "--disable-domain-reliability",
    "--disable-gpu",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--no-first-run",
]

# Run All is lost when it is clicked before kernel and page have shaken hands, although the page looks idle by then.
# So wait for the document, the session and an answer from the kernel itself.
HANDSHAKE = """async () => {
  const widget = window.jupyterapp.shell.currentWidget;
  await widget.context.ready;
  await widget.sessionContext.ready;
  const kernel = widget.sessionContext.session.kernel;
  await kernel.info;
  await kernel.requestKernelInfo();
}"""

# The shared model, not the page: cells that are scrolled out of view are not in the page.
CELLS = """() => [...window.jupyterapp.shell.currentWidget.context.model.cells]
  .filter(cell => cell.type === 'code' && cell.sharedModel.source.trim())
  .map(cell => ({count: cell.executionCount, state: cell.executionState, outputs: cell.outputs.toJSON()}))"""

SETTLED = f"""() => {{
  const cells = ({CELLS})();
  const failed = cells.some(cell => cell.outputs.some(output => output.output_type === 'error'));
  const still = cells.every(cell => !cell.state || cell.state === 'idle');
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status;
  return still && kernel === 'idle' && (failed || cells.every(cell => cell.count));
}}"""

IDLE = ".jp-Notebook-ExecutionIndicator[data-status='idle']"


def missing() -> str | None:
    """Why no browser can be driven here, or None."""
    if browser() is None:
        return f"no Chromium here (looked for {', '.join(BROWSERS)}); on Debian: apt-get install chromium"
    try:
        import playwright  # noqa: F401
    except ModuleNotFoundError:
        return "playwright is not installed (it comes with labkit[dev])"
    return None


def browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@dataclass
class Cell:
    """One code cell after Run All."""

    count: int | None
    state: str | None
    outputs: list[dict[str, Any]]

    @property
    def error(self) -> str | None:
        return next((f"{o['ename']}: {o['evalue']}" for o in self.outputs if o["output_type"] == "error"), None)


@dataclass
class Lab:
    """A JupyterLab that runs, and the browser that looks at it."""

    url: str
    token: str
    chromium: Any

    def run_all(self, notebook: str, *, seconds: float = 180, picture: Path | None = None) -> list[Cell]:
        """Run every cell of `notebook` (a path below the server's root) in a fresh kernel.

        Returns the cells once all are counted and the kernel is idle, or once one has failed. Raises
        AssertionError that shows the cells when neither happens in `seconds`.
        """
        from playwright.sync_api import TimeoutError as TooLong

        limit = 1000 * seconds
        page = self.chromium.new_page(viewport={"width": 1280, "height": 900})
        try:
            page.set_default_timeout(limit)
            page.goto(f"{self.url}lab/tree/{notebook}?token={self.token}&reset")
            page.wait_for_function("window.jupyterapp?.shell.currentWidget?.context?.isReady")
            page.wait_for_selector(IDLE)
            page.evaluate(HANDSHAKE)
            page.wait_for_selector(IDLE)
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
            try:
                page.wait_for_function(SETTLED, polling=200)
            except TooLong:
                raise AssertionError(f"{notebook} did not settle in {seconds} s: {page.evaluate(CELLS)}") from None
            cells = [Cell(**cell) for cell in page.evaluate(CELLS)]
            if picture:
                page.screenshot(path=picture)
            page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        finally:
            page.close()
        return cells


@contextlib.contextmanager
def jupyterlab(root: Path, private: Path) -> Iterator[Lab]:
    """Serve `root` on a free port of 127.0.0.1, with settings and run-time files below `private`."""
    from playwright.sync_api import sync_playwright

    token = secrets.token_hex(16)
    with _server(root, private, token) as url, sync_playwright() as play:
        flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else FLAGS  # Chromium's sandbox refuses root
        chromium = play.chromium.launch(executable_path=browser(), args=flags)
        try:
            yield Lab(url, token, chromium)
        finally:
            chromium.close()


@contextlib.contextmanager
def _server(root: Path, private: Path, token: str) -> Iterator[str]:
    folders = {
        name: private / name.lower()
        for name in (
            "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
            "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR",
        )
    }  # fmt: skip
    quiet = folders["JUPYTERLAB_SETTINGS_DIR"] / "@jupyterlab" / "apputils-extension"
    quiet.mkdir(parents=True)
    # The question about Jupyter news would lie over the page.
    (quiet / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0",
        f"--ServerApp.root_dir={root}", f"--IdentityProvider.token={token}", "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.extension_manager=readonly",
        "--LabApp.expose_app_in_browser=True",
    ]  # fmt: skip
    environment = {**os.environ, **{k: str(v) for k, v in folders.items()}, "JUPYTER_PREFER_ENV_PATH": "1"}
    log = private / "server.log"
    with open(log, "wb") as out:
        server = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield _address(server, folders["JUPYTER_RUNTIME_DIR"], log)
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _address(server: subprocess.Popen, runtime: Path, log: Path, seconds: float = 120) -> str:
    told = runtime / f"jpserver-{server.pid}.json"
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(OSError, ValueError):  # not there yet, or half written
            return json.loads(told.read_text())["url"]
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start: {log.read_text()[-2000:]}")
