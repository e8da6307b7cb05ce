"""Laws of plans for platforms: devices and formats are chosen together, and at least as well as one after the other."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from onnx import parser
from test_planner_graphs import Generator, RandomCosts, built, candidates_of, cheapest, mode_of, passes_of
from tiers import tiered

import layoutopt
from layoutopt import onnx_io
from layoutopt.cli import main
from layoutopt.cost import Device, DeviceLink, Platform
from layoutopt.errors import ArgumentError, LayoutoptError, OutputError, TargetError
from layoutopt.ir import DType, Graph
from layoutopt.ir.types import ArrayData
from layoutopt.ops import storage_bytes
from layoutopt.passes.base import PassContext
from layoutopt.passes.planning import placement
from layoutopt.planner import PlanRequest, RegionTree, make_plan
from layoutopt.runtime.session import Session
from layoutopt.testing.rules import lower
from layoutopt.verification.parts import PartedSession, parts_of

BLOCKS, GRAPHS_PER_BLOCK = 8, 25


def random_platform(seed: int, most: float = 0.3) -> Platform:
    """Two or three devices with random prices and links of this largest latency; devices but the host lack kernels."""
    rng = random.Random(f"platform {seed}")
    names = ["cpu", "gpu", "npu"][: rng.choice([2, 2, 3])]
    lacks = [
        frozenset(rng.sample(["Relu", "Add", "MatMul", "Concat"], 2)) if number else frozenset() for number in range(3)
    ]
    devices = [Device(name, RandomCosts(seed * 3 + number), lacks=lacks[number]) for number, name in enumerate(names)]
    link = DeviceLink(tuple(names), 10 ** rng.uniform(2, 5) / most, rng.uniform(0, most), converts=rng.random() < 0.3)
    return Platform("random", devices, [link])


def request_of(seed: int, graph: Graph, platform: Platform, **memory: float) -> PlanRequest:
    devices = {each.name: memory.get(each.name, each.memory) for each in platform.devices}
    places = placement(graph, platform, {})
    return PlanRequest(graph, platform, {}, mode_of(seed) == "inference", devices=devices, placement=places)


@pytest.mark.parametrize("block", tiered(range(BLOCKS), 1))
def test_devices_and_formats_are_the_cheapest_and_the_passes_build_them(block: int) -> None:
    compared = mixed = joint = 0
    for seed in range(block * GRAPHS_PER_BLOCK, (block + 1) * GRAPHS_PER_BLOCK):
        graph, platform, mode = Generator(seed).build(), random_platform(seed), mode_of(seed)
        request = request_of(seed, graph, platform)
        plan, tree = make_plan(request), RegionTree(graph)
        assert plan.optimal, seed
        assert all(each.device in request.placement[op] for op, each in plan.signatures.items()), seed
        others = [*plan.platform.alone.values(), plan.platform.placed_first]
        assert plan.seconds <= min(others) * (1 + 1e-9), seed
        joint += plan.seconds < min(others) * 0.999
        mixed += len({each.device for each in plan.signatures.values()}) > 1
        found, places = candidates_of(tree, platform, {}) or {}, request.placement
        placed = {op: [one.placed(device) for device in places[op] for one in each] for op, each in found.items()}
        if found and np.prod([float(len(each)) for each in placed.values()]) <= 200_000:
            compared += 1
            assert plan.seconds == pytest.approx(cheapest(tree, platform, placed, {}, mode, "cpu"), rel=1e-6), seed
        context = PassContext(platform, mode, platform=platform)
        passes_of(mode).run(graph, context)
        assert context.plan.seconds == plan.seconds, seed
        assert built(graph, platform, mode) == pytest.approx(plan.seconds, rel=1e-9), seed
    assert compared >= 20
    assert mixed >= 4
    assert joint >= 1  # plans that are cheaper than all that choose devices or formats first


@pytest.mark.parametrize("block", tiered(range(BLOCKS), 1))
def test_the_partitions_one_after_the_other_compute_what_the_graph_did(block: int) -> None:
    """Nodes are written in the order of partitions, each of one device, and stock onnxruntime runs them in this order."""
    counts = list[int]()
    for seed in range(block * 12, (block + 1) * 12):
        graph, mode = Generator(seed).build(), mode_of(seed)
        if any(op.domain for op in graph.ops):
            continue
        rng = np.random.default_rng(seed)
        for value in graph.values:
            if value.static_shape is not None and value.data is not None and value.dtype is DType.FLOAT32:
                value.data = ArrayData(rng.uniform(0.05, 0.15, value.static_shape).astype(np.float32))
        feed = {each.name: rng.uniform(0.5, 1.5, each.static_shape).astype(np.float32) for each in graph.inputs}
        names = [value.name for value in graph.outputs]
        expected = Session(onnx_io.to_bytes(onnx_io.emit(graph))).run(None, feed)
        platform = random_platform(seed, 1e-3)
        passes_of(mode).run(graph, PassContext(platform, mode, platform=platform))
        for dialect in ("functions", "ops", "ascend"):
            message = onnx.load_from_string(onnx_io.to_bytes(onnx_io.emit(lower(graph, dialect))))
            onnx.checker.check_model(message, full_check=dialect == "ops")
            stages = [node.device_configurations[0].pipeline_stage for node in message.graph.node]
            parts = parts_of(message.graph)
            assert [number for number, part in enumerate(parts) for _ in range(part.start, part.end)] == stages
            counts.append(len(parts))
            for session in (Session(message.SerializeToString()), PartedSession(message, None)):
                for one, other in zip(expected, session.run(names, feed), strict=True):
                    np.testing.assert_allclose(other, one, rtol=2e-3, atol=1e-5, err_msg=f"{seed} {dialect}")
    assert max(counts) >= 3


def test_the_constants_of_a_device_are_at_most_its_memory() -> None:
    bound = 0
    for seed in range(16):
        graph, platform = Generator(seed).build(), random_platform(seed, 1e-3)
        plan = make_plan(request_of(seed, graph, platform))
        sizes = {
            op: sum(storage_bytes(each, each.storage) for each in {*op.inputs} if each.is_constant) for op in graph.ops
        }
        used = sum(sizes[op] for op, each in plan.signatures.items() if each.device == "gpu")
        if not used:
            continue
        limited = make_plan(request_of(seed, graph, platform, gpu=used / 2))
        assert sum(sizes[op] for op, each in limited.signatures.items() if each.device == "gpu") <= used / 2, seed
        assert plan.seconds <= limited.seconds <= plan.platform.alone["cpu"] * (1 + 1e-6), seed
        bound += limited.seconds > plan.seconds
        other = Platform("other", random_platform(seed + 100).devices, platform.links)
        guarded = make_plan(replace(request_of(seed, graph, platform, gpu=used / 2), guards=[other]))
        assert sum(sizes[op] for op, each in guarded.signatures.items() if each.device == "gpu") <= used / 2, seed
    assert bound >= 4


WEIGHTS = ",".join(["0.1"] * 64)
MODEL = f"""
<ir_version: 10, opset_import: ["" : 18]>
detector (float[1,8,16,16] x, int64[1] k) => (float[n] best, float[1,8,16,16] y)
{{
    w = Constant <value = float[8,8,1,1] {{{WEIGHTS}}}> ()
    [conv] h = Conv (x, w)
    [act] y = Relu (h)
    shape = Constant <value_ints = [-1]> ()
    flat = Reshape (y, shape)
    [top] best, at = TopK (flat, k)
}}
"""
ENDS = """
    s = Constant <value = float {0.05}> () o = Constant <value = uint8 {3}> ()
    i = QuantizeLinear (x, s, o) p = DequantizeLinear (i, s, o)
    j = QuantizeLinear (w, s, o) v = DequantizeLinear (j, s, o)
    q = QuantizeLinear (r, s, o) y = DequantizeLinear (q, s, o)
