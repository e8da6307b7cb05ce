"""For every target in every dialect, a case of ONNX's backend suite has the outcome that it has without layoutopt."""

import pytest
import suite
from onnx.backend.test.case.test_case import TestCase

NODES = {
    "affinegrid": ["test_affine_grid_2d"],
    "ai_onnx_ml.tree_ensemble": ["test_ai_onnx_ml_tree_ensemble_single_tree"],
    "batch_normalization": ["test_batchnorm_example"],
    "bernoulli": ["test_bernoulli_seed"],
    "bitshift": ["test_bitshift_left_uint8"],
    "center_crop_pad": ["test_center_crop_pad_crop_axes_hwc"],
    "cast": ["test_cast_FLOAT_to_BFLOAT16", "test_cast_UINT4_to_FLOAT", "test_cast_FLOAT_to_FLOAT8E4M3FN"],
    "clip": ["test_clip_default_min"],
    "constantofshape": ["test_constantofshape_int_shape_zero"],
    "conv": ["test_basic_conv_with_padding", "test_conv_with_strides_and_asymmetric_padding"],
    "convtranspose": ["test_convtranspose_pads"],
    "dropout": ["test_training_dropout_default"],
    "gemm": ["test_gemm_all_attributes"],
    "globalaveragepool": ["test_globalaveragepool"],
    "identity": ["test_identity_opt"],
    "if_": ["test_if_seq", "test_if_opt"],
    "loop": ["test_loop11", "test_loop13_seq"],
    "lstm": ["test_lstm_batchwise"],
    "matmul": ["test_matmul_3d"],
    "momentum": ["test_momentum"],
    "optionalhaselement": ["test_optional_has_element_empty_optional_input"],
    "pad": ["test_constant_pad_axes"],
    "qlinearconv": ["test_qlinearconv"],
    "reducemax": ["test_reduce_max_empty_set"],
    "resize": ["test_resize_upsample_scales_linear"],
    "sequence_map": ["test_sequence_map_identity_1_sequence"],
    "softmax_cross_entropy_loss": ["test_sce_mean_weight_ii_4d_log_prob_expanded"],
    "spacetodepth": ["test_spacetodepth_crd_mode_example_expanded"],
    "string_concat": ["test_string_concat_zero_dimensional"],
    "topk": ["test_top_k"],
    "transpose": ["test_transpose_all_permutations_3"],
}
"""By the module of onnx that they are in: making the cases of all modules takes seconds."""

MODULES = [(module, name) for module, names in NODES.items() for name in names]

OTHERS = [
    ("simple", "test_gradient_of_add"),
    ("simple", "test_sequence_model1"),
    ("simple", "test_strnorm_model_monday_empty_output"),
    ("pytorch-converted", "test_BatchNorm2d_eval"),
    ("pytorch-converted", "test_Conv2d_groups"),
    ("pytorch-converted", "test_PixelShuffle"),
    ("pytorch-operator", "test_operator_view"),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise with the cases; all of them are built only in the thorough tier: it takes seconds in every process."""
    if metafunc.function is test_every_case:
        is_selected = "not thorough" not in metafunc.config.option.markexpr
        cases = [(kind, name) for kind in suite.KINDS for name in suite.cases(kind)] if is_selected else []
        metafunc.parametrize(("kind", "name"), cases)


def sampled(number: int) -> list[suite.Configuration]:
    """Every eighth configuration and every other dialect for random prices, which differ by case."""
    return suite.configurations()[number % 8 :: 8] + suite.random_configurations(1)[number % 2 :: 2]


def differences(case: TestCase, configurations: list[suite.Configuration]) -> list[suite.Verdict]:
    return [verdict for verdict in suite.verdicts(case, configurations) if not verdict.agrees]


@pytest.mark.parametrize(("module", "name"), MODULES)
def test_a_node_passes_where_it_did(module: str, name: str) -> None:
    assert not differences(suite.node_case(module, name), sampled(MODULES.index((module, name))))


@pytest.mark.parametrize(("kind", "name"), OTHERS)
def test_a_model_passes_where_it_did(kind: str, name: str) -> None:
    assert not differences(suite.cases(kind)[name], sampled(OTHERS.index((kind, name))))


@pytest.mark.thorough
def test_every_case(kind: str, name: str) -> None:
    random = [] if kind == "real" else suite.random_configurations(0)
    assert not differences(suite.cases(kind)[name], suite.configurations() + random)
