"""The passes of the dialect `onnxruntime` on lowered graphs, in the order in which they run."""

from layoutopt.dialects.onnxruntime.passes.avoid_prepacking import AvoidPrepacking
from layoutopt.dialects.onnxruntime.passes.avoid_skip_layer_normalization import AvoidSkipLayerNormalization
from layoutopt.dialects.onnxruntime.passes.check_block_size import CheckBlockSize
from layoutopt.dialects.onnxruntime.passes.declare_padded_channels import DeclarePaddedChannels
from layoutopt.dialects.onnxruntime.passes.fuse_into_convolutions import FuseIntoConvolutions
from layoutopt.dialects.onnxruntime.passes.keep_softmax_in_floating_point import KeepSoftmaxInFloatingPoint
from layoutopt.dialects.onnxruntime.passes.pool_integers import PoolIntegers
from layoutopt.dialects.onnxruntime.passes.scale_filters import ScaleFilters
from layoutopt.dialects.onnxruntime.passes.winograd import Winograd
from layoutopt.dialects.passes import SimplifyReshapes
from layoutopt.passes.base import Pass

PASSES: tuple[Pass, ...] = (
    SimplifyReshapes(),
    FuseIntoConvolutions(),
    ScaleFilters(),
    AvoidSkipLayerNormalization(),
    AvoidPrepacking(),
    PoolIntegers(),
    KeepSoftmaxInFloatingPoint(),
    Winograd(),
    DeclarePaddedChannels(),
    CheckBlockSize(),
)

__all__ = ["PASSES"]
