"""CRC32 by carry-less multiplication, for processors that have it: several times as fast as zlib's.

Method: a message is a polynomial over GF(2), and its CRC the remainder of it, times x**32, by P. A block of 128 bits
that stands n bits before another one may be replaced by its product with x**n mod P, added to that one. So 64 bytes
are folded into the next 64 until 16 bytes are left, and those reduced to 32 bits by P's inverse (Barrett).

Rules:
- Bits are reflected, as CRC32 has them: the first byte is the lowest, and holds the highest powers. A product of two
  reflected numbers is one bit short, so constants are shifted by one.
- Zero bytes before a message change nothing: the message's odd bytes are the end of a first block of 16. The initial
  value, all ones, is added to its first four bytes.
- The function is built once a process, with zlib's signature; messages of less than 16 bytes are left to `short`.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import binding, ir

_POLYNOMIAL: Final = 0x104C11DB7
_NAME: Final = "crc32_by_folding"
_BLOCK: Final = 16

_I8, _I32, _I64, _I128 = (ir.IntType(bits) for bits in (8, 32, 64, 128))
_PAIR = ir.VectorType(_I64, 2)


def is_possible() -> bool:
    """Whether this processor multiplies without carries."""
    return "x86_64" in binding.get_process_triple() and bool(binding.get_host_cpu_features().get("pclmul", False))


def _reflected(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def _power(exponent: int) -> int:
    """x**exponent mod P, reflected, as a factor of a product."""
    value = 1
    for _ in range(exponent):
        value <<= 1
        if value >> 32:
            value ^= _POLYNOMIAL
    return _reflected(value, 32) << 1


def _inverse() -> int:
    """x**64 divided by P, reflected."""
    quotient, rest = 0, 1 << 64
    for shift in range(32, -1, -1):
        if rest >> shift + 32 & 1:
            quotient |= 1 << shift
            rest ^= _POLYNOMIAL << shift
    return _reflected(quotient, 33)


class _Writer:
    """The function's body, step by step."""

    def __init__(self, module: ir.Module, short_name: str) -> None:
        kind = ir.FunctionType(_I64, [_I64, _I8.as_pointer(), _I32])
        self.function = ir.Function(module, kind, _NAME)
        self.multiply = ir.Function(module, ir.FunctionType(_PAIR, [_PAIR, _PAIR, _I8]), "llvm.x86.pclmulqdq")
        self.short = ir.Function(module, kind, short_name)
        self.builder: Any = ir.IRBuilder(self.function.append_basic_block())

    def load(self, position: Any) -> Any:
        """16 bytes at an index of the message."""
        pointer = self.builder.gep(self.function.args[1], [position])
        return self.builder.load(self.builder.bitcast(pointer, _I128.as_pointer()), align=1)

    def product(self, value: Any, factors: tuple[int, int], halves: int) -> Any:
        """Product of the half of `value` and the one of `factors` that `halves` (0x00, 0x11) choose."""
        constant = ir.Constant(_PAIR, [ir.Constant(_I64, factor) for factor in factors])
        pair = self.builder.call(
            self.multiply, [self.builder.bitcast(value, _PAIR), constant, ir.Constant(_I8, halves)]
        )
        return self.builder.bitcast(pair, _I128)

    def fold(self, value: Any, next_block: Any, distance_bytes: int) -> Any:
        """`value` moved on by so many bytes, added to `next_block`."""
        factors = _power(8 * distance_bytes + 32), _power(8 * distance_bytes - 32)
        moved = self.builder.xor(self.product(value, factors, 0x00), self.product(value, factors, 0x11))
        return self.builder.xor(moved, next_block)

    def reduce(self, value: Any) -> Any:
        """Remainder of 16 bytes, times x**32: 32 bits in 128."""
        builder = self.builder
        low_32 = ir.Constant(_I128, 0xFFFFFFFF)
        value = builder.xor(self.product(value, (_power(96), 0), 0x00), builder.lshr(value, ir.Constant(_I128, 64)))
        low = builder.and_(value, low_32)
        value = builder.xor(self.product(low, (_power(64), 0), 0x00), builder.lshr(value, ir.Constant(_I128, 32)))
        quotient = self.product(builder.and_(value, low_32), (_inverse(), 0), 0x00)
        multiple = self.product(builder.and_(quotient, low_32), (_reflected(_POLYNOMIAL, 33), 0), 0x00)
        return builder.lshr(builder.xor(value, multiple), ir.Constant(_I128, 32))

    def loop(self, values: list[Any], position: Any, stop: Any, step: int) -> tuple[list[Any], Any]:
        """Fold `values`, which lie side by side, into the blocks at `position` and after it, until `stop`."""
        builder = self.builder
        before = builder.block
        check, body, after = (self.function.append_basic_block() for _ in range(3))
        builder.branch(check)
        builder.position_at_end(check)
        at = builder.phi(_I64)
        phis = [builder.phi(_I128) for _ in values]
        at.add_incoming(position, before)
        for phi, value in zip(phis, values, strict=True):
            phi.add_incoming(value, before)
        builder.cbranch(builder.icmp_unsigned("<", at, stop), body, after)
        builder.position_at_end(body)
        folded = []
        for index, phi in enumerate(phis):
            block = self.load(builder.add(at, ir.Constant(_I64, _BLOCK * index)))
            folded.append(self.fold(phi, block, step))
        next_at = builder.add(at, ir.Constant(_I64, step))
        builder.branch(check)
        at.add_incoming(next_at, builder.block)
        for phi, value in zip(phis, folded, strict=True):
            phi.add_incoming(value, builder.block)
        builder.position_at_end(after)
        return phis, at

    def write(self) -> None:
        builder, (start, data, length) = self.builder, self.function.args
        is_short = builder.icmp_unsigned("<", length, ir.Constant(_I32, _BLOCK))
        with builder.if_then(is_short, likely=False):
            builder.ret(builder.call(self.short, [start, data, length]))
        total = builder.zext(length, _I64)
        zero, ones = ir.Constant(_I128, 0), ir.Constant(_I128, 0xFFFFFFFF)
        initial = builder.xor(builder.zext(start, _I128), ones)
        odd = builder.and_(total, ir.Constant(_I64, _BLOCK - 1))
        odd_bits = builder.zext(builder.shl(odd, ir.Constant(_I64, 3)), _I128)
        # The odd bytes at the front as the end of a block, then the first whole one.
        front = builder.shl(
            builder.xor(self.load(ir.Constant(_I64, 0)), initial), builder.sub(ir.Constant(_I128, 128), odd_bits)
        )
        front = builder.select(builder.icmp_unsigned("==", odd, ir.Constant(_I64, 0)), zero, front)
        block = builder.xor(self.load(odd), builder.lshr(initial, odd_bits))
        value = self.fold(front, block, _BLOCK)
        position = builder.add(odd, ir.Constant(_I64, _BLOCK))
        # Single blocks until a multiple of four is left, then four side by side.
        singles = builder.and_(builder.sub(total, position), ir.Constant(_I64, 4 * _BLOCK - 1))
        [value], position = self.loop([value], position, builder.add(position, singles), _BLOCK)
        lanes = [zero, zero, zero, value]  # three blocks of nothing before the last one
        lanes, position = self.loop(lanes, position, total, 4 * _BLOCK)
        value = lanes[0]
        for lane in lanes[1:]:
            value = self.fold(value, lane, _BLOCK)
        crc = builder.xor(self.reduce(value), ones)
        builder.ret(builder.and_(builder.trunc(crc, _I64), ir.Constant(_I64, 0xFFFFFFFF)))


def build(short_name: str) -> tuple[int, Any]:
    """Compile the function for this processor.

    Args:
        short_name: symbol of a crc32 with zlib's signature, for messages of less than 16 bytes.

    Returns:
        Its address, and what must be kept alive with it.
    """
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = ir.Module(name=_NAME)
    _Writer(module, short_name).write()
    target = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=2
    )
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    engine = binding.create_mcjit_compiler(parsed, target)
    engine.finalize_object()
    return engine.get_function_address(_NAME), engine
