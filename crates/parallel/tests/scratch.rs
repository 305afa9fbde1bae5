//! Scratch memory: alignment, reuse, nesting, and failed allocations.

use std::sync::atomic::{AtomicUsize, Ordering};

use cutout_parallel::{NoScratch, Pool, catch_no_scratch, with_scratch};

#[test]
fn scratch_is_aligned_kept_and_distinct_when_nested() {
    let first = with_scratch(100, |outer| {
        assert_eq!((outer.len(), outer.as_ptr() as usize % 64), (100, 0));
        outer.fill(1.0);
        with_scratch(50, |inner| inner.fill(2.0));
        assert!(outer.iter().all(|&x| x == 1.0));
        outer.as_ptr() as usize
    });
    assert_eq!(with_scratch(100, |again| again.as_ptr() as usize), first);
    let pool = Pool::new(2);
    pool.run_with_scratch(20, 1000, &|task, scratch| {
        assert_eq!((scratch.len(), scratch.as_ptr() as usize % 64), (1000, 0));
        scratch.fill(task as f32);
        assert!(scratch.iter().all(|&x| x == task as f32));
    });
}

/// More floats than any machine has memory for.
const TOO_MANY: usize = 1 << 58;

/// Too many for the first task.
fn wanted(task: usize) -> usize {
    if task == 0 { TOO_MANY } else { 16 }
}

#[test]
fn no_scratch_is_an_error_on_any_thread() {
    for threads in [1, 3] {
        let pool = Pool::new(threads);
        let missing = Err(NoScratch { bytes: 4 * TOO_MANY });
        for tasks in [1, 50] {
            let none = || pool.run_with_scratch(tasks, TOO_MANY, &|_, _| panic!("it has none"));
            assert_eq!(catch_no_scratch(none), missing);
            // In a task, beside what other tasks hold.
            let nested = || {
                pool.run_with_scratch(tasks, 16, &|task, _| with_scratch(wanted(task), |_| ()));
            };
            assert_eq!(catch_no_scratch(nested), missing);
        }
        // Loops go on as before.
        let done = AtomicUsize::new(0);
        let all = || {
            pool.run_with_scratch(100, 1000, &|_, scratch| {
                scratch.fill(1.0);
                done.fetch_add(scratch.len(), Ordering::Relaxed);
            });
        };
        assert_eq!(catch_no_scratch(all), Ok(()));
        assert_eq!(done.into_inner(), 100_000);
    }
    assert_eq!(
        NoScratch { bytes: 12 }.to_string(),
        "12 bytes of scratch memory could not be allocated"
    );
}

#[test]
#[should_panic(expected = "another reason")]
fn other_panics_are_not_caught() {
    let _ = catch_no_scratch(|| panic!("another reason"));
}
