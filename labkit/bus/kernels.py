"""The stream kernels: LLVM IR compiled in this process, called from Python threads with the GIL released.

One text serves every target: 256 bytes a round in independent accumulators, enough to hide the add latency of
any core (Apple's vector adds take 2 cycles, so the 4 accumulators of an auto-vectorised loop would be the limit
there, not the bus). Integer sums are exact modulo 2**64, which is what makes every byte's load provable.
"""

import ctypes
from collections.abc import Callable
from functools import cache

import msgspec

from labkit.errors import NotAvailable

ROUND = 256
"""Bytes that one round of a kernel handles: lengths and addresses are multiples of it."""

WORD = 8
PER_ROUND = ROUND // WORD
# splitmix64 (Steele, Lea, Flood 2014): a counter hashed to 64 random bits, so any slice can be filled alone.
GOLDEN, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Kernels(msgspec.Struct, frozen=True):
    """Callables over addresses and counts of 64-bit words (multiples of PER_ROUND, addresses of ROUND bytes).

    read(source, words, passes) -> sum of all words over all passes, modulo 2**64
    fill(target, words, first) writes splitmix64 of counters first, first + 1, ...
    copy(target, source, words), triad(target, b, c, words): a = b + 3c; each by store kind.
    """

    read: Callable[[int, int, int], int]
    fill: Callable[[int, int, int], None]
    copy: dict[str, Callable[[int, int, int], None]]
    triad: dict[str, Callable[[int, int, int, int], None]]
    engine: object  # owns the machine code: it must outlive the callables


LANES = 4
VECTOR = f"<{LANES} x i64>"
ALIGN = LANES * WORD
"""32-byte vectors: one register on x86 (AVX), a pair on arm64, where they become ldp/stp/stnp of two q registers."""

LINE = 64
PREFETCH = {"x86_64": 2048}
"""Bytes ahead that the read kernel asks for, by architecture. One x86 core read 1.04 x as fast with it (interleaved,
95 % interval 1.01 to 1.08); on arm64 nobody has measured it, and the kernel leaves it to the hardware."""


def ir(triple: str, layout: str) -> str:
    """The module's text for one target."""
    head = f'target triple = "{triple}"\ntarget datalayout = "{layout}"\n!0 = !{{i32 1}}\n'
    stores = [
        _store_kernel(name, sources, store)
        for name, sources in (("copy", 1), ("triad", 2))
        for store in ("regular", "nontemporal")
    ]
    return "\n".join([head, _read_kernel(PREFETCH.get(triple.split("-")[0], 0)), _fill_kernel(), *stores])


def _splat(value: str) -> str:
    """A constant vector. Hex literals in IR are floats, so constants are given as signed decimals."""
    return "<" + ", ".join(f"i64 {value}" for _ in range(LANES)) + ">"


def _signed(value: int) -> str:
    return str(value - 2**64 if value >= 2**63 else value)


