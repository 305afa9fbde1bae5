//! Kernel launches as plain data.
//!
//! Lowering produces a list of [`Launch`]es without a driver or a GPU, so that tests can check every pointer range, grid and parameter.
//! Addresses are symbolic ([`Place`]): a program resolves them when it is loaded, and encodes tensor maps then.
//!
//! Convention for kernels: pointers come first, one argument each; all numbers follow in one parameter structure, which is a
//! `#[repr(C)]` Rust type ([`Argument::of`]) with a size assertion; tensor maps are `const __grid_constant__ TensorMap` parameters.

use std::borrow::Cow;

use cutout_tensor::DType;

/// Name of a kernel: the `extern "C"` symbol in the bundle, unique over all sources.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelName(pub Cow<'static, str>);

impl From<&'static str> for KernelName {
    fn from(name: &'static str) -> Self {
        KernelName(Cow::Borrowed(name))
    }
}

impl From<String> for KernelName {
    fn from(name: String) -> Self {
        KernelName(Cow::Owned(name))
    }
}

/// One launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The kernel.
    pub kernel: KernelName,
    /// Blocks along x, y and z; none is 0.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// The arguments, in the order of the kernel's parameters.
    pub arguments: Vec<Argument>,
}

/// A region of device memory whose address is known when a program is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// The arena: temporary values, and scratch memory of launches.
    Arena,
    /// A weight or constant of the program, by number.
    Weight(usize),
    /// The slot of an input, by number. Inputs are copied there before the launches.
    Input(usize),
    /// An output that the plan keeps outside the arena; the index is that of its buffer in the plan.
    Output(usize),
}

/// Part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The region.
    pub region: Region,
    /// First byte that is read or written.
    pub offset: usize,
    /// Bytes from `offset` on that the kernel may touch. Tests check that they lie inside the region.
    pub bytes: usize,
}

impl Place {
    /// The part of this place from `offset` on.
    pub fn from(self, offset: usize) -> Place {
        let skipped = offset.min(self.bytes);
        Place { offset: self.offset + skipped, bytes: self.bytes - skipped, ..self }
    }
}

/// One parameter of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A pointer to memory that the kernel reads.
    Read(Place),
    /// A pointer to memory that the kernel writes, or reads and writes.
    Write(Place),
    /// A null pointer, where an optional operand is absent.
    Null,
    /// Several pointers as one parameter: a structure or array of pointers, null where absent. All of them are read only.
    Table(Vec<Option<Place>>),
    /// A parameter structure or a scalar, as bytes.
    Bytes(Vec<u8>),
    /// A TMA descriptor, encoded when the program is loaded.
    TensorMap(TensorMap),
}

impl Argument {
    /// A parameter structure.
    pub fn of<T: bytemuck::NoUninit>(parameters: &T) -> Argument {
        Argument::Bytes(bytemuck::bytes_of(parameters).to_vec())
    }

    /// Bytes the parameter takes in the kernel's parameter list.
    pub fn size(&self) -> usize {
        match self {
            Argument::Read(_) | Argument::Write(_) | Argument::Null => 8,
            Argument::Table(pointers) => 8 * pointers.len(),
            Argument::Bytes(bytes) => bytes.len(),
            Argument::TensorMap(_) => 128,
        }
    }
}

/// A tiled TMA descriptor, as `cuTensorMapEncodeTiled` takes it; out-of-bounds elements read as zero.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorMap {
    /// The tensor's memory. Its address must be a multiple of 16.
    pub place: Place,
    /// Whether the kernel stores through this map.
    pub writes: bool,
    /// Element type.
    pub element: DType,
    /// Lengths, innermost first, 1 to 5 of them.
    pub dims: Vec<u64>,
    /// Bytes between neighbours along `dims[1..]`; multiples of 16.
    pub strides: Vec<u64>,
    /// Lengths of the box, innermost first, each at most 256.
    pub box_dims: Vec<u32>,
    /// Order of 16-byte pieces in shared memory.
    pub swizzle: Swizzle,
}

/// Order of 16-byte pieces in the shared memory that a TMA box is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swizzle {
    /// As in global memory.
    None,
    /// Exchanged within 32 bytes.
    Bytes32,
    /// Exchanged within 64 bytes.
    Bytes64,
    /// Exchanged within 128 bytes.
    Bytes128,
}
