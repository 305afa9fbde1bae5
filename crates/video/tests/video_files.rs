//! Video files, read through a stand-in for `ffmpeg`: each "video" is a shell script that the stand-in runs.
#![cfg(unix)]

use std::ffi::OsStr;
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::support::{Folder, fake_tools, greys};
use cutout_video::{
    FrameSource, OpenOptions, Prefetch, Tools, VideoError, find_program, from_reader, open,
};

fn options() -> OpenOptions {
    OpenOptions { tools: fake_tools(), ..OpenOptions::default() }
}

/// A clip for which the stand-in for `ffmpeg` runs `script`.
fn clip(folder: &Folder, script: &str) -> Box<dyn FrameSource> {
    open(folder.put("clip.mp4", script), &options()).unwrap()
}

#[test]
fn frames_are_read_in_order() {
    let folder = Folder::new("normal");
    let source = clip(&folder, "for n in 001 002 003; do frame $n; done");
    assert!(matches!(greys(source), (found, None) if found == [1, 2, 3]));
}

#[test]
fn ffprobe_reports_length_and_rate() {
    let folder = Folder::new("facts");
    let path = folder.put("clip.mp4", "frame 001");
    let source = open(&path, &options()).unwrap();
    assert_eq!((source.length(), source.frame_rate()), (None, None));
    folder.put("clip.mp4.facts", "avg_frame_rate=30/1\nnb_frames=1\n");
    let source = open(&path, &options()).unwrap();
    assert_eq!((source.length(), source.frame_rate()), (Some(1), Some(30.0)));
    let tools = Tools { ffprobe: None, ..fake_tools() };
    let source = open(&path, &OpenOptions { tools, ..OpenOptions::default() }).unwrap();
    assert_eq!((source.length(), source.frame_rate()), (None, None));
    assert_eq!(greys(source).0, [1]);
    // If ffprobe cannot be started, length and rate are unknown.
    let tools = Tools { ffprobe: Some("/no/such/ffprobe".into()), ..fake_tools() };
    let source = open(&path, &OpenOptions { tools, ..OpenOptions::default() }).unwrap();
    assert_eq!(source.length(), None);
}

#[test]
fn paths_cannot_be_mistaken_for_options_or_protocols() {
    let folder = Folder::new("paths");
    for name in ["-y", "http:clip", "concat:a|b", "clip with spaces.mp4"] {
        let path = folder.put(name, "frame 007");
        assert_eq!(greys(open(&path, &options()).unwrap()).0, [7], "{name}");
        let arguments = fs::read_to_string(folder.0.join("arguments")).unwrap();
        let expected = format!("-i\nfile:{}\n-map\n0:V:0\n", path.display());
        assert!(arguments.contains(&expected), "{arguments}");
        assert!(arguments.contains("-protocol_whitelist\nfile,pipe,crypto,data\n"), "{arguments}");
        assert!(arguments.starts_with("-nostdin\n-v\nerror\n"), "{arguments}");
        assert!(arguments.ends_with("image2pipe\n-c:v\nppm\n-pix_fmt\nrgb24\npipe:1\n"));
        assert!(arguments.contains("-fps_mode\npassthrough\n"), "{arguments}");
    }
}

#[test]
fn files_of_strangers_are_read_by_formats_that_name_no_other_files() {
    let folder = Folder::new("strangers");
    let path = folder.put("clip", "frame 007");
    let options = OpenOptions { is_untrusted: true, ..options() };
    assert_eq!(greys(open(&path, &options).unwrap()).0, [7]);
    let arguments = fs::read_to_string(folder.0.join("arguments")).unwrap();
    let allowed = "-protocol_whitelist\nfile,pipe\n-format_whitelist\nmov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi\n-i\n";
    assert!(arguments.contains(allowed), "{arguments}");
}

