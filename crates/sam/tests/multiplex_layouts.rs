//! SAM 3.1 from the files that people have: in half and single precision, with older prefixes, inside another dictionary, as GGUF.

use crate::support::{Folder, ModelFile, Tensors, outgoing, tensors};
use cutout_sam::imaging::{Image, Size};
use cutout_sam::{Family, Prompt, Sam, TrackOptions};
use cutout_tensor::{DType, Tensor};
use cutout_testing::{StageFile, rotation_tables};
use cutout_weights::{Encoding, Metadata, write_gguf};

/// Logits of three objects on four frames.
fn tracked(sam: &Sam, what: &str) -> Vec<Vec<f32>> {
    assert_eq!(sam.identity().family, Family::Sam3_1, "{what}");
    let size = Size::new(40, 30);
    let pixel = |i: usize| [(i * 7 % 251) as u8, (i / 3 % 256) as u8, (i * i % 239) as u8];
    let pixels = (0..size.width * size.height).flat_map(pixel).collect();
    let image = Image::from_rgb(size, pixels).unwrap();
    let mut tracker = sam.track(TrackOptions::default()).unwrap();
    tracker.push(&image).unwrap();
    for id in 0..3 {
        tracker.prompt(0, id, &Prompt::point(5 + 9 * id, 12)).unwrap();
    }
    let frames = (0..4).flat_map(|_| tracker.push(&image).unwrap().objects);
    frames.map(|object| object.segment.logits().to_vec::<f32>().unwrap()).collect()
}

fn renamed(weights: &Tensors, rename: impl Fn(&str) -> String) -> Tensors {
    weights.iter().map(|(name, tensor)| (rename(name), tensor.clone())).collect()
}

/// The prefixes of the first files.
fn old(name: &str) -> String {
    let known = [("detector.", "sam3_model."), ("tracker.", "sam2_predictor.")];
    let new = known.iter().find_map(|(now, before)| Some((name.strip_prefix(now)?, before)));
    new.map_or_else(|| name.to_owned(), |(rest, before)| format!("{before}{rest}"))
}

#[test]
fn a_multiplex_tracker_answers_the_same_from_all_its_files() {
    let file = StageFile::load("sam3/multiplex_clip.safetensors").unwrap();
    let mut weights = tensors([&file]);
    weights.extend(rotation_tables(&file.metadata["config"]).unwrap());
    let single = |tensor: &Tensor| tensor.cast(DType::F32).unwrap();
    let exact: Tensors =
        weights.iter().map(|(name, tensor)| (name.clone(), single(tensor))).collect();
    let open = |weights: &Tensors, name: &str| {
        let sam = ModelFile::write(weights, &Metadata::new(), name).open();
        tracked(&sam, name)
    };
    let expected = open(&weights, "multiplex-half");
    assert_eq!(expected.len(), 12);
    for (name, weights) in [
        ("multiplex-single", exact),
        ("multiplex-model", renamed(&weights, |name| format!("model.{name}"))),
        ("multiplex-old", renamed(&weights, old)),
        ("multiplex-old-model", renamed(&weights, |name| format!("model.{}", old(name)))),
    ] {
        assert!(open(&weights, name) == expected, "{name}");
    }
    let folder = Folder::new("multiplex-gguf");
    let path = folder.0.join("model.gguf");
    write_gguf(&path, &outgoing(&weights), &Metadata::new(), Encoding::Keep).unwrap();
    assert!(tracked(&Sam::open(&path).unwrap(), "GGUF") == expected, "GGUF");
}
