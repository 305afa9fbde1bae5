//! `cutout everything`: options, single pictures and folders.

use cutout_imaging::{DecodeLimits, Size, open};
use serde_json::Value;

use crate::support::{Ended, Folder, MODEL, folder_with_model};

/// Options that keep every mask of a small grid: the scores of random weights are low.
const ALL: [&str; 8] = [
    "--points-per-side",
    "4",
    "--pred-iou-thresh",
    "0",
    "--stability-score-thresh",
    "0",
    "--box-nms-thresh",
    "1",
];

fn everything(folder: &Folder, input: &str, more: &[&str]) -> Ended {
    folder.cutout(&[&["everything", input, "--model", MODEL], &ALL[..], more].concat())
}

/// The masks of the picture with these options, which replace those of [`ALL`].
fn masks(folder: &Folder, options: &[(&str, &str)]) -> Vec<Value> {
    let mut arguments = vec!["everything", "picture.png", "-m", MODEL, "--json"];
    let kept = ALL.chunks_exact(2).filter(|pair| !options.iter().any(|(name, _)| *name == pair[0]));
    arguments.extend(kept.flatten());
    arguments.extend(options.iter().flat_map(|(name, value)| [*name, *value]));
    folder.cutout(&arguments).json().as_array().unwrap().clone()
}

#[test]
pub(crate) fn options_change_the_masks() {
    let folder = folder_with_model();
    let all = masks(&folder, &[]);
    assert_eq!(all.len(), 4 * 4 * 3, "three masks for each point");
    assert_eq!(masks(&folder, &[("--points-per-batch", "3")]), all, "batches change nothing");
    assert_eq!(masks(&folder, &[("--points-per-side", "2")]).len(), 2 * 2 * 3);
    let iou = |mask: &Value| mask["predicted_iou"].as_f64().unwrap();
    let sure = all.iter().filter(|mask| iou(mask) > 0.2).count();
    assert!(sure > 0 && sure < all.len());
    assert_eq!(masks(&folder, &[("--pred-iou-thresh", "0.2")]).len(), sure);
    assert_eq!(
        masks(&folder, &[("--pred-iou-thresh", "-5")]).len(),
        all.len(),
        "0 or less keeps all"
    );
    assert!(masks(&folder, &[("--stability-score-thresh", "0.9")]).is_empty());
    let closer = [("--stability-score-offset", "0.0001"), ("--stability-score-thresh", "0.9")];
    assert!(!masks(&folder, &closer).is_empty());
    assert!(masks(&folder, &[("--box-nms-thresh", "0.5")]).len() < all.len());
    let smooth = masks(&folder, &[("--min-mask-region-area", "200")]);
    assert_ne!(smooth, all);
    let refined = everything(&folder, "picture.png", &["--json", "--use-m2m"]).json();
    assert_eq!(refined.as_array().unwrap().len(), all.len());
    assert_ne!(refined, Value::from(all), "masks that are fed back come back as others");
}

#[test]
fn an_empty_result_is_explained() {
    let folder = folder_with_model();
    let ended = everything(&folder, "picture.png", &["-o", "masks.json"]);
    assert_eq!(ended.stderr, "");
    let strict = ["--stability-score-thresh", "0.99"];
    let kept = ALL.chunks_exact(2).filter(|pair| pair[0] != strict[0]).flatten().copied();
    let always = ["everything", "picture.png", "--model", MODEL, "-o", "masks.json"];
    let ended = folder.cutout(&always.into_iter().chain(kept).chain(strict).collect::<Vec<_>>());
    let note = "picture.png: no mask passed --pred-iou-thresh 0 and --stability-score-thresh 0.99;";
    assert!(ended.stderr.starts_with(note), "{}", ended.stderr);
    ended.succeeds();
}

