//! Model layouts: which model a set of tensors belongs to, and what Meta calls them.
//!
//! Meta's names are canonical. [`Model::of`] recognises the family and size of a checkpoint by its tensors alone, strips
//! what training scripts put in front of the names, and renames Hugging Face's tensors by tables.
//! [`Model::report`] compares the result with what a model needs, and says everything that is wrong at once.

mod identity;
mod names;
mod report;
mod rules;

use std::collections::BTreeMap;

use cutout_tensor::{Shape, Tensor, TensorType};

use crate::checkpoint::Checkpoint;
use crate::error::{Problem, WeightsError};
use crate::outgoing::Outgoing;

pub use identity::{Dialect, Family, Identity, Size, identify};
pub use report::{Misshapen, Named, Report};

use identity::{recognise, shared_prefix};
use rules::{Renamed, rename};

/// Where a tensor with a canonical name comes from.
#[derive(Clone, Debug, PartialEq)]
struct Origin {
    /// Name in the file.
    name: String,
    /// One row of it, kept as an axis of length one; all of it otherwise.
    row: Option<usize>,
}

/// A checkpoint seen as one of the known models: the same tensors under Meta's names.
pub struct Model<'a> {
    checkpoint: &'a Checkpoint,
    identity: Identity,
    dialect: Dialect,
    tensors: BTreeMap<String, Origin>,
}

impl<'a> Model<'a> {
    /// Recognises a checkpoint and renames its tensors.
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
        let Some(stages) = names::stages(identity.family, dialect) else {
            return Err(WeightsError::UnknownLayout { file: file(), identity, dialect });
        };
        let prefix = shared_prefix(shapes().map(|(name, _)| name));
        let mut tensors = BTreeMap::new();
        for info in infos {
            let renamed = rename(&info.name[prefix.len()..], stages);
            add(&mut tensors, &info.name, &info.shape, renamed).map_err(|problem| {
                let format = checkpoint.format();
                WeightsError::Malformed { file: file(), format, problem }
            })?;
        }
        Ok(Model { checkpoint, identity, dialect, tensors })
    }

    /// Family and size.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Whose names the file uses.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Canonical names, sorted, with the type each tensor has once loaded (`None`: it cannot be loaded) and its shape.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Option<TensorType>, Shape)> {
        self.tensors.iter().filter_map(|(name, origin)| {
            let info = self.checkpoint.info(&origin.name)?;
            let mut shape = info.shape.clone();
            if origin.row.is_some() {
                shape[0] = 1;
            }
            let dtype = info.stored.loads_as();
            Some((name.as_str(), dtype.map(|dtype| TensorType::new(dtype, shape.clone())), shape))
        })
    }

    /// One tensor by its canonical name.
    pub fn tensor(&self, name: &str) -> Result<Tensor, WeightsError> {
        let Some(origin) = self.tensors.get(name) else {
            let names = self.tensors.keys().map(String::as_str);
            return Err(WeightsError::NoSuchTensor {
                file: self.checkpoint.file().to_owned(),
                tensor: name.to_owned(),
                nearest: crate::nearest::nearest(name, names).map(str::to_owned),
            });
        };
        let whole = self.checkpoint.tensor(&origin.name)?;
        let Some(row) = origin.row else { return Ok(whole) };
        whole.slice(0, row..row + 1).map_err(|error| WeightsError::Tensor {
            file: self.checkpoint.file().to_owned(),
            tensor: origin.name.clone(),
            problem: error.into(),
        })
    }

    /// Everything that is missing, misshapen or left over, compared with the tensors a model needs.
    pub fn report<'n>(&self, needed: impl IntoIterator<Item = (&'n str, Shape)>) -> Report {
        let found = self.tensors().map(|(name, _, shape)| (name.to_owned(), shape)).collect();
        Report::compare(needed.into_iter().map(|(name, shape)| (name.to_owned(), shape)), found)
    }

    /// Every tensor, under its canonical name, for a writer.
    pub fn outgoing(&self) -> Outgoing<'_> {
        let mut outgoing = Outgoing::default();
        for (name, origin) in &self.tensors {
            if let Some(info) = self.checkpoint.info(&origin.name) {
                outgoing.add(name, info, origin.row, || self.tensor(name));
            }
        }
        outgoing
    }
}

/// The most rows that one tensor is split into.
const MAX_ROWS: u64 = 64;

/// Enters one tensor of the file under its canonical names.
fn add(
    tensors: &mut BTreeMap<String, Origin>,
    name: &str,
    shape: &Shape,
    renamed: Renamed,
) -> Result<(), Problem> {
    let mut enter = |canonical: String, row| {
        let origin = Origin { name: name.to_owned(), row };
        match tensors.insert(canonical.clone(), origin) {
            Some(_) => Err(Problem::Duplicate(canonical)),
            None => Ok(()),
        }
    };
    match renamed {
        Renamed::Whole(canonical) => enter(canonical, None),
        Renamed::Copy(canonical) => {
            // Two names for one tensor: the first is as good as the second.
            let origin = Origin { name: name.to_owned(), row: None };
            tensors.entry(canonical).or_insert(origin);
            Ok(())
        }
        Renamed::Rows(front, back) => {
            let rows = shape.first().copied().unwrap_or(0);
            Problem::within("rows of a split tensor", MAX_ROWS, rows as u64)?;
            (0..rows).try_for_each(|row| enter(format!("{front}{row}{back}"), Some(row)))
        }
    }
}
