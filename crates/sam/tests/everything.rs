//! Automatic masks against Meta's own generators, on a small trained model of SAM 1 and one of SAM 2.1.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::support::{ModelFile, sam2_metadata, tensors};
use cutout_parallel::Pool;
use cutout_sam::imaging::{Image, Rle, Size};
use cutout_sam::{
    AutoMask, Everything, EverythingError, EverythingOptionError, Phase, PixelBox, Point,
    Precision, Profile, Progress, RleForm, Sam, metadata_csv,
};
use cutout_testing::{Interpreted, StageFile};
use cutout_weights::{Checkpoint, Metadata};
use serde_json::Value;

/// A model, pictures, and the masks of Meta's generator.
struct Model {
    file: ModelFile,
    pictures: StageFile,
    answers: Value,
}

impl Model {
    /// SAM 1.
    fn new(test: &str) -> Self {
        let file = StageFile::load("everything/model.safetensors").unwrap();
        Model {
            file: ModelFile::write(&tensors([&file]), &Metadata::new(), &format!("every-{test}")),
            pictures: file,
            answers: answers("masks.json"),
        }
    }

    /// SAM 2.1, with the same pictures.
    fn sam2(test: &str) -> Self {
        let file = StageFile::load("everything/sam2_model.safetensors").unwrap();
        let name = format!("every-sam2-{test}");
        Model {
            file: ModelFile::write(&tensors([&file]), &sam2_metadata(&file), &name),
            answers: answers("sam2_masks.json"),
            ..Model::new(&name)
        }
    }

    fn open(&self, threads: usize) -> Sam {
        let threads = NonZeroUsize::new(threads);
        let profile = Profile { threads, precision: Precision::F32, ..Profile::default() };
        Sam::from_checkpoint(&Checkpoint::open(&self.file.0).unwrap(), profile).unwrap()
    }

    fn picture(&self, name: &str) -> Image {
        let pictures = self.pictures.inputs("picture");
        let (_, pixels) = pictures.iter().find(|(found, _)| found == name).unwrap();
        let &[height, width, 3] = &pixels.shape()[..] else { panic!("{}", pixels.ty()) };
        Image::from_rgb(Size::new(width, height), pixels.to_vec().unwrap()).unwrap()
    }
}

/// Options and the masks that Meta finds with them.
struct Case {
    name: String,
    picture: String,
    options: Everything,
    masks: Vec<AutoMask>,
}

