//! SAM 3 from files of every format and element type.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::small_sam3::Small;
use cutout_sam::{Candidates, Find, Label, Prompt, Rect, Sam};
use cutout_tensor::{DType, Tensor};
use cutout_weights::{Checkpoint, Encoding, Metadata, OutgoingTensor, write_gguf};

type Tensors = BTreeMap<String, Tensor>;

/// Raw outputs for a phrase with an exemplar, and for a point.
fn answers(small: &Small, path: &Path) -> Vec<(&'static str, Tensor)> {
    let scene = Sam::open(path).unwrap().embed(&small.picture("landscape")).unwrap();
    let rect = Rect { x0: 10.0, y0: 20.0, x1: 60.0, y1: 70.0 };
    let find = Find::phrase("yellow school bus").with_rect(rect, Label::Positive);
    let found = scene.raw_detections(&find).unwrap().next().unwrap().unwrap();
    let clicked = scene.segment(&Prompt::point(50, 40).candidates(Candidates::Three)).unwrap();
    let mut numbers = vec![
        ("pred_logits", found.pred_logits().clone()),
        ("presence_logit", found.presence_logit().clone()),
        ("pred_boxes", found.pred_boxes().clone()),
        ("pred_masks", found.pred_masks().clone()),
        ("semantic", found.semantic().clone()),
    ];
    numbers.extend(clicked.iter().map(|segment| ("clicked", segment.logits().clone())));
    numbers
}

/// The largest difference, as a share of the largest expected number of each tensor.
fn apart(found: &[(&str, Tensor)], expected: &[(&str, Tensor)]) -> f64 {
    let numbers = |tensor: &Tensor| tensor.to_f64_vec().unwrap();
    let one = |a: &Tensor, b: &Tensor| {
        assert_eq!(a.shape(), b.shape());
        let (a, b) = (numbers(a), numbers(b));
        let largest = b.iter().fold(0.0, |most: f64, number| most.max(number.abs()));
        a.iter().zip(&b).map(|(a, b)| (a - b).abs() / largest).fold(0.0, f64::max)
    };
    found.iter().zip(expected).map(|((_, a), (_, b))| one(a, b)).fold(0.0, f64::max)
}

/// The tensors of a file, cast to f32.
fn held(path: &Path) -> Tensors {
    let checkpoint = Checkpoint::open(path).unwrap();
    let tensor = |name: &str| checkpoint.tensor(name).unwrap().cast(DType::F32).unwrap();
    checkpoint.tensors().iter().map(|info| (info.name.clone(), tensor(&info.name))).collect()
}

fn gguf(small: &Small, name: &str, encoding: Encoding) -> PathBuf {
    let path = small.folder.join(name);
    let weights = small.weights();
    let tensors: Vec<OutgoingTensor<'_>> =
        weights.iter().map(|(name, tensor)| OutgoingTensor::new(name, tensor.clone())).collect();
    write_gguf(&path, &tensors, &Metadata::new(), encoding).unwrap();
    path
}

fn cast(small: &Small, name: &str, dtype: DType) -> PathBuf {
    let weights = small.weights().into_iter();
    let cast = weights.map(|(name, tensor)| (name, tensor.cast(dtype).unwrap()));
    small.write(name, &cast.collect())
}

#[test]
fn every_format_and_type_gives_the_results_of_its_stored_values() {
    let small = Small::new("formats");
    let expected = answers(&small, &small.write("f32", &small.weights()));
    for (path, least, most) in [
        (gguf(&small, "keep.gguf", Encoding::Keep), 0.0, 0.0),
        (cast(&small, "f16", DType::F16), 5e-4, 6e-3),
        (gguf(&small, "f16.gguf", Encoding::F16), 2e-4, 3e-3),
        (cast(&small, "bf16", DType::BF16), 3e-3, 0.03),
        (gguf(&small, "bf16.gguf", Encoding::Bf16), 3e-3, 0.03),
        (gguf(&small, "q8_0.gguf", Encoding::Q8_0), 3e-3, 0.04),
        (gguf(&small, "q4_0.gguf", Encoding::Q4_0), 0.04, 0.8),
    ] {
        let what = path.file_name().unwrap().to_string_lossy();
        let found = answers(&small, &path);
        let same = answers(&small, &small.write("held", &held(&path)));
        let rounding = apart(&found, &expected);
        let other = apart(&found, &same);
        assert!(other < 1e-5, "{what}: {other} from what the file holds");
        assert!((least..=most).contains(&rounding), "{what}: {rounding}");
    }
}
