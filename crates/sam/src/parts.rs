//! The programs of the models. Each is a [`Part`]: its inputs, its outputs, and the
//! components between them.
//!
//! | part | inputs | outputs |
//! |---|---|---|
//! | [`FitPicture`], [`StackPictures`] | pictures as bytes | what [`Encode`] reads, where that is not made on the host |
//! | [`Encode`] | pictures | features of each |
//! | [`PrepareImage`] | a picture's features | inputs of the mask decoder that no prompt changes |
//! | [`Decode`] | a prepared picture and prompts | masks |
//! | [`ThresholdMasks`] | logits of a batch of prompts | some of the masks at the size of the picture, as bits |
//! | [`FindFeatures`] | a picture's features | pyramid levels and the first self-attention of the fusion encoder |
//! | [`EncodeText`] | a phrase | text tokens |
//! | [`EncodeExemplars`] | levels and exemplars | exemplar tokens |
//! | [`Detect`] | levels, text and exemplar tokens | detections |
//! | [`FrameLevels`] | a picture's features | the levels that SAM 3's tracker reads |
//! | [`AnswerPrompt`], [`UseMask`], [`FitMask`], [`ShowMask`], [`ThroughVideo`] | a frame and a prompt for one object | its mask and pointer |
//! | [`Remember`], [`Project`] | a frame and masks | their memories, and the keys and values of memory attention |
//! | [`Attend`] | a frame and an object's memories | the frame's embedding after memory attention |
//! | [`Follow`] | a frame and the memories of objects | masks, pointers and memories of all |
//! | [`FollowLevels`], [`RememberBuckets`], [`FollowBuckets`] | as the above, for SAM 3.1 | the same of buckets of objects |

mod decode;
mod find;
mod image;
mod mask_bits;
mod memory;
mod multiplex;
mod object_prompt;
mod picture;

#[cfg(test)]
mod tests;

pub use decode::{Answers, Decode, DecodeInputs, PrepareImage, PreparedImage};
pub use find::{
    Detect, DetectInputs, EncodeExemplars, EncodeText, ExemplarInputs, FindFeatures, FindLevels,
    LabelledCoordinates, RawDetections, TextInputs, TextTokens,
};
pub use image::{Encode, Encoded, EncodedPictures, FollowLevels, FrameLevels, Pixels};
pub use mask_bits::{ChosenMasks, MaskWords, ThresholdMasks};
pub use memory::{
    Attend, AttendInputs, AttendedFrame, Bank, BankShape, Follow, FollowInputs, Followed,
    FollowedObject, FrameMemory, MemoryInput, ObjectBank, Project, Remember, RememberInputs,
    Remembered,
};
pub use multiplex::{
    FollowBuckets, FollowBucketsInputs, FollowedBucket, FollowedBuckets, RememberBuckets,
    RememberBucketsInputs,
};
pub(crate) use object_prompt::HIDDEN;
pub use object_prompt::{
    AnswerPrompt, FitMask, FrameFeatures, MaskInputs, MaskLogits, ObjectAnswer, PromptInputs,
    ShowMask, ShownLogits, ThroughVideo, UseMask, VideoMask,
};

pub use picture::{
    AxisWeights, AxisWindows, FitPicture, Picture, PictureTables, SinglePixels, StackPictures,
};

use cutout_graph::Graph;

use crate::components::memory::MaskSource;
use crate::model::ModelError;
use crate::model::config::{EncoderConfig, Exemplars, ModelConfig};
use crate::model::part::{Part, Stages, graph_of};
use crate::prompt::Candidates;

/// Called with each part of a model and its name in `explain`.
pub(crate) trait Visitor {
    /// Called with one part.
    fn visit<P: Part + 'static>(&mut self, name: &'static str, part: &P) -> Result<(), ModelError>
    where
        crate::model::part::Of<P::Outputs, usize>: Send + Sync;
}

/// Which of a model's parts are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// The parts of a first point prompt; for a detector alone, of a first phrase.
    FirstAnswer,
    /// One of each kind, in its usual shape.
    All,
}

/// Visits the parts of a model: for one click, a short phrase, and a tracked object with a full memory.
pub(crate) fn visit(
    config: &ModelConfig,
    selection: Selection,
    visitor: &mut impl Visitor,
) -> Result<(), ModelError> {
    visitor.visit("encoder", &Encode { pictures: 1 })?;
    if config.decoder.is_some() {
        visitor.visit("prepare_image", &PrepareImage)?;
        visitor.visit("decoder", &Decode::ONE_CLICK)?;
    }
    if selection == Selection::FirstAnswer && config.decoder.is_some() {
        return Ok(());
    }
    if config.finder.is_some() {
        let text = EncodeText { tokens: 4, kept: 4 };
        visitor.visit("find_features", &FindFeatures)?;
        visitor.visit("text", &text)?;
        visitor.visit("detector", &Detect { text: text.kept, exemplars: 1 })?;
    }
    if let (Some(memory), Selection::All) = (&config.memory, selection) {
        let (frames, pointers) = (memory.frames, memory.pointer_frames);
        if let EncoderConfig::RotaryVit { .. } = config.encoder {
            visitor.visit("frame_levels", &FrameLevels)?;
        }
        let bank = BankShape::kept(1, frames, pointers);
        if memory.multiplex.is_some() {
            visitor.visit("follow_levels", &FollowLevels)?;
            visitor.visit("follow", &FollowBuckets { bank, remember: true })?;
        } else {
            visitor.visit("follow", &Follow { bank, remember: true })?;
        }
    }
    Ok(())
}

/// Graphs that together use every weight of a model.
pub(crate) fn graphs(config: &ModelConfig) -> Result<Vec<Graph>, ModelError> {
    fn graph<P: Part>(part: P, config: &ModelConfig) -> Result<Graph, ModelError> {
        Ok(graph_of(&part, config, Stages::Hidden)?.0)
    }
    let mut graphs = vec![graph(Encode { pictures: 1 }, config)?];
    if config.decoder.is_some() {
        let decode = Decode { prompts: 1, points: 1, masks: true, wanted: Candidates::Three };
        graphs.extend([graph(PrepareImage, config)?, graph(decode, config)?]);
    }
    if let Some(memory) = &config.memory {
        let bank = BankShape::kept(1, 1, 1);
        if memory.multiplex.is_some() {
            graphs.extend([
                graph(FollowLevels, config)?,
                graph(FollowBuckets { bank, remember: true }, config)?,
            ]);
        } else {
            graphs.extend([
                graph(Follow { bank, remember: true }, config)?,
                graph(Remember { source: MaskSource::Prompted, objects: 1 }, config)?,
            ]);
        }
        graphs.push(graph(UseMask { size: [1, 1] }, config)?);
    }
    if let Some(finder) = &config.finder {
        let points = match finder.detector.exemplars {
            Exemplars::Boxes => 0,
            Exemplars::BoxesAndPoints => 1,
        };
        graphs.extend([
            graph(FindFeatures, config)?,
            graph(EncodeText { tokens: 1, kept: 1 }, config)?,
            graph(EncodeExemplars { boxes: 1, points }, config)?,
            graph(Detect { text: 1, exemplars: 1 }, config)?,
        ]);
    }
    Ok(graphs)
}