fn answers(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/everything");
    let path = folder.join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn cases(model: &Model) -> Vec<Case> {
    let family = model.open(1).identity().family;
    let read = |case: &Value| {
        let text = |key: &str| case[key].as_str().unwrap().to_owned();
        let size = model.picture(&text("picture")).size();
        let masks = case["masks"].as_array().unwrap();
        Case {
            name: text("name"),
            picture: text("picture"),
            options: options(&case["options"], Everything::for_family(family)),
            masks: masks.iter().map(|mask| read_mask(mask, size)).collect(),
        }
    };
    model.answers["cases"].as_array().unwrap().iter().map(read).collect()
}

fn case(model: &Model, name: &str) -> Case {
    cases(model).into_iter().find(|case| case.name == name).unwrap()
}

/// A family's defaults, but for the options that are given.
fn options(given: &Value, mut options: Everything) -> Everything {
    for (name, value) in given.as_object().unwrap() {
        let count = || value.as_u64().unwrap() as usize;
        let number = || value.as_f64().unwrap();
        match name.as_str() {
            "points_per_side" => options.points_per_side = count(),
            "points_per_batch" => options.points_per_batch = count(),
            "pred_iou_thresh" => options.pred_iou_thresh = number(),
            "stability_score_thresh" => options.stability_score_thresh = number(),
            "stability_score_offset" => options.stability_score_offset = number(),
            "box_nms_thresh" => options.box_nms_thresh = number(),
            "crop_n_layers" => options.crop_n_layers = count(),
            "crop_nms_thresh" => options.crop_nms_thresh = number(),
            "crop_overlap_ratio" => options.crop_overlap_ratio = number(),
            "crop_n_points_downscale_factor" => options.crop_n_points_downscale_factor = count(),
            "min_mask_region_area" => options.min_mask_region_area = count(),
            "use_m2m" => options.use_m2m = value.as_bool().unwrap(),
            "point_grids" => {
                options.point_grids = Some(value.as_array().unwrap().iter().map(grid).collect())
            }
            other => panic!("no such option: {other}"),
        }
    }
    options
}

fn grid(points: &Value) -> Vec<[f64; 2]> {
    let point = |point: &Value| [0, 1].map(|axis| point[axis].as_f64().unwrap());
    points.as_array().unwrap().iter().map(point).collect()
}

fn read_mask(mask: &Value, size: Size) -> AutoMask {
    let number = |value: &Value| value.as_f64().unwrap();
    let pixel_box = |key: &str| {
        let [x, y, width, height] = [0, 1, 2, 3].map(|i| number(&mask[key][i]) as usize);
        PixelBox { x, y, width, height }
    };
    let [x, y] = [0, 1].map(|axis| number(&mask["point_coords"][0][axis]));
    AutoMask {
        rle: Rle::from_coco_string(size, mask["segmentation"].as_str().unwrap()).unwrap(),
        area: mask["area"].as_u64().unwrap() as usize,
        bbox: pixel_box("bbox"),
        predicted_iou: number(&mask["predicted_iou"]) as f32,
        point_coords: Point { x, y },
        stability_score: mask["stability_score"].as_f64().map_or(f32::NAN, |score| score as f32),
        crop_box: pixel_box("crop_box"),
    }
}

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Pixels in which two masks differ.
fn different(a: &Rle, b: &Rle) -> usize {
    let (a, b) = (a.to_mask().unwrap(), b.to_mask().unwrap());
    a.pixels().iter().zip(b.pixels()).filter(|(a, b)| a != b).count()
}

/// The same masks in the same order, but for pixels whose logits are rounding errors away from a threshold.
fn assert_same(found: &[AutoMask], expected: &[AutoMask], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: number of masks");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let what = format!("{what}, mask {index}: {found:?}, expected {expected:?}");
        // SAM 2's generator has its points as f32.
        let (a, b) = (found.point_coords, expected.point_coords);
        assert!((a.x - b.x).abs() < 1e-4 && (a.y - b.y).abs() < 1e-4, "{what}");
        assert_eq!(found.crop_box, expected.crop_box, "{what}");
        assert!((found.predicted_iou - expected.predicted_iou).abs() < 2e-5, "{what}");
        let size = found.rle.size();
        let pixels = different(&found.rle, &expected.rle);
        assert!(pixels * 1000 <= size.width * size.height, "{pixels} pixels differ: {what}");
        assert_eq!(found.area, found.rle.area(), "{what}");
        if pixels == 0 {
            assert_eq!((found.bbox, found.area), (expected.bbox, expected.area), "{what}");
        }
        let (a, b) = (found.stability_score, expected.stability_score);
        let one_pixel = 1.0 / expected.area.max(1) as f32;
        assert!((a - b).abs() <= 2.0 * one_pixel || (a.is_nan() && b.is_nan()), "{what}");
    }
}

#[test]
fn masks_are_those_of_meta() {
    for model in [Model::new("meta"), Model::sam2("meta")] {
        let sam = model.open(2);
        for case in cases(&model) {
            let image = model.picture(&case.picture);
            let found = sam.everything(&image, &case.options, &mut go_on).unwrap();
            assert_same(&found, &case.masks, &case.name);
        }
    }
}

