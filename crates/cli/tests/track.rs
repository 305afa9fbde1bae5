//! `cutout track`: the built-in model follows a moving disc.

use std::io::Write;
use std::process::Stdio;

use cutout_imaging::{DecodeLimits, Image, Mask, MaskDepth, Size, encode_image, encode_mask, open};
use cutout_testing::{StageFile, rotation_tables};
use cutout_weights::Checkpoint;
use serde_json::Value;

use crate::support::{Ended, Folder, MODEL, SAM3, folder, folder_with_model, folder_with_sam3};

const SIZE: Size = Size::new(192, 128);
/// One thread, as tests run in parallel.
const ONE: [&str; 2] = ["--threads", "1"];

/// Whether a pixel belongs to the disc, which moves to the right.
fn in_disc(frame: usize, pixel: usize) -> bool {
    let (x, y) = (pixel % SIZE.width, pixel / SIZE.width);
    x.abs_diff(70 + 12 * frame).pow(2) + y.abs_diff(60).pow(2) <= 30 * 30
}

fn frame(number: usize) -> Image {
    let colour = |i| if in_disc(number, i) { [220, 40, 30] } else { [40, 60, 40] };
    let pixels = (0..SIZE.width * SIZE.height).flat_map(colour).collect();
    Image::from_rgb(SIZE, pixels).unwrap()
}

/// A folder with three frames in `clip/`.
fn clip() -> Folder {
    let folder = folder();
    for number in 0..3 {
        let png = encode_image(&frame(number)).unwrap();
        folder.write(&format!("clip/{number:05}.png"), png);
    }
    folder
}

fn track(folder: &Folder, more: &[&str]) -> Ended {
    folder.cutout(&[&["track", "clip"], &ONE[..], more].concat())
}

