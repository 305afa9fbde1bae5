//! SAM 3, ready to run: configuration, programs, and the phrases it has read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cutout_graph::{Backend, BuildError, Graph, Named, Profile, Program, Weights};
use cutout_tensor::{Tensor, TensorError};

use super::{Decoded, Embedding, Later, PromptBatch, named};
use crate::config::{FinderConfig, Sam3Config};
use crate::decoder::PromptShape;
use crate::programs::{ModelError, Programs, Setting};
use crate::sam3::{
    DetectorShape, GeometryShape, TextShape, click_decoder_graph, click_image_side_graph,
    clicks_graph, detector_graph, geometry_graph, image_side_graph, text_graph, trunk_graph,
};
use crate::tokenizer::{Tokenizer, Tokens};

/// The part of a model that a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Trunk,
    ImageSide,
    Clicks,
    ClickImageSide,
    ClickDecoder(PromptShape),
    Text(TextShape),
    Geometry(GeometryShape),
    Detector(DetectorShape),
}

/// The shape of a click: one point, and padding.
const ONE_CLICK: PromptShape = PromptShape { prompts: 1, points: 2, masks: false };

/// The shapes of a short phrase without exemplars.
const ONE_PHRASE: TextShape = TextShape { tokens: 4, kept: 4 };
const NO_EXEMPLARS: GeometryShape = GeometryShape { boxes: 0, points: 0 };

/// Phrases whose features are kept; beyond, all are dropped and computed again when asked for.
const MOST_PHRASES: usize = 256;

/// What is not computed before it is asked for.
const TRUNK: &str = "trunk";

/// Exemplars as the geometry encoder takes them, places in 0..1.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExemplarBatch {
    /// Centre x, centre y, width, height.
    pub(crate) boxes: Vec<[f32; 4]>,
    /// 1 looked for, 0 not.
    pub(crate) box_labels: Vec<i64>,
    /// x, y.
    pub(crate) points: Vec<[f32; 2]>,
    /// 1 looked for, 0 not.
    pub(crate) point_labels: Vec<i64>,
}

/// What the detector gives for one phrase.
#[derive(Clone, Debug)]
pub(crate) struct Detected {
    /// `f32[queries]`, before the sigmoid.
    pub(crate) logits: Tensor,
    /// `f32[1]`, before the sigmoid.
    pub(crate) presence: Tensor,
    /// `f32[queries, 4]`: left, top, right, bottom, in 0..1.
    pub(crate) boxes: Tensor,
    /// `f32[queries, 4 grid, 4 grid]`.
    pub(crate) masks: Tensor,
    /// `f32[1, 4 grid, 4 grid]`.
    pub(crate) semantic: Tensor,
}

/// SAM 3 on a backend, from pixels, tokens and exemplars to logits.
pub(crate) struct Sam3 {
    config: Sam3Config,
    programs: Programs<Part>,
    tokenizer: OnceLock<Tokenizer>,
    phrases: Mutex<HashMap<Tokens, Tensor>>,
}

impl Sam3 {
    pub(crate) fn new(
        config: Sam3Config,
        weights: Weights,
        backend: Arc<dyn Backend>,
        profile: Profile,
    ) -> Self {
        Sam3 {
            config,
            programs: Programs::new(weights, backend, profile),
            tokenizer: OnceLock::new(),
            phrases: Mutex::default(),
        }
    }

    pub(crate) fn config(&self) -> &Sam3Config {
        &self.config
    }

