//! From a checkpoint to a configuration and weights: everything is read from the tensors.

use std::collections::{BTreeMap, HashMap};

use cutout_graph::{BuildError, Graph, Weights};
use cutout_tensor::Shape;
use cutout_weights::layout::{Family, Identity, Model, Report};
use cutout_weights::{Checkpoint, WeightsError};

use crate::config::{DecoderConfig, DecoderForm, Sam1Config, VitConfig};
use crate::sam1::{self, PromptShape};

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be read.
    #[error(transparent)]
    Weights(Box<WeightsError>),
    /// The model is known, but not supported yet.
    #[error("{file}: {identity} is recognised, but cutout cannot run it yet")]
    Unsupported {
        /// The file.
        file: String,
        /// What it holds.
        identity: Identity,
    },
    /// The tensors do not fit the model.
    #[error("{file}: the tensors do not fit {identity}:\n{report}")]
    Misfit {
        /// The file.
        file: String,
        /// What it claims to be.
        identity: Identity,
        /// Everything missing, misshapen or unused.
        report: Box<Report>,
    },
    /// A shape from which no configuration can be read.
    #[error("{tensor}: {reason}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// What is wrong.
        reason: String,
    },
    /// An entry of the file's metadata is missing or wrong.
    #[error("{key}: {reason}")]
    Metadata {
        /// The entry.
        key: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The model cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl From<WeightsError> for OpenError {
    fn from(error: WeightsError) -> Self {
        OpenError::Weights(Box::new(error))
    }
}

/// A configuration with the weights it was read from.
pub(crate) struct Loaded {
    pub(crate) config: Sam1Config,
    pub(crate) weights: Weights,
}

/// A configuration with the weights it asks for, and how they compare with those of the checkpoint.
pub(crate) struct Examined<C> {
    pub(crate) config: C,
    pub(crate) report: Report,
    needed: HashMap<String, Shape>,
}

impl<C> Examined<C> {
    /// Compares the tensors of a file with the parameters of the model's graphs, without loading any.
    pub(crate) fn new(model: &Model<'_>, config: C, graphs: &[Graph]) -> Self {
        let needed = parameters(graphs);
        let sorted: BTreeMap<&str, Shape> =
            needed.iter().map(|(name, shape)| (name.as_str(), shape.clone())).collect();
        Examined { config, report: model.report(sorted), needed }
    }

    /// The configuration with its weights, if all are there and fit.
    pub(crate) fn load(
        self,
        checkpoint: &Checkpoint,
        model: &Model<'_>,
    ) -> Result<(C, Weights), OpenError> {
        if !self.report.is_usable() {
            let (file, report) = (checkpoint.file().to_owned(), Box::new(self.report));
            return Err(OpenError::Misfit { file, identity: model.identity(), report });
        }
        let names = self.needed.into_keys();
        let tensors = names
            .map(|name| model.lazy(&name).map(|tensor| (name, tensor)))
            .collect::<Result<HashMap<_, _>, _>>()?;
        Ok((self.config, Weights::lazy(tensors)))
    }
}

/// Every weight that some graphs ask for.
pub(crate) fn parameters(graphs: &[Graph]) -> HashMap<String, Shape> {
    let of = |graph: &Graph| -> Vec<(String, Shape)> {
        let parameters = graph.parameters();
        parameters.map(|(path, id)| (path.to_owned(), graph.ty(id).shape.clone())).collect()
    };
    graphs.iter().flat_map(of).collect()
}

/// The shapes of all tensors of a file, by their names in Meta's layout.
pub(crate) fn shapes_of(model: &Model<'_>) -> HashMap<String, Shape> {
    model.tensors().map(|(name, _, shape)| (name.to_owned(), shape)).collect()
}

/// Reads the configuration of a SAM 1 and compares its tensors with what it needs, without loading any.
pub(crate) fn examine_sam1(model: &Model<'_>) -> Result<Examined<Sam1Config>, OpenError> {
    let config = read_config(&shapes_of(model))?;
    let graphs = graphs(&config)?;
    Ok(Examined::new(model, config, &graphs))
}

/// Opens SAM 1 from a checkpoint in any format and layout.
pub(crate) fn load_sam1(checkpoint: &Checkpoint) -> Result<Loaded, OpenError> {
    let model = Model::of(checkpoint)?;
    let identity = model.identity();
    if identity.family != Family::Sam1 {
        return Err(OpenError::Unsupported { file: checkpoint.file().to_owned(), identity });
    }
    let (config, weights) = examine_sam1(&model)?.load(checkpoint, &model)?;
    Ok(Loaded { config, weights })
}

/// The graphs that together ask for every weight.
fn graphs(config: &Sam1Config) -> Result<[Graph; 3], BuildError> {
    let all = PromptShape { prompts: 1, points: 1, masks: true };
    Ok([
        sam1::encoder_graph(config)?,
        sam1::image_side_graph(config)?,
        sam1::decoder_graph(config, all)?,
    ])
}

/// Heads of the mask decoder: the one number that no tensor's shape tells, the same in all of Meta's models.
pub(crate) const DECODER_HEADS: usize = 8;

/// The shapes of a checkpoint's tensors, by name.
pub(crate) struct Shapes<'a>(pub(crate) &'a HashMap<String, Shape>);

