//! SAM 3 from a checkpoint: everything is read from the tensors.

use std::collections::HashMap;

use cutout_graph::{BuildError, Graph, Weights};
use cutout_tensor::Shape;
use cutout_weights::Checkpoint;
use cutout_weights::layout::{Family, Model};

use super::clicks::click_neck;
use super::{
    DetectorShape, GeometryShape, TextShape, click_decoder_graph, click_image_side_graph,
    clicks_graph, detector_graph, geometry_graph, image_side_graph, text_graph, trunk_graph,
};
use crate::checkpoint::{DECODER_HEADS, Examined, OpenError, Shapes, read_decoder, shapes_of};
use crate::config::{
    DecoderForm, DetectorConfig, Exemplars, FinderConfig, PositionRows, PositionTable, Sam3Config,
    TextConfig, VitConfig,
};
use crate::decoder::PromptShape;

/// Channels of a head in both encoders: no tensor's shape tells, where the rotation is not stored.
const HEAD_WIDTH: usize = 64;
/// How often the position table lies along each side of the image, where no tensor tells.
const TILES: usize = 3;
/// Every so many blocks, one sees the whole image, where no tensor tells.
const GLOBAL_EVERY: usize = 8;

const TRUNK: &str = "detector.backbone.vision_backbone.trunk";
const TEXT: &str = "detector.backbone.language_backbone.encoder";
const GEOMETRY: &str = "detector.geometry_encoder";
const FUSION: &str = "detector.transformer.encoder.layers";
const DECODER: &str = "detector.transformer.decoder";

/// A configuration with the weights it was read from.
pub struct Loaded {
    /// The configuration.
    pub config: Sam3Config,
    /// All weights that its graphs ask for.
    pub weights: Weights,
}

/// Reads the configuration and compares the tensors with what it needs.
pub(crate) fn examine(model: &Model<'_>) -> Result<Examined<Sam3Config>, OpenError> {
    let config = read_config(&shapes_of(model))?;
    let graphs = graphs(&config)?;
    Ok(Examined::new(model, config, &graphs))
}

/// Opens SAM 3 from a checkpoint in any format and layout: detector, interactive head, or both.
pub fn load(checkpoint: &Checkpoint) -> Result<Loaded, OpenError> {
    let model = Model::of(checkpoint)?;
    let identity = model.identity();
    if !matches!(identity.family, Family::Sam3 | Family::Sam3_1) {
        return Err(OpenError::Unsupported { file: checkpoint.file().to_owned(), identity });
    }
    let (config, weights) = examine(&model)?.load(checkpoint, &model)?;
    Ok(Loaded { config, weights })
}

/// The graphs that together ask for every weight.
fn graphs(config: &Sam3Config) -> Result<Vec<Graph>, BuildError> {
    let mut graphs = vec![trunk_graph(config)?];
    if let Some(finder) = &config.finder {
        let points = match finder.detector.exemplars {
            Exemplars::Boxes => 0,
            Exemplars::BoxesAndPoints => 1,
        };
        graphs.extend([
            image_side_graph(config)?,
            text_graph(config, TextShape { tokens: 1, kept: 1 })?,
            geometry_graph(config, GeometryShape { boxes: 1, points })?,
            detector_graph(config, DetectorShape { text: 1, geometry: 1 })?,
        ]);
    }
    if config.clicks.is_some() {
        let all = PromptShape { prompts: 1, points: 1, masks: true };
        graphs.extend([
            clicks_graph(config)?,
            click_image_side_graph(config)?,
            click_decoder_graph(config, all)?,
        ]);
    }
    Ok(graphs)
}

/// Reads the configuration of a SAM 3 from its tensors: of the parts that are there. A file without any is one whose
/// detector is missing.
pub(crate) fn read_config(shapes: &HashMap<String, Shape>) -> Result<Sam3Config, OpenError> {
    let has = |name: &str| shapes.contains_key(name);
    let clicks = [DecoderForm::Sam3, DecoderForm::Sam3_1].into_iter().find(|form| {
        has(&format!("{}.0.conv_1x1.weight", click_neck(*form)))
            && has(&format!("{}.mask_tokens.weight", form.mask_decoder()))
    });
    let finding = has(&format!("{TEXT}.token_embedding.weight"))
        || has(&format!("{DECODER}.query_embed.weight"))
        || clicks.is_none();
    let shapes = Shapes(shapes);
    let read_finder = || -> Result<FinderConfig, OpenError> {
        Ok(FinderConfig { text: read_text(&shapes)?, detector: read_detector(&shapes)? })
    };
    let read_clicks = |form| read_decoder(&shapes, form, DECODER_HEADS);
    let positions = read_positions(&shapes)?;
    Ok(Sam3Config {
        trunk: read_trunk(&shapes, positions)?,
        positions,
        finder: finding.then(read_finder).transpose()?,
        clicks: clicks.map(read_clicks).transpose()?,
    })
}

