//! SAM 2 from a checkpoint: its configuration and its weights.
//!
//! Most of the configuration is in the tensors' shapes. What no shape tells (the side of the image, heads, windows, the
//! blocks that see the whole image) comes from the file's metadata if it is there, else from the published size that the
//! tensors are of. A size that nobody published needs the metadata: without it, opening is an error that names the entry.

use std::collections::HashMap;

use cutout_graph::{BuildError, Graph, Weights};
use cutout_tensor::Shape;
use cutout_weights::layout::{Family, Identity, Model, Size};
use cutout_weights::{Checkpoint, Metadata, MetadataValue};

use super::{MemoryShape, decoder_graph, encoder_graph, image_side_graph};
use super::{mask_prompt_graph, memory_attention_graph, memory_encoder_graph, pointer_graph};
use crate::checkpoint::{DECODER_HEADS, Examined, OpenError, Shapes, read_decoder, shapes_of};
use crate::config::{DecoderForm, HieraConfig, MemoryConfig, MemoryForm, Sam2Config};
use crate::decoder::{DecoderImage, PromptShape};
use crate::memory::MaskSource;

/// Entries of the metadata: whole numbers, lists of them separated by commas (in GGUF also as lists).
mod keys {
    pub(super) const IMAGE_SIZE: &str = "sam2.image_size";
    pub(super) const HEADS: &str = "sam2.heads";
    pub(super) const WINDOWS: &str = "sam2.windows";
    pub(super) const GLOBAL_BLOCKS: &str = "sam2.global_blocks";
    pub(super) const DECODER_HEADS: &str = "sam2.decoder_heads";
    pub(super) const MEMORY_HEADS: &str = "sam2.memory_heads";
    pub(super) const POINTER_FRAMES: &str = "sam2.pointer_frames";
}

/// Heads of memory attention in all of Meta's models.
const MEMORY_HEADS: usize = 1;

/// Frames that object pointers reach back to in all of Meta's models.
const POINTER_FRAMES: usize = 16;

/// The image's side is a multiple of this: the coarsest level of the pyramid has a cell for so many pixels.
const COARSEST_CELL: usize = 32;

/// A configuration with the weights it was read from.
pub struct Loaded {
    /// Sizes of all parts.
    pub config: Sam2Config,
    /// What the model's graphs ask for.
    pub weights: Weights,
    /// Version and size.
    pub identity: Identity,
}

/// Reads the configuration and compares the tensors with what it needs.
pub(crate) fn examine(
    checkpoint: &Checkpoint,
    model: &Model<'_>,
) -> Result<Examined<Sam2Config>, OpenError> {
    let identity = model.identity();
    let Some(config) = read_config(&shapes_of(model), identity, checkpoint.metadata())? else {
        return Err(OpenError::Unsupported { file: checkpoint.file().to_owned(), identity });
    };
    let graphs = graphs(&config)?;
    Ok(Examined::new(model, config, &graphs))
}

/// Opens SAM 2 or 2.1 from a checkpoint in any format and layout.
pub fn load(checkpoint: &Checkpoint) -> Result<Loaded, OpenError> {
    let model = Model::of(checkpoint)?;
    let identity = model.identity();
    let (config, weights) = examine(checkpoint, &model)?.load(checkpoint, &model)?;
    Ok(Loaded { config, weights, identity })
}

/// The graphs that together ask for every weight.
fn graphs(config: &Sam2Config) -> Result<Vec<Graph>, BuildError> {
    let all = PromptShape { prompts: 1, points: 1, masks: true };
    let mut graphs = vec![
        encoder_graph(config)?,
        image_side_graph(config)?,
        decoder_graph(config, all, DecoderImage::Shared)?,
    ];
    if config.memory.is_some() {
        graphs.extend([
            memory_encoder_graph(config, 1, MaskSource::Predicted)?,
            memory_attention_graph(config, MemoryShape { objects: 1, frames: 1, pointers: 1 })?,
            pointer_graph(config, 1)?,
            mask_prompt_graph(config, 1)?,
        ]);
    }
    Ok(graphs)
}

