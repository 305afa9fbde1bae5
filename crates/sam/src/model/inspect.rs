//! What a checkpoint holds, told without loading a tensor and whether or not it can be run.

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
    /// Whose names the checkpoint uses.
    pub dialect: Dialect,
    /// The inside of the model, or why it cannot be told.
    pub inside: Result<Inside, OpenError>,
}

/// The inside of a model.
#[derive(Clone, Debug)]
pub struct Inside {
    /// Its sizes.
    pub config: ModelConfig,
    /// What the checkpoint lacks, has in another shape, or has and the model does not use.
    pub report: Report,
}

/// Recognises the model in a checkpoint, reads its sizes and compares its tensors with what the model needs.
pub fn inspect(checkpoint: &Checkpoint) -> Result<Inspection, WeightsError> {
    let model = StoredModel::of(checkpoint)?;
    let (identity, dialect) = (model.identity(), model.dialect());
    let inside = CheckedModel::new(checkpoint, &model)
        .map(|CheckedModel { config, report, .. }| Inside { config, report });
    Ok(Inspection { identity, dialect, inside })
}
