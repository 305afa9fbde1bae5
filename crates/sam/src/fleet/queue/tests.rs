//! The queue with devices that are functions.
#![allow(clippy::disallowed_methods, reason = "a clock beside a test")]

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use super::*;

/// An error that is the fault of what it says.
#[derive(Clone, Debug, PartialEq)]
struct Failure(Fault, &'static str);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }
}

impl Faulty for Failure {
    fn fault(&self) -> Fault {
        self.0
    }
}

const LOST: Failure = Failure(Fault::Device, "off the bus");
const NO_MEMORY: Failure = Failure(Fault::Memory, "no memory");
const UNREADABLE: Failure = Failure(Fault::Item, "no picture");

/// What a run delivered.
#[derive(Debug, Default, PartialEq)]
struct Delivered {
    /// Number and answer of each item, as they came.
    answers: Vec<(usize, Result<usize, Failure>)>,
    /// Devices that left, and how many items had been delivered.
    lost: Vec<(usize, String)>,
}

impl Delivered {
    /// The numbers of the items that failed.
    fn failed(&self) -> Vec<usize> {
        let failed = self.answers.iter().filter(|(_, answer)| answer.is_err());
        failed.map(|(index, _)| *index).collect()
    }

    /// Checks that all items were delivered in their order, with the right answers.
    fn check(&self, items: usize) {
        let order: Vec<usize> = self.answers.iter().map(|(index, _)| *index).collect();
        assert_eq!(order, (0..items).collect::<Vec<_>>());
        for (index, answer) in &self.answers {
            assert!(answer.as_ref().is_ok_and(|answer| *answer == 7 * index) || answer.is_err());
        }
    }
}

/// Ends the process if it is not dropped in time: an item that is lost would be waited for without end.
struct Limit(#[expect(dead_code, reason = "dropped at the end")] Sender<()>);

impl Limit {
    fn start() -> Self {
        let (sender, dropped) = channel::<()>();
        thread::spawn(move || {
            if dropped.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("a run does not end: an item is lost");
                std::process::abort();
            }
        });
        Limit(sender)
    }
}

/// The answer to an item, which is three times what was read of it.
type Answer<'a> = &'a (dyn Fn(usize, usize) -> Result<(), Failure> + Sync);

