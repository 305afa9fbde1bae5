//! An open checkpoint: names, types and shapes of its tensors, and the tensors themselves on request.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use cutout_tensor::{
    DType, LazyTensor, Rows, Shape, SharedBytes, Tensor, TensorError, TensorType, narrowed,
};

use crate::error::{Format, Problem, WeightsError};
use crate::gguf::blocks::BlockType;
use crate::metadata::Metadata;
use crate::stored::StoredType;
use crate::torch::archive::{Archive, StorageView};
use crate::{gguf, limits, mmap, nearest, safetensors, torch};

/// Name, type and shape of a tensor; known without loading it.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Name in the file.
    pub name: String,
    /// Element type in the file.
    pub stored: StoredType,
    /// Lengths of the axes, outermost first.
    pub shape: Shape,
    /// Size of the elements in the file, in bytes; 0 if the size of the element type is unknown.
    pub bytes: u64,
}

impl TensorInfo {
    pub(crate) fn new(name: &str, stored: StoredType, shape: Shape) -> Result<Self, Problem> {
        let bytes = stored.bytes(&shape)?;
        Ok(TensorInfo { name: name.to_owned(), stored, shape, bytes })
    }

    /// Type and shape of the loaded tensor; `None` if the element type cannot be loaded.
    pub fn loads_as(&self) -> Option<TensorType> {
        Some(TensorType::new(self.stored.loads_as()?, self.shape.clone()))
    }
}

/// Location of a tensor's elements.
#[derive(Debug)]
pub(crate) enum Source {
    /// Contiguous bytes of the file.
    Range(Range<usize>),
    /// A view of a storage of a PyTorch file.
    Storage(StorageView),
}

/// A tensor and the location of its elements.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) info: TensorInfo,
    pub(crate) source: Source,
}

/// Result of parsing a file.
#[derive(Default)]
pub(crate) struct Parsed {
    pub(crate) entries: Vec<Entry>,
    pub(crate) metadata: Metadata,
    /// `Some` for PyTorch files only.
    pub(crate) archive: Option<Archive>,
}

/// A memory-mapped checkpoint file. Opening reads the header or directory, and no tensor.
pub struct Checkpoint {
    file: String,
    format: Format,
    bytes: SharedBytes,
    infos: Vec<TensorInfo>,
    sources: Vec<Source>,
    by_name: HashMap<String, usize>,
    metadata: Metadata,
    archive: Option<Archive>,
}

impl Checkpoint {
    /// Opens a file of any supported format. The format is detected from the content; the file name does not matter.
    ///
    /// The file is memory-mapped: it must not be modified or truncated while the checkpoint or one of its tensors is
    /// alive. Replacing it by renaming another file over it, as the writers of this crate do, is safe.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint, WeightsError> {
        let path = path.as_ref();
        Checkpoint::from_bytes(path.display().to_string(), mmap::map(path)?)
    }

    /// Parses a checkpoint that is already in memory; `file` is its name in errors.
    pub fn from_bytes(
        file: impl Into<String>,
        bytes: SharedBytes,
    ) -> Result<Checkpoint, WeightsError> {
        let file = file.into();
        let content = (*bytes).as_ref();
        let format = match detect(content) {
            Ok(format) => format,
            Err(found) => return Err(WeightsError::Unrecognised { file, found }),
        };
        let parsed = match format {
            Format::Safetensors => safetensors::parse(content),
            Format::Torch => torch::parse(content),
            Format::Gguf => gguf::parse(content),
        };
        let parsed = parsed.and_then(|parsed| {
            let by_name = index(&parsed.entries)?;
            Ok((parsed, by_name))
        });
        let (parsed, by_name) = match parsed {
            Ok(parsed) => parsed,
            Err(problem) => return Err(WeightsError::Malformed { file, format, problem }),
        };
        let (infos, sources) =
            parsed.entries.into_iter().map(|entry| (entry.info, entry.source)).unzip();
        let Parsed { metadata, archive, .. } = Parsed { entries: Vec::new(), ..parsed };
        Ok(Checkpoint { file, format, bytes, infos, sources, by_name, metadata, archive })
    }

    /// The file name used in errors.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Size of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        (*self.bytes).as_ref().len() as u64
    }

    /// The detected format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.infos
    }

    /// The metadata of the file.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Type and shape of one tensor.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&index| &self.infos[index])
    }

    /// Loads one tensor: a view of the mapped file for plain element types, an `f32` copy for `f64` and quantised blocks.
    pub fn tensor(&self, name: &str) -> Result<Tensor, WeightsError> {
        self.lazy(name)?.tensor().map_err(|error| self.refused(name, error.into()))
    }

    /// As [`Checkpoint::tensor`]; NaN and infinity are errors.
    pub(crate) fn finite_tensor(&self, name: &str) -> Result<Tensor, WeightsError> {
        let tensor = self.searched(name, self.lazy(name)?).tensor();
        tensor.map_err(|error| WeightsError::loading(&self.file, name, error))
    }

    /// A tensor whose error, if NaN or infinity is found in it, has the names of this file and of the tensor there.
    pub(crate) fn searched(&self, name: &str, tensor: LazyTensor) -> LazyTensor {
        tensor.checked(format!("{}: tensor {name}", self.file))
    }

    /// One tensor, loaded on request. Types that need decoding are decoded on every request.
    pub fn lazy(&self, name: &str) -> Result<LazyTensor, WeightsError> {
        let Some(&index) = self.by_name.get(name) else {
            let names = self.infos.iter().map(|info| info.name.as_str());
            return Err(WeightsError::NoSuchTensor {
                file: self.file.clone(),
                tensor: name.to_owned(),
                nearest: nearest::nearest(name, names).map(str::to_owned),
            });
        };
        self.load(index).map_err(|problem| self.refused(name, problem))
    }

    /// Inflates what these tensors need of deflated storages, each storage in one pass and once.
    pub(crate) fn inflate<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<(), WeightsError> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let views = names.filter_map(|name| {
            let index = *self.by_name.get(name)?;
            match &self.sources[index] {
                Source::Storage(view) => Some((view, &self.infos[index])),
                Source::Range(_) => None,
            }
        });
        archive.inflate(&self.bytes, views).map_err(|problem| WeightsError::Malformed {
            file: self.file.clone(),
            format: self.format,
            problem,
        })
    }

    fn refused(&self, name: &str, problem: Problem) -> WeightsError {
        WeightsError::Tensor { file: self.file.clone(), tensor: name.to_owned(), problem }
    }

    fn load(&self, index: usize) -> Result<LazyTensor, Problem> {
        let info = &self.infos[index];
        if info.stored.loads_as().is_none() {
            return Err(Problem::ElementType(info.stored.to_string()));
        }
        match (&self.sources[index], &self.archive) {
            (Source::Range(range), _) => decode(info, self.bytes.clone(), range.start),
            (Source::Storage(view), Some(archive)) => {
                let (bytes, offset) = archive.contiguous(&self.bytes, view, info)?;
                decode(info, bytes, offset)
            }
            (Source::Storage(_), None) => unreachable!("only a PyTorch archive has storages"),
        }
    }
}

