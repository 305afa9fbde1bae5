//! Model layouts: identification of the model that a checkpoint holds, and Meta's names for its tensors.
//!
//! Meta's names are canonical. [`Model::of`] identifies family and size from the tensors alone, strips the prefixes that
//! training scripts add, and renames Hugging Face's tensors by tables. [`Model::report`] compares the result with the
//! tensors a model needs and lists all differences at once.

mod identity;
mod names;
mod report;
mod rules;

use std::collections::BTreeMap;
use std::ops::Range;

use cutout_tensor::{DType, LazyTensor, Rows, Shape, Tensor, TensorError, TensorType, memory};

use crate::checkpoint::Checkpoint;
use crate::error::{Problem, WeightsError};
use crate::outgoing::Outgoing;
use crate::stored::StoredType;

pub use identity::{Dialect, Family, Identity, Size, identify};
pub use report::{Misshapen, Named, Report, Unsuitable};

use identity::{recognise, shared_prefix};
use names::Contents;
use rules::{Renamed, rename};

/// Source of a tensor with a canonical name, by names in the file.
#[derive(Clone, Debug, PartialEq)]
enum Origin {
    /// A whole tensor.
    Whole(String),
    /// One row of a tensor; the first axis stays, with length one.
    Row(String, usize),
    /// Queries, keys and values, stacked along the first axis. All are `Some` in a finished [`Model`].
    Stack([Option<String>; 3]),
}

/// A checkpoint of a known model, with its tensors under Meta's names.
pub struct Model<'a> {
    checkpoint: &'a Checkpoint,
    identity: Identity,
    dialect: Dialect,
    tensors: BTreeMap<String, Origin>,
}

impl Origin {
    /// Names in the file of all tensors it is made of.
    fn stored(&self) -> Vec<&str> {
        match self {
            Origin::Whole(name) | Origin::Row(name, _) => vec![name],
            Origin::Stack(parts) => parts.iter().flatten().map(String::as_str).collect(),
        }
    }

    /// Name of the tensor in the file; of the first one if several are stacked.
    fn first(&self) -> Option<&str> {
        match self {
            Origin::Whole(name) | Origin::Row(name, _) => Some(name),
            Origin::Stack([first, ..]) => first.as_deref(),
        }
    }
}

impl<'a> Model<'a> {
    /// Identifies a checkpoint and renames its tensors.
    pub fn of(checkpoint: &'a Checkpoint) -> Result<Model<'a>, WeightsError> {
        let file = || checkpoint.file().to_owned();
        let infos = checkpoint.tensors();
        let shapes = || infos.iter().map(|info| (info.name.as_str(), &info.shape[..]));
        let (identity, dialect) =
            recognise(shapes()).ok_or_else(|| WeightsError::UnknownModel {
                file: file(),
                tensors: infos.len(),
                example: infos.first().map_or_else(String::new, |info| info.name.clone()),
            })?;
        let contents = Contents::of(shapes().map(|(name, _)| name));
        let stages = names::stages(identity.family, dialect, contents);
        let prefix = shared_prefix(shapes().map(|(name, _)| name));
        let malformed = |problem| WeightsError::Malformed {
            file: file(),
            format: checkpoint.format(),
            problem,
        };
        let mut tensors = BTreeMap::new();
        for info in infos {
            let renamed = rename(&info.name[prefix.len()..], stages);
            add(&mut tensors, &info.name, &info.shape, renamed).map_err(malformed)?;
        }
        for (name, origin) in &tensors {
            check_stacked(checkpoint, name, origin).map_err(malformed)?;
        }
        Ok(Model { checkpoint, identity, dialect, tensors })
    }

    /// Family and size.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The naming scheme of the file.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Canonical names, sorted, with the type of the loaded tensor (`None` if it cannot be loaded) and the shape.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Option<TensorType>, Shape)> {
        self.stored().map(|(name, stored, shape)| {
            let dtype = stored.loads_as();
            (name, dtype.map(|dtype| TensorType::new(dtype, shape.clone())), shape)
        })
    }

    /// Canonical names, with stored type and shape.
    fn stored(&self) -> impl Iterator<Item = (&str, &StoredType, Shape)> {
        self.tensors.iter().filter_map(|(name, origin)| {
            let info = self.checkpoint.info(origin.first()?)?;
            let mut shape = info.shape.clone();
            match origin {
                Origin::Whole(_) => {}
                Origin::Row(..) => shape[0] = 1,
                Origin::Stack(parts) => shape[0] *= parts.len(),
            }
            Some((name.as_str(), &info.stored, shape))
        })
    }

    /// Loads one tensor by its canonical name.
    pub fn tensor(&self, name: &str) -> Result<Tensor, WeightsError> {
        self.lazy(name)?.tensor().map_err(|error| self.refused(name, error))
    }

