//! Models, scenes, tracking and checkpoints.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod answers;
mod builtin;
mod checkpoints;
mod cuda_lowering;
mod everything;
mod fleet;
mod hugging_face;
mod mask_bits;
mod measured;
mod multiplex_layouts;
mod predictor;
mod sam3_checkpoints;
mod sam3_find;
mod sam3_formats;
mod sam3_names;
mod sam3_predictor;
mod sam3_video_layouts;
mod scene;
mod small_sam3;
mod support;
mod tokenizer;
mod tracker;
mod tracker_preview;
mod tracker_resume;
