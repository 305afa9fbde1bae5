//! `cutout bench`: the keys of its JSON are a contract.

use cutout_imaging::Size;

use crate::support::{MODEL, SAM3, folder_with_model, folder_with_sam3};

#[test]
fn json_has_the_keys_of_the_contract() {
    let folder = folder_with_model();
    let flags = ["--image", "picture.png", "--repeat", "1", "--threads", "1", "--json"];
    let found = folder.cutout(&[&["bench", "--model", MODEL], &flags[..]].concat()).json();
    for stage in
        ["load", "compile", "decode", "resize", "embed", "prompt", "points64", "upsample", "write"]
    {
        assert!(found[format!("{stage}_ms")].as_f64().unwrap() >= 0.0, "{stage}");
        assert!(found[format!("{stage}_ms_spread")].is_number(), "{stage}");
    }
    assert_eq!(found["threads"], 1);
    assert_eq!(found["precision"], "f32");
    assert!(found["model"].as_str().unwrap().starts_with("SAM 1"));
    assert!(found["device"].as_str().unwrap().starts_with("cpu"));
    if cfg!(target_os = "linux") {
        assert!(found["peak_rss_mib"].as_f64().unwrap() > 1.0);
    }
}

#[test]
fn text_is_for_people_and_flags_are_obeyed() {
    let folder = folder_with_model();
    folder.write("one.toml", "threads = 1\n");
    let flags = ["--image", "picture.png", "--repeat", "1", "--profile", "one.toml"];
    let run = ["--precision", "int8", "--device", "cpu"];
    let text = folder.cutout(&[&["bench", "-m", MODEL], &flags[..], &run].concat()).done();
    for words in ["embed", "points64", "int8", "threads     1"] {
        assert!(text.contains(words), "{words:?} is not in:\n{text}");
    }
    folder.cutout(&["bench", "-m", MODEL, "--repeat", "0"]).wrong_usage(&["--repeat"]);
    folder.cutout(&["bench", "-m", MODEL, "--image", "absent.jpg"]).could_not(&["absent.jpg"]);
}

#[test]
fn an_object_is_tracked_through_a_clip_or_through_made_up_frames() {
    let folder = folder_with_model();
    folder.picture("clip/00000.png", Size::new(48, 32));
    folder.picture("clip/00001.png", Size::new(48, 32));
    let flags = ["--image", "picture.png", "--repeat", "1", "--threads", "1", "--json"];
    for frames in ["clip", "3"] {
        let found = folder.cutout(&[&["bench", "--track", frames], &flags[..]].concat()).json();
        assert!(found["track_frame_ms"].as_f64().unwrap() > 0.0, "{frames}");
        assert!(found["track_frame_ms_spread"].is_number(), "{frames}");
    }
    let without = folder.cutout(&[&["bench"], &flags[..]].concat()).json();
    assert!(without.get("track_frame_ms").is_none());
    let track = |model: &[&str], frames: &str| {
        folder.cutout(&[&["bench", "--track", frames], model, &flags[..]].concat())
    };
    track(&[], "0").could_not(&["at least one frame"]);
    track(&[], "absent").could_not(&["absent"]);
    track(&["-m", MODEL], "3").could_not(&["SAM 1"]);
}

#[test]
fn phrases_are_timed() {
    let folder = folder_with_sam3();
    let flags = ["--image", "picture.png", "--repeat", "1", "--text", "cat", "--json"];
    let found = folder.cutout(&[&["bench", "-m", SAM3], &flags[..]].concat()).json();
    for key in ["find_ms", "find_ms_spread", "find_cold_ms", "prompt_ms"] {
        assert!(found[key].as_f64().unwrap() >= 0.0, "{key}");
    }
    folder.cutout(&[&["bench", "-m", MODEL], &flags[..]].concat()).could_not(&["needs SAM 3"]);
}
