//! Invalid input: each ends with one line on stderr and exit code 1, never with a panic.

use cutout_imaging::{Mask, MaskDepth, Size, encode_mask};

use crate::support::{Ended, MODEL, fixture, folder_with_model};

#[test]
fn pictures() {
    let folder = folder_with_model();
    folder.write("notes.txt", "hello");
    folder.write("empty.png", "");
    let whole = folder.read("picture.png");
    folder.write("cut.png", &whole[..whole.len() / 2]);
    std::fs::create_dir(folder.path("folder.png")).unwrap();
    let segment = |image: &str| folder.cutout(&["segment", image, "-m", MODEL, "-p", "3,3"]);
    segment("absent.jpg").fails(&["absent.jpg"]);
    segment("notes.txt").fails(&["notes.txt", "not a picture"]);
    segment("empty.png").fails(&["empty.png", "empty"]);
    segment("cut.png").fails(&["cut.png", "damaged or incomplete"]);
    segment("folder.png").fails(&["folder.png", "a folder", "`everything`"]);
    assert!(!folder.has("cut.mask.png"));
}

#[test]
fn a_cut_jpeg_is_segmented_with_one_warning() {
    let folder = folder_with_model();
    let jpegs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/jpeg");
    let cut = std::fs::read(jpegs.join("cut_30_420_61x39.jpg")).unwrap();
    folder.write("cut.jpg", &cut);
    let run = ["segment", "cut.jpg", "-m", MODEL, "-p", "3,3", "-o", "mask.png"];
    let ended = folder.cutout(&run);
    let warnings: Vec<&str> =
        ended.stderr.lines().filter(|line| line.starts_with("warning")).collect();
    assert_eq!(warnings.len(), 1, "{}", ended.stderr);
    assert!(warnings[0].starts_with("warning: cut.jpg: damaged JPEG file: the file ends early"));
    ended.succeeds();
    assert!(folder.has("mask.png"));
    // Without any data there is nothing to show.
    folder.write("header.jpg", &cut[..100]);
    let run = ["segment", "header.jpg", "-m", MODEL, "-p", "3,3"];
    folder.cutout(&run).fails(&["header.jpg", "damaged or incomplete JPEG"]);
}

#[test]
fn checkpoints() {
    let folder = folder_with_model();
    let whole = folder.read(MODEL);
    folder.write("cut.safetensors", &whole[..whole.len() / 2]);
    folder.write("attack.pt", fixture("attack.pt"));
    folder.write("page.pth", "<!DOCTYPE html><html>404</html>");
    for (name, words) in [
        ("absent.pth", "no such file"),
        ("cut.safetensors", "cut short"),
        ("attack.pt", "never runs code"),
        ("page.pth", "a web page"),
        ("picture.png", "a PNG picture"),
        (".", "a folder"),
    ] {
        let run = ["segment", "picture.png", "-m", name, "-p", "3,3"];
        folder.cutout(&run).fails(&[name, words]);
        folder.cutout(&["info", name]).fails(&[name, words]);
        folder.cutout(&["convert", name, "out.gguf"]).fails(&[name, words]);
    }
    assert!(!folder.has("out.gguf"));
}

#[test]
fn messages_have_one_line_and_name_the_file() {
    let folder = folder_with_model();
    folder.write("odd.npy", npy(7));
    folder.picture("clip/0.png", Size::new(50, 31));
    folder.write("two\nlines\x1b[31m.png", "no picture");
    let segment = |image: &'static str| vec!["segment", image, "-m", MODEL, "-p", "3,3"];
    for (run, words) in [
        (segment("absent.png"), "error: absent.png: cannot read the file: No such file"),
        (segment("two\nlines\x1b[31m.png"), "error: two\\nlines\\u{1b}[31m.png: not a picture"),
        (
            [segment("picture.png"), vec!["--mask-input", "odd.npy"]].concat(),
            "error: odd.npy: mask",
        ),
        (vec!["track", "clip", "-m", MODEL, "-p", "3,3"], "error: model.safetensors: SAM 1"),
        (vec!["track", "clip", "-m", MODEL, "--text", "cat"], "error: model.safetensors: "),
        (vec!["bench", "-m", MODEL, "--image", "clip"], "error: clip: cannot read the file: Is a"),
    ] {
        let ended = folder.cutout(&run);
        assert!(ended.stderr.starts_with(words), "{run:?}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{run:?}: {}", ended.stderr);
        for harmful in ["os error", "\x1b", ".rs:"] {
            assert!(!ended.stderr.contains(harmful), "{run:?}: {}", ended.stderr);
        }
        ended.fails(&[]);
    }
}

/// A NumPy file with a square of zeros.
fn npy(side: usize) -> Vec<u8> {
    let header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({side}, {side}), }}\n");
    let length = (header.len() as u16).to_le_bytes();
    let zeros = vec![0; 4 * side * side];
    [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), &zeros].concat()
}

