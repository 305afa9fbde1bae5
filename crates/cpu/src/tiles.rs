//! Tile registers: eight tiles of 16 rows of 64 bytes, and products of them.
//!
//! A row of a tile has 16 words of four bytes: 16 sums, 16 pairs of bf16 numbers, or 16 groups of four signed bytes. The left operand
//! of a product has one row of words for each row of the result; the right operand has in row `w` the words number `w` of 16 columns.
//!
//! [`Amx`] are the processor's registers. [`Twin`] is the same in plain Rust, with the same bits: kernels are generic over
//! [`TileUnit`], so that they can be tested where there are no such registers.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;
mod block;
mod sums;
mod twin;

pub(crate) use block::BlockSums;
pub(crate) use sums::{SUM_COLUMNS, SUM_ROWS, Strided, TileSums};
pub(crate) use twin::Twin;

/// Rows of a tile, and words of a row.
pub(crate) const ROWS: usize = 16;
/// Bytes of a row of a tile.
pub(crate) const ROW_BYTES: usize = 64;
/// Bytes of a tile.
pub(crate) const TILE_BYTES: usize = ROWS * ROW_BYTES;

/// The registers of one thread. Their numbers are constants, as in the instructions.
pub(crate) trait TileUnit {
    /// Configures the registers of this thread; dropping the value releases them.
    ///
    /// # Safety
    /// The machine has the registers and the process may use them, here and below. Only one value of a thread exists at a time.
    unsafe fn configure() -> Self;
    /// Sets a tile to zero.
    ///
    /// # Safety
    /// As for [`TileUnit::configure`]; `D` is below 8.
    unsafe fn zero<const D: usize>(&mut self);
    /// Loads a tile whose rows are `stride` bytes apart.
    ///
    /// # Safety
    /// As for [`TileUnit::zero`]; 16 rows of 64 bytes are readable.
    unsafe fn load<const D: usize>(&mut self, source: *const u8, stride: usize);
    /// Stores a tile into rows that are `stride` bytes apart.
    ///
    /// # Safety
    /// As for [`TileUnit::zero`]; 16 rows of 64 bytes are writable.
    unsafe fn store<const S: usize>(&mut self, target: *mut u8, stride: usize);
    /// `D += A · B`: `A` holds 16 rows of 32 bf16, `B` 16 pairs of depths by 16 columns, `D` sums of `f32`.
    ///
    /// # Safety
    /// As for [`TileUnit::zero`]; the machine multiplies [`Halves`], and the three numbers differ.
    unsafe fn dot_halves<const D: usize, const A: usize, const B: usize>(&mut self);
    /// `D += A · B`: `A` holds 16 rows of 64 signed bytes, `B` 16 groups of four depths by 16 columns, `D` sums of `i32`, which wrap.
    ///
    /// # Safety
    /// As for [`TileUnit::zero`]; the machine multiplies [`Bytes`], and the three numbers differ.
    unsafe fn dot_bytes<const D: usize, const A: usize, const B: usize>(&mut self);
}

/// What the words of tiles hold.
pub(crate) trait TileNumbers {
    /// `D += A · B`.
    ///
    /// # Safety
    /// As for [`TileUnit::dot_halves`] or [`TileUnit::dot_bytes`].
    unsafe fn dot<U: TileUnit, const D: usize, const A: usize, const B: usize>(unit: &mut U);
    /// Whether the processor's tile registers multiply these numbers and the system lets this process use them.
    fn is_permitted() -> bool;
}

/// Pairs of bf16 numbers, with sums in `f32`.
#[derive(Clone, Copy)]
pub(crate) struct Halves;

/// Groups of four signed bytes, with sums in `i32`.
#[derive(Clone, Copy)]
pub(crate) struct Bytes;

impl TileNumbers for Halves {
    #[inline(always)]
    unsafe fn dot<U: TileUnit, const D: usize, const A: usize, const B: usize>(unit: &mut U) {
        // SAFETY: the caller vouches for the unit.
        unsafe { unit.dot_halves::<D, A, B>() };
    }

    fn is_permitted() -> bool {
        permitted().halves
    }
}

impl TileNumbers for Bytes {
    #[inline(always)]
    unsafe fn dot<U: TileUnit, const D: usize, const A: usize, const B: usize>(unit: &mut U) {
        // SAFETY: the caller vouches for the unit.
        unsafe { unit.dot_bytes::<D, A, B>() };
    }

    fn is_permitted() -> bool {
        permitted().bytes
    }
}

/// The numbers that the processor's tile registers multiply, where the system lets this process use them.
#[derive(Clone, Copy)]
struct Permitted {
    halves: bool,
    bytes: bool,
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use amx::Amx;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use amx::permitted;

/// Systems without tile registers never choose them; a kernel that asks for them anyway runs on the twin.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) use twin::Twin as Amx;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn permitted() -> Permitted {
    Permitted { halves: false, bytes: false }
}

#[cfg(test)]
mod tests;
