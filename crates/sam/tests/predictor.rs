//! Pictures and prompts against Meta's predictors, of SAM 1 and of SAM 2, and against `transformers`' Sam2Model and
//! Sam3TrackerModel, opened from files with their tensor names: embedding, low-resolution logits, scores, and masks at full
//! size.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use cutout_sam::imaging::{Image, Size};
use cutout_sam::{Candidates, Label, Masks, Point, Prompt, Rect, Sam, Scene};
use cutout_tensor::{Tensor, Tolerance, compare};
use cutout_testing::StageFile;
use cutout_weights::Metadata;
use support::{ModelFile, sam2_metadata, tensors};

/// What `fixtures/make_predictor.py` stored, and `fixtures/make_sam2_hf.py` and `fixtures/make_sam3_tracker_hf.py`.
const FIXTURES: [&str; 4] = ["sam1/predictor", "sam2/predictor", TRANSFORMERS[0], TRANSFORMERS[1]];
const TRANSFORMERS: [&str; 2] = ["sam2/hugging_face", "sam3/hugging_face_tracker"];
const PICTURES: [&str; 2] = ["landscape", "portrait"];
const PROMPTS: [&str; 6] = ["point", "points", "box", "box_point", "point_logits", "logits"];

/// Pixels of all masks of an answer that may differ: resizing and adding in another order moves a logit across the threshold
/// now and then.
const DIFFERENT: f64 = 0.001;

struct Fixture {
    name: &'static str,
    file: StageFile,
}

impl Fixture {
    fn load(name: &'static str) -> Self {
        let file = StageFile::load(&format!("{name}.safetensors")).unwrap();
        Fixture { name, file }
    }

    /// The prompts that are compared. To logits without points, `transformers` adds two paddings and Meta none: Meta is right.
    fn prompts(&self) -> impl Iterator<Item = &'static str> {
        let without = if TRANSFORMERS.contains(&self.name) { "logits" } else { "" };
        PROMPTS.into_iter().filter(move |name| *name != without)
    }

    fn get(&self, name: &str) -> Tensor {
        self.file.tensor(name).unwrap_or_else(|| panic!("the fixture has no {name}"))
    }

    /// The model, opened from a file with the fixture's weights.
    fn sam(&self, test: &str) -> Sam {
        let metadata =
            if self.name.starts_with("sam2") { sam2_metadata(&self.file) } else { Metadata::new() };
        let name = format!("predictor-{test}-{}", self.name.replace('/', "-"));
        ModelFile::write(&tensors([&self.file]), &metadata, &name).open()
    }

    fn picture(&self, title: &str) -> Image {
        let pixels = self.get(&format!("{title}/pixels"));
        let size = Size::new(pixels.shape()[1], pixels.shape()[0]);
        Image::from_rgb(size, pixels.to_vec::<u8>().unwrap()).unwrap()
    }

    /// A prompt in pixels of its picture.
    fn prompt(&self, run: &str) -> Prompt {
        let numbers = |part: &str| {
            let tensor = self.file.tensor(&format!("{run}/{part}"))?;
            Some(tensor.to_f64_vec().unwrap())
        };
        let mut prompt = Prompt::default();
        if let (Some(points), Some(labels)) = (numbers("points"), numbers("labels")) {
            for (place, label) in points.chunks(2).zip(labels) {
                let label = if label == 1.0 { Label::Positive } else { Label::Negative };
                prompt = prompt.with_point(Point { x: place[0], y: place[1] }, label);
            }
        }
        if let Some(corners) = numbers("box") {
            let [x0, y0, x1, y1] = corners[..] else { panic!("{run}: a box has four numbers") };
            prompt = prompt.with_rect(Rect { x0, y0, x1, y1 });
        }
        match self.file.tensor(&format!("{run}/logits")) {
            Some(logits) => prompt.with_logits(logits),
            None => prompt,
        }
    }
}

