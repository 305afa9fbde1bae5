//! The allow-list: every function and class that a pickle may name. None is ever called; each maps to a rule by which the
//! interpreter builds a plain value.

use cutout_tensor::DType;

use crate::checkpoint::plain;
use crate::stored::StoredType;

/// An element type with its names in PyTorch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TorchType {
    /// Name of the legacy storage class; empty for types without one.
    storage: &'static str,
    /// Name of the `torch.dtype`.
    dtype: &'static str,
    /// Bytes per element.
    pub(crate) size: usize,
}

impl TorchType {
    pub(crate) fn stored(&self) -> StoredType {
        match self.dtype {
            "float32" => plain(DType::F32),
            "float16" => plain(DType::F16),
            "bfloat16" => plain(DType::BF16),
            "int8" => plain(DType::I8),
            "uint8" => plain(DType::U8),
            "int32" => plain(DType::I32),
            "int64" => plain(DType::I64),
            "bool" => plain(DType::Bool),
            "float64" => StoredType::F64,
            other => StoredType::other(other, self.size),
        }
    }
}

const fn element(storage: &'static str, dtype: &'static str, size: usize) -> TorchType {
    TorchType { storage, dtype, size }
}

const TYPES: &[TorchType] = &[
    element("FloatStorage", "float32", 4),
    element("HalfStorage", "float16", 2),
    element("BFloat16Storage", "bfloat16", 2),
    element("DoubleStorage", "float64", 8),
    element("CharStorage", "int8", 1),
    element("ByteStorage", "uint8", 1),
    element("ShortStorage", "int16", 2),
    element("IntStorage", "int32", 4),
    element("LongStorage", "int64", 8),
    element("BoolStorage", "bool", 1),
    element("ComplexFloatStorage", "complex64", 8),
    element("ComplexDoubleStorage", "complex128", 16),
    element("", "complex32", 4),
    element("", "uint16", 2),
    element("", "uint32", 4),
    element("", "uint64", 8),
    element("", "float8_e4m3fn", 1),
    element("", "float8_e4m3fnuz", 1),
    element("", "float8_e5m2", 1),
    element("", "float8_e5m2fnuz", 1),
    element("", "float8_e8m0fnu", 1),
];

/// A storage of bytes; the tensor has the element type.
static UNTYPED: TorchType = element("UntypedStorage", "untyped", 1);

/// Meaning of a name in a pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// `OrderedDict()`: an empty dict.
    OrderedDict,
    /// `defaultdict(factory)`: an empty dict.
    DefaultDict,
    /// `_rebuild_tensor(storage, offset, size, stride)` and `_rebuild_tensor_v2`, whose further arguments are ignored.
    RebuildTensor,
    /// `_rebuild_tensor_v3`: the element type is the seventh argument.
    RebuildTyped,
    /// `_rebuild_parameter(tensor, …)`: the tensor.
    RebuildParameter,
    /// `_rebuild_from_type_v2(function, type, arguments, state)`: the result of `function(*arguments)`.
    RebuildFromType,
    /// `Size(tuple)`: the tuple.
    Size,
    /// A storage class.
    Storage(&'static TorchType),
    /// A `torch.dtype`.
    Element(&'static TorchType),
    /// A harmless object that cannot hold a tensor; its value is ignored.
    Inert,
}

const NAMES: &[(&str, &str, Name)] = &[
    ("collections", "OrderedDict", Name::OrderedDict),
    ("collections", "defaultdict", Name::DefaultDict),
    ("torch._utils", "_rebuild_tensor", Name::RebuildTensor),
    ("torch._utils", "_rebuild_tensor_v2", Name::RebuildTensor),
    ("torch._utils", "_rebuild_tensor_v3", Name::RebuildTyped),
    ("torch._utils", "_rebuild_parameter", Name::RebuildParameter),
    ("torch._utils", "_rebuild_parameter_with_state", Name::RebuildParameter),
    ("torch._tensor", "_rebuild_from_type_v2", Name::RebuildFromType),
    ("torch", "Size", Name::Size),
    ("torch", "Tensor", Name::Inert),
    ("torch", "device", Name::Inert),
    ("torch.nn.parameter", "Parameter", Name::Inert),
    ("torch.nn.parameter", "Buffer", Name::Inert),
    ("torch.storage", "UntypedStorage", Name::Storage(&UNTYPED)),
    ("argparse", "Namespace", Name::Inert),
    ("numpy", "dtype", Name::Inert),
    ("numpy.core.multiarray", "scalar", Name::Inert),
    ("numpy._core.multiarray", "scalar", Name::Inert),
    ("_codecs", "encode", Name::Inert),
];

/// Built-in classes of Python (module `builtins`, in Python 2 `__builtin__`).
const PLAIN_CLASSES: &[&str] = &[
    "bool",
    "bytes",
    "complex",
    "dict",
    "float",
    "frozenset",
    "int",
    "list",
    "long",
    "set",
    "str",
    "tuple",
    "unicode",
];

/// The meaning of `module.name`; `None` if it is not on the allow-list.
pub(crate) fn find(module: &str, name: &str) -> Option<Name> {
    if let Some((.., meaning)) = NAMES.iter().find(|known| (known.0, known.1) == (module, name)) {
        return Some(*meaning);
    }
    match module {
        "torch" if !name.is_empty() => TYPES.iter().find_map(|known| {
            if known.storage == name {
                Some(Name::Storage(known))
            } else {
                (known.dtype == name).then_some(Name::Element(known))
            }
        }),
        "builtins" | "__builtin__" => PLAIN_CLASSES.contains(&name).then_some(Name::Inert),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allow_list_contains_only_names_that_tensors_need() {
        assert_eq!(find("collections", "OrderedDict"), Some(Name::OrderedDict));
        assert!(matches!(find("torch", "HalfStorage"), Some(Name::Storage(t)) if t.size == 2));
        assert!(matches!(find("torch", "complex64"), Some(Name::Element(t)) if t.size == 8));
        assert_eq!(find("__builtin__", "dict"), Some(Name::Inert));
        for (module, name) in [
            ("os", "system"),
            ("posix", "system"),
            ("builtins", "eval"),
            ("builtins", "getattr"),
            ("torch", "load"),
            ("torch", ""),
            ("torch.storage", "_load_from_bytes"),
            ("torch._utils", "_rebuild_sparse_tensor"),
            ("", ""),
        ] {
            assert_eq!(find(module, name), None, "{module}.{name}");
        }
    }
}
