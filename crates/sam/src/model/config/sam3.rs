//! Configurations of SAM 3: its sizes, and reading them from the tensors of a checkpoint.

use serde::Serialize;

use super::{
    DECODER_HEADS, DecoderConfig, DecoderForm, EncoderConfig, MemoryConfig, MemoryForm,
    ModelConfig, MultiplexConfig, VitConfig,
};
use crate::model::load::{ConfigError, Shapes};

/// Channels of a head in both encoders: not determined by any shape if the rotation tables are not stored.
const HEAD_WIDTH: usize = 64;
/// Repetitions of the position table along each side, if the rotation tables are not stored.
const TILES: usize = 3;
/// Every eighth block is global, if the rotation tables are not stored.
const GLOBAL_EVERY: usize = 8;

const TRUNK: &str = "detector.backbone.vision_backbone.trunk";
const TEXT: &str = "detector.backbone.language_backbone.encoder";
const GEOMETRY: &str = "detector.geometry_encoder";
const FUSION: &str = "detector.transformer.encoder.layers";
const DECODER: &str = "detector.transformer.decoder";
const TRACKER: &str = "tracker";
/// SAM 3.1's.
const MULTIPLEX_TRACKER: &str = "tracker.model";

/// Rows of the position table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum PositionRows {
    /// A first row for a class token that nothing uses: Meta's checkpoints.
    ClassAndGrid,
    /// The grid alone: Hugging Face's checkpoints.
    Grid,
}

/// The positions that are added to patches, besides the rotation in attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct PositionTable {
    /// Side of the table, which is tiled over the grid of patches.
    pub grid: usize,
    /// What else it holds.
    pub rows: PositionRows,
}

/// The encoder of phrases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextConfig {
    /// Tokens there are.
    pub vocabulary: usize,
    /// Most tokens of a phrase, start and end included.
    pub context: usize,
    /// Channels.
    pub width: usize,
    /// Blocks.
    pub depth: usize,
    /// Attention heads.
    pub heads: usize,
    /// Channels between the two layers of a block's MLP.
    pub mlp_width: usize,
}

/// Kinds of exemplars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Exemplars {
    /// Boxes: Hugging Face's checkpoints leave out the rest.
    Boxes,
    /// Boxes and points.
    BoxesAndPoints,
}

/// The detector: geometry encoder, fusion, decoder, scores and masks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DetectorConfig {
    /// Channels of image, prompt and queries.
    pub width: usize,
    /// Heads of every attention.
    pub heads: usize,
    /// Channels between the two layers of each transformer layer's MLP.
    pub mlp_width: usize,
    /// Layers of the geometry encoder.
    pub geometry_depth: usize,
    /// Layers that fuse image and prompt.
    pub fusion_depth: usize,
    /// Layers of the decoder.
    pub decoder_depth: usize,
    /// Object queries.
    pub queries: usize,
    /// Channels between the layers of the scores' MLP.
    pub scoring_width: usize,
    /// Supported exemplars.
    pub exemplars: Exemplars,
}

/// Text encoder and detector.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FinderConfig {
    /// The text encoder.
    pub text: TextConfig,
    /// The detector.
    pub detector: DetectorConfig,
}

impl ModelConfig {
    /// SAM 3 as published: 860 million parameters.
    pub fn sam3() -> Self {
        let encoder = EncoderConfig::RotaryVit {
            trunk: VitConfig {
                image_size: 1008,
                patch: 14,
                width: 1024,
                depth: 32,
                heads: 16,
                mlp_width: 4736,
                window: 24,
                global_blocks: vec![7, 15, 23, 31],
                norm_epsilon: 1e-5,
            },
            positions: PositionTable { grid: 24, rows: PositionRows::ClassAndGrid },
        };
        ModelConfig {
            encoder,
            memory: Some(MemoryConfig::published(MemoryForm::Sam3)),
            finder: Some(FinderConfig {
                text: TextConfig {
                    vocabulary: 49408,
                    context: 32,
                    width: 1024,
                    depth: 24,
                    heads: 16,
                    mlp_width: 4096,
                },
                detector: DetectorConfig {
                    width: 256,
                    heads: 8,
                    mlp_width: 2048,
                    geometry_depth: 3,
                    fusion_depth: 6,
                    decoder_depth: 6,
                    queries: 200,
                    scoring_width: 2048,
                    exemplars: Exemplars::BoxesAndPoints,
                },
            }),
            decoder: Some(DecoderConfig::published(DecoderForm::Sam3)),
        }
    }
}

impl ModelConfig {
    /// SAM 3.1 as published: 873 million parameters.
    pub fn sam3_1() -> Self {
        ModelConfig {
            memory: Some(MemoryConfig::published(MemoryForm::Sam3_1)),
            decoder: Some(DecoderConfig::published(DecoderForm::Sam3_1)),
            ..ModelConfig::sam3()
        }
    }
}