def _read_kernel(ahead: int) -> str:
    units = range(PER_ROUND // LANES)
    phis = "\n".join(f"  %a{u} = phi {VECTOR} [%s{u}, %pass], [%b{u}, %loop]" for u in units)
    carried = "\n".join(f"  %s{u} = phi {VECTOR} [zeroinitializer, %entry], [%b{u}, %next]" for u in units)
    loads = "\n".join(
        f"  %o{u} = add i64 %i, {u * LANES}\n"
        f"  %p{u} = getelementptr i64, ptr %source, i64 %o{u}\n"
        f"  %v{u} = load {VECTOR}, ptr %p{u}, align {ALIGN}\n"
        f"  %b{u} = add {VECTOR} %a{u}, %v{u}"
        for u in units
    )
    fetches = "\n".join(
        f"  %h{u} = getelementptr i8, ptr %p{u}, i64 {ahead}\n"
        f"  call void @llvm.prefetch.p0(ptr %h{u}, i32 0, i32 3, i32 1)"
        for u in units
        if ahead and u * ALIGN % LINE == 0
    )
    folds = "\n".join(f"  %f{u} = add {VECTOR} %{'b0' if u == 1 else f'f{u - 1}'}, %b{u}" for u in units if u)
    reduce = f"llvm.vector.reduce.add.v{LANES}i64"
    return f"""
declare i64 @{reduce}({VECTOR})
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
define i64 @read_sum(ptr %source, i64 %words, i64 %passes) {{
entry:
  br label %pass
pass:
  %k = phi i64 [0, %entry], [%k2, %next]
{carried}
  br label %loop
loop:
  %i = phi i64 [0, %pass], [%i2, %loop]
{phis}
{loads}
{fetches}
  %i2 = add i64 %i, {PER_ROUND}
  %more = icmp ult i64 %i2, %words
  br i1 %more, label %loop, label %next
next:
  %k2 = add i64 %k, 1
  %again = icmp ult i64 %k2, %passes
  br i1 %again, label %pass, label %done
done:
{folds}
  %sum = call i64 @{reduce}({VECTOR} %f{len(units) - 1})
  ret i64 %sum
}}"""


def _fill_kernel() -> str:
    index = "<" + ", ".join(f"i64 {lane}" for lane in range(LANES)) + ">"

    def times(name: str, source: str, factor: int) -> str:
        return f"  %{name} = mul {VECTOR} %{source}, {_splat(_signed(factor))}"

    def mix(name: str, source: str, shift: int) -> str:
        return (
            f"  %{name}r = lshr {VECTOR} %{source}, {_splat(str(shift))}\n  %{name} = xor {VECTOR} %{source}, %{name}r"
        )

    return f"""
define void @fill_random(ptr %target, i64 %words, i64 %first) {{
entry:
  %f0 = insertelement {VECTOR} poison, i64 %first, i32 0
  %f1 = shufflevector {VECTOR} %f0, {VECTOR} poison, <{LANES} x i32> zeroinitializer
  %base = add {VECTOR} %f1, {index}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i2, %loop]
  %n0 = insertelement {VECTOR} poison, i64 %i, i32 0
  %n1 = shufflevector {VECTOR} %n0, {VECTOR} poison, <{LANES} x i32> zeroinitializer
  %n2 = add {VECTOR} %base, %n1
  %n3 = add {VECTOR} %n2, {_splat("1")}
{times("z0", "n3", GOLDEN)}
{mix("z1", "z0", 30)}
{times("z2", "z1", MIX_1)}
{mix("z3", "z2", 27)}
{times("z4", "z3", MIX_2)}
{mix("z5", "z4", 31)}
  %p = getelementptr i64, ptr %target, i64 %i
  store {VECTOR} %z5, ptr %p, align {ALIGN}
  %i2 = add i64 %i, {LANES}
  %more = icmp ult i64 %i2, %words
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""


def _store_kernel(name: str, sources: int, store: str) -> str:
    """copy (one source) or triad (two): target = first [+ 3 * second], with regular or non-temporal stores."""
    hint = ", !nontemporal !0" if store == "nontemporal" else ""
    units = 4
    lines = []
    for u in range(units):
        lines.append(f"  %o{u} = add i64 %i, {u * LANES}")
        for s in range(sources):
            lines.append(f"  %p{s}{u} = getelementptr i64, ptr %s{s}, i64 %o{u}")
            lines.append(f"  %v{s}{u} = load {VECTOR}, ptr %p{s}{u}, align {ALIGN}")
        result = f"%v0{u}"
        if sources == 2:
            # 3c as c + c + c: there is no 64-bit vector multiply to lean on, and adds stay exact.
            lines.append(f"  %d{u} = add {VECTOR} %v1{u}, %v1{u}")
            lines.append(f"  %e{u} = add {VECTOR} %d{u}, %v1{u}")
            lines.append(f"  %r{u} = add {VECTOR} {result}, %e{u}")
            result = f"%r{u}"
        lines.append(f"  %q{u} = getelementptr i64, ptr %target, i64 %o{u}")
        lines.append(f"  store {VECTOR} {result}, ptr %q{u}, align {ALIGN}{hint}")
    arguments = ", ".join(["ptr %target", *(f"ptr %s{s}" for s in range(sources)), "i64 %words"])
    # Non-temporal stores are weakly ordered: the fence makes them visible before the kernel returns.
    fence = "  fence seq_cst\n" if hint else ""
    body = "\n".join(lines)
    return f"""
define void @{name}_{store}({arguments}) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i2, %loop]
{body}
  %i2 = add i64 %i, {units * LANES}
  %more = icmp ult i64 %i2, %words
  br i1 %more, label %loop, label %done
done:
{fence}  ret void
}}"""


def assembly(triple: str, cpu: str) -> str:
    """The kernels' assembly for any target that LLVM knows, for looking at without such a machine."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3)
    return target.emit_assembly(llvm.parse_assembly(ir(triple, str(target.target_data))))


@cache
def compile_kernels() -> Kernels:
    """The kernels as machine code for this CPU. Raises NotAvailable where code cannot be generated."""
    try:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        triple = llvm.get_process_triple()
        machine = llvm.Target.from_triple(triple).create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
        )
        module = llvm.parse_assembly(ir(triple, str(machine.target_data)))
        module.verify()
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
    except (ImportError, OSError, RuntimeError) as error:
        raise NotAvailable(f"the read kernel cannot be compiled here: {error}") from error

    def function(name: str, result: type | None, *arguments: type) -> Callable[..., int]:
        return ctypes.CFUNCTYPE(result, *arguments)(engine.get_function_address(name))

    pointer, number = ctypes.c_void_p, ctypes.c_uint64
    stores = ("regular", "nontemporal")
    return Kernels(
        read=function("read_sum", number, pointer, number, number),
        fill=function("fill_random", None, pointer, number, number),
        copy={store: function(f"copy_{store}", None, pointer, pointer, number) for store in stores},
        triad={store: function(f"triad_{store}", None, pointer, pointer, pointer, number) for store in stores},
        engine=engine,
    )
