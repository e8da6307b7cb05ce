"""Catalogue of named formats, each with the system that uses it and the source of its definition.

`lookup` turns a name into a Format, which does not keep the name. {C0} is a number of elements that depends on the
dtype, so the names of Ascend need one.

Formats outside the grammar are left out: FRACTAL_Z with groups, FRACTAL_Z_C04 and C1HWNCoC0, which mix axes within a block
or hold zeros (`formats.ascend` has them as arrays, the dialect `ascend` writes them), and the swizzled layouts of CUTLASS,
which are a layout followed by a permutation of offset bits.
"""

import difflib
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from layoutopt.errors import FormatError
from layoutopt.formats.format import SCALAR, Format, Part, is_numbered
from layoutopt.registry import EntryPoints

_MEGENGINE = "MegEngine src/gopt/impl/global_layout_transform/utils.h, tensor_formats_to_named_tensor_shape"
_MEGENGINE_OPERATORS = "MegEngine src/gopt/impl/global_layout_transform/utils.h, opr_format_to_tensor_formats"
_ONEDNN = "oneDNN include/oneapi/dnnl/dnnl_types.h"
_ASCEND = "Ascend graph_metadef/third_party/transformer/src/transfer_shape_utils.cc"
_MATRIX = "CUTLASS include/cutlass/layout/matrix.h"
_TENSOR = "CUTLASS include/cutlass/layout/tensor.h"


@dataclass(frozen=True, slots=True)
class Entry:
    """A named format.

    Args:
        name: the name in its system.
        system: the system, such as "oneDNN".
        notation: the format in the grammar of `Format.parse`, possibly with the placeholder {C0}.
        axes: the letters of the axes in logical order.
        note: its use or its constraints.
        source: the file that defines it.
    """

    name: str
    system: str
    notation: str
    axes: str
    note: str
    source: str

    def format(self, dtype: str | None = None, axes: str | None = None) -> Format:
        """The format, for tensors of a dtype if the notation depends on it.

        Args:
            dtype: the element type.
            axes: the letters of the logical axes in the order of the tensor, if that is another one than the entry's.

        Raises:
            FormatError: the format depends on the dtype, and none is given.
        """
        axes = self.axes if axes is None else axes
        if "{C0}" not in self.notation:
            return Format.parse(self.notation, axes)
        if dtype is None:
            raise FormatError("depends on the dtype", where=self.name, hint="give one, like float16")
        return Format.parse(self.notation.replace("{C0}", str(c0(dtype))), axes)


def format_system(system: str, source: str, *rows: tuple[str, str, str, str]) -> tuple[Entry, ...]:
    """The formats of one system.

    Args:
        system: its name, `oneDNN` for example.
        source: the document or file that defines the formats.
        rows: of each format its name, its notation, the letters of its axes in logical order, and a note.

    Raises:
        FormatError: a notation does not follow the grammar.
    """
    return tuple(Entry(name, system, notation, axes, note, source) for name, notation, axes, note in rows)