/// A device whose values are not on the host makes the masks at full size itself: the same, pixel by pixel.
#[test]
fn masks_made_on_the_device_are_those_of_the_host() {
    for model in [Model::new("device"), Model::sam2("device")] {
        let open = |backend: Interpreted| {
            let checkpoint = Checkpoint::open(&model.file.0).unwrap();
            let pool = Arc::new(Pool::new(2));
            Sam::on(&checkpoint, Profile::default(), Arc::new(backend), pool).unwrap()
        };
        let (device, host) = (open(Interpreted::default()), open(Interpreted::on_host()));
        for refined in [false, true] {
            let options = Everything {
                points_per_side: 3,
                pred_iou_thresh: 0.0,
                stability_score_thresh: 0.1,
                stability_score_offset: 0.5,
                crop_n_layers: usize::from(!refined),
                use_m2m: refined,
                ..Everything::default()
            };
            let image = model.picture(&cases(&model)[0].picture);
            let found = device.everything(&image, &options, &mut go_on).unwrap();
            let expected = host.everything(&image, &options, &mut go_on).unwrap();
            let cropped = expected.iter().any(|mask| mask.crop_box != expected[0].crop_box);
            assert!(refined || cropped, "masks of several crops");
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn refining_and_the_defaults_of_sam2_make_a_difference() {
    let model = Model::sam2("refining");
    let sam = model.open(2);
    let find = |case: &Case, options: &Everything| {
        sam.everything(&model.picture(&case.picture), options, &mut go_on).unwrap()
    };
    let refined = case(&model, "sam2_refined_unfiltered");
    let once = find(&refined, &Everything { use_m2m: false, ..refined.options.clone() });
    assert_ne!(once, find(&refined, &refined.options));
    let usual = case(&model, "sam2_defaults_but_stability");
    let pred_iou_thresh = Everything::default().pred_iou_thresh;
    let fewer = find(&usual, &Everything { pred_iou_thresh, ..usual.options.clone() });
    assert!(fewer.len() < usual.masks.len(), "SAM 1's default keeps as many masks");
}

#[test]
fn the_cases_make_every_filter_work() {
    let model = Model::new("filters");
    let sam = model.open(2);
    let count = |name: &str, change: &dyn Fn(&mut Everything)| {
        let Case { picture, mut options, .. } = case(&model, name);
        change(&mut options);
        sam.everything(&model.picture(&picture), &options, &mut go_on).unwrap().len()
    };
    let strict = count("strict", &|_| ());
    assert!(strict < count("strict", &|options| options.pred_iou_thresh = 0.0));
    assert!(strict < count("strict", &|options| options.stability_score_thresh = 0.0));
    assert!(strict < count("strict", &|options| options.box_nms_thresh = 1.0));
    let layers = count("two_layers", &|_| ());
    assert!(layers < count("two_layers", &|options| options.crop_nms_thresh = 1.0));
    let clean = case(&model, "clean");
    let options = Everything { min_mask_region_area: 0, ..clean.options };
    let raw = sam.everything(&model.picture(&clean.picture), &options, &mut go_on).unwrap();
    let changed = clean.masks.iter().filter(|mask| raw.iter().all(|raw| raw.rle != mask.rle));
    assert!(changed.count() > 2, "some masks are cleaned");
    assert!(clean.masks.len() < raw.len(), "some become doubles");
    let empty = case(&model, "no_filters").masks;
    assert!(empty.iter().any(|mask| mask.stability_score.is_nan()), "a mask is empty");
}

#[test]
fn a_threshold_is_above_the_iou_and_within_the_stability() {
    let model = Model::new("thresholds");
    let Case { picture, options, .. } = case(&model, "few_points");
    let scene = model.open(2).embed(&model.picture(&picture)).unwrap();
    let options = Everything { box_nms_thresh: 1.0, ..options };
    let masks = scene.everything(&options).unwrap();
    let mask = &masks[masks.len() / 2];
    let pred_iou_thresh = mask.predicted_iou.into();
    let above = scene.everything(&Everything { pred_iou_thresh, ..options.clone() }).unwrap();
    assert!(!above.is_empty() && !above.contains(mask));
    let stability_score_thresh = mask.stability_score.into();
    let stable = scene.everything(&Everything { stability_score_thresh, ..options }).unwrap();
    assert!(stable.len() < masks.len() && stable.contains(mask));
}

#[test]
fn a_scene_gives_the_masks_of_its_picture() {
    let model = Model::new("scene");
    let sam = model.open(1);
    for name in ["portrait", "clean"] {
        let case = case(&model, name);
        let image = model.picture(&case.picture);
        let scene = sam.embed(&image).unwrap();
        let found = scene.everything(&case.options).unwrap();
        assert_eq!(found, sam.everything(&image, &case.options, &mut go_on).unwrap());
        let options = Everything { crop_n_layers: 1, ..case.options };
        let refused = scene.everything(&options).unwrap_err();
        assert!(matches!(refused, EverythingError::CropsNeedThePicture(1)), "{refused}");
    }
}

#[test]
fn threads_and_batches_change_nothing() {
    let model = Model::new("threads");
    let case = case(&model, "clean_crops");
    let image = model.picture(&case.picture);
    let found = |threads: usize, points_per_batch: usize| {
        let options = Everything { points_per_batch, ..case.options.clone() };
        model.open(threads).everything(&image, &options, &mut go_on).unwrap()
    };
    let first = found(1, 64);
    assert_eq!(found(2, 64), first);
    assert_eq!(found(5, 64), first);
    for batch in [1, 7, 100_000] {
        assert_same(&found(2, batch), &first, &format!("batches of {batch}"));
    }
}

#[test]
fn progress_is_reported_and_can_stop_the_work() {
    let model = Model::new("progress");
    let sam = model.open(2);
    let Case { picture, options, masks, .. } = case(&model, "clean_crops");
    let image = model.picture(&picture);
    let mut told: Vec<Progress> = Vec::new();
    let found = sam.everything(&image, &options, &mut |progress| {
        told.push(progress);
        ControlFlow::Continue(())
    });
    assert_eq!(found.unwrap().len(), masks.len());
    assert!(told.iter().all(|p| (p.points, p.crops) == (5 * 64, 5)), "{told:?}");
    assert!(told.is_sorted_by_key(|progress| (progress.points_done, progress.crops_done)));
    assert_eq!(told.iter().filter(|p| p.phase == Phase::Embedding).count(), 5);
    assert_eq!(told.iter().filter(|p| p.phase == Phase::Decoding).count(), 5 * 4);
    let last = told.last().unwrap();
    assert_eq!((last.phase, last.points_done, last.crops_done), (Phase::Cleaning, 5 * 64, 5));
    assert!(last.masks >= masks.len(), "{last:?}");

    for stop in 0..told.len() {
        let mut calls = 0;
        let stopped = sam.everything(&image, &options, &mut |_| {
            calls += 1;
            if calls > stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(stopped, Err(EverythingError::Stopped)));
        assert_eq!(calls, stop + 1, "nothing is told after the stop");
    }
}

#[test]
fn wrong_options_are_errors_before_any_work() {
    let model = Model::new("options");
    let sam = model.open(1);
    let never = &mut |_| panic!("no work is done");
    let image = model.picture("wide");
    let options = Everything { points_per_batch: 0, ..Everything::default() };
    let error = sam.everything(&image, &options, never).unwrap_err();
    let zero = EverythingOptionError::Zero { option: "points_per_batch" };
    assert!(matches!(error, EverythingError::Option(found) if found == zero));
    let options = Everything { crop_n_layers: 8, ..Everything::default() };
    let error = sam.everything(&image, &options, never).unwrap_err();
    assert_eq!(
        error.to_string(),
        "170×120 pixels are too few for the crops of layer 4: some would have no pixels"
    );
}

/// Fails unless two JSON values are the same; numbers may be written differently.
fn assert_json(found: &Value, expected: &Value) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            assert!(found.keys().eq(expected.keys()), "{found:?}, expected {expected:?}");
            found.iter().for_each(|(key, value)| assert_json(value, &expected[key]));
        }
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len());
            found.iter().zip(expected).for_each(|(found, expected)| assert_json(found, expected));
        }
        (Value::Number(found), Value::Number(expected)) => {
            assert_eq!(found.as_f64(), expected.as_f64());
        }
        (found, expected) => assert_eq!(found, expected),
    }
}