#[test]
fn frames_before_a_failure_are_delivered() {
    let folder = Folder::new("dies");
    for (script, ending) in [
        ("frame 001; frame 002; echo 'it is broken' >&2; exit 3", "exit status: 3"),
        (
            "frame 001; frame 002; printf 'P6\\n2 1\\n255\\nxy'; echo 'it is broken' >&2; exit 3",
            "exit status: 3",
        ),
        (
            "frame 001; frame 002; printf 'P6\\n2'; echo 'it is broken' >&2; exit 3",
            "exit status: 3",
        ),
        ("frame 001; frame 002; echo 'it is broken' >&2; kill -9 $$", "signal: 9"),
    ] {
        let (found, error) = greys(clip(&folder, script));
        assert_eq!(found, [1, 2]);
        let Some(VideoError::Ffmpeg { frames: 2, ending: how, said, .. }) = error else {
            panic!("{script}: {error:?}")
        };
        assert!(how.starts_with(ending), "{how}");
        assert_eq!(said, "it is broken");
    }
    let (found, error) = greys(clip(&folder, "echo 'moov atom not found' >&2; exit 183"));
    assert!(found.is_empty());
    let message = error.unwrap().to_string();
    assert!(
        message.ends_with(
            "clip.mp4: ffmpeg failed after 0 frames (exit status: 183): moov atom not found"
        ),
        "{message}"
    );
}

#[test]
fn only_the_last_lines_of_stderr_are_reported() {
    let folder = Folder::new("lines");
    let script = "n=0; while [ $n -lt 3000 ]; do n=$((n+1)); echo \"line $n\" >&2; done; exit 1";
    let Some(VideoError::Ffmpeg { said, .. }) = greys(clip(&folder, script)).1 else { panic!() };
    let lines: Vec<String> = (2991..=3000).map(|n| format!("line {n}")).collect();
    assert_eq!(said, lines.join("\n"));
}

#[test]
fn a_truncated_video_is_reported() {
    let folder = Folder::new("cut");
    // ffmpeg exits with success here.
    let (found, error) = greys(clip(&folder, "frame 001; echo 'File ended prematurely' >&2"));
    assert_eq!(found, [1]);
    let Some(VideoError::Damaged { frames: 1, said, .. }) = error else { panic!("{error:?}") };
    assert_eq!(said, "File ended prematurely");
    let (found, error) = greys(clip(&folder, "frame 001; printf 'P6\\n2 1\\n255\\nxy'"));
    assert_eq!(found, [1]);
    assert!(matches!(error, Some(VideoError::Truncated { frame: 1, found: 2, .. })), "{error:?}");
    let (_, error) = greys(clip(&folder, "exit 0"));
    assert!(matches!(error, Some(VideoError::NoFrames { .. })), "{error:?}");
}

/// Runs `work` on a thread of its own and fails after a minute: a guard against hanging, not a measurement.
#[expect(clippy::disallowed_methods, reason = "the thread waits, it computes nothing")]
fn must_end(work: impl FnOnce() + Send + 'static) {
    let (ended, end) = channel();
    let thread = std::thread::spawn(move || {
        work();
        ended.send(()).unwrap();
    });
    let outcome = end.recv_timeout(Duration::from_secs(60));
    assert_ne!(outcome, Err(RecvTimeoutError::Timeout), "still waiting after a minute");
    thread.join().unwrap();
}

#[test]
fn output_that_is_not_frames_is_an_error() {
    must_end(refuse_garbage);
}

fn refuse_garbage() {
    let folder = Folder::new("garbage");
    for script in ["frame 001; echo hello there", "frame 001; exec yes"] {
        let (found, error) = greys(clip(&folder, script));
        assert_eq!(found, [1]);
        assert!(matches!(error, Some(VideoError::Stream { frame: 1, .. })), "{error:?}");
    }
    for script in [
        "frame 001; printf 'P6\\n900000000 900000000\\n255\\n'; exec cat /dev/zero",
        "frame 001; printf 'P6\\n900000000 900000000\\n255\\n'; echo 'no memory' >&2; exit 1",
    ] {
        let (found, error) = greys(clip(&folder, script));
        assert_eq!(found, [1]);
        assert!(matches!(error, Some(VideoError::TooManyPixels { .. })), "{error:?}");
    }
    let (_, error) = greys(clip(&folder, "frame 001; printf 'P6\\n1 1\\n255\\nabc'"));
    assert!(matches!(error, Some(VideoError::FrameSize { frame: 1, .. })), "{error:?}");
}

