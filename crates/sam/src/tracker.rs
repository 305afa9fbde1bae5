//! Objects through a video, frame by frame: push a frame, get its masks. Memory stays flat whatever the length.

use std::collections::BTreeMap;
use std::sync::Arc;

use cutout_imaging::{Fit, Image, Mapping, Mask, Preprocess, Size, Upsampler};
use cutout_tensor::Tensor;

use crate::config::MemoryConfig;
use crate::mask_choice;
use crate::masks::Segment;
use crate::memory::MaskSource;
use crate::network::{Decoded, Embedding, Network, PromptBatch, Sam2};
use crate::prompt::{Candidates, Prompt, TokenOrder};
use crate::prompt_encoder::PointKind;
use crate::sam::Sam;

mod ahead;
mod history;
mod holes;
mod object;
mod options;
mod prompt;

use ahead::{Ahead, Encoded, encode};
use history::Archive;
use holes::fill_holes;
use object::{Moment, Object, Output};
pub use options::{Corrections, Direction, History, TrackError, TrackOptions};
pub use prompt::TrackPrompt;

/// What a caller calls an object.
pub type ObjectId = u32;

/// The logits of an object that is not in the picture.
const HIDDEN: f32 = -1024.0;

/// Bytes of projected memories that are kept for all objects together; beyond, they are made again on every frame.
const MOST_PROJECTED_BYTES: usize = 512 << 20;

/// One object on one frame.
#[derive(Clone)]
pub struct TrackedObject {
    /// The object.
    pub id: ObjectId,
    /// Its mask, with predicted IoU and object score: the object is hidden where the score is not above 0.
    pub segment: Segment,
}

/// The objects of one frame, in the order of their ids.
#[derive(Clone)]
pub struct TrackedFrame {
    /// Number of the frame, from 0 on.
    pub frame: usize,
    /// The objects.
    pub objects: Vec<TrackedObject>,
}

/// The frame at hand.
struct Current {
    frame: usize,
    features: Embedding,
}

/// Objects through a video.
pub struct Tracker {
    sam: Sam,
    options: TrackOptions,
    preprocess: Preprocess,
    /// Set by the first frame.
    mapping: Option<(Mapping, Arc<Upsampler>)>,
    current: Option<Current>,
    ahead: Option<Ahead>,
    objects: BTreeMap<ObjectId, Object>,
    archive: Archive,
}

impl Sam {
    /// Begins to track objects through a video.
    pub fn track(&self, options: TrackOptions) -> Result<Tracker, TrackError> {
        let (_, memory) = memory_of(self)?;
        let reach = memory.frames.max(memory.pointer_frames);
        Ok(Tracker {
            sam: self.clone(),
            preprocess: Preprocess { fit: Fit::SquareBicubic, ..self.network().preprocess() },
            mapping: None,
            current: None,
            ahead: None,
            objects: BTreeMap::new(),
            archive: Archive::new(&options.history, reach),
            options,
        })
    }
}

impl Tracker {
    /// The next frame: the one after the frame at hand, or frame 0. Its objects are tracked.
    pub fn push(&mut self, image: &Image) -> Result<TrackedFrame, TrackError> {
        let next = self.current.as_ref().map_or(0, |current| current.frame + 1);
        self.push_at(next, image, Direction::Forward)
    }

    /// The frame before the frame at hand, which the caller has kept. Its objects are tracked backwards.
    pub fn push_back(&mut self, image: &Image) -> Result<TrackedFrame, TrackError> {
        let frame = self.frame().ok_or(TrackError::NoFrame)?;
        let before = frame.checked_sub(1).ok_or(TrackError::BeforeTheFirst)?;
        self.push_at(before, image, Direction::Backward)
    }

    /// Any frame, tracked as part of a way through the video in one direction.
    pub fn push_at(
        &mut self,
        frame: usize,
        image: &Image,
        direction: Direction,
    ) -> Result<TrackedFrame, TrackError> {
        self.visit(frame, image)?;
        self.encode_prompts()?;
        for object in self.objects.values_mut() {
            object.remember_prompts(self.options.corrections);
        }
        let ids: Vec<ObjectId> = self.objects.keys().copied().collect();
        for id in ids {
            self.track_object(id, frame, direction)?;
        }
        self.masks()
    }

