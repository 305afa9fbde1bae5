//! Pictures, phrases, exemplars and clicks against Meta's image processor and interactive predictor of SAM 3.

use crate::answers::{PICTURES, PROMPTS, label, rect};
use crate::small_sam3::{Small, assert_near};
use cutout_sam::{Candidates, Everything, Family, Find, Point, Prompt, Rect, Scene};
use cutout_tensor::{Tensor, Tolerance, compare};

const RUNS: [&str; 6] = ["text", "other_text", "text_box", "negative_box", "boxes", "points"];

/// How far masks, boxes and scores may be from Meta's.
const MASK_LOGITS: f64 = 2e-3;
const BOXES: f64 = 1e-4;
const SCORES: f64 = 1e-4;

fn scenes(small: &Small) -> Vec<(&'static str, Scene)> {
    let sam = small.open();
    let embed = |title| (title, sam.embed(&small.picture(title)).unwrap());
    PICTURES.into_iter().map(embed).collect()
}

/// The query of a run, in pixels of its picture.
fn question(small: &Small, title: &str, run: &str) -> Find {
    let numbers = |part: &str| small.numbers(&format!("{title}/find/{run}/{part}"));
    let mut find = small.phrase(run).map_or_else(Find::default, Find::phrase);
    if let (Some(boxes), Some(labels)) = (numbers("boxes"), numbers("box_labels")) {
        for (corners, sign) in boxes.chunks(4).zip(&labels) {
            find = find.with_rect(rect(corners), label(*sign));
        }
    }
    if let (Some(points), Some(labels)) = (numbers("points"), numbers("point_labels")) {
        for (place, sign) in points.chunks(2).zip(&labels) {
            find = find.with_point(Point { x: place[0], y: place[1] }, label(*sign));
        }
    }
    find.threshold(numbers("threshold").unwrap()[0] as f32)
}

#[test]
fn embeddings_match_the_predictor() {
    let small = Small::new("embedding");
    for (title, scene) in scenes(&small) {
        let expected = small.get(&format!("{title}/embedding"));
        let difference =
            compare(&scene.image_embedding().unwrap(), expected, Tolerance::Stage).unwrap();
        assert!(difference.within, "{title}: {difference}");
    }
}

#[test]
fn clicks_match_the_predictor() {
    let small = Small::new("clicks");
    for (title, scene) in scenes(&small) {
        for name in PROMPTS {
            let run = format!("{title}/{name}");
            let prompt = small.prompt(&run);
            for (answer, candidates) in [("one", Candidates::One), ("three", Candidates::Three)] {
                let masks = scene.segment(&prompt.clone().candidates(candidates)).unwrap();
                small.check(&format!("{run}/{answer}"), &masks);
            }
        }
    }
}

#[test]
fn raw_detections_match_the_processor() {
    let small = Small::new("raw");
    for (title, scene) in scenes(&small) {
        for run in RUNS {
            let detections = scene.raw_detections(&question(&small, title, run)).unwrap();
            let detections: Vec<_> = detections.map(Result::unwrap).collect();
            let [detection] = &detections[..] else { panic!("one phrase, one answer") };
            let expected = |name: &str| small.get(&format!("{title}/find/{run}/raw/{name}"));
            for (name, found, most) in [
                ("pred_logits", detection.pred_logits(), SCORES),
                ("presence_logit", detection.presence_logit(), SCORES),
                ("pred_boxes", detection.pred_boxes(), BOXES),
                ("pred_masks", detection.pred_masks(), MASK_LOGITS),
                ("semantic", detection.semantic(), MASK_LOGITS),
            ] {
                assert_near(found, expected(name), most, &format!("{title}/{run}, {name}"));
            }
        }
    }
}

#[test]
fn objects_match_the_processor() {
    let small = Small::new("objects");
    for (title, scene) in scenes(&small) {
        for run in RUNS {
            let found = scene.find(question(&small, title, run)).unwrap();
            let part =
                |name: &str| small.numbers(&format!("{title}/find/{run}/found/{name}")).unwrap();
            let (scores, boxes, masks) = (part("scores"), part("boxes"), part("masks"));
            let what = format!("{title}/{run}");
            assert_eq!(found.len(), scores.len(), "{what}");
            assert!(found.iter().map(|one| one.score()).is_sorted_by(|a, b| a >= b), "{what}");
            // Meta's order is that of the queries.
            let mut instances: Vec<_> = found.iter().collect();
            instances.sort_by_key(|instance| instance.query());
            let pixels = scene.size().width * scene.size().height;
            for (index, instance) in instances.into_iter().enumerate() {
                assert_eq!(instance.phrase(), small.phrase(run).as_deref());
                let score = f64::from(instance.score());
                assert!((score - scores[index]).abs() < SCORES, "{what}: {score}");
                let Rect { x0, y0, x1, y1 } = instance.rect();
                let longest = scene.size().width.max(scene.size().height) as f64;
                for (found, expected) in [x0, y0, x1, y1].iter().zip(&boxes[4 * index..]) {
                    assert!((found - expected).abs() < BOXES * longest, "{what}: {found}");
                }
                let mask = instance.mask().unwrap();
                let expected = &masks[index * pixels..][..pixels];
                let wrong = mask.pixels().iter().zip(expected).filter(|(a, b)| **a != (**b == 1.0));
                assert!(wrong.count() * 1000 <= pixels, "{what}, mask {index}");
            }
        }
    }
}

