//! One model on several devices: the built-in one, on backends of the processor that can be held and can fail.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use cutout_graph::{Backend, RunError};
use cutout_imaging::{Image, Size};
use cutout_parallel::Pool;
use cutout_sam::{
    Device, Devices, Fleet, FleetError, FleetEvent, Profile, Prompt, Sam, SegmentError,
    builtin_checkpoint, device,
};
use cutout_testing::{Gate, Gated};

/// Pictures of a run.
const PICTURES: usize = 6;

/// A fleet whose devices are behind gates.
fn gated(devices: usize) -> (Fleet, Vec<Arc<Gate>>) {
    let gates: Vec<Arc<Gate>> = (0..devices).map(|_| Arc::default()).collect();
    let member = |gate: &Arc<Gate>| {
        let backend = device::backends(1).swap_remove(0);
        let backend: Arc<dyn Backend> = Arc::new(Gated::new(backend, Arc::clone(gate)));
        (backend, Arc::new(Pool::new(1)), Profile::default())
    };
    let members = gates.iter().map(member).collect();
    (Fleet::on(&builtin_checkpoint().unwrap(), members).unwrap(), gates)
}

/// A picture with a bright square, which is elsewhere in each.
fn picture(number: usize) -> Image {
    let size = Size::new(64, 48);
    let colour = |i: usize| {
        let (x, y) = (i % size.width, i / size.width);
        let inside = x.abs_diff(10 + 5 * number) < 8 && y.abs_diff(20) < 9;
        if inside { [230, 200, 30] } else { [20, 3 * y as u8, 2 * x as u8] }
    };
    Image::from_rgb(size, (0..size.width * size.height).flat_map(colour).collect()).unwrap()
}

/// The mask of a picture, as text, and its score.
fn mask(sam: &Sam, number: usize, image: &Image) -> Result<(String, f32), SegmentError> {
    let masks = sam.embed(image)?.segment(&Prompt::point((10 + 5 * number) as f64, 20.0))?;
    Ok((masks.best().rle()?.to_coco_string(), masks.best().iou()))
}

/// The masks of all pictures in the order in which they came, and the devices that were lost.
#[derive(Debug, Default)]
struct Found {
    masks: Vec<Result<(String, f32), String>>,
    lost: Vec<usize>,
}

fn run(fleet: &Fleet) -> (Result<(), FleetError>, Found) {
    let numbers: Vec<usize> = (0..PICTURES).collect();
    let mut found = Found::default();
    let outcome = fleet.run(
        &numbers,
        |&number| Ok(picture(number)),
        |sam, &number, image| mask(sam, number, image),
        &mut |event: FleetEvent<_, _, SegmentError>| {
            match event {
                FleetEvent::Done(done) => {
                    assert_eq!(done.index, found.masks.len(), "pictures come in their order");
                    found.masks.push(done.answer.map_err(|error| error.to_string()));
                }
                FleetEvent::Lost { number, reason, .. } => {
                    assert_eq!(reason, lost().to_string());
                    found.lost.push(number);
                }
            }
            ControlFlow::Continue(())
        },
    );
    (outcome, found)
}

/// The masks without any fleet.
fn plain() -> Vec<Result<(String, f32), String>> {
    let sam = Sam::builtin_with(Profile { device: Device::Cpu, ..Profile::default() }).unwrap();
    (0..PICTURES).map(|number| Ok(mask(&sam, number, &picture(number)).unwrap())).collect()
}

fn lost() -> RunError {
    RunError::Device("off the bus".to_owned())
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the run is watched from another thread")]
fn several_devices_give_the_answers_of_one() {
    let plain = plain();
    assert!(plain.windows(2).all(|two| two[0] != two[1]), "each picture has a mask of its own");
    for devices in [1, 3] {
        let (fleet, gates) = gated(devices);
        // The first device is slower than the others together: it waits at its third run until all the others can be done.
        gates[0].hold_after(2);
        let (outcome, found) = std::thread::scope(|scope| {
            let run = scope.spawn(|| run(&fleet));
            gates[0].wait_until_held();
            gates[0].open();
            run.join().unwrap()
        });
        assert_eq!(outcome, Ok(()));
        assert_eq!(found.masks, plain, "{devices}");
        assert_eq!(found.lost, [0; 0]);
        let runs: usize = gates.iter().map(|gate| gate.runs()).sum();
        let (one, gate) = gated(1);
        mask(one.first(), 0, &picture(0)).unwrap();
        assert_eq!(runs, PICTURES * gate[0].runs(), "each picture is computed once");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the run is watched from another thread")]
fn a_device_that_fails_loses_no_picture() {
    let plain = plain();
    for runs in [0, 4] {
        let (fleet, gates) = gated(2);
        gates[1].fail_after(runs, lost());
        // The first device begins when the second is lost.
        gates[0].hold_after(0);
        let (outcome, found) = std::thread::scope(|scope| {
            let run = scope.spawn(|| run(&fleet));
            while gates[1].runs() <= runs {
                std::thread::sleep(Duration::from_millis(1));
            }
            gates[0].open();
            run.join().unwrap()
        });
        assert_eq!(outcome, Ok(()));
        assert_eq!(found.masks, plain, "lost at run {runs}");
        assert_eq!(found.lost, [1]);
        assert_eq!(gates[1].runs(), runs + 1, "nothing is asked of a lost device");
    }
}

#[test]
fn a_fleet_without_devices_fails() {
    let (fleet, gates) = gated(2);
    gates.iter().for_each(|gate| gate.fail_after(5, lost()));
    let (outcome, found) = run(&fleet);
    assert_eq!(outcome, Err(FleetError::NoDeviceLeft(vec![lost().to_string(); 2])));
    assert!(found.masks.len() < PICTURES);
    assert_eq!(found.lost.len(), 2);
    let plain = plain();
    assert!(found.masks.iter().zip(&plain).all(|(found, plain)| found.is_err() || found == plain));
}

#[test]
fn fleets_open_by_name() {
    let open =
        |name: &str, profile: Profile| Fleet::builtin_with(&Devices::named(name).unwrap(), profile);
    let fleet = open("cpux3", Profile::default()).unwrap();
    assert_eq!(fleet.sams().len(), 3);
    assert!(fleet.left_out().is_empty());
    let (outcome, found) = run(&fleet);
    assert_eq!((outcome, found.masks), (Ok(()), plain()));
    // Threads are divided, and all read the same packed weights.
    let threads = std::num::NonZeroUsize::new(7);
    let fleet = open("cpux3", Profile { threads, ..Profile::default() }).unwrap();
    let each = fleet.sams().iter().map(|sam| sam.profile().threads.unwrap().get());
    assert_eq!(each.collect::<Vec<_>>(), [2, 2, 2]);
    fleet.first().prepare().unwrap();
    let bytes = fleet.first().weight_bytes();
    fleet.sams()[2].prepare().unwrap();
    assert!(bytes > 0 && fleet.sams()[2].weight_bytes() == bytes);
    assert_eq!(open("cpu", Profile::default()).unwrap().sams().len(), 1);
    for name in ["cuda:4711", "cuda:4711,4712"] {
        assert!(open(name, Profile::default()).unwrap_err().to_string().contains("cuda:4711"));
    }
    if device::usable_gpu().is_err() {
        let error = open("cuda:all", Profile::default()).unwrap_err().to_string();
        assert!(error.starts_with("no card can be used: "), "{error}");
    }
    assert!(Devices::named("gpu:all").unwrap_err().to_string().contains("cuda:all"));
}