    /// One tensor by its canonical name, loaded on request. Stacked tensors are joined on every request.
    pub fn lazy(&self, name: &str) -> Result<LazyTensor, WeightsError> {
        self.assembled(name, &|_, tensor| tensor)
    }

    /// Weights by their canonical names, loaded on request. NaN and infinity in one are an error when it is first read,
    /// with the names of file and tensor. Of deflated storages only what these tensors need is inflated.
    pub fn weights<'n>(
        &self,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Result<Vec<(String, LazyTensor)>, WeightsError> {
        let origins = names.clone().filter_map(|name| self.tensors.get(name));
        self.checkpoint.inflate(origins.flat_map(Origin::stored))?;
        names.map(|name| Ok((name.to_owned(), self.searched(name)?))).collect()
    }

    /// As [`Model::lazy`]; NaN and infinity in a tensor of the file are errors with its name.
    fn searched(&self, name: &str) -> Result<LazyTensor, WeightsError> {
        self.assembled(name, &|stored, tensor| self.checkpoint.searched(stored, tensor))
    }

    /// A tensor made of those in the file, each of which `each` gets with its name there.
    fn assembled(
        &self,
        name: &str,
        each: &dyn Fn(&str, LazyTensor) -> LazyTensor,
    ) -> Result<LazyTensor, WeightsError> {
        let origin = self.tensors.get(name).ok_or_else(|| self.no_such(name))?;
        match origin {
            Origin::Whole(stored) => Ok(each(stored, self.checkpoint.lazy(stored)?)),
            Origin::Row(stored, row) => {
                let rows = self.checkpoint.tensor(stored)?.slice(0, *row..*row + 1);
                let rows = rows.map_err(|error| self.refused(name, error))?;
                Ok(each(stored, LazyTensor::from(rows)))
            }
            Origin::Stack(parts) => {
                let load = |part: &String| Ok(each(part, self.checkpoint.lazy(part)?));
                let parts = parts.iter().flatten().map(load);
                Ok(stacked(parts.collect::<Result<Vec<_>, WeightsError>>()?))
            }
        }
    }

    fn no_such(&self, name: &str) -> WeightsError {
        let names = self.tensors.keys().map(String::as_str);
        WeightsError::NoSuchTensor {
            file: self.checkpoint.file().to_owned(),
            tensor: name.to_owned(),
            nearest: crate::nearest::nearest(name, names).map(str::to_owned),
        }
    }

    fn refused(&self, name: &str, error: TensorError) -> WeightsError {
        WeightsError::loading(self.checkpoint.file(), name, error)
    }

    /// Reason why a tensor of Meta's files is computed instead of read; `None` for tensors that are read.
    pub fn computed(name: &str) -> Option<&'static str> {
        names::computed(name)
    }

    /// Lists missing, misshapen, unsuitable and unused tensors, compared with the tensors a model needs. [Computed](Model::computed)
    /// tensors do not count as unused.
    pub fn report<'n>(&self, needed: impl IntoIterator<Item = (&'n str, Shape)>) -> Report {
        let needed: BTreeMap<&str, Shape> = needed.into_iter().collect();
        let read = self.stored().filter(|(name, ..)| names::computed(name).is_none());
        let found = read.map(|(name, _, shape)| (name.to_owned(), shape)).collect();
        let wanted = needed.iter().map(|(name, shape)| ((*name).to_owned(), shape.clone()));
        let is_weight = |stored: &StoredType| stored.loads_as().is_some_and(DType::is_float);
        let unsuitable = self
            .stored()
            .filter(|(name, stored, _)| needed.contains_key(name) && !is_weight(stored))
            .map(|(name, stored, _)| Unsuitable { name: name.into(), stored: stored.to_string() });
        Report { unsuitable: unsuitable.collect(), ..Report::compare(wanted, found) }
    }

    /// All tensors under their canonical names, for a writer. NaN and infinity in one are an error when it is loaded.
    pub fn outgoing(&self) -> Outgoing<'_> {
        let mut outgoing = Outgoing::default();
        // An error is reported when the tensor is loaded.
        let _ = self.checkpoint.inflate(self.tensors.values().flat_map(Origin::stored));
        for (name, stored, shape) in self.stored() {
            let load = || self.searched(name)?.tensor().map_err(|error| self.refused(name, error));
            outgoing.add(name, stored, shape, load);
        }
        outgoing
    }
}

/// Most rows that one tensor may be split into.
const MAX_ROWS: u64 = 64;

