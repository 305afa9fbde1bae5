//! Storages of a PyTorch archive, and tensors as views of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cutout_tensor::{Shape, SharedBytes, contiguous_strides};

use crate::checkpoint::{Entry, Parsed, Source, TensorInfo, shared};
use crate::error::Problem;
use crate::limits;
use crate::zip::{Packing, ZipDirectory};

use super::pickle::{TensorRecord, Values};

/// A tensor as a view of a storage.
#[derive(Debug)]
pub(crate) struct StorageView {
    /// Index of the archive entry that holds the storage.
    entry: usize,
    /// Bytes per element.
    size: usize,
    /// Elements of the storage.
    elements: u64,
    /// Offset of the first element, in elements.
    offset: u64,
    /// Stride of each axis, in elements.
    strides: Vec<usize>,
}

/// The storages of a file.
pub(crate) struct Archive {
    directory: ZipDirectory,
    /// Decompressed storages by entry index; kept because tensors may share a storage.
    inflated: Mutex<HashMap<usize, SharedBytes>>,
}

/// Checks every tensor against its storage and every storage against its entry.
pub(super) fn build(
    directory: ZipDirectory,
    folder: &str,
    values: &Values<'_>,
    tensors: &[(String, &TensorRecord)],
) -> Result<Parsed, Problem> {
    let mut entries = Vec::with_capacity(tensors.len());
    for (name, record) in tensors {
        let key = values.text(record.storage.key)?;
        let view = view(&directory, &format!("{folder}data/{key}"), record).map_err(|problem| {
            // Users know the name of the tensor, not of the storage.
            Problem::invalid(name, "a view inside its storage", problem)
        })?;
        let shape = Shape::from(record.shape.clone());
        let info = TensorInfo::new(name, record.element.stored(), shape)?;
        entries.push(Entry { info, source: Source::Storage(view) });
    }
    let archive = Archive { directory, inflated: Mutex::default() };
    Ok(Parsed { entries, archive: Some(archive), ..Parsed::default() })
}

fn view(
    directory: &ZipDirectory,
    entry: &str,
    record: &TensorRecord,
) -> Result<StorageView, Problem> {
    let Some(index) = directory.find(entry) else {
        return Err(Problem::invalid("storage", format!("an entry {entry}"), "none"));
    };
    let available = directory.entries[index].size;
    let bytes = record.storage.elements.checked_mul(record.storage.element.size as u64);
    let Some(bytes) = bytes.filter(|bytes| *bytes <= available) else {
        let wanted = format!("{} elements", record.storage.elements);
        return Err(Problem::invalid(entry, wanted, format!("{available} bytes")));
    };
    // The storage may be untyped or have another element type than the tensor, so its size is taken in bytes.
    let size = record.element.size;
    let elements = bytes / size as u64;
    let end = end(record).ok_or_else(|| {
        Problem::invalid("view", format!("at most {elements} elements"), "more than 64 bits count")
    })?;
    if end > elements {
        return Err(Problem::invalid("view", format!("at most {elements} elements"), end));
    }
    let (offset, strides) = (record.offset, record.strides.clone());
    Ok(StorageView { entry: index, size, elements, offset, strides })
}

/// Position after the last element that a tensor reaches; `None` on overflow.
fn end(record: &TensorRecord) -> Option<u64> {
    if record.shape.contains(&0) {
        return Some(0);
    }
    let mut last = record.offset;
    for (&axis, &stride) in record.shape.iter().zip(&record.strides) {
        last = last.checked_add((axis as u64 - 1).checked_mul(stride as u64)?)?;
    }
    last.checked_add(1)
}

impl Archive {
    /// Bytes that hold the tensor contiguously, and its offset in them. Copies only if the view is strided.
    pub(crate) fn contiguous(
        &self,
        file: &SharedBytes,
        view: &StorageView,
        info: &TensorInfo,
    ) -> Result<(SharedBytes, usize), Problem> {
        let elements = info.shape.checked_len()?;
        if elements == 0 {
            return Ok((file.clone(), 0));
        }
        let (bytes, start) = self.storage(file, view)?;
        // `build` has checked the offset against the storage.
        let first = start + view.offset as usize * view.size;
        if is_contiguous(&info.shape, &view.strides) {
            return Ok((bytes, first));
        }
        // A view with stride 0 may repeat few elements without bound; the copy may not exceed the storage.
        Problem::within("elements of a repeated view", view.elements, elements as u64)?;
        let gathered = gather(&(*bytes).as_ref()[first..], view, &info.shape);
        Ok((shared(gathered), 0))
    }

    /// The bytes that hold a storage, and its offset in them.
    fn storage(
        &self,
        file: &SharedBytes,
        view: &StorageView,
    ) -> Result<(SharedBytes, usize), Problem> {
        let content = (**file).as_ref();
        match self.directory.entries[view.entry].packing {
            Packing::Stored => {
                let range = self.directory.packed(content, view.entry)?;
                Ok((file.clone(), range.start))
            }
            Packing::Deflated => {
                // A panic cannot leave the map inconsistent: each entry is inserted by a single call.
                let mut inflated = self.inflated.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(bytes) = inflated.get(&view.entry) {
                    return Ok((bytes.clone(), 0));
                }
                let limit = limits::MAX_INFLATED_BYTES;
                let bytes = shared(self.directory.inflate(content, view.entry, limit)?);
                inflated.insert(view.entry, bytes.clone());
                Ok((bytes, 0))
            }
        }
    }
}

/// Whether the elements are contiguous in row-major order. Strides of axes of length one are ignored.
fn is_contiguous(shape: &[usize], strides: &[usize]) -> bool {
    let expected = contiguous_strides(shape);
    (0..shape.len()).all(|axis| shape[axis] == 1 || strides[axis] == expected[axis])
}

/// Copies the elements of a strided view into row-major order. `bytes` starts at the first element.
fn gather(bytes: &[u8], view: &StorageView, shape: &[usize]) -> Vec<u8> {
    let size = view.size;
    let elements: usize = shape.iter().product();
    let mut gathered = Vec::with_capacity(elements * size);
    let mut index = vec![0usize; shape.len()];
    let mut position = 0;
    for _ in 0..elements {
        gathered.extend_from_slice(&bytes[position * size..][..size]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            position += view.strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            position -= view.strides[axis] * index[axis];
            index[axis] = 0;
        }
    }
    gathered
}
