//! Invalid queries of SAM 3, and checkpoints with some of its components.

use crate::small_sam3::{Small, assert_near};
use cutout_sam::model::tokenizer::{LONGEST_PHRASE, PhraseError};
use cutout_sam::{
    Find, FindError, Label, ModelError, Point, Prompt, PromptError, Rect, Sam, Scene, SegmentError,
};

fn scene(small: &Small, sam: &Sam) -> Scene {
    sam.embed(&small.picture("landscape")).unwrap()
}

fn failure(scene: &Scene, find: impl Into<Find>) -> FindError {
    scene.find(find).map(|_| ()).unwrap_err()
}

const RECT: Rect = Rect { x0: 10.0, y0: 20.0, x1: 60.0, y1: 70.0 };

#[test]
fn empty_phrases_are_errors() {
    let small = Small::new("empty");
    let scene = scene(&small, &small.open());
    for phrase in ["", "  \t", "\0", "\u{1}\u{1b}[31m\u{7f}", "\u{feff}", "&nbsp;", "\u{2028}"] {
        let error = failure(&scene, phrase);
        assert!(matches!(error, FindError::Phrase { source: PhraseError::Empty, .. }), "{error}");
    }
    assert!(matches!(failure(&scene, ["cat", ""]), FindError::Phrase { .. }));
    assert!(matches!(failure(&scene, Find::default()), FindError::Nothing));
    let long = "x".repeat(LONGEST_PHRASE + 1);
    let error = failure(&scene, Find::phrase(long));
    assert!(matches!(error, FindError::Phrase { source: PhraseError::TooLong { .. }, .. }));
    assert!(error.to_string().len() < 200, "{error}");
}

#[test]
fn a_phrase_longer_than_the_context_is_cut_and_says_so() {
    let small = Small::new("long");
    let scene = scene(&small, &small.open());
    let words = |count: usize| Find::phrase("cat ".repeat(count)).threshold(0.0);
    let [whole, fits, cut] = [10, 30, 31].map(|count| scene.find(words(count)).unwrap());
    let flags = [&whole, &fits, &cut].map(|found| found.phrases()[0].phrase_was_cut());
    assert_eq!(flags, [false, false, true]);
    // Text beyond the context is ignored.
    let longer = scene.find(words(200)).unwrap();
    let scores = |found: &cutout_sam::Found| -> Vec<f32> {
        found.iter().map(|instance| instance.score()).collect()
    };
    assert_eq!(scores(&longer), scores(&cut));
    assert_eq!(scores(&cut), scores(&fits), "31 words are the 30 that fit");
    assert_ne!(scores(&whole), scores(&fits));
}

#[test]
fn an_emoji_is_a_phrase() {
    let small = Small::new("emoji");
    let scene = scene(&small, &small.open());
    let found = scene.find(Find::phrase("🐈").threshold(0.0)).unwrap();
    assert_eq!(found.phrases()[0].phrase(), Some("🐈"));
    assert!(!found.is_empty());
    assert!(found.iter().all(|instance| instance.score().is_finite()));
}

/// Characters removed by Meta's tokenizer change nothing; other alphabets are accepted.
#[test]
fn phrases_are_cleaned_as_meta_does() {
    let small = Small::new("clean");
    let scene = scene(&small, &small.open());
    let scores = |phrase: &str| -> Vec<f32> {
        let found = scene.find(Find::phrase(phrase).threshold(0.0)).unwrap();
        assert_eq!(found.phrases()[0].phrase(), Some(phrase));
        found.iter().map(|instance| instance.score()).collect()
    };
    let cat = scores("cat");
    for same in ["CAT", " cat\n", "c\0at", "\u{1b}[31mcat\u{1b}[0m", "ｃａｔ", "&#99;at"] {
        assert_eq!(scores(same), cat, "{same:?}");
    }
    for other in ["猫", "кошка", "قطة", "👨‍👩‍👧", "!", "\u{200b}"] {
        let scores = scores(other);
        assert!(!scores.is_empty() && scores.iter().all(|score| score.is_finite()), "{other:?}");
        assert_ne!(scores, cat, "{other:?}");
    }
}

