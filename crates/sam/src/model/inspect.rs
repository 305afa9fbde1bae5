//! Inspection of a checkpoint without loading tensors.

use cutout_weights::layout::{Dialect, Identity, Model as StoredModel, Report};
use cutout_weights::{Checkpoint, WeightsError};

use super::config::ModelConfig;
use super::load::{CheckedModel, OpenError};

/// A model as its checkpoint describes it: the one answer of all commands to whether it runs.
#[derive(Debug)]
pub struct Inspection {
    /// Name of the file.
    pub file: String,
    /// Family and size.
    pub identity: Identity,
    /// Naming scheme of the tensors.
    pub dialect: Dialect,
    /// Configuration and tensor report, or why they cannot be read.
    pub inside: Result<Inside, OpenError>,
}

/// Configuration of a model and report about its tensors.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The configuration.
    pub config: ModelConfig,
    /// Missing, misshapen, unsuitable and unused tensors.
    pub report: Report,
}

/// Identifies the model in a checkpoint, reads its configuration and compares its tensors with the model's parameters.
pub fn inspect(checkpoint: &Checkpoint) -> Result<Inspection, WeightsError> {
    let model = StoredModel::of(checkpoint)?;
    let (identity, dialect) = (model.identity(), model.dialect());
    let inside = CheckedModel::new(checkpoint, &model)
        .map(|CheckedModel { config, report, .. }| Inside { config, report });
    Ok(Inspection { file: checkpoint.file().to_owned(), identity, dialect, inside })
}

impl Inspection {
    /// Why the model cannot be run, on one line with the file's name: the error that opening it gives. `None` if it runs.
    pub fn problem(&self) -> Option<String> {
        match &self.inside {
            Err(error) => Some(error.to_string()),
            Ok(Inside { report, .. }) if report.is_usable() => None,
            Ok(Inside { report, .. }) => {
                let (file, identity) = (self.file.clone(), self.identity);
                let report = Box::new(report.clone());
                Some(OpenError::Misfit { file, identity, report }.to_string())
            }
        }
    }
}