#[test]
fn several_phrases_are_answered_as_one_by_one() {
    let small = Small::new("several");
    let (_, scene) = scenes(&small).remove(0);
    let phrases = ["yellow school bus", "cat", "wheel"];
    let together = scene.find(Find::from(phrases).threshold(0.0)).unwrap();
    assert_eq!(together.phrases().len(), 3);
    for (answer, phrase) in together.phrases().iter().zip(phrases) {
        assert_eq!(answer.phrase(), Some(phrase));
        let alone = scene.find(Find::phrase(phrase).threshold(0.0)).unwrap();
        assert_eq!(alone.phrases()[0].presence(), answer.presence());
        assert_eq!(alone.len(), answer.len());
        for (a, b) in alone.iter().zip(answer) {
            assert_eq!((a.score(), a.rect(), a.presence()), (b.score(), b.rect(), b.presence()));
            assert!(a.score() <= a.presence());
            assert_eq!(a.rle().unwrap(), b.rle().unwrap());
        }
        let semantic = answer.semantic();
        assert_eq!(semantic.mask().unwrap().size(), scene.size());
    }
}

#[test]
fn overlapping_objects_can_be_left_out() {
    let small = Small::new("overlap");
    let (_, scene) = scenes(&small).remove(0);
    let find = Find::phrase("cat").threshold(0.0);
    let all = scene.find(&find).unwrap();
    let apart = scene.find(find.clone().without_overlap(0.3)).unwrap();
    assert!(apart.len() < all.len() && !apart.is_empty());
    let masks: Vec<_> = apart.iter().map(|one| one.segment().logits().clone()).collect();
    let set = |mask: &Tensor| -> Vec<bool> {
        mask.to_vec::<f32>().unwrap().iter().map(|logit| *logit > 0.0).collect()
    };
    for (index, one) in masks.iter().enumerate() {
        for other in &masks[..index] {
            let (one, other) = (set(one), set(other));
            let pairs = || one.iter().zip(&other);
            let both = pairs().filter(|(a, b)| **a && **b).count() as f64;
            let either = pairs().filter(|(a, b)| **a || **b).count() as f64;
            assert!(both <= 0.3 * either);
        }
    }
    let best = all.iter().next().unwrap();
    assert_eq!(apart.iter().next().unwrap().query(), best.query());
    assert_eq!(scene.find(find.without_overlap(1.0)).unwrap().len(), all.len());
}

#[test]
fn an_object_that_was_found_is_refined_by_clicks() {
    let small = Small::new("refine");
    let (_, scene) = scenes(&small).remove(0);
    let found = scene.find(Find::phrase("cat").threshold(0.0)).unwrap();
    let instance = found.iter().next().unwrap();
    let logits = instance.segment().logits().clone();
    let side = logits.shape()[0];
    assert_eq!(logits.shape()[..], [side, side]);
    let refined = scene.segment(&Prompt::logits(logits.clone()).and(20, 11)).unwrap();
    let clicked = scene.segment(&Prompt::point(20, 11).candidates(Candidates::One)).unwrap();
    assert_eq!(refined.len(), 1);
    let same = compare(refined.best().logits(), clicked.best().logits(), Tolerance::Stage);
    assert!(!same.unwrap().within, "the mask says nothing");
}

#[test]
fn a_scene_comes_back_from_its_file() {
    let small = Small::new("scene");
    let (_, scene) = scenes(&small).remove(1);
    let path = small.folder.join("scene.safetensors");
    scene.save(&path).unwrap();
    let again = scene.sam().load_scene(&path).unwrap();
    let clicks = [&scene, &again].map(|scene| scene.segment(&Prompt::point(20, 11)).unwrap());
    assert_near(clicks[0].best().logits(), clicks[1].best().logits(), 1e-6, "clicks");
    let found = [&scene, &again]
        .map(|scene| scene.raw_detections(&Find::phrase("cat")).unwrap().next().unwrap().unwrap());
    assert_near(found[0].pred_masks(), found[1].pred_masks(), 1e-6, "objects");
}

#[test]
fn everything_is_segmented_too() {
    let small = Small::new("everything");
    let (_, scene) = scenes(&small).remove(0);
    let options = Everything {
        points_per_side: 4,
        pred_iou_thresh: 0.0,
        stability_score_thresh: 0.0,
        ..Everything::for_family(Family::Sam3)
    };
    assert!(!scene.everything(&options).unwrap().is_empty());
}
