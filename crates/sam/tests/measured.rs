//! Profiles for int8 that are measured, stored in files and read from them.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use cutout_imaging::{Image, Size};
use cutout_sam::{
    Device, LEAST_INT8_IOU, MeasuredProfile, Precision, Profile, Sam, SceneAnswers, StoredProfile,
    builtin_checkpoint, stored_profile,
};
use cutout_tensor::{DType, Tensor};
use cutout_weights::{
    Checkpoint, Encoding, Metadata, OutgoingTensor, write_gguf, write_safetensors,
};

/// The block whose weights are spoiled.
const BLOCK: &str = "image_encoder.trunk.blocks.6";

/// A file of this test, removed when dropped.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> Self {
        TestFile(
            std::env::temp_dir().join(format!("cutout-measured-{}-{name}", std::process::id())),
        )
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _removed = std::fs::remove_file(&self.0);
    }
}

/// The tensors of the built-in model. If it is spoiled, one input of the two largest layers of a block is always 0 and has weights that
/// are ten thousand times as large as the others: in `f32` nothing depends on them, and in 8 bits with one scale for a row
/// nothing is left of the others.
fn tensors(is_spoiled: bool) -> HashMap<String, Tensor> {
    let checkpoint = builtin_checkpoint().unwrap();
    let names = checkpoint.tensors().iter().map(|info| info.name.clone());
    let load = |name: String| {
        let tensor = checkpoint.tensor(&name).unwrap().cast(DType::F32).unwrap();
        let mut numbers = tensor.to_vec::<f32>().unwrap();
        let columns = tensor.shape().last_axis();
        for (norm, layer) in [("norm1", "attn.qkv"), ("norm2", "mlp.layers.0")] {
            if is_spoiled && name == format!("{BLOCK}.{layer}.weight") {
                numbers.chunks_mut(columns).for_each(|row| row[0] = 1000.0);
            }
            if is_spoiled && name.starts_with(&format!("{BLOCK}.{norm}.")) {
                numbers[0] = 0.0;
            }
        }
        (name, Tensor::from_vec(tensor.shape().clone(), numbers).unwrap())
    };
    names.map(load).collect()
}

fn outgoing(is_spoiled: bool) -> Vec<OutgoingTensor<'static>> {
    let tensors: BTreeMap<String, Tensor> = tensors(is_spoiled).into_iter().collect();
    tensors.into_iter().map(|(name, tensor)| OutgoingTensor::new(name, tensor)).collect()
}

/// The metadata of the built-in model, with a stored profile.
fn metadata(profile: Option<&str>) -> Metadata {
    let mut metadata = builtin_checkpoint().unwrap().metadata().clone();
    metadata.extend(profile.map(|text| (StoredProfile::KEY.to_owned(), text.into())));
    metadata
}

fn picture() -> Image {
    let size = Size::new(200, 150);
    let colour = |i: usize| {
        let (x, y) = (i % size.width, i / size.width);
        let disc = |x0: usize, y0: usize| x.abs_diff(x0).pow(2) + y.abs_diff(y0).pow(2) < 900;
        match (disc(60, 60), disc(140, 90)) {
            (true, _) => [230, 60, 40],
            (_, true) => [40, 200, 230],
            _ => [x as u8, y as u8, 90],
        }
    };
    Image::from_rgb(size, (0..size.width * size.height).flat_map(colour).collect()).unwrap()
}

fn cpu() -> Profile {
    Profile { device: Device::Cpu, ..Profile::default() }
}

/// The measured profile of a file, and the steps that were told.
fn measure(file: &Checkpoint) -> (MeasuredProfile, Vec<(usize, usize)>) {
    let mut steps = Vec::new();
    let mut step = |done, all| steps.push((done, all));
    let found = MeasuredProfile::of(file, &[picture()], &cpu(), &mut step).unwrap();
    (found.unwrap(), steps)
}

#[test]
fn a_layer_with_outliers_stays_in_higher_precision() {
    let file = TestFile::new("spoiled.gguf");
    write_gguf(&file.0, &outgoing(true), &metadata(None), Encoding::F32).unwrap();
    let (found, steps) = measure(&Checkpoint::open(&file.0).unwrap());
    assert!(found.plain_iou < LEAST_INT8_IOU, "{found:?}");
    assert!(found.iou >= LEAST_INT8_IOU, "{found:?}");
    assert_eq!(found.kept[0], BLOCK, "{found:?}");
    assert_eq!(found.profile.parts[BLOCK], Precision::Bf16);
    assert_eq!(found.profile.precision, Precision::Int8);
    // The other blocks are no worse than those of the model as it is.
    assert!(found.kept.len() <= 3, "{found:?}");
    assert_eq!((steps[0], *steps.last().unwrap()), ((0, 14), (14, 14)), "a run for each block");
}

