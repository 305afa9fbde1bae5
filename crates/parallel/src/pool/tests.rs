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
#[expect(clippy::disallowed_methods, reason = "several threads call one pool")]
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
fn one_thread_starts_no_worker() {
    let here = std::thread::current().id();
    for threads in [0, 1] {
        let pool = Pool::new(threads);
        assert!(pool.workers.is_empty());
        pool.run(10, &|_| assert_eq!(std::thread::current().id(), here));
    }
}

#[test]
fn chunks_cover_the_slice_once_and_in_order() {
    for (threads, length, chunk) in [(1, 10, 3), (2, 0, 4), (2, 1000, 7), (7, 64, 64), (3, 5, 0)] {
        let mut values = vec![0; length];
        Pool::new(threads).for_chunks(&mut values, chunk, &|task, part| {
            assert!(part.len() <= chunk.max(1));
            (task * chunk.max(1)..).zip(part).for_each(|(i, value)| *value += i + 1);
        });
        assert_eq!(values, (1..=length).collect::<Vec<_>>());
    }
}

#[test]
fn mapped_results_are_in_the_order_of_the_items() {
    let items: Vec<u64> = (0..100).collect();
    let squares: Vec<u64> = items.iter().map(|item| item * item).collect();
    for threads in [1, 2, 7, 200] {
        let pool = Pool::new(threads);
        let uneven = |item: &u64| {
            std::thread::sleep(Duration::from_micros(item % 3 * 50));
            item * item
        };
        assert_eq!(pool.map(&items, uneven), squares);
        assert!(pool.map(&[] as &[u64], |item| *item).is_empty());
    }
}
