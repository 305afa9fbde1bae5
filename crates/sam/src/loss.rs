//! What a precision costs: the same questions, asked of a model in two precisions, and how far the answers are apart.

use std::collections::HashMap;

use cutout_imaging::{ImageError, Rle, Size};
use cutout_tensor::{Tensor, TensorError};

use crate::find::FindError;
use crate::model::ModelError;
use crate::prompt::Prompt;
use crate::scene::{Scene, SegmentError};

/// Clicks along each side of a picture.
const CLICKS: usize = 4;

/// Why answers cannot be had or compared.
#[derive(Debug, thiserror::Error)]
pub enum LossError {
    /// A prompt is not answered.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A phrase is not answered.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The model fails.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Answers are of different sizes.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Numbers cannot be compared.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// A model's answers about one picture, on the host: to clicks on a grid, to boxes, and to phrases.
#[derive(Clone, Debug)]
pub struct SceneAnswers {
    embedding: Option<Tensor>,
    prompts: Vec<PromptAnswer>,
    /// Masks of the detections of each phrase, by the number of the detector's query.
    phrases: Vec<HashMap<usize, Rle>>,
}

/// The answer to one prompt.
#[derive(Clone, Debug)]
struct PromptAnswer {
    /// The candidate with the highest predicted IoU.
    best: usize,
    /// Low-resolution logits and mask of each candidate.
    candidates: Vec<(Tensor, Rle)>,
}

impl SceneAnswers {
    /// Asks 16 clicks on a grid and 5 boxes of a model that answers prompts, and the phrases of one that finds them.
    pub fn of(scene: &Scene, phrases: &[String]) -> Result<SceneAnswers, LossError> {
        let (mut embedding, mut prompts, mut found) = (None, Vec::new(), Vec::new());
        if scene.sam().answers_clicks() {
            embedding = Some(scene.image_embedding()?.to_contiguous()?);
            for masks in scene.segment_all(&questions(scene.size()))? {
                let candidate =
                    |segment: &crate::Segment| Ok((segment.logits().clone(), segment.rle()?));
                let candidates = masks.iter().map(candidate).collect::<Result<_, ImageError>>()?;
                prompts.push(PromptAnswer { best: masks.best_index(), candidates });
            }
        }
        if scene.sam().finds() {
            for phrase in phrases {
                let detections = scene.find(phrase.as_str())?;
                let mask = |detection: &crate::Detection| Ok((detection.query(), detection.rle()?));
                found.push(detections.iter().map(mask).collect::<Result<_, ImageError>>()?);
            }
        }
        Ok(SceneAnswers { embedding, prompts, phrases: found })
    }
}

/// Clicks on a grid, the middle of the picture, and its quarters.
fn questions(size: Size) -> Vec<Prompt> {
    let [width, height] = [size.width, size.height].map(|length| length as f64);
    let share = |index: usize| (index as f64 + 0.5) / CLICKS as f64;
    let click = |i: usize| Prompt::point(share(i % CLICKS) * width, share(i / CLICKS) * height);
    let rect =
        |x: f64, y: f64| Prompt::rect(x * width, y * height, (x + 0.5) * width, (y + 0.5) * height);
    let corners = [(0.25, 0.25), (0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.5, 0.5)];
    (0..CLICKS * CLICKS).map(click).chain(corners.map(|(x, y)| rect(x, y))).collect()
}

/// Differences of answers from those of a reference, over any number of pictures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    encoder: SquareError,
    logits: SquareError,
    masks: usize,
    overlap: f64,
    least: Option<f64>,
    prompts: usize,
    other_choices: usize,
    detections: usize,
    found_overlap: f64,
}

/// Sum of squared differences, and of squared expected values.
#[derive(Clone, Copy, Debug, Default)]
struct SquareError {
    difference: f64,
    expected: f64,
}

impl SquareError {
    fn add(&mut self, found: &Tensor, expected: &Tensor) -> Result<(), TensorError> {
        let (found, expected) = (found.to_vec::<f32>()?, expected.to_vec::<f32>()?);
        for (found, expected) in found.into_iter().zip(expected) {
            self.difference += (f64::from(found) - f64::from(expected)).powi(2);
            self.expected += f64::from(expected).powi(2);
        }
        Ok(())
    }

    fn relative(self) -> Option<f64> {
        (self.expected > 0.0).then(|| (self.difference / self.expected).sqrt())
    }
}

impl Loss {
    /// Adds the differences of one picture's answers.
    pub fn add(&mut self, found: &SceneAnswers, expected: &SceneAnswers) -> Result<(), LossError> {
        if let (Some(found), Some(expected)) = (&found.embedding, &expected.embedding) {
            self.encoder.add(found, expected)?;
        }
        for (found, expected) in found.prompts.iter().zip(&expected.prompts) {
            self.prompts += 1;
            self.other_choices += usize::from(found.best != expected.best);
            let (Some(found), Some(expected)) =
                (found.candidates.get(expected.best), expected.candidates.get(expected.best))
            else {
                continue;
            };
            self.logits.add(&found.0, &expected.0)?;
            let overlap = overlap(&found.1, &expected.1)?;
            self.masks += 1;
            self.overlap += overlap;
            self.least = Some(self.least.map_or(overlap, |least| least.min(overlap)));
        }
        for (found, expected) in found.phrases.iter().zip(&expected.phrases) {
            self.add_phrase(found, expected)?;
        }
        Ok(())
    }