/// Runs items on devices that answer after `answer`, until this many are delivered.
fn run_until(
    stop: usize,
    (devices, items): (usize, usize),
    answer: Answer<'_>,
) -> (Result<(), FleetError>, Delivered) {
    let devices: Vec<String> = (0..devices).map(|number| format!("device {number}")).collect();
    let work = Work {
        items,
        devices: &devices,
        read: &|index| if index % 50 == 49 { Err(UNREADABLE) } else { Ok(index + index * 6) },
        answer: &|device, index, picture: &usize| answer(device, index).map(|()| *picture),
    };
    let mut delivered = Delivered::default();
    let _limit = Limit::start();
    let outcome = run(&work, &mut |event| {
        match event {
            FleetEvent::Done(FleetAnswer { index, answer, picture, .. }) => {
                assert_eq!(picture.is_none(), answer == Err(UNREADABLE));
                delivered.answers.push((index, answer));
            }
            FleetEvent::Lost { device, number, reason } => {
                assert_eq!(device, devices[number]);
                delivered.lost.push((number, reason));
            }
        }
        if delivered.answers.len() == stop {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    (outcome, delivered)
}

fn run_on(devices: usize, items: usize, answer: Answer<'_>) -> (Result<(), FleetError>, Delivered) {
    run_until(usize::MAX, (devices, items), answer)
}

fn rest(milliseconds: u64) {
    thread::sleep(Duration::from_millis(milliseconds));
}

#[test]
fn slow_and_fast_devices_answer_each_item_once_in_order() {
    for devices in [1, 2, 5] {
        let times: Vec<AtomicUsize> = (0..120).map(|_| AtomicUsize::new(0)).collect();
        let by_device: Vec<AtomicUsize> = (0..devices).map(|_| AtomicUsize::new(0)).collect();
        let all_work = Barrier::new(devices);
        let (outcome, delivered) = run_on(devices, 120, &|device, index| {
            times[index].fetch_add(1, Ordering::Relaxed);
            if by_device[device].fetch_add(1, Ordering::Relaxed) == 0 {
                all_work.wait();
            }
            // The first device is ten times as slow as the others.
            rest(if device == 0 && devices > 1 { 20 } else { 2 * (index as u64 % 2) });
            Ok(())
        });
        assert_eq!(outcome, Ok(()));
        delivered.check(120);
        assert_eq!(delivered.failed(), [49, 99]);
        assert_eq!(delivered.lost, []);
        let answered = |index: usize| times[index].load(Ordering::Relaxed);
        assert!((0..120).all(|index| answered(index) == usize::from(index % 50 != 49)));
        let counts: Vec<usize> =
            by_device.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
        assert!(devices == 1 || counts[1..].iter().sum::<usize>() > 2 * counts[0], "{counts:?}");
    }
    assert_eq!(run_on(2, 0, &|_, _| Ok(())).0, Ok(()));
}

#[test]
fn what_a_lost_device_had_goes_to_another() {
    for lost in [0, 2] {
        let begun = AtomicUsize::new(0);
        let (outcome, delivered) = run_on(3, 45, &|device, _| {
            if device == lost {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                return if number < 4 { Ok(()) } else { Err(LOST) };
            }
            while begun.load(Ordering::Relaxed) < 5 {
                rest(1);
            }
            Ok(())
        });
        assert_eq!(outcome, Ok(()));
        delivered.check(45);
        assert_eq!(delivered.failed(), [0; 0]);
        assert_eq!(delivered.lost, [(lost, "off the bus".to_owned())]);
        assert_eq!(begun.load(Ordering::Relaxed), 5, "nothing is asked of a lost device");
    }
}

#[test]
fn without_any_device_the_run_fails() {
    let begun = AtomicUsize::new(0);
    let (outcome, delivered) = run_on(3, 45, &|_, _| {
        if begun.fetch_add(1, Ordering::Relaxed) < 12 {
            return Ok(());
        }
        // All three are at work.
        rest(10);
        Err(LOST)
    });
    assert_eq!(outcome, Err(FleetError::NoDeviceLeft(vec!["off the bus".to_owned(); 3])));
    assert!(outcome.unwrap_err().to_string().starts_with("every device failed: off the bus;"));
    delivered.check(delivered.answers.len());
    assert!((9..=14).contains(&delivered.answers.len()), "{delivered:?}");
    assert_eq!(delivered.lost.len(), 3);
    let (outcome, delivered) = run_on(1, 9, &|_, index| if index < 3 { Ok(()) } else { Err(LOST) });
    assert_eq!(outcome.unwrap_err().to_string(), "off the bus");
    delivered.check(3);
}

#[test]
fn an_item_that_two_devices_fail_at_fails() {
    let (outcome, delivered) =
        run_on(3, 40, &|_, index| if index == 7 { Err(LOST) } else { Ok(()) });
    assert_eq!(outcome, Ok(()));
    delivered.check(40);
    assert_eq!(delivered.failed(), [7]);
    assert_eq!(delivered.lost.len(), 2, "the third goes on");
}

#[test]
fn a_device_without_memory_for_what_another_can_answer_leaves() {
    let (outcome, delivered) = run_on(2, 40, &|device, _| {
        rest(1);
        if device == 1 { Err(NO_MEMORY) } else { Ok(()) }
    });
    assert_eq!(outcome, Ok(()));
    delivered.check(40);
    assert_eq!(delivered.failed(), [0; 0]);
    assert_eq!(delivered.lost, [(1, "no memory".to_owned())]);
}

#[test]
fn an_item_too_large_for_every_device_fails_alone() {
    for devices in [1, 2, 4] {
        let large = |index: usize| index % 10 == 3;
        let (outcome, delivered) = run_on(devices, 40, &|_, index| {
            rest(1);
            if large(index) { Err(NO_MEMORY) } else { Ok(()) }
        });
        assert_eq!(outcome, Ok(()));
        delivered.check(40);
        assert_eq!(delivered.failed(), [3, 13, 23, 33], "{devices}");
        assert_eq!(delivered.lost, [], "{devices}");
    }
}

#[test]
fn what_only_the_last_device_is_left_for_is_not_waited_for() {
    // A device has no memory for item 0. Before the other one can try it, that is lost at item 1.
    let (failed, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (outcome, delivered) = run_on(2, 8, &|_, index| match index {
        0 => {
            while lost.load(Ordering::Acquire) == 0 {
                rest(1);
            }
            failed.fetch_add(1, Ordering::Release);
            Err(NO_MEMORY)
        }
        1 if lost.fetch_add(1, Ordering::Release) == 0 => {
            while failed.load(Ordering::Acquire) == 0 {
                rest(1);
            }
            rest(20);
            Err(LOST)
        }
        _ => Ok(()),
    });
    assert_eq!(outcome, Ok(()));
    delivered.check(8);
    assert_eq!(delivered.failed(), [0]);
    assert_eq!(delivered.lost.len(), 1);
}

#[test]
fn a_caller_that_stops_ends_the_run() {
    let begun = AtomicUsize::new(0);
    let (outcome, delivered) = run_until(5, (3, 1000), &|_, _| {
        begun.fetch_add(1, Ordering::Relaxed);
        rest(1);
        Ok(())
    });
    assert_eq!(outcome, Err(FleetError::Stopped));
    delivered.check(5);
    assert!(begun.load(Ordering::Relaxed) <= 5 + 3 * (BEGUN + 1));
}

#[test]
fn few_items_are_held_while_one_is_slow() {
    let (begun, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (outcome, delivered) = run_on(2, 40, &|_, index| {
        begun.fetch_add(1, Ordering::Relaxed);
        if index == 0 {
            rest(150);
            seen.store(begun.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
    delivered.check(40);
    let seen = seen.load(Ordering::Relaxed);
    assert!((2..=2 * BEGUN).contains(&seen), "{seen} were begun before the first had ended");
}

#[test]
fn a_panic_goes_on_in_the_caller() {
    for devices in [1, 3] {
        let run = || {
            run_on(devices, 40, &|_, index| {
                assert!(index != 5, "on purpose");
                Ok(())
            })
        };
        let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert!(panic.downcast_ref::<&str>().unwrap().contains("on purpose"));
    }
}
