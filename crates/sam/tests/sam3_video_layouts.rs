//! Phrases in video from all layouts of a file with detector and tracker: as `transformers` saves its Sam3VideoModel, as the class
//! names its tensors, with Meta's names, and as GGUF.

use cutout_sam::imaging::{Image, Rle, Size};
use cutout_sam::{Family, ObjectId, PhraseOptions, PhraseTrackError, Sam};
use cutout_tensor::{DType, Tensor};
use cutout_testing::StageFile;
use cutout_weights::layout::Model;
use cutout_weights::{Checkpoint, Encoding, Metadata, write_gguf, write_safetensors};

use crate::support::{Folder, ModelFile, Tensors, outgoing, sam2_metadata, tensors};

const FIXTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sam3/hugging_face_video.safetensors");
const TABLE: &str = "detector_model.text_encoder.text_model.embeddings.token_embedding.weight";

/// The small model, with a table of tokens.
fn saved() -> Tensors {
    let file = Checkpoint::open(FIXTURE).unwrap();
    let tensor = |name: &str| file.tensor(name).unwrap().cast(DType::F32).unwrap();
    let named = file.tensors().iter().map(|it| (it.name.clone(), tensor(&it.name)));
    let mut weights: Tensors = named.collect();
    let [rows, width] = [49408, 64];
    let number = |i: usize| ((i * 7919 + i / 64 * 104_729) % 2003) as f32 / 1000.0 - 1.0;
    let table = (0..rows * width).map(number).collect();
    weights.insert(TABLE.to_owned(), Tensor::from_vec([rows, width], table).unwrap());
    weights
}

fn frame(number: usize) -> Image {
    let size = Size::new(48, 40);
    let pixel = |i: usize| {
        let bright = (i % size.width + 5 * number) % 30 < 12 && i / size.width > 8;
        [if bright { 230 } else { 20 }, (i / size.width * 6) as u8, (i * 5 % 256) as u8]
    };
    Image::from_rgb(size, (0..size.width * size.height).flat_map(pixel).collect()).unwrap()
}

/// Number, score and mask of all objects of two phrases on a few frames.
fn found(sam: &Sam) -> Vec<Vec<(ObjectId, f32, Rle)>> {
    assert_eq!(sam.identity().family, Family::Sam3);
    let options = PhraseOptions {
        detection_threshold: 0.0,
        new_object_threshold: 0.0,
        duplicate_iou: 1.0,
        recondition_every: 2,
        fill_hole_area: 0,
        ..PhraseOptions::instant()
    };
    let mut tracker = sam.track_phrases(&["cat", "yellow bus"], options).unwrap();
    let frames = (0..4).map(|number| {
        let objects = tracker.push(&frame(number)).unwrap().unwrap().objects.into_iter();
        objects.map(|object| (object.id, object.probability, object.mask)).collect()
    });
    frames.collect()
}

#[test]
fn phrases_are_followed_the_same_from_every_layout() {
    let weights = saved();
    let folder = Folder::new("video-layouts");
    let original = ModelFile::write(&weights, &Metadata::new(), "video-saved");
    let expected = found(&original.open());
    assert!(expected.iter().all(|frame| !frame.is_empty()), "{expected:?}");
    assert!(expected.iter().flatten().any(|(_, _, mask)| (50..1800).contains(&mask.area())));
    let called = |name: &String| name.replace("tracker_model.tracker_model.", "tracker_model.");
    let called: Tensors =
        weights.iter().map(|(name, tensor)| (called(name), tensor.clone())).collect();
    assert!(called.keys().any(|name| !weights.contains_key(name)));
    let called = ModelFile::write(&called, &Metadata::new(), "video-called");
    assert_eq!(found(&called.open()), expected, "as the class names them");
    let [gguf, meta, meta_gguf] =
        ["saved.gguf", "meta.safetensors", "meta.gguf"].map(|name| folder.0.join(name));
    write_gguf(&gguf, &outgoing(&weights), &Metadata::new(), Encoding::Keep).unwrap();
    let checkpoint = Checkpoint::open(&gguf).unwrap();
    let model = Model::of(&checkpoint).unwrap();
    let converted = model.outgoing().tensors;
    assert!(converted.iter().any(|it| it.name.starts_with("tracker.maskmem_backbone.")));
    write_safetensors(&meta, &converted, &Metadata::new()).unwrap();
    write_gguf(&meta_gguf, &converted, &Metadata::new(), Encoding::Keep).unwrap();
    for path in [&gguf, &meta, &meta_gguf] {
        assert_eq!(found(&Sam::open(path).unwrap()), expected, "{}", path.display());
    }
}

#[test]
fn models_without_phrases_say_so() {
    let files = ["image", "memory"]
        .map(|part| StageFile::load(&format!("sam2/2.1_{part}.safetensors")).unwrap());
    let file = ModelFile::write(&tensors(&files), &sam2_metadata(&files[0]), "no-phrases");
    let asked = file.open().track_phrases(&["cat"], PhraseOptions::default());
    assert!(matches!(asked, Err(PhraseTrackError::Find(_))));
    // The tracker alone reads no phrases.
    let tracker = StageFile::load("sam3/hugging_face_tracker.safetensors").unwrap();
    let file = ModelFile::write(&tensors([&tracker]), &Metadata::new(), "tracker-alone");
    let asked = file.open().track_phrases(&["cat"], PhraseOptions::default());
    assert!(matches!(asked, Err(PhraseTrackError::Find(_))));
}
