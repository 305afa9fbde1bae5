//! The kind of core, for choices that instruction sets do not decide: what is fast was measured on each kind.

use std::sync::OnceLock;

/// Cores that were measured, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CoreKind {
    /// AMD's family 25 with AVX-512: one 512-bit multiply-add per cycle, bf16 pairs at the same rate.
    Zen4,
    /// AMD's family 26: two 512-bit multiply-adds per cycle on servers, bf16 pairs at the same rate.
    Zen5,
    /// AMD's other cores.
    Amd,
    /// Two 512-bit multiply-adds per cycle where there is AVX-512 (Ice Lake to Emerald Rapids).
    Intel,
    /// No x86-64 core, or another maker's.
    Other,
}

impl CoreKind {
    /// The kind of this machine's cores.
    pub(crate) fn detect() -> CoreKind {
        static KIND: OnceLock<CoreKind> = OnceLock::new();
        *KIND.get_or_init(detect)
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> CoreKind {
    let (maker, version) = (leaf(0), leaf(1));
    let name = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).concat();
    match name.as_slice() {
        b"AuthenticAMD" if family(version.eax) == 25 => CoreKind::Zen4,
        b"AuthenticAMD" if family(version.eax) == 26 => CoreKind::Zen5,
        b"AuthenticAMD" => CoreKind::Amd,
        b"GenuineIntel" => CoreKind::Intel,
        _ => CoreKind::Other,
    }
}

/// One of the leaves 0 and 1, which every x86-64 processor has.
#[cfg(target_arch = "x86_64")]
fn leaf(number: u32) -> std::arch::x86_64::CpuidResult {
    // SAFETY: every x86-64 processor has the instruction.
    #[allow(unused_unsafe, reason = "the intrinsic is unsafe up to Rust 1.93")]
    unsafe {
        std::arch::x86_64::__cpuid(number)
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> CoreKind {
    CoreKind::Other
}

/// The family in the version that leaf 1 reports: the extended family is added to the largest base family.
#[cfg(target_arch = "x86_64")]
fn family(version: u32) -> u32 {
    let base = version >> 8 & 0xf;
    if base == 0xf { base + (version >> 20 & 0xff) } else { base }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::family;

    #[test]
    fn families_are_read_from_versions() {
        for (version, expected) in [(0x00A1_0F11, 25), (0x00B0_0F21, 26), (0x000C_06F2, 6)] {
            assert_eq!(family(version), expected, "{version:#x}");
        }
    }
}
