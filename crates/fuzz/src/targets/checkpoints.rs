//! Checkpoints: safetensors, GGUF, PyTorch archives and their pickles.

#[path = "../../../weights/tests/support/torch_file.rs"]
mod torch_file;

use std::path::Path;
use std::sync::Arc;

use cutout_weights::Checkpoint;
use cutout_weights::layout::Model;

use super::Target;

/// Most elements of a tensor that is loaded; larger ones are only listed, because views of a mapped file have no size limit.
const LOADED: usize = 1 << 16;

/// Memory of one checkpoint beyond a multiple of its length, in bytes.
const MEMORY: usize = 1 << 20;

pub(super) const SAFETENSORS: Target = Target {
    name: "safetensors",
    about: "safetensors files",
    seeds: || fixtures("safetensors"),
    words: &["F32", "F16", "BF16", "I8", "BOOL", "F64", "__metadata__", "data_offsets", "shape"],
    read: safetensors,
    memory: MEMORY,
};

pub(super) const GGUF: Target = Target {
    name: "gguf",
    about: "GGUF files",
    seeds: || fixtures("gguf").into_iter().map(|file| file[4..].to_vec()).collect(),
    words: &["general.alignment", "sam2.image_size"],
    read: gguf,
    memory: MEMORY,
};

pub(super) const TORCH_ZIP: Target = Target {
    name: "torch_zip",
    about: "PyTorch archives: zip directory, pickle and storages",
    seeds: || fixtures("pt"),
    words: &["PK\x03\x04", "PK\x01\x02", "PK\x05\x06", "data.pkl", "byteorder", "little", "big"],
    read: torch_zip,
    memory: MEMORY,
};

pub(super) const TORCH_PICKLE: Target = Target {
    name: "torch_pickle",
    about: "pickles in a correct archive with one storage",
    seeds: pickles,
    words: &["ctorch\nFloatStorage\n", "ccollections\nOrderedDict\n", ")R", "tQ", "storage", "cpu"],
    read: torch_pickle,
    memory: MEMORY,
};

/// Opens the bytes as a checkpoint of any format, and reads every tensor of it.
fn checkpoint(bytes: Vec<u8>) -> bool {
    let checkpoint = match Checkpoint::from_bytes("fuzzed", Arc::new(bytes)) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            assert!(error.to_string().starts_with("fuzzed: "));
            return false;
        }
    };
    for info in checkpoint.tensors() {
        if info.shape.elements() > LOADED {
            continue;
        }
        if let Ok(tensor) = checkpoint.tensor(&info.name) {
            assert_eq!(tensor.shape(), &info.shape);
            let _ = tensor.to_f64_vec();
        }
    }
    let _ = Model::of(&checkpoint);
    true
}

/// A safetensors file; a second time with a correct length of the header, which mutations rarely hit.
pub fn safetensors(bytes: &[u8]) -> bool {
    let header = bytes.get(8..).unwrap_or_default();
    let end = header.windows(2).rposition(|pair| pair == b"}}").map_or(0, |at| at + 2);
    let mut file = (end as u64).to_le_bytes().to_vec();
    file.extend(header);
    checkpoint(file) | checkpoint(bytes.to_vec())
}

/// A GGUF file without its magic number.
pub fn gguf(bytes: &[u8]) -> bool {
    checkpoint([b"GGUF", bytes].concat())
}

/// A whole archive.
pub fn torch_zip(bytes: &[u8]) -> bool {
    checkpoint(bytes.to_vec())
}

/// A pickle in a correct archive with one storage.
pub fn torch_pickle(bytes: &[u8]) -> bool {
    let storage = [0; 256];
    checkpoint(torch_file::torch_file(bytes, &[("0", &storage)], torch_file::Zip::Stored))
}

fn pickles() -> Vec<Vec<u8>> {
    let tensor = torch_file::dict(|pickle| {
        let storage = |p: torch_file::Pickle| p.storage("FloatStorage", "0", 64);
        let pickle = pickle.text("w").tensor(storage, 0, &[8, 8], &[1, 8]);
        pickle.text("b").tensor(storage, 56, &[8], &[1])
    });
    let nested = torch_file::dict(|pickle| {
        let storage = |p: torch_file::Pickle| p.storage("HalfStorage", "0", 128);
        pickle.text("model").raw(b"}(").text("w").tensor(storage, 3, &[2, 5], &[16, 1]).raw(b"u")
    });
    vec![tensor, nested]
}

/// The committed checkpoints with this extension.
fn fixtures(extension: &str) -> Vec<Vec<u8>> {
    fixtures_in("checkpoints", extension)
}

/// The committed files in a folder with this extension.
pub(super) fn fixtures_in(folder: &str, extension: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(folder);
    let entries = std::fs::read_dir(folder).expect("the fixtures are part of the repository");
    let mut paths: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a fixture can be read")).collect()
}
