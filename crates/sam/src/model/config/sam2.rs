//! Configurations of SAM 2: the published sizes, and reading one from a checkpoint.
//!
//! Most of the configuration is in the tensors' shapes. What no shape determines (image size, heads, windows, global
//! blocks) comes from the file's metadata if it is there, else from the published size that the tensors are of. Other
//! sizes need the metadata; without it, opening fails with the name of the missing key.

use cutout_weights::layout::{Family, Identity, Size};
use cutout_weights::{Metadata, MetadataValue};

use super::{
    DECODER_HEADS, DecoderConfig, DecoderForm, EncoderConfig, HieraConfig, MemoryConfig,
    MemoryForm, ModelConfig,
};
use crate::model::load::{ConfigError, Shapes};

/// Metadata keys. Values are whole numbers, or lists of them separated by commas (GGUF: also arrays).
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

/// The image size is a multiple of this: pixels per cell of the coarsest level.
const COARSEST_CELL: usize = 32;

/// The encoder of the smallest size, of which the others are variations.
fn tiny() -> HieraConfig {
    HieraConfig {
        image_size: 1024,
        width: 96,
        heads: 1,
        stages: [1, 2, 7, 2],
        windows: [8, 4, 14, 7],
        global_blocks: vec![5, 7, 9],
        position_grid: 7,
        norm_epsilon: 1e-6,
        embedding: 256,
    }
}

impl ModelConfig {
    /// SAM 2, Hiera-T: 39 million parameters.
    pub fn sam2_tiny(form: MemoryForm) -> Self {
        sam2(
            tiny(),
            DecoderConfig::published(DecoderForm::Sam2),
            Some(MemoryConfig::published(form)),
        )
    }

    /// SAM 2, Hiera-S: 46 million parameters.
    pub fn sam2_small(form: MemoryForm) -> Self {
        let encoder =
            HieraConfig { stages: [1, 2, 11, 2], global_blocks: vec![7, 10, 13], ..tiny() };
        ModelConfig { encoder: EncoderConfig::Hiera(encoder), ..ModelConfig::sam2_tiny(form) }
    }

    /// SAM 2, Hiera-B+: 81 million parameters.
    pub fn sam2_base_plus(form: MemoryForm) -> Self {
        let encoder = HieraConfig {
            width: 112,
            heads: 2,
            stages: [2, 3, 16, 3],
            global_blocks: vec![12, 16, 20],
            position_grid: 14,
            ..tiny()
        };
        ModelConfig { encoder: EncoderConfig::Hiera(encoder), ..ModelConfig::sam2_tiny(form) }
    }

    /// SAM 2, Hiera-L: 224 million parameters.
    pub fn sam2_large(form: MemoryForm) -> Self {
        let encoder = HieraConfig {
            width: 144,
            heads: 2,
            stages: [2, 6, 36, 4],
            windows: [8, 4, 16, 8],
            global_blocks: vec![23, 33, 43],
            ..tiny()
        };
        ModelConfig { encoder: EncoderConfig::Hiera(encoder), ..ModelConfig::sam2_tiny(form) }
    }
}

fn sam2(encoder: HieraConfig, decoder: DecoderConfig, memory: Option<MemoryConfig>) -> ModelConfig {
    let encoder = EncoderConfig::Hiera(encoder);
    ModelConfig { encoder, decoder: Some(decoder), memory, finder: None }
}

/// The published configuration of a size; `None` for other families and sizes.
fn published(identity: Identity) -> Option<ModelConfig> {
    let form = match identity.family {
        Family::Sam2 => MemoryForm::Sam2,
        Family::Sam2_1 | Family::Sam2Image => MemoryForm::Sam2_1,
        Family::Sam1 | Family::Sam3 | Family::Sam3_1 => return None,
    };
    match identity.size {
        Size::Tiny => Some(ModelConfig::sam2_tiny(form)),
        Size::Small => Some(ModelConfig::sam2_small(form)),
        Size::BasePlus => Some(ModelConfig::sam2_base_plus(form)),
        Size::Large => Some(ModelConfig::sam2_large(form)),
        Size::Base | Size::Huge | Size::Only | Size::Custom { .. } => None,
    }
}