/// Where the neck of the interactive head is.
pub(crate) fn interactive_neck(form: DecoderForm) -> &'static str {
    match form {
        DecoderForm::Sam3_1 => "detector.backbone.vision_backbone.interactive_convs",
        DecoderForm::Sam1 | DecoderForm::Sam2 | DecoderForm::Sam3 => {
            "detector.backbone.vision_backbone.sam2_convs"
        }
    }
}

/// Reads the configuration of a SAM 3 from its tensors: of the components it has. A file without any reports the
/// detector's tensors as missing.
pub(super) fn read(shapes: &Shapes<'_>) -> Result<ModelConfig, ConfigError> {
    let has = |name: &str| shapes.0.contains_key(name);
    let clicks = [DecoderForm::Sam3, DecoderForm::Sam3_1].into_iter().find(|form| {
        has(&format!("{}.0.conv_1x1.weight", interactive_neck(*form)))
            && has(&format!("{}.mask_tokens.weight", form.mask_decoder()))
    });
    let finding = has(&format!("{TEXT}.token_embedding.weight"))
        || has(&format!("{DECODER}.query_embed.weight"))
        || clicks.is_none();
    let read_finder = || -> Result<FinderConfig, ConfigError> {
        Ok(FinderConfig { text: read_text(shapes)?, detector: read_detector(shapes)? })
    };
    let read_clicks = |form| DecoderConfig::read(shapes, form, DECODER_HEADS);
    let positions = read_positions(shapes)?;
    Ok(ModelConfig {
        encoder: EncoderConfig::RotaryVit { trunk: read_trunk(shapes, positions)?, positions },
        decoder: clicks.map(read_clicks).transpose()?,
        memory: match clicks {
            Some(DecoderForm::Sam3) if has_memory(shapes, TRACKER) => {
                Some(read_memory(shapes, TRACKER, MemoryForm::Sam3)?)
            }
            Some(DecoderForm::Sam3_1) if has_memory(shapes, MULTIPLEX_TRACKER) => {
                Some(read_multiplex_memory(shapes)?)
            }
            Some(_) | None => None,
        },
        finder: finding.then(read_finder).transpose()?,
    })
}

/// Where memory attention and the memory encoder of a tracker are.
fn memory_parts(tracker: &str) -> [String; 2] {
    [format!("{tracker}.transformer.encoder.layers"), format!("{tracker}.maskmem_backbone")]
}

/// Whether there are a memory encoder and memory attention, which files for pictures lack.
fn has_memory(shapes: &Shapes<'_>, tracker: &str) -> bool {
    let has = |part: &str| shapes.0.keys().any(|name| name.starts_with(part));
    memory_parts(tracker).iter().all(|part| has(&format!("{part}.")))
}

fn read_memory(
    shapes: &Shapes<'_>,
    tracker: &str,
    form: MemoryForm,
) -> Result<MemoryConfig, ConfigError> {
    let [layers, encoder] = memory_parts(tracker);
    let [frames, _, _, width] = shapes.axes(&format!("{tracker}.maskmem_tpos_enc"))?;
    let [mlp_width] = shapes.axes(&format!("{layers}.0.linear1.bias"))?;
    let [fuser_layers, fuser_width] = MemoryConfig::read_fuser(shapes, &encoder)?;
    Ok(MemoryConfig {
        width,
        frames,
        layers: shapes.count(&layers, "norm1.weight"),
        mlp_width,
        fuser_layers,
        fuser_width,
        ..MemoryConfig::published(form)
    })
}

fn read_multiplex_memory(shapes: &Shapes<'_>) -> Result<MemoryConfig, ConfigError> {
    let [slots, _] = shapes.axes(&format!("{MULTIPLEX_TRACKER}.output_valid_embed"))?;
    let [_, encoder] = memory_parts(MULTIPLEX_TRACKER);
    let [mask_channels] = shapes.axes(&format!("{encoder}.mask_downsampler.encoder.0.bias"))?;
    let decoder = MultiplexConfig::DECODER;
    let decoder = DecoderConfig::read_masks(shapes, DecoderForm::Sam3_1, decoder, DECODER_HEADS)?;
    // A file holds the tokens of all slots.
    let decoder = DecoderConfig { mask_tokens: decoder.mask_tokens / slots, ..decoder };
    Ok(MemoryConfig {
        multiplex: Some(MultiplexConfig { slots, mask_channels, decoder }),
        ..read_memory(shapes, MULTIPLEX_TRACKER, MemoryForm::Sam3_1)?
    })
}