#[test]
fn files_are_those_of_meta() {
    let model = Model::new("files");
    let written = &model.answers["written"];
    let masks = case(&model, written["case"].as_str().unwrap()).masks;

    let records: Vec<_> = masks.iter().map(|mask| mask.record(RleForm::Compressed)).collect();
    let json = serde_json::to_string(&records).unwrap();
    let expected: Value = serde_json::from_str(written["json"].as_str().unwrap()).unwrap();
    assert_json(&serde_json::from_str(&json).unwrap(), &expected);
    let keys =
        ["{\"segmentation\":{\"size\":[120,170],\"counts\":", "area", "bbox", "predicted_iou"];
    let places: Vec<Option<usize>> = keys.iter().map(|key| json.find(key)).collect();
    assert!(places[0] == Some(1) && places.is_sorted(), "{places:?}");
    let runs = serde_json::to_value(masks[0].record(RleForm::Counts)).unwrap();
    assert_json(&runs["segmentation"]["counts"], &serde_json::json!(masks[0].rle.counts()));

    let table = metadata_csv(&masks);
    let expected = written["csv"].as_str().unwrap();
    assert_eq!(table.lines().count(), expected.lines().count());
    assert_eq!(table.lines().next(), expected.lines().next());
    for (found, expected) in table.lines().zip(expected.lines()).skip(1) {
        let numbers = |line: &str| -> Vec<f64> {
            line.split(',').map(|field| field.parse().unwrap()).collect()
        };
        assert_eq!(numbers(found), numbers(expected));
    }
}
