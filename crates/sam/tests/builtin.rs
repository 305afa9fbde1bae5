//! Quality of the built-in model on drawn scenes with exact masks.

use cutout_sam::imaging::{Image, Mask, Size};
use cutout_sam::{Direction, Everything, Prompt, Sam, Scene, TrackOptions};

const SIZE: Size = Size { width: 320, height: 240 };

/// A disc.
#[derive(Clone, Copy)]
struct Disc {
    x: f64,
    y: f64,
    radius: f64,
    colour: [u8; 3],
}

const BALL: Disc = Disc { x: 110.0, y: 130.0, radius: 46.0, colour: [206, 66, 52] };
const OTHER: Disc = Disc { x: 230.0, y: 90.0, radius: 38.0, colour: [58, 110, 190] };

impl Disc {
    fn contains(&self, x: usize, y: usize) -> bool {
        (x as f64 + 0.5 - self.x).hypot(y as f64 + 0.5 - self.y) < self.radius
    }

    fn mask(&self, hidden_by: &[Disc]) -> Mask {
        let inside = |i: usize| {
            let (x, y) = (i % SIZE.width, i / SIZE.width);
            self.contains(x, y) && !hidden_by.iter().any(|other| other.contains(x, y))
        };
        Mask::from_pixels(SIZE, (0..SIZE.width * SIZE.height).map(inside).collect()).unwrap()
    }

    fn prompt(&self) -> Prompt {
        let Disc { x, y, radius, .. } = *self;
        Prompt::rect(x - radius, y - radius, x + radius, y + radius)
    }
}

/// Discs on a background with a gradient and grain; later ones in front.
fn picture(discs: &[Disc]) -> Image {
    let pixel = |i: usize| {
        let (x, y) = (i % SIZE.width, i / SIZE.width);
        let grain = (i.wrapping_mul(2_654_435_761) >> 7) % 11;
        let base = [120 + x / 8 + grain, 140 + y / 8 + grain, 130 + grain].map(|value| value as u8);
        let front = discs.iter().rev().find(|disc| disc.contains(x, y));
        front.map_or(base, |disc| disc.colour.map(|value| value.saturating_add(grain as u8)))
    };
    let pixels = (0..SIZE.width * SIZE.height).flat_map(pixel).collect();
    Image::from_rgb(SIZE, pixels).unwrap()
}

fn scene() -> Scene {
    Sam::builtin().unwrap().embed(&picture(&[BALL, OTHER])).unwrap()
}

fn iou(found: &Mask, expected: &Mask) -> f64 {
    found.to_rle().unwrap().iou(&expected.to_rle().unwrap()).unwrap()
}

#[test]
fn points_boxes_and_refinement_find_the_disc() {
    let scene = scene();
    for disc in [BALL, OTHER] {
        let expected = disc.mask(&[]);
        let click = Prompt::point(disc.x, disc.y);
        let first = scene.segment(&click).unwrap();
        let clicked = iou(&first.best().mask().unwrap(), &expected);
        assert!(clicked > 0.9, "one click: {clicked}");
        let boxed = iou(&scene.segment(&disc.prompt()).unwrap().best().mask().unwrap(), &expected);
        assert!(boxed > 0.9, "box: {boxed}");
        let more =
            click.and(disc.x + 0.7 * disc.radius, disc.y).not(disc.x, disc.y + 1.3 * disc.radius);
        let refined = more.with_logits(first.best().logits().clone());
        let refined = iou(&scene.segment(&refined).unwrap().best().mask().unwrap(), &expected);
        assert!(refined > 0.9, "refined: {refined}");
    }
}

#[test]
fn everything_finds_both_discs() {
    let options = Everything {
        points_per_side: 8,
        pred_iou_thresh: 0.7,
        stability_score_thresh: 0.8,
        ..Everything::default()
    };
    let masks = scene().everything(&options).unwrap();
    for disc in [BALL, OTHER] {
        let expected = disc.mask(&[]).to_rle().unwrap();
        let best = masks.iter().map(|mask| mask.rle.iou(&expected).unwrap()).fold(0.0, f64::max);
        assert!(best > 0.85, "{best} among {} masks", masks.len());
    }
}

#[test]
fn a_disc_is_tracked_behind_another_and_back() {
    let sam = Sam::builtin().unwrap();
    let frame = |t: usize| Disc { x: 60.0 + 20.0 * t as f64, ..BALL };
    let front = Disc { x: 190.0, y: 60.0, radius: 34.0, ..OTHER };
    let frames: Vec<Image> = (0..9).map(|t| picture(&[frame(t), front])).collect();
    let options = TrackOptions { length: Some(frames.len()), ..TrackOptions::default() };
    let mut tracker = sam.track(options).unwrap();
    tracker.push(&frames[0]).unwrap();
    tracker.prompt(0, 1, &frame(0).prompt()).unwrap();
    let mut ious = Vec::new();
    for (t, image) in frames.iter().enumerate().skip(1) {
        let found = tracker.push(image).unwrap();
        ious.push(iou(&found.objects[0].segment.mask().unwrap(), &frame(t).mask(&[front])));
    }
    let mean = ious.iter().sum::<f64>() / ious.len() as f64;
    assert!(mean > 0.85, "forward: {mean}, {ious:?}");
    for t in (4..8).rev() {
        let found = tracker.push_at(t, &frames[t], Direction::Backward).unwrap();
        let back = iou(&found.objects[0].segment.mask().unwrap(), &frame(t).mask(&[front]));
        assert!(back > 0.8, "backward, frame {t}: {back}");
    }
}
