//! `cutout compare`.

use cutout_imaging::Size;

use crate::support::{MODEL, SAM3, folder_with_model, folder_with_sam3};

#[test]
pub(crate) fn errors_masks_time_and_memory_of_each_precision() {
    let folder = folder_with_model();
    folder.picture("pictures/a.png", Size::new(64, 48));
    folder.picture("pictures/b.png", Size::new(40, 60));
    let flags = ["--images", "pictures", "--precision", "f32,bf16,int8", "--threads", "2"];
    let report = folder.cutout(&[&["compare", MODEL, "--json"], &flags[..]].concat()).json();
    assert_eq!(report["pictures"], 2);
    let rows = report["precisions"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["precision"].as_str().unwrap()).collect();
    assert_eq!(names, ["f32", "f32", "bf16", "int8"]);
    assert!(rows[0]["encoder_error"].is_null(), "f32 is the reference");
    // The same precision again gives the same bits.
    assert_eq!(rows[1]["encoder_error"], 0.0);
    assert_eq!((&rows[1]["mask_iou"], &rows[1]["least_iou"]), (&1.0.into(), &1.0.into()));
    assert_eq!(rows[1]["other_choices"], 0.0);
    let error = |row: usize, key: &str| rows[row][key].as_f64().unwrap();
    for (row, most) in [(2, 0.02), (3, 0.2)] {
        for key in ["encoder_error", "logit_error"] {
            assert!((1e-6..most).contains(&error(row, key)), "{}: {}", names[row], rows[row]);
        }
        assert!((0.0..=1.0).contains(&error(row, "mask_iou")), "{}", rows[row]);
        assert!(error(row, "least_iou") <= error(row, "mask_iou"), "{}", rows[row]);
    }
    for row in rows {
        assert!(row["embed_ms"].as_f64().unwrap() > 0.0 && row["answers_ms"].is_number(), "{row}");
        assert_eq!(row["memory_mib"].is_number(), cfg!(target_os = "linux"), "{row}");
    }
}

#[test]
pub(crate) fn the_table_and_mistakes() {
    let folder = folder_with_model();
    let compare = |flags: &[&str]| folder.cutout(&[&["compare", MODEL], flags].concat());
    let text = compare(&["--images", "picture.png", "--precision", "bf16"]).succeeds();
    for words in ["encoder error", "mask IoU", "embed ms", "f32", "bf16"] {
        assert!(text.contains(words), "{words:?} is not in:\n{text}");
    }
    assert!(!text.contains("found IoU"), "no phrases were asked:\n{text}");
    compare(&["--precision", "bf16"]).wrong_usage(&["--images"]);
    compare(&["--images", "absent.png"]).fails(&["absent.png"]);
    compare(&["--images", "picture.png", "--precision", "f64"]).wrong_usage(&["f64"]);
    compare(&["--images", "picture.png", "--limit", "0"]).wrong_usage(&["--limit"]);
    compare(&["--images", "picture.png", "--threads", "0"]).wrong_usage(&["--threads"]);
    compare(&["--images", "picture.png", "--device", "cuda:4711"]).fails(&["cuda:4711"]);
    compare(&["--images", "picture.png", "--text", "cat"]).fails(&["needs SAM 3"]);
    folder.cutout(&["compare", "absent.pt", "--images", "picture.png"]).fails(&["absent.pt"]);
}

#[test]
pub(crate) fn phrases_and_the_number_of_pictures() {
    let folder = folder_with_sam3();
    folder.picture("pictures/a.png", Size::new(64, 48));
    folder.picture("pictures/b.png", Size::new(40, 60));
    let flags = ["--images", "pictures", "--limit", "1", "--precision", "bf16", "--text", "cat"];
    let report = folder.cutout(&[&["compare", SAM3, "--json"], &flags[..]].concat()).json();
    assert_eq!(report["pictures"], 1);
    let iou = &report["precisions"][1]["detection_iou"];
    assert!(iou.is_null() || (0.0..=1.0).contains(&iou.as_f64().unwrap()), "{report}");
}
