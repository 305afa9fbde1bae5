//! No input is overwritten, no two outputs are one file, and no foreign file is replaced unless the user named it.

use cutout_imaging::Size;

use crate::support::{MODEL, folder_with_model};

/// Commands that would write over one of their inputs.
const OVER_AN_INPUT: [&[&str]; 12] = [
    &["segment", "picture.png", "-m", MODEL, "-p", "20,11", "-o", "picture.png"],
    &["segment", "picture.png", "-m", MODEL, "-p", "20,11", "-o", "./frames/../picture.png"],
    &["segment", "picture.png", "-m", MODEL, "-p", "20,11", "--overlay", "link.png"],
    &["segment", "picture.png", "-m", MODEL, "-p", "20,11", "--cutout", "hard.png"],
    &["segment", "picture.png", "-m", MODEL, "-p", "20,11", "--raw", MODEL],
    &[
        "segment",
        "picture.png",
        "-m",
        MODEL,
        "-p",
        "20,11",
        "--save-scene",
        "model-link.safetensors",
    ],
    &["everything", "picture.png", "-m", MODEL, "-o", "out.json", "--overlay", "picture.png"],
    &["everything", "frames", "-m", MODEL, "-o", "frames"],
    &["everything", "frames", "-m", MODEL, "-o", "masks", "--overlay", "frames-link"],
    &["track", "frames", "-p", "20,11", "-o", "frames"],
    &["track", "frames", "-p", "20,11", "-o", "frames/00000.png/../00001.png"],
    &["track", "frames", "-p", "20,11", "--raw", "raw", "--overlay", "frames"],
];

#[test]
#[cfg(unix)]
fn inputs_are_never_overwritten() {
    use std::os::unix::fs::symlink;
    let folder = folder_with_model();
    for frame in ["frames/00000.png", "frames/00001.png"] {
        folder.picture(frame, Size::new(50, 31));
    }
    symlink("picture.png", folder.path("link.png")).unwrap();
    symlink(MODEL, folder.path("model-link.safetensors")).unwrap();
    symlink("frames", folder.path("frames-link")).unwrap();
    std::fs::hard_link(folder.path("picture.png"), folder.path("hard.png")).unwrap();
    let inputs = ["picture.png", MODEL, "frames/00000.png", "frames/00001.png"];
    let before = inputs.map(|name| folder.read(name));
    for arguments in OVER_AN_INPUT {
        let ended = folder.cutout(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.starts_with("error: "), "{arguments:?}: {}", ended.stderr);
    }
    assert_eq!(inputs.map(|name| folder.read(name)), before);
    assert!(!folder.has("masks") && !folder.has("raw") && !folder.has("out.json"));
}

#[test]
fn two_outputs_are_never_one_file() {
    let folder = folder_with_model();
    folder.picture("frames/00000.png", Size::new(50, 31));
    folder.segment(&["-o", "x.png", "--overlay", "x.png"]).wrong_usage(&["x.png", "two outputs"]);
    folder.segment(&["-o", "x.json", "-o", "./x.json"]).wrong_usage(&["x.json", "two outputs"]);
    folder
        .segment(&["--raw", "x.st", "--save-scene", "x.st"])
        .wrong_usage(&["x.st", "two outputs"]);
    let track = ["track", "frames", "-p", "20,11", "-o", "out", "--overlay", "out"];
    folder.cutout(&track).wrong_usage(&["out", "two outputs"]);
    assert!(!folder.has("x.png") && !folder.has("x.json") && !folder.has("out"));
    // Devices hold nothing.
    folder.segment(&["-o", "x.png", "--overlay", "/dev/null", "--cutout", "/dev/null"]).succeeds();
}