#[test]
fn the_error_without_ffmpeg_lists_alternatives() {
    let folder = Folder::new("missing");
    let path = folder.put("clip.mp4", "frame 001");
    let error = open(&path, &OpenOptions::default()).err().unwrap();
    assert!(matches!(error, VideoError::NoFfmpeg { .. }));
    let message = error.to_string();
    for part in
        ["clip.mp4", "apt install ffmpeg", "a folder or zip archive of pictures", "GIF", "raw RGB"]
    {
        assert!(message.contains(part), "{message}");
    }
    let tools = Tools { ffmpeg: Some("/no/such/ffmpeg".into()), ffprobe: None };
    let error = open(&path, &OpenOptions { tools, ..OpenOptions::default() }).err().unwrap();
    assert!(matches!(error, VideoError::Start { .. }));
    assert!(error.to_string().starts_with("/no/such/ffmpeg: cannot start the program"), "{error}");
}

#[test]
fn videos_are_read_from_a_stream() {
    let script = "frame 011; frame 012";
    let source = from_reader(Cursor::new(script), "standard input", &options()).unwrap();
    assert!(matches!(greys(source), (found, None) if found == [9, 10]));
    // More bytes than a pipe buffers, for a program that has closed its input.
    let long = format!("frame 011; exec 0<&-; exit 0\n{}", "#".repeat(1 << 20));
    let source = from_reader(Cursor::new(long), "standard input", &options()).unwrap();
    assert!(matches!(greys(source), (found, None) if found == [9]));
    // An error of the reader is not the end of the stream.
    let broken =
        std::io::Read::chain(Cursor::new("frame 001 # and more that will not come\n"), Unplugged);
    let (found, error) = greys(from_reader(broken, "camera", &options()).unwrap());
    assert_eq!(found, [1]);
    assert_eq!(error.unwrap().to_string(), "camera: cannot read: unplugged");
}

struct Unplugged;

impl std::io::Read for Unplugged {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("unplugged"))
    }
}

/// Whether a process exists, running or as a zombie.
fn exists(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).exists()
}

/// A clip that blocks after two frames, and the id of the process that produces it.
fn endless(folder: &Folder) -> (Box<dyn FrameSource>, String) {
    let mut source = clip(folder, "echo $$ >\"$here/pid\"; frame 001; frame 002; exec sleep 1000");
    source.next().unwrap().unwrap();
    let pid = fs::read_to_string(folder.0.join("pid")).unwrap();
    (source, pid)
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "looks into /proc")]
fn dropping_a_source_kills_and_reaps_ffmpeg() {
    let folder = Folder::new("drop");
    let (mut source, pid) = endless(&folder);
    source.next().unwrap().unwrap();
    assert!(exists(&pid));
    // A stop handle does not keep the process alive.
    let handle = source.stop_handle().unwrap();
    drop(source);
    assert!(!exists(&pid));
    handle.stop();
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "looks into /proc")]
fn dropping_a_prefetcher_kills_and_reaps_ffmpeg() {
    let folder = Folder::new("prefetched");
    let (source, pid) = endless(&folder);
    let mut source = Prefetch::new(source).unwrap();
    assert_eq!(source.next().unwrap().unwrap().as_rgb()[0], 2);
    // The process sleeps for longer than the guard waits.
    must_end(move || drop(source));
    assert!(!exists(&pid));
}

#[test]
fn prefetching_gives_the_same_frames() {
    let folder = Folder::new("ahead");
    folder.put("clip.mp4.facts", "avg_frame_rate=5/2\nnb_frames=9\n");
    let script = "for n in 001 002 003 004 005 006 007; do frame $n; done; exit 1";
    let source = Prefetch::new(clip(&folder, script)).unwrap();
    assert_eq!((source.length(), source.frame_rate()), (Some(9), Some(2.5)));
    assert!(source.name().ends_with("clip.mp4"));
    let (found, error) = greys(source);
    assert_eq!(found, [1, 2, 3, 4, 5, 6, 7]);
    assert!(matches!(error, Some(VideoError::Ffmpeg { frames: 7, .. })), "{error:?}");
}

#[test]
fn programs_are_found_on_the_path() {
    let tools = fake_tools().ffmpeg.unwrap();
    let folder = Folder::new("path");
    folder.put("ffmpeg", "not executable");
    let path = std::env::join_paths([Path::new("relative"), &folder.0, tools.parent().unwrap()]);
    let path = path.unwrap();
    assert_eq!(find_program("ffmpeg", &path), Some(tools.clone()));
    assert_eq!(Tools::find(&path), fake_tools());
    assert_eq!(find_program("ffmpeg", OsStr::new("")), None);
    assert_eq!(find_program("no-such-program", &path), None);
    assert_eq!(Tools::find(folder.0.as_os_str()), Tools::default());
}
