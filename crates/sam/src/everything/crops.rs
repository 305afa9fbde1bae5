//! Crops of the picture, and masks cut off at crop edges.

use cutout_imaging::{Placement, Size};

use super::options::EverythingOptionError;
use super::{Everything, PixelBox};

/// How close to the edge of its crop, in pixels, a mask may be cut off.
const EDGE: usize = 20;

/// A part of the picture: from (`left`, `top`) up to, without, (`right`, `bottom`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crop {
    /// 0 for the whole picture.
    pub(super) layer: usize,
    pub(super) left: usize,
    pub(super) top: usize,
    pub(super) right: usize,
    pub(super) bottom: usize,
}

impl Crop {
    pub(super) fn size(&self) -> Size {
        Size::new(self.right - self.left, self.bottom - self.top)
    }

    pub(super) fn is_whole(&self, picture: Size) -> bool {
        self.size() == picture
    }

    pub(super) fn pixel_box(&self) -> PixelBox {
        let Size { width, height } = self.size();
        PixelBox { x: self.left, y: self.top, width, height }
    }

    /// Where the crop lies in the picture; `None` if it is all of it.
    pub(super) fn placement(&self, picture: Size) -> Option<Placement> {
        let placement = Placement { canvas: picture, x: self.left, y: self.top };
        (!self.is_whole(picture)).then_some(placement)
    }

    /// Whether a mask with this box, in the picture, reaches an edge of the crop that is no edge of the picture: it is
    /// probably cut off there.
    pub(super) fn cuts_off(&self, bbox: PixelBox, picture: Size) -> bool {
        let edges = [self.left, self.top, self.right, self.bottom];
        let outer = [0, 0, picture.width, picture.height];
        let near = |place: usize, edge: usize| place.abs_diff(edge) <= EDGE;
        let cut = |side: usize| {
            let place = bbox.corners()[side];
            near(place, edges[side]) && !near(place, outer[side])
        };
        (0..4).any(cut)
    }
}

/// The picture, then the crops of each layer: 2×2, 4×4, …, column by column.
pub(super) fn crops(
    picture: Size,
    options: &Everything,
) -> Result<Vec<Crop>, EverythingOptionError> {
    let Size { width, height } = picture;
    let mut crops = vec![Crop { layer: 0, left: 0, top: 0, right: width, bottom: height }];
    for layer in 1..=options.crop_n_layers {
        let per_side = 1usize << layer;
        let short = width.min(height) as f64;
        let overlap = (options.crop_overlap_ratio * short * (2.0 / per_side as f64)) as usize;
        let across = spans(width, per_side, overlap);
        let down = spans(height, per_side, overlap);
        if across.iter().chain(&down).any(|(start, end)| start >= end) {
            return Err(EverythingOptionError::CropsTooSmall { layer, size: picture });
        }
        for &(left, right) in &across {
            let column = down.iter().map(|&(top, bottom)| Crop { layer, left, top, right, bottom });
            crops.extend(column);
        }
    }
    Ok(crops)
}

/// Starts and ends of `count` spans that overlap and together cover `length`.
fn spans(length: usize, count: usize, overlap: usize) -> Vec<(usize, usize)> {
    let span = (overlap * (count - 1) + length).div_ceil(count);
    let step = span - overlap;
    (0..count).map(|i| (i * step, (i * step + span).min(length))).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::Value;

    use super::*;

    /// What Meta's functions answer.
    pub(in crate::everything) fn answers() -> Value {
        serde_json::from_str(include_str!("../../../../fixtures/everything/pieces.json")).unwrap()
    }

    pub(in crate::everything) fn numbers(value: &Value) -> Vec<f64> {
        value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
    }

    fn lengths(value: &Value) -> Vec<usize> {
        value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as usize).collect()
    }

    fn crop(corners: &[usize], layer: usize) -> Crop {
        let [left, top, right, bottom] = corners.try_into().unwrap();
        Crop { layer, left, top, right, bottom }
    }

    #[test]
    fn crops_are_those_of_meta() {
        for case in answers()["crops"].as_array().unwrap() {
            let size = lengths(&case["size"]);
            let options = Everything {
                crop_n_layers: case["layers"].as_u64().unwrap() as usize,
                crop_overlap_ratio: case["overlap"].as_f64().unwrap(),
                ..Everything::default()
            };
            let boxes = case["boxes"].as_array().unwrap().iter().map(lengths);
            let layers = lengths(&case["layer_of"]);
            let expected: Vec<Crop> =
                boxes.zip(layers).map(|(corners, layer)| crop(&corners, layer)).collect();
            let picture = Size::new(size[0], size[1]);
            assert_eq!(crops(picture, &options).unwrap(), expected);
            assert!(expected[0].is_whole(picture) && expected[0].placement(picture).is_none());
        }
    }

    #[test]
    fn crops_without_pixels_are_an_error() {
        let options = Everything { crop_n_layers: 3, ..Everything::default() };
        let size = Size::new(60, 5);
        let found = crops(size, &options);
        assert_eq!(found, Err(EverythingOptionError::CropsTooSmall { layer: 2, size }));
    }

    #[test]
    fn masks_are_cut_off_where_they_are_with_meta() {
        let answers = answers();
        let cases = answers["edges"].as_array().unwrap();
        let mut cut = 0;
        for case in cases {
            let size = lengths(&case["size"]);
            let [x, y, right, bottom] = lengths(&case["box"])[..] else { panic!("{case}") };
            let bbox = PixelBox { x, y, width: right - x, height: bottom - y };
            let found =
                crop(&lengths(&case["crop"]), 1).cuts_off(bbox, Size::new(size[0], size[1]));
            assert_eq!(Some(found), case["near"].as_bool(), "{case}");
            cut += usize::from(found);
        }
        assert!(cut > 20 && cut + 20 < cases.len(), "{cut} of {} are cut off", cases.len());
    }
}