#[test]
fn many_phrases_are_answered_in_their_order() {
    let small = Small::new("many");
    let scene = scene(&small, &small.open());
    // Each twice, and not in a row; of words that the small model knows.
    let words = ["cat", "wheel", "yellow", "school", "bus", "striped", "a", "visual"];
    let phrase = |index: usize| format!("{} {}", words[index % 8], words[index / 8]);
    let phrases: Vec<String> = (0..100).map(|index| phrase(index % 50)).collect();
    let find = phrases.iter().fold(Find::default(), Find::and).threshold(0.0);
    let mut seen = Vec::new();
    scene.find_each(&find, |answer| seen.push(answer)).unwrap();
    let names: Vec<&str> = seen.iter().filter_map(|answer| answer.phrase()).collect();
    assert_eq!(names, phrases);
    let scores = |answer: &cutout_sam::Detections| -> Vec<f32> {
        answer.iter().map(|instance| instance.score()).collect()
    };
    for (first, second) in seen[..50].iter().zip(&seen[50..]) {
        assert_eq!(scores(first), scores(second), "{:?}", first.phrase());
        assert_eq!(first.best_score(), scores(first)[0]);
    }
    assert_ne!(scores(&seen[0]), scores(&seen[1]));
    let mut detections = scene.raw_detections(&find).unwrap();
    assert_eq!(detections.len(), 100);
    for index in [0, 1, 2] {
        let detection = detections.next().unwrap().unwrap();
        assert_eq!(scores(&detection.select(&find).unwrap()), scores(&seen[index]));
    }
    let above = scene.find(Find::phrase(&phrases[7]).threshold(1.0)).unwrap();
    assert!(above.is_empty());
    assert_eq!(above.phrases()[0].best_score(), seen[7].best_score());
}

#[test]
fn exemplars_are_checked_against_the_picture() {
    let small = Small::new("exemplars");
    let scene = scene(&small, &small.open());
    let flat = Rect { x1: RECT.x0, ..RECT };
    let turned = Rect { x0: RECT.x1, x1: RECT.x0, ..RECT };
    for rect in [flat, turned] {
        let error = failure(&scene, Find::like(rect));
        assert!(matches!(error, FindError::Exemplar(PromptError::RectEmpty(_))), "{error}");
    }
    let outside =
        failure(&scene, Find::phrase("cat").with_rect(Rect { x1: 132.0, ..RECT }, Label::Negative));
    assert!(matches!(outside, FindError::Exemplar(PromptError::RectOutside { .. })), "{outside}");
    for rect in [
        Rect { x0: 200.0, y0: 200.0, x1: 300.0, y1: 300.0 },
        Rect { x0: -5.0, ..RECT },
        Rect { y1: f64::INFINITY, ..RECT },
        Rect { x0: f64::NAN, ..RECT },
    ] {
        assert!(matches!(failure(&scene, Find::like(rect)), FindError::Exemplar(_)), "{rect:?}");
    }
    let point = Point { x: 3.0, y: f64::NAN };
    let outside = failure(&scene, Find::phrase("cat").with_point(point, Label::Positive));
    assert!(matches!(outside, FindError::Exemplar(PromptError::PointOutside { .. })), "{outside}");
}

#[test]
fn exemplars_without_a_phrase_are_a_query() {
    let small = Small::new("alone");
    let scene = scene(&small, &small.open());
    let found = scene.find(Find::like(RECT).threshold(0.0)).unwrap();
    assert_eq!(found.phrases().len(), 1);
    assert_eq!(found.phrases()[0].phrase(), None);
    let visual = Find::phrase(cutout_sam::VISUAL).with_rect(RECT, Label::Positive).threshold(0.0);
    let visual = scene.find(visual).unwrap();
    for (a, b) in found.iter().zip(visual.iter()) {
        assert_eq!((a.score(), a.rect()), (b.score(), b.rect()));
    }
    let without = scene.find(Find::phrase(cutout_sam::VISUAL).threshold(0.0)).unwrap();
    let first = |found: &cutout_sam::Found| found.iter().next().unwrap().score();
    assert_ne!(first(&found), first(&without), "the exemplar says nothing");
    // A negative exemplar alone is a valid query.
    let not = Find::default().with_rect(RECT, Label::Negative).threshold(0.0);
    let not = scene.find(not).unwrap();
    assert_eq!((not.phrases().len(), not.phrases()[0].phrase()), (1, None));
    assert!(first(&not) != first(&found) && first(&not) != first(&without));
    let point = Point { x: 30.0, y: 40.0 };
    let point = scene.find(Find::default().with_point(point, Label::Positive).threshold(0.0));
    assert_ne!(first(&point.unwrap()), first(&without));
}

#[test]
fn queries_are_checked_without_a_picture() {
    let small = Small::new("check");
    let (sam, size) = (small.open(), small.picture("landscape").size());
    sam.check_find(&Find::phrase("cat").with_rect(RECT, Label::Negative), size).unwrap();
    for (find, words) in [
        (Find::default(), "no phrase and no exemplar"),
        (Find::from(["cat", " "]), "the phrase is empty"),
        (Find::phrase("cat").threshold(-1.0), "between 0 and 1"),
        (Find::like(Rect { x1: 999.0, ..RECT }), "outside"),
    ] {
        let error = sam.check_find(&find, size).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(failure(&scene(&small, &sam), find).to_string(), error);
    }
    let error = Sam::builtin().unwrap().check_find(&Find::phrase("cat"), size).unwrap_err();
    assert!(matches!(error, FindError::NotAFinder { .. }), "{error}");
}