#[test]
fn a_model_within_the_bound_says_what_is_used() {
    let file = TestFile::new("plain.safetensors");
    write_safetensors(&file.0, &outgoing(false), &metadata(None)).unwrap();
    let (found, steps) = measure(&Checkpoint::open(&file.0).unwrap());
    assert!(found.iou >= LEAST_INT8_IOU && found.iou < 1.0, "{found:?}");
    assert_eq!((found.iou, &found.kept[..], &steps[..]), (found.plain_iou, &[][..], &[][..]));
    // Its decoders and the patch embedding; no part of other models.
    let parts: Vec<&str> = found.profile.parts.keys().map(String::as_str).collect();
    assert_eq!(
        parts,
        ["image_encoder.trunk.patch_embed", "sam_mask_decoder", "sam_prompt_encoder"]
    );
    assert!(found.profile.parts.values().all(|&precision| precision == Precision::F32));
    let text = found.to_text();
    assert!(text.starts_with("# measured by cutout "), "{text}");
    assert_eq!(StoredProfile::parse(&text).unwrap(), found.profile);
}

const STORED: &str = "precision = \"int8\"\n[parts]\n\"image_encoder.trunk.blocks.6\" = \"bf16\"\n";

#[test]
fn files_of_both_formats_carry_their_profile() {
    for name in ["carried.gguf", "carried.safetensors"] {
        let file = TestFile::new(name);
        let metadata = metadata(Some(STORED));
        match name.ends_with("gguf") {
            true => write_gguf(&file.0, &outgoing(false), &metadata, Encoding::Keep).unwrap(),
            false => write_safetensors(&file.0, &outgoing(false), &metadata).unwrap(),
        }
        let checkpoint = Checkpoint::open(&file.0).unwrap();
        let stored = stored_profile(&checkpoint).unwrap().unwrap();
        assert_eq!(stored, StoredProfile::parse(STORED).unwrap());
        let open = |own: &str| {
            let profile = Profile { device: Device::Cpu, ..Profile::parse(own).unwrap() };
            Sam::open_with(&file.0, profile).unwrap()
        };
        let block = |own: &str| open(own).profile().precision_of(&format!("{BLOCK}.mlp"));
        assert_eq!(block("precision = \"int8\""), Precision::Bf16);
        assert_eq!(
            block("precision = \"int8\"\n[parts]\nimage_encoder = \"int8\""),
            Precision::Int8
        );
        assert_eq!(block("precision = \"bf16\""), Precision::Bf16);
        assert_eq!(block("precision = \"f32\""), Precision::F32);
        assert_eq!(block(""), Precision::Auto, "what it costs changes nothing about f32");
        // It is not only said: the features are others than those without it.
        let features = |sam: &Sam| {
            let scene = sam.embed(&picture()).unwrap();
            scene.image_embedding().unwrap().to_contiguous().unwrap().to_vec::<f32>().unwrap()
        };
        let all = open(
            "precision = \"int8\"\n[parts]\nimage_encoder = \"int8\"\n\"image_encoder.trunk.patch_embed\" = \"f32\"",
        );
        assert_ne!(features(&open("precision = \"int8\"")), features(&all), "{name}");
    }
}

#[test]
fn a_malformed_stored_profile_is_an_error_that_names_the_file() {
    for (text, part) in [
        ("precision = \"int8\"\nthreads = 7\n", "line 2: unknown field `threads`"),
        ("precision = \"int8\"\n[parts]\na = \"int1\"\n", "line 3: unknown variant `int1`"),
        ("", "missing field `precision`"),
        (&"#".repeat(StoredProfile::MAX_BYTES + 1), "more than the 65536 allowed"),
    ] {
        let file = TestFile::new("malformed.safetensors");
        write_safetensors(&file.0, &outgoing(false), &metadata(Some(text))).unwrap();
        let open = |precision| Sam::open_with(&file.0, Profile { precision, ..cpu() });
        let error = open(Precision::Int8).err().unwrap().to_string();
        assert!(
            error.contains("malformed.safetensors: cutout.profile in its metadata: "),
            "{error}"
        );
        assert!(error.contains(part), "{error}");
        assert!(open(Precision::F32).is_ok(), "it is not read for other precisions");
    }
}

#[test]
fn measured_masks_are_those_that_a_user_gets() {
    let file = TestFile::new("same.gguf");
    write_gguf(&file.0, &outgoing(true), &metadata(None), Encoding::Q8_0).unwrap();
    let (found, _) = measure(&Checkpoint::open(&file.0).unwrap());
    write_gguf(&file.0, &outgoing(true), &metadata(Some(&found.to_text())), Encoding::Q8_0)
        .unwrap();
    let answers = |precision| {
        let sam = Sam::open_with(&file.0, Profile { precision, ..cpu() }).unwrap();
        SceneAnswers::of(&sam.embed(&picture()).unwrap(), &[]).unwrap()
    };
    let mut loss = cutout_sam::Loss::default();
    loss.add(&answers(Precision::Int8), &answers(Precision::F32)).unwrap();
    assert_eq!(loss.mask_iou(), Some(found.iou));
}
