//! SAM 2 and 2.1, ready to run: configuration and programs.

use std::sync::Arc;

use cutout_graph::{Backend, BuildError, Graph, Named, Profile, Program, Weights};
use cutout_tensor::{Tensor, TensorError};

use super::{Decoded, Embedding, Later, PromptBatch, named};
use crate::config::{MemoryForm, Sam2Config};
use crate::decoder::{DecoderImage, PromptShape};
use crate::memory::MaskSource;
use crate::programs::{ModelError, Programs, Setting};
use crate::sam2::{
    MemoryShape, decoder_graph, encoder_graph, image_side_graph, mask_prompt_graph,
    memory_attention_graph, memory_encoder_graph, memory_projection_graph, pointer_graph,
};

mod video;

pub(crate) use video::Bank;

/// The part of a model that a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Encoder,
    ImageSide,
    Decoder(PromptShape, DecoderImage),
    MemoryEncoder(MaskSource),
    MemoryProjection,
    MemoryAttention(MemoryShape),
    Pointer,
    MaskPrompt,
    /// From this height and width.
    FitMask([usize; 2]),
}

/// The shape of a click: one point, and padding.
const ONE_CLICK: PromptShape = PromptShape { prompts: 1, points: 2, masks: false };

/// The features that the decoder takes beside the embedding.
const FINE_LEVELS: [&str; 2] = ["level0", "level1"];

/// SAM 2 on a backend, from pixels and tokens to logits.
pub(crate) struct Sam2 {
    config: Sam2Config,
    programs: Programs<Part>,
}

impl Sam2 {
    pub(crate) fn new(
        config: Sam2Config,
        weights: Weights,
        backend: Arc<dyn Backend>,
        profile: Profile,
    ) -> Self {
        Sam2 { config, programs: Programs::new(weights, backend, profile) }
    }

    pub(crate) fn config(&self) -> &Sam2Config {
        &self.config
    }

    /// Encodes normalised pixels `f32[1, size, size, 3]`.
    pub(super) fn encode(&self, pixels: &Tensor) -> Result<Embedding, ModelError> {
        let features = self.program(Part::Encoder)?.run(&[("pixels", pixels)])?;
        self.with_features(features)
    }

    /// What the decoder needs, from features that were kept: the outputs of the encoder.
    pub(super) fn with_features(&self, features: Vec<Named>) -> Result<Embedding, ModelError> {
        let embedding = named(&features, super::IMAGE_FEATURE)?;
        let side = self.program(Part::ImageSide)?.run(&[embedding])?;
        Ok(Embedding { features, side, later: Later::default() })
    }

    /// Decodes a batch of prompts on one image.
    pub(crate) fn decode(
        &self,
        image: &Embedding,
        batch: &PromptBatch,
    ) -> Result<Decoded, ModelError> {
        let kept = match &batch.masks {
            Some(_) => vec![named(&image.features, super::IMAGE_FEATURE)?],
            None => image.side.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect(),
        };
        self.run_decoder(image, batch, DecoderImage::Shared, kept)
    }

    fn run_decoder(
        &self,
        image: &Embedding,
        batch: &PromptBatch,
        whose: DecoderImage,
        kept: Vec<(&str, &Tensor)>,
    ) -> Result<Decoded, ModelError> {
        let &[prompts, points, _] = &batch.points.shape()[..] else {
            let message =
                format!("points must be f32[prompts, points, 2], got {}", batch.points.ty());
            return Err(TensorError::Shape(message).into());
        };
        let shape = PromptShape { prompts, points, masks: batch.masks.is_some() };
        let program = self.program(Part::Decoder(shape, whose))?;
        let mut inputs = kept;
        inputs.extend([("points", &batch.points), ("kinds", &batch.kinds)]);
        inputs.extend(batch.masks.iter().map(|masks| ("masks", masks)));
        for level in FINE_LEVELS {
            inputs.push(named(&image.features, level)?);
        }
        let mut outputs = program.run(&inputs)?.into_iter();
        let mut next = || outputs.next().expect("a decoder of SAM 2 has four outputs").1;
        let (logits, iou) = (next(), next());
        Ok(Decoded { logits, iou, object_score: Some(next()), tokens: Some(next()) })
    }

    /// Whether memories say that their object is hidden.
    fn takes_object_score(&self) -> bool {
        self.memory().is_some_and(|memory| memory.form == MemoryForm::Sam2_1)
    }

    /// Whether object pointers have a place in time.
    fn places_pointers(&self) -> bool {
        self.memory().is_some_and(|memory| memory.form == MemoryForm::Sam2_1)
    }

    pub(super) fn setting(&self) -> &Setting {
        self.programs.setting()
    }

    fn program(&self, part: Part) -> Result<Arc<dyn Program>, ModelError> {
        self.programs.get(part, |part| self.graph(part))
    }

    /// Compiles what one click needs.
    pub(super) fn prepare(&self) -> Result<(), ModelError> {
        for part in [Part::Encoder, Part::ImageSide, Part::Decoder(ONE_CLICK, DecoderImage::Shared)]
        {
            self.program(part)?;
        }
        Ok(())
    }

    /// The graphs of the model, by name; the decoder's for one click, memory attention's for a full memory.
    pub(super) fn graphs(&self) -> Result<Vec<(&'static str, Graph)>, BuildError> {
        let mut parts = vec![
            ("encoder", Part::Encoder),
            ("image_side", Part::ImageSide),
            ("decoder", Part::Decoder(ONE_CLICK, DecoderImage::Shared)),
        ];
        if let Some(memory) = self.memory() {
            let (frames, pointers) = (memory.frames, memory.pointer_frames);
            let full = MemoryShape { objects: 1, frames, pointers };
            parts.extend([
                ("memory_encoder", Part::MemoryEncoder(MaskSource::Predicted)),
                ("memory_projection", Part::MemoryProjection),
                ("memory_attention", Part::MemoryAttention(full)),
            ]);
        }
        parts.into_iter().map(|(name, part)| Ok((name, self.graph(part)?))).collect()
    }

    fn graph(&self, part: Part) -> Result<Graph, BuildError> {
        match part {
            Part::Encoder => encoder_graph(&self.config),
            Part::ImageSide => image_side_graph(&self.config),
            Part::Decoder(shape, image) => decoder_graph(&self.config, shape, image),
            Part::MemoryEncoder(source) => memory_encoder_graph(&self.config, 1, source),
            Part::MemoryProjection => memory_projection_graph(&self.config, 1),
            Part::MemoryAttention(shape) => memory_attention_graph(&self.config, shape),
            Part::Pointer => pointer_graph(&self.config, 1),
            Part::MaskPrompt => mask_prompt_graph(&self.config, 1),
            Part::FitMask(size) => video::fit_mask_graph(self.config.encoder.image_size, size),
        }
    }
}
