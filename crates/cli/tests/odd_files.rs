//! Files that are not what they seem: links to nothing, hidden files, devices, a profile named as output, long metadata.

use cutout_imaging::Size;
use cutout_testing::StageFile;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

use crate::support::{Folder, MODEL, folder_with_model};

#[test]
fn the_profile_beside_a_checkpoint_is_an_input() {
    let folder = folder_with_model();
    folder.write("cutout.toml", "threads = 1\n");
    for flag in ["--raw", "--save-scene"] {
        folder.segment(&[flag, "cutout.toml"]).wrong_usage(&["cutout.toml", "is an input"]);
    }
    assert_eq!(folder.read("cutout.toml"), b"threads = 1\n");
    std::fs::remove_file(folder.path("cutout.toml")).unwrap();
    std::fs::create_dir(folder.path("cutout.toml")).unwrap();
    folder.segment(&["-o", "mask.png"]).fails(&["cutout.toml"]);
}

#[cfg(unix)]
#[test]
fn a_link_to_nothing_is_a_picture_that_cannot_be_read() {
    let folder = folder_with_model();
    for name in ["pictures/a.png", "clip/0.png", "clip/2.png"] {
        folder.picture(name, Size::new(20, 14));
    }
    for link in ["pictures/b.png", "clip/1.png"] {
        std::os::unix::fs::symlink("gone.png", folder.path(link)).unwrap();
    }
    let run = ["everything", "pictures", "-m", MODEL, "-o", "masks", "--points-per-side", "1"];
    folder.cutout(&run).fails(&["pictures/b.png"]);
    let run = ["track", "clip", "-p", "3,3", "-o", "masks.jsonl"];
    folder.cutout(&run).fails(&["clip/1.png"]);
}

#[test]
fn hidden_files_are_no_pictures() {
    let folder = folder_with_model();
    folder.picture("pictures/a.png", Size::new(20, 14));
    folder.write("pictures/._a.png", "written by another system");
    let run = ["everything", "pictures", "-m", MODEL, "-o", "masks", "--points-per-side", "1"];
    folder.cutout(&run).succeeds();
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_no_picture_is_not_read_to_its_end() {
    let folder = folder_with_model();
    let run = ["segment", "/dev/zero", "-m", MODEL, "-p", "3,3"];
    folder.cutout(&run).fails(&["/dev/zero", "not a picture"]);
    // A file of the size of a disk that takes no room.
    let sparse = std::fs::File::create(folder.path("sparse.png")).unwrap();
    sparse.set_len(3 << 30).unwrap();
    let run = ["segment", "sparse.png", "-m", MODEL, "-p", "3,3"];
    folder.cutout(&run).fails(&["sparse.png", "3221225472 bytes"]);
}

#[test]
fn long_metadata_is_shortened() {
    let folder = folder_with_model();
    let values =
        [("sam2.global_blocks", "x".repeat(70_000)), ("sam2.windows", "1,".repeat(30_000))];
    for (key, value) in values {
        let metadata = Metadata::from([(key.to_owned(), value.into())]);
        write_safetensors(folder.path("long.safetensors"), &sam2_tensors(), &metadata).unwrap();
        check_lines(&folder);
    }
}

/// The weights of a small SAM 2, whose configuration is read from the metadata.
fn sam2_tensors() -> Vec<OutgoingTensor<'static>> {
    let weights = StageFile::load("sam2/2.1_image.safetensors").unwrap().weights();
    let named = |path: &str| {
        OutgoingTensor::new(path.to_owned(), weights.get(path).unwrap().tensor().unwrap())
    };
    weights.paths().map(named).collect()
}

/// No command answers with a line that fills screens.
fn check_lines(folder: &Folder) {
    for command in ["info", "models", "explain"] {
        let ended = folder.cutout(&[command, "long.safetensors"]);
        assert!(ended.code.is_some_and(|code| code < 3), "{}", ended.stderr);
        let longest = ended.stdout.lines().chain(ended.stderr.lines()).map(str::len).max();
        assert!(longest.is_some_and(|longest| longest < 2000), "{command}: {longest:?}");
    }
}

#[test]
fn a_mask_below_the_threshold_is_mentioned() {
    let folder = folder_with_model();
    for threshold in ["2", "-1", "nan"] {
        folder.segment(&["--threshold", threshold]).wrong_usage(&["--threshold"]);
    }
    let ended = folder.segment(&["--threshold", "1", "-o", "found.json"]);
    assert!(ended.stderr.contains("prompt 1: no mask"), "{}", ended.stderr);
    ended.succeeds();
}

#[test]
fn a_data_set_is_a_json_file() {
    let folder = folder_with_model();
    let run = ["everything", "picture.png", "-m", MODEL, "--coco", "found.txt"];
    folder.cutout(&run).wrong_usage(&["found.txt", ".json"]);
}