"""
PLATFORM = (Path(__file__).parents[2] / "examples/platforms/server.toml").read_text()


def test_a_model_is_placed_by_a_platform_file_and_split(tmp_path: Path) -> None:
    source, target, folder = tmp_path / "net.onnx", tmp_path / "server.toml", tmp_path / "pieces"
    onnx.save(parser.parse_model(MODEL), source)
    target.write_text(PLATFORM)
    result = layoutopt.optimize(str(source), str(target), devices={"Conv": "npu"})
    assert result.report.verification.status == "passed"
    devices = {each.kind: each.device for each in result.report.ops}
    assert (devices["Conv"], devices["TopK"]) == ("npu", "cpu")
    *files, manifest = result.split(folder)
    partitions = json.loads(manifest.read_text())["partitions"]
    assert [folder / each["file"] for each in partitions] == files
    assert {each["device"] for each in partitions} == {"cpu", "npu"}
    assert all(onnx.load(each).ir_version == 10 for each in files)
    one = layoutopt.optimize(str(source), str(target), devices={"Conv": "cpu"}, verify=False)
    (folder / "2024-model.onnx").write_bytes(source.read_bytes())
    result.save(other := folder / "2-b.onnx")
    with pytest.raises(OutputError, match=r"pieces: contains other results: 2-b.onnx;"):
        one.split(folder, force=True)
    assert all(each.exists() for each in (*files, manifest))
    other.unlink()
    assert {*one.split(folder), folder / "2024-model.onnx"} == {*folder.iterdir()}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OutputError, match="disk"):
        patch.setattr(onnx_io, "check", lambda _: (_ for _ in ()).throw(OutputError("disk is full")))
        result.split(folder)
    assert not manifest.exists()
    assert main([str(source), "--target", str(target), "--split", str(folder), "--html", str(manifest)]) == 2
    saved = result.save(tmp_path / "out.onnx").model
    assert not layoutopt.optimize(str(saved), str(target), devices={"Conv": "npu"}).report.changed
    target.write_text(PLATFORM.replace("10e-6", "20e-6"))
    assert layoutopt.optimize(str(saved), str(target), devices={"Conv": "npu"}).report.changed  # other prices


def test_a_split_that_would_replace_a_file_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(PLATFORM)
    for read, kept in (("net.onnx", "manifest.json"), ("00-cpu.onnx", "00-cpu.onnx")):
        folder = tmp_path / read
        folder.mkdir()
        (folder / kept).write_text("{}")
        onnx.save(parser.parse_model(MODEL), folder / read)
        result = layoutopt.optimize(str(folder / read), str(tmp_path / "server.toml"), verify=False)
        before = {each: each.read_bytes() for each in folder.iterdir()}
        with pytest.raises(OutputError, match=kept):
            result.split(folder, force=read == kept)
        assert before == {each: each.read_bytes() for each in folder.iterdir()}
    with pytest.raises(ArgumentError, match="no devices of a platform"):
        layoutopt.optimize(result.proto, "cpu-avx2", verify=False).split(folder)
    with pytest.raises(ArgumentError, match="is no path"):
        result.split("a\0b")


def test_the_ops_of_a_qdq_group_run_on_a_device_of_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(PLATFORM)
    text = MODEL.replace("Conv (x, w)", "Conv (p, v)").replace("[act] y = Relu (h)", "[act] r = Relu (h)" + ENDS)
    model = parser.parse_model(text)
    with pytest.raises(TargetError, match="act: the ops of a QDQ group cannot run on one device"):
        layoutopt.optimize(model, str(tmp_path / "server.toml"), devices={"Relu": "cpu", "Conv": "npu"})


def test_a_request_by_name_counts_more_than_one_by_type() -> None:
    platform = Platform("p", [Device("cpu", RandomCosts(1)), Device("npu", RandomCosts(2))])
    graph = Generator(3).build()
    for number, op in enumerate(graph.ops):
        op.name = f"/net/{number}"
    first = graph.ops[0]
    requested = {"/net/0": "npu", first.kind: "cpu", "/net": "cpu"}
    assert placement(graph, platform, requested) == {op: ("npu" if op is first else "cpu",) for op in graph.ops}


MEMORY = 'memory = { value = 9, source = "x" }'
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "no device of server has a kernel of TopK": (PLATFORM.replace('512"', '512"\nlacks = ["ai.onnx::TopK"]'), {}),
    "there is no link between cpu and npu": (PLATFORM.partition("[[link]]")[0], {}),
    "link to gpu, which is no device": (PLATFORM.replace('["cpu", "npu"]', '["cpu", "gpu"]'), {}),
    "device cpu is named twice": (PLATFORM.replace('"npu"\ntarget', '"cpu"\ntarget'), {}),
    "too little memory": (PLATFORM.replace('512"', f'512"\n{MEMORY}').replace("64_000_000_000", "9"), {}),
    "TopK cannot run on npu": (PLATFORM, {"devices": {"TopK": "npu"}}),
    "no op has this type": (PLATFORM, {"devices": {"Gemm": "npu"}}),
    "device tpu=Conv: no device 'tpu'": (PLATFORM, {"devices": {"Conv": "tpu"}}),
    "no device ": (PLATFORM, {"devices": {"Conv": ["npu"]}}),
    "name: is no name": (PLATFORM.replace('"npu"\ntarget', '"../npu"\ntarget'), {}),
    "neither an operator nor a family": (PLATFORM.replace('512"', '512"\nlacks = ["Topk"]'), {}),
    "time limit ended": (
        PLATFORM.replace('512"', f'512"\n{MEMORY}').replace("64_000_000_000", "9"),
        {"time_limit": 1e-9},
    ),
    "openvino: is not for the devices": (PLATFORM, {"runtime": "openvino"}),
    "has too few entries": (PLATFORM.replace('512"', '512"\nops = []'), {}),
    "onnxruntime: is not for the devices": (PLATFORM, {"dialect": "onnxruntime"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_platforms_are_one_line(fault: str, tmp_path: Path) -> None:
    text, options = FAULTS[fault]
    target = tmp_path / "server.toml"
    target.write_text(text)
    with pytest.raises(LayoutoptError, match=fault):
        layoutopt.optimize(parser.parse_model(MODEL), str(target), **options)