#[test]
pub(crate) fn crops_add_masks() {
    let folder = folder_with_model();
    let all = masks(&folder, &[]).len();
    let layers = [("--crop-n-layers", "1"), ("--crop-nms-thresh", "1")];
    let cropped = masks(&folder, &layers);
    assert!(cropped.len() > all, "{}", cropped.len());
    let widths = |masks: &[Value]| -> Vec<u64> {
        masks.iter().map(|mask| mask["crop_box"][2].as_u64().unwrap()).collect()
    };
    let overlapping = widths(&cropped);
    assert!(overlapping.contains(&50), "the whole picture is one of the crops");
    assert!(overlapping.iter().any(|width| (26..50).contains(width)), "the others overlap");
    let apart = masks(&folder, &[&layers[..], &[("--crop-overlap-ratio", "0")]].concat());
    assert!(widths(&apart).iter().all(|width| [25, 50].contains(width)), "halves do not");
    let fewer = [&layers[..], &[("--crop-n-points-downscale-factor", "2")]].concat();
    assert!(masks(&folder, &fewer).len() < cropped.len());
    let stricter = [("--crop-n-layers", "1"), ("--crop-nms-thresh", "0.5")];
    assert!(masks(&folder, &stricter).len() < cropped.len());
}

#[test]
pub(crate) fn one_picture() {
    let folder = folder_with_model();
    let ended = everything(&folder, "picture.png", &[]);
    assert_eq!(ended.stderr, "wrote picture.masks.json and picture.everything.png\n");
    ended.succeeds();
    assert_eq!(folder.json("picture.masks.json").as_array().unwrap().len(), 48);
    assert!(folder.has("picture.everything.png"));
    let printed = everything(&folder, "picture.png", &["--json", "-o", "masks.json"]).json();
    assert_eq!(printed, folder.json("masks.json"));
    assert_eq!(printed[0]["segmentation"]["size"], serde_json::json!([31, 50]));
    let files = ["--output", "labels.png", "--overlay", "drawn.png"];
    everything(&folder, "picture.png", &files).succeeds();
    for name in ["labels.png", "drawn.png"] {
        let size = open(folder.path(name), &DecodeLimits::default()).unwrap().size();
        assert_eq!(size, Size::new(50, 31), "{name}");
    }
    everything(&folder, "picture.png", &["-o", "masks.npy"]).succeeds();
    assert!(folder.read("masks.npy").len() > 48 * 50 * 31);
    everything(&folder, "picture.png", &["-o", "out"]).succeeds();
    assert!(folder.has("out/picture/47.png") && !folder.has("out/picture/48.png"));
    let table = String::from_utf8(folder.read("out/picture/metadata.csv")).unwrap();
    assert_eq!(table.lines().count(), 49);
    assert!(table.starts_with("id,area,bbox_x0"), "{table}");
    assert!(folder.temporary_files().is_empty());
}

#[test]
pub(crate) fn a_folder_of_pictures() {
    let folder = folder_with_model();
    for name in ["photos/a.png", "photos/b.png"] {
        folder.picture(name, Size::new(40, 30));
    }
    folder.write("photos/c.png", "not a picture");
    folder.write("photos/notes.txt", "not looked at");
    let flags = ["-o", "masks", "--convert-to-rle", "--overlay", "drawn"];
    let ended = everything(&folder, "photos", &flags);
    assert!(ended.stderr.contains("error: photos/c.png"), "{}", ended.stderr);
    ended.fails(&["1 of 3 pictures failed"]);
    for name in ["masks/a.json", "masks/b.json", "drawn/a.png", "drawn/b.png"] {
        assert!(folder.has(name), "{name}");
    }
    folder.write("masks/a.json", "kept");
    std::fs::remove_file(folder.path("masks/b.json")).unwrap();
    std::fs::remove_file(folder.path("photos/c.png")).unwrap();
    everything(&folder, "photos", &["-o", "masks", "--convert-to-rle", "--resume"]).succeeds();
    assert_eq!(folder.read("masks/a.json"), b"kept", "what is there is left alone");
    assert!(folder.has("masks/b.json"));
    everything(&folder, "photos", &[]).wrong_usage(&["--output"]);
    everything(&folder, "photos", &["--json"]).wrong_usage(&["--output"]);
    everything(&folder, "photos", &["-o", "all.json"]).wrong_usage(&["go to a folder"]);
    std::fs::create_dir(folder.path("empty")).unwrap();
    everything(&folder, "empty", &["-o", "masks"]).fails(&["no pictures"]);
}

