//! The register tile: the part of the output that one micro-kernel call computes.

use crate::gemm::int8::Scales;
use crate::simd::Isa;
use crate::tiles::{ROWS, SUM_COLUMNS};

/// Rows of the left operand by columns of the right operand whose accumulators stay in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// The instruction set whose vectors these are.
    pub isa: Isa,
    /// Rows of a left panel.
    pub rows: usize,
    /// Vectors of a row of a right panel.
    pub vectors: usize,
}

/// A tile's rows, vectors, and cost of a multiply-add relative to the best tile of its set, in percent.
type Candidate = (usize, usize, usize);

/// The accumulators, one row of the right panel and a broadcast element fill the 32 registers.
const AVX512: &[Candidate] = &[(9, 3, 100), (6, 4, 101), (14, 2, 103), (14, 1, 120)];
/// The same for 16 registers.
const AVX2: &[Candidate] = &[(6, 2, 100), (4, 3, 101), (8, 1, 115)];
/// Vectors of 8 lanes take two registers each: 32 of them on AArch64, 16 on x86-64.
#[cfg(target_arch = "aarch64")]
const PORTABLE: &[Candidate] = &[(6, 2, 100), (8, 1, 105)];
#[cfg(not(target_arch = "aarch64"))]
const PORTABLE: &[Candidate] = &[(6, 1, 100)];

/// Bytes with scales per block of depths need an integer and a float accumulator per output.
const AVX512_BLOCKED: &[Candidate] = &[(7, 2, 100)];
const AVX2_BLOCKED: &[Candidate] = &[(6, 1, 100)];
const PORTABLE_BLOCKED: &[Candidate] = &[(6, 1, 100)];

impl Tile {
    /// The tile that is cheapest for a right operand of `columns` columns, padding included.
    pub fn choose(isa: Isa, columns: usize) -> Tile {
        let isa = isa.or_available();
        let candidates = match isa {
            Isa::Avx512 => AVX512,
            Isa::Avx2 => AVX2,
            Isa::Portable => PORTABLE,
        };
        Tile::cheapest(isa, columns, candidates)
    }

    /// The same for a right operand of bytes.
    pub fn choose_int8(isa: Isa, columns: usize, granularity: Scales) -> Tile {
        let isa = isa.or_available();
        let candidates = match (granularity, isa) {
            (Scales::PerRow, _) => return Tile::choose(isa, columns),
            (Scales::PerBlock, Isa::Avx512) => AVX512_BLOCKED,
            (Scales::PerBlock, Isa::Avx2) => AVX2_BLOCKED,
            (Scales::PerBlock, Isa::Portable) => PORTABLE_BLOCKED,
        };
        Tile::cheapest(isa, columns, candidates)
    }

    fn cheapest(isa: Isa, columns: usize, candidates: &[Candidate]) -> Tile {
        let cost = |&&(_, vectors, percent): &&Candidate| {
            columns.next_multiple_of(vectors * isa.lanes()) * percent
        };
        let best = candidates.iter().min_by_key(cost);
        let &(rows, vectors, _) = best.expect("every instruction set has a tile");
        Tile { isa, rows, vectors }
    }

    /// The panels of products on tile registers, with their epilogue on vectors of `isa`.
    pub(super) fn of_tiles(isa: Isa) -> Tile {
        let isa = isa.or_available();
        Tile { isa, rows: ROWS, vectors: SUM_COLUMNS / isa.lanes() }
    }

    /// Columns of a right panel.
    pub fn columns(self) -> usize {
        self.vectors * self.isa.lanes()
    }
}