/// Compares an answer with the predictor's.
fn check(fixture: &Fixture, run: &str, masks: &Masks) {
    let about = format!("{}, {run}", fixture.name);
    let [low_res, iou] = ["low_res", "iou"].map(|part| fixture.get(&format!("{run}/{part}")));
    // Meta fills holes in masks of SAM 3, `transformers` does not.
    let expected = fixture.file.tensor(&format!("{run}/masks"));
    assert_eq!(expected.is_none(), fixture.name == TRANSFORMERS[1], "{about}");
    assert_eq!(masks.len(), low_res.shape()[0], "{about}");
    let side = low_res.shape()[1];
    let (mut different, mut pixels) = (0usize, 0usize);
    for (index, segment) in masks.iter().enumerate() {
        let row = |tensor: &Tensor| tensor.slice(0, index..index + 1).unwrap();
        let logits = row(&low_res).reshape([side, side]).unwrap();
        let difference = compare(segment.logits(), &logits, Tolerance::Stage).unwrap();
        assert!(difference.within, "{about}, logits of mask {index}: {difference}");
        let score = f64::from(segment.iou());
        let wanted = row(&iou).to_f64_vec().unwrap()[0];
        assert!((score - wanted).abs() < 1e-4, "{about}, mask {index}: {score}, not {wanted}");
        if let Some(wanted) = fixture.file.tensor(&format!("{run}/object_score")) {
            let (score, wanted) =
                (segment.object_score().unwrap(), wanted.to_f64_vec().unwrap()[0]);
            assert!((f64::from(score) - wanted).abs() < 1e-4, "{about}: {score}, not {wanted}");
        }
        let Some(expected) = &expected else { continue };
        let mask = segment.mask();
        let wanted = row(expected).to_vec::<u8>().unwrap();
        assert_eq!(mask.pixels().len(), wanted.len(), "{about}");
        different += mask.pixels().iter().zip(&wanted).filter(|(a, b)| **a != (**b == 1)).count();
        pixels += wanted.len();
    }
    let share = different as f64 / f64::max(pixels as f64, 1.0);
    assert!(share <= DIFFERENT, "{about}: {different} of {pixels} pixels differ");
}

/// Embeds every picture with every fixture's model.
fn for_each_scene(test: &str, check: impl Fn(&Fixture, &str, &Scene)) {
    for name in FIXTURES {
        let fixture = Fixture::load(name);
        let sam = fixture.sam(test);
        for title in PICTURES {
            check(&fixture, title, &sam.embed(&fixture.picture(title)).unwrap());
        }
    }
}

#[test]
fn embeddings_match_the_predictor() {
    for_each_scene("embedding", |fixture, title, scene| {
        let expected = fixture.get(&format!("{title}/embedding"));
        let found = scene.image_embedding().unwrap();
        let difference = compare(&found, &expected, Tolerance::Stage).unwrap();
        assert!(difference.within, "{}, {title}: {difference}", fixture.name);
    });
}

#[test]
fn masks_match_the_predictor() {
    for_each_scene("masks", |fixture, title, scene| {
        for name in fixture.prompts() {
            let run = format!("{title}/{name}");
            let prompt = fixture.prompt(&run);
            for (answer, candidates) in [("one", Candidates::One), ("three", Candidates::Three)] {
                let masks = scene.segment(&prompt.clone().candidates(candidates)).unwrap();
                check(fixture, &format!("{run}/{answer}"), &masks);
            }
        }
    });
}

/// A mask that is fed back is this model's own here, and not the predictor's.
#[test]
fn logits_can_be_fed_back() {
    for_each_scene("feedback", |fixture, title, scene| {
        let first = scene.segment(&fixture.prompt(&format!("{title}/point"))).unwrap();
        let run = format!("{title}/point_logits");
        let prompt = fixture.prompt(&run).with_logits(first.best().logits().clone());
        check(fixture, &format!("{run}/three"), &scene.segment(&prompt).unwrap());
    });
}