fn read_positions(shapes: &Shapes<'_>) -> Result<PositionTable, ConfigError> {
    let table = format!("{TRUNK}.pos_embed");
    let [_, rows, _] = shapes.axes(&table)?;
    let grid = rows.isqrt();
    match rows - grid * grid {
        0 => Ok(PositionTable { grid, rows: PositionRows::Grid }),
        1 => Ok(PositionTable { grid, rows: PositionRows::ClassAndGrid }),
        _ => {
            let reason = format!("{rows} rows are no square grid, with or without a class token");
            Err(ConfigError::Shape { tensor: table, reason })
        }
    }
}

fn read_trunk(shapes: &Shapes<'_>, positions: PositionTable) -> Result<VitConfig, ConfigError> {
    let [width, _, patch, _] = shapes.axes(&format!("{TRUNK}.patch_embed.proj.weight"))?;
    let [mlp_width] = shapes.axes(&format!("{TRUNK}.blocks.0.mlp.fc1.bias"))?;
    let depth = shapes.count(&format!("{TRUNK}.blocks"), "norm1.weight");
    let rotation = match shapes.count(&format!("{TRUNK}.blocks"), "attn.freqs_cis") {
        0 => Rotation::published(positions.grid, depth),
        _ => Rotation::read(shapes, depth)?,
    };
    Ok(VitConfig {
        image_size: rotation.grid.saturating_mul(patch),
        patch,
        width,
        depth,
        heads: (width / rotation.head_width).max(1),
        mlp_width,
        window: rotation.window,
        global_blocks: rotation.global_blocks,
        norm_epsilon: 1e-5,
    })
}

/// Attention sizes read from the rotation tables of the blocks.
struct Rotation {
    head_width: usize,
    window: usize,
    grid: usize,
    global_blocks: Vec<usize>,
}

impl Rotation {
    /// Read from the tables of Meta's files: one row for each position, one column for each pair of channels.
    fn read(shapes: &Shapes<'_>, depth: usize) -> Result<Rotation, ConfigError> {
        let block = |block: usize| shapes.axes(&format!("{TRUNK}.blocks.{block}.attn.freqs_cis"));
        let [_, pairs] = block(0)?;
        let positions = (0..depth)
            .map(|index| block(index).map(|[rows, _]| rows))
            .collect::<Result<Vec<_>, _>>()?;
        let most = positions.iter().copied().max().unwrap_or(1);
        let fewest = positions.iter().copied().min().unwrap_or(1);
        Ok(Rotation {
            head_width: 2 * pairs,
            window: fewest.isqrt(),
            grid: most.isqrt(),
            global_blocks: (0..depth).filter(|&index| positions[index] == most).collect(),
        })
    }

    /// Of the published model, whose sizes follow from its position table.
    fn published(side: usize, depth: usize) -> Rotation {
        let global = |block: &usize| (block + 1).is_multiple_of(GLOBAL_EVERY);
        Rotation {
            head_width: HEAD_WIDTH,
            window: side,
            grid: TILES.saturating_mul(side),
            global_blocks: (0..depth).filter(global).collect(),
        }
    }
}

fn read_text(shapes: &Shapes<'_>) -> Result<TextConfig, ConfigError> {
    let [vocabulary, width] = shapes.axes(&format!("{TEXT}.token_embedding.weight"))?;
    let [context, _] = shapes.axes(&format!("{TEXT}.positional_embedding"))?;
    let blocks = format!("{TEXT}.transformer.resblocks");
    let [mlp_width] = shapes.axes(&format!("{blocks}.0.mlp.c_fc.bias"))?;
    Ok(TextConfig {
        vocabulary,
        context,
        width,
        depth: shapes.count(&blocks, "ln_1.weight"),
        heads: (width / HEAD_WIDTH).max(1),
        mlp_width,
    })
}