_ENTRIES = (
    *format_system(
        "PyTorch",
        "PyTorch c10/core/MemoryFormat.h",
        ("contiguous", "NCHW", "NCHW", "torch.contiguous_format of four axes"),
        ("channels_last", "NHWC", "NCHW", "torch.channels_last"),
        ("channels_last_3d", "NDHWC", "NCDHW", "torch.channels_last_3d"),
    ),
    *format_system(
        "MegEngine",
        _MEGENGINE,
        ("NCHW", "NCHW", "NCHW", "feature maps as ONNX defines them"),
        ("NHWC", "NHWC", "NCHW", "channels last"),
        ("NCHWc4", "NCHW4c", "NCHW", "int8 with dp4a, float32 with NEON"),
        ("NCHWc8", "NCHW8c", "NCHW", "float16 with NEON, float32 with AVX2"),
        ("NCHWc32", "NCHW32c", "NCHW", "int8 on tensor cores"),
        ("NCHWc64", "NCHW64c", "NCHW", "int4 on tensor cores"),
        ("CHWNc4", "CHWN4c", "NCHW", "int8 in large batches on Turing: the batch within, channels outermost"),
        ("NHCWc4", "NHCW4c", "NCHW", "channel blocks between rows and columns, for images of OpenCL"),
        ("KRSCk4", "KRSC4k", "KCRS", "filters"),
        ("KRSCk8", "KRSC8k", "KCRS", "filters"),
        ("KRSCk4c4", "KRSC4k4c", "KCRS", "filters"),
        ("KCRSk4c4", "KCRS4k4c", "KCRS", "filters"),
        ("KCRSc4k4", "KCRS4c4k", "KCRS", "filters of NCHW44"),
        ("KCRSc8k8", "KCRS8c8k", "KCRS", "filters of NCHW88"),
        ("KCRSc4", "KCRS4c", "KCRS", "filters of NCHW4"),
        ("KCRSc32", "KCRS32c", "KCRS", "filters of NCHW32"),
        ("KCRSc64", "KCRS64c", "KCRS", "filters of NCHW64"),
        ("CRSKc4", "CRSK4c", "KCRS", "filters of CHWN4"),
        ("KRSC", "KRSC", "KCRS", "filters of NHWC"),
        ("GKRSCk4", "GKRSC4k", "GKCRS", "grouped filters"),
        ("GKRSCk4c4", "GKRSC4k4c", "GKCRS", "grouped filters"),
        ("GKCRSk4c4", "GKCRS4k4c", "GKCRS", "grouped filters"),
        ("GKCRSc4k4", "GKCRS4c4k", "GKCRS", "grouped filters of NCHW44"),
        ("GKCRSc8k8", "GKCRS8c8k", "GKCRS", "grouped filters of NCHW88"),
        ("GKCRSc4", "GKCRS4c", "GKCRS", "grouped filters of NCHW4"),
        ("C11RSc4", "GKCRS4g", "GKCRS", "depthwise filters of NCHW44: one channel per group"),
        ("C11RSc8", "GKCRS8g", "GKCRS", "depthwise filters of NCHW88: one channel per group"),
        ("C1RSc4", "KCRS4k", "KCRS", "depthwise filters of NHWCD4: K is the channel, C is 1"),
        ("KCRS", "KCRS", "KCRS", "filters as ONNX defines them"),
        ("GKCRS", "GKCRS", "GKCRS", "filters with their groups"),
        ("C11RS", "GKCRS", "GKCRS", "depthwise filters: one channel per group"),
    ),
    *format_system(
        "MegEngine",
        _MEGENGINE_OPERATORS,
        ("NCHW4", "NCHW4c", "NCHW", ""),
        ("NCHW44", "NCHW4c", "NCHW", ""),
        ("NCHW44_DOT", "NCHW4c", "NCHW", ""),
        ("NCHW8", "NCHW8c", "NCHW", ""),
        ("NCHW88", "NCHW8c", "NCHW", ""),
        ("NCHW32", "NCHW32c", "NCHW", ""),
        ("NCHW64", "NCHW64c", "NCHW", ""),
        ("CHWN4", "CHWN4c", "NCHW", ""),
        ("NHWCD4", "NHCW4c", "NCHW", ""),
    ),
    *format_system(
        "oneDNN",
        _ONEDNN,
        ("nchw", "NCHW", "NCHW", ""),
        ("nhwc", "NHWC", "NCHW", ""),
        ("ncw", "NCW", "NCW", "feature maps of one spatial axis, as ONNX defines them"),
        ("nwc", "NWC", "NCW", "channels last"),
        ("ncdhw", "NCDHW", "NCDHW", "feature maps of three spatial axes, as ONNX defines them"),
        ("ndhwc", "NDHWC", "NCDHW", "channels last"),
        ("oihw", "OIHW", "OIHW", "filters as ONNX defines them"),
        ("hwio", "HWIO", "OIHW", "filters of TensorFlow"),
        ("ohwi", "OHWI", "OIHW", "filters of channels last"),
        ("nChw4c", "NCHW4c", "NCHW", "aBcd4b"),
        ("nChw8c", "NCHW8c", "NCHW", "aBcd8b: AVX2 and SSE"),
        ("nChw16c", "NCHW16c", "NCHW", "aBcd16b: AVX-512"),
        ("nChw32c", "NCHW32c", "NCHW", "aBcd32b"),
        ("nCdhw16c", "NCDHW16c", "NCDHW", "aBcde16b"),
        ("OIhw4i4o", "OIHW4i4o", "OIHW", "filters of nChw4c"),
        ("OIhw8i8o", "OIHW8i8o", "OIHW", "filters of nChw8c"),
        ("OIhw16i16o", "OIHW16i16o", "OIHW", "filters of nChw16c"),
        ("Ohwi8o", "OHWI8o", "OIHW", "filters for few input channels"),
        ("Ohwi16o", "OHWI16o", "OIHW", "filters for few input channels"),
        ("goihw", "GOIHW", "GOIHW", "grouped filters as ONNX defines them"),
        ("gOIhw8i8o", "GOIHW8i8o", "GOIHW", "grouped filters of nChw8c"),
        ("gOIhw16i16o", "GOIHW16i16o", "GOIHW", "grouped filters of nChw16c"),
        ("Goihw4g", "GOIHW4g", "GOIHW", "depthwise filters of nChw4c"),
        ("Goihw8g", "GOIHW8g", "GOIHW", "depthwise filters of nChw8c"),
        ("Goihw16g", "GOIHW16g", "GOIHW", "depthwise filters of nChw16c"),
    ),
    *format_system(
        "Ascend",
        _ASCEND,
        ("ND", "MN", "MN", "a matrix as it is"),
        ("NC1HWC0", "NCHW{C0}c", "NCHW", "feature maps of the cube unit"),
        ("NC1HWC0_C04", "NCHW4c", "NCHW", "for at most four channels"),
        ("NDC1HWC0", "NDCHW{C0}c", "NCDHW", "feature maps of three spatial axes"),
        ("FRACTAL_Z", "IHWO16o{C0}i", "OIHW", "filters without groups"),
        ("FRACTAL_Z_3D", "DIHWO16o{C0}i", "OIDHW", "filters without groups"),
        ("FRACTAL_Z_3D_TRANSPOSE", "DHWOI16o{C0}i", "OIDHW", "filters of the transposed convolution"),
        ("FRACTAL_NZ", "NM16m{C0}n", "MN", "matrices of the cube unit; see `fractal_nz` for batches of them"),
        ("NZ", "NM16m{C0}n", "MN", "FRACTAL_NZ for short"),
        ("FRACTAL_ZZ", "MN{C0}m{C0}n", "MN", "square fractals"),
    ),
    *format_system(
        "Ascend",
        "Ascend hiascend.com, Data Layout Formats (atlas_ascendc_10_0099)",
        ("zN", "NM16m{C0}n", "MN", "FRACTAL_NZ: column-major fractals, row-major within"),
        ("zZ", "MN16m{C0}n", "MN", "left operands in L0A: row-major fractals, row-major within"),
        ("nZ", "MN16n{C0}m", "MN", "right operands in L0B: row-major fractals, column-major within"),
        ("FRACTAL_ZN", "MN16n{C0}m", "MN", "nZ; on matrices also called FRACTAL_Z"),
    ),
    *format_system(
        "CUTLASS",
        _MATRIX,
        ("RowMajor", "MN", "MN", ""),
        ("ColumnMajor", "NM", "MN", ""),
        ("RowMajorInterleaved<32>", "MN32m", "MN", "any number within <> is accepted"),
        ("ColumnMajorInterleaved<32>", "NM32n", "MN", "any number within <> is accepted"),
    ),
    *format_system(
        "CUTLASS",
        _TENSOR,
        ("TensorNHWC", "NHWC", "NCHW", ""),
        ("TensorNCHW", "NCHW", "NCHW", ""),
        ("TensorNCxHWx<32>", "NCHW32c", "NCHW", "any number within <> is accepted"),
        ("TensorCxRSKx<32>", "CRSK32c", "KCRS", "filters; any number within <> is accepted"),
        ("TensorNDHWC", "NDHWC", "NCDHW", ""),
    ),
    *format_system(
        "TVM",
        "TVM python/tvm/topi/nn/conv2d.py",
        ("NCHW16c", "NCHW16c", "NCHW", "any number is accepted: the name is a notation"),
        ("OIHW16i16o", "OIHW16i16o", "OIHW", "filters of NCHW16c"),
    ),
)


