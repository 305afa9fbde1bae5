//! Objects that a user shows on a frame: points, boxes and masks to an answer with its object pointer. SAM 2
//! and 3.

use cutout_graph::ops::{Conv2d, ResizeMode};
use cutout_graph::{Reduced, Scope, Value, ports};
use cutout_tensor::{DType, Tensor, TensorType};

use super::decode::{DecoderImage, Prompts, decode, fine_levels, within_limit};
use crate::components::mask_choice::{
    TokenOfPrompt, best_candidate, best_token, pick, stable_or_best,
};
use crate::components::mask_decoder::Decoded;
use crate::components::memory::{Pointed, hidden_unless, pointer};
use crate::components::prompt_encoder::PointKind;
use crate::model::ModelError;
use crate::model::config::{MemoryForm, ModelConfig};
use crate::model::part::Part;
use crate::prompt::Candidates;

/// Logits of a hidden object.
pub(crate) const HIDDEN: f32 = -1024.0;

ports! {
    /// A frame's features: see [`Encoded`](super::Encoded).
    pub struct FrameFeatures {
        /// The finest level.
        level0,
        /// The middle level.
        level1,
        /// The top level, without memories.
        level2,
    }
}

ports! {
    /// A frame and the prompts of objects on it.
    pub struct PromptInputs {
        /// `f32[objects, points, 2]`, in pixels of the model's input.
        points,
        /// `i64[objects, points]`.
        kinds,
        /// Mask logits to refine, `f32[objects, side, side, 1]`.
        masks: optional,
        /// The frame's embedding, with or without memories, `f32[objects, grid, grid, width]`.
        embedding,
        /// See [`FrameFeatures`].
        level0,
        /// See [`FrameFeatures`].
        level1,
    }
}

ports! {
    /// Masks and pointers of objects on a frame.
    pub struct ObjectAnswer {
        /// `f32[objects, side, side]`; negative everywhere if the object is hidden.
        logits,
        /// Predicted IoU, `f32[objects]`.
        iou,
        /// Above 0 where the object is in the picture, `f32[objects]`.
        object_score,
        /// `f32[objects, width]`.
        pointer,
    }
}

/// Decodes one prompt per object, each with its own embedding.
#[derive(Clone, Copy, Debug)]
pub struct AnswerPrompt {
    /// Objects, each with a prompt.
    pub objects: usize,
    /// Points of each, box corners and padding included.
    pub points: usize,
    /// Whether each prompt comes with mask logits.
    pub masks: bool,
    /// Whether to return the best candidate or the single mask.
    pub wanted: Candidates,
}

ports! {
    /// A mask prompt on a frame.
    pub struct MaskInputs {
        /// Zeros and ones, `f32[1, height, width, 1]`, as large as the video.
        mask,
        /// The frame. In SAM 3.1 its top level is the embedding without memories.
        frame: group FrameFeatures,
    }
}

/// Uses a mask prompt as the mask of an object; the model computes the pointer only.
#[derive(Clone, Copy, Debug)]
pub struct UseMask {
    /// Height and width of the mask.
    pub size: [usize; 2],
}

pub(super) fn frame_types(config: &ModelConfig) -> Result<FrameFeatures<TensorType>, ModelError> {
    let decoder = config.decoder()?;
    let grid = config.encoder.grid();
    match fine_levels(config, decoder) {
        [Some(level0), Some(level1)] => Ok(FrameFeatures {
            level0,
            level1,
            level2: TensorType::f32([1, grid, grid, decoder.width]),
        }),
        _ => Err(ModelError::NoMemory),
    }
}

/// A mask of each object, and the token of its pointer, `[objects, width]`.
struct ChosenMask<'g> {
    mask: TokenOfPrompt<'g>,
    token: Value<'g>,
}

