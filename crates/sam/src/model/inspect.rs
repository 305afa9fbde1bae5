//! What a checkpoint holds, told without loading a tensor and whether or not it can be run.

use cutout_weights::layout::{Dialect, Family, Identity, Model, Report};
use cutout_weights::{Checkpoint, WeightsError};
use serde::Serialize;

use crate::checkpoint::{OpenError, examine_sam1};
use crate::config::{Sam1Config, Sam2Config, Sam3Config};
use crate::{sam2, sam3};

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

/// The sizes of a model, whichever family it is of.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Config {
    /// SAM 1.
    Sam1(Sam1Config),
    /// SAM 2 and 2.1.
    Sam2(Sam2Config),
    /// SAM 3 and 3.1.
    Sam3(Sam3Config),
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
    pub config: Config,
    /// What the checkpoint lacks, has in another shape, or has and the model does not use.
    pub report: Report,
}

/// Recognises the model in a checkpoint, reads its sizes and compares its tensors with what the model needs.
pub fn inspect(checkpoint: &Checkpoint) -> Result<Inspection, WeightsError> {
    let model = Model::of(checkpoint)?;
    let (identity, dialect) = (model.identity(), model.dialect());
    let inside = match identity.family {
        Family::Sam1 => examine_sam1(&model).map(|examined| Inside {
            config: Config::Sam1(examined.config),
            report: examined.report,
        }),
        Family::Sam2 | Family::Sam2_1 | Family::Sam2Image => {
            sam2::examine(checkpoint, &model).map(|examined| Inside {
                config: Config::Sam2(examined.config),
                report: examined.report,
            })
        }
        Family::Sam3 | Family::Sam3_1 => sam3::examine(&model).map(|examined| Inside {
            config: Config::Sam3(examined.config),
            report: examined.report,
        }),
    };
    Ok(Inspection { identity, dialect, inside })
}