#[test]
pub(crate) fn invalid_options_and_ways_to_run() {
    let folder = folder_with_model();
    for (option, value, word) in [
        ("--points-per-batch", "0", "points_per_batch"),
        ("--box-nms-thresh", "2", "box_nms_thresh"),
        ("--crop-overlap-ratio", "-1", "crop_overlap_ratio"),
        ("--crop-n-layers", "99", "99"),
        ("--points-per-side", "100000", "points_per_side is 100000; at most 1024"),
    ] {
        let run = ["everything", "picture.png", "-m", MODEL, option, value];
        folder.cutout(&run).wrong_usage(&[word]);
    }
    let plain = everything(&folder, "picture.png", &["--json"]).json();
    for same in [["--threads", "1"], ["--device", "cpu"]] {
        let run = everything(&folder, "picture.png", &[&same[..], &["--json"]].concat());
        assert_eq!(run.json(), plain, "{same:?}");
    }
    let int8 = everything(&folder, "picture.png", &["--precision", "int8", "--json"]).json();
    assert_ne!(int8, plain);
    folder.write("int8.toml", "precision = \"int8\"\n");
    let run = everything(&folder, "picture.png", &["--profile", "int8.toml", "--json"]);
    assert_eq!(run.json(), int8);
    everything(&folder, "picture.png", &["--device", "cuda:1"]).fails(&["cuda:1"]);
    everything(&folder, "picture.png", &["--device", "cuda:4711,4712"]).fails(&["cuda:4711"]);
    everything(&folder, "picture.png", &["--device", "cuda:1,1"]).wrong_usage(&[
        "cuda:1,1",
        "auto, cpu, cuda, cuda:N",
        "cuda:all",
    ]);
    everything(&folder, "picture.png", &["--threads", "0"]).wrong_usage(&["--threads"]);
    everything(&folder, "picture.png", &["--vram-limit", "0"]).wrong_usage(&["--vram-limit"]);
    everything(&folder, "absent.png", &[]).fails(&["absent.png"]);
}

/// The files of a folder and of those in it, but for the pictures.
fn files(folder: &Folder, name: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.path(name)];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let shown = path.strip_prefix(folder.path(name)).unwrap().display().to_string();
                found.push((shown, std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn several_devices_write_the_files_of_one() {
    let folder = folder_with_model();
    for (name, side) in [("a", 40), ("b", 22), ("d", 31), ("e", 24), ("f", 50)] {
        folder.picture(&format!("photos/{name}.png"), Size::new(side, 30));
    }
    folder.write("photos/c.png", "not a picture");
    let run = |device: &str, output: &str| {
        let (masks, coco) = (format!("{output}/masks"), format!("{output}/coco.json"));
        let (drawn, labels) = (format!("{output}/drawn"), format!("{output}/yolo"));
        std::fs::create_dir_all(folder.path(output)).unwrap();
        let outputs = ["-o", &masks, "--coco", &coco, "--overlay", &drawn, "--yolo", &labels];
        let ended = everything(&folder, "photos", &[&outputs[..], &["--device", device]].concat());
        assert_eq!(ended.stderr.matches("error: photos/c.png").count(), 1, "{}", ended.stderr);
        ended.fails(&["1 of 6 pictures failed"]);
        files(&folder, output)
    };
    let one = run("cpu", "one");
    assert!(one.iter().any(|(name, bytes)| name == "coco.json" && bytes.len() > 1000));
    for device in ["cpux2", "cpux5"] {
        assert!(run(device, device) == one, "{device}");
    }
    // Going on: what is there is left alone, and what is missing is the same.
    let resume = |device: &str| {
        std::fs::remove_dir_all(folder.path("cpux5/masks/d")).unwrap();
        folder.write("cpux5/masks/a/metadata.csv", "kept");
        let masks = ["-o", "cpux5/masks", "--resume", "--device", device];
        everything(&folder, "photos", &masks).fails(&["1 of 6"]);
        files(&folder, "cpux5/masks")
    };
    let (first, second) = (resume("cpux3"), resume("cpu"));
    assert!(first == second && first.contains(&("a/metadata.csv".to_owned(), b"kept".to_vec())));
    assert!(folder.temporary_files().is_empty());
}