def _accepted(found: Any) -> tuple[Entry, ...]:
    """The formats that an entry point refers to; each notation is parsed once, so that loading raises its errors."""
    if not isinstance(found, tuple | list) or not found or not all(isinstance(each, Entry) for each in found):
        raise TypeError(
            f"is no format system but a {type(found).__name__}: make one with layoutopt.extend.format_system"
        )
    for entry in found:
        entry.format("float16")
    return tuple(found)


EXTENSIONS = EntryPoints("layoutopt.formats", _accepted)
"""Format systems of installed packages."""


@cache
def _extension_entries() -> tuple[Entry, ...]:
    return tuple(entry for found in EXTENSIONS.load_all().values() for entry in found)


_C0 = {8: 32, 4: 64, 2: 128, 1: 256}
_BITS = {"bool": 8, "half": 16, "float": 32, "double": 64}
_TEMPLATE = re.compile(r"(\w+<)([1-9][0-9]*)>")
_TAG = re.compile(r"([0-9_]*)([a-zA-Z])")


def entries() -> tuple[Entry, ...]:
    """Every entry of the catalogue, system by system; those of installed packages come last."""
    return (*_ENTRIES, *_extension_entries())


def lookup(name: str, dtype: str | None = None, axes: str | None = None) -> Format:
    """The format with a name or a notation.

    Names of the catalogue take precedence, first exactly as written and then ignoring case. Any other text is parsed as a
    notation, in which the lower-case tags of oneDNN (`nChw8c`, `acdb`) are equivalent to upper-case letters.

    Args:
        name: a name of the catalogue, or a notation.
        dtype: the element type, like `float16`, for names whose blocks depend on it.
        axes: the letters of the logical axes in their order, if that does not follow from the name: the format NHWC of
            a tensor with the axes `"NHWC"` is canonical.

    Raises:
        FormatError: there is no such format, or it depends on a dtype and none is given.
    """
    template = _TEMPLATE.fullmatch(name)
    entry = entry_of(f"{template[1]}32>" if template else name)
    if entry and template:
        entry = replace(entry, notation=entry.notation.replace("32", template[2]))
    if entry and (axes is None or sorted(axes) == sorted(entry.axes)):
        return entry.format(dtype, axes)
    try:
        return Format.parse(_notation(name), axes)
    except FormatError as error:
        names = [entry.name for entry in entries()]
        close = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(name.upper(), names, n=1)
        raise FormatError(error.what, where=name, hint=f"did you mean {close[0]}?" if close else error.hint) from None


