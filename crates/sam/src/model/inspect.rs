//! Inspection of a checkpoint without loading tensors.

use cutout_weights::layout::{Dialect, Family, Identity, Model as StoredModel, Report};
use cutout_weights::{Checkpoint, WeightsError};

use super::config::ModelConfig;
use super::load::{CheckedModel, OpenError};

/// Whether models of a family can be run.
pub fn runs(family: Family) -> bool {
    match family {
        Family::Sam1
        | Family::Sam2
        | Family::Sam2_1
        | Family::Sam2Image
        | Family::Sam3
        | Family::Sam3_1 => true,
    }
}

/// A model as its checkpoint describes it.
#[derive(Debug)]
pub struct Inspection {
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
    /// Missing, misshapen and unused tensors.
    pub report: Report,
}

/// Identifies the model in a checkpoint, reads its configuration and compares its tensors with the model's parameters.
pub fn inspect(checkpoint: &Checkpoint) -> Result<Inspection, WeightsError> {
    let model = StoredModel::of(checkpoint)?;
    let (identity, dialect) = (model.identity(), model.dialect());
    let inside = CheckedModel::new(checkpoint, &model)
        .map(|CheckedModel { config, report, .. }| Inside { config, report });
    Ok(Inspection { identity, dialect, inside })
}