#[test]
fn numbers_out_of_range_are_errors() {
    let small = Small::new("range");
    let scene = scene(&small, &small.open());
    for find in [
        Find::phrase("cat").threshold(1.5),
        Find::phrase("cat").threshold(-0.001),
        Find::phrase("cat").threshold(f32::NAN),
        Find::phrase("cat").threshold(f32::INFINITY),
        Find::phrase("cat").without_overlap(f32::NAN),
        Find::phrase("cat").without_overlap(-0.1),
    ] {
        assert!(matches!(failure(&scene, find), FindError::OutOfRange { .. }));
    }
    assert!(scene.find(Find::phrase("cat").threshold(1.0)).unwrap().is_empty());
}

#[test]
fn only_masks_that_count_cross_to_the_host() {
    let small = Small::new("fetched");
    let sam = small.open();
    let scene = scene(&small, &sam);
    let find = Find::phrase("cat");
    let raw = scene.raw_detections(&find).unwrap().next().unwrap().unwrap();
    let scores: Vec<f32> = scene
        .find(find.clone().threshold(0.0))
        .unwrap()
        .iter()
        .map(|detection| detection.score())
        .collect();
    let always = [raw.pred_logits(), raw.presence_logit(), raw.pred_boxes(), raw.semantic()];
    let always: usize = always.iter().map(|tensor| tensor.ty().bytes()).sum();
    let mask = raw.pred_masks().ty().bytes() / raw.pred_masks().shape()[0];
    for threshold in [1.0, scores[1], scores[3]] {
        let before = sam.transfers().fetched_bytes;
        let found = scene.find(find.clone().threshold(threshold)).unwrap();
        let fetched = sam.transfers().fetched_bytes - before;
        assert_eq!(found.len(), scores.iter().filter(|score| **score > threshold).count());
        assert_eq!(fetched as usize, always + found.len() * mask, "{} objects", found.len());
    }
}

#[test]
fn another_family_says_that_it_cannot_find() {
    let small = Small::new("family");
    let scene = Sam::builtin().unwrap().embed(&small.picture("landscape")).unwrap();
    let error = failure(&scene, "cat");
    assert!(matches!(error, FindError::NotAFinder { .. }), "{error}");
    assert!(error.to_string().contains("needs SAM 3"), "{error}");
}

/// Opens a model with the weights that satisfy a condition.
fn part(small: &Small, name: &str, wanted: impl Fn(&str) -> bool) -> Sam {
    let mut weights = small.weights();
    weights.retain(|name, _| wanted(name));
    Sam::open(small.write(name, &weights)).unwrap()
}

#[test]
fn a_part_of_the_model_does_its_part() {
    let small = Small::new("parts");
    let whole = scene(&small, &small.open());
    let (click, find) = (Prompt::point(20, 11), Find::phrase("cat"));
    let detector = part(&small, "detector", |name| name.starts_with("detector."));
    let detector = scene(&small, &detector);
    let [found, expected] = [&detector, &whole]
        .map(|scene| scene.raw_detections(&find).unwrap().next().unwrap().unwrap());
    assert_near(found.pred_masks(), expected.pred_masks(), 0.0, "objects");
    let error = detector.segment(&click).map(|_| ()).unwrap_err();
    assert!(matches!(error, SegmentError::Model(ModelError::NoInteractiveHead)), "{error}");
    let early = detector.sam().check_prompt(&click, detector.size()).unwrap_err();
    assert_eq!(early.to_string(), error.to_string());
    let tracker = part(&small, "tracker", |name| {
        name.starts_with("tracker.")
            || name.contains(".vision_backbone.trunk.")
            || name.contains(".sam2_convs.")
    });
    let tracker = scene(&small, &tracker);
    let [found, expected] = [&tracker, &whole].map(|scene| scene.segment(&click).unwrap());
    assert_near(found.best().logits(), expected.best().logits(), 0.0, "clicks");
    let error = failure(&tracker, "cat");
    assert!(matches!(error, FindError::Model(ModelError::NoDetector)), "{error}");
    let boxes = part(&small, "boxes", |name| !name.contains("geometry_encoder.points_"));
    let point = find.clone().with_point(Point { x: 9.0, y: 9.0 }, Label::Positive);
    assert!(matches!(failure(&scene(&small, &boxes), point), FindError::NoPoints));
}
