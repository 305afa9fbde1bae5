//! Boxes, intersection over union, and non-maximum suppression.

/// A rectangle in pixels with the corners (`x0`, `y0`) and (`x1`, `y1`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rect {
    /// Left.
    pub x0: f32,
    /// Top.
    pub y0: f32,
    /// Right.
    pub x1: f32,
    /// Bottom.
    pub y1: f32,
}

impl Rect {
    /// A rectangle from left, top, right and bottom.
    pub const fn new(x0: f32, y0: f32, x1: f32, y1: f32) -> Self {
        Rect { x0, y0, x1, y1 }
    }

    /// COCO's form: left, top, width, height.
    pub fn to_xywh(self) -> [f32; 4] {
        [self.x0, self.y0, self.x1 - self.x0, self.y1 - self.y0]
    }

    /// Width times height; may be negative if the corners are in the wrong order.
    pub fn area(self) -> f32 {
        (self.x1 - self.x0) * (self.y1 - self.y0)
    }

    /// The box moved by (`x`, `y`).
    pub fn shifted(self, x: f32, y: f32) -> Self {
        Rect::new(self.x0 + x, self.y0 + y, self.x1 + x, self.y1 + y)
    }

    /// Intersection over union; 0 for disjoint boxes, NaN if both boxes have no area (as in torchvision).
    pub fn iou(self, other: Rect) -> f32 {
        let width = (self.x1.min(other.x1) - self.x0.max(other.x0)).max(0.0);
        let height = (self.y1.min(other.y1) - self.y0.max(other.y0)).max(0.0);
        let intersection = width * height;
        intersection / (self.area() + other.area() - intersection)
    }
}

/// A box with score and category, the input of non-maximum suppression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The box.
    pub rect: Rect,
    /// Score; of two overlapping boxes, the one with the higher score is kept.
    pub score: f32,
    /// Only boxes of the same category suppress each other.
    pub category: u32,
}

/// Non-maximum suppression per category (torchvision's `batched_nms`). Returns the indices of the kept boxes by descending
/// score, equal scores in input order. A box is dropped if its IoU with a kept box exceeds `threshold`.
pub fn non_maximum_suppression(candidates: &[Candidate], threshold: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    // NaN sorts first, as in PyTorch's descending sort.
    let key = |index: &usize| candidates[*index].score;
    order.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        b.partial_cmp(&a).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
    });
    let mut kept: Vec<usize> = Vec::new();
    for index in order {
        let candidate = &candidates[index];
        let overlaps = |other: &usize| {
            let other = &candidates[*other];
            other.category == candidate.category
                && f64::from(other.rect.iou(candidate.rect)) > threshold
        };
        if !kept.iter().any(overlaps) {
            kept.push(index);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iou_of_hand_computed_boxes() {
        let a = Rect::new(0.0, 0.0, 4.0, 2.0);
        let b = Rect::new(2.0, 0.0, 6.0, 2.0);
        assert_eq!(a.iou(b), 4.0 / 12.0);
        assert_eq!(a.iou(a), 1.0);
        assert_eq!(a.iou(Rect::new(5.0, 0.0, 6.0, 1.0)), 0.0);
        assert_eq!(b.to_xywh(), [2.0, 0.0, 4.0, 2.0]);
    }

    #[test]
    fn ties_keep_their_order_and_empty_boxes_survive() {
        let of = |x: f32, score: f32| Candidate {
            rect: Rect::new(x, 0.0, x + 10.0, 10.0),
            score,
            category: 0,
        };
        let candidates = [of(0.0, 1.0), of(1.0, 1.0), of(100.0, 2.0)];
        assert_eq!(non_maximum_suppression(&candidates, 0.5), [2, 0]);
        assert_eq!(non_maximum_suppression(&candidates, 0.99), [2, 0, 1]);
        let points = [Candidate { rect: Rect::default(), score: 0.0, category: 0 }; 2];
        assert_eq!(non_maximum_suppression(&points, 0.5), [0, 1]);
        assert!(non_maximum_suppression(&[], 0.5).is_empty());
    }
}
