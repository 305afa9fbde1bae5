//! `cutout track`: runs that break off and go on, results of earlier runs, signals. With a small SAM 2.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};

use cutout_imaging::{Image, Size, encode_image};
use cutout_testing::StageFile;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};
use serde_json::Value;

use crate::support::{Ended, Folder, folder};

const SIZE: Size = Size::new(48, 32);
const SAM2: &str = "sam2.safetensors";

/// Writes the small model.
fn write_model(folder: &Folder) {
    let load = |part| StageFile::load(&format!("sam2/2.1_{part}.safetensors")).unwrap();
    let files = ["image", "memory", "clip"].map(load);
    let mut tensors = BTreeMap::new();
    for weights in files.each_ref().map(StageFile::weights) {
        for path in weights.paths() {
            tensors.insert(path.to_owned(), weights.get(path).unwrap().tensor().unwrap());
        }
    }
    let tensors = tensors.into_iter().map(|(name, tensor)| OutgoingTensor::new(name, tensor));
    let config: Value = serde_json::from_str(&files[0].metadata["config"]).unwrap();
    let keys = ["image_size", "heads", "windows", "global_blocks", "decoder_heads", "memory_heads"];
    let text = |key: &str| config[key].to_string().replace(['[', ']'], "");
    let metadata: Metadata =
        keys.map(|key| (format!("sam2.{key}"), text(key).as_str().into())).into();
    write_safetensors(folder.path(SAM2), &tensors.collect::<Vec<_>>(), &metadata).unwrap();
}

/// A frame with a bright square that moves.
fn frame(number: usize) -> Image {
    let colour = |i: usize| {
        let (x, y) = (i % SIZE.width, i / SIZE.width);
        if x.abs_diff(10 + number % 30) < 8 && y.abs_diff(14) < 8 {
            [230, 200, 30]
        } else {
            [20, (5 * y) as u8, x as u8]
        }
    };
    let pixels = (0..SIZE.width * SIZE.height).flat_map(colour).collect();
    Image::from_rgb(SIZE, pixels).unwrap()
}

fn picture(number: usize) -> Vec<u8> {
    encode_image(&frame(number)).unwrap()
}

/// A folder with the model and a clip of this many frames.
fn clip(frames: usize) -> Folder {
    let folder = folder();
    write_model(&folder);
    (0..frames).for_each(|number| folder.write(&file(number), picture(number)));
    folder
}

/// The file of a frame.
fn file(number: usize) -> String {
    format!("clip/{number:05}.png")
}

/// One click on the first frame.
const CLICK: [&str; 2] = ["-p", "10,14"];

fn arguments<'a>(video: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["track", video, "-m", SAM2, "--threads", "1"], more].concat()
}

fn track(folder: &Folder, more: &[&str]) -> Ended {
    folder.cutout(&arguments("clip", more))
}

/// Runs a command that breaks off at frame `broken`, and mends the frame.
fn break_off(folder: &Folder, broken: usize, more: &[&str]) -> String {
    folder.write(&file(broken), "no picture");
    let ended = track(folder, more);
    folder.write(&file(broken), picture(broken));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    ended.stderr
}

fn resume(folder: &Folder, more: &[&str]) -> Ended {
    track(folder, &[more, &["--resume"]].concat())
}

