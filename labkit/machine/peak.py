"""The peak rate of the memory bus: listed for Apple chips, from the memory modules elsewhere, or declared.

It is never guessed from a similar name: two bins of one brand string have different buses.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from labkit.errors import BadInput
from labkit.machine.facts import Fact
from labkit.machine.sources import Run, Unknown, shown
from labkit.project import reference_dir
from labkit.records import read_chips

DECLARE = "pass --peak-gbs if you know it"


class Bin(NamedTuple):
    """One line of chips.csv: a chip is its brand string and its GPU cores. None: the line does not say."""

    chip: str
    cpu_cores: int | None
    gpu_cores: int | None
    gb_per_s: float | None
    source: str


def bus_peak(
    chip: str | None,
    gpu_cores: int | None,
    cpu_cores: int | None,
    declared: float | None,
    reference: Path | None = None,
) -> Fact[float]:
    """Bus peak in GB/s (1e9 bytes/s) of a chip listed in chips.csv of `reference` (default: data/reference).

    `cpu_cores` (all tiers together) tells bins apart where GPU cores are unknown. `declared` wins over the
    list; raises BadInput unless it is a positive number. Everything else that is wrong gives an unknown Fact.
    """
    if declared is not None:
        if not (math.isfinite(declared) and declared > 0):
            raise BadInput(f"--peak-gbs is {declared}: give the bus peak in GB/s as a number above 0")
        return Fact(float(declared), "declared by --peak-gbs")
    try:
        return Fact(*_listed_peak(chip, gpu_cores, cpu_cores, read_bins(reference)))
    except Unknown as why:
        return Fact(None, f"{why}; {DECLARE}")


def _listed_peak(chip: str | None, gpu_cores: int | None, cpu_cores: int | None, bins: list[Bin]) -> tuple[float, str]:
    if chip is None:
        raise Unknown("the chip is unknown")
    candidates = [b for b in bins if b.chip == chip]
    if not candidates:
        raise Unknown(f"{chip} is not listed in chips.csv")
    if gpu_cores is not None:
        known_bins = ", ".join(sorted({str(b.gpu_cores) for b in candidates if b.gpu_cores}))
        candidates = [b for b in candidates if b.gpu_cores == gpu_cores]
        if not candidates:
            raise Unknown(f"chips.csv lists {chip} with {known_bins} GPU cores, not with {gpu_cores}")
    if len({b.gb_per_s for b in candidates}) > 1 and cpu_cores is not None:
        candidates = [b for b in candidates if b.cpu_cores == cpu_cores] or candidates
    peaks = {b.gb_per_s for b in candidates}
    if len(peaks) > 1:
        listed = " or ".join(
            "a bus not listed" if b.gb_per_s is None else f"{b.gb_per_s:g} GB/s ({b.gpu_cores} GPU cores)"
            for b in candidates
        )
        raise Unknown(f"{chip} has {listed}, and this machine's GPU cores are unknown")
    peak = peaks.pop()
    if peak is None:
        raise Unknown(f"chips.csv lists {chip} with {candidates[0].gpu_cores} GPU cores without a bus peak")
    return peak, f"chips.csv: {candidates[0].source}"


def read_bins(reference: Path | None = None) -> list[Bin]:
    """The lines of chips.csv in `reference`. Raises Unknown when it is missing or damaged."""
    reference = reference or reference_dir()
    try:
        lines = read_chips(reference)
    except BadInput as error:
        said = str(error).replace(f"{reference}/", "")  # a record holds no paths
        raise Unknown(f"chips.csv cannot be used: {said}") from None
    return [
        Bin(
            chip=line.chip,
            cpu_cores=line.cpu_p_cores + line.cpu_e_cores,
            gpu_cores=line.gpu_cores,
            gb_per_s=line.bus_peak_gb_per_s,
            source=line.source,
        )
        for line in lines
    ]


# Memory modules, as dmidecode -t 17 prints them (SMBIOS type 17). What names a channel is a vendor's habit, so
# only the habits below count; slots are never taken for channels.
CHANNEL = re.compile(r"(?<![A-Z])(?:CHANNEL|CHAN|CH)[\s_\-#]*([A-Z]|\d{1,2})(?![A-Z0-9])")
SOCKET = re.compile(r"(?<![A-Z])(P|CPU|PROC|PROCESSOR|SOCKET|NODE|CONTROLLER|MC|IMC|DIE)[\s_\-#]*(\d{1,2})(?![0-9])")
DIMM_LETTER = re.compile(r"DIMM[\s_\-]*(?:P\d[\s_\-]*)?([A-L])\d{0,2}(?![A-Z0-9])")  # DIMM_A1, P1-DIMMA1
MODULES = ("DIMM", "SODIMM")
CHANNEL_BITS = 64


def dmidecode_peak(run: Run) -> tuple[float, str]:
    """(GB/s, source) from dmidecode, which needs root. Raises Unknown when it does not tell."""
    try:
        return memory_peak(run(["dmidecode", "-t", "17"]))
    except Unknown as why:
        raise Unknown(f"{why}; {DECLARE}") from None


def memory_peak(text: str) -> tuple[float, str]:
    """Populated channels x configured transfers/s x channel width, from the text of `dmidecode -t 17`.

    A channel runs at the rate of its slowest module. Its width is 8 bytes, or what soldered memory says.
    Raises Unknown when a channel, a rate or a width cannot be told.
    """
    channels: dict[tuple[str, ...], list[tuple[float, int]]] = {}
    for module in memory_devices(text):
        size = module.get("Size", "")
        if size == "No Module Installed" or module.get("Type") in ("Flash", "ROM", "EEPROM"):
            continue
        if not re.fullmatch(r"[1-9][0-9]* ?[kKMGT]i?B", size):
            raise Unknown(f"dmidecode -t 17: a module's size is {shown(size)}")
        channels.setdefault(channel(module), []).append((transfers_per_s(module), width_bits(module)))
    if not channels:
        raise Unknown("dmidecode -t 17 lists no memory module")
    if len({key[0] for key in channels}) > 1:
        raise Unknown("dmidecode -t 17: modules name their channels in different ways")
    peak = 0.0
    for modules in channels.values():
        widths = {bits for _, bits in modules}
        if len(widths) > 1 or (len(modules) > 1 and widths != {CHANNEL_BITS}):
            raise Unknown("dmidecode -t 17: parts of one channel are narrower than 64 bits")
        peak += min(rate for rate, _ in modules) * widths.pop() / 8
    count = sum(len(modules) for modules in channels.values())
    rates = sorted({rate / 1e6 for modules in channels.values() for rate, _ in modules})
    shown_rates = "/".join(f"{rate:g}" for rate in rates)
    return peak / 1e9, f"dmidecode -t 17: {len(channels)} channels ({count} modules) at {shown_rates} MT/s"


def memory_devices(text: str) -> Iterator[dict[str, str]]:
    """The fields of each "Memory Device" block."""
    for block in re.split(r"^(?=Handle 0x)", text, flags=re.MULTILINE):
        lines = block.splitlines()
        if len(lines) > 1 and lines[1].strip() == "Memory Device":
            pairs = (line.strip().partition(":") for line in lines[2:])
            yield {key: value.strip() for key, colon, value in pairs if colon}


def channel(module: dict[str, str]) -> tuple[str, ...]:
    """A key that modules of one channel share: the habit by which it was told, sockets or controllers, channel."""
    places = [module.get("Bank Locator", "").upper(), module.get("Locator", "").upper()]
    sockets = tuple("".join(found) for place in places for found in SOCKET.findall(place))
    for habit, pattern, texts in (("channel", CHANNEL, places), ("DIMM letter", DIMM_LETTER, places[1:])):
        for place in texts:
            if found := pattern.search(place):
                return (habit, *sockets, found[1])
    raise Unknown(
        f"dmidecode -t 17: the channel of module {shown(module.get('Locator', ''))} cannot be told"
        " (slots are not channels)"
    )


def transfers_per_s(module: dict[str, str]) -> float:
    """The configured rate. Old dmidecode wrote MHz for the same number of transfers."""
    configured = module.get("Configured Memory Speed") or module.get("Configured Clock Speed") or ""
    found = re.fullmatch(r"([1-9][0-9]*) (?:MT/s|MHz)", configured)
    if not found:
        raise Unknown(f"dmidecode -t 17: a module's configured speed is {shown(configured)}")
    rate = int(found[1])
    rated = re.fullmatch(r"([1-9][0-9]*) (?:MT/s|MHz)", module.get("Speed", ""))
    if rated and abs(2 * rate - int(rated[1])) <= 2:
        # Some firmware puts the clock here, which is half the transfers.
        raise Unknown(
            f"dmidecode -t 17: a module rated {rated[1]} MT/s is configured at half of it: a clock or a rate?"
        )
    return rate * 1e6


def width_bits(module: dict[str, str]) -> int:
    """Data bits (without ECC) of a module, or of a soldered part."""
    found = re.fullmatch(r"(16|32|64) bits", module.get("Data Width", ""))
    if found:
        return int(found[1])
    if module.get("Form Factor") in MODULES:
        return CHANNEL_BITS
    raise Unknown(f"dmidecode -t 17: the data width of a part is {shown(module.get('Data Width', ''))}")