/// The contiguous tensor that starts at byte `offset` of `bytes`.
fn decode(info: &TensorInfo, bytes: SharedBytes, offset: usize) -> Result<LazyTensor, Problem> {
    match &info.stored {
        StoredType::Plain(dtype) => {
            let ty = TensorType::new(*dtype, info.shape.clone());
            Ok(Tensor::from_bytes(ty, bytes, offset)?.into())
        }
        StoredType::F64 => decoded_later(info, bytes, offset, |content| {
            let (numbers, _) = content.as_chunks::<8>();
            narrowed(numbers.iter().map(|&bytes| f64::from_le_bytes(bytes)))
        }),
        &StoredType::Block(block) => {
            let range = content(info, &bytes, offset)?;
            let shape = info.shape.clone();
            let ty = TensorType::f32(&shape[..]);
            Ok(LazyTensor::from_rows(ty, BlockRows { block, shape, bytes, range }))
        }
        StoredType::Other { name, .. } => Err(Problem::ElementType(name.clone())),
    }
}

/// Where the elements of a tensor are in `bytes`; an error if they end before it does.
fn content(info: &TensorInfo, bytes: &SharedBytes, offset: usize) -> Result<Range<usize>, Problem> {
    let found = (**bytes).as_ref().len().saturating_sub(offset) as u64;
    if found < info.bytes {
        let what = info.name.clone();
        return Err(Problem::Truncated { what, wanted: info.bytes, found });
    }
    Ok(offset..offset + info.bytes as usize)
}

/// Rows of quantised blocks, decoded to `f32`.
struct BlockRows {
    block: BlockType,
    shape: Shape,
    bytes: SharedBytes,
    range: Range<usize>,
}

impl Rows for BlockRows {
    fn rows(&self, range: Range<usize>) -> Result<Tensor, TensorError> {
        let count = self.shape.first().copied().unwrap_or(0);
        // Whole blocks: the last axis is a multiple of their length, as `StoredType::bytes` has checked.
        let row = self.range.len().checked_div(count).unwrap_or(0);
        let bytes = &(*self.bytes).as_ref()[self.range.clone()];
        let Some(bytes) = bytes.get(range.start * row..range.end * row) else {
            return Err(TensorError::Shape(format!("rows {range:?} of {}", self.shape)));
        };
        let mut shape = self.shape.clone();
        if let Some(rows) = shape.first_mut() {
            *rows = range.len();
        }
        Tensor::from_vec(shape, self.block.dequantize(bytes)?)
    }

    fn release(&self) {
        self.bytes.release(self.range.clone());
    }
}

/// An `f32` tensor that `decode` computes from its bytes on every request. The pages it read are released afterwards.
fn decoded_later(
    info: &TensorInfo,
    bytes: SharedBytes,
    offset: usize,
    decode: impl Fn(&[u8]) -> Result<Vec<f32>, TensorError> + Send + Sync + 'static,
) -> Result<LazyTensor, Problem> {
    let (shape, range) = (info.shape.clone(), content(info, &bytes, offset)?);
    Ok(LazyTensor::new(TensorType::f32(&shape[..]), move || {
        let values = decode(&(*bytes).as_ref()[range.clone()])?;
        bytes.release(range.clone());
        Tensor::from_vec(shape.clone(), values)
    }))
}

