"""The passes that plan formats and devices, and the reason to keep the original if the plan gains nothing."""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from layoutopt.cost import CostModel, Platform
from layoutopt.errors import PinError, TargetError
from layoutopt.inference.axis_letters import infer_axis_letters
from layoutopt.ir.graph import Graph, cast_storages, is_cast, storage_name
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import flags
from layoutopt.ops.region_ops import boundary, regions_with_rule
from layoutopt.passes.base import Pass, PassContext
from layoutopt.planner import CandidateMemo, Deadline, Plan, PlanRequest, make_plan

_REJECTED_BY_GUARD = (
    "a plan that is faster at the inferred sizes was rejected: it is slower than the original at other sizes"
)


class AssignFormats(Pass):
    """Assign the signature that the planner selects to every op, in subgraphs too.

    before: every op and value canonical
    after:  every op has its signature, every value has the storage of its producer, which may differ from that of a reader
    """

    name = "assign-formats"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Plan, and rename values in other formats, so that the canonical copy of a tensor can have the tensor's name."""
        request = replace(plan_request(graph, context), memo=CandidateMemo())
        pins = request.pins

        def plan_with(model: CostModel) -> Plan:
            return make_plan(at_prices(request, context, model))

        if context.make_plan is None:
            context.plan = plan_with(context.cost_model)
        else:
            context.cost_model, context.plan = context.make_plan(graph, plan_with)
        if context.plan.is_limited_by_guards:
            context.note(self, ", ".join(context.sizes.assumed), _REJECTED_BY_GUARD)
        if context.plan.stopped:
            context.note(self, context.plan.stopped, _stopped(context.plan, context.time_limit))
        for key in unmatched(graph, context.devices):
            context.note(self, key, "is not placed: each op of this type or name has become part of another one")
        for op, reasons in context.plan.notes.items():
            for reason in reasons:
                context.note(self, op.name or op.kind, reason)
        host = context.platform.devices[0].name if context.platform is not None else ""
        _place_boundary(graph, host)
        for value, format in pins.items():
            if value in graph.inputs:
                value.storage = Storage(format, device=host)
            graph.output_storages |= {
                index: Storage(format, device=host) for index, output in enumerate(graph.outputs) if output is value
            }
        kept = {value for value in pins if graph.is_output(value)}
        for each in regions_with_rule(graph):
            for op in each.ops:
                assign(each, op, context.plan.signatures[op], kept)
            each.stage = "assigned"
            each.touch()


def plan_request(graph: Graph, context: PassContext) -> PlanRequest:
    """The request for a plan of a graph at the prices of the target; the context gets the epilogues of the graph.

    Raises:
        PinError: no op reads a pinned tensor, or the tensor has become part of another op.
    """
    infer_axis_letters(graph)
    pins = {}
    for name, format in context.pins.items():
        value = graph.find(name)
        if value is None:
            what = "cannot be pinned: no op reads it, or it has become part of another op"
            raise PinError(what, where=name, hint="pin a tensor before or behind it")
        pins[value] = format
    deadline = Deadline(context.time_limit)
    context.epilogues = context.find_epilogues(graph)
    request = PlanRequest(
        graph,
        context.cost_model,
        pins,
        free_constants=context.mode == "inference",
        keeps_qdq_groups=context.keeps_qdq_groups,
        deadline=deadline,
    )
    if context.platform is not None:
        request = replace(
            request,
            devices={each.name: each.memory for each in context.platform.devices},
            placement=placement(graph, context.platform, context.devices),
        )
    return at_prices(request, context, context.cost_model)


def _requests(graph: Graph, keys: Collection[str]) -> dict[Op, list[str]]:
    """The requests for each op by type, in the main graph only, or beginning of the name; the one that counts is last.

    A name counts more than a type, and a longer beginning more than a shorter one.
    """
    found, kinds = dict[Op, list[str]](), {op.kind for op in graph.ops}
    for region in regions_with_rule(graph):
        types = kinds if region is graph else set[str]()
        for op in region.ops:
            named = [key for key in keys if key not in kinds and op.name.startswith(key)]
            found[op] = [*types.intersection(keys, [op.kind]), *sorted(named, key=len)]
    return found


def unmatched(graph: Graph, keys: Collection[str]) -> set[str]:
    """The requests that are for no op of a graph, by type or beginning of the name."""
    return {*keys}.difference(*_requests(graph, keys).values())


