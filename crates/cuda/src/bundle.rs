//! The compiled kernels inside this crate, and the manifest that says what they were made from.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::OnceLock;

use flate2::read::ZlibDecoder;
use serde::{Deserialize, Serialize};

use crate::variants::Family;

/// Bytes of all bundles, by family.
const BUNDLES: [(Family, &[u8]); 3] = [
    (Family::Sm90a, include_bytes!("../kernels/bundle-sm90a.bin")),
    (Family::Sm80, include_bytes!("../kernels/bundle-sm80.bin")),
    (Family::Ptx80, include_bytes!("../kernels/bundle-ptx80.bin")),
];

const MANIFEST: &str = include_str!("../kernels/manifest.json");

/// What `cargo xtask kernels` writes beside the bundles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of NVRTC.
    pub compiler: String,
    /// SHA-256 of every source file, by file name.
    pub sources: BTreeMap<String, String>,
    /// The compiled units, by name.
    pub units: BTreeMap<String, UnitRecord>,
    /// The kernels, by name.
    pub kernels: BTreeMap<String, KernelRecord>,
}

/// A compiled unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnitRecord {
    /// Options it was compiled with, without the target.
    pub options: Vec<String>,
    /// SHA-256 of its source, all headers of its folder tree and its options: a unit that has not changed is not compiled again.
    #[serde(default)]
    pub digest: String,
    /// Where its code lies in the bundle of each family, compressed.
    pub code: BTreeMap<Family, CodeRange>,
}

/// A part of a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeRange {
    /// First byte.
    pub offset: usize,
    /// Compressed bytes.
    pub length: usize,
    /// Bytes of the cubin or the PTX text.
    pub plain: usize,
}

/// A kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelRecord {
    /// The unit it is in.
    pub unit: String,
    /// Size of each parameter in bytes, in order.
    pub parameters: Vec<usize>,
    /// Registers, spills and static shared memory of each family that was assembled.
    pub resources: BTreeMap<Family, Resources>,
}

/// What the assembler says of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread spills.
    pub spills: u32,
    /// Static shared memory of a block, in bytes.
    pub shared: u32,
}

/// The manifest of the bundles in this crate.
pub fn manifest() -> &'static Manifest {
    static MANIFEST_ONCE: OnceLock<Manifest> = OnceLock::new();
    MANIFEST_ONCE.get_or_init(|| {
        serde_json::from_str(MANIFEST).expect("a test reads the committed manifest")
    })
}

/// The compressed code of a unit.
pub fn compressed(family: Family, unit: &str) -> Option<&'static [u8]> {
    let range = *manifest().units.get(unit)?.code.get(&family)?;
    let (_, bundle) = BUNDLES.iter().find(|(known, _)| *known == family)?;
    bundle.get(range.offset..range.offset.checked_add(range.length)?)
}

/// The cubin or PTX text of a unit; `None` if the family does not have it. PTX ends with a zero byte.
pub fn code(family: Family, unit: &str) -> Option<Vec<u8>> {
    let range = *manifest().units.get(unit)?.code.get(&family)?;
    let compressed = compressed(family, unit)?;
    let mut plain = Vec::with_capacity(range.plain + 1);
    ZlibDecoder::new(compressed).read_to_end(&mut plain).ok()?;
    if family == Family::Ptx80 {
        plain.push(0);
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use cutout_testing::fixtures::sha256;

    use super::*;
    use crate::variants::units;

    /// Digests of the sources in a folder and its subfolders.
    fn digests(folder: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() {
                digests(&path, &format!("{name}/"), found);
            } else if name.ends_with(".cu") || name.ends_with(".cuh") {
                found.insert(name, sha256(&std::fs::read(path).unwrap()));
            }
        }
    }

    #[test]
    fn sources_are_those_of_the_bundle() {
        let hint = "run `cargo xtask kernels --nvrtc FOLDER`";
        let mut found = BTreeMap::new();
        digests(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels"), "", &mut found);
        assert_eq!(found, manifest().sources, "kernel sources changed: {hint}");
        let known: BTreeSet<String> = units().into_iter().map(|unit| unit.name).collect();
        assert_eq!(known, manifest().units.keys().cloned().collect(), "{hint}");
        for unit in units() {
            let record = &manifest().units[&unit.name];
            assert_eq!(record.options, unit.options(), "{}: {hint}", unit.name);
            assert_eq!(
                record.code.keys().copied().collect::<Vec<_>>(),
                unit.families(),
                "{}",
                unit.name
            );
        }
    }

    #[test]
    fn every_unit_unpacks() {
        for (name, unit) in &manifest().units {
            for (family, range) in &unit.code {
                let code = code(*family, name).unwrap_or_else(|| panic!("{name} {family:?}"));
                assert_eq!(code.len(), range.plain + usize::from(*family == Family::Ptx80));
            }
        }
    }

    /// A warpgroup's registers are fixed where loads and products share a block: a few values may be kept in memory there.
    const MOST_SPILLED: u32 = 80;

    #[test]
    fn kernels_hardly_spill() {
        for (name, kernel) in &manifest().kernels {
            let hopper = manifest().units[&kernel.unit].code.len() == 1;
            for (family, resources) in &kernel.resources {
                let most = if hopper { MOST_SPILLED } else { 0 };
                assert!(resources.spills <= most, "{name} {family:?}: {}", resources.spills);
            }
        }
    }
}