/// Mask, score and pointer of each object that answer its prompt.
pub(super) fn answer<'g>(
    decoded: &Decoded<'g>,
    wanted: Candidates,
    w: &Scope<'g>,
    form: MemoryForm,
) -> Result<ObjectAnswer<Value<'g>>, ModelError> {
    let tokens = decoded.object.ok_or(ModelError::NoMemory)?.tokens;
    let [objects, _, width] = tokens.dims();
    let chosen = match wanted {
        Candidates::Three => {
            let best = best_candidate(decoded.iou);
            ChosenMask { mask: best, token: best.pick(tokens) }
        }
        // The pointer comes from the single mask's token even if a candidate is chosen.
        Candidates::One => ChosenMask {
            mask: stable_or_best(decoded.logits, decoded.iou),
            token: tokens.slice(1, 0..1).reshape([objects, width]),
        },
    };
    answer_of(decoded, chosen, Pointed::ByUser, w, form)
}

/// Mask, score and pointer of each object that is followed. In SAM 3.1 all masks are candidates.
pub(super) fn followed_answer<'g>(
    decoded: &Decoded<'g>,
    w: &Scope<'g>,
    form: MemoryForm,
) -> Result<ObjectAnswer<Value<'g>>, ModelError> {
    let tokens = decoded.object.ok_or(ModelError::NoMemory)?.tokens;
    let best = match form {
        MemoryForm::Sam2 | MemoryForm::Sam2_1 | MemoryForm::Sam3 => best_candidate(decoded.iou),
        MemoryForm::Sam3_1 => best_token(decoded.iou),
    };
    let chosen = ChosenMask { mask: best, token: best.pick(tokens) };
    answer_of(decoded, chosen, Pointed::ByTracker, w, form)
}

fn answer_of<'g>(
    decoded: &Decoded<'g>,
    ChosenMask { mask, token }: ChosenMask<'g>,
    by: Pointed,
    w: &Scope<'g>,
    form: MemoryForm,
) -> Result<ObjectAnswer<Value<'g>>, ModelError> {
    let object_score = decoded.object.ok_or(ModelError::NoMemory)?.score;
    let [objects, _, side, _] = decoded.logits.dims();
    let chosen = pick(decoded.logits, decoded.iou, mask);
    let number = |value: f32| w.builder().scalar(value);
    let visible = object_score.greater(number(0.0)).reshape([objects, 1, 1]);
    let logits = chosen.logits.reshape([objects, side, side]);
    Ok(ObjectAnswer {
        logits: visible.select(logits, number(HIDDEN)),
        iou: chosen.iou.reshape([objects]),
        object_score,
        pointer: pointer(token, object_score, by, w, form),
    })
}

impl Part for AnswerPrompt {
    type Inputs = PromptInputs<()>;
    type Outputs = ObjectAnswer<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<PromptInputs<TensorType>, ModelError> {
        let &AnswerPrompt { objects, points, masks, .. } = self;
        let (grid, side) = (config.encoder.grid(), config.mask_side());
        let FrameFeatures { level0, level1, .. } = frame_types(config)?;
        Ok(PromptInputs {
            points: TensorType::f32([objects, points, 2]),
            kinds: TensorType::new(DType::I64, [objects, points]),
            masks: masks.then(|| TensorType::f32([objects, side, side, 1])),
            embedding: TensorType::f32([objects, grid, grid, config.decoder()?.width]),
            level0,
            level1,
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        inputs: PromptInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<ObjectAnswer<Value<'g>>, ModelError> {
        let masks = inputs.masks.map(|masks| within_limit(masks, config));
        let image = DecoderImage::new(inputs.embedding, masks, w, config.decoder()?);
        let prompts = Prompts { points: inputs.points, kinds: inputs.kinds };
        let decoded = decode(prompts, image, Some([inputs.level0, inputs.level1]), w, config)?;
        let form = config.memory()?.form;
        answer(&decoded, self.wanted, &form.weights(w), form)
    }
}

/// Empty prompt: two padding tokens for each object, as in Meta's code.
pub(super) fn no_points<'g>(objects: usize, w: &Scope<'g>) -> Prompts<'g> {
    let places = Tensor::from_vec([objects, 2, 2], vec![0f32; 4 * objects]);
    let kinds = Tensor::from_vec([objects, 2], vec![PointKind::Padding as i64; 2 * objects]);
    Prompts { points: w.builder().computed(places), kinds: w.builder().computed(kinds) }
}

