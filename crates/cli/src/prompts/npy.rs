//! Reader of NumPy files: float32 arrays in C order.

use std::fs::File;
use std::io::{Read, Take};
use std::path::Path;

use anyhow::{Context, Result, bail};
use cutout_tensor::Tensor;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest accepted header, in bytes.
const MOST_HEADER: usize = 4096;
/// Most elements accepted; logits of masks have far fewer.
const MOST_ELEMENTS: usize = 1 << 26;

/// Whether a file starts with NumPy's magic number.
pub(super) fn is_npy(path: &Path) -> Result<bool> {
    let mut start = [0; MAGIC.len()];
    let mut file = open(path)?;
    Ok(file.read_exact(&mut start).is_ok() && start == MAGIC)
}

/// Reads an array.
pub(super) fn read(path: &Path) -> Result<Tensor> {
    let file = open(path)?;
    parse(file).with_context(|| format!("{}: cannot read this NumPy file", path.display()))
}

fn open(path: &Path) -> Result<Take<File>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Ok(file.take((MOST_ELEMENTS * 4 + MOST_HEADER) as u64))
}

fn parse(mut file: impl Read) -> Result<Tensor> {
    let mut start = [0; 8];
    file.read_exact(&mut start)?;
    let length = match start[6] {
        1 => {
            let mut length = [0; 2];
            file.read_exact(&mut length)?;
            u16::from_le_bytes(length) as usize
        }
        2 | 3 => {
            let mut length = [0; 4];
            file.read_exact(&mut length)?;
            u32::from_le_bytes(length) as usize
        }
        version => bail!("version {version} is unknown"),
    };
    if length > MOST_HEADER {
        bail!("a header of {length} bytes is too long");
    }
    let mut header = vec![0; length];
    file.read_exact(&mut header)?;
    let shape = shape_of(std::str::from_utf8(&header)?)?;
    let elements = shape.iter().try_fold(1usize, |all, axis| all.checked_mul(*axis));
    let elements = elements.filter(|count| *count <= MOST_ELEMENTS).context("too many elements")?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    if bytes.len() != elements * 4 {
        bail!("expected {} bytes of elements, got {}", elements * 4, bytes.len());
    }
    let values = bytes
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    Ok(Tensor::from_vec(shape, values.collect::<Vec<f32>>())?)
}

/// The shape from a header such as `{'descr': '<f4', 'fortran_order': False, 'shape': (256, 256), }`.
fn shape_of(header: &str) -> Result<Vec<usize>> {
    if !header.contains("'<f4'") || !header.contains("'fortran_order': False") {
        bail!("expected float32 in C order, got {}", header.trim());
    }
    let (_, shape) = header.split_once("'shape': (").context("no shape")?;
    let (shape, _) = shape.split_once(')').context("the shape has no end")?;
    let axes = shape.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    Ok(axes.map(str::parse).collect::<Result<_, _>>()?)
}
