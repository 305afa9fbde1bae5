//! Forms of attention that must agree with each other, and inputs that must be refused.

use cutout_tensor::{DType, TensorType};
use cutout_testing::Random;

use super::{Attention, AttentionRope, BiasForm, SeparableBias, Windows};
use crate::ops::Rope;
use crate::{DenseTensor, OpDef};

fn noise<const N: usize>(shape: [usize; N], seed: u64) -> DenseTensor<f64> {
    let mut random = Random::new(seed);
    let count = shape.iter().product();
    DenseTensor::from_real(shape, (0..count).map(|_| random.normal()).collect())
}

fn assert_near(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (actual, expected) in actual.iter().zip(expected) {
        assert!((actual - expected).abs() < 1e-12, "{actual} is not {expected}");
    }
}

/// Rows of a `[1, tokens, channels]` tensor; `None` reads `padding`.
fn rows(
    x: &DenseTensor<f64>,
    tokens: &[Option<usize>],
    padding: &DenseTensor<f64>,
) -> DenseTensor<f64> {
    let channels = x.shape[2];
    let row = |token: &Option<usize>| match token {
        Some(token) => x.real()[token * channels..(token + 1) * channels].to_vec(),
        None => padding.real().to_vec(),
    };
    DenseTensor::from_real([1, tokens.len(), channels], tokens.iter().flat_map(row).collect())
}

#[test]
fn padded_windows_are_attention_of_each_window_padded_by_hand() {
    let (grid, window) = ([5, 7], [3, 4]);
    let windows =
        Windows { query_grid: grid, key_grid: grid, query_window: window, key_window: window };
    assert!(windows.has_padding());
    let op = Attention { windows: Some(windows), ..Attention::new(2, 0.7) };
    let [q, k] = [noise([1, 35, 6], 1), noise([1, 35, 6], 2)];
    let [v, padding_key, padding_value] = [noise([1, 35, 4], 3), noise([6], 4), noise([4], 5)];
    let whole = op.reference(&[&q, &k, &v, &padding_key, &padding_value]);
    for (top, left) in [(0, 0), (0, 4), (3, 0), (3, 4)] {
        let places = (0..12).map(|i| (top + i / 4, left + i % 4));
        let tokens: Vec<Option<usize>> =
            places.map(|(y, x)| (y < 5 && x < 7).then_some(y * 7 + x)).collect();
        let real: Vec<Option<usize>> = tokens.iter().copied().filter(Option::is_some).collect();
        let key = rows(&k, &tokens, &padding_key);
        let value = rows(&v, &tokens, &padding_value);
        let query = rows(&q, &real, &padding_key);
        let alone = Attention::new(2, 0.7).reference(&[&query, &key, &value]);
        assert_near(rows(&whole, &real, &padding_value).real(), alone.real());
    }
}

#[test]
fn a_relative_bias_is_an_absolute_one_read_from_the_query() {
    let grid = [3, 4];
    let with =
        |form| Attention { bias: Some(SeparableBias { form, grid }), ..Attention::new(2, 0.6) };
    let [q, k, v] = [1, 2, 3].map(|seed| noise([1, 12, 6], seed));
    let [rows, columns] = [noise([1, 12, 2, 5], 4), noise([1, 12, 2, 7], 5)];
    let shifted = |x: &DenseTensor<f64>, length: usize, own: fn(usize) -> usize| {
        let wide = 2 * length - 1;
        x.gather([1, 12, 2, length], |i| {
            let (line, at) = (i / length, i % length);
            line * wide + at + length - 1 - own(line / 2)
        })
    };
    let absolute_rows = shifted(&rows, 3, |query| query / 4);
    let absolute_columns = shifted(&columns, 4, |query| query % 4);
    let relative = with(BiasForm::Relative).reference(&[&q, &k, &v, &rows, &columns]);
    let absolute =
        with(BiasForm::Absolute).reference(&[&q, &k, &v, &absolute_rows, &absolute_columns]);
    assert_near(relative.real(), absolute.real());
}

