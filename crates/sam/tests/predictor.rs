//! Pictures and prompts against Meta's predictors, of SAM 1 and of SAM 2, and against `transformers`' Sam2Model and
//! Sam3TrackerModel, opened from files with their tensor names: embedding, low-resolution logits, scores, and masks at full
//! size.

use crate::answers::{PICTURES, PROMPTS};
use crate::support::{ModelFile, sam2_metadata, tensors};
use cutout_sam::{Candidates, Masks, Prompt, Sam, Scene};
use cutout_tensor::{Tensor, Tolerance, compare};
use cutout_testing::StageFile;
use cutout_weights::Metadata;

/// What `fixtures/make_predictor.py` stored, and `fixtures/make_sam2_hf.py` and `fixtures/make_sam3_tracker_hf.py`.
const FIXTURES: [&str; 4] = ["sam1/predictor", "sam2/predictor", TRANSFORMERS[0], TRANSFORMERS[1]];
const TRANSFORMERS: [&str; 2] = ["sam2/hugging_face", "sam3/hugging_face_tracker"];

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

    /// A prompt in pixels of its picture.
    fn prompt(&self, run: &str) -> Prompt {
        crate::answers::prompt(&|part| self.file.tensor(&format!("{run}/{part}")))
    }
}

/// Compares an answer with the predictor's.
fn check(fixture: &Fixture, run: &str, masks: &Masks) {
    let about = format!("{}, {run}", fixture.name);
    let part = |name: &str| fixture.file.tensor(&format!("{run}/{name}"));
    // Meta fills holes in masks of SAM 3, `transformers` does not.
    assert_eq!(part("masks").is_none(), fixture.name == TRANSFORMERS[1], "{about}");
    crate::answers::check(&about, &part, masks);
}

/// Embeds every picture with every fixture's model.
fn for_each_scene(test: &str, check: impl Fn(&Fixture, &str, &Scene)) {
    for name in FIXTURES {
        let fixture = Fixture::load(name);
        let sam = fixture.sam(test);
        for title in PICTURES {
            let picture = crate::answers::picture(&fixture.get(&format!("{title}/pixels")));
            check(&fixture, title, &sam.embed(&picture).unwrap());
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

/// Feeds back this model's logits instead of the fixture's.
#[test]
fn logits_can_be_fed_back() {
    for_each_scene("feedback", |fixture, title, scene| {
        let first = scene.segment(&fixture.prompt(&format!("{title}/point"))).unwrap();
        let run = format!("{title}/point_logits");
        let prompt = fixture.prompt(&run).with_logits(first.best().logits().clone());
        check(fixture, &format!("{run}/three"), &scene.segment(&prompt).unwrap());
    });
}