    /// Takes a frame in hand without tracking anything: prompts can be given on it.
    pub fn visit(&mut self, frame: usize, image: &Image) -> Result<(), TrackError> {
        let expected = self.mapping.as_ref().map_or(image.size(), |(mapping, _)| mapping.original);
        if image.size() != expected {
            return Err(TrackError::FrameSize { frame, expected, found: image.size() });
        }
        if self.frame() == Some(frame) {
            return Ok(());
        }
        self.encode_prompts()?;
        // The features of the last frame go before the next ones are made.
        self.current = None;
        let known = self.ahead.take().and_then(|ahead| ahead.finish(image));
        let encoded = known.unwrap_or_else(|| encode(&self.sam, &self.preprocess, image))?;
        let Encoded { features, mapping } = encoded;
        if self.mapping.is_none() {
            let upsampler = Arc::new(self.sam.network().upsampler(&mapping)?);
            self.mapping = Some((mapping, upsampler));
        }
        self.current = Some(Current { frame, features });
        for (id, object) in &mut self.objects {
            self.archive.settle(*id, object, frame)?;
        }
        Ok(())
    }

    /// Begins to encode the frame that comes next, on a thread of its own: visit a frame, look ahead, push it, and the next one
    /// is ready when it is pushed. It changes no result, and pays where tracking alone does not keep all cores busy.
    pub fn look_ahead(&mut self, next: &Image) {
        self.ahead = Ahead::begin(&self.sam, &self.preprocess, next);
    }

    /// The model that tracks.
    pub fn sam(&self) -> &Sam {
        &self.sam
    }

    /// Frames after which an object's memory is full: more are forgotten, or kept by the history alone.
    pub fn reach(&self) -> usize {
        self.archive.reach()
    }

    /// The frame at hand.
    pub fn frame(&self) -> Option<usize> {
        self.current.as_ref().map(|current| current.frame)
    }