/// The published configuration of a size; nothing for other families and sizes.
fn published(identity: Identity) -> Option<Sam2Config> {
    let form = match identity.family {
        Family::Sam2 => MemoryForm::Sam2,
        Family::Sam2_1 | Family::Sam2Image => MemoryForm::Sam2_1,
        Family::Sam1 | Family::Sam3 | Family::Sam3_1 => return None,
    };
    match identity.size {
        Size::Tiny => Some(Sam2Config::tiny(form)),
        Size::Small => Some(Sam2Config::small(form)),
        Size::BasePlus => Some(Sam2Config::base_plus(form)),
        Size::Large => Some(Sam2Config::large(form)),
        Size::Base | Size::Huge | Size::Only | Size::Custom { .. } => None,
    }
}

/// Reads the configuration of a SAM 2 from its tensors and metadata; nothing for another family.
pub(crate) fn read_config(
    shapes: &HashMap<String, Shape>,
    identity: Identity,
    metadata: &Metadata,
) -> Result<Option<Sam2Config>, OpenError> {
    let form = match identity.family {
        Family::Sam1 | Family::Sam3 | Family::Sam3_1 => return Ok(None),
        Family::Sam2Image => None,
        Family::Sam2 => Some(MemoryForm::Sam2),
        Family::Sam2_1 => Some(MemoryForm::Sam2_1),
    };
    let (shapes, entries) = (Shapes(shapes), Entries { metadata, identity });
    let encoder = read_encoder(&shapes, entries)?;
    let heads = entries.number(keys::DECODER_HEADS, Some(DECODER_HEADS))?;
    let decoder = read_decoder(&shapes, DecoderForm::Sam2, heads)?;
    let memory = form.map(|form| read_memory(&shapes, form, entries)).transpose()?;
    Ok(Some(Sam2Config { encoder, decoder, memory }))
}

fn read_encoder(shapes: &Shapes<'_>, entries: Entries<'_>) -> Result<HieraConfig, OpenError> {
    let known = published(entries.identity).map(|config| config.encoder);
    let trunk = "image_encoder.trunk";
    let [_, width, position_grid, _] = shapes.axes(&format!("{trunk}.pos_embed"))?;
    let [embedding] = shapes.axes("image_encoder.neck.convs.0.conv.bias")?;
    let image_size = entries.number(keys::IMAGE_SIZE, known.as_ref().map(|it| it.image_size))?;
    if !image_size.is_multiple_of(COARSEST_CELL) {
        let reason = format!("{image_size} pixels are no multiple of {COARSEST_CELL}");
        return Err(OpenError::Metadata { key: keys::IMAGE_SIZE, reason });
    }
    let windows = entries.numbers(keys::WINDOWS, known.as_ref().map(|it| it.windows.to_vec()))?;
    let windows = <[usize; 4]>::try_from(windows).map_err(|found| OpenError::Metadata {
        key: keys::WINDOWS,
        reason: format!("expected one window for each of 4 stages, found {found:?}"),
    })?;
    Ok(HieraConfig {
        image_size,
        width,
        heads: entries.number(keys::HEADS, known.as_ref().map(|it| it.heads))?,
        stages: read_stages(shapes, trunk)?,
        windows,
        global_blocks: entries.numbers(keys::GLOBAL_BLOCKS, known.map(|it| it.global_blocks))?,
        position_grid,
        norm_epsilon: 1e-6,
        embedding,
    })
}

/// Blocks of each stage: the first of every stage but the first one projects its input.
fn read_stages(shapes: &Shapes<'_>, trunk: &str) -> Result<[usize; 4], OpenError> {
    let blocks = format!("{trunk}.blocks");
    let depth = shapes.count(&blocks, "norm1.weight");
    let mut stages = vec![0];
    for block in 0..depth {
        if shapes.0.contains_key(&format!("{blocks}.{block}.proj.weight")) {
            stages.push(0);
        }
        if let Some(stage) = stages.last_mut() {
            *stage += 1;
        }
    }
    <[usize; 4]>::try_from(stages).map_err(|found| OpenError::Shape {
        tensor: blocks,
        reason: format!("expected blocks of 4 stages, the checkpoint has stages of {found:?}"),
    })
}

