//! The bodies of the fuzz targets, as plain functions that compile on any toolchain.

#[path = "../../crates/weights/tests/support/torch_file.rs"]
mod torch_file;

use std::sync::Arc;

use cutout_weights::Checkpoint;

/// Most elements of a tensor that is loaded; larger ones are only listed, because views of a mapped file have no size limit.
const LOADED: usize = 1 << 16;

/// Opens the bytes as a checkpoint of any format, and reads every tensor of it.
pub fn checkpoint(bytes: Vec<u8>) {
    let checkpoint = match Checkpoint::from_bytes("fuzzed", Arc::new(bytes)) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            let _ = error.to_string();
            return;
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
    let _ = cutout_weights::layout::Model::of(&checkpoint);
}

/// Prepends the length of the header, so that the fuzzer need not find it.
pub fn safetensors(bytes: &[u8]) {
    let header = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let mut file = (header as u64).to_le_bytes().to_vec();
    file.extend(&bytes[..header]);
    file.extend(bytes.get(header + 1..).unwrap_or_default());
    checkpoint(file);
    checkpoint(bytes.to_vec());
}

/// Prepends the magic number.
pub fn gguf(bytes: &[u8]) {
    checkpoint([b"GGUF", bytes].concat());
}

/// A whole archive.
pub fn torch_zip(bytes: &[u8]) {
    checkpoint(bytes.to_vec());
}

/// A pickle in a correct archive with one storage.
pub fn torch_pickle(bytes: &[u8]) {
    let storage = [0; 256];
    checkpoint(torch_file::torch_file(bytes, &[("0", &storage)], torch_file::Zip::Stored));
}

/// Most pixels of a JPEG file that is decoded; the header of larger ones is read only.
const PIXELS: usize = 1 << 20;

/// A JPEG file.
pub fn jpeg(bytes: &[u8]) {
    let Ok(decoder) = cutout_jpeg::Decoder::new(bytes) else { return };
    let pixels = decoder.width() * decoder.height();
    if pixels > PIXELS {
        return;
    }
    if let Ok(picture) = decoder.decode() {
        assert_eq!(picture.rgb.len(), 3 * pixels);
    }
}
