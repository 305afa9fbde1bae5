//! Rows of a picture on several threads.

use std::num::NonZero;
use std::thread;

use crate::Size;

/// Rows below which a pass is not worth a second thread.
const LEAST_ROWS_PER_THREAD: usize = 64;

/// Calls `work(first row, rows)` for bands of `output`, `[size.height, size.width, 3]`, each on a thread of its own.
pub(super) fn in_bands<T: Send>(
    output: &mut [T],
    size: Size,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    in_bands_of(thread::available_parallelism().map_or(1, NonZero::get), output, size, work);
}

fn in_bands_of<T: Send>(
    threads: usize,
    output: &mut [T],
    size: Size,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    let bands = threads.min(size.height / LEAST_ROWS_PER_THREAD).max(1);
    let rows = size.height.div_ceil(bands);
    let mut parts = output.chunks_mut(rows * 3 * size.width).enumerate();
    let Some((_, own)) = parts.next() else { return };
    thread::scope(|scope| {
        for (i, band) in parts {
            let work = &work;
            scope.spawn(move || work(i * rows, band));
        }
        work(0, own);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_every_row_once() {
        for (height, threads) in [(1, 4), (63, 2), (200, 3), (130, 2), (1000, 16)] {
            let size = Size::new(2, height);
            let mut output = vec![0u8; 6 * height];
            in_bands_of(threads, &mut output, size, |first, band| {
                for (i, row) in band.chunks_exact_mut(6).enumerate() {
                    row.iter_mut().for_each(|value| *value += ((first + i) % 251) as u8 + 1);
                }
            });
            for (i, row) in output.chunks_exact(6).enumerate() {
                assert_eq!(row, [(i % 251) as u8 + 1; 6]);
            }
        }
    }
}
