//! The published checkpoints that `cutout pull` and `--model` know by name.

use std::fs::{self, File};

use crate::support::server::{Reply, Server};
use crate::support::{Ended, folder};

#[test]
pub(crate) fn published_checkpoints_are_listed() {
    let folder = folder();
    // The names of checkpoints and their sizes are known; this one is a sparse file.
    fs::create_dir_all(folder.path("checkpoints")).unwrap();
    let file = File::create(folder.path("checkpoints/sam2.1_hiera_tiny.pt")).unwrap();
    file.set_len(156_008_466).unwrap();
    let listed = folder.cutout(&["pull", "--list", "--json"]).json();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!((names.len(), names[0], names[12]), (13, "sam-vit-b", "sam3.1"));
    let of =
        |name: &str| listed.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap();
    assert_eq!(of("sam2.1-tiny")["path"], "checkpoints/sam2.1_hiera_tiny.pt");
    assert_eq!(of("sam2.1-small")["path"], serde_json::Value::Null);
    assert_eq!(
        (&of("sam3")["gated"], &of("sam3")["licence"]),
        (&true.into(), &"SAM License".into())
    );
    let text = folder.cutout(&["pull", "--list"]).words();
    for line in [
        "NAME SIZE LICENCE GATED HERE SOURCE",
        "sam-vit-b 357.7 MiB Apache-2.0 no no dl.fbaipublicfiles.com/segment_anything/sam_vit_b_01ec64.pth",
        "sam2.1-tiny 148.8 MiB Apache-2.0 no yes huggingface.co/facebook/sam2.1-hiera-tiny/sam2.1_hiera_tiny.pt",
        "sam3 3.2 GiB SAM License yes no huggingface.co/facebook/sam3/sam3.pt",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in:\n{text}");
    }
    let here = folder.cutout(&["pull", "sam2.1-tiny"]);
    assert!(here.stderr.contains("is here already"), "{}", here.stderr);
    assert_eq!(here.succeeds(), "checkpoints/sam2.1_hiera_tiny.pt\n");
}

#[test]
fn names_of_published_checkpoints_are_models() {
    let folder = folder();
    folder.cutout(&["info", "sam2.1-tiny"]).fails(&[
        "sam2.1-tiny is not on this machine",
        "`cutout pull sam2.1-tiny`",
        "148.8 MiB",
    ]);
    let file = folder.path("home/.cache/torch/hub/checkpoints/sam_vit_b_01ec64.pth");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    File::create(&file).unwrap().set_len(375_042_383).unwrap();
    let ended = folder.cutout(&["info", "sam-vit-b"]);
    assert!(ended.stderr.starts_with(&format!("using {}", file.display())), "{}", ended.stderr);
    folder.cutout(&["pull", "sam9"]).wrong_usage(&["\"sam9\"", "sam2.1-tiny", "OWNER/NAME/FILE"]);
    folder.cutout(&["pull", "a/b/../c"]).wrong_usage(&["not the name of a checkpoint"]);
    folder.cutout(&["pull"]).wrong_usage(&["<NAME>..."]);
}

#[test]
fn another_file_under_a_known_name_is_refused() {
    let other = Server::start(|_| {
        Reply::new(200)
            .header("x-linked-etag", "ab".repeat(32))
            .header("x-linked-size", "156008466")
    });
    let folder = folder();
    let ended =
        folder.command(&["pull", "sam2.1-tiny"]).env("HF_ENDPOINT", &other.address).output();
    Ended::of(ended.unwrap()).fails(&["publishes another file", &"ab".repeat(32), "7402e0d8"]);
    let short = Server::start(|_| Reply::new(200).body("short"));
    let mirror = ["pull", "sam-vit-b", "--mirror", &short.address, "--offline"];
    folder.cutout(&mirror).fails(&["not on this machine"]);
    assert!(short.asked().is_empty());
}