    /// The objects, in the order of their ids.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().copied()
    }

    /// Whether an object can be shown like this in a video of this size: all that can be wrong with a prompt is known before
    /// any frame is encoded.
    pub fn check_prompt<'p>(
        &self,
        prompt: impl Into<TrackPrompt<'p>>,
        size: Size,
    ) -> Result<(), TrackError> {
        prompt.into().check(size, self.sam.network().mask_side())
    }

    /// Shows an object on the frame at hand, a new one or one that is tracked already, and gives its mask there.
    pub fn prompt<'p>(
        &mut self,
        frame: usize,
        object: ObjectId,
        prompt: impl Into<TrackPrompt<'p>>,
    ) -> Result<TrackedObject, TrackError> {
        let current = self.frame().ok_or(TrackError::NoFrame)?;
        if frame != current {
            return Err(TrackError::OtherFrame { asked: frame, current });
        }
        let (mapping, _) = self.mapping.as_ref().ok_or(TrackError::NoFrame)?;
        let prompt = prompt.into();
        self.check_prompt(prompt, mapping.original)?;
        let output = match prompt {
            TrackPrompt::Points(prompt) => self.answer_points(object, prompt)?,
            TrackPrompt::Mask(mask) => self.answer_mask(object, mask)?,
        };
        let segment = self.segment(&output);
        self.objects.entry(object).or_default().pending.insert(frame, output);
        Ok(TrackedObject { id: object, segment })
    }

    /// Takes the prompts of an object on a frame back: what was found there counts as tracked from now on.
    pub fn clear_prompts(&mut self, frame: usize, id: ObjectId) -> Result<(), TrackError> {
        let object = self.object_mut(id)?;
        object.pending.remove(&frame);
        if let Some(mut output) = object.prompted.remove(&frame) {
            output.tracked = None;
            object.found.insert(frame, output);
        }
        Ok(())
    }

    /// Forgets an object.
    pub fn remove(&mut self, id: ObjectId) -> Result<(), TrackError> {
        self.object_mut(id)?;
        self.objects.remove(&id);
        self.archive.forget(id);
        Ok(())
    }

    /// The masks on the frame at hand.
    pub fn masks(&self) -> Result<TrackedFrame, TrackError> {
        let frame = self.frame().ok_or(TrackError::NoFrame)?;
        let known =
            self.objects.iter().filter_map(|(id, object)| Some((*id, object.newest(frame)?)));
        let objects =
            known.map(|(id, output)| TrackedObject { id, segment: self.segment(output) }).collect();
        Ok(TrackedFrame { frame, objects })
    }

    fn network(&self) -> Result<&Sam2, TrackError> {
        Ok(memory_of(&self.sam)?.0)
    }

    fn current(&self) -> Result<&Current, TrackError> {
        self.current.as_ref().ok_or(TrackError::NoFrame)
    }

    fn object_mut(&mut self, id: ObjectId) -> Result<&mut Object, TrackError> {
        let ids: Vec<String> = self.objects.keys().map(ObjectId::to_string).collect();
        let known = match &ids[..] {
            [] => "no object is".to_owned(),
            ids => format!("tracked are {}", ids.join(", ")),
        };
        self.objects.get_mut(&id).ok_or(TrackError::UnknownObject { id, known })
    }

    /// Encodes the answers to prompts on the frame at hand, whose features are about to go.
    fn encode_prompts(&mut self) -> Result<(), TrackError> {
        let (sam, current) = (self.sam.clone(), self.current.take());
        let Some(current) = current else { return Ok(()) };
        let (network, _) = memory_of(&sam)?;
        for object in self.objects.values_mut() {
            if let Some(output) = object.pending.get_mut(&current.frame) {
                output.memory = Some(network.remember(
                    &current.features,
                    &output.logits,
                    output.object_score,
                    MaskSource::Prompted,
                )?);
            }
        }
        self.current = Some(current);
        Ok(())
    }

    /// Finds an object on the frame at hand from its memories. Where the user has shown it there is nothing to find.
    fn track_object(
        &mut self,
        id: ObjectId,
        frame: usize,
        direction: Direction,
    ) -> Result<(), TrackError> {
        let object = self.object_mut(id)?;
        if let Some(output) = object.prompted.get_mut(&frame) {
            output.tracked = Some(direction);
            return Ok(());
        }
        let embedding = self.remembered(id, frame, direction)?;
        let current = self.current()?;
        let network = self.network()?;
        let decoded = network.decode_object(&current.features, &embedding, &no_points()?)?;
        let mut output = self.output(&decoded, Candidates::Three)?;
        output.tracked = Some(direction);
        // The memory is of the mask as it was found, holes and all.
        output.memory = Some(network.remember(
            &current.features,
            &output.logits,
            output.object_score,
            MaskSource::Predicted,
        )?);
        self.fill_holes(&mut output)?;
        self.object_mut(id)?.found.insert(frame, output);
        Ok(())
    }

    /// The embedding of the frame at hand with an object's memories in it.
    fn remembered(
        &mut self,
        id: ObjectId,
        frame: usize,
        direction: Direction,
    ) -> Result<Tensor, TrackError> {
        let (sam, count) = (self.sam.clone(), self.objects.len());
        let (network, memory) = memory_of(&sam)?;
        let (length, pointer_frames) = (self.options.length, memory.pointer_frames);
        let moment = Moment { frame, direction, length, pointer_frames };
        let most = self.options.most_prompted_frames;
        let object = self.object_mut(id)?;
        let selection = object.select(moment, memory.frames, most);
        object.project(&selection, |memory| network.project(memory))?;
        let object = self.objects.get(&id).expect("it was there a moment ago");
        let bank = object.bank(&selection, moment);
        let parts = bank.frames.iter().flat_map(|parts| parts.iter());
        let bytes: usize = parts.map(|(_, part)| part.ty().bytes()).sum();
        let embedding = network.attend(&self.current()?.features, &bank)?;
        let kept = if bytes.saturating_mul(count) <= MOST_PROJECTED_BYTES {
            &selection.memories[..]
        } else {
            &[]
        };
        self.object_mut(id)?.forget_projections(kept);
        Ok(embedding)
    }

    /// Answers points on the frame at hand. A frame that was tracked is corrected with its memories; another is looked at
    /// as a picture of its own. An earlier answer there is refined.
    fn answer_points(&mut self, id: ObjectId, prompt: &Prompt) -> Result<Output, TrackError> {
        let (mapping, _) = self.mapping.as_ref().ok_or(TrackError::NoFrame)?;
        let side = self.sam.network().mask_side();
        let mut batch = PromptBatch::of(&[prompt], mapping, TokenOrder::CornersFirst, side)?;
        let current = self.current()?;
        let frame = current.frame;
        let earlier = self.objects.get(&id).and_then(|object| object.newest(frame));
        if let Some(output) = earlier {
            let logits = self.sam.network().limited(&output.logits)?;
            batch.masks = Some(logits.reshape([1, side, side, 1])?);
        }
        let remembered = self.objects.get(&id).and_then(|object| object.output(frame));
        let tracked = remembered.and_then(|output| output.tracked);
        let decoded = match tracked {
            None => self.network()?.decode(&current.features, &batch)?,
            Some(direction) => {
                let embedding = self.remembered(id, frame, direction)?;
                self.network()?.decode_object(&self.current()?.features, &embedding, &batch)?
            }
        };
        // The padding is no point.
        let points = batch.points.shape()[1] - 1;
        let wanted = if points <= 1 { Candidates::Three } else { Candidates::One };
        let mut output = self.output(&decoded, wanted)?;
        output.tracked = tracked;
        self.fill_holes(&mut output)?;
        Ok(output)
    }

    /// Takes a user's mask as the answer on the frame at hand.
    fn answer_mask(&self, id: ObjectId, mask: &Mask) -> Result<Output, TrackError> {
        let network = self.network()?;
        let pixels = network.fit_mask(&mask_tensor(mask)?)?;
        let shown = pixels.to_vec::<f32>()?.iter().any(|pixel| *pixel > 0.0);
        let [logits, prompt] = network.mask_prompt(&pixels)?;
        let current = self.current()?;
        let batch = PromptBatch { masks: Some(prompt), ..no_points()? };
        let (_, level2) = current.features.feature("level2")?;
        let decoded = network.decode_object(&current.features, level2, &batch)?;
        let token = token_of(&decoded, 0)?;
        // The mask says whether there is an object; only its pointer is made by the model.
        let score = if shown { score_of(&decoded)? } else { -1.0 };
        let side = self.sam.network().mask_side();
        let known = self.objects.get(&id).and_then(|object| object.output(current.frame));
        Ok(Output {
            memory: None,
            projected: None,
            pointer: network.pointer(&token, score)?,
            logits: logits.reshape([side, side])?,
            iou: 1.0,
            object_score: if shown { 10.0 } else { -10.0 },
            tracked: known.and_then(|output| output.tracked),
        })
    }

    /// The answer in what the decoder gave for one object.
    fn output(&self, decoded: &Decoded, wanted: Candidates) -> Result<Output, TrackError> {
        let network = self.network()?;
        let side = self.sam.network().mask_side();
        let iou = decoded.iou.to_vec::<f32>()?;
        let (mask, pointer) = match wanted {
            Candidates::Three => {
                let best = 1 + mask_choice::best(&iou[1..]);
                (best, best)
            }
            // The pointer is that of the single mask even where a candidate takes its place.
            Candidates::One => {
                let logits = decoded.logits.to_vec::<f32>()?;
                (mask_choice::single_mask(&logits, &iou), 0)
            }
        };
        let object_score = score_of(decoded)?;
        let logits = if object_score > 0.0 {
            decoded.logits.slice(1, mask..mask + 1)?.to_vec::<f32>()?
        } else {
            vec![HIDDEN; side * side]
        };
        Ok(Output {
            memory: None,
            projected: None,
            pointer: network.pointer(&token_of(decoded, pointer)?, object_score)?,
            logits: Tensor::from_vec::<f32>([side, side], logits)?,
            iou: iou[mask],
            object_score,
            tracked: None,
        })
    }

    fn fill_holes(&self, output: &mut Output) -> Result<(), TrackError> {
        let side = self.sam.network().mask_side();
        let logits = output.logits.to_vec::<f32>()?;
        let filled = fill_holes(logits, side, self.options.fill_hole_area);
        output.logits = Tensor::from_vec::<f32>([side, side], filled)?;
        Ok(())
    }

    fn segment(&self, output: &Output) -> Segment {
        let (_, upsampler) = self.mapping.as_ref().expect("an answer has a frame");
        Segment {
            logits: output.logits.clone(),
            feedback: output.logits.clone(),
            iou: output.iou,
            object_score: Some(output.object_score),
            upsampler: Arc::clone(upsampler),
        }
    }
}

