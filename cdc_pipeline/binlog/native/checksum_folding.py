"""CRC32 by carry-less multiplication, for processors that have it: several times as fast as zlib's.

With zlib's alone, decoding costs 0.117 instead of 0.075 CPU-s a million rows of bulk inserts, 1.27
instead of 0.88 of small transactions, and reading live 1.9 instead of 1.1 times dropping the bytes.

Method: a message is a polynomial over GF(2), and its CRC is the remainder of its product with x**32
by P. A block of 128 bits that is n bits before another one may be replaced by adding its product
with x**n mod P to that one. So several blocks at a time are folded into the next ones, until 16
bytes are left, which P's inverse (Barrett) reduces to 32 bits.

Rules:
- Bits are reflected, as in CRC32: the first byte is the lowest and has the highest powers. A
  product of two reflected numbers is one bit short, so constants are shifted by one.
- Zero bytes before a message change nothing, so the message's odd bytes are the end of a first
  block of 16. The initial value, all ones, is added to the first four bytes.
- If the processor multiplies two or four blocks in one instruction, it does so (`blocks_together`).
  Four such groups are folded in parallel, because each product takes several cycles.
- The function is built once per process, with zlib's signature; messages of less than 16 bytes go
  to `short`.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import binding, ir

_POLYNOMIAL: Final = 0x104C11DB7
_NAME: Final = "crc32_by_folding"
_BLOCK: Final = 16
_LANES: Final = 4
_MULTIPLY: Final = {
    1: "llvm.x86.pclmulqdq",
    2: "llvm.x86.pclmulqdq.256",
    4: "llvm.x86.pclmulqdq.512",
}

_I8, _I32, _I64, _I128 = (ir.IntType(bits) for bits in (8, 32, 64, 128))


def is_possible() -> bool:
    """Whether this processor has carry-less multiplication."""
    return "x86_64" in binding.get_process_triple() and _has("pclmul")


def blocks_together() -> int:
    """How many blocks one instruction of this processor multiplies: 4, 2 or 1."""
    if _has("vpclmulqdq") and _has("avx512f"):
        return 4
    return 2 if _has("vpclmulqdq") and _has("avx2") else 1


def _has(feature: str) -> bool:
    return bool(binding.get_host_cpu_features().get(feature, False))


def _group(blocks: int) -> Any:
    """The type of so many adjacent blocks."""
    return ir.VectorType(_I64, 2 * blocks)


def _reflected(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def _power(exponent: int) -> int:
    """Return x**exponent mod P, reflected, as a factor of a product."""
    value = 1
    for _ in range(exponent):
        value <<= 1
        if value >> 32:
            value ^= _POLYNOMIAL
    return _reflected(value, 32) << 1


def _inverse() -> int:
    """Return x**64 divided by P, reflected."""
    quotient, rest = 0, 1 << 64
    for shift in range(32, -1, -1):
        if rest >> shift + 32 & 1:
            quotient |= 1 << shift
            rest ^= _POLYNOMIAL << shift
    return _reflected(quotient, 33)


class _Writer:
    """Writes the function's body step by step. Folded values are vectors of one or more blocks."""

    def __init__(self, module: ir.Module, short_name: str, together: int) -> None:
        kind = ir.FunctionType(_I64, [_I64, _I8.as_pointer(), _I32])
        self.together = together
        self.function = ir.Function(module, kind, _NAME)
        self.multiply = {
            blocks: ir.Function(
                module, ir.FunctionType(_group(blocks), [_group(blocks), _group(blocks), _I8]), name
            )
            for blocks, name in _MULTIPLY.items()
            if blocks in (1, together)
        }
        self.short = ir.Function(module, kind, short_name)
        self.builder: Any = ir.IRBuilder(self.function.append_basic_block())

    def load(self, position: Any, blocks: int = 1) -> Any:
        """Load so many blocks at an index of the message."""
        pointer = self.builder.gep(self.function.args[1], [position])
        return self.builder.load(
            self.builder.bitcast(pointer, _group(blocks).as_pointer()), align=1
        )

    def number(self, block: Any) -> Any:
        return self.builder.bitcast(block, _I128)

    def block(self, number: Any) -> Any:
        return self.builder.bitcast(number, _group(1))

    def product(self, group: Any, factors: tuple[int, int], halves: int) -> Any:
        """Multiply the half of each block with the factor that `halves` (0x00, 0x11) selects."""
        blocks = group.type.count // 2
        constant = ir.Constant(
            group.type, [ir.Constant(_I64, factor) for factor in factors * blocks]
        )
        return self.builder.call(self.multiply[blocks], [group, constant, ir.Constant(_I8, halves)])

    def fold(self, group: Any, next_group: Any, distance_bytes: int) -> Any:
        """Move `group` on by so many bytes and add it to `next_group`."""
        factors = _power(8 * distance_bytes + 32), _power(8 * distance_bytes - 32)
        moved = self.builder.xor(
            self.product(group, factors, 0x00), self.product(group, factors, 0x11)
        )
        return self.builder.xor(moved, next_group)

    def joined(self, groups: list[Any], step: int) -> Any:
        """Fold adjacent groups of `step` bytes into the last one. No product waits for another."""
        *before, value = groups
        for index, group in enumerate(before):
            value = self.fold(group, value, step * (len(before) - index))
        return value

    def reduce(self, block: Any) -> Any:
        """The remainder of one block times x**32: 32 bits in 128."""
        builder = self.builder
        low_32 = ir.Constant(_I128, 0xFFFFFFFF)

        def times(number: Any, factor: int) -> Any:
            return self.number(self.product(self.block(number), (factor, 0), 0x00))

        value = self.number(block)
        value = builder.xor(times(value, _power(96)), builder.lshr(value, ir.Constant(_I128, 64)))
        low = builder.and_(value, low_32)
        value = builder.xor(times(low, _power(64)), builder.lshr(value, ir.Constant(_I128, 32)))
        quotient = times(builder.and_(value, low_32), _inverse())
        multiple = times(builder.and_(quotient, low_32), _reflected(_POLYNOMIAL, 33))
        return builder.lshr(builder.xor(value, multiple), ir.Constant(_I128, 32))

    def loop(self, groups: list[Any], position: Any, stop: Any) -> tuple[list[Any], Any]:
        """Fold `groups`, which are adjacent, into the bytes from `position` to `stop`."""
        builder = self.builder
        group_type = groups[0].type
        blocks = group_type.count // 2
        step = _BLOCK * blocks * len(groups)
        before = builder.block
        check, body, after = (self.function.append_basic_block() for _ in range(3))
        builder.branch(check)
        builder.position_at_end(check)
        at = builder.phi(_I64)
        phis = [builder.phi(group_type) for _ in groups]
        at.add_incoming(position, before)
        for phi, group in zip(phis, groups, strict=True):
            phi.add_incoming(group, before)
        builder.cbranch(builder.icmp_unsigned("<", at, stop), body, after)
        builder.position_at_end(body)
        folded = []
        for index, phi in enumerate(phis):
            place = builder.add(at, ir.Constant(_I64, _BLOCK * blocks * index))
            folded.append(self.fold(phi, self.load(place, blocks), step))
        next_at = builder.add(at, ir.Constant(_I64, step))
        builder.branch(check)
        at.add_incoming(next_at, builder.block)
        for phi, group in zip(phis, folded, strict=True):
            phi.add_incoming(group, builder.block)
        builder.position_at_end(after)
        return phis, at

    def until_multiple(self, group: Any, position: Any, total: Any, step: int) -> tuple[Any, Any]:
        """Fold one group until a multiple of `step` bytes is left."""
        builder = self.builder
        odd = builder.and_(builder.sub(total, position), ir.Constant(_I64, step - 1))
        [group], position = self.loop([group], position, builder.add(position, odd))
        return group, position

    def widened(self, block: Any, blocks: int) -> Any:
        """Return a group whose last block is `block`, after zero blocks."""
        if blocks == 1:
            return block
        nothing = ir.Constant(_group(1), [ir.Constant(_I64, 0)] * 2)
        lanes = [ir.Constant(_I32, index) for index in [0, 1] * (blocks - 1) + [2, 3]]
        order = ir.Constant(ir.VectorType(_I32, 2 * blocks), lanes)
        return self.builder.shuffle_vector(nothing, block, order)

    def blocks_of(self, group: Any) -> list[Any]:
        blocks = group.type.count // 2
        if blocks == 1:
            return [group]
        order = ir.VectorType(_I32, 2)
        return [
            self.builder.shuffle_vector(
                group,
                group,
                ir.Constant(
                    order, [ir.Constant(_I32, 2 * index), ir.Constant(_I32, 2 * index + 1)]
                ),
            )
            for index in range(blocks)
        ]

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
        # The odd bytes at the front become the end of a block; then comes the first whole one.
        first = self.number(self.load(ir.Constant(_I64, 0)))
        front = builder.shl(
            builder.xor(first, initial), builder.sub(ir.Constant(_I128, 128), odd_bits)
        )
        front = builder.select(builder.icmp_unsigned("==", odd, ir.Constant(_I64, 0)), zero, front)
        block = self.block(
            builder.xor(self.number(self.load(odd)), builder.lshr(initial, odd_bits))
        )
        value = self.fold(self.block(front), block, _BLOCK)
        position = builder.add(odd, ir.Constant(_I64, _BLOCK))
        # Fold single blocks until whole groups are left, then single groups until sets of four are
        # left.
        group_bytes = _BLOCK * self.together
        if self.together > 1:
            value, position = self.until_multiple(value, position, total, group_bytes)
            value = self.widened(value, self.together)
        value, position = self.until_multiple(value, position, total, _LANES * group_bytes)
        nothing = ir.Constant(value.type, [ir.Constant(_I64, 0)] * value.type.count)
        lanes, position = self.loop([nothing] * (_LANES - 1) + [value], position, total)
        value = self.joined(self.blocks_of(self.joined(lanes, group_bytes)), _BLOCK)
        crc = builder.xor(self.reduce(value), ones)
        builder.ret(builder.and_(builder.trunc(crc, _I64), ir.Constant(_I64, 0xFFFFFFFF)))


def build(short_name: str, together: int | None = None) -> tuple[int, Any]:
    """Compile the function for this processor.

    Args:
        short_name: symbol of a crc32 with zlib's signature, for messages of less than 16 bytes.
        together: blocks that one instruction multiplies; by default the maximum of this processor.

    Returns:
        Its address, and the object that must be kept alive with it.
    """
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = ir.Module(name=_NAME)
    _Writer(module, short_name, together or blocks_together()).write()
    target = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=2
    )
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    engine = binding.create_mcjit_compiler(parsed, target)
    engine.finalize_object()
    return engine.get_function_address(_NAME), engine
