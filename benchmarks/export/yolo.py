"""YOLO v5, v8 and 11, size n, with and without NMS: the published architectures in torch modules of our own, random weights.

    python benchmarks/export/yolo.py [NAME ...]

The modules are written here from the published descriptions of the blocks (C3, C2f, C3k2, SPPF, C2PSA, detection heads), since
the package that contains them has a licence (AGPL-3.0) that this repository does not have. Needs torch (2.13 was used).
yolov5n and yolov8n are exported by TorchScript, yolo11n by torch.export. `yolov8n_nms` has NonMaxSuppression behind the head,
and returns the selected boxes and scores.
"""

import io
import sys

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from skeleton import keep_small, write
from torch import Tensor, nn

CLASSES = 80
SIZE = 640
STRIDES = (8, 16, 32)


class Conv(nn.Module):
    """Convolution, batch norm, SiLU."""

    def __init__(
        self, c1: int, c2: int, k: int = 1, s: int = 1, g: int = 1, act: bool = True, p: int | None = None
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, k // 2 if p is None else p, groups=g, bias=False)
        self.bn = nn.BatchNorm2d(c2, eps=1e-3, momentum=None)
        self.act = nn.SiLU() if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, c1: int, c2: int, shortcut: bool = True, k: tuple[int, int] = (3, 3), e: float = 0.5) -> None:
        super().__init__()
        hidden = int(c2 * e)
        self.cv1, self.cv2 = Conv(c1, hidden, k[0]), Conv(hidden, c2, k[1])
        self.add = shortcut and c1 == c2

    def forward(self, x: Tensor) -> Tensor:
        y = self.cv2(self.cv1(x))
        return x + y if self.add else y