/// The part of a model that tracks.
fn memory_of(sam: &Sam) -> Result<(&Sam2, &MemoryConfig), TrackError> {
    let found = match sam.network() {
        Network::Sam1(_) | Network::Sam3(_) => None,
        Network::Sam2(network) => network.memory().map(|memory| (network, memory)),
    };
    found.ok_or_else(|| TrackError::NoMemory { model: sam.description() })
}

/// A mask as zeros and ones, `f32[1, height, width, 1]`.
fn mask_tensor(mask: &Mask) -> Result<Tensor, TrackError> {
    let pixels = mask.pixels().iter().map(|set| f32::from(u8::from(*set))).collect();
    Ok(Tensor::from_vec::<f32>([1, mask.size().height, mask.size().width, 1], pixels)?)
}

/// What is asked where nothing is shown: two paddings, as Meta's code asks.
fn no_points() -> Result<PromptBatch, TrackError> {
    Ok(PromptBatch {
        points: Tensor::from_vec::<f32>([1, 2, 2], vec![0.0; 4])?,
        kinds: Tensor::from_vec::<i64>([1, 2], vec![PointKind::Padding as i64; 2])?,
        masks: None,
    })
}

/// The object score of the one prompt that was decoded.
fn score_of(decoded: &Decoded) -> Result<f32, TrackError> {
    let scores = decoded.object_score.as_ref().expect("SAM 2 has object scores");
    Ok(scores.to_vec::<f32>()?[0])
}

/// The token of a mask, `f32[1, width]`.
fn token_of(decoded: &Decoded, mask: usize) -> Result<Tensor, TrackError> {
    let tokens = decoded.tokens.as_ref().expect("SAM 2 gives its tokens");
    let width = tokens.shape().last_axis();
    Ok(tokens.slice(1, mask..mask + 1)?.reshape([1, width])?)
}