    /// Adds the differences of the image features of a scene alone.
    pub(crate) fn add_features(
        &mut self,
        scene: &Scene,
        expected: &SceneAnswers,
    ) -> Result<(), LossError> {
        if let Some(expected) = &expected.embedding {
            self.encoder.add(&scene.image_embedding()?.to_contiguous()?, expected)?;
        }
        Ok(())
    }

    /// A detection of either side that the other lacks counts as no overlap.
    fn add_phrase(
        &mut self,
        found: &HashMap<usize, Rle>,
        expected: &HashMap<usize, Rle>,
    ) -> Result<(), LossError> {
        for (query, mask) in expected {
            self.detections += 1;
            if let Some(found) = found.get(query) {
                self.found_overlap += overlap(found, mask)?;
            }
        }
        self.detections += found.keys().filter(|query| !expected.contains_key(query)).count();
        Ok(())
    }

    /// Root of the squared differences of the image embeddings, relative to the reference; `None` without embeddings.
    pub fn encoder_error(&self) -> Option<f64> {
        self.encoder.relative()
    }

    /// The same for the low-resolution logits of the masks.
    pub fn logit_error(&self) -> Option<f64> {
        self.logits.relative()
    }

    /// Mean IoU of the masks with those of the reference, candidate by candidate.
    pub fn mask_iou(&self) -> Option<f64> {
        (self.masks > 0).then(|| self.overlap / self.masks as f64)
    }

    /// The least of these.
    pub fn least_iou(&self) -> Option<f64> {
        self.least
    }

    /// Share of the prompts for which another candidate is the best.
    pub fn other_choices(&self) -> Option<f64> {
        (self.prompts > 0).then(|| self.other_choices as f64 / self.prompts as f64)
    }

    /// Mean IoU of the detections of phrases; one that only one side has counts as 0.
    pub fn detection_iou(&self) -> Option<f64> {
        (self.detections > 0).then(|| self.found_overlap / self.detections as f64)
    }
}

/// The IoU of two masks; 1 if both are empty.
fn overlap(found: &Rle, expected: &Rle) -> Result<f64, ImageError> {
    if found.area() == 0 && expected.area() == 0 {
        return Ok(1.0);
    }
    found.iou(expected)
}

#[cfg(test)]
mod tests {
    use cutout_imaging::Mask;

    use super::*;

    /// A mask of 4 pixels in a row, and logits that are its signs.
    fn candidate(pixels: [bool; 4]) -> (Tensor, Rle) {
        let signs = pixels.map(|inside| if inside { 2.0f32 } else { -2.0 });
        let mask = Mask::from_pixels(Size::new(4, 1), pixels.to_vec()).unwrap();
        (Tensor::from_vec([1, 4], signs.to_vec()).unwrap(), mask.to_rle().unwrap())
    }

    fn answers(best: usize, masks: [[bool; 4]; 2], embedding: f32) -> SceneAnswers {
        SceneAnswers {
            embedding: Some(Tensor::from_vec([2], vec![embedding, 0.0]).unwrap()),
            prompts: vec![PromptAnswer { best, candidates: masks.map(candidate).to_vec() }],
            phrases: vec![HashMap::from([(7, candidate(masks[0]).1)])],
        }
    }

    const HALF: [bool; 4] = [true, true, false, false];
    const MORE: [bool; 4] = [true, true, true, true];

    #[test]
    fn equal_answers_have_no_loss() {
        let same = answers(1, [HALF, MORE], 3.0);
        let mut loss = Loss::default();
        loss.add(&same, &same).unwrap();
        assert_eq!((loss.encoder_error(), loss.logit_error()), (Some(0.0), Some(0.0)));
        assert_eq!((loss.mask_iou(), loss.least_iou()), (Some(1.0), Some(1.0)));
        assert_eq!((loss.other_choices(), loss.detection_iou()), (Some(0.0), Some(1.0)));
        assert_eq!(Loss::default().mask_iou(), None);
    }

    #[test]
    fn differences_are_measured_for_the_candidate_of_the_reference() {
        let expected = answers(0, [HALF, HALF], 2.0);
        let found = answers(1, [MORE, HALF], 3.0);
        let mut loss = Loss::default();
        loss.add(&found, &expected).unwrap();
        assert_eq!(loss.encoder_error(), Some(0.5));
        // Two of four logits have the other sign: differences of 4 on values of 2.
        assert_eq!(loss.logit_error(), Some(2f64.sqrt()));
        assert_eq!((loss.mask_iou(), loss.other_choices()), (Some(0.5), Some(1.0)));
        loss.add(&expected, &expected).unwrap();
        assert_eq!((loss.mask_iou(), loss.least_iou()), (Some(0.75), Some(0.5)));
        assert_eq!(loss.other_choices(), Some(0.5));
    }

    #[test]
    fn detections_of_one_side_count_as_no_overlap() {
        let expected = answers(0, [HALF, HALF], 1.0);
        let mut found = expected.clone();
        found.phrases = vec![HashMap::from([(8, candidate(HALF).1)])];
        let mut loss = Loss::default();
        loss.add(&found, &expected).unwrap();
        assert_eq!(loss.detection_iou(), Some(0.0));
    }
}
