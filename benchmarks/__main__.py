"""`python -m benchmarks [NAME ...]`: run the named ones, by default all. Exit 0 when all ran, whatever they say."""

import argparse
import sys
from collections.abc import Callable

from benchmarks import bus_peers, quickness
from labkit.errors import LabkitError

BENCHMARKS: dict[str, Callable[[], None]] = {"bus_peers": bus_peers.main, "quickness": quickness.main}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"{', '.join(BENCHMARKS)} [default: all]")
    names = parser.parse_args(arguments).name
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}: choose from {', '.join(BENCHMARKS)}")
    status = 0
    for name in names or BENCHMARKS:
        try:
            BENCHMARKS[name]()
        except LabkitError as error:
            print(f"benchmarks: {name} did not run: {error}", file=sys.stderr)
            status = error.exit_code
    return status


if __name__ == "__main__":
    sys.exit(main())