#[test]
fn rotation_inside_is_rotation_before() {
    let rope = Attention { rope: Some(AttentionRope { key_tail: 3 }), ..Attention::new(1, 0.5) };
    let [q, k, v] = [noise([1, 6, 4], 1), noise([1, 9, 4], 2), noise([1, 9, 5], 3)];
    let tables = [noise([3, 2], 4), noise([3, 2], 5), noise([2, 2], 6), noise([2, 2], 7)];
    let [query_cos, query_sin, key_cos, key_sin] = &tables;
    let inside = rope.reference(&[&q, &k, &v, query_cos, query_sin, key_cos, key_sin]);
    let q = Rope { tail: 0 }.reference(&[&q, query_cos, query_sin]);
    let k = Rope { tail: 3 }.reference(&[&k, key_cos, key_sin]);
    assert_near(inside.real(), Attention::new(1, 0.5).reference(&[&q, &k, &v]).real());
}

#[test]
fn one_key_gives_its_value_and_no_key_gives_nan() {
    let op = Attention { key_mask: true, ..Attention::new(1, 1.0) };
    let [q, k, v] = [noise([2, 1, 3], 1), noise([2, 2, 3], 2), noise([2, 2, 3], 3)];
    let mask = DenseTensor::from_bool([2, 2], vec![false, true, false, false]);
    let output = op.reference(&[&q, &k, &v, &mask]);
    assert_near(&output.real()[..3], &v.real()[3..6]);
    assert!(output.real()[3..].iter().all(|x| x.is_nan()));
}

#[test]
fn inputs_keep_their_order_when_named() {
    for case in Attention::cases() {
        let crate::Op::Attention(op) = case.op else { panic!("a case of another op") };
        let order: Vec<usize> = (0..case.inputs.len()).collect();
        assert_eq!(op.name_inputs(&order).unwrap().into_vec(), order);
    }
}

/// The error of `op` on queries, keys and values of these shapes, then `extra`.
fn refusal(op: Attention, [q, k, v]: [[usize; 3]; 3], extra: &[TensorType]) -> String {
    let mut types = [q, k, v].map(TensorType::f32).to_vec();
    types.extend_from_slice(extra);
    op.infer(&types.iter().collect::<Vec<_>>()).unwrap_err().to_string()
}