    /// What finds objects, or the error that there is nothing of the kind.
    pub(crate) fn finder(&self) -> Result<&FinderConfig, ModelError> {
        self.config.finder.as_ref().ok_or(ModelError::NoDetector)
    }

    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        self.tokenizer.get_or_init(Tokenizer::new)
    }

    /// Encodes normalised pixels `f32[1, size, size, 3]`.
    pub(super) fn encode(&self, pixels: &Tensor) -> Result<Embedding, ModelError> {
        let features = self.program(Part::Trunk)?.run(&[("pixels", pixels)])?;
        self.with_features(features)
    }

    /// An embedding from features that were kept: what the image encoder gave. Both necks wait until they are asked for.
    pub(super) fn with_features(&self, features: Vec<Named>) -> Result<Embedding, ModelError> {
        named(&features, TRUNK)?;
        Ok(Embedding { features, side: Vec::new(), later: Later::default() })
    }

    /// What clicks need of an image: the levels, and what follows from them.
    pub(super) fn clicks<'e>(&self, image: &'e Embedding) -> Result<&'e [Named], ModelError> {
        if let Some(known) = image.later.clicks.get() {
            return Ok(known);
        }
        if self.config.clicks.is_none() {
            return Err(ModelError::NoInteractiveHead);
        }
        let trunk = image.feature(TRUNK)?;
        let mut levels = self.program(Part::Clicks)?.run(&[trunk])?;
        let embedding = named(&levels, super::IMAGE_FEATURE)?;
        let side = self.program(Part::ClickImageSide)?.run(&[embedding])?;
        levels.extend(side);
        Ok(image.later.clicks.get_or_init(|| levels))
    }

    /// What the detector needs of an image: levels, the first look around, and the encoder's own token of no exemplar.
    fn finding<'e>(&self, image: &'e Embedding) -> Result<&'e [Named], ModelError> {
        if let Some(known) = image.later.finding.get() {
            return Ok(known);
        }
        self.finder()?;
        let trunk = image.feature(TRUNK)?;
        let mut side = self.program(Part::ImageSide)?.run(&[trunk])?;
        let level = named(&side, "level.2")?;
        let geometry = self.program(Part::Geometry(NO_EXEMPLARS))?.run(&[level])?;
        side.extend(geometry);
        Ok(image.later.finding.get_or_init(|| side))
    }

    /// Decodes a batch of prompts on one image.
    pub(super) fn decode(
        &self,
        image: &Embedding,
        batch: &PromptBatch,
    ) -> Result<Decoded, ModelError> {
        let known = self.clicks(image)?;
        let &[prompts, points, _] = &batch.points.shape()[..] else {
            let message =
                format!("points must be f32[prompts, points, 2], got {}", batch.points.ty());
            return Err(TensorError::Shape(message).into());
        };
        let shape = PromptShape { prompts, points, masks: batch.masks.is_some() };
        let mut values: Vec<(&str, &Tensor)> =
            known.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        // With masks, the side follows from the embedding and the mask; without, it is known.
        values.retain(|(name, _)| match *name {
            "level0" | "level1" => true,
            super::IMAGE_FEATURE => shape.masks,
            _ => !shape.masks,
        });
        values.extend([("points", &batch.points), ("kinds", &batch.kinds)]);
        values.extend(batch.masks.iter().map(|masks| ("masks", masks)));
        let mut outputs = self.program(Part::ClickDecoder(shape))?.run(&values)?.into_iter();
        let mut next = || outputs.next().expect("a decoder of SAM 3 has four outputs").1;
        let (logits, iou) = (next(), next());
        Ok(Decoded { logits, iou, object_score: Some(next()), tokens: Some(next()) })
    }

    /// Objects that a phrase and exemplars describe.
    pub(crate) fn detect(
        &self,
        image: &Embedding,
        tokens: &Tokens,
        exemplars: &ExemplarBatch,
    ) -> Result<Detected, ModelError> {
        let side = self.finding(image)?;
        let text = self.read(tokens)?;
        let geometry = self.show(side, exemplars)?;
        let shape = DetectorShape { text: text.shape()[1], geometry: geometry.shape()[1] };
        let inputs = [
            named(side, "level.0")?,
            named(side, "level.1")?,
            named(side, "fusion")?,
            ("text", &text),
            ("geometry", &geometry),
        ];
        let mut outputs = self.program(Part::Detector(shape))?.run(&inputs)?.into_iter();
        let mut next = || outputs.next().expect("a detector has five outputs").1;
        let (logits, presence, boxes) = (next(), next(), next());
        Ok(Detected { logits, presence, boxes, masks: next(), semantic: next() })
    }

    /// The features of a phrase, `f32[1, kept, width]`, computed once.
    fn read(&self, tokens: &Tokens) -> Result<Tensor, ModelError> {
        // A panic while the lock is held leaves the map as it was: an entry is added whole or not at all.
        let locked = || self.phrases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = locked().get(tokens) {
            return Ok(known.clone());
        }
        let Tokens { numbers, kept, .. } = tokens;
        let shape = TextShape { tokens: numbers.len(), kept: kept.len() };
        let inputs = [
            ("tokens", &Tensor::from_vec([shape.tokens], numbers.clone())?),
            ("kept", &Tensor::from_vec([shape.kept], kept.clone())?),
        ];
        let text = only(self.program(Part::Text(shape))?.run(&inputs)?);
        let mut phrases = locked();
        if phrases.len() >= MOST_PHRASES {
            phrases.clear();
        }
        Ok(phrases.entry(tokens.clone()).or_insert(text).clone())
    }

    /// The tokens of exemplars, `f32[1, tokens, width]`.
    fn show(&self, side: &[Named], exemplars: &ExemplarBatch) -> Result<Tensor, ModelError> {
        let ExemplarBatch { boxes, box_labels, points, point_labels } = exemplars;
        let shape = GeometryShape { boxes: boxes.len(), points: points.len() };
        if shape == NO_EXEMPLARS {
            return Ok(named(side, "geometry")?.1.clone());
        }
        let boxes = [
            Tensor::from_vec([shape.boxes, 4], boxes.concat())?,
            Tensor::from_vec([shape.boxes], box_labels.clone())?,
        ];
        let points = [
            Tensor::from_vec([shape.points, 2], points.concat())?,
            Tensor::from_vec([shape.points], point_labels.clone())?,
        ];
        let mut inputs = vec![named(side, "level.2")?];
        if shape.boxes > 0 {
            inputs.extend([("boxes", &boxes[0]), ("box_labels", &boxes[1])]);
        }
        if shape.points > 0 {
            inputs.extend([("points", &points[0]), ("point_labels", &points[1])]);
        }
        Ok(only(self.program(Part::Geometry(shape))?.run(&inputs)?))
    }

    pub(super) fn setting(&self) -> &Setting {
        self.programs.setting()
    }

    fn program(&self, part: Part) -> Result<Arc<dyn Program>, ModelError> {
        self.programs.get(part, |part| self.graph(part))
    }

    /// The parts of an image and one click, or of an image and a short phrase where nothing answers clicks; by name.
    fn usual_parts(&self) -> Vec<(&'static str, Part)> {
        let mut parts = vec![("encoder", Part::Trunk)];
        if self.config.clicks.is_some() {
            parts.extend([
                ("clicks", Part::Clicks),
                ("click_image_side", Part::ClickImageSide),
                ("decoder", Part::ClickDecoder(ONE_CLICK)),
            ]);
        }
        if self.config.finder.is_some() {
            let shape = DetectorShape { text: ONE_PHRASE.kept, geometry: NO_EXEMPLARS.tokens() };
            parts.extend([
                ("image_side", Part::ImageSide),
                ("text", Part::Text(ONE_PHRASE)),
                ("geometry", Part::Geometry(NO_EXEMPLARS)),
                ("detector", Part::Detector(shape)),
            ]);
        }
        parts
    }

    /// Compiles what one click needs; where nothing answers clicks, what a phrase needs.
    pub(super) fn prepare(&self) -> Result<(), ModelError> {
        let needed = |part: &Part| match part {
            Part::Trunk | Part::Clicks | Part::ClickImageSide | Part::ClickDecoder(_) => true,
            Part::ImageSide | Part::Text(_) | Part::Geometry(_) | Part::Detector(_) => {
                self.config.clicks.is_none()
            }
        };
        for (_, part) in self.usual_parts().into_iter().filter(|(_, part)| needed(part)) {
            self.program(part)?;
        }
        Ok(())
    }

    /// The graphs of the model, by name; for one click, and for a short phrase.
    pub(super) fn graphs(&self) -> Result<Vec<(&'static str, Graph)>, BuildError> {
        let parts = self.usual_parts().into_iter();
        parts.map(|(name, part)| Ok((name, self.graph(part)?))).collect()
    }

    fn graph(&self, part: Part) -> Result<Graph, BuildError> {
        let config = &self.config;
        match part {
            Part::Trunk => trunk_graph(config),
            Part::ImageSide => image_side_graph(config),
            Part::Clicks => clicks_graph(config),
            Part::ClickImageSide => click_image_side_graph(config),
            Part::ClickDecoder(shape) => click_decoder_graph(config, shape),
            Part::Text(shape) => text_graph(config, shape),
            Part::Geometry(shape) => geometry_graph(config, shape),
            Part::Detector(shape) => detector_graph(config, shape),
        }
    }
}

/// The one output of a program that has one.
fn only(outputs: Vec<Named>) -> Tensor {
    outputs.into_iter().next().expect("every graph has an output").1
}
