//! Reader of NumPy files: floating-point arrays in C order.

use std::io::{self, Read};

use cutout_tensor::{Tensor, TensorError, narrowed};
use half::f16;

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
    /// The header is not that of a floating-point array in C order.
    #[error("expected float16, float32 or float64 in C order, got {0}")]
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

/// Element types that are read: name in the header, and bytes of an element.
const TYPES: [(&str, usize); 3] = [("'<f2'", 2), ("'<f4'", 4), ("'<f8'", 8)];

/// Reads an array of any shape in half, single or double precision as `f32`. A number beyond the range of `f32` is an error.
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
    let (width, shape) = parse_header(&String::from_utf8_lossy(&header))?;
    let elements = shape.iter().try_fold(1usize, |all, axis| all.checked_mul(*axis));
    let elements = elements.filter(|count| *count <= MOST_ELEMENTS && shape.len() <= MOST_AXES);
    let expected = elements.ok_or(NpyError::TooMany)? * width;
    let mut content = Vec::new();
    // One byte more shows a file that is too long. The vector grows with the file, not with the shape.
    let found = file.take(expected as u64 + 1).read_to_end(&mut content)?;
    if found != expected {
        return Err(NpyError::Length { expected, found });
    }
    let values = match width {
        2 => values(&content, |bytes| f16::from_le_bytes(bytes).to_f64()),
        4 => values(&content, |bytes| f32::from_le_bytes(bytes).into()),
        _ => values(&content, f64::from_le_bytes),
    };
    Ok(Tensor::from_vec(shape, values?)?)
}

/// The numbers of a file. `number` converts the bytes of one.
fn values<const N: usize>(
    content: &[u8],
    number: impl Fn([u8; N]) -> f64 + Clone,
) -> Result<Vec<f32>, TensorError> {
    let (elements, _) = content.as_chunks::<N>();
    narrowed(elements.iter().map(|bytes| number(*bytes)))
}

fn bytes<const N: usize>(file: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Bytes of an element and the shape, from a header such as `{'descr': '<f4', 'fortran_order': False, 'shape': (256, 256), }`.
fn parse_header(header: &str) -> Result<(usize, Vec<usize>), NpyError> {
    let wrong = || NpyError::Header(header.trim().chars().take(200).collect());
    let known = TYPES.iter().find(|(name, _)| header.contains(name));
    let (_, width) =
        known.filter(|_| header.contains("'fortran_order': False")).ok_or_else(wrong)?;
    let (_, shape) = header.split_once("'shape': (").ok_or_else(wrong)?;
    let (shape, _) = shape.split_once(')').ok_or_else(wrong)?;
    let axes = shape.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    let shape: Result<Vec<usize>, NpyError> =
        axes.map(|axis| axis.parse().map_err(|_| wrong())).collect();
    Ok((*width, shape?))
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
        typed_header("<f4", shape)
    }

    fn typed_header(descr: &str, shape: &str) -> String {
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n")
    }

    #[test]
    fn every_precision_is_read_as_single() {
        let values = [1.5f64, -0.25, f64::INFINITY, 65504.0];
        let halves = values.map(|value| f16::from_f64(value).to_le_bytes()).concat();
        let singles = values.map(|value| (value as f32).to_le_bytes()).concat();
        let doubles = values.map(f64::to_le_bytes).concat();
        for (descr, content) in [("<f2", &halves), ("<f4", &singles), ("<f8", &doubles)] {
            let tensor = read_npy(&file(&typed_header(descr, "2, 2"), content)[..]).unwrap();
            assert_eq!(tensor.shape()[..], [2, 2], "{descr}");
            let expected = values.map(|value| value as f32);
            assert_eq!(tensor.to_vec::<f32>().unwrap(), expected, "{descr}");
            let short = read_npy(&file(&typed_header(descr, "2, 2"), &content[1..])[..]);
            assert!(matches!(short, Err(NpyError::Length { .. })), "{descr}");
        }
        let vast = [1.0, -1e300].map(f64::to_le_bytes).concat();
        let error = read_npy(&file(&typed_header("<f8", "2,"), &vast)[..]).unwrap_err();
        assert_eq!(error.to_string(), "element 1 is -1e300, beyond the range of f32");
        for other in [">f4", "<i4", "|u1", "<c8"] {
            let error = read_npy(&file(&typed_header(other, "2,"), &vast)[..]).unwrap_err();
            assert!(error.to_string().contains("float16, float32 or float64"), "{error}");
        }
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