#[test]
fn attributes_out_of_range_are_refused() {
    let ok = Attention::new(2, 1.0);
    let shapes = [[1, 12, 4]; 3];
    let square =
        Windows { query_grid: [3, 4], key_grid: [3, 4], query_window: [3, 2], key_window: [3, 2] };
    let windows = Some(square);
    let key_tail = Some(AttentionRope { key_tail: 1 });
    let bias = |form, grid| Some(SeparableBias { form, grid });
    let unequal = Windows { query_window: [2, 2], key_window: [2, 4], ..square };
    let coarse = Windows { query_grid: [3, 4], key_grid: [6, 2], key_window: [6, 1], ..square };
    let wrong = [
        (Attention { heads: 0, ..ok }, "heads must be at least 1"),
        (Attention { scale: f32::NAN, ..ok }, "the scale must be finite, got NaN"),
        (Attention { scale: f32::INFINITY, ..ok }, "the scale must be finite, got inf"),
        (Attention { key_mask: true, windows, ..ok }, "key_mask true, causal false, key_tail 0"),
        (Attention { causal: true, windows, ..ok }, "key_mask false, causal true, key_tail 0"),
        (Attention { rope: key_tail, windows, ..ok }, "key_mask false, causal false, key_tail 1"),
        (Attention { bias: bias(BiasForm::Absolute, [0, 4]), ..ok }, "grid of the bias"),
        (Attention { bias: bias(BiasForm::Absolute, [usize::MAX, 2]), ..ok }, "grid of the bias"),
        (
            Attention { windows, bias: bias(BiasForm::Absolute, [2, 3]), ..ok },
            "must be the key window [3, 2], got [2, 3]",
        ),
        (
            Attention { windows: Some(coarse), bias: bias(BiasForm::Relative, [6, 1]), ..ok },
            "a relative bias needs equal windows, got [3, 2] and [6, 1]",
        ),
        (Attention { windows: Some(unequal), ..ok }, "as many windows, got [2, 2] and [2, 1]"),
        (
            Attention { windows: Some(Windows { key_window: [0, 2], ..square }), ..ok },
            "key_window must be above 0",
        ),
        (
            Attention {
                windows: Some(Windows { query_grid: [3, 5], query_window: [3, 3], ..square }),
                ..ok
            },
            "12 query tokens do not fill [3, 5]",
        ),
        (
            Attention { windows: Some(Windows { query_window: [usize::MAX, 2], ..square }), ..ok },
            "query_window must be above 0 and countable",
        ),
    ];
    for (op, expected) in wrong {
        let found = refusal(op, shapes, &[]);
        assert!(found.contains(expected), "{found:?} does not say {expected:?}");
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let ok = Attention::new(2, 1.0);
    let check = |op, shapes, extra: &[TensorType], expected: &str| {
        let found = refusal(op, shapes, extra);
        assert!(found.contains(expected), "{found:?} does not say {expected:?}");
    };
    check(ok, [[1, 3, 4], [1, 0, 4], [1, 0, 4]], &[], "at least one token, got f32[1, 0, 4]");
    check(ok, [[1, 3, 3], [1, 5, 3], [1, 5, 4]], &[], "query needs channels for 2 heads");
    check(ok, [[1, 3, 0], [1, 5, 0], [1, 5, 4]], &[], "query needs channels for 2 heads");
    check(ok, [[1, 3, 4], [2, 5, 4], [2, 5, 4]], &[], "key must have shape [1, 5, 4]");
    check(ok, [[1, 3, 4], [1, 5, 4], [1, 6, 4]], &[], "value must have shape [1, 5, 4]");
    check(ok, [[1, 3, 4]; 3], &[TensorType::f32([1])], "takes 3 inputs, got 4");
    let huge = [[1 << 40, 1 << 20, 2], [1 << 40, 1, 2], [1 << 40, 1, 1 << 20]];
    check(ok, huge, &[], "the output is too large");
    let causal = Attention { causal: true, ..ok };
    check(causal, [[1, 5, 4], [1, 3, 4], [1, 3, 4]], &[], "got 5 queries and 3 keys");
    let mask = Attention { key_mask: true, ..ok };
    check(mask, [[1, 3, 4]; 3], &[TensorType::f32([1, 3])], "key mask must be bool");
    let short = TensorType::new(DType::Bool, [1, 2]);
    check(mask, [[1, 3, 4]; 3], &[short], "key mask must have shape [1, 3]");
    let relative = SeparableBias { form: BiasForm::Relative, grid: [2, 3] };
    let biased = Attention { bias: Some(relative), ..ok };
    let tables = [3, 5].map(|length| TensorType::f32([1, 5, 2, length]));
    check(biased, [[1, 5, 4], [1, 6, 4], [1, 6, 4]], &tables, "got 5 and 6");
    check(biased, [[1, 5, 4]; 3], &tables, "5 keys do not fill the bias's grid [2, 3]");
    check(biased, [[1, 6, 4]; 3], &tables, "bias rows must have shape [1, 6, 2, 3]");
    let rope = Attention { rope: Some(AttentionRope { key_tail: 2 }), ..ok };
    let tables = [2, 2, 3, 3].map(|positions| TensorType::f32([positions, 1]));
    check(rope, [[1, 3, 4]; 3], &tables, "3 rotated queries are no multiple of 2 positions");
    check(rope, [[1, 4, 4]; 3], &tables, "2 rotated keys are no multiple of 3 positions");
    check(rope, [[1, 4, 4], [1, 1, 4], [1, 1, 4]], &tables, "longer than the 1 keys");
    check(rope, [[1, 4, 6]; 3], &tables, "rotation needs an even width above 0, got 3");
    let padded =
        Windows { query_grid: [2, 3], key_grid: [2, 3], query_window: [2, 2], key_window: [2, 2] };
    let windows = Attention { windows: Some(padded), ..ok };
    check(windows, [[1, 6, 4]; 3], &[], "takes 5 inputs, got 3");
    let rows = [3, 4].map(|length| TensorType::f32([length]));
    check(windows, [[1, 6, 4]; 3], &rows, "padding key must have shape [4], got f32[3]");
}