/// Reads the configuration of a SAM 2 from its tensors and metadata.
pub(super) fn read(
    shapes: &Shapes<'_>,
    identity: Identity,
    metadata: &Metadata,
) -> Result<ModelConfig, ConfigError> {
    let form = match identity.family {
        Family::Sam2Image | Family::Sam1 | Family::Sam3 | Family::Sam3_1 => None,
        Family::Sam2 => Some(MemoryForm::Sam2),
        Family::Sam2_1 => Some(MemoryForm::Sam2_1),
    };
    let reader = MetadataReader { metadata, identity };
    let encoder = read_encoder(shapes, reader)?;
    let heads = reader.number(keys::DECODER_HEADS, Some(DECODER_HEADS))?;
    let decoder = DecoderConfig::read(shapes, DecoderForm::Sam2, heads)?;
    let memory = form.map(|form| read_memory(shapes, form, reader)).transpose()?;
    Ok(sam2(encoder, decoder, memory))
}

fn read_encoder(
    shapes: &Shapes<'_>,
    reader: MetadataReader<'_>,
) -> Result<HieraConfig, ConfigError> {
    let known = published(reader.identity).and_then(|config| match config.encoder {
        EncoderConfig::Hiera(hiera) => Some(hiera),
        EncoderConfig::Vit { .. } | EncoderConfig::RotaryVit { .. } => None,
    });
    let trunk = "image_encoder.trunk";
    let [_, width, position_grid, _] = shapes.axes(&format!("{trunk}.pos_embed"))?;
    let [embedding] = shapes.axes("image_encoder.neck.convs.0.conv.bias")?;
    let image_size = reader.number(keys::IMAGE_SIZE, known.as_ref().map(|it| it.image_size))?;
    if !image_size.is_multiple_of(COARSEST_CELL) {
        let reason = format!("{image_size} pixels are no multiple of {COARSEST_CELL}");
        return Err(ConfigError::Metadata { key: keys::IMAGE_SIZE, reason });
    }
    let windows = reader.numbers(keys::WINDOWS, known.as_ref().map(|it| it.windows.to_vec()))?;
    let windows = <[usize; 4]>::try_from(windows).map_err(|found| ConfigError::Metadata {
        key: keys::WINDOWS,
        reason: format!("expected one window for each of 4 stages, found {found:?}"),
    })?;
    Ok(HieraConfig {
        image_size,
        width,
        heads: reader.number(keys::HEADS, known.as_ref().map(|it| it.heads))?,
        stages: read_stages(shapes, trunk)?,
        windows,
        global_blocks: reader.numbers(keys::GLOBAL_BLOCKS, known.map(|it| it.global_blocks))?,
        position_grid,
        norm_epsilon: 1e-6,
        embedding,
    })
}

/// Blocks of each stage: the first of every stage but the first one projects its input.
fn read_stages(shapes: &Shapes<'_>, trunk: &str) -> Result<[usize; 4], ConfigError> {
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
    <[usize; 4]>::try_from(stages).map_err(|found| ConfigError::Shape {
        tensor: blocks,
        reason: format!("expected blocks of 4 stages, the checkpoint has stages of {found:?}"),
    })
}

fn read_memory(
    shapes: &Shapes<'_>,
    form: MemoryForm,
    reader: MetadataReader<'_>,
) -> Result<MemoryConfig, ConfigError> {
    let [frames, _, _, width] = shapes.axes("maskmem_tpos_enc")?;
    let layers = "memory_attention.layers";
    let [mlp_width] = shapes.axes(&format!("{layers}.0.linear1.bias"))?;
    let [fuser_layers, fuser_width] = MemoryConfig::read_fuser(shapes, form.encoder())?;
    Ok(MemoryConfig {
        form,
        width,
        frames,
        pointer_frames: reader.number(keys::POINTER_FRAMES, Some(POINTER_FRAMES))?,
        layers: shapes.count(layers, "norm1.weight"),
        heads: reader.number(keys::MEMORY_HEADS, Some(MEMORY_HEADS))?,
        mlp_width,
        fuser_layers,
        fuser_width,
        multiplex: None,
    })
}

/// Reader of the metadata of a checkpoint.
#[derive(Clone, Copy)]
struct MetadataReader<'a> {
    metadata: &'a Metadata,
    identity: Identity,
}

