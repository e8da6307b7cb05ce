"""The planning problem of a graph: options and prices of its ops, and the correspondence of ops, values and numbers."""

from collections.abc import Mapping, Sequence
from zlib import crc32

from layoutopt.cost import CostModel
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Operands, Padding, Signature, Storage, Value
from layoutopt.ops import OperandFormats, canonical_storage, is_dequantizer, rule_of, storage_bytes
from layoutopt.ops.region_ops import boundary
from layoutopt.ops.view import View
from layoutopt.planner.problem import Choice, Option, Problem, Tensor, greedy_choice
from layoutopt.planner.propagation import Candidates, Key, RegionTree, storage_key

_CHANGE_RANK = 10**6  # the rank of a change is at least this, and less than twice this


class Formulation:
    """The planning problem of a graph and its bodies, and the numbers of its ops, values and storages in the problem."""

    def __init__(
        self,
        candidates: Candidates,
        cost_model: CostModel,
        pins: Mapping[Value, Format],
        free_constants: bool,
    ) -> None:
        """Price the candidates."""
        self.tree, self.groups, self.signatures = candidates.tree, candidates.groups, candidates.signatures
        self.cost_model = cost_model
        self.devices = candidates.devices
        self.pins = pins
        self.free_constants = free_constants
        self.tensors: list[Tensor] = []
        self.index: dict[Value, int] = {}
        self.states: dict[Value, dict[tuple[Key, Padding, str, bool], int]] = {}
        self.storages: dict[Value, list[Storage]] = {}
        self.depths = _depths(self.tree)
        for value in self.tree.values:
            self._collect(value)
        options = [[self._option(op, signature) for signature in self.signatures[op]] for op in self.tree.ops]
        self.problem = Problem(options, self.tensors, self._rank, not pins)
        self.baselines = [self._baseline(device) for device in self.devices]
        self.baseline_choice = min(self.baselines, key=self.problem.price)

    def _state(self, value: Value, storage: Storage, is_inner: bool = False) -> int:
        """The number of a storage of a value; inside of a QDQ group, where its format is fixed, it has another number."""
        states = self.states.setdefault(value, {})
        key = (storage_key(value, storage), storage.padding, storage.device, is_inner)
        number = states.setdefault(key, len(states))
        if number == len(self.storages.setdefault(value, [])):
            self.storages[value].append(storage)
        return number

    def _collect(self, value: Value) -> None:
        """Add the tensor of a value, with the states in which it can be produced and read."""
        readers = self.tree.readers.get(value, ())
        if value.rank is None or (value.is_constant and self.free_constants and not self.tree.is_output(value)):
            return
        canonical = canonical_storage(value)
        assert canonical is not None
        pinned = Storage(self.pins[value]) if value in self.pins else canonical
        if not value.is_constant:
            pinned = pinned.placed(self.devices[0])
        produced: set[int] = set()
        if value not in self.tree.writers:
            produced.add(self._state(value, pinned))
        else:
            writer, index = self.tree.writers[value]
            produced.update(self._state(value, each.outputs[index] or canonical) for each in self.signatures[writer])
        required_states = [self._state(value, pinned)] if self.tree.is_output(value) else []
        required = set(required_states)
        for reader, index in readers:
            is_inner = (reader, index) in self.groups.inner
            required.update(
                self._state(value, each.inputs[index] or canonical, is_inner) for each in self.signatures[reader]
            )
        self.index[value] = len(self.tensors)
        source = next(iter(produced)) if value not in self.tree.writers else None
        casts, prices, nbytes = self._casts(value, produced, required)
        self.tensors.append(Tensor(casts, prices, source, required_states, nbytes, self.depths.get(value, 0)))

    def _casts(
        self, value: Value, produced: set[int], required: set[int]
    ) -> tuple[dict[tuple[int, int], int | None], list[float], list[float]]:
        """The cast of each pair of states; the price and the bytes of each cast.

        A cast leaves zero padding, so that padding states share casts; a mere transfer keeps the padding. Inside of a QDQ group
        only a transfer is possible, and none inside of its kernel.
        """
        casts: dict[tuple[int, int], int | None] = {}
        inner = {number for (*_, is_inner), number in self.states[value].items() if is_inner}
        numbers: dict[tuple[int, Key, Padding, str], int] = {}
        writer, _ = self.tree.writers.get(value, (None, 0))
        reads = self.groups.inner.intersection(self.tree.readers.get(value, ()))
        is_in_kernel = not self.groups.fused_into_kernels.isdisjoint((writer, *(op for op, _ in reads)))
        prices: list[float] = []
        nbytes: list[float] = []
        weight = self.tree.weight(value)
        sizes = [storage_bytes(value, storage) * weight for storage in self.storages[value]]
        for has in sorted(produced):
            src = self.storages[value][has]
            for state in sorted(required):
                dst = self.storages[value][state]
                key = storage_key(value, dst)
                is_same = key == storage_key(value, src) and src.padding <= dst.padding
                if is_same and src.is_on(dst.device):
                    casts[has, state] = None
                    continue
                if state in inner and (is_in_kernel or not is_same):
                    continue
                target = Storage(dst.format, src.padding if is_same else Padding.ZERO, dst.device)
                cast = has, key, target.padding, dst.device
                if cast not in numbers:
                    numbers[cast] = len(prices)
                    seconds = self.cost_model.conversion_seconds(value, src, target)
                    prices.append(seconds * weight)
                    nbytes.append(sizes[has] + sizes[state])
                casts[has, state] = numbers[cast]
        return casts, prices, nbytes

    def _option(self, op: Op, signature: Signature) -> Option:
        def pairs(
            values: Operands, storages: tuple[Storage | None, ...], are_read: bool
        ) -> tuple[tuple[int, int], ...]:
            return tuple(
                (self.index[value], self._state(value, storage, are_read and (op, number) in self.groups.inner))
                for number, (value, storage) in enumerate(zip(values, storages, strict=True))
                if value is not None and value in self.index and storage is not None
            )

        price = 0.0
        if op not in self.groups.fused_into_kernels and boundary(op) is None:
            price = self.cost_model.kernel_seconds(self.groups.kernel_op(op), signature) * self.tree.weight(op)
        return Option(price, pairs(op.outputs, signature.outputs, False), pairs(op.inputs, signature.inputs, True))

    def _rank(self, op: int, option: int) -> tuple[int, int, int]:
        """The rank of an option, which depends on names and formats only.

        Returns:
            The change of formats and of the device, 0 for those of the baseline; the padding states; and the position of the
            kernel among those of the target, whose constants are then in the formats that it prefers: they are free in any
            format.
        """
        ranked = self.tree.ops[op]
        signature = self.signatures[ranked][option]
        formats, own = (
            self._formats(ranked, self.signatures[ranked][each]) for each in (option, self.baseline_choice[op])
        )
        names = ",".join(value.name for value in ranked.present_outputs)
        change = 0 if formats == own else _CHANGE_RANK + crc32(f"{names} {formats}".encode()) % _CHANGE_RANK
        padding = sum(each.padding for each in (*signature.inputs, *signature.outputs) if each is not None)
        kernels = self.cost_model.preferred_formats(self.groups.kernel_op(ranked))
        native = (number for number, each in enumerate(kernels) if _has_formats(ranked, signature, each))
        return change, padding, next(native, len(kernels))

    def _formats(self, op: Op, signature: Signature) -> str:
        """The formats of operands and results, without those of constants, which are free in any format."""
        sides = [
            tuple(
                storage and canonical_storage(value)
                if value is not None and self._is_free(value)
                else storage and Storage(storage.format)
                for value, storage in zip(values, storages, strict=True)
            )
            for values, storages in ((op.inputs, signature.inputs), (op.outputs, signature.outputs))
        ]
        return f"{Signature(*sides)}{signature.device}"

    def _is_free(self, value: Value) -> bool:
        """Whether a value is a constant, or is dequantised from constants in a kernel."""
        op, _ = self.tree.writers.get(value, (None, 0))
        if op is None or op not in self.groups.fused_into_kernels or not is_dequantizer(op):
            return value not in self.index
        return all(each.is_constant for each in op.present_inputs)

    def options_on(self, number: int, device: str) -> list[int]:
        """The numbers of the options of an op on a device; of all its options if it cannot run there."""
        signatures = self.signatures[self.tree.ops[number]]
        found = [option for option, signature in enumerate(signatures) if signature.device == device]
        return found or [*range(len(signatures))]

    def _baseline(self, device: str) -> list[int]:
        """The choice of the original graph on one device, apart from pins and from ops that cannot run there."""
        given = {value: storage_key(value, Storage(format)) for value, format in self.pins.items()}
        numbers = []
        for number, op in enumerate(self.tree.ops):
            numbers.append(self._baseline_option(op, given, self.options_on(number, device)))
            for value, storage in zip(op.outputs, self.signatures[op][numbers[-1]].outputs, strict=True):
                if value is not None:
                    given[value] = storage_key(value, storage)
        return numbers

    def greedy_choice(self) -> Choice:
        """The choice of a compiler that propagates formats from op to op."""
        has_kernels = [bool(self.cost_model.preferred_formats(self.groups.kernel_op(op))) for op in self.tree.ops]
        return greedy_choice(self.problem, has_kernels)

    def _baseline_option(self, op: Op, given: Mapping[Value, Key], options: Sequence[int]) -> int:
        """The signature of an op in the original graph: canonical inputs, and canonical outputs unless it is a view op.

        Inside of a QDQ group, where no cast is possible, it reads the storage of the producer, which a view op or pin may set.
        """
        values = {slot: value for slot in op.slots() if (value := op.operand(slot)) is not None}
        canonical = {slot: storage_key(value, canonical_storage(value)) for slot, value in values.items()}
        inner = [slot for slot in values if slot.side == "in" and (op, slot.index) in self.groups.inner]
        required = canonical | {slot: given.get(values[slot], canonical[slot]) for slot in inner}
        if isinstance(rule_of(op), View) or required != canonical:
            required = {slot: key for slot, key in required.items() if slot.side == "in"}
        for number in options:
            signature = self.signatures[op][number]
            if all(storage_key(values[slot], signature[slot]) == key for slot, key in required.items()):
                return number
        return options[0]


def _depths(tree: RegionTree) -> dict[Value, int]:
    """The number of ops on the longest path to every value that an op computes."""
    found: dict[Value, int] = {}
    for op in tree.ops:
        depth = 1 + max((found.get(value, 0) for value in op.present_inputs), default=0)
        found.update((value, depth) for value in op.present_outputs)
    return found


def _has_formats(op: Op, signature: Signature, formats: OperandFormats) -> bool:
    """Whether the operands of an op have given formats under a signature."""
    operands = ((op.operand(slot), signature[slot], Storage(format)) for slot, format in formats.items())
    return all(
        value is not None and storage_key(value, has) == storage_key(value, storage) for value, has, storage in operands
    )
