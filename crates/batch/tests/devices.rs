//! A run on several devices: the parts of one, whatever devices fail.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutout_batch::{Batch, BatchError, Columns, Event, Item, Shard, Summary, Task, collect};
use cutout_graph::RunError;
use cutout_imaging::{Image, Size, encode_image};
use cutout_parallel::Pool;
use cutout_sam::{Everything, Fleet, Profile, builtin_checkpoint, device};
use cutout_testing::{Gate, Gated};

/// Pictures of a run, one of which cannot be read.
const PICTURES: usize = 7;

/// A temporary folder with pictures, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cutout-batch-{}-{name}", std::process::id()));
        std::fs::create_dir_all(path.join("photos")).unwrap();
        for number in 0..PICTURES {
            let size = Size::new(40, 30);
            let colour = |i: usize| {
                let inside = (i % 40).abs_diff(8 + 4 * number) < 6 && (i / 40).abs_diff(15) < 7;
                if inside { [230, 200, 30] } else { [20, (i / 40) as u8, 40] }
            };
            let image = Image::from_rgb(size, (0..40 * 30).flat_map(colour).collect()).unwrap();
            let bytes = if number == 3 { b"none".to_vec() } else { encode_image(&image).unwrap() };
            std::fs::write(path.join(format!("photos/{number}.png")), bytes).unwrap();
        }
        Folder(path)
    }

    fn items(&self) -> Vec<Item> {
        let photos = self.0.join("photos").to_str().unwrap().to_owned();
        let columns = Columns { id: None, picture: None, boxes: None };
        collect(&[photos], &columns).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

/// A fleet whose devices fail after so many runs, if at all.
fn fleet(devices: &[Option<usize>]) -> Fleet {
    let member = |fails: &Option<usize>| {
        let gate = Arc::<Gate>::default();
        if let Some(runs) = fails {
            gate.fail_after(*runs, RunError::Device("off the bus".to_owned()));
        }
        let backend = device::backends(1).swap_remove(0);
        let backend = Arc::new(Gated::new(backend, gate)) as Arc<dyn cutout_graph::Backend>;
        (backend, Arc::new(Pool::new(1)), Profile::default())
    };
    Fleet::on(&builtin_checkpoint().unwrap(), devices.iter().map(member).collect()).unwrap()
}

/// Runs over the pictures of a folder; returns also which devices and pictures failed.
fn run(folder: &Folder, output: &str, fleet: Fleet) -> (Result<Summary, BatchError>, Vec<String>) {
    let output = folder.0.join(output);
    std::fs::create_dir_all(&output).unwrap();
    let options = Everything {
        points_per_side: 2,
        pred_iou_thresh: 0.0,
        stability_score_thresh: 0.0,
        ..fleet.first().everything_options()
    };
    let batch = Batch {
        fleet,
        model_sha256: "a model".to_owned(),
        task: Task::Everything(Box::new(options)),
        outlines: None,
        shard: Shard::WHOLE,
        output,
        pictures_per_part: 2,
        resume: true,
        max_errors: None,
    };
    let mut failed = Vec::new();
    let outcome = batch.run(&folder.items(), &mut |event| {
        if let Event::Failed(what) | Event::Lost(what) = event {
            failed.push(what.to_owned());
        }
        ControlFlow::Continue(())
    });
    (outcome, failed)
}

/// The files of a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let read = |entry: std::fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
    };
    entries.map(read).collect()
}

#[test]
fn a_device_that_fails_changes_no_byte() {
    let folder = Folder::new("fails");
    let (plain, failed) = run(&folder, "plain", fleet(&[None]));
    let plain = plain.unwrap();
    assert_eq!((plain.pictures, plain.errors, failed.len()), (PICTURES, 1, 1));
    let expected = files(&folder.0.join("plain"));
    assert_eq!(expected.len(), 8, "four parts with their marks");
    let fleets = [
        ("two", &[None, None][..]),
        ("at once", &[Some(0), None]),
        ("later", &[None, Some(4), None]),
    ];
    for (name, devices) in fleets {
        let (found, failed) = run(&folder, name, fleet(devices));
        let found = found.unwrap();
        assert_eq!((found.pictures, found.errors, found.rows), (PICTURES, 1, plain.rows));
        assert_eq!(files(&folder.0.join(name)), expected, "{name}");
        let lost = failed.iter().filter(|what| what.contains("off the bus")).count();
        assert!(lost <= devices.iter().flatten().count(), "{failed:?}");
        assert_eq!(failed.len() - lost, 1, "{failed:?}");
    }
}

#[test]
fn a_run_that_lost_all_devices_leaves_whole_parts_and_goes_on() {
    let folder = Folder::new("lost");
    run(&folder, "plain", fleet(&[None])).0.unwrap();
    let expected = files(&folder.0.join("plain"));
    for devices in [&[Some(7)][..], &[Some(5), Some(4)]] {
        let _removed = std::fs::remove_dir_all(folder.0.join("out"));
        let (outcome, failed) = run(&folder, "out", fleet(devices));
        let error = outcome.unwrap_err();
        assert!(matches!(error, BatchError::Fleet(_)), "{error}");
        assert!(error.to_string().contains("off the bus"), "{error}");
        assert!(failed.iter().filter(|what| what.contains("off the bus")).count() >= devices.len());
        let left = files(&folder.0.join("out"));
        assert!(left.len() < expected.len());
        assert!(left.iter().all(|(name, bytes)| expected[name] == *bytes), "{:?}", left.keys());
        run(&folder, "out", fleet(&[None, None])).0.unwrap();
        assert_eq!(files(&folder.0.join("out")), expected);
    }
}
