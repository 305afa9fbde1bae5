//! SAM 2 over the frames of a video: memories in, memories out.

use cutout_graph::ops::ResizeMode;
use cutout_graph::{BuildError, Builder, Graph, Named};
use cutout_tensor::{DType, Tensor, TensorError};

use super::{Part, Sam2};
use crate::config::MemoryConfig;
use crate::decoder::DecoderImage;
use crate::memory::MaskSource;
use crate::network::{Decoded, Embedding, PromptBatch, named};
use crate::programs::ModelError;
use crate::sam2::MemoryShape;

/// What one object's memory attention reads on a frame.
pub(crate) struct Bank<'a> {
    /// For each memory frame: what [`Sam2::project`] made of it.
    pub(crate) frames: Vec<&'a [Named]>,
    /// Row of the temporal table of each memory frame.
    pub(crate) ages: Vec<i64>,
    /// Object pointers, `f32[1, width]` each.
    pub(crate) pointers: Vec<&'a Tensor>,
    /// How far away in time each pointer is, from 0 to 1.
    pub(crate) distances: Vec<f32>,
}

impl Sam2 {
    /// The memory's configuration; nothing in a checkpoint of the image part alone.
    pub(crate) fn memory(&self) -> Option<&MemoryConfig> {
        self.config.memory.as_ref()
    }

    /// Encodes the mask of an object on a frame, low-resolution `logits: f32[side, side]`, into a memory
    /// `[1, cells, memory width]`. It is kept in half the bytes, rounded as Meta rounds it.
    pub(crate) fn remember(
        &self,
        frame: &Embedding,
        logits: &Tensor,
        object_score: f32,
        source: MaskSource,
    ) -> Result<Tensor, ModelError> {
        let side = logits.shape()[0];
        let logits = logits.reshape([1, side, side, 1])?;
        let score = Tensor::from_vec([1], vec![object_score])?;
        let program = self.program(Part::MemoryEncoder(source))?;
        let mut inputs = vec![named(&frame.features, "level2")?, ("logits", &logits)];
        if self.takes_object_score() {
            inputs.push(("object_score", &score));
        }
        let memory = program.run(&inputs)?.remove(0).1;
        Ok(memory.cast(DType::BF16)?)
    }

    /// What memory attention keeps of a memory: inputs of [`Sam2::attend`] without the frame's number in front.
    pub(crate) fn project(&self, memory: &Tensor) -> Result<Vec<Named>, ModelError> {
        let memory = memory.cast(DType::F32)?;
        let mut projected = self.program(Part::MemoryProjection)?.run(&[("memory", &memory)])?;
        let has_values = projected.iter().any(|(name, _)| name.starts_with("value."));
        if !has_values {
            projected.push(("memory".to_owned(), memory));
        }
        Ok(projected)
    }

    /// The frame's embedding with one object's memories in it, `f32[1, grid, grid, width]`.
    pub(crate) fn attend(&self, frame: &Embedding, bank: &Bank<'_>) -> Result<Tensor, ModelError> {
        let (frames, pointers) = (bank.frames.len(), bank.pointers.len());
        let program =
            self.program(Part::MemoryAttention(MemoryShape { objects: 1, frames, pointers }))?;
        let names: Vec<Vec<String>> = bank
            .frames
            .iter()
            .enumerate()
            .map(|(frame, parts)| {
                parts.iter().map(|(name, _)| format!("frames.{frame}.{name}")).collect()
            })
            .collect();
        let ages = Tensor::from_vec([1, frames], bank.ages.clone())?;
        let mut inputs = vec![named(&frame.features, "level2")?, ("ages", &ages)];
        for (names, parts) in names.iter().zip(&bank.frames) {
            inputs.extend(names.iter().zip(*parts).map(|(name, (_, part))| (name.as_str(), part)));
        }
        let stacked;
        let distances;
        if pointers > 0 {
            stacked = stack(&bank.pointers)?;
            distances = Tensor::from_vec([1, pointers], bank.distances.clone())?;
            inputs.push(("pointers", &stacked));
            if self.places_pointers() {
                inputs.push(("distances", &distances));
            }
        }
        Ok(program.run(&inputs)?.remove(0).1)
    }

    /// Decodes one object on an embedding that has its memories in it.
    pub(crate) fn decode_object(
        &self,
        frame: &Embedding,
        embedding: &Tensor,
        batch: &PromptBatch,
    ) -> Result<Decoded, ModelError> {
        self.run_decoder(frame, batch, DecoderImage::PerPrompt, vec![("embedding", embedding)])
    }

    /// The pointer of an object, `f32[1, width]`, from the token of its mask `f32[1, width]`.
    pub(crate) fn pointer(&self, token: &Tensor, object_score: f32) -> Result<Tensor, ModelError> {
        let score = Tensor::from_vec([1], vec![object_score])?;
        let inputs = [("token", token), ("object_score", &score)];
        Ok(self.program(Part::Pointer)?.run(&inputs)?.remove(0).1)
    }

    /// A user's mask, `f32[1, height, width, 1]` of zeros and ones, at the model's size, `f32[1, size, size, 1]`.
    pub(crate) fn fit_mask(&self, mask: &Tensor) -> Result<Tensor, ModelError> {
        let &[_, height, width, _] = &mask.shape()[..] else {
            let message = format!("a mask must be f32[1, height, width, 1], got {}", mask.ty());
            return Err(TensorError::Shape(message).into());
        };
        if [height, width] == [self.config.encoder.image_size; 2] {
            return Ok(mask.clone());
        }
        let program = self.program(Part::FitMask([height, width]))?;
        Ok(program.run(&[("mask", mask)])?.remove(0).1)
    }

    /// What a user's mask, `f32[1, size, size, 1]` of zeros and ones, becomes: the logits that are the answer,
    /// `f32[1, side, side, 1]`, and the mask prompt for the decoder, of the same type.
    pub(crate) fn mask_prompt(&self, mask: &Tensor) -> Result<[Tensor; 2], ModelError> {
        let mut outputs = self.program(Part::MaskPrompt)?.run(&[("mask", mask)])?.into_iter();
        let mut next = || outputs.next().expect("a mask prompt has two outputs").1;
        Ok([next(), next()])
    }
}

/// Rows `f32[1, width]` as `f32[1, rows, width]`.
fn stack(rows: &[&Tensor]) -> Result<Tensor, TensorError> {
    let width = rows.first().map_or(0, |row| row.shape().last_axis());
    let mut values = Vec::with_capacity(rows.len() * width);
    for row in rows {
        values.extend(row.to_vec::<f32>()?);
    }
    Tensor::from_vec([1, rows.len(), width], values)
}

/// Graph that resizes a mask of zeros and ones to the model's size: a pixel is set where half of it or more is.
pub(super) fn fit_mask_graph(
    size: usize,
    [height, width]: [usize; 2],
) -> Result<Graph, BuildError> {
    let builder = Builder::new();
    let mask = builder.input("mask", DType::F32, [1, height, width, 1]);
    let resized = mask.resize_antialiased(ResizeMode::Bilinear, [size; 2]);
    let less = builder.scalar(0.5).broadcast([1, size, size, 1]).greater(resized);
    builder.output("mask", less.select(builder.scalar(0.0), builder.scalar(1.0)));
    builder.finish()
}
