//! Masks: NumPy logits, grids of pixels, run lengths.

use cutout_imaging::{Connectivity, Mask, Rle, Size, connected_regions, polygons, read_npy};

use super::Target;

pub(super) const NPY: Target = Target {
    name: "npy",
    about: "NumPy arrays",
    seeds: npy_seeds,
    words: &["'<f4'", "'fortran_order': False", "'shape': (", "), }", "True"],
    read: |bytes| read_npy(bytes).is_ok_and(|tensor| tensor.to_vec::<f32>().is_ok()),
    memory: 1 << 20,
};

pub(super) const MASKS: Target = Target {
    name: "masks",
    about: "grids of pixels, to run lengths and outlines and back",
    seeds: || {
        vec![vec![7, 5, 0b1010_1111, 0, 0xff, 0x81, 3], vec![1, 1, 1], vec![0x1f, 0x1f, 0xff]]
    },
    words: &[],
    read: read_mask,
    memory: 1 << 20,
};

pub(super) const RLE: Target = Target {
    name: "rle",
    about: "compressed run lengths of COCO",
    seeds: rle_seeds,
    words: &["o", "oooooo", "0", "PP"],
    read: read_rle,
    memory: 1 << 20,
};

fn npy_seeds() -> Vec<Vec<u8>> {
    let seed = |version: u8, shape: &str, elements: usize| {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}\n");
        let mut file = [b"\x93NUMPY", &[version, 0][..]].concat();
        match version {
            1 => file.extend((header.len() as u16).to_le_bytes()),
            _ => file.extend((header.len() as u32).to_le_bytes()),
        }
        file.extend(header.as_bytes());
        file.extend((0..elements).flat_map(|i| (i as f32).to_le_bytes()));
        file
    };
    vec![seed(1, "4, 4", 16), seed(2, "1, 3, 2", 6), seed(1, "", 1)]
}

/// Size and compressed runs of masks with few and many runs.
fn rle_seeds() -> Vec<Vec<u8>> {
    let seed = |width: usize, height: usize, step: usize| {
        let size = Size::new(width, height);
        let pixels = (0..width * height).map(|i| i * i % step < step / 2).collect();
        let mask = Mask::from_pixels(size, pixels).expect("a small mask");
        let mut bytes = vec![width as u8, height as u8];
        bytes.extend(mask.to_rle().expect(SMALL).to_coco_string().bytes());
        bytes
    };
    vec![seed(7, 5, 5), seed(4, 4, 100), seed(60, 50, 2000), seed(1, 1, 2)]
}

/// Width and height from the first two bytes, at most 64, and the bytes after them.
fn sized(bytes: &[u8]) -> (Size, &[u8]) {
    let side = |at: usize| usize::from(bytes.get(at).copied().unwrap_or(0) % 65);
    (Size::new(side(0), side(1)), bytes.get(2..).unwrap_or_default())
}

const SMALL: &str = "the memory of a small mask";

fn read_mask(bytes: &[u8]) -> bool {
    let (size, bits) = sized(bytes);
    let bit = |i: usize| bits.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1);
    let pixels = (0..size.width * size.height).map(bit).collect();
    let Ok(mask) = Mask::from_pixels(size, pixels) else { return false };
    let rle = mask.to_rle().expect(SMALL);
    assert_eq!(rle.to_mask().expect(SMALL), mask);
    assert_eq!(rle.area(), mask.area());
    let text = rle.to_coco_string();
    assert_eq!(Rle::from_coco_string(size, &text).as_ref(), Ok(&rle));
    let regions = connected_regions(&mask, true, Connectivity::Eight).expect(SMALL);
    assert_eq!(regions.areas.iter().sum::<usize>(), mask.area());
    polygons(&mask).expect(SMALL);
    true
}

fn read_rle(bytes: &[u8]) -> bool {
    let (size, text) = sized(bytes);
    match Rle::from_coco_string(size, &String::from_utf8_lossy(text)) {
        Ok(rle) => {
            let mask = rle.to_mask().expect(SMALL);
            assert_eq!(mask.area(), rle.area());
            let again = mask.to_rle().expect(SMALL);
            assert_eq!(rle.iou(&again).map(|iou| iou > 0.0), Ok(mask.area() > 0));
            assert!(rle.bounds().is_some() == (mask.area() > 0));
            true
        }
        Err(error) => error.to_string().is_empty(),
    }
}
