//! Scores of bytes are the exact integers of their definition.

use super::bytes::{ByteKeys, BytePanel, KeyShift, KeyTerms};
use super::half::RowCopies;
use super::numbers::Bytes;
use super::pack::{Columns, PackRows};
use super::plan::{MOST_ROWS, Split};
use super::tile::{Keys, sums};
use crate::simd::{Isa, Kernel, MAX_LANES, Simd, dispatch};

/// Rows of channels.
type Rows = Vec<Vec<f32>>;

/// The sum of products of each key with each query, in the lanes of one vector, and all scales.
struct Scores<'a> {
    queries: &'a Rows,
    keys: &'a Rows,
    shift: &'a [f32],
    factor: f32,
}

struct Found {
    /// `[key][query]`
    sums: Vec<Vec<i32>>,
    query_scales: Vec<f32>,
    key_scales: Vec<f32>,
}

impl Kernel for Scores<'_> {
    type Output = Found;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Found {
        let Scores { queries, keys, shift, factor } = self;
        let (width, words) = (shift.len(), shift.len().div_ceil(4));
        let starts: Vec<*const f32> = queries.iter().map(|query| query.as_ptr()).collect();
        let mut panel = vec![0.0; width.next_multiple_of(S::LANES) * S::LANES];
        let columns = Columns { out: &mut panel, stride: S::LANES };
        // SAFETY: queries have `width` elements.
        simd.vectorize(unsafe { PackRows::new(&starts, width, columns) });
        let mut query_scales = vec![0.0; S::LANES];
        let scales = &mut query_scales[..];
        simd.vectorize(BytePanel { panel: &mut panel, width, factor, scales });
        let starts: Vec<*const f32> = keys.iter().map(|key| key.as_ptr()).collect();
        let [mut key_scales, mut key_starts] = [(); 2].map(|()| vec![0.0; keys.len()]);
        let mut out = vec![0.0; keys.len() * words + MAX_LANES / 4];
        let padded = width.next_multiple_of(S::LANES);
        let (mut row, mut shifted) = (shift.to_vec(), vec![0.0; S::LANES * padded]);
        row.resize(padded, 0.0);
        // SAFETY: keys have `width` elements.
        let copies = unsafe { RowCopies::new(&starts, [width, words], &mut out) };
        let terms = KeyTerms { scales: &mut key_scales, starts: &mut key_starts };
        let shift = KeyShift { row: &row, shifted: &mut shifted };
        simd.vectorize(ByteKeys { copies, terms, shift });
        let mut found = Vec::new();
        for (key, &start) in out.chunks_exact(words).zip(&key_starts) {
            let operands = (Keys([key.as_ptr(); MOST_ROWS]), panel.as_ptr());
            // SAFETY: the key has these words, and the panel a vector for each of them.
            let [[sum]] = unsafe { sums::<S, _, Bytes, 1, 1>(simd, operands, words, [start]) };
            let mut lanes = [0; MAX_LANES];
            // SAFETY: there are as many integers as lanes.
            unsafe { simd.store_int_pointer(simd.bits(sum), lanes.as_mut_ptr()) };
            found.push(lanes[..queries.len()].to_vec());
        }
        query_scales.truncate(queries.len());
        Found { sums: found, query_scales, key_scales }
    }
}

/// A row as integers of at most 127, and its scale.
fn quantized(row: &[f32]) -> (Vec<i32>, f32) {
    let largest = row.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    if largest < f32::from_bits(7 << 23) {
        return (vec![0; row.len()], 0.0);
    }
    let number = |x: &f32| (x * (127.0 / largest)).round_ties_even() as i32;
    (row.iter().map(number).collect(), largest / 127.0)
}

fn noise(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn scores_of_bytes_are_the_exact_integers_of_their_definition() {
    for isa in Isa::available() {
        for width in (1..=20).chain([31, 32, 64, 67]) {
            let rows = |seed: u32, count: usize| -> Rows {
                (0..count as u32)
                    .map(|row| noise(seed + row, width).iter().map(|x| x * row as f32).collect())
                    .collect()
            };
            let (queries, keys) = (rows(width as u32, isa.lanes() - 1), rows(700, 9));
            let (shift, factor) = (noise(11, width), 0.37);
            let scores = Scores { queries: &queries, keys: &keys, shift: &shift, factor };
            let found = dispatch(isa, scores);
            let subtract = |key: &Vec<f32>| key.iter().zip(&shift).map(|(k, s)| k - s).collect();
            let keys: Rows = keys.iter().map(subtract).collect();
            for (query, scale) in queries.iter().zip(&found.query_scales) {
                assert_eq!(*scale, quantized(query).1 * factor, "{isa:?}, width {width}");
            }
            for (number, key) in keys.iter().enumerate() {
                let (key, scale) = quantized(key);
                assert_eq!(found.key_scales[number], scale, "{isa:?}, width {width}");
                let product = |query: &Vec<f32>| -> i32 {
                    quantized(query).0.iter().zip(&key).map(|(q, k)| q * k).sum()
                };
                let expected: Vec<i32> = queries.iter().map(product).collect();
                assert_eq!(found.sums[number], expected, "{isa:?}, width {width}, key {number}");
            }
        }
    }
}

#[test]
fn rows_with_a_nan_or_an_infinity_have_no_scale_and_tiny_ones_count_as_zeros() {
    for isa in Isa::available() {
        let row = |x: f32| vec![0.5, -1.0, x, 0.25, 0.125];
        let bad = vec![row(f32::NAN), row(f32::INFINITY), row(f32::NEG_INFINITY), row(0.0)];
        let tiny = vec![vec![1e-40; 5], vec![0.0; 5], row(3.0)];
        let shift = vec![0.0; 5];
        let scores =
            |queries, keys| dispatch(isa, Scores { queries, keys, shift: &shift, factor: 1.0 });
        let found = scores(&bad, &tiny);
        let missing: Vec<bool> = found.query_scales.iter().map(|scale| scale.is_nan()).collect();
        assert_eq!(missing, [true, true, true, false], "{isa:?}");
        assert_eq!(found.key_scales[..2], [0.0, 0.0], "{isa:?}");
        assert_eq!(found.sums[0], [0; 4], "{isa:?}");
        assert_eq!(found.sums[1], [0; 4], "{isa:?}");
        let found = scores(&tiny, &bad);
        let missing: Vec<bool> = found.key_scales.iter().map(|scale| scale.is_nan()).collect();
        assert_eq!(missing, [true, true, true, false], "{isa:?}");
        assert_eq!(found.query_scales[..2], [0.0, 0.0], "{isa:?}");
    }
}

/// A memory of video: one head, 86 panels of queries, 28736 keys.
#[test]
fn tasks_that_copy_many_keys_have_more_panels_and_parts_of_the_keys() {
    let numbers = Split {
        dots: false,
        panels: 86,
        panel_bytes: 96 << 10,
        most: 32,
        window_heads: 1,
        key_parts: 56,
    };
    assert_eq!(numbers.choose(), (2, 1));
    let bytes = Split { dots: true, panel_bytes: 60 << 10, ..numbers };
    assert_eq!(bytes.choose(), (8, 3));
    let few_keys = Split { key_parts: 2, ..bytes };
    assert_eq!(few_keys.choose(), (2, 1));
    let heads = Split { window_heads: 12, panel_bytes: 15 << 10, key_parts: 8, ..bytes };
    assert_eq!(heads.choose(), (22, 1));
}
