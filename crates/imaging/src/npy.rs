//! Reader of NumPy files: float32 arrays in C order.

use std::io::{self, Read};

use cutout_tensor::{Tensor, TensorError, memory};

/// First bytes of a NumPy file.
pub const NPY_MAGIC: &[u8] = b"\x93NUMPY";
/// Longest accepted header, in bytes.
const MOST_HEADER: usize = 4096;
/// Most elements accepted; logits of masks have far fewer.
const MOST_ELEMENTS: usize = 1 << 26;
/// Most axes accepted, as in NumPy.
const MOST_AXES: usize = 32;

/// Why a NumPy file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// The file could not be read, or ends too early.
    #[error("cannot read the file: {0}")]
    Read(#[from] io::Error),
    /// The file does not start with NumPy's magic number.
    #[error("not a NumPy file")]
    Magic,
    /// A version of the format that is not known.
    #[error("version {0} of the format is unknown")]
    Version(u8),
    /// The header is longer than any that NumPy writes.
    #[error("a header of {0} bytes is too long")]
    HeaderLength(usize),
    /// The header is not that of a float32 array in C order.
    #[error("expected float32 in C order, got {0}")]
    Header(String),
    /// More elements or axes than accepted.
    #[error("too many elements")]
    TooMany,
    /// The data is shorter or longer than the shape says.
    #[error("expected {expected} bytes of elements, got {found}")]
    Length {
        /// Bytes that the shape needs.
        expected: usize,
        /// Bytes in the file, up to one more than expected.
        found: usize,
    },
    /// The tensor could not be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Reads an `f32` array of any shape.
pub fn read_npy(mut file: impl Read) -> Result<Tensor, NpyError> {
    let mut start = [0; 8];
    file.read_exact(&mut start)?;
    if !start.starts_with(NPY_MAGIC) {
        return Err(NpyError::Magic);
    }
    let length = match start[6] {
        1 => usize::from(u16::from_le_bytes(bytes(&mut file)?)),
        2 | 3 => u32::from_le_bytes(bytes(&mut file)?) as usize,
        version => return Err(NpyError::Version(version)),
    };
    if length > MOST_HEADER {
        return Err(NpyError::HeaderLength(length));
    }
    let mut header = vec![0; length];
    file.read_exact(&mut header)?;
    let shape = shape_of(&String::from_utf8_lossy(&header))?;
    let elements = shape.iter().try_fold(1usize, |all, axis| all.checked_mul(*axis));
    let elements = elements.filter(|count| *count <= MOST_ELEMENTS && shape.len() <= MOST_AXES);
    let expected = elements.ok_or(NpyError::TooMany)? * 4;
    let mut content = Vec::new();
    // One byte more shows a file that is too long. The vector grows with the file, not with the shape.
    let found = file.take(expected as u64 + 1).read_to_end(&mut content)?;
    if found != expected {
        return Err(NpyError::Length { expected, found });
    }
    let (numbers, _) = content.as_chunks::<4>();
    let values = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let values = memory::collected(numbers.len(), values).map_err(TensorError::from)?;
    Ok(Tensor::from_vec(shape, values)?)
}

fn bytes<const N: usize>(file: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The shape from a header such as `{'descr': '<f4', 'fortran_order': False, 'shape': (256, 256), }`.
fn shape_of(header: &str) -> Result<Vec<usize>, NpyError> {
    let wrong = || NpyError::Header(header.trim().chars().take(200).collect());
    if !header.contains("'<f4'") || !header.contains("'fortran_order': False") {
        return Err(wrong());
    }
    let (_, shape) = header.split_once("'shape': (").ok_or_else(wrong)?;
    let (shape, _) = shape.split_once(')').ok_or_else(wrong)?;
    let axes = shape.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    axes.map(|axis| axis.parse().map_err(|_| wrong())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, content: &[u8]) -> Vec<u8> {
        let mut file = [NPY_MAGIC, &[1, 0]].concat();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(content);
        file
    }

    fn header(shape: &str) -> String {
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}\n")
    }

    #[test]
    fn arrays_are_read() {
        let values: Vec<u8> = [1f32, -2.5].iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = read_npy(&file(&header("1, 2"), &values)[..]).unwrap();
        assert_eq!(tensor.shape()[..], [1, 2]);
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, -2.5]);
        assert_eq!(read_npy(&file(&header(""), &values[..4])[..]).unwrap().shape().rank(), 0);
    }

    #[test]
    fn wrong_files_are_errors() {
        let zeros = [0; 8];
        let error = |file: &[u8]| read_npy(file).unwrap_err().to_string();
        for (shape, words) in [
            ("2,", "got"),
            ("3, 1", "got 8"),
            ("67108865,", "too many"),
            ("4294967296, 4294967296", "too many"),
            ("-1,", "float32"),
            ("18446744073709551616,", "float32"),
        ] {
            let content = if shape == "2," { &zeros[..7] } else { &zeros };
            let message = error(&file(&header(shape), content));
            assert!(message.contains(words), "{shape}: {message}");
        }
        assert!(error(b"\x93NUMPY\x09\0").contains("version 9"));
        assert!(error(b"what is this").contains("not a NumPy file"));
        assert!(error(&file("{'descr': '|b1'}", &zeros)).contains("'|b1'"));
    }
}