/// Index of each tensor by name; an error if a name appears twice.
fn index(entries: &[Entry]) -> Result<HashMap<String, usize>, Problem> {
    Problem::within("number of tensors", limits::MAX_TENSORS, entries.len() as u64)?;
    let mut by_name = HashMap::with_capacity(entries.len());
    for (position, entry) in entries.iter().enumerate() {
        if by_name.insert(entry.info.name.clone(), position).is_some() {
            return Err(Problem::Duplicate(entry.info.name.clone()));
        }
    }
    Ok(by_name)
}

/// Magic numbers of files that are not supported, with the description used in the error.
const FOREIGN: &[(&[u8], &str)] = &[
    (b"version https://git-lfs", "a Git LFS pointer instead of the checkpoint (run git lfs pull)"),
    (b"<!DOCTYPE", "a web page instead of the checkpoint (download the linked file)"),
    (b"<!doctype", "a web page instead of the checkpoint (download the linked file)"),
    (b"<html", "a web page instead of the checkpoint (download the linked file)"),
    (b"lmgg", "an old ggml file from before GGUF"),
    (b"tjgg", "an old ggml file from before GGUF"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"7z\xbc\xaf", "a 7-Zip archive; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive; unpack it first"),
];

/// Description of files written by PyTorch before 1.6.
const LEGACY: &str = "a PyTorch file from before version 1.6 (or written with \
    _use_new_zipfile_serialization=False); load it in PyTorch and save it again with torch.save";

/// Detects the format of a file. The error describes what the content looks like.
fn detect(content: &[u8]) -> Result<Format, String> {
    if content.is_empty() {
        return Err("an empty file".into());
    }
    if content.starts_with(b"GGUF") {
        return Ok(Format::Gguf);
    }
    if content.starts_with(b"PK\x03\x04") || content.starts_with(b"PK\x05\x06") {
        return Ok(Format::Torch);
    }
    if let Some((_, name)) = FOREIGN.iter().find(|(magic, _)| content.starts_with(magic)) {
        return Err((*name).to_owned());
    }
    // A pickle of protocol 2 to 5 starts with PROTO and the protocol number; older files are tar archives.
    let pickle = matches!(content, [0x80, 2..=5, ..]) && content.get(8) != Some(&b'{');
    if pickle || content.get(257..262) == Some(b"ustar") {
        return Err(LEGACY.into());
    }
    // Safetensors: the length of the header, then the header, a JSON object.
    if content.get(8) == Some(&b'{') {
        return Ok(Format::Safetensors);
    }
    let first = content.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
    Err(format!("an unknown kind of file that starts with {}", first.join(" ")))
}

/// Returns an error if two of the named byte ranges overlap.
pub(crate) fn refuse_overlaps(mut ranges: Vec<(Range<usize>, &str)>) -> Result<(), Problem> {
    ranges.retain(|(range, _)| !range.is_empty());
    ranges.sort_by_key(|(range, _)| (range.start, range.end));
    for pair in ranges.windows(2) {
        if pair[1].0.start < pair[0].0.end {
            let (first, second) = (pair[0].1.to_owned(), pair[1].1.to_owned());
            return Err(Problem::Overlap { first, second });
        }
    }
    Ok(())
}

/// Moves bytes on the heap into shared storage.
pub(crate) fn shared(bytes: Vec<u8>) -> SharedBytes {
    Arc::new(bytes)
}

/// The stored type of elements that have the same form in the file and in memory.
pub(crate) const fn plain(dtype: DType) -> StoredType {
    StoredType::Plain(dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(content: &[u8]) -> String {
        match Checkpoint::from_bytes("some.bin", shared(content.to_vec())) {
            Ok(_) => panic!("{content:?} was accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn errors_describe_the_detected_kind_of_file() {
        for (content, word) in [
            (&b""[..], "empty"),
            (b"\x89PNG\r\n\x1a\n", "PNG"),
            (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
            (b"<!DOCTYPE html><html>", "web page"),
            (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "before version 1.6"),
            (b"what is this", "77 68 61 74"),
        ] {
            let message = refusal(content);
            assert!(message.contains(word), "{message}");
            assert!(message.starts_with("some.bin: "), "{message}");
        }
        let mut tar = vec![0u8; 512];
        tar[257..262].copy_from_slice(b"ustar");
        assert!(refusal(&tar).contains("before version 1.6"));
    }

    #[test]
    fn a_missing_file_and_a_folder_have_their_own_errors() {
        let folder = std::env::temp_dir();
        let missing = folder.join("cutout-no-such-file.safetensors");
        assert!(matches!(Checkpoint::open(missing), Err(WeightsError::NotFound { .. })));
        let message = Checkpoint::open(&folder).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("a folder"), "{message}");
    }
}
