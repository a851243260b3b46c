"""The GPU's side of the bus: MLX reductions and maps over operands larger than any cache, results checked."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.errors import NotAvailable
from labkit.windows import Opener, Step

if TYPE_CHECKING:
    import mlx.core as mx

OPERAND_BYTES = 4 * 2**30
# Operands read and written per element. Published figures use these four shapes; the read-only ones lead.
OPS: dict[str, tuple[int, int]] = {"sum": (1, 0), "max": (1, 0), "a+b": (2, 1), "a*2": (1, 1)}


def available() -> bool:
    """Whether this machine has a GPU that MLX drives (Metal); loads MLX only on macOS."""
    if sys.platform != "darwin":
        return False
    try:
        import mlx.core as mx
    except ImportError:
        return False
    return mx.metal.is_available()


def require() -> None:
    """Raise NotAvailable where there is no GPU to measure."""
    if not available():
        raise NotAvailable("MLX finds no GPU here: leave out --gpu")


def operand_bytes(memory_limit: int | None) -> int:
    """Bytes of one operand: 4 GiB, or what leaves three of them within an eighth of the memory."""
    if memory_limit is None:
        return OPERAND_BYTES
    return min(OPERAND_BYTES, memory_limit // 8 // 3 // 2**20 * 2**20)


class GpuBench:
    """Operands on one MLX device, and how many results were wrong.

    int32 operands, because their sum is exact modulo 2**32 in any order, so that every element's load shows.
    """

    def __init__(self, operand: int, seed: int, device: "mx.Device | None" = None) -> None:
        import mlx.core as mx
        import numpy

        self.device = device or mx.Device(mx.gpu)
        self.wrong = 0
        self.operand = operand
        count = operand // 4
        # Small blocks from numpy, put together: content by seed on every device, and its sum known exactly.
        random = numpy.random.default_rng(seed)
        block = random.integers(-(2**31), 2**31, min(count, 2**22), numpy.int32)
        repeats, rest = divmod(count, len(block))
        with mx.stream(self.device):
            part = mx.array(block)
            self._a = mx.concatenate([*([part] * repeats), part[:rest]])
            self._b = mx.add(self._a, 1)  # memory of its own: a + a would read one operand
            mx.eval(self._a, self._b)
        total = int(block.sum(dtype=numpy.int64)) * repeats + int(block[:rest].sum(dtype=numpy.int64))
        self._expected = {"sum": _int32(total), "max": int(block.max())}
        self._sum_of = {"a+b": _int32(2 * total + count), "a*2": _int32(2 * total)}

    def opener(self, op: str) -> Opener:
        """Opens `op` in the calling thread, on the device's stream there: MLX streams belong to their threads.

        Reductions are checked at every call, maps once a window, by the exact sum of what they wrote.
        """
        reads, writes = OPS[op]

        def open_here() -> Step:
            import mlx.core as mx

            a, b, on = self._a, self._b, self.device
            apply: dict[str, Callable[[], Any]] = {
                "sum": lambda: mx.sum(a, stream=on),
                "max": lambda: mx.max(a, stream=on),
                "a+b": lambda: mx.add(a, b, stream=on),
                "a*2": lambda: mx.multiply(a, 2, stream=on),
            }
            expected = self._expected.get(op)

            def step() -> int:
                result = apply[op]()
                mx.eval(result)
                if expected is not None and result.item() != expected:
                    self.wrong += 1
                return self.operand * (reads + writes)

            # The first call also compiles, and ramps the clock, before anybody counts.
            if op in self._sum_of and mx.sum(apply[op](), stream=on).item() != self._sum_of[op]:
                self.wrong += 1
            step()
            return step

        return open_here


def _int32(value: int) -> int:
    """Modulo 2**32, as int32 sums wrap."""
    return (value + 2**31) % 2**32 - 2**31