fn names(folder: &Folder, name: &str) -> Vec<String> {
    let entries = fs::read_dir(folder.path(name)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The masks and the overlay of a run that broke off and went on are those of a whole run.
fn overlay_is_drawn_anew(broken: usize, run: &[&str], masks: &str, overlay: &str) {
    let folder = clip(5);
    track(&folder, run).succeeds();
    let whole = [masks, overlay].map(|name| folder.read(name));
    for stump_stays in [true, false] {
        let said = break_off(&folder, broken, run);
        assert!(said.contains(&format!("{overlay}: partial, up to frame")), "{said}");
        assert!(said.contains("the same command with --resume goes on"), "{said}");
        assert!(folder.read(overlay).len() < whole[1].len());
        if !stump_stays {
            fs::remove_file(folder.path(overlay)).unwrap();
        }
        resume(&folder, run).succeeds();
        assert!([masks, overlay].map(|name| folder.read(name)) == whole, "{run:?}");
    }
}

#[test]
fn an_overlay_in_one_file_is_drawn_anew() {
    overlay_is_drawn_anew(3, &CLICK, "clip.masks/00004.png", "clip.overlay.gif");
    let named = |outputs: &[&'static str]| [&CLICK[..], outputs].concat();
    let lines = named(&["--overlay", "tr.gif", "-o", "tr.jsonl"]);
    overlay_is_drawn_anew(3, &lines, "tr.jsonl", "tr.gif");
    let back = ["--frame", "2", "-p", "12,14", "--both", "-o", "d", "--overlay", "o.gif"];
    overlay_is_drawn_anew(0, &back, "d/00000.png", "o.gif");
}

#[test]
fn an_overlay_of_a_video_that_is_read_in_order_is_drawn_anew() {
    let folder = clip(0);
    // A stream of PPM pictures.
    let ppm = |number| [b"P6 48 32 255\n", frame(number).as_rgb()].concat();
    let video: Vec<u8> = (0..6).flat_map(ppm).collect();
    let run = ["-p", "10,14", "-o", "m.jsonl", "--overlay", "o.gif"];
    folder.write("v.ppm", &video);
    folder.cutout(&arguments("v.ppm", &run)).succeeds();
    let whole = ["m.jsonl", "o.gif"].map(|name| folder.read(name));
    folder.write("v.ppm", &video[..video.len() * 7 / 10]);
    folder.cutout(&arguments("v.ppm", &run)).fails(&["v.ppm", "--resume goes on"]);
    folder.write("v.ppm", &video);
    folder.cutout(&arguments("v.ppm", &[&run[..], &["--resume"]].concat())).succeeds();
    assert!(["m.jsonl", "o.gif"].map(|name| folder.read(name)) == whole);
}

#[test]
fn an_overlay_without_masks_cannot_go_on() {
    let folder = clip(3);
    let run = [&CLICK[..], &["--overlay", "o.gif"]].concat();
    let said = break_off(&folder, 2, &run);
    assert!(said.contains("o.gif: partial") && !said.contains("--resume"), "{said}");
    resume(&folder, &run).wrong_usage(&["o.gif", "from the masks", "add an --output"]);
    // A folder of pictures goes on by itself.
    let run = [&CLICK[..], &["--overlay", "drawn"]].concat();
    break_off(&folder, 2, &run);
    resume(&folder, &run).succeeds();
    assert_eq!(names(&folder, "drawn").len(), 3);
}

#[test]
fn results_of_an_earlier_run_are_removed() {
    let folder = clip(4);
    let run = ["-p", "10,14", "-o", "m", "--raw", "r", "--overlay", "o"];
    track(&folder, &run).succeeds();
    for name in ["m/notes.txt", "m/7.png", "m/00003.jpg", "r/00003.png"] {
        folder.write(name, "mine");
    }
    track(&folder, &[&run[..], &["--max-frames", "2"]].concat()).succeeds();
    assert_eq!(names(&folder, "m"), ["00000.png", "00001.png", "00003.jpg", "7.png", "notes.txt"]);
    assert_eq!(names(&folder, "o"), ["00000.png", "00001.png"]);
    assert_eq!(names(&folder, "r"), ["00000.safetensors", "00001.safetensors", "00003.png"]);
    // A frame that another program wrote is an error before anything is removed.
    folder.write("m/00003.png", "mine");
    track(&folder, &run).wrong_usage(&["00003.png", "not written by cutout"]);
    assert_eq!(names(&folder, "o").len(), 2);
}

#[test]
fn a_clip_that_changed_is_not_continued() {
    let run = ["-p", "10,14", "-o", "m.jsonl"];
    let folder = clip(5);
    break_off(&folder, 3, &run);
    let before = folder.read("m.jsonl");
    for changed in [0, 2] {
        folder.write(&file(changed), picture(changed + 1));
        let words = ["the video has changed", &format!("frame {changed} "), "leave out --resume"];
        resume(&folder, &run).wrong_usage(&words);
        folder.write(&file(changed), picture(changed));
    }
    fs::remove_file(folder.path(&file(1))).unwrap();
    resume(&folder, &run).wrong_usage(&["the video has changed", "length was 5, and is 4"]);
    folder.write(&file(5), picture(5));
    resume(&folder, &run).wrong_usage(&["the video has changed", "frame 2 "]);
    assert_eq!(folder.read("m.jsonl"), before);
    folder.write(&file(1), picture(1));
    fs::remove_file(folder.path(&file(5))).unwrap();
    resume(&folder, &run).succeeds();
}

#[test]
fn missing_results_are_noticed() {
    let run = ["-p", "10,14", "-o", "m", "-o", "m.jsonl", "--raw", "r"];
    for missing in ["m/00001.png", "r/00000.safetensors", "m.jsonl"] {
        let folder = clip(4);
        break_off(&folder, 3, &run);
        fs::remove_file(folder.path(missing)).unwrap();
        resume(&folder, &run).wrong_usage(&[missing, "is missing", "leave out --resume"]);
    }
}

#[test]
fn a_complete_run_is_not_repeated() {
    let folder = clip(3);
    let run = ["-p", "10,14", "-o", "m", "-o", "m.jsonl", "--overlay", "o.gif"];
    track(&folder, &run).succeeds();
    let written = |name: &str| fs::metadata(folder.path(name)).unwrap().modified().unwrap();
    let before = written("m.jsonl");
    let ended = resume(&folder, &run);
    assert!(ended.stderr.contains("m: complete, all frames are written"), "{}", ended.stderr);
    ended.succeeds();
    assert_eq!(written("m.jsonl"), before);
    // Without one of the results it is not complete.
    fs::remove_file(folder.path("m/00001.png")).unwrap();
    let ended = resume(&folder, &run);
    assert!(ended.stderr.contains("beginning with the first frame"), "{}", ended.stderr);
    ended.succeeds();
    assert!(folder.has("m/00001.png"));
}

#[test]
fn a_new_run_forgets_the_state_of_another() {
    let folder = clip(4);
    let run = ["-p", "10,14", "-o", "m.jsonl"];
    break_off(&folder, 3, &run);
    assert!(folder.has("m.jsonl.state"));
    // It ends before its first mask, and must not be taken for the run before.
    let late = [&run[..], &["--frame", "3", "-p", "10,14"]].concat();
    break_off(&folder, 3, &late);
    assert!(!folder.has("m.jsonl.state"));
}

#[test]
fn what_track_cannot_do_is_said_before_any_work() {
    let folder = clip(2);
    let refused = |more: &[&str], words: &[&str]| {
        let ended = track(&folder, &[&CLICK[..], more].concat());
        let lines = ended.stderr.lines().count();
        assert!(lines == 1 && !ended.stderr.contains("os error"), "{}", ended.stderr);
        ended.wrong_usage(words);
        assert_eq!(names(&folder, ""), ["clip", "p.png", SAM2], "{more:?}");
    };
    folder.write("p.png", picture(0));
    refused(&["--size", "7x7", "-o", "i.jsonl"], &["clip: --size", "cutout track -"]);
    refused(&["-o", "j.json", "--resume"], &["j.json", "--resume continues .jsonl files"]);
    refused(&["-o", "j.csv"], &["j.csv", "must be .jsonl, .json or .txt;"]);
    refused(
        &["-o", "m.jsonl", "-o", "m", "--object", "300", "-p", "9,9"],
        &["object 300", "1 to 255"],
    );
    refused(&["--object", "0", "-p", "9,9"], &["object 0", "1 to 255"]);
    refused(&["--raw", "p.png"], &["p.png: exists and is not a folder"]);
    #[cfg(unix)]
    refused(&["-o", "/dev/full"], &["/dev/full: exists and is not a folder", ".jsonl"]);
    refused(&["-b", "1,1,5,5", "-b", "1,1,6,6"], &["has two boxes"]);
    refused(&["--object", "2"], &["applies to the prompts after it"]);
    let lines = ["-o", "m.JSONL", "--object", "300", "-p", "9,9", "--max-frames", "1"];
    track(&folder, &[&CLICK[..], &lines].concat()).succeeds();
    assert!(folder.path("m.JSONL").is_file());
}

/// Starts a run through many frames and waits for its first masks.
#[cfg(unix)]
fn started(folder: &Folder, more: &[&str]) -> Child {
    let mut command = folder.command(&arguments("clip", more));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    crate::interrupted::wait_until("a second mask", || folder.has("m/00001.png"));
    child
}

#[cfg(unix)]
fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Whether this process, and so those that it starts, ignore SIGHUP.
#[cfg(target_os = "linux")]
fn ignores_hang_up() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
}

#[test]
#[cfg(target_os = "linux")]
fn signals_keep_the_state() {
    let run = [&CLICK[..], &["-o", "m"]].concat();
    for (signal, code) in [("-TERM", 143), ("-HUP", 129), ("-INT", 130)] {
        if signal == "-HUP" && ignores_hang_up() {
            continue;
        }
        let folder = clip(400);
        let child = started(&folder, &run);
        send(signal, &child);
        let ended = Ended::of(child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains("--resume goes on"), "{}", ended.stderr);
        assert!(ended.stderr.ends_with("error: interrupted\n"), "{}", ended.stderr);
        assert!(folder.has("m.state") && folder.temporary_files().is_empty());
        let more = (names(&folder, "m").len() + 1).to_string();
        let ended = resume(&folder, &[&run[..], &["--max-frames", &more]].concat());
        assert!(!ended.stderr.contains("beginning with the first frame"), "{}", ended.stderr);
        ended.succeeds();
        assert_eq!(names(&folder, "m").len().to_string(), more);
    }
}

/// Waits until a run has kept a state with masks after it, and kills the run, which cannot clean up.
#[cfg(unix)]
fn killed(folder: &Folder, run: &[&str]) {
    let mut command = folder.command(&arguments("clip", run));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    crate::interrupted::wait_until("a state", || folder.has("m.state"));
    let done = names(folder, "m").len();
    crate::interrupted::wait_until("more masks", || names(folder, "m").len() > done + 1);
    send("-KILL", &child);
    assert_eq!(child.wait().unwrap().code(), None);
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_run_goes_on() {
    let run = [&CLICK[..], &["-o", "m", "-o", "m.jsonl", "--overlay", "o.gif"]].concat();
    let folder = clip(2000);
    killed(&folder, &run);
    let done = names(&folder, "m").len();
    assert!(done < 2000);
    // A line that was not finished, and a file that the next run clears.
    let mut lines = folder.read("m.jsonl");
    lines.extend(b"{\"frame\":");
    folder.write("m.jsonl", lines);
    folder.write("m/.cutout-1-1.tmp", "half");
    let most = (done + 2).to_string();
    let limited = [&run[..], &["--max-frames", &most]].concat();
    let ended = resume(&folder, &limited);
    assert!(!ended.stderr.contains("beginning with the first frame"), "{}", ended.stderr);
    ended.succeeds();
    assert!(!folder.has("m.state"));
    let outputs = || {
        let frames = names(&folder, "m");
        let masks = frames.iter().map(|name| folder.read(&format!("m/{name}"))).collect::<Vec<_>>();
        (frames, masks, folder.read("m.jsonl"), folder.read("o.gif"))
    };
    let resumed = outputs();
    assert_eq!(resumed.0.len(), done + 2);
    track(&folder, &limited).succeeds();
    assert!(outputs() == resumed, "the results are not those of a whole run");
}

#[test]
#[cfg(target_os = "linux")]
fn a_state_that_cannot_be_kept_does_not_end_a_run() {
    let folder = clip(2000);
    // A folder stands where the state would be written.
    let run = [&CLICK[..], &["-o", "m"]].concat();
    let mut child = folder.command(&arguments("clip", &run));
    let child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    crate::interrupted::wait_until("a mask", || folder.has("m/00000.png"));
    fs::create_dir(folder.path("m.state")).unwrap();
    let count = || names(&folder, "m").len();
    let started = std::time::Instant::now();
    crate::interrupted::wait_until("three seconds of work", || started.elapsed().as_secs() >= 3);
    let done = count();
    crate::interrupted::wait_until("more masks", || count() > done + 1 || count() == 2000);
    let ended = crate::interrupted::interrupt(child);
    let words = "warning: the state cannot be kept for --resume: m.state";
    assert!(ended.stderr.contains(words), "{}", ended.stderr);
    // A fast machine is done with all frames before the signal.
    let expected = if count() < 2000 { &[130][..] } else { &[0, 130] };
    assert!(ended.code.is_some_and(|code| expected.contains(&code)), "{}", ended.stderr);
    assert!(folder.path("m.state").is_dir());
}

#[test]
#[cfg(target_os = "linux")]
fn nohup_keeps_a_run_alive() {
    let folder = clip(400);
    let program = folder.command(&arguments("clip", &[&CLICK[..], &["-o", "m"]].concat()));
    let mut command = Command::new("nohup");
    command.arg(program.get_program()).args(program.get_args()).current_dir(folder.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    crate::interrupted::wait_until("a mask", || folder.has("m/00000.png"));
    send("-HUP", &child);
    let done = names(&folder, "m").len();
    crate::interrupted::wait_until("more masks", || names(&folder, "m").len() > done + 1);
    send("-TERM", &child);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(143));
}
