//! `cutout models`, and models given by name instead of path.

use std::process::Command;

use cutout_imaging::Size;

use crate::support::{Ended, Folder, MODEL, fixture, folder, folder_with_model};

/// Paths of a listing, in its order.
fn paths(folder: &Folder, arguments: &[&str]) -> Vec<String> {
    let listed = folder.cutout(&[&["models", "--json"], arguments].concat()).json();
    let path = |record: &serde_json::Value| record["path"].as_str().unwrap().to_owned();
    listed.as_array().unwrap().iter().map(path).collect()
}

/// A folder with a model in each of the usual places.
fn folder_with_models() -> (Folder, Vec<&'static str>) {
    let places = vec![
        "here.safetensors",
        "checkpoints/near.pt",
        "model_weights/deep/one.pth",
        "models/sams/comfy.pth",
        "ComfyUI/models/sam2/two.safetensors",
        "home/checkpoints/sam2/mine.pt",
        "home/.cache/huggingface/hub/models--facebook--sam/snapshots/0a1b/model.safetensors",
        "home/.cache/torch/hub/checkpoints/torch.pth",
    ];
    let folder = folder();
    for place in &places {
        folder.model(place);
    }
    (folder, places)
}

#[test]
pub(crate) fn the_usual_places_are_searched() {
    let (folder, places) = folder_with_models();
    folder.write("notes.txt", "not a checkpoint");
    folder.write("checkpoints/attack.pt", fixture("attack.pt"));
    folder.write("checkpoints/cut.safetensors", &folder.read("here.safetensors")[..1000]);
    folder.write("checkpoints/language.safetensors", fixture("flat.safetensors"));
    folder.model("other/place/unseen.pt");
    let found = paths(&folder, &[]);
    let expected: Vec<String> = places
        .iter()
        .map(|place| match place.strip_prefix("home/") {
            Some(below) => folder.path("home").join(below).display().to_string(),
            None => (*place).to_owned(),
        })
        .collect();
    assert_eq!(found, expected, "nearest first; nothing else, and no word about broken files");
    let text = folder.cutout(&["models"]).succeeds();
    assert!(text.starts_with("MODEL"), "{text}");
    assert_eq!(text.lines().count(), places.len() + 1);
    assert!(text.lines().nth(1).unwrap().starts_with("SAM 1, 36 channels, 2 blocks  safetensors"));
}

#[test]
fn environment_variables_move_the_caches() {
    let folder = folder();
    folder.model("hub/models--a--b/snapshots/1/in-hub.pt");
    folder.model("hf/hub/models--a--b/snapshots/1/in-home.pt");
    folder.model("torch/hub/checkpoints/in-torch.pt");
    folder.model("caches/torch/hub/checkpoints/in-caches.pt");
    let with = |name: &str, value: &str| -> String {
        let mut command: Command = folder.command(&["models"]);
        let ended = Ended::of(command.env(name, folder.path(value)).output().unwrap());
        ended.succeeds()
    };
    assert!(with("HF_HUB_CACHE", "hub").contains("in-hub.pt"));
    assert!(with("HF_HOME", "hf").contains("in-home.pt"));
    assert!(with("TORCH_HOME", "torch").contains("in-torch.pt"));
    assert!(with("XDG_CACHE_HOME", "caches").contains("in-caches.pt"));
}

#[test]
fn broken_files_are_listed_on_request() {
    let folder = folder_with_model();
    folder.write("weights/attack.pt", fixture("attack.pt"));
    folder.write("weights/legacy.pt", fixture("legacy.pt"));
    folder.write("weights/cut.safetensors", &folder.read(MODEL)[..1000]);
    folder.write("weights/readme.md", "# Weights");
    folder.model("weights/deep/er/good.safetensors");
    let text = folder.cutout(&["models", "weights"]).succeeds();
    for words in [
        "weights/deep/er/good.safetensors",
        "cannot be used:",
        "attack.pt: the file asks to call posix.system",
        "legacy.pt: a PyTorch file from before version 1.6",
        "cut.safetensors: the file is cut short",
    ] {
        assert!(text.contains(words), "{words:?} is not in:\n{text}");
    }
    assert!(!text.contains("readme.md"), "{text}");
    let listed = folder.cutout(&["models", "--json", "weights/readme.md", MODEL]).json();
    assert!(listed[0]["error"].as_str().unwrap().contains("unknown kind of file"));
    assert_eq!(listed[0]["model"], serde_json::Value::Null);
    assert_eq!((&listed[1]["path"], &listed[1]["runs"]), (&MODEL.into(), &true.into()));
    assert_eq!(listed[1]["bytes"], folder.read(MODEL).len());
    folder.cutout(&["models", "nowhere"]).fails(&["nowhere", "no such file or folder"]);
}

#[test]
fn without_models_the_searched_folders_are_listed() {
    let folder = folder();
    let ended = folder.cutout(&["models"]);
    assert!(ended.stderr.contains("no checkpoint found"), "{}", ended.stderr);
    assert_eq!(ended.succeeds(), "");
    assert_eq!(folder.cutout(&["models", "--json"]).json(), serde_json::json!([]));
}

#[test]
#[cfg(unix)]
fn linked_files_are_listed_once() {
    let folder = folder();
    folder.model("weights/model.pt");
    std::os::unix::fs::symlink("..", folder.path("weights/loop")).unwrap();
    std::os::unix::fs::symlink("model.pt", folder.path("weights/same.pt")).unwrap();
    std::os::unix::fs::symlink("gone.pt", folder.path("weights/dangling.pt")).unwrap();
    let made = Command::new("mkfifo").arg(folder.path("weights/pipe.pt")).status().unwrap();
    assert!(made.success());
    assert_eq!(paths(&folder, &["weights"]), ["weights/model.pt"]);
}

#[test]
fn a_model_in_a_usual_place_can_be_named() {
    let (folder, _) = folder_with_models();
    folder.picture("picture.png", Size::new(50, 31));
    for name in ["near.pt", "torch.pth", "two.safetensors"] {
        let segment = ["segment", "picture.png", "--model", name, "-p", "3,3", "-o", "mask.png"];
        let ended = folder.cutout(&segment);
        let place = ended.stderr.strip_prefix("using ").unwrap().trim_end();
        assert!(place.ends_with(name) && place.len() > name.len(), "{place}");
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        ended.succeeds();
    }
    assert!(folder.cutout(&["info", "one.pth"]).stderr.starts_with("using model_weights/deep"));
    assert!(folder.cutout(&["convert", "mine.pt", "out.gguf"]).stderr.starts_with("using "));
    let missing = folder.cutout(&["info", "absent.pt"]);
    missing.fails(&["absent.pt: no such file, here or in the usual places", "cutout models"]);
    let elsewhere = folder.cutout(&["info", "elsewhere/near.pt"]);
    elsewhere.fails(&["elsewhere/near.pt: no such file"]);
}