class C3(nn.Module):
    """Two branches of 1x1 convolutions, one through bottlenecks, joined by a third 1x1 convolution."""

    def __init__(
        self, c1: int, c2: int, n: int = 1, shortcut: bool = True, k: tuple[int, int] = (1, 3), e: float = 0.5
    ) -> None:
        super().__init__()
        c = int(c2 * e)
        self.cv1, self.cv2, self.cv3 = Conv(c1, c), Conv(c1, c), Conv(2 * c, c2)
        self.m = nn.Sequential(*(Bottleneck(c, c, shortcut, k, 1.0) for _ in range(n)))

    def forward(self, x: Tensor) -> Tensor:
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class C2f(nn.Module):
    """One 1x1 convolution split in two; every bottleneck's result is kept for the second 1x1 convolution."""

    def __init__(self, c1: int, c2: int, n: int = 1, shortcut: bool = False, e: float = 0.5) -> None:
        super().__init__()
        self.c = int(c2 * e)
        self.cv1, self.cv2 = Conv(c1, 2 * self.c), Conv((2 + n) * self.c, c2)
        self.m = nn.ModuleList(self.block(shortcut) for _ in range(n))

    def block(self, shortcut: bool) -> nn.Module:
        return Bottleneck(self.c, self.c, shortcut, e=1.0)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.cv1(x).chunk(2, 1))
        for block in self.m:
            parts.append(block(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class C3k2(C2f):
    """C2f, with bottlenecks of half the width or with C3 blocks of 3x3 kernels."""

    def __init__(self, c1: int, c2: int, n: int = 1, c3k: bool = False, e: float = 0.5) -> None:
        self.c3k = c3k
        super().__init__(c1, c2, n, True, e)

    def block(self, shortcut: bool) -> nn.Module:
        return C3(self.c, self.c, 2, shortcut, (3, 3)) if self.c3k else Bottleneck(self.c, self.c, shortcut)


class SPPF(nn.Module):
    """Three max pools in a row, all of whose results are joined."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.cv1, self.cv2, self.m = Conv(c, c // 2), Conv(c * 2, c), nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(self.m(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class Attention(nn.Module):
    """Attention over pixels, with a depthwise convolution of the values as the position."""

    def __init__(self, c: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head, self.key = heads, c // heads, c // heads // 2
        self.qkv, self.proj = Conv(c, c + heads * self.key * 2, act=False), Conv(c, c, act=False)
        self.pe = Conv(c, c, 3, g=c, act=False)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        joined = self.qkv(x).view(b, self.heads, self.key * 2 + self.head, h * w)
        q, k, v = joined.split([self.key, self.key, self.head], 2)
        weights = ((q.transpose(-2, -1) @ k) * self.key**-0.5).softmax(-1)
        x = (v @ weights.transpose(-2, -1)).view(b, c, h, w) + self.pe(v.reshape(b, c, h, w))
        return self.proj(x)


class PSABlock(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.attn, self.ffn = Attention(c, max(c // 64, 1)), nn.Sequential(Conv(c, c * 2), Conv(c * 2, c, act=False))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        return x + self.ffn(x)


class C2PSA(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.c = c // 2
        self.cv1, self.cv2, self.m = Conv(c, c), Conv(c, c), PSABlock(c // 2)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.cv1(x).split((self.c, self.c), 1)
        return self.cv2(torch.cat((a, self.m(b)), 1))


class AnchorHead(nn.Module):
    """The head of v5: three anchors per cell."""

    ANCHORS = ((10, 13, 16, 30, 33, 23), (30, 61, 62, 45, 59, 119), (116, 90, 156, 198, 373, 326))

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        self.m = nn.ModuleList(nn.Conv2d(c, 3 * (5 + CLASSES), 1) for c in channels)

    def forward(self, features: list[Tensor]) -> Tensor:
        found = []
        for conv, x, anchors, stride in zip(self.m, features, self.ANCHORS, STRIDES, strict=True):
            x = conv(x)
            b, _, h, w = x.shape
            x = x.view(b, 3, 5 + CLASSES, h, w).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
            centre, extent, scores = x.split((2, 2, CLASSES + 1), 4)
            cells = torch.stack(torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")[::-1], 2).float() - 0.5
            centre = (centre * 2 + cells) * stride
            extent = (extent * 2) ** 2 * torch.tensor(anchors).float().view(1, 3, 1, 1, 2)
            found.append(torch.cat((centre, extent, scores), 4).view(b, 3 * h * w, 5 + CLASSES))
        return torch.cat(found, 1)


class Head(nn.Module):
    """The head of v8 and 11: distances to the four sides as distributions over 16 bins, and scores of classes."""

    def __init__(self, channels: tuple[int, ...], depthwise: bool) -> None:
        super().__init__()
        c2, c3 = max(16, channels[0] // 4, 64), max(channels[0], min(CLASSES, 100))
        self.boxes = nn.ModuleList(
            nn.Sequential(Conv(c, c2, 3), Conv(c2, c2, 3), nn.Conv2d(c2, 64, 1)) for c in channels
        )
        self.scores = nn.ModuleList(
            nn.Sequential(
                *(
                    (Conv(c, c, 3, g=c), Conv(c, c3), Conv(c3, c3, 3, g=c3), Conv(c3, c3))
                    if depthwise
                    else (Conv(c, c3, 3), Conv(c3, c3, 3))
                ),
                nn.Conv2d(c3, CLASSES, 1),
            )
            for c in channels
        )
        self.dfl = nn.Conv2d(16, 1, 1, bias=False)
        self.dfl.weight.data[:] = torch.arange(16.0).view(1, 16, 1, 1)

    def forward(self, features: list[Tensor]) -> Tensor:
        b = features[0].shape[0]
        joined = [
            torch.cat((box(x), score(x)), 1) for box, score, x in zip(self.boxes, self.scores, features, strict=True)
        ]
        anchors, strides = [], []
        for x, stride in zip(joined, STRIDES, strict=True):
            h, w = x.shape[2:]
            y, z = torch.meshgrid(torch.arange(float(h)) + 0.5, torch.arange(float(w)) + 0.5, indexing="ij")
            anchors.append(torch.stack((z, y), -1).view(-1, 2))
            strides.append(torch.full((h * w, 1), float(stride)))
        anchor, stride = torch.cat(anchors).transpose(0, 1).unsqueeze(0), torch.cat(strides).transpose(0, 1)
        box, score = torch.cat([x.view(b, 64 + CLASSES, -1) for x in joined], 2).split((64, CLASSES), 1)
        sides = self.dfl(box.view(b, 4, 16, -1).transpose(2, 1).softmax(1)).view(b, 4, -1)
        near, far = sides.chunk(2, 1)
        low, high = anchor - near, anchor + far
        return torch.cat((torch.cat(((low + high) / 2, high - low), 1) * stride, score.sigmoid()), 1)


class Yolo(nn.Module):
    """A backbone, a feature pyramid up and down, and a head."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self.version = version
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        if version == 5:
            back = [
                Conv(3, 16, 6, 2, p=2),
                Conv(16, 32, 3, 2),
                C3(32, 32),
                Conv(32, 64, 3, 2),
                C3(64, 64, 2),
                Conv(64, 128, 3, 2),
            ]
            back += [C3(128, 128, 3), Conv(128, 256, 3, 2), C3(256, 256), SPPF(256)]
            self.reduce = nn.ModuleList([Conv(256, 128), Conv(128, 64)])
            self.pyramid = nn.ModuleList(
                [C3(256, 128, 1, False), C3(128, 64, 1, False), C3(128, 128, 1, False), C3(256, 256, 1, False)]
            )
            self.down = nn.ModuleList([Conv(64, 64, 3, 2), Conv(128, 128, 3, 2)])
            self.head: nn.Module = AnchorHead((64, 128, 256))
        else:
            back = self.newer_backbone()
            block = C2f if version == 8 else C3k2
            self.reduce = nn.ModuleList([nn.Identity(), nn.Identity()])
            widest = C2f(384, 256) if version == 8 else C3k2(384, 256, 1, True)
            lowest = block(192 if version == 8 else 256, 64)
            self.pyramid = nn.ModuleList([block(384, 128), lowest, block(192, 128), widest])
            self.down = nn.ModuleList([Conv(64, 64, 3, 2), Conv(128, 128, 3, 2)])
            self.head = Head((64, 128, 256), depthwise=version == 11)
        self.back = nn.ModuleList(back)

    def newer_backbone(self) -> list[nn.Module]:
        if self.version == 8:
            blocks: list[nn.Module] = [
                C2f(32, 32, 1, True),
                C2f(64, 64, 2, True),
                C2f(128, 128, 2, True),
                C2f(256, 256, 1, True),
            ]
            widths = (32, 64, 128, 256)
        else:
            blocks = [
                C3k2(32, 64, 1, e=0.25),
                C3k2(64, 128, 1, e=0.25),
                C3k2(128, 128, 1, True),
                C3k2(256, 256, 1, True),
            ]
            widths = (32, 64, 128, 256)
        after = (16, 32, 64, 128) if self.version == 8 else (16, 64, 128, 128)
        layers: list[nn.Module] = [Conv(3, 16, 3, 2)]
        for block, width, before in zip(blocks, widths, after, strict=True):
            layers += [Conv(before, width, 3, 2), block]
        return [*layers, SPPF(256), *([C2PSA(256)] if self.version == 11 else [])]

    def forward(self, x: Tensor) -> Tensor:
        kept = {}
        for number, layer in enumerate(self.back):
            x = layer(x)
            kept[number] = x
        p3, p4 = kept[4], kept[6]
        p5 = self.reduce[0](x)
        middle = self.pyramid[0](torch.cat((self.up(p5), p4), 1))
        middle = self.reduce[1](middle)
        small = self.pyramid[1](torch.cat((self.up(middle), p3), 1))
        medium = self.pyramid[2](torch.cat((self.down[0](small), middle), 1))
        large = self.pyramid[3](torch.cat((self.down[1](medium), p5), 1))
        return self.head([small, medium, large])


def lively(version: int) -> Yolo:
    """A network whose batch norms have the statistics of noise that is smooth as images are, and varied scales."""
    torch.manual_seed(version)
    model = Yolo(version)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.3)
    model.train()
    with torch.no_grad():
        for _ in range(2):
            model(torch.rand(1, 3, SIZE, SIZE))
    return model.eval()


def exported(version: int, dynamo: bool) -> onnx.ModelProto:
    model, image = lively(version), torch.rand(1, 3, SIZE, SIZE)
    buffer = io.BytesIO()
    names = {"input_names": ["images"], "output_names": ["output0"]}
    if dynamo:
        program = torch.onnx.export(model, (image,), dynamo=True, opset_version=18, **names)
        return program.model_proto
    torch.onnx.export(model, (image,), buffer, dynamo=False, opset_version=17, **names)
    return onnx.load_model_from_string(buffer.getvalue())


def with_nms(model: onnx.ModelProto) -> onnx.ModelProto:
    """Corners of boxes and scores into NonMaxSuppression; the outputs are the selected boxes, scores and indices."""
    graph = model.graph
    constants = {
        "nms_split": np.array([4, CLASSES]),
        "nms_most": np.array([100]),
        "nms_overlap": np.array([0.45], np.float32),
        "nms_score": np.array([0.7], np.float32),
        "nms_columns": np.array([2]),
        "nms_first": np.array([0]),
        "nms_half": np.array(0.5, np.float32),
        "nms_pair": np.array([2, 2]),
    }
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    graph.node.extend(
        [
            helper.make_node("Split", ["output0", "nms_split"], ["nms_boxes", "nms_scores"], axis=1),
            helper.make_node("Transpose", ["nms_boxes"], ["nms_rows"], perm=[0, 2, 1]),
            helper.make_node("Split", ["nms_rows", "nms_pair"], ["nms_centre", "nms_extent"], axis=2),
            helper.make_node("Mul", ["nms_extent", "nms_half"], ["nms_reach"]),
            helper.make_node("Sub", ["nms_centre", "nms_reach"], ["nms_low"]),
            helper.make_node("Add", ["nms_centre", "nms_reach"], ["nms_high"]),
            helper.make_node("Concat", ["nms_low", "nms_high"], ["nms_corners"], axis=2),
            helper.make_node(
                "NonMaxSuppression", ["nms_corners", "nms_scores", "nms_most", "nms_overlap", "nms_score"], ["selected"]
            ),
            helper.make_node("Gather", ["selected", "nms_columns"], ["nms_places"], axis=1),
            helper.make_node("Squeeze", ["nms_corners", "nms_first"], ["nms_list"]),
            helper.make_node("Squeeze", ["nms_places", "nms_axis"], ["nms_place"]),
            helper.make_node("Gather", ["nms_list", "nms_place"], ["boxes"], axis=0),
            helper.make_node("GatherND", ["nms_scores", "selected"], ["scores"]),
        ]
    )
    graph.initializer.append(numpy_helper.from_array(np.array([1]), "nms_axis"))
    del graph.output[:]
    graph.output.extend(
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["found", 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["found"]),
            helper.make_tensor_value_info("selected", TensorProto.INT64, ["found", 3]),
        ]
    )
    onnx.checker.check_model(model)
    return model


def anchors_too(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor stays: also the centres of cells, by which boxes overlap as boxes do."""
    return keep_small(tensor) or tuple(tensor.dims) in {(1, 2, 8400), (1, 8400)}


NETWORKS = {
    "yolov5n": lambda: (exported(5, dynamo=False), keep_small),
    "yolov8n": lambda: (exported(8, dynamo=False), keep_small),
    "yolov8n_nms": lambda: (with_nms(exported(8, dynamo=False)), anchors_too),
    "yolo11n": lambda: (exported(11, dynamo=True), keep_small),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or NETWORKS:
        model, keep = NETWORKS[name]()
        image = np.random.default_rng(0).random((1, 3, SIZE, SIZE), dtype=np.float32)
        write(model, name, {"images": image}, keep)
