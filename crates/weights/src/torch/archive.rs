//! Storages of a PyTorch archive, and tensors as views of them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cutout_tensor::{Shape, SharedBytes, TensorError, contiguous_strides, memory};

use crate::checkpoint::{Entry, Parsed, Source, TensorInfo, shared};
use crate::error::Problem;
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
    /// Decompressed parts of storages, by entry index; kept because tensors may share a storage.
    inflated: Mutex<HashMap<usize, Vec<InflatedPart>>>,
}

/// A decompressed part of a storage.
#[derive(Clone)]
struct InflatedPart {
    /// Byte offset in the storage.
    start: u64,
    bytes: SharedBytes,
}

impl InflatedPart {
    fn holds(&self, range: &Range<u64>) -> bool {
        self.start <= range.start && range.end <= self.start + (*self.bytes).as_ref().len() as u64
    }
}

/// Alignment of a decompressed part in its storage, in bytes: at least that of every element type.
const PART_ALIGNMENT: u64 = 64;

/// A strided view of a deflated storage may span this many times its own bytes, because the span is decompressed.
const LARGEST_SPAN: u64 = 16;

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
        let (bytes, first) = self.first_element(file, view, info)?;
        if is_contiguous(&info.shape, &view.strides) {
            return Ok((bytes, first));
        }
        // A view with stride 0 may repeat few elements without bound; the copy may not exceed the storage.
        Problem::within("elements of a repeated view", view.elements, elements as u64)?;
        let gathered = gather(&(*bytes).as_ref()[first..], view, &info.shape)?;
        Ok((shared(gathered), 0))
    }

    /// The bytes that hold a view, and the offset of its first element in them.
    fn first_element(
        &self,
        file: &SharedBytes,
        view: &StorageView,
        info: &TensorInfo,
    ) -> Result<(SharedBytes, usize), Problem> {
        match self.directory.entries[view.entry].packing {
            Packing::Stored => {
                let range = self.directory.packed((**file).as_ref(), view.entry)?;
                // `build` has checked the offset against the storage.
                Ok((file.clone(), range.start + view.offset as usize * view.size))
            }
            Packing::Deflated => {
                self.inflate(file, std::iter::once((view, info)))?;
                let range = view.range(&info.shape);
                let parts = self.inflated_parts();
                let mut parts = parts.get(&view.entry).into_iter().flatten();
                let part = parts.find(|part| part.holds(&range)).expect("it was just inflated");
                Ok((part.bytes.clone(), (range.start - part.start) as usize))
            }
        }
    }

    /// Decompresses what these views need of deflated storages and is not decompressed yet, each storage in one pass.
    pub(crate) fn inflate<'v>(
        &self,
        file: &SharedBytes,
        views: impl Iterator<Item = (&'v StorageView, &'v TensorInfo)>,
    ) -> Result<(), Problem> {
        let mut inflated = self.inflated_parts();
        let mut wanted: BTreeMap<usize, Vec<Range<u64>>> = BTreeMap::new();
        for (view, info) in views {
            let packing = self.directory.entries[view.entry].packing;
            let range = view.range(&info.shape);
            let known = inflated.get(&view.entry).into_iter().flatten();
            if packing == Packing::Stored
                || range.is_empty()
                || known.clone().any(|p| p.holds(&range))
            {
                continue;
            }
            let span = range.end - range.start;
            let limit = info.bytes.saturating_mul(LARGEST_SPAN).saturating_add(PART_ALIGNMENT);
            Problem::within("span of a view of a deflated storage", limit, span)?;
            wanted.entry(view.entry).or_default().push(range);
        }
        for (entry, ranges) in wanted {
            let ranges = merged(ranges);
            let parts = self.directory.inflate_ranges((**file).as_ref(), entry, &ranges)?;
            let parts = ranges.iter().zip(parts);
            let parts = parts
                .map(|(range, bytes)| InflatedPart { start: range.start, bytes: shared(bytes) });
            inflated.entry(entry).or_default().extend(parts);
        }
        Ok(())
    }

    /// A panic cannot leave the map inconsistent: parts are added by a single call.
    fn inflated_parts(&self) -> MutexGuard<'_, HashMap<usize, Vec<InflatedPart>>> {
        self.inflated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageView {
    /// The bytes of the storage from the first to the last element of the view; empty for an empty one.
    fn range(&self, shape: &[usize]) -> Range<u64> {
        if shape.contains(&0) {
            return 0..0;
        }
        // `view` has checked that this does not overflow.
        let axes = shape.iter().zip(&self.strides);
        let last: u64 = axes.map(|(&axis, &stride)| (axis as u64 - 1) * stride as u64).sum();
        let size = self.size as u64;
        self.offset * size..(self.offset + last + 1) * size
    }
}

/// Sorted ranges that cover the given ones, aligned, with overlapping and adjacent ones joined.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let start = range.start / PART_ALIGNMENT * PART_ALIGNMENT;
        match merged.last_mut().filter(|last| start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => merged.push(start..range.end),
        }
    }
    merged
}

/// Whether the elements are contiguous in row-major order. Strides of axes of length one are ignored.
fn is_contiguous(shape: &[usize], strides: &[usize]) -> bool {
    let expected = contiguous_strides(shape);
    (0..shape.len()).all(|axis| shape[axis] == 1 || strides[axis] == expected[axis])
}

/// Copies the elements of a strided view into row-major order. `bytes` starts at the first element.
fn gather(bytes: &[u8], view: &StorageView, shape: &[usize]) -> Result<Vec<u8>, TensorError> {
    let size = view.size;
    let elements: usize = shape.iter().product();
    let mut gathered = memory::with_capacity(elements * size)?;
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
    Ok(gathered)
}