#[test]
fn foreign_files_are_replaced_only_by_name() {
    let folder = folder_with_model();
    folder.picture("frames/00000.png", Size::new(50, 31));
    let refused = ["exists and was not written by cutout"];
    for name in ["picture.mask.png", "picture.overlay.png"] {
        folder.write(name, "mine");
        folder.segment(&[]).wrong_usage(&[&[name], &refused[..]].concat());
        assert_eq!(folder.read(name), b"mine");
        folder.segment(&["-o", "mask.png", "--overlay", name]).succeeds();
        std::fs::remove_file(folder.path(name)).unwrap();
    }
    // Results of earlier runs are replaced.
    folder.segment(&[]).succeeds();
    folder.segment(&[]).succeeds();
    let everything = ["everything", "frames", "-m", MODEL, "-o", "masks", "--points-per-side", "2"];
    folder.write("masks/00000/metadata.csv", "mine");
    folder.cutout(&everything).wrong_usage(&refused);
    let lists = [&everything[..], &["--convert-to-rle"]].concat();
    folder.write("masks/00000.json", "mine");
    folder.cutout(&lists).wrong_usage(&refused);
    let track = ["track", "frames", "-p", "20,11", "-o", "out"];
    folder.write("out/00000.png", "mine");
    folder.write("out/notes.txt", "mine too");
    folder.cutout(&track).wrong_usage(&refused);
    assert_eq!(folder.read("out/00000.png"), b"mine");
    std::fs::remove_file(folder.path("out/00000.png")).unwrap();
    for _ in 0..2 {
        folder.cutout(&track).succeeds();
        assert_eq!(folder.read("out/notes.txt"), b"mine too");
    }
}

#[test]
fn pictures_with_equal_stems_keep_all_results() {
    let folder = folder_with_model();
    for name in ["photos/p.png", "photos/p.bmp", "photos/q.png"] {
        folder.picture(name, Size::new(50, 31));
    }
    let always = ["everything", "photos", "-m", MODEL, "--points-per-side", "2", "-o"];
    folder
        .cutout(&[&always[..], &["lists", "--convert-to-rle", "--overlay", "drawn"]].concat())
        .succeeds();
    folder.cutout(&[&always[..], &["masks"]].concat()).succeeds();
    for name in ["lists/p.png.json", "lists/p.bmp.json", "lists/q.json", "drawn/p.png.png"] {
        assert!(folder.has(name), "{name}");
    }
    for name in ["masks/p.png", "masks/p.bmp", "masks/q"] {
        assert!(folder.has(&format!("{name}/metadata.csv")), "{name}");
    }
}

#[test]
fn fewer_masks_leave_no_old_ones() {
    let folder = folder_with_model();
    let keep_all =
        ["--pred-iou-thresh", "0", "--stability-score-thresh", "0", "--box-nms-thresh", "1"];
    let run = ["everything", "picture.png", "-m", MODEL, "-o", "out/"];
    let always = [&run[..], &keep_all, &["--points-per-side"]].concat();
    folder.write("out/picture/notes.png", "mine");
    folder.cutout(&[&always[..], &["4"]].concat()).succeeds();
    assert!(folder.has("out/picture/20.png"));
    folder.cutout(&[&always[..], &["2"]].concat()).succeeds();
    let table = String::from_utf8(folder.read("out/picture/metadata.csv")).unwrap();
    let masks = table.lines().count() - 1;
    assert!(masks > 0 && folder.has(&format!("out/picture/{}.png", masks - 1)));
    assert!(!folder.has(&format!("out/picture/{masks}.png")) && !folder.has("out/picture/20.png"));
    assert!(folder.has("out/picture/notes.png"));
}

#[test]
fn control_characters_in_names_are_written_out() {
    let folder = folder_with_model();
    folder.model("a\u{1b}[31mb.safetensors");
    let listed = folder.cutout(&["models", "."]).succeeds();
    assert!(listed.contains("a\\u{1b}[31mb.safetensors"), "{listed}");
    let ended = folder.cutout(&["info", "\u{1b}]0;title\u{7}.pt"]);
    assert!(
        !ended.stderr.contains('\u{1b}') && !ended.stderr.contains('\u{7}'),
        "{}",
        ended.stderr
    );
}

#[test]
fn the_built_in_model_has_a_name() {
    let folder = folder_with_model();
    assert!(folder.cutout(&["info", "built-in"]).words().contains("runs yes"));
    let part = ["explain", "built-in", "--part", "prepare_image"];
    assert!(folder.cutout(&part).succeeds().contains("linear"));
    folder.cutout(&["convert", "built-in", "small.gguf"]).succeeds();
    assert!(folder.cutout(&["info", "small.gguf"]).words().contains("runs yes"));
    let click = ["segment", "picture.png", "-p", "20,11", "-o", "m.png", "--model"];
    folder.cutout(&[&click[..], &["built-in"]].concat()).succeeds();
    // A file of that name comes first.
    folder.write("built-in", "not a checkpoint");
    folder.cutout(&["info", "built-in"]).fails(&["built-in"]);
}
