//! Data sets and outlines for other programs. `fixtures/check_exports.py` opens them with those programs.

use cutout_imaging::{DecodeLimits, Mask, Polygon, Rle, Size, fill_polygons, open};
use serde_json::{Value, json};

use crate::support::{Folder, MODEL, folder_with_model};

const SIZE: Size = Size { width: 50, height: 31 };

/// Arguments that keep every mask of a small grid.
const ALL: [&str; 10] = [
    "--model",
    MODEL,
    "--points-per-side",
    "2",
    "--pred-iou-thresh",
    "0",
    "--stability-score-thresh",
    "0",
    "--box-nms-thresh",
    "1",
];

fn ring(numbers: &[f64]) -> Vec<[f64; 2]> {
    numbers.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The mask of an annotation, as run lengths or as polygons.
fn mask(annotation: &Value) -> Mask {
    let shape = &annotation["segmentation"];
    match shape.as_array() {
        None => {
            assert_eq!(shape["size"], json!([31, 50]));
            Rle::from_coco_string(SIZE, shape["counts"].as_str().unwrap())
                .unwrap()
                .to_mask()
                .unwrap()
        }
        Some(rings) => {
            let part = |part: &Value| Polygon { outer: ring(&numbers(part)), holes: Vec::new() };
            fill_polygons(SIZE, &rings.iter().map(part).collect::<Vec<_>>()).unwrap()
        }
    }
}

/// The classes and masks of YOLO's labels.
fn labels(text: &[u8]) -> Vec<(usize, Mask)> {
    let line = |line: &str| {
        let (class, rest) = line.split_once(' ').unwrap();
        let shares: Vec<f64> = rest.split(' ').map(|number| number.parse().unwrap()).collect();
        assert!(
            shares.len() >= 6 && shares.iter().all(|share| (0.0..=1.0).contains(share)),
            "{line}"
        );
        let outer = ring(&shares).into_iter().map(|[x, y]| [x * 50.0, y * 31.0]).collect();
        let mask = fill_polygons(SIZE, &[Polygon { outer, holes: Vec::new() }]).unwrap();
        (class.parse().unwrap(), mask)
    };
    std::str::from_utf8(text).unwrap().lines().map(line).collect()
}

/// Checks what pycocotools and its users rely on.
fn check_data_set(data: &Value, pictures: usize) {
    let list = |name: &str| data[name].as_array().unwrap();
    let ids = |name: &str| -> Vec<u64> {
        list(name).iter().map(|entry| entry["id"].as_u64().unwrap()).collect()
    };
    for name in ["images", "annotations", "categories"] {
        assert_eq!(ids(name), (1..=list(name).len() as u64).collect::<Vec<_>>(), "{name}");
    }
    assert_eq!(list("images").len(), pictures);
    for annotation in list("annotations") {
        assert!(ids("images").contains(&annotation["image_id"].as_u64().unwrap()));
        assert!(ids("categories").contains(&annotation["category_id"].as_u64().unwrap()));
        assert_eq!(annotation["iscrowd"], 0);
        assert_eq!(annotation["bbox"].as_array().unwrap().len(), 4);
        assert!(annotation["area"].is_u64());
    }
    assert!(data["info"]["description"].as_str().unwrap().starts_with("SAM 1"));
}

/// `segment` with one point and these outputs.
fn outputs(folder: &Folder, stem: &str, more: &[&str]) {
    let files = ["json", "svg", "geojson", "txt"].map(|kind| format!("{stem}.{kind}"));
    let flags = files.iter().flat_map(|file| ["-o", file.as_str()]);
    folder.segment(&flags.chain(more.iter().copied()).collect::<Vec<_>>()).succeeds();
}

#[test]
fn records_are_a_coco_data_set() {
    let folder = folder_with_model();
    let data = folder.segment(&["--json", "--multimask"]).json();
    check_data_set(&data, 1);
    assert_eq!(data["annotations"].as_array().unwrap().len(), 3);
    assert_eq!(
        data["images"],
        json!([{"id": 1, "file_name": "picture.png", "width": 50, "height": 31}])
    );
    assert_eq!(data["categories"], json!([{"id": 1, "name": "object"}]));
}

#[test]
pub(crate) fn outlines_are_simplified() {
    let folder = folder_with_model();
    outputs(&folder, "full", &[]);
    outputs(&folder, "exact", &["--simplify", "0"]);
    outputs(&folder, "simple", &["--simplify", "1.5"]);
    let data = |stem: &str| folder.json(&format!("{stem}.json"));
    let found = |stem: &str| mask(&data(stem)["annotations"][0]);
    let full = found("full");
    assert!(data("full")["annotations"][0]["segmentation"].is_object(), "run lengths");
    assert!(data("exact")["annotations"][0]["segmentation"].is_array(), "polygons");
    assert_eq!(found("exact"), full, "holes and parts are kept");
    let near = |mask: &Mask| mask.to_rle().unwrap().iou(&full.to_rle().unwrap()).unwrap();
    assert!(near(&found("simple")) > 0.5, "{}", near(&found("simple")));
    for stem in ["full", "exact"] {
        assert_eq!(labels(&folder.read(&format!("{stem}.txt"))), [(0, full.clone())], "{stem}");
    }
    check_data_set(&data("simple"), 1);
    assert_eq!(folder.read("full.svg"), folder.read("exact.svg"));
    for kind in ["svg", "geojson", "txt"] {
        let length = |stem: &str| folder.read(&format!("{stem}.{kind}")).len();
        assert!(length("simple") * 3 < length("full") * 2, "{kind}");
    }
    let wrong = |value: &str| folder.segment(&["-o", "a.svg", "--simplify", value]);
    for value in ["-1", "nan", "inf", "much"] {
        wrong(value).wrong_usage(&["simplify"]);
    }
    folder.segment(&["-o", "a.png", "--simplify", "1"]).wrong_usage(&["--simplify needs --json"]);
    folder.segment(&["--simplify", "1"]).wrong_usage(&["--simplify needs --json"]);
}

#[test]
fn phrases_are_classes() {
    let folder = crate::support::folder_with_sam3();
    let find = ["--text", "cat", "--text", "bus", "--threshold", "0"];
    folder.find(&[&find[..], &["-o", "found.txt", "-o", "found.json"]].concat()).succeeds();
    let data = folder.json("found.json");
    assert_eq!(data["categories"], json!([{"id": 1, "name": "cat"}, {"id": 2, "name": "bus"}]));
    let annotations = data["annotations"].as_array().unwrap();
    let class = |annotation: &Value| annotation["category_id"].as_u64().unwrap() as usize - 1;
    let expected: Vec<(usize, Mask)> =
        annotations.iter().map(|annotation| (class(annotation), mask(annotation))).collect();
    // Empty masks have no outline.
    let expected: Vec<_> = expected.into_iter().filter(|(_, mask)| mask.area() > 0).collect();
    assert_eq!(labels(&folder.read("found.txt")), expected);
    assert!(expected.iter().any(|(class, _)| *class == 1));
}

#[test]
pub(crate) fn a_folder_becomes_a_data_set() {
    let folder = folder_with_model();
    folder.picture("photos/a.png", SIZE);
    folder.picture("photos/b.png", SIZE);
    folder.write("photos/broken.png", "not a picture");
    let everything = |input: &str, more: &[&str]| {
        folder.cutout(&[&["everything", input], &ALL[..], more].concat())
    };
    // A broken picture is reported, the others are in the data set.
    everything("photos", &["--coco", "all.json"]).fails(&["broken.png", "1 of 3 pictures failed"]);
    std::fs::remove_file(folder.path("photos/broken.png")).unwrap();
    let data = folder.json("all.json");
    check_data_set(&data, 2);
    assert_eq!(data["images"][1]["file_name"], "b.png");
    let masks = everything("photos/a.png", &["--json"]).json();
    let annotations = data["annotations"].as_array().unwrap();
    assert_eq!(annotations.len(), 2 * masks.as_array().unwrap().len());
    assert_eq!(annotations[0]["segmentation"], masks[0]["segmentation"]);
    assert_eq!(annotations.last().unwrap()["image_id"], 2);
    everything("photos", &["--coco", "simple.json", "--yolo", "set", "--simplify", "0"]).succeeds();
    let simple = folder.json("simple.json");
    let pairs = || simple["annotations"].as_array().unwrap().iter().zip(annotations);
    assert!(pairs().all(|(polygons, runs)| mask(polygons) == mask(runs)));
    assert!(pairs().any(|(polygons, _)| polygons["segmentation"].is_array()));
    let shown: Vec<(usize, Mask)> = annotations
        .iter()
        .filter(|annotation| annotation["image_id"] == 2 && annotation["area"] != 0)
        .map(|annotation| (0, mask(annotation)))
        .collect();
    assert_eq!(labels(&folder.read("set/labels/b.txt")), shown);
    assert!(String::from_utf8(folder.read("set/data.yaml")).unwrap().contains("0: object"));
    assert!(folder.temporary_files().is_empty());
    // Our own labels are replaced, those of others are not, and pictures never.
    everything("photos", &["--yolo", "set"]).succeeds();
    std::fs::remove_file(folder.path("set/data.yaml")).unwrap();
    everything("photos", &["--yolo", "set"]).wrong_usage(&["set/labels", "not written by cutout"]);
    everything("photos", &["--coco", "photos/a.png"]).wrong_usage(&[".json"]);
    everything("photos", &["--yolo", "same", "--overlay", "same"]).wrong_usage(&["two outputs"]);
    // One picture; what cannot be meant.
    everything("picture.png", &["--coco", "one.json"]).succeeds();
    check_data_set(&folder.json("one.json"), 1);
    everything("photos", &["--coco", "x.json", "--resume"]).wrong_usage(&["--resume"]);
    everything("photos", &["-o", "out", "--simplify", "1"]).wrong_usage(&["--simplify needs"]);
    everything("photos", &["--coco", "nowhere/x.json"]).wrong_usage(&["the folder does not exist"]);
    folder.picture("photos/a.bmp.png", SIZE);
    std::fs::rename(folder.path("photos/a.bmp.png"), folder.path("photos/a.webp")).unwrap();
    everything("photos", &["--yolo", "set"]).wrong_usage(&["a.webp", "another picture"]);
    open(folder.path("photos/a.png"), &DecodeLimits::default()).unwrap();
}