fn read_detector(shapes: &Shapes<'_>) -> Result<DetectorConfig, ConfigError> {
    let exemplars = match shapes.0.get(&format!("{GEOMETRY}.points_direct_project.weight")) {
        Some(_) => Exemplars::BoxesAndPoints,
        None => Exemplars::Boxes,
    };
    let [queries, width] = shapes.axes(&format!("{DECODER}.query_embed.weight"))?;
    let [heads] = shapes.axes(&format!("{DECODER}.boxRPB_embed_x.layers.1.bias"))?;
    let [mlp_width] = shapes.axes(&format!("{DECODER}.layers.0.linear1.bias"))?;
    let [scoring_width] = shapes.axes("detector.dot_prod_scoring.prompt_mlp.layers.0.bias")?;
    Ok(DetectorConfig {
        width,
        heads,
        mlp_width,
        geometry_depth: shapes.count(&format!("{GEOMETRY}.encode"), "norm1.weight"),
        fusion_depth: shapes.count(FUSION, "norm1.weight"),
        decoder_depth: shapes.count(&format!("{DECODER}.layers"), "norm1.weight"),
        queries,
        scoring_width,
        exemplars,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use cutout_tensor::Shape;

    use super::*;
    use crate::model::load::parameters;
    use crate::model::part::{Part, Stages, graph_of};
    use crate::parts::{
        BankShape, Detect, Encode, EncodeText, FindFeatures, Follow, FollowBuckets, graphs,
    };

    fn needed(config: &ModelConfig) -> HashMap<String, Shape> {
        parameters(&graphs(config).expect("the sizes fit each other"))
    }

    fn trunk(config: &ModelConfig) -> &VitConfig {
        let EncoderConfig::RotaryVit { trunk, .. } = &config.encoder else {
            panic!("another encoder");
        };
        trunk
    }

    /// The tables of rotation that Meta's files hold.
    fn rotation(config: &VitConfig) -> Vec<(String, Shape)> {
        let table = |block: usize| {
            let side = if config.is_global(block) { config.grid() } else { config.window };
            let shape = Shape::new(&[side * side, config.head_width() / 2]);
            (format!("{TRUNK}.blocks.{block}.attn.freqs_cis"), shape)
        };
        (0..config.depth).map(table).collect()
    }

    #[test]
    fn configurations_are_read_back_from_their_own_shapes() {
        let published = ModelConfig::sam3();
        let mut small = published.clone();
        let positions = PositionTable { grid: 2, rows: PositionRows::ClassAndGrid };
        let smaller = VitConfig {
            image_size: 40,
            patch: 4,
            width: 48,
            depth: 3,
            heads: 4,
            window: 5,
            global_blocks: vec![0, 2],
            ..trunk(&small).clone()
        };
        small.encoder = EncoderConfig::RotaryVit { trunk: smaller, positions };
        let finder = small.finder.as_mut().expect("the preset has all parts");
        finder.detector.heads = 4;
        finder.detector.exemplars = Exemplars::Boxes;
        small.decoder = None;
        small.memory = None;
        let mut narrow = published.clone();
        narrow.memory.as_mut().expect("the preset has all parts").fuser_width = 12;
        let pictures = ModelConfig { memory: None, ..published.clone() };
        let tracker = ModelConfig { finder: None, ..published.clone() };
        let multiplex = ModelConfig::sam3_1();
        for (config, stored) in [
            (&published, false),
            (&published, true),
            (&small, true),
            (&tracker, false),
            (&narrow, false),
            (&pictures, false),
            (&multiplex, true),
        ] {
            let mut shapes = needed(config);
            if stored {
                shapes.extend(rotation(trunk(config)));
            }
            assert_eq!(&read(&Shapes(&shapes)).expect("the shapes are whole"), config);
        }
    }

    fn cost<P: Part>(part: P, config: &ModelConfig) -> u64 {
        let (graph, _) = graph_of(&part, config, Stages::Hidden).expect("the preset can be built");
        graph.iter().map(|(id, _)| graph.cost(id).flops).sum()
    }

    /// One memory attention for a bucket, and not one for each object.
    #[test]
    fn sixteen_objects_of_a_bucket_cost_less_than_two_objects_alone() {
        let (remember, full) = (true, |objects| BankShape::kept(objects, 10, 19));
        let alone = cost(Follow { bank: full(2), remember }, &ModelConfig::sam3());
        let bucket = cost(FollowBuckets { bank: full(1), remember }, &ModelConfig::sam3_1());
        assert!(bucket < alone, "{bucket} of a bucket, {alone} of two objects");
    }

    #[test]
    fn a_second_phrase_costs_little() {
        let config = ModelConfig::sam3();
        let second = cost(EncodeText { tokens: 6, kept: 6 }, &config)
            + cost(Detect { text: 6, exemplars: 1 }, &config);
        let image = cost(Encode { pictures: 1 }, &config) + cost(FindFeatures, &config);
        assert!(second * 100 < (image + second) * 10, "{second} of {}", image + second);
    }

    #[test]
    fn shapes_that_cannot_be_are_errors() {
        let shapes = needed(&ModelConfig::sam3());
        for (tensor, axes) in [
            (format!("{TRUNK}.pos_embed"), vec![1, 579, 1024]),
            (format!("{TRUNK}.patch_embed.proj.weight"), vec![1024]),
            (format!("{TEXT}.token_embedding.weight"), vec![0, 1024]),
            (format!("{DECODER}.query_embed.weight"), vec![]),
        ] {
            let mut broken = shapes.clone();
            broken.insert(tensor.clone(), Shape::new(&axes));
            let error = read(&Shapes(&broken)).expect_err("a broken shape");
            assert!(error.to_string().starts_with(&tensor), "{error}");
        }
        assert!(read(&Shapes(&HashMap::new())).is_err());
    }
}
