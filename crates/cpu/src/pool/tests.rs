use std::collections::HashSet;
use std::sync::atomic::AtomicU32;

use super::*;

#[test]
fn every_task_runs_once() {
    for threads in [0, 1, 2, 7] {
        let pool = Pool::new(threads);
        assert_eq!(pool.threads(), threads.max(1));
        for tasks in [0, 1, 2, 3, 100, 1000] {
            let counts: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
            pool.run(tasks, &|task| {
                counts[task].fetch_add(1, Ordering::Relaxed);
            });
            assert!(
                counts.iter().all(|count| count.load(Ordering::Relaxed) == 1),
                "{threads} {tasks}"
            );
        }
    }
}

#[test]
fn many_short_loops_with_and_without_pauses() {
    let pool = Pool::new(3);
    let total = AtomicUsize::new(0);
    for round in 0..3000 {
        pool.run(5, &|task| {
            total.fetch_add(task, Ordering::Relaxed);
        });
        if round % 300 == 0 {
            // Long enough for the workers to fall asleep.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(total.into_inner(), 30_000);
}

#[test]
fn a_nested_loop_runs_on_its_own_thread() {
    let pool = Pool::new(4);
    let seen = Mutex::new(Vec::new());
    pool.run(8, &|outer| {
        let here = std::thread::current().id();
        pool.run(10, &|inner| {
            assert_eq!(std::thread::current().id(), here);
            seen.lock().unwrap().push((outer, inner));
        });
    });
    let distinct: HashSet<(usize, usize)> = seen.lock().unwrap().iter().copied().collect();
    assert_eq!((distinct.len(), seen.lock().unwrap().len()), (80, 80));
}

#[test]
fn several_callers_share_a_pool() {
    let pool = Pool::new(3);
    let total = AtomicUsize::new(0);
    let count = |_| {
        total.fetch_add(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| pool.run(16, &count)));
        }
    });
    assert_eq!(total.into_inner(), 4 * 200 * 16);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    for threads in [1, 2, 7] {
        let pool = Pool::new(threads);
        for bad in [0, 13, 63] {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(64, &|task| assert!(task != bad, "task {task} failed"));
            }));
            let panic = outcome.unwrap_err();
            assert_eq!(panic.downcast_ref::<String>().unwrap(), &format!("task {bad} failed"));
            let done = AtomicUsize::new(0);
            pool.run(10, &|_| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), 10);
        }
    }
}

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