/// Adds one tensor of the file under its canonical names.
fn add(
    tensors: &mut BTreeMap<String, Origin>,
    name: &str,
    shape: &Shape,
    renamed: Renamed,
) -> Result<(), Problem> {
    let name = name.to_owned();
    let mut enter = |canonical: String, origin| match tensors.insert(canonical.clone(), origin) {
        Some(_) => Err(Problem::Duplicate(canonical)),
        None => Ok(()),
    };
    match renamed {
        Renamed::Whole(canonical) => enter(canonical, Origin::Whole(name)),
        Renamed::Copy(canonical) => {
            // The file has the same tensor under two names; either will do.
            tensors.entry(canonical).or_insert(Origin::Whole(name));
            Ok(())
        }
        Renamed::Rows(front, back) => {
            let rows = shape.first().copied().unwrap_or(0);
            Problem::within("rows of a split tensor", MAX_ROWS, rows as u64)?;
            (0..rows).try_for_each(|row| {
                enter(format!("{front}{row}{back}"), Origin::Row(name.clone(), row))
            })
        }
        Renamed::Stacked(canonical, index) => add_stacked(tensors, canonical, index, name),
    }
}

/// Adds one of the three tensors that are stacked.
fn add_stacked(
    tensors: &mut BTreeMap<String, Origin>,
    canonical: String,
    index: usize,
    name: String,
) -> Result<(), Problem> {
    let origin = tensors.entry(canonical.clone()).or_insert(Origin::Stack([const { None }; 3]));
    match origin {
        Origin::Stack(parts) if parts[index].is_none() => {
            parts[index] = Some(name);
            Ok(())
        }
        Origin::Stack(_) | Origin::Whole(_) | Origin::Row(..) => Err(Problem::Duplicate(canonical)),
    }
}

/// Checks that all three stacked tensors exist and have the same type and shape.
fn check_stacked(checkpoint: &Checkpoint, name: &str, origin: &Origin) -> Result<(), Problem> {
    let Origin::Stack(parts) = origin else { return Ok(()) };
    let infos: Vec<_> = parts.iter().flatten().filter_map(|part| checkpoint.info(part)).collect();
    let wanted = "queries, keys and values of one type and shape";
    if infos.len() < parts.len() {
        return Err(Problem::invalid(name, wanted, format!("{} of the three", infos.len())));
    }
    let kind = |index: usize| format!("{} {}", infos[index].stored, infos[index].shape);
    match (1..infos.len()).find(|&index| kind(index) != kind(0) || infos[0].shape.is_empty()) {
        Some(index) => Err(Problem::invalid(name, wanted, format!("{}, {}", kind(0), kind(index)))),
        None => Ok(()),
    }
}

/// Tensors of one type and shape, stacked along the first axis.
fn stacked(parts: Vec<LazyTensor>) -> LazyTensor {
    let first = parts.first().expect("a tensor of parts has three");
    let mut shape = first.ty().shape.clone();
    shape[0] *= parts.len();
    let ty = TensorType::new(first.dtype(), shape);
    LazyTensor::from_rows(ty.clone(), Stacked { parts, ty })
}

/// Tensors of one type and shape under each other.
struct Stacked {
    parts: Vec<LazyTensor>,
    ty: TensorType,
}

impl Rows for Stacked {
    /// A view where all rows are of one part in memory, else a copy.
    fn rows(&self, range: Range<usize>) -> Result<Tensor, TensorError> {
        let height = self.ty.shape.first().map_or(0, |rows| rows / self.parts.len().max(1)).max(1);
        let pieces = self.parts.iter().enumerate().filter_map(|(number, part)| {
            let start = number * height;
            let inside = range.start.max(start)..range.end.min(start + height);
            (!inside.is_empty()).then(|| part.rows(inside.start - start..inside.end - start))
        });
        let pieces = pieces.collect::<Result<Vec<_>, TensorError>>()?;
        match &pieces[..] {
            [piece] => Ok(piece.clone()),
            _ => joined(&pieces, &self.ty, range.len()),
        }
    }

    fn release(&self) {
        self.parts.iter().for_each(LazyTensor::release);
    }
}

/// Copies pieces into one tensor of `rows` rows.
fn joined(pieces: &[Tensor], ty: &TensorType, rows: usize) -> Result<Tensor, TensorError> {
    let mut ty = ty.clone();
    ty.shape[0] = rows;
    let length = ty.shape.checked_len()? * ty.dtype.size();
    // Eight-byte words keep every element type aligned.
    let mut words = memory::zeroed::<u64>(length.div_ceil(8))?;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    let mut start = 0;
    for piece in pieces {
        let contiguous = piece.to_contiguous()?;
        let content = contiguous.as_bytes()?;
        bytes[start..start + content.len()].copy_from_slice(content);
        start += content.len();
    }
    Tensor::from_words(ty, words)
}