impl MetadataReader<'_> {
    /// One number above 0, or `known` if the key is absent.
    fn number(self, key: &'static str, known: Option<usize>) -> Result<usize, ConfigError> {
        match self.numbers(key, known.map(|number| vec![number]))?[..] {
            [number] if number > 0 => Ok(number),
            ref found => Err(ConfigError::Metadata {
                key,
                reason: format!("expected one number above 0, found {found:?}"),
            }),
        }
    }

    /// Numbers, or `known` if the key is absent.
    fn numbers(
        self,
        key: &'static str,
        known: Option<Vec<usize>>,
    ) -> Result<Vec<usize>, ConfigError> {
        let Some(value) = self.metadata.get(key) else {
            let identity = self.identity;
            let reason =
                format!("{identity} is not a published size, so the metadata must set this");
            return known.ok_or(ConfigError::Metadata { key, reason });
        };
        parse(value).ok_or_else(|| ConfigError::Metadata {
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

impl ModelConfig {
    /// Metadata of a SAM 2 checkpoint: the values no tensor shape determines.
    pub fn metadata(&self) -> Metadata {
        let (EncoderConfig::Hiera(encoder), Some(decoder)) = (&self.encoder, &self.decoder) else {
            return Metadata::new();
        };
        let list = |numbers: &[usize]| {
            numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        let HieraConfig { image_size, heads, windows, global_blocks, .. } = encoder;
        let mut entries = vec![
            (keys::IMAGE_SIZE, image_size.to_string()),
            (keys::HEADS, heads.to_string()),
            (keys::WINDOWS, list(windows)),
            (keys::GLOBAL_BLOCKS, list(global_blocks)),
            (keys::DECODER_HEADS, decoder.heads.to_string()),
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
    use std::collections::HashMap;

    use cutout_tensor::Shape;
    use cutout_weights::layout::identify;

    use super::*;
    use crate::model::load::parameters;
    use crate::parts::graphs;

    fn read_config(
        shapes: &HashMap<String, Shape>,
        identity: Identity,
        metadata: &Metadata,
    ) -> Result<ModelConfig, ConfigError> {
        read(&Shapes(shapes), identity, metadata)
    }

    fn hiera(config: &mut ModelConfig) -> &mut HieraConfig {
        let EncoderConfig::Hiera(hiera) = &mut config.encoder else { panic!("another encoder") };
        hiera
    }

    fn identity_of(shapes: &HashMap<String, Shape>) -> Identity {
        identify(shapes.iter().map(|(name, shape)| (name.as_str(), &shape[..]))).unwrap()
    }

    fn sizes() -> Vec<ModelConfig> {
        let forms = [MemoryForm::Sam2, MemoryForm::Sam2_1];
        let every = |form| {
            let make =
                [ModelConfig::sam2_tiny, ModelConfig::sam2_small, ModelConfig::sam2_base_plus];
            make.map(|make| make(form)).into_iter().chain([ModelConfig::sam2_large(form)])
        };
        let image = ModelConfig { memory: None, ..ModelConfig::sam2_small(MemoryForm::Sam2) };
        forms.into_iter().flat_map(every).chain([image]).collect()
    }

    #[test]
    fn configurations_are_read_back_from_their_own_shapes() {
        for config in sizes() {
            let shapes = parameters(&graphs(&config).unwrap());
            let identity = identity_of(&shapes);
            let found = read_config(&shapes, identity, &Metadata::new()).unwrap();
            assert_eq!(found, config, "{identity}");
        }
    }

    #[test]
    fn other_sizes_need_metadata() {
        let mut config = ModelConfig::sam2_tiny(MemoryForm::Sam2_1);
        let encoder = hiera(&mut config);
        encoder.stages = [2, 2, 2, 1];
        encoder.windows = [8, 4, 6, 3];
        encoder.global_blocks = Vec::new();
        encoder.image_size = 256;
        let shapes = parameters(&graphs(&config).unwrap());
        let identity = identity_of(&shapes);
        let read = |metadata: &Metadata| read_config(&shapes, identity, metadata);
        assert_eq!(read(&config.metadata()).unwrap(), config);
        for (key, value) in config.metadata() {
            let mut metadata = config.metadata();
            metadata.remove(&key);
            // The heads of decoder and memory are the same in all published sizes.
            let optional = ["decoder_heads", "memory_heads", "pointer_frames"];
            let optional = optional.iter().any(|name| key.ends_with(name));
            match read(&metadata) {
                Ok(found) => assert!(optional && found == config, "{key}"),
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
        let shapes = parameters(&graphs(&ModelConfig::sam2_tiny(MemoryForm::Sam2_1)).unwrap());
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
