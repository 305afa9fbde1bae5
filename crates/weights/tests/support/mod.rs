//! Shared by the integration tests.

pub(crate) mod torch_file;

use std::path::PathBuf;

/// The folder of committed checkpoints.
#[allow(dead_code, reason = "shared by several test binaries, each of which uses a part")]
pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/checkpoints").join(name)
}

/// A new empty folder, removed on drop.
#[allow(dead_code, reason = "see above")]
pub(crate) struct Folder(pub(crate) PathBuf);

#[allow(dead_code, reason = "see above")]
impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("cutout-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary folder can be written");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A seeded random number generator (xorshift*).
#[allow(dead_code, reason = "see above")]
pub(crate) struct Random(pub(crate) u64);

#[allow(dead_code, reason = "see above")]
impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 16) as usize % bound
    }
}