#[test]
fn outputs_of_the_wrong_kind_are_refused_before_any_work() {
    let folder = folder_with_model();
    std::fs::create_dir(folder.path("made")).unwrap();
    std::fs::create_dir(folder.path("made.png")).unwrap();
    folder.write("file", "mine");
    folder.picture("photos/a.png", Size::new(20, 10));
    folder.write("out/a", "mine");
    let everything = ["everything", "picture.png", "-m", MODEL, "--points-per-side", "2"];
    let photos = ["everything", "photos", "-m", MODEL, "--points-per-side", "2"];
    for (run, words) in [
        (
            [&everything[..], &["-o", "x.json", "--overlay", "made"]].concat(),
            "made: is a folder, not a file",
        ),
        ([&everything[..], &["-o", "file"]].concat(), "file: exists and is not a folder"),
        ([&photos[..], &["-o", "out"]].concat(), "out/a: exists and is not a folder"),
        ([&photos[..], &["-o", "masks", "--overlay", "file"]].concat(), "file: exists and is not"),
        (
            vec![
                "segment",
                "picture.png",
                "-m",
                MODEL,
                "-p",
                "3,3",
                "-o",
                "x.npy",
                "-o",
                "made.png",
            ],
            "made.png: is a folder",
        ),
        (
            vec!["track", "photos", "-m", MODEL, "-p", "3,3", "--history", "file"],
            "file: exists and is not a folder",
        ),
    ] {
        folder.cutout(&run).wrong_usage(&[words]);
    }
    assert!(!folder.has("x.json") && !folder.has("x.npy") && !folder.has("masks"));
}

#[test]
fn clicks_outside_the_picture() {
    let folder = folder_with_model();
    for (flag, value) in [("-p", "51,3"), ("-p", "-1,3"), ("-p", "3,31.5"), ("-b", "0,0,60,10")] {
        let ended = folder.cutout(&["segment", "picture.png", "-m", MODEL, flag, value]);
        ended.fails(&["50", "31"]);
    }
    let fractions = ["segment", "picture.png", "-m", MODEL, "-p", "20,11", "--normalized"];
    folder.cutout(&fractions).fails(&["50", "31"]);
}

#[test]
fn a_picture_of_one_pixel() {
    let folder = folder_with_model();
    folder.picture("dot.png", Size::new(1, 1));
    let run = ["segment", "dot.png", "-m", MODEL, "-p", "0,0", "-o", "mask.png", "--json"];
    let document = folder.cutout(&run).json();
    assert_eq!(document["annotations"][0]["segmentation"]["size"], serde_json::json!([1, 1]));
    assert!(folder.has("mask.png"));
}

#[test]
fn a_picture_of_a_hundred_megapixels() {
    let folder = folder_with_model();
    let size = Size::new(12_000, 9_000);
    let blank = Mask::empty(size).unwrap();
    folder.write("vast.png", encode_mask(&blank, MaskDepth::Bit).unwrap());
    drop(blank);
    let run = ["segment", "vast.png", "-m", MODEL, "-p", "11999,8999", "-o", "mask.png", "--json"];
    let document = folder.cutout(&run).json();
    assert_eq!(
        document["annotations"][0]["segmentation"]["size"],
        serde_json::json!([9_000, 12_000])
    );
    assert_eq!(
        &folder.read("mask.png")[16..24],
        [12_000u32.to_be_bytes(), 9_000u32.to_be_bytes()].concat()
    );
}

#[test]
fn a_folder_that_does_not_exist() {
    let folder = folder_with_model();
    for flag in ["-o", "--overlay", "--cutout", "--raw", "--save-scene"] {
        folder.segment(&[flag, "no/such/file.png"]).wrong_usage(&["folder does not exist"]);
        folder.segment(&[flag, "picture.png/file.png"]).wrong_usage(&["folder does not exist"]);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_folder_that_cannot_be_written() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder_with_model();
    std::fs::create_dir(folder.path("locked")).unwrap();
    let mode = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(folder.path("locked"), mode).unwrap();
    // Permission bits do not stop root, but nobody can create files in /sys.
    let bound = std::fs::write(folder.path("locked/probe"), "").is_err();
    let place = if bound { "locked" } else { "/sys" };
    if !bound && std::fs::write("/sys/cutout-probe", "").is_ok() {
        panic!("SKIPPED LOUDLY: this user may write everywhere, so nothing can be refused");
    }
    for flag in ["-o", "--overlay", "--cutout"] {
        let file = format!("{place}/out.png");
        folder.segment(&[flag, &file]).fails(&[&file, "no permission"]);
    }
    let file = format!("{place}/out.gguf");
    folder.cutout(&["convert", MODEL, &file]).fails(&[&file, "read-only"]);
    folder.segment(&["--raw", &file]).fails(&[&file, "read-only"]);
    folder.segment(&["--save-scene", &file]).fails(&[&file, "read-only"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let folder = folder_with_model();
    for name in ["full.png", "full.json", "full.npy", "full.gguf", "full.safetensors"] {
        symlink("/dev/full", folder.path(name)).unwrap();
    }
    for (flag, file) in [
        ("-o", "full.png"),
        ("-o", "full.json"),
        ("-o", "full.npy"),
        ("--overlay", "full.png"),
        ("--raw", "full.safetensors"),
        ("--save-scene", "full.safetensors"),
    ] {
        folder.segment(&[flag, file]).fails(&[file, "the disk is full"]);
    }
    for file in ["full.gguf", "full.safetensors"] {
        folder.cutout(&["convert", MODEL, file]).fails(&[file, "the disk is full"]);
    }
    let device = std::fs::metadata(folder.path("full.gguf")).unwrap();
    assert!(device.file_type().is_char_device(), "the device is still one");
    assert!(folder.temporary_files().is_empty());
}

#[test]
#[cfg(target_os = "linux")]
fn standard_output_that_is_full() {
    let folder = folder_with_model();
    for arguments in [&["info", MODEL][..], &["models"], &["doctor"], &["completions", "bash"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = folder.command(arguments);
        let ended = Ended::of(command.stdout(full).output().unwrap());
        ended.fails(&["No space left"]);
    }
}