/// Resizes a mask `[1, height, width, 1]` to a square, with antialiasing.
fn resized(mask: Value<'_>, size: usize) -> Value<'_> {
    let [_, height, width, _] = mask.dims();
    match [height, width] == [size, size] {
        true => mask,
        false => mask.resize_antialiased(ResizeMode::Bilinear, [size; 2]),
    }
}

/// A mask as large as the video in the form in which a family uses it.
struct GivenMask<'g> {
    /// Its logits, `[1, side, side, 1]`.
    logits: Value<'g>,
    /// The mask as large as mask prompts are encoded, `[1, 4 side, 4 side, 1]`.
    large: Value<'g>,
}

impl<'g> GivenMask<'g> {
    /// From a mask of zeros and ones, `[1, height, width, 1]`. SAM 2 has a binary mask in between; SAM 3 has both from the
    /// mask itself.
    fn new(mask: Value<'g>, config: &ModelConfig) -> Result<Self, ModelError> {
        let side = config.mask_side();
        Ok(match config.memory()?.form {
            MemoryForm::Sam2 | MemoryForm::Sam2_1 => {
                let [_, height, width, _] = mask.dims();
                let (builder, size) = (mask.builder(), config.encoder.image_size());
                let mut large = resized(mask, size);
                if [height, width] != [size, size] {
                    let half = builder.scalar(0.5).broadcast([1, size, size, 1]);
                    large = half.greater(large).select(builder.scalar(0.0), builder.scalar(1.0));
                }
                GivenMask { logits: mask_logits(large, side), large }
            }
            MemoryForm::Sam3 | MemoryForm::Sam3_1 => GivenMask {
                logits: resized(mask * (-2.0 * HIDDEN) + HIDDEN, side),
                large: resized(mask, 4 * side),
            },
        })
    }
}

/// Output logits of binary masks `[objects, size, size, 1]` in SAM 2, `[objects, side, side, 1]`.
pub(super) fn mask_logits(mask: Value<'_>, side: usize) -> Value<'_> {
    (mask * 20.0 - 10.0).resize_antialiased(ResizeMode::Bilinear, [side; 2])
}

/// Mask prompts `[objects, side, side, 1]` for the pointer from masks `[objects, 4 side, 4 side, 1]`.
pub(super) fn mask_prompt<'g>(mask: Value<'g>, w: &Scope<'g>, form: MemoryForm) -> Value<'g> {
    let w = w.at(format!("{}mask_downsample", form.prompted()));
    let prompt = mask.conv2d(w.parameter("weight", [1, 1, 4, 4]), Conv2d::new(4, 0));
    prompt + w.parameter("bias", [1])
}

impl Part for UseMask {
    type Inputs = MaskInputs<()>;
    type Outputs = ObjectAnswer<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<MaskInputs<TensorType>, ModelError> {
        let [height, width] = self.size;
        let mask = TensorType::f32([1, height, width, 1]);
        Ok(MaskInputs { mask, frame: frame_types(config)? })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        MaskInputs { mask, frame }: MaskInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<ObjectAnswer<Value<'g>>, ModelError> {
        let (decoder, side) = (config.decoder()?, config.mask_side());
        let form = config.memory()?.form;
        let tracker = &form.weights(w);
        let GivenMask { logits, large } = GivenMask::new(mask, config)?;
        let prompt = mask_prompt(large, tracker, form);
        let image = DecoderImage::new(frame.level2, Some(prompt), w, decoder);
        let fine = Some([frame.level0, frame.level1]);
        let decoded = decode(no_points(1, w), image, fine, w, config)?;
        let object = decoded.object.ok_or(ModelError::NoMemory)?;
        let token = object.tokens.slice(1, 0..1).reshape([1, decoder.width]);
        // The mask determines whether the object is visible; the model computes its pointer only.
        let number = |value: f32| w.builder().scalar(value).reshape([1]);
        let shown = large.max([1, 2, 3], Reduced::Drop).greater(number(0.0));
        let object_score = shown.select(number(10.0), number(-10.0));
        let made = pointer(token, object.score, Pointed::ByUser, tracker, form);
        Ok(ObjectAnswer {
            logits: logits.reshape([1, side, side]),
            iou: number(1.0),
            object_score,
            pointer: hidden_unless(object_score, made, tracker, form),
        })
    }
}

ports! {
    /// A mask as large as the video.
    pub struct VideoMask {
        /// Zeros and ones, `f32[1, height, width, 1]`.
        mask,
    }
}

ports! {
    /// A mask in low resolution.
    pub struct MaskLogits {
        /// `f32[side, side]`.
        logits,
    }
}

/// A mask of the model's size as large as the video.
#[derive(Clone, Copy, Debug)]
pub struct ShowMask {
    /// Height and width of the video.
    pub video: [usize; 2],
}

impl Part for ShowMask {
    type Inputs = VideoMask<()>;
    type Outputs = VideoMask<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<VideoMask<TensorType>, ModelError> {
        let side = 4 * config.mask_side();
        Ok(VideoMask { mask: TensorType::f32([1, side, side, 1]) })
    }

    fn build<'g>(
        &self,
        _: &ModelConfig,
        VideoMask { mask }: VideoMask<Value<'g>>,
        _: &Scope<'g>,
    ) -> Result<VideoMask<Value<'g>>, ModelError> {
        let number = |value| mask.builder().scalar(value);
        let shown = mask.resize_antialiased(ResizeMode::Bilinear, self.video);
        Ok(VideoMask { mask: shown.greater(number(0.5)).select(number(1.0), number(0.0)) })
    }
}

