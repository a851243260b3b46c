"""Measure and record: the sweep under the machine's measuring lock, its run file, and the run read back."""

from pathlib import Path

from labkit import lock, records
from labkit.bus.prepare import Settings, prepare
from labkit.bus.sweep import Progress, sweep
from labkit.errors import Refused
from labkit.records import Run


def take(settings: Settings, data_dir: Path, progress: Progress) -> Run:
    """Measure this machine's bus reach and write the run under `data_dir`.

    An interrupted sweep is kept as a partial run when it holds at least one whole repeat. Raises Refused when
    another measurement is running or nothing could be kept, and what sweep and records.write raise.
    """
    prepared = prepare(settings)  # a mistake is told at once, also while another measurement is running
    records.check_folder(data_dir, prepared.here.chip.value or "unknown")
    with lock.measuring_lock():
        measured = sweep(prepared, progress)
    if not measured.rows:
        raise Refused(
            f"nothing was measured ({measured.reason}): not one repeat was whole"
            if measured.reason
            else "nothing was measured: the workers never worked at the same time; use a quieter machine"
        )
    path = records.write(
        data_dir,
        measured.header,
        measured.rows,
        "partial" if measured.reason else "complete",
        measured.state_after,
        measured.reason,
    )
    # Read back: what is reported is what is on the disk.
    return records.read_run(path)
