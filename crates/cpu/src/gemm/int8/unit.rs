//! What multiplies bytes.

use crate::simd::Isa;
use crate::tiles::{Bytes, TileNumbers};

/// What multiplies signed bytes. All units give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteUnit {
    /// Tile registers: AMX. Weights with a scale for each block of depths are multiplied by vectors.
    Tiles,
    /// The tile registers in plain Rust: for tests on machines without them.
    TileTwin,
    /// Vector instructions.
    Vectors,
}

impl ByteUnit {
    /// Every unit, fastest first.
    pub const ALL: [ByteUnit; 3] = [ByteUnit::Tiles, ByteUnit::Vectors, ByteUnit::TileTwin];

    /// The unit that is fastest on this machine, for kernels compiled for `isa`.
    pub fn detect(isa: Isa) -> ByteUnit {
        if isa == Isa::Avx512 && ByteUnit::Tiles.is_available() {
            ByteUnit::Tiles
        } else {
            ByteUnit::Vectors
        }
    }

    /// Whether this machine can use the unit. Only the tile registers need a machine that has them.
    pub fn is_available(self) -> bool {
        match self {
            ByteUnit::Tiles => Bytes::is_permitted(),
            ByteUnit::TileTwin | ByteUnit::Vectors => true,
        }
    }

    /// Name for people and for packed forms of weights.
    pub const fn name(self) -> &'static str {
        match self {
            ByteUnit::Tiles => "tiles",
            ByteUnit::TileTwin => "tile twin",
            ByteUnit::Vectors => "vectors",
        }
    }

    /// What is used and why, for people.
    pub const fn description(self, isa: Isa) -> &'static str {
        match (self, isa) {
            (ByteUnit::Tiles, _) => "tile registers (AMX)",
            (ByteUnit::TileTwin, _) => "tile registers in plain code: slow, for tests",
            (ByteUnit::Vectors, Isa::Avx512) => "dot products of four bytes (VNNI)",
            (ByteUnit::Vectors, Isa::Avx2) => "products of bytes added in pairs (AVX2)",
            (ByteUnit::Vectors, Isa::Portable) => "plain code, a quarter of the memory for weights",
        }
    }
}