ports! {
    /// A mask in low resolution, and pixels of the video that others have taken from it.
    pub struct ShownLogits {
        /// `f32[side, side]`.
        logits,
        /// Zeros and ones, `f32[1, height, width, 1]`.
        taken: optional,
    }
}

/// A mask as it is at the size of the video, in low resolution.
#[derive(Clone, Copy, Debug)]
pub struct ThroughVideo {
    /// Height and width of the video.
    pub video: [usize; 2],
    /// Whether others have taken pixels.
    pub taken: bool,
}

impl Part for ThroughVideo {
    type Inputs = ShownLogits<()>;
    type Outputs = MaskLogits<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<ShownLogits<TensorType>, ModelError> {
        let ([height, width], side) = (self.video, config.mask_side());
        Ok(ShownLogits {
            logits: TensorType::f32([side, side]),
            taken: self.taken.then(|| TensorType::f32([1, height, width, 1])),
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        ShownLogits { logits, taken }: ShownLogits<Value<'g>>,
        _: &Scope<'g>,
    ) -> Result<MaskLogits<Value<'g>>, ModelError> {
        let (side, builder) = (config.mask_side(), logits.builder());
        let shown = logits.reshape([1, side, side, 1]).resize(ResizeMode::Bilinear, self.video);
        let left = taken.map_or(shown, |taken| {
            taken.greater(builder.scalar(0.0)).select(builder.scalar(HIDDEN), shown)
        });
        Ok(MaskLogits { logits: resized(left, side).reshape([side, side]) })
    }
}

/// Logits of a mask prompt alone, without a pointer.
#[derive(Clone, Copy, Debug)]
pub struct FitMask {
    /// Height and width of the mask.
    pub size: [usize; 2],
}

impl Part for FitMask {
    type Inputs = VideoMask<()>;
    type Outputs = MaskLogits<()>;

    fn inputs(&self, _: &ModelConfig) -> Result<VideoMask<TensorType>, ModelError> {
        let [height, width] = self.size;
        Ok(VideoMask { mask: TensorType::f32([1, height, width, 1]) })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        VideoMask { mask }: VideoMask<Value<'g>>,
        _: &Scope<'g>,
    ) -> Result<MaskLogits<Value<'g>>, ModelError> {
        let side = config.mask_side();
        let logits = GivenMask::new(mask, config)?.logits;
        Ok(MaskLogits { logits: logits.reshape([side, side]) })
    }
}