fn read_memory(
    shapes: &Shapes<'_>,
    form: MemoryForm,
    entries: Entries<'_>,
) -> Result<MemoryConfig, OpenError> {
    let [frames, _, _, width] = shapes.axes("maskmem_tpos_enc")?;
    let layers = "memory_attention.layers";
    let [mlp_width] = shapes.axes(&format!("{layers}.0.linear1.bias"))?;
    Ok(MemoryConfig {
        form,
        width,
        frames,
        pointer_frames: entries.number(keys::POINTER_FRAMES, Some(POINTER_FRAMES))?,
        layers: shapes.count(layers, "norm1.weight"),
        heads: entries.number(keys::MEMORY_HEADS, Some(MEMORY_HEADS))?,
        mlp_width,
        fuser_layers: shapes.count("memory_encoder.fuser.layers", "gamma"),
    })
}

/// What a file says of its model beside the tensors.
#[derive(Clone, Copy)]
struct Entries<'a> {
    metadata: &'a Metadata,
    identity: Identity,
}

impl Entries<'_> {
    /// One number above 0, or `known` if the file does not say.
    fn number(self, key: &'static str, known: Option<usize>) -> Result<usize, OpenError> {
        match self.numbers(key, known.map(|number| vec![number]))?[..] {
            [number] if number > 0 => Ok(number),
            ref found => Err(OpenError::Metadata {
                key,
                reason: format!("expected one number above 0, found {found:?}"),
            }),
        }
    }

    /// Numbers, or `known` if the file does not say.
    fn numbers(
        self,
        key: &'static str,
        known: Option<Vec<usize>>,
    ) -> Result<Vec<usize>, OpenError> {
        let Some(value) = self.metadata.get(key) else {
            let identity = self.identity;
            let reason = format!("{identity} is no published size, so the file must say this");
            return known.ok_or(OpenError::Metadata { key, reason });
        };
        parse(value).ok_or_else(|| OpenError::Metadata {
            key,
            reason: format!("expected whole numbers separated by commas, found {value}"),
        })
    }
}

fn parse(value: &MetadataValue) -> Option<Vec<usize>> {
    match value {
        MetadataValue::Text(text) if text.trim().is_empty() => Some(Vec::new()),
        MetadataValue::Text(text) => text.split(',').map(|item| item.trim().parse().ok()).collect(),
        MetadataValue::List(items) => {
            items.iter().map(|item| item.as_u64().and_then(|n| n.try_into().ok())).collect()
        }
        MetadataValue::Unsigned(_) | MetadataValue::Signed(_) => {
            value.as_u64().and_then(|number| Some(vec![number.try_into().ok()?]))
        }
        MetadataValue::Float(_) | MetadataValue::Bool(_) => None,
    }
}