/// The lines of a `.jsonl` file.
fn lines(folder: &Folder, name: &str) -> Vec<Value> {
    let text = String::from_utf8(folder.read(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn frames_of(lines: &[Value]) -> Vec<u64> {
    lines.iter().map(|line| line["frame"].as_u64().unwrap()).collect()
}

#[test]
pub(crate) fn a_disc_is_followed() {
    let folder = clip();
    let ended = track(&folder, &["--point", "70,60"]);
    assert!(ended.stderr.contains("wrote clip.masks and clip.overlay.gif"), "{}", ended.stderr);
    ended.succeeds();
    assert!(folder.read("clip.overlay.gif").starts_with(b"GIF8"));
    for number in 0..3 {
        let mask =
            open(folder.path(&format!("clip.masks/{number:05}.png")), &DecodeLimits::default());
        let mask = mask.unwrap();
        let found = |i: usize| mask.as_rgb()[3 * i..][..3] != [0, 0, 0];
        let count =
            |of: &dyn Fn(usize) -> bool| (0..SIZE.width * SIZE.height).filter(|i| of(*i)).count();
        let both = count(&|i| found(i) && in_disc(number, i));
        let either = count(&|i| found(i) || in_disc(number, i));
        assert!(both as f64 > 0.95 * either as f64, "frame {number}: {both} of {either}");
    }
}

#[test]
fn look_ahead_gives_the_same_masks() {
    let folder = clip();
    for when in ["always", "never", "auto"] {
        let more = ["--point", "70,60", "--look-ahead", when, "-o", &format!("{when}.jsonl")];
        track(&folder, &more).succeeds();
    }
    assert_eq!(folder.read("always.jsonl"), folder.read("never.jsonl"));
    assert_eq!(folder.read("auto.jsonl"), folder.read("never.jsonl"));
    // A broken next frame does not prevent the last good one from being written.
    folder.write("clip/00002.png", "no picture");
    track(&folder, &["-p", "70,60", "--look-ahead", "always", "-o", "broken.jsonl"])
        .fails(&["00002.png"]);
    assert_eq!(frames_of(&lines(&folder, "broken.jsonl")), [0, 1]);
}

#[test]
pub(crate) fn objects_frames_and_outputs() {
    let folder = clip();
    let prompts =
        ["--object", "7", "--box", "40,30,100,90", "--frame", "1", "-p", "82,60", "-p", "2,2,0"];
    let ways = ["--both", "--max-frames", "2"];
    let outputs = [
        "-o",
        "out.jsonl",
        "--output",
        "masks",
        "--raw",
        "raw",
        "--overlay",
        "drawn",
        "--history",
        "kept",
    ];
    let run = [&prompts[..], &ways, &outputs].concat();
    track(&folder, &run).succeeds();
    let found = lines(&folder, "out.jsonl");
    assert_eq!(frames_of(&found), [0, 1], "stopped after two frames");
    assert!(found.iter().all(|line| line["objects"][0]["id"] == 7), "{found:?}");
    for name in ["masks/00001.png", "raw/00001.safetensors", "drawn/00001.png", "kept"] {
        assert!(folder.has(name), "{name}");
    }
    let raw = Checkpoint::open(folder.path("raw/00000.safetensors")).unwrap();
    assert_eq!(raw.tensor("object_ids").unwrap().to_vec::<i64>().unwrap(), [7]);
    assert_eq!(raw.tensor("object_score").unwrap().shape()[..], [1]);
    assert_eq!(raw.tensor("low_res_logits").unwrap().shape()[..2], [1, 1]);
}

#[test]
pub(crate) fn the_closest_prompted_frames_are_read() {
    let folder = clip();
    // The second prompt is beside the disc: whether frame 2 also reads the first one changes its mask.
    let tracked = |most: &str| {
        let prompts = ["-p", "70,60", "--frame", "1", "-p", "130,60"];
        let limit = ["--max-prompted-frames", most, "-o", "out.jsonl"];
        track(&folder, &[&prompts[..], &limit].concat()).succeeds();
        folder.read("out.jsonl")
    };
    assert_ne!(tracked("1"), tracked("2"));
}

#[test]
pub(crate) fn small_holes_are_filled() {
    let folder = folder();
    let colour = |i: usize| {
        let distance = (i % SIZE.width).abs_diff(70).pow(2) + (i / SIZE.width).abs_diff(60).pow(2);
        if (130..1600).contains(&distance) { [220, 40, 30] } else { [40, 60, 40] }
    };
    let pixels = (0..SIZE.width * SIZE.height).flat_map(colour).collect();
    folder.write("clip/0.png", encode_image(&Image::from_rgb(SIZE, pixels).unwrap()).unwrap());
    let area = |hole: &str| {
        let ring = ["--box", "30,20,110,100", "--fill-hole-area", hole, "-o", "out.jsonl"];
        track(&folder, &ring).succeeds();
        lines(&folder, "out.jsonl")[0]["objects"][0]["area"].as_u64().unwrap()
    };
    assert!(area("5000") > area("0") + 300, "the hole of the ring has 408 pixels");
}

#[test]
pub(crate) fn ways_to_run() {
    let folder = clip();
    track(&folder, &["-p", "70,60", "--device", "cuda:1"]).fails(&["cuda:1"]);
    track(&folder, &["-p", "70,60", "--device", "cuda:0,1"]).wrong_usage(&["cuda:0,1", "on one"]);
    let none = ["track", "clip", "-p", "70,60", "--threads", "0"];
    folder.cutout(&none).wrong_usage(&["--threads"]);
    track(&folder, &["-p", "70,60", "--vram-limit", "0"]).wrong_usage(&["--vram-limit"]);
    track(&folder, &["-p", "70,60", "--look-ahead", "now"]).wrong_usage(&["--look-ahead"]);
    let first = |more: &[&str]| {
        let always = ["-p", "70,60", "--max-frames", "1", "--raw", "raw"];
        track(&folder, &[&always[..], more].concat()).succeeds();
        folder.read("raw/00000.safetensors")
    };
    let plain = first(&[]);
    let int8 = first(&["--precision", "int8"]);
    assert_ne!(plain, int8);
    folder.write("int8.toml", "precision = \"int8\"\n");
    assert_eq!(first(&["--profile", "int8.toml"]), int8);
    assert_eq!(first(&["--profile", "int8.toml", "--precision", "f32"]), plain);
}

#[test]
pub(crate) fn backwards_from_a_mask() {
    let folder = clip();
    let disc = (0..SIZE.width * SIZE.height).map(|i| in_disc(2, i)).collect();
    let mask = Mask::from_pixels(SIZE, disc).unwrap();
    folder.write("disc.png", encode_mask(&mask, MaskDepth::Byte).unwrap());
    let prompt = ["--frame", "2", "--mask-input", "disc.png", "--reverse", "-o", "out.jsonl"];
    track(&folder, &prompt).succeeds();
    assert_eq!(frames_of(&lines(&folder, "out.jsonl")), [2, 1, 0]);
    track(&folder, &["--frame", "1", "-p", "82,60", "--both", "-o", "both.jsonl"]).succeeds();
    let mut both = frames_of(&lines(&folder, "both.jsonl"));
    both.sort_unstable();
    assert_eq!(both, [0, 1, 2]);
    folder.picture("small.png", Size::new(9, 9));
    track(&folder, &["--mask-input", "small.png"]).fails(&["9", "192"]);
}

#[test]
pub(crate) fn raw_frames_on_standard_input() {
    let folder = clip();
    let run = ["track", "-", "--size", "192x128", "-p", "70,60", "-o", "out.jsonl"];
    let mut command = folder.command(&[&run[..], &ONE].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for number in 0..2 {
        input.write_all(frame(number).as_rgb()).unwrap();
    }
    drop(input);
    Ended::of(child.wait_with_output().unwrap()).succeeds();
    assert_eq!(frames_of(&lines(&folder, "out.jsonl")), [0, 1]);
}

#[test]
#[cfg(unix)]
fn ctrl_c_ends_with_complete_files() {
    let folder = folder();
    let run = ["track", "-", "--size", "32x32", "-p", "16,16", "-o", "out.jsonl", "-o", "masks"];
    let mut command = folder.command(&[&run[..], &ONE].concat());
    // Black frames without end.
    command.stdin(std::fs::File::open("/dev/zero").unwrap());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    crate::interrupted::wait_until("a first mask", || folder.has("masks/00000.png"));
    let ended = crate::interrupted::interrupt(child);
    assert_eq!(ended.code, Some(130));
    assert!(ended.stderr.contains("out.jsonl: partial, up to frame"), "{}", ended.stderr);
    assert!(ended.stderr.ends_with("error: interrupted\n"), "{}", ended.stderr);
    let found = lines(&folder, "out.jsonl");
    assert!(!found.is_empty());
    assert_eq!(frames_of(&found)[0], 0);
    assert!(folder.temporary_files().is_empty());
}

#[test]
fn a_frame_of_another_size_leaves_the_masks_before_it() {
    let folder = clip();
    let small = Image::filled(Size::new(50, 40), [0; 3]).unwrap();
    folder.write("clip/00002.png", encode_image(&small).unwrap());
    let ended = track(&folder, &["-p", "70,60", "-o", "masks", "-o", "out.jsonl"]);
    ended.fails(&["00002.png", "50", "40", "192", "128"]);
    assert_eq!(frames_of(&lines(&folder, "out.jsonl")), [0, 1]);
    for number in 0..2 {
        let mask = open(folder.path(&format!("masks/{number:05}.png")), &DecodeLimits::default());
        assert_eq!(mask.unwrap().size(), SIZE);
    }
    assert!(!folder.has("masks/00002.png") && folder.temporary_files().is_empty());
}

#[test]
fn a_clip_that_breaks_before_its_first_mask_leaves_nothing() {
    let folder = clip();
    let nothing_left = |prompts: &[&str], words: &str| {
        let outputs = ["-o", "masks", "--overlay", "drawn", "--raw", "raw"];
        track(&folder, &[prompts, &outputs].concat()).fails(&[words]);
        track(&folder, prompts).fails(&[words]);
        for name in ["masks", "drawn", "raw", "clip.masks", "clip.overlay.gif"] {
            assert!(!folder.has(name), "{name}, {prompts:?}");
        }
    };
    folder.write("clip/00001.png", "no picture");
    nothing_left(&["-p", "70,60", "--frame", "1", "-p", "82,60"], "00001.png");
    folder.write("clip/00000.png", "no picture");
    nothing_left(&["-p", "70,60"], "00000.png");
    track(&folder, &["-p", "70,60", "--history", "kept"]).fails(&["00000.png"]);
    assert!(!folder.has("kept"));
}

#[test]
pub(crate) fn invalid_arguments_are_rejected() {
    let folder = clip();
    track(&folder, &[]).wrong_usage(&["nothing to follow"]);
    track(&folder, &["-p", "1,1", "--both", "--reverse"]).wrong_usage(&["--both"]);
    track(&folder, &["-p", "1,1", "--size", "64"]).wrong_usage(&["WIDTHxHEIGHT"]);
    track(&folder, &["-p", "1,1", "-o", "no/such/masks"]).wrong_usage(&["folder does not exist"]);
    track(&folder, &["-b", "1,1,9,9", "-b", "2,2,8,8"]).wrong_usage(&["two boxes"]);
    track(&folder, &["-p", "960,1"]).fails(&["object 1 on frame 0", "outside"]);
    track(&folder, &["-p", "-1,1"]).fails(&["object 1 on frame 0", "outside"]);
    track(&folder, &["-p", "1,1", "--frame", "9", "-p", "1,1"]).fails(&["no frame 9"]);
    // Nothing is written before the prompts of all frames have been checked.
    folder.write("old.jsonl", "kept");
    let late = ["-p", "1,1", "--frame", "2", "--object", "2"];
    for (wrong, words) in [
        (&["-p", "1,1", "--frame", "9", "-p", "1,1"][..], "no frame 9"),
        (&["-p", "960,1"], "outside"),
        (&["-b", "9,9,9,9"], "no area"),
        (&["--mask-input", "absent.png"], "absent.png"),
    ] {
        let outputs = ["-o", "old.jsonl", "-o", "masks", "--overlay", "drawn"];
        track(&folder, &[&late[..], wrong, &outputs].concat()).fails(&[words]);
        assert_eq!(folder.read("old.jsonl"), b"kept");
        assert!(!folder.has("masks") && !folder.has("drawn"), "{wrong:?}");
    }
    folder.cutout(&["track", "absent", "-p", "1,1"]).fails(&["absent"]);
    let model = folder_with_model();
    model.picture("clip/0.png", SIZE);
    track(&model, &["-p", "1,1", "--model", MODEL]).fails(&[
        "SAM 1",
        "cannot track",
        "SAM 2, 2.1, 3 or 3.1",
    ]);
    // The small SAM 3 for pictures has no memory.
    let pictures = folder_with_sam3();
    pictures.picture("clip/0.png", SIZE);
    track(&pictures, &["-p", "1,1", "--model", SAM3]).fails(&["SAM 3", "cannot track", "memory"]);
}

/// A folder with the clip and the small model of a fixture.
fn clip_of(fixture: &str) -> (Folder, StageFile) {
    let file = StageFile::load(fixture).unwrap();
    let folder = folder();
    let frames = file.tensor("clip/input/frames").unwrap();
    let [count, height, width, 3] = frames.shape()[..] else { panic!("{}", frames.ty()) };
    let pixels = frames.to_vec::<u8>().unwrap();
    for (number, pixels) in pixels.chunks(pixels.len() / count).enumerate() {
        let image = Image::from_rgb(Size::new(width, height), pixels.to_vec()).unwrap();
        folder.write(&format!("clip/{number:05}.png"), encode_image(&image).unwrap());
    }
    let weights = file.weights();
    let mut tensors = rotation_tables(&file.metadata["config"]).unwrap();
    for path in weights.paths() {
        tensors.insert(path.to_owned(), weights.get(path).unwrap().tensor().unwrap());
    }
    folder.checkpoint("video.safetensors", tensors.into_iter().collect());
    (folder, file)
}

/// Follows prompts through the clip of a fixture, compares object scores with those of a step there, and returns what `cutout info`
/// says about the model.
fn follows_as_metas_code(fixture: &str, step: &str, prompts: &[&str]) -> String {
    let (folder, file) = clip_of(fixture);
    let outputs = ["-m", "video.safetensors", "--raw", "raw", "-o", "out.jsonl"];
    track(&folder, &[prompts, &outputs].concat()).succeeds();
    let found = lines(&folder, "out.jsonl");
    assert_eq!(found.len(), 20);
    for frame in 0..20 {
        let raw = Checkpoint::open(folder.path(&format!("raw/{frame:05}.safetensors"))).unwrap();
        let scores = raw.tensor("object_score").unwrap().to_vec::<f32>().unwrap();
        let expected = file.stage(step, &format!("{frame}.object_score")).unwrap();
        let expected = expected.to_vec::<f32>().unwrap();
        assert_eq!(scores.len(), expected.len(), "frame {frame}");
        for (found, expected) in scores.iter().zip(expected) {
            assert!((found - expected).abs() < 2e-3, "frame {frame}: {found}, {expected}");
        }
    }
    folder.cutout(&["info", "video.safetensors"]).succeeds()
}

#[test]
fn sam3_follows_clicks_and_boxes_as_metas_code_does() {
    let prompts = ["--object", "1", "-p", "13,14.5", "--object", "7", "-b", "27,4,46,21.5"];
    let about = follows_as_metas_code("sam3/clip.safetensors", "main.2", &prompts);
    assert!(about.contains("SAM 3") && about.contains("tracks"), "{about}");
    assert!(!about.contains("SAM 3.1") && !about.contains("in one pass"), "{about}");
}

#[test]
fn sam3_1_follows_objects_of_a_bucket_as_metas_code_does() {
    let prompts = ["--object", "1", "-p", "13,14.5", "--object", "7", "-b", "27,4,46,21.5"];
    let third = ["--object", "3", "-p", "26,16", "-p", "5,30,0"];
    let prompts = [&prompts[..], &third].concat();
    let about = follows_as_metas_code("sam3/multiplex_clip.safetensors", "main.3", &prompts);
    assert!(about.contains("SAM 3.1"), "{about}");
    assert!(about.contains("tracks objects through videos, up to 4 in one pass"), "{about}");
}

/// Runs a command that breaks off at frame `broken` of five, mends the frame, resumes, and compares everything with a run
/// that was never interrupted.
fn broken_and_resumed(broken: usize, more: &[&str]) {
    let folder = folder();
    let png = |number: usize| encode_image(&frame(number % 4)).unwrap();
    for number in 0..5 {
        folder.write(&format!("clip/{number:05}.png"), png(number));
    }
    let run = |name: &str, resume: &[&str]| {
        let outputs = [format!("{name}.jsonl"), format!("{name}-masks"), format!("{name}-raw")];
        let outputs = ["-o", &outputs[0], "-o", &outputs[1], "--raw", &outputs[2]];
        track(&folder, &[&outputs, more, resume].concat())
    };
    run("whole", &[]).succeeds();
    let file = format!("clip/{broken:05}.png");
    folder.write(&file, "no picture");
    let ended = run("parts", &[]);
    assert!(ended.stderr.contains("parts.jsonl: partial, up to frame"), "{}", ended.stderr);
    ended.fails(&[&file, "--resume goes on from there"]);
    assert!(folder.has("parts.jsonl.state"));
    folder.write(&file, png(broken));
    let other = track(&folder, &["-o", "parts.jsonl", "-p", "9,9", "--resume"]);
    other.wrong_usage(&["other prompts or options"]);
    run("parts", &["--resume"]).succeeds();
    assert_eq!(folder.read("parts.jsonl"), folder.read("whole.jsonl"));
    for number in 0..5 {
        for name in [format!("masks/{number:05}.png"), format!("raw/{number:05}.safetensors")] {
            let [whole, parts] = ["whole", "parts"].map(|run| format!("{run}-{name}"));
            assert_eq!(folder.has(&parts), folder.has(&whole), "{name}");
            if folder.has(&whole) {
                assert_eq!(folder.read(&parts), folder.read(&whole), "{name}");
            }
        }
    }
    assert!(!folder.has("parts.jsonl.state") && folder.temporary_files().is_empty());
}

#[test]
pub(crate) fn a_run_that_broke_off_goes_on_with_the_same_masks() {
    broken_and_resumed(3, &["-p", "70,60"]);
    broken_and_resumed(4, &["-p", "70,60", "--frame", "1", "--object", "2", "-b", "50,30,120,95"]);
}

#[test]
fn a_run_that_broke_off_on_its_way_back_goes_on() {
    broken_and_resumed(0, &["--frame", "2", "-p", "94,60", "--both"]);
    broken_and_resumed(1, &["--frame", "3", "-p", "106,60", "--reverse"]);
}

#[test]
fn what_cannot_be_resumed_says_so() {
    let folder = clip();
    let resume = ["-p", "70,60", "--resume"];
    let live = ["track", "-", "--size", "32x32", "-p", "16,16", "-o", "x.jsonl", "--resume"];
    folder.cutout(&live).wrong_usage(&["can be read again"]);
    let ended = track(&folder, &[&resume[..], &["-o", "masks", "--max-frames", "1"]].concat());
    assert!(ended.stderr.contains("beginning with the first frame"), "{}", ended.stderr);
    ended.succeeds();
    // A state that is no state, and one whose masks are gone.
    folder.write("masks.state", "no state");
    track(&folder, &[&resume[..], &["-o", "masks"]].concat())
        .wrong_usage(&["not written by cutout"]);
    folder.write("clip/00002.png", "no picture");
    track(&folder, &["-p", "70,60", "-o", "out.jsonl"]).fails(&["00002.png"]);
    folder.write("out.jsonl", "{}\n");
    track(&folder, &[&resume[..], &["-o", "out.jsonl"]].concat()).fails(&["out.jsonl", "1 frames"]);
}
