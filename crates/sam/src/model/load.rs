//! From a checkpoint to a configuration and weights, for all families.

use std::collections::{BTreeMap, HashMap};

use cutout_graph::{Graph, Weights};
use cutout_tensor::Shape;
use cutout_weights::layout::{Identity, Model as StoredModel, Report};
use cutout_weights::{Checkpoint, WeightsError};

use super::ModelError;
use super::config::ModelConfig;
use crate::everything::Everything;
use crate::parts;

/// Why a checkpoint cannot be used: one line, with the file's name.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be read.
    #[error(transparent)]
    Weights(Box<WeightsError>),
    /// The tensors do not fit the model.
    #[error("{file}: the tensors do not fit {identity}: {}", report.summary())]
    Misfit {
        /// The file.
        file: String,
        /// Family and size identified from the tensors.
        identity: Identity,
        /// Everything missing, misshapen, unsuitable or unused.
        report: Box<Report>,
    },
    /// No configuration can be read from shapes and metadata.
    #[error("{file}: no configuration of {identity}: {error}")]
    Config {
        /// The file.
        file: String,
        /// Family and size identified from the tensors.
        identity: Identity,
        /// What is wrong.
        error: ConfigError,
    },
    /// The sizes of the model do not fit each other.
    #[error("{file}: the sizes of {identity} do not fit each other: {error}")]
    Model {
        /// The file.
        file: String,
        /// Family and size identified from the tensors.
        identity: Identity,
        /// What is wrong.
        error: Box<ModelError>,
    },
}

/// Most characters of a message about metadata, whose values are as long as the file wants.
const LONGEST_REASON: usize = 200;

fn beginning(reason: &str) -> String {
    match reason.char_indices().nth(LONGEST_REASON) {
        Some((end, _)) => format!("{}…", &reason[..end]),
        None => reason.to_owned(),
    }
}

/// Why a configuration cannot be read from a checkpoint.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A shape from which no configuration can be read.
    #[error("{tensor}: {reason}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// What is wrong.
        reason: String,
    },
    /// An entry of the file's metadata is missing or wrong.
    #[error("{key}: {}", beginning(reason))]
    Metadata {
        /// The entry.
        key: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A size that no model has.
    #[error("{size} {found} is not between {least} and {most}")]
    Size {
        /// Name of the size.
        size: &'static str,
        /// In the checkpoint.
        found: usize,
        /// Smallest size accepted.
        least: usize,
        /// Largest size accepted.
        most: usize,
    },
}

impl From<WeightsError> for OpenError {
    fn from(error: WeightsError) -> Self {
        OpenError::Weights(Box::new(error))
    }
}

/// Opens the model in a checkpoint of any format, layout and family.
pub fn load(checkpoint: &Checkpoint) -> Result<(ModelConfig, Weights), OpenError> {
    let model = StoredModel::of(checkpoint)?;
    CheckedModel::new(checkpoint, &model)?.load(checkpoint, &model)
}

/// A configuration, the weights it needs, and the comparison with the checkpoint.
pub(crate) struct CheckedModel {
    pub(crate) config: ModelConfig,
    pub(crate) report: Report,
    needed: BTreeMap<String, Shape>,
}

impl CheckedModel {
    /// Reads the configuration of a file and compares its tensors with the parameters of the model's graphs, without loading
    /// any.
    pub(crate) fn new(checkpoint: &Checkpoint, model: &StoredModel<'_>) -> Result<Self, OpenError> {
        let identity = model.identity();
        let file = || checkpoint.file().to_owned();
        Everything::for_checkpoint(checkpoint, identity)?;
        let config = ModelConfig::read(&shapes_of(model), identity, checkpoint.metadata())
            .map_err(|error| OpenError::Config { file: file(), identity, error })?;
        let needed = needed_weights(&config).map_err(|error| OpenError::Model {
            file: file(),
            identity,
            error: Box::new(error),
        })?;
        let shapes = needed.iter().map(|(name, shape)| (name.as_str(), shape.clone()));
        Ok(CheckedModel { config, report: model.report(shapes), needed })
    }

    /// The configuration with its weights; an error if any is missing, misshapen or unsuitable.
    pub(crate) fn load(
        self,
        checkpoint: &Checkpoint,
        model: &StoredModel<'_>,
    ) -> Result<(ModelConfig, Weights), OpenError> {
        if !self.report.is_usable() {
            let (file, report) = (checkpoint.file().to_owned(), Box::new(self.report));
            return Err(OpenError::Misfit { file, identity: model.identity(), report });
        }
        let weights = model.weights(self.needed.keys().map(String::as_str))?;
        Ok((self.config, Weights::lazy(weights.into_iter().collect())))
    }
}

/// Names and shapes of all weights that the graphs of a model read.
pub fn needed_weights(config: &ModelConfig) -> Result<BTreeMap<String, Shape>, ModelError> {
    Ok(parameters(&parts::graphs(config)?).into_iter().collect())
}

/// Names and shapes of all weights of graphs.
pub(crate) fn parameters(graphs: &[Graph]) -> HashMap<String, Shape> {
    let of = |graph: &Graph| -> Vec<(String, Shape)> {
        let parameters = graph.parameters();
        parameters.map(|(path, id)| (path.to_owned(), graph.ty(id).shape.clone())).collect()
    };
    graphs.iter().flat_map(of).collect()
}

/// The shapes of all tensors of a file, by their names in Meta's layout.
fn shapes_of(model: &StoredModel<'_>) -> HashMap<String, Shape> {
    model.tensors().map(|(name, _, shape)| (name.to_owned(), shape)).collect()
}

/// The shapes of a checkpoint's tensors, by name.
pub(crate) struct Shapes<'a>(pub(crate) &'a HashMap<String, Shape>);

impl Shapes<'_> {
    /// The axes of a tensor, none of them empty.
    pub(crate) fn axes<const N: usize>(&self, tensor: &str) -> Result<[usize; N], ConfigError> {
        let wrong = |reason: String| ConfigError::Shape { tensor: tensor.to_owned(), reason };
        let shape = self.0.get(tensor).ok_or_else(|| wrong("is missing".to_owned()))?;
        let axes = <[usize; N]>::try_from(&shape[..])
            .map_err(|_| wrong(format!("expected {N} axes, the checkpoint has {shape}")))?;
        if axes.contains(&0) { Err(wrong(format!("has an empty axis: {shape}"))) } else { Ok(axes) }
    }

    /// How many `prefix.0.suffix`, `prefix.1.suffix`, … there are.
    pub(crate) fn count(&self, prefix: &str, suffix: &str) -> usize {
        (0..).take_while(|i| self.0.contains_key(&format!("{prefix}.{i}.{suffix}"))).count()
    }
}