impl Sam2Config {
    /// What no tensor's shape tells, for the metadata of a file: with it, a model of any size can be opened.
    pub fn metadata(&self) -> Metadata {
        let list = |numbers: &[usize]| {
            numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        let HieraConfig { image_size, heads, windows, global_blocks, .. } = &self.encoder;
        let mut entries = vec![
            (keys::IMAGE_SIZE, image_size.to_string()),
            (keys::HEADS, heads.to_string()),
            (keys::WINDOWS, list(windows)),
            (keys::GLOBAL_BLOCKS, list(global_blocks)),
            (keys::DECODER_HEADS, self.decoder.heads.to_string()),
        ];
        entries.extend(self.memory.iter().flat_map(|memory| {
            [
                (keys::MEMORY_HEADS, memory.heads.to_string()),
                (keys::POINTER_FRAMES, memory.pointer_frames.to_string()),
            ]
        }));
        let entry = |(key, text): (&str, String)| (key.to_owned(), MetadataValue::Text(text));
        entries.into_iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use cutout_weights::layout::identify;

    use super::*;
    use crate::checkpoint::parameters;

    fn identity_of(shapes: &HashMap<String, Shape>) -> Identity {
        identify(shapes.iter().map(|(name, shape)| (name.as_str(), &shape[..]))).unwrap()
    }

    fn sizes() -> Vec<Sam2Config> {
        let forms = [MemoryForm::Sam2, MemoryForm::Sam2_1];
        let every = |form| {
            let make = [Sam2Config::tiny, Sam2Config::small, Sam2Config::base_plus];
            make.map(|make| make(form)).into_iter().chain([Sam2Config::large(form)])
        };
        let image = Sam2Config { memory: None, ..Sam2Config::small(MemoryForm::Sam2) };
        forms.into_iter().flat_map(every).chain([image]).collect()
    }

    #[test]
    fn configurations_are_read_back_from_their_own_shapes() {
        for config in sizes() {
            let shapes = parameters(&graphs(&config).unwrap());
            let identity = identity_of(&shapes);
            let found = read_config(&shapes, identity, &Metadata::new()).unwrap().unwrap();
            assert_eq!(found, config, "{identity}");
        }
    }

    #[test]
    fn other_sizes_need_metadata() {
        let mut config = Sam2Config::tiny(MemoryForm::Sam2_1);
        config.encoder.stages = [2, 2, 2, 1];
        config.encoder.windows = [8, 4, 6, 3];
        config.encoder.global_blocks = Vec::new();
        config.encoder.image_size = 256;
        let shapes = parameters(&graphs(&config).unwrap());
        let identity = identity_of(&shapes);
        let read = |metadata: &Metadata| read_config(&shapes, identity, metadata);
        assert_eq!(read(&config.metadata()).unwrap().unwrap(), config);
        for (key, value) in config.metadata() {
            let mut metadata = config.metadata();
            metadata.remove(&key);
            // The heads of decoder and memory are the same in all published sizes.
            let optional = ["decoder_heads", "memory_heads", "pointer_frames"];
            let optional = optional.iter().any(|name| key.ends_with(name));
            match read(&metadata) {
                Ok(found) => assert!(optional && found == Some(config.clone()), "{key}"),
                Err(error) => assert!(!optional && error.to_string().starts_with(&key), "{error}"),
            }
            metadata.insert(key.clone(), MetadataValue::Text(format!("{value}, x")));
            let error = read(&metadata).unwrap_err().to_string();
            assert!(error.starts_with(&key) && error.contains("separated by commas"), "{error}");
        }
        for (key, wrong) in [
            (keys::IMAGE_SIZE, "250"),
            (keys::IMAGE_SIZE, "0"),
            (keys::HEADS, "1,2"),
            (keys::WINDOWS, "8,4,6"),
        ] {
            let mut metadata = config.metadata();
            metadata.insert(key.to_owned(), wrong.into());
            assert!(read(&metadata).unwrap_err().to_string().starts_with(key), "{key} {wrong}");
        }
    }

    #[test]
    fn numbers_of_gguf_are_read() {
        let number = MetadataValue::Unsigned;
        assert_eq!(parse(&number(7)), Some(vec![7]));
        assert_eq!(parse(&MetadataValue::List(vec![number(7), number(2)])), Some(vec![7, 2]));
        assert_eq!(parse(&MetadataValue::Signed(-1)), None);
        assert_eq!(parse(&MetadataValue::Bool(true)), None);
    }

    #[test]
    fn shapes_that_cannot_be_are_errors() {
        let shapes = parameters(&graphs(&Sam2Config::tiny(MemoryForm::Sam2_1)).unwrap());
        let identity = identity_of(&shapes);
        for (tensor, axes) in [
            ("image_encoder.trunk.pos_embed", vec![1, 96]),
            ("maskmem_tpos_enc", vec![7, 1, 1, 0]),
            ("sam_mask_decoder.mask_tokens.weight", vec![]),
        ] {
            let mut broken = shapes.clone();
            broken.insert(tensor.to_owned(), Shape::new(&axes));
            let error = read_config(&broken, identity, &Metadata::new()).unwrap_err();
            assert!(error.to_string().starts_with(tensor), "{error}");
        }
        let mut fewer = shapes.clone();
        fewer.remove("image_encoder.trunk.blocks.10.proj.weight");
        let error = read_config(&fewer, identity, &Metadata::new()).unwrap_err().to_string();
        assert!(error.contains("stages of [1, 2, 9]"), "{error}");
    }
}