def c0(dtype: str) -> int:
    """The number of elements in Ascend's innermost block: 32 bytes for types of up to 16 bits, otherwise 16 elements.

    Source: K0 of the platform table `[DtypeMKN]`, the same from Ascend 310 to 910B: 16, but 32 for int8, 64
    for int4. Chips whose cube unit computes float32 have 8 for it, as their target tables declare.

    Raises:
        FormatError: the dtype has no known width.
    """
    width = re.match(r"[a-z]+([0-9]+)", dtype.lower())
    bits = int(width[1]) if width else _BITS.get(dtype.lower())
    if bits is None:
        raise FormatError("not a dtype of known width", where=dtype, hint="name one like float16 or int8")
    return _C0.get(bits, 16)


def fractal_nz(rank: int, m0: int = 16, c0: int = 16) -> Format:
    """FRACTAL_NZ of a tensor (..., M, N): batch axes, N, M, then `m0` rows of `c0` columns.

    Raises:
        FormatError: the rank is below 2.
    """
    if rank < 2:
        raise FormatError(f"is for matrices, not for rank {rank}", where="FRACTAL_NZ", hint="unsqueeze the tensor")
    rows, columns = rank - 2, rank - 1
    outer = (*range(rows), columns, rows)
    return Format((*map(Part, outer), Part(rows, m0), Part(columns, c0)))


def entry_of(name: str) -> Entry | None:
    """The entry of a name: first as it is written, then in any case; built-in ones before those of installed packages."""
    return _find(_ENTRIES, name) or _find(_extension_entries(), name)


def _find(among: tuple[Entry, ...], name: str) -> Entry | None:
    exact = (entry for entry in among if entry.name == name)
    folded = (entry for entry in among if entry.name.casefold() == name.casefold())
    return next(exact, None) or next(folded, None)


def _notation(tag: str) -> str:
    """A tag of oneDNN in upper-case letters for outer parts: a letter without a number is an outer part in either case."""
    return (
        tag
        if tag == SCALAR or is_numbered(tag)
        else _TAG.sub(lambda token: token[0].lower() if token[1] else token[0].upper(), tag)
    )
