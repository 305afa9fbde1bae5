//! A profile of one thread starts no threads. The file has one test because it counts the threads of the process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use cutout_graph::Profile;
use cutout_sam::imaging::{Image, Size};
use cutout_sam::{Everything, Sam};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Opens a model with `threads` threads, embeds a picture large enough for several tasks, and segments everything in it.
fn segment(threads: usize) {
    let profile = Profile { threads: NonZeroUsize::new(threads), ..Profile::default() };
    let sam = Sam::builtin_with(profile).unwrap();
    let size = Size::new(1200, 900);
    let pixels = (0..3 * size.width * size.height).map(|i| (i / 700 % 251) as u8).collect();
    let image = Image::from_rgb(size, pixels).unwrap();
    let options = Everything { points_per_side: 2, ..Everything::default() };
    sam.everything(&image, &options, &mut |_| ControlFlow::Continue(())).unwrap();
}

/// Most additional threads seen while `work` runs.
#[expect(clippy::disallowed_methods, reason = "the work is watched from another thread")]
fn most_threads(work: impl FnOnce() + Send) -> usize {
    let before = threads();
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        let mut most = 0;
        while !working.is_finished() {
            most = most.max(threads().saturating_sub(before + 1));
        }
        most
    })
}

#[test]
fn one_thread_starts_no_other() {
    assert_eq!(most_threads(|| segment(1)), 0);
    // At least one of its two: the thread that was watched before may still have been counted at the start.
    assert_ne!(most_threads(|| segment(3)), 0, "the count sees the threads of a pool");
}
