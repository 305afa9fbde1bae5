//! Limits on the sizes and counts in a checkpoint. Each one in a file is checked against its limit, and against the rest
//! of the file, before memory is allocated for it.

/// Header of a safetensors or GGUF file, in bytes.
pub const MAX_HEADER_BYTES: u64 = 100 << 20;
/// Tensors in one file.
pub const MAX_TENSORS: u64 = 1 << 20;
/// Axes of one tensor.
pub const MAX_RANK: u64 = 16;
/// Name of a tensor or key of a metadata entry, in bytes.
pub const MAX_NAME_BYTES: u64 = 4096;
/// One text value of the metadata, in bytes.
pub const MAX_TEXT_BYTES: u64 = 16 << 20;
/// Metadata values in one file, including the items of lists.
pub const MAX_METADATA_VALUES: u64 = 1 << 20;
/// Nesting depth of lists in the metadata.
pub const MAX_METADATA_DEPTH: usize = 4;
/// Pickle inside a PyTorch file, in bytes, after decompression.
pub const MAX_PICKLE_BYTES: u64 = 64 << 20;
/// Opcodes of one pickle.
pub const MAX_PICKLE_STEPS: u64 = 16 << 20;
/// Values on the pickle stack.
pub const MAX_PICKLE_STACK: usize = 1 << 20;
/// Open marks on the pickle stack.
pub const MAX_PICKLE_MARKS: usize = 1 << 10;
/// Entries of the pickle memo.
pub const MAX_PICKLE_MEMO: usize = 4 << 20;
/// Lists, tuples, dicts and tensors that one pickle builds.
pub const MAX_PICKLE_OBJECTS: usize = 4 << 20;
/// Nesting depth of dicts above a tensor of a PyTorch file.
pub const MAX_DICT_DEPTH: usize = 8;
/// Values visited while the tensors of a PyTorch file are collected.
pub const MAX_DICT_VISITS: u64 = 8 << 20;
/// Entries of a zip directory.
pub const MAX_ZIP_ENTRIES: u64 = 1 << 20;
/// One deflated storage of a PyTorch file, in bytes, after decompression.
pub const MAX_INFLATED_BYTES: u64 = 4 << 30;
