//! The tile registers of the processor (AMX), by inline assembly: stable Rust has no intrinsics for them.

use std::arch::asm;
use std::sync::OnceLock;

use super::{Permitted, ROW_BYTES, ROWS, TileUnit};

/// The processor's tile registers.
pub(crate) struct Amx(());

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Palette 1 with all eight tiles at full size. Constants on purpose: a virtual machine may hide CPUID leaf 0x1D, which
/// describes palettes, although the registers work.
static PALETTE_ONE: Configuration = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        row_bytes[tile] = ROW_BYTES as u16;
        rows[tile] = ROWS as u8;
        tile += 1;
    }
    Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// The numbers that the tile registers multiply. The first call asks the system for the permission, which then holds for all threads
/// of the process.
pub(super) fn permitted() -> Permitted {
    static PERMITTED: OnceLock<Permitted> = OnceLock::new();
    *PERMITTED.get_or_init(|| {
        // SAFETY: every x86-64 processor has the instruction.
        #[allow(unused_unsafe, reason = "the intrinsic is unsafe up to Rust 1.93")]
        let features = unsafe { std::arch::x86_64::__cpuid_count(7, 0) }.edx;
        let [bf16, tiles, int8] = [22, 24, 25].map(|bit| features >> bit & 1 == 1);
        let usable = tiles && (bf16 || int8) && request_permission();
        Permitted { halves: usable && bf16, bytes: usable && int8 }
    })
}

/// `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`.
fn request_permission() -> bool {
    const SYS_ARCH_PRCTL: u64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILEDATA: u64 = 18;
    let result: i64;
    // SAFETY: the call passes no memory; the system overwrites the three registers that are named.
    unsafe {
        asm!("syscall", inlateout("rax") SYS_ARCH_PRCTL => result, in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result == 0
}

impl TileUnit for Amx {
    #[inline(always)]
    unsafe fn configure() -> Amx {
        // SAFETY: the caller vouches for the instruction; it reads the 64 bytes of the configuration.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const PALETTE_ONE,
                options(nostack, preserves_flags, readonly));
        }
        Amx(())
    }

    #[inline(always)]
    unsafe fn zero<const D: usize>(&mut self) {
        // SAFETY: the registers are configured; the compiler keeps nothing in them.
        unsafe { asm!("tilezero tmm{d}", d = const D, options(nostack, preserves_flags, nomem)) };
    }

    #[inline(always)]
    unsafe fn load<const D: usize>(&mut self, source: *const u8, stride: usize) {
        // SAFETY: the caller vouches for the rows.
        unsafe {
            asm!("tileloadd tmm{d}, [{source} + {stride}*1]", d = const D, source = in(reg) source,
                stride = in(reg) stride, options(nostack, preserves_flags, readonly));
        }
    }

    #[inline(always)]
    unsafe fn store<const S: usize>(&mut self, target: *mut u8, stride: usize) {
        // SAFETY: the caller vouches for the rows.
        unsafe {
            asm!("tilestored [{target} + {stride}*1], tmm{s}", s = const S, target = in(reg) target,
                stride = in(reg) stride, options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    unsafe fn dot_halves<const D: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: the registers are configured.
        unsafe {
            asm!("tdpbf16ps tmm{d}, tmm{a}, tmm{b}", d = const D, a = const A, b = const B,
                options(nostack, preserves_flags, nomem));
        }
    }

    #[inline(always)]
    unsafe fn dot_bytes<const D: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: the registers are configured.
        unsafe {
            asm!("tdpbssd tmm{d}, tmm{a}, tmm{b}", d = const D, a = const A, b = const B,
                options(nostack, preserves_flags, nomem));
        }
    }
}

impl Drop for Amx {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the value exists, so the registers of this thread are configured. Released, they are no longer saved at each
        // context switch.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
    }
}