impl Shapes<'_> {
    /// The axes of a tensor, none of them empty.
    pub(crate) fn axes<const N: usize>(&self, tensor: &str) -> Result<[usize; N], OpenError> {
        let wrong = |reason: String| OpenError::Shape { tensor: tensor.to_owned(), reason };
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

/// Reads the configuration of a SAM 1 from its tensors.
pub(crate) fn read_config(shapes: &HashMap<String, Shape>) -> Result<Sam1Config, OpenError> {
    let shapes = Shapes(shapes);
    let encoder = read_encoder(&shapes)?;
    let [embedding] = shapes.axes("image_encoder.neck.1.weight")?;
    let decoder = read_decoder(&shapes, DecoderForm::Sam1, DECODER_HEADS)?;
    Ok(Sam1Config { encoder, embedding, decoder })
}

fn read_encoder(shapes: &Shapes<'_>) -> Result<VitConfig, OpenError> {
    let [_, grid, _, width] = shapes.axes("image_encoder.pos_embed")?;
    let [_, _, patch, _] = shapes.axes("image_encoder.patch_embed.proj.weight")?;
    let [_, head_width] = shapes.axes("image_encoder.blocks.0.attn.rel_pos_h")?;
    let [mlp_width] = shapes.axes("image_encoder.blocks.0.mlp.lin1.bias")?;
    let depth = shapes.count("image_encoder.blocks", "norm1.weight");
    // A block that sees the whole grid has one relative position for each distance on it.
    let mut global_blocks = Vec::new();
    let mut window = grid;
    for block in 0..depth {
        let [positions, _] =
            shapes.axes(&format!("image_encoder.blocks.{block}.attn.rel_pos_h"))?;
        let side = positions.div_ceil(2);
        if side == grid {
            global_blocks.push(block);
        } else {
            window = side;
        }
    }
    Ok(VitConfig {
        image_size: grid.saturating_mul(patch),
        patch,
        width,
        depth,
        heads: (width / head_width).max(1),
        mlp_width,
        window,
        global_blocks,
        norm_epsilon: 1e-6,
    })
}

/// Reads the prompt encoder and mask decoder of a generation from their tensors.
pub(crate) fn read_decoder(
    shapes: &Shapes<'_>,
    form: DecoderForm,
    heads: usize,
) -> Result<DecoderConfig, OpenError> {
    let (prompts, masks) = (form.prompt_encoder(), form.mask_decoder());
    let [mask_tokens, width] = shapes.axes(&format!("{masks}.mask_tokens.weight"))?;
    let layers = format!("{masks}.transformer.layers");
    let mlp = match form {
        DecoderForm::Sam1 | DecoderForm::Sam3 | DecoderForm::Sam3_1 => "mlp.lin1",
        DecoderForm::Sam2 => "mlp.layers.0",
    };
    let [mlp_width] = shapes.axes(&format!("{layers}.0.{mlp}.bias"))?;
    let [narrow] = shapes.axes(&format!("{layers}.0.cross_attn_token_to_image.q_proj.bias"))?;
    let iou_layers = format!("{masks}.iou_prediction_head.layers");
    let [iou_width] = shapes.axes(&format!("{iou_layers}.0.bias"))?;
    let [mask_channels] = shapes.axes(&format!("{prompts}.mask_downscaling.0.bias"))?;
    Ok(DecoderConfig {
        form,
        width,
        depth: shapes.count(&layers, "norm1.weight"),
        heads,
        mlp_width,
        downsample: (width / narrow).max(1),
        mask_tokens,
        iou_width,
        iou_depth: shapes.count(&iou_layers, "bias"),
        mask_channels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_read_back_from_their_own_shapes() {
        for config in [Sam1Config::vit_b(), Sam1Config::vit_l(), Sam1Config::vit_h()] {
            let shapes = parameters(&graphs(&config).expect("the presets can be built"));
            assert_eq!(read_config(&shapes).expect("the shapes are whole"), config);
        }
    }

    #[test]
    fn shapes_that_cannot_be_are_errors() {
        let shapes = parameters(&graphs(&Sam1Config::vit_b()).expect("the presets can be built"));
        for (tensor, axes) in [
            ("image_encoder.pos_embed", vec![1, 64]),
            ("image_encoder.blocks.0.attn.rel_pos_h", vec![27, 0]),
            ("mask_decoder.mask_tokens.weight", vec![]),
        ] {
            let mut broken = shapes.clone();
            broken.insert(tensor.to_owned(), Shape::new(&axes));
            let error = read_config(&broken).expect_err("a broken shape");
            assert!(error.to_string().starts_with(tensor), "{error}");
        }
        assert!(read_config(&HashMap::new()).is_err());
    }
}