def placement(graph: Graph, platform: Platform, requested: Mapping[str, str]) -> dict[Op, tuple[str, ...]]:
    """The devices on which each op of a graph and of its bodies may run. Control flow, bodies included, runs on the host.

    Args:
        graph: the graph.
        platform: the devices, which have kernels of some ops.
        requested: the device of some ops, by op type or by the beginning of the name.

    Raises:
        TargetError: no device has a kernel of an op, or the requested one has none.
    """
    found, main = {}, {*graph.ops}
    for op, keys in _requests(graph, requested).items():
        allowed = [device.name for device in platform.devices if device.has_kernel(op)]
        if boundary(op) is not None or op not in main:
            allowed = [platform.devices[0].name]
        chosen = {requested[key] for key in keys[-1:]} or {*allowed}
        found[op] = tuple(device for device in allowed if device in chosen)
        if not found[op]:
            what = f"no device of {platform.name} has a kernel of {op.kind}"
            if allowed:
                what = f"{op.kind} cannot run on {' and '.join(sorted(chosen))}"
            hint = f"it can run on {', '.join(allowed)}" if allowed else "give a device one"
            raise TargetError(what, where=op.name or op.kind, hint=hint)
    return found


def _place_boundary(graph: Graph, host: str) -> None:
    """Place the inputs and outputs of the main graph on the host, if there is one."""
    for value in graph.inputs:
        value.storage = value.storage and value.storage.placed(host)
    for index in range(len(graph.outputs)) if host else ():
        if (storage := graph.output_storage(index)) is not None:
            graph.output_storages[index] = storage.placed(host)


class PlaceOps(Pass):
    """Assign the device that runs it to every op: that of its signature, and of a cast the one that changes the format.

    before: x -> CastData(NCHW on cpu -> NHWC on npu) -> y
    after:  x -> CastData(NCHW on cpu -> NHWC on npu) on npu -> y
    """

    name = "place-ops"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Assign devices, if the target is a platform."""
        for op in graph.ops if context.platform is not None else ():
            assert op.signature is not None and context.platform is not None
            op.device = op.signature.device or context.platform.devices[0].name
            if is_cast(op):
                _, op.device = context.platform.conversion(op.x, *cast_storages(op))


def at_prices(request: PlanRequest, context: PassContext, model: CostModel) -> PlanRequest:
    """A request at the prices of another cost model, at the sizes that are planned for and at the guard points."""
    guards = [context.prices_at(each, model) for each in context.sizes.at_guards()]
    return replace(request, cost_model=context.prices_at(context.sizes, model), guards=guards)


def _stopped(plan: Plan, limit: float | None) -> str:
    kept = (
        "the plan is the best one so far"
        if plan.stopped == "solver"
        else "tensors keep the model's formats, pins aside"
    )
    return f"the time limit of {limit:g} s ended planning in this stage: {kept}, and the gap is {plan.gap:.2%}"


def assign(graph: Graph, op: Op, signature: Signature, kept: Collection[Value] = ()) -> None:
    """Set the signature of an op, and the storages of its outputs.

    Args:
        graph: the graph of the op.
        op: the op.
        signature: its signature.
        kept: values that keep their names in another format.
    """
    op.signature = signature
    for value, storage in zip(op.outputs, signature.outputs, strict=True):
        if value is not None and storage is not None:
            value.storage = storage
            name = storage_name(value, storage)
            if name != value.name and value not in kept:
                graph.rename(value, graph.fresh_name(name))


def has_quantized_ops(graph: Graph) -> bool:
    """Whether an op of the graph, at any depth, computes on integers of few bits or converts to or from them."""
    return any(flags(op).is_quantized for each in regions_with_rule(graph) for op in each.ops)


def reason_to_keep(context: PassContext) -> str:
    """The reason to return the original; empty if the plan, a pass, or what was requested justifies the rewritten model."""
    plan, is_requested = context.plan, context.pins or context.platform is not None or context.sessions == "fast"
    if is_requested or context.is_rewritten or (plan is not None and plan.improves):
        return ""
    if plan is not None and plan.stopped:
        return f"the time limit ended planning ({plan.stopped}) before a faster plan was found"
    return "no other formats are estimated to be faster"