fn read_positions(shapes: &Shapes<'_>) -> Result<PositionTable, OpenError> {
    let table = format!("{TRUNK}.pos_embed");
    let [_, rows, _] = shapes.axes(&table)?;
    let grid = rows.isqrt();
    match rows - grid * grid {
        0 => Ok(PositionTable { grid, rows: PositionRows::Grid }),
        1 => Ok(PositionTable { grid, rows: PositionRows::ClassAndGrid }),
        _ => {
            let reason = format!("{rows} rows are no square grid, with or without a class token");
            Err(OpenError::Shape { tensor: table, reason })
        }
    }
}

fn read_trunk(shapes: &Shapes<'_>, positions: PositionTable) -> Result<VitConfig, OpenError> {
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

/// What the rotation of each block tells of the attention in it.
struct Rotation {
    head_width: usize,
    window: usize,
    grid: usize,
    global_blocks: Vec<usize>,
}

impl Rotation {
    /// Read from the tables of Meta's files: one row for each position, one column for each pair of channels.
    fn read(shapes: &Shapes<'_>, depth: usize) -> Result<Rotation, OpenError> {
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

fn read_text(shapes: &Shapes<'_>) -> Result<TextConfig, OpenError> {
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

fn read_detector(shapes: &Shapes<'_>) -> Result<DetectorConfig, OpenError> {
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
    use super::*;
    use crate::checkpoint::parameters;

    fn needed(config: &Sam3Config) -> HashMap<String, Shape> {
        parameters(&graphs(config).expect("the sizes fit each other"))
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
        let published = Sam3Config::published();
        let mut small = published.clone();
        small.trunk = VitConfig {
            image_size: 40,
            patch: 4,
            width: 48,
            depth: 3,
            heads: 4,
            window: 5,
            global_blocks: vec![0, 2],
            ..small.trunk
        };
        small.positions.grid = 2;
        let finder = small.finder.as_mut().expect("the preset has all parts");
        finder.detector.heads = 4;
        finder.detector.exemplars = Exemplars::Boxes;
        small.clicks = None;
        let tracker = Sam3Config { finder: None, ..published.clone() };
        for (config, stored) in
            [(&published, false), (&published, true), (&small, true), (&tracker, false)]
        {
            let mut shapes = needed(config);
            if stored {
                shapes.extend(rotation(&config.trunk));
            }
            assert_eq!(&read_config(&shapes).expect("the shapes are whole"), config);
        }
    }

    #[test]
    fn a_second_phrase_costs_little() {
        let config = Sam3Config::published();
        let cost = |graph: Result<Graph, BuildError>| -> u64 {
            let graph = graph.expect("the preset can be built");
            graph.iter().map(|(id, _)| graph.cost(id).flops).sum()
        };
        let phrase = TextShape { tokens: 6, kept: 6 };
        let nothing = GeometryShape { boxes: 0, points: 0 };
        let second = cost(text_graph(&config, phrase))
            + cost(detector_graph(&config, DetectorShape { text: 6, geometry: 1 }));
        let image = cost(trunk_graph(&config))
            + cost(image_side_graph(&config))
            + cost(geometry_graph(&config, nothing));
        assert!(second * 100 < (image + second) * 10, "{second} of {}", image + second);
    }

    #[test]
    fn shapes_that_cannot_be_are_errors() {
        let shapes = needed(&Sam3Config::published());
        for (tensor, axes) in [
            (format!("{TRUNK}.pos_embed"), vec![1, 579, 1024]),
            (format!("{TRUNK}.patch_embed.proj.weight"), vec![1024]),
            (format!("{TEXT}.token_embedding.weight"), vec![0, 1024]),
            (format!("{DECODER}.query_embed.weight"), vec![]),
        ] {
            let mut broken = shapes.clone();
            broken.insert(tensor.clone(), Shape::new(&axes));
            let error = read_config(&broken).expect_err("a broken shape");
            assert!(error.to_string().starts_with(&tensor), "{error}");
        }
        assert!(read_config(&HashMap::new()).is_err());
    }
}
