//! `cutout bench`. The keys of its JSON are documented and must not change.

use cutout_imaging::Size;

use crate::support::{MODEL, SAM3, folder_with_model, folder_with_sam3, folder_with_sam3_clip};

#[test]
pub(crate) fn json_has_the_documented_keys() {
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
pub(crate) fn text_report_shows_the_options() {
    let folder = folder_with_model();
    folder.write("one.toml", "threads = 1\n");
    let flags = ["--image", "picture.png", "--repeat", "1", "--profile", "one.toml"];
    let run = ["--precision", "int8", "--device", "cpu"];
    let text = folder.cutout(&[&["bench", "-m", MODEL], &flags[..], &run].concat()).succeeds();
    for words in ["embed", "points64", "int8", "threads     1"] {
        assert!(text.contains(words), "{words:?} is not in:\n{text}");
    }
    folder.cutout(&["bench", "-m", MODEL, "--device", "cuda:1"]).fails(&["cuda:1"]);
    folder.cutout(&["bench", "-m", MODEL, "--threads", "0"]).wrong_usage(&["--threads"]);
    folder.cutout(&["bench", "-m", MODEL, "--vram-limit", "0"]).wrong_usage(&["--vram-limit"]);
    folder.cutout(&["bench", "-m", MODEL, "--repeat", "0"]).wrong_usage(&["--repeat"]);
    folder.cutout(&["bench", "-m", MODEL, "--image", "absent.jpg"]).fails(&["absent.jpg"]);
}

#[test]
pub(crate) fn tracking_is_timed_on_a_clip_or_generated_frames() {
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
    track(&[], "0").fails(&["at least one frame"]);
    track(&[], "absent").fails(&["absent"]);
    track(&["-m", MODEL], "3").fails(&["SAM 1"]);
}

#[test]
pub(crate) fn phrases_are_timed() {
    let folder = folder_with_sam3();
    let flags = ["--image", "picture.png", "--repeat", "1", "--text", "cat", "--json"];
    let found = folder.cutout(&[&["bench", "-m", SAM3], &flags[..]].concat()).json();
    for key in ["find_ms", "find_ms_spread", "find_cold_ms", "prompt_ms"] {
        assert!(found[key].as_f64().unwrap() >= 0.0, "{key}");
    }
    folder.cutout(&[&["bench", "-m", MODEL], &flags[..]].concat()).fails(&["needs SAM 3"]);
}

#[test]
fn phrases_in_video_are_timed() {
    let folder = folder_with_sam3_clip();
    folder.picture("picture.png", Size::new(40, 30));
    let flags = ["--image", "picture.png", "--repeat", "1", "--text", "cat", "--json"];
    let track = ["bench", "-m", SAM3, "--threads", "1", "--track", "clip"];
    let found = folder.cutout(&[&track[..], &flags].concat()).json();
    for key in ["track_frame_ms", "track_text_ms", "track_text2_ms"] {
        assert!(found[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert!(found["track_text_objects"].as_f64().unwrap() >= 0.0);
}
