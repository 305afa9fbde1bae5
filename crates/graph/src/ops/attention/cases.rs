//! The cases of attention.

use cutout_tensor::{DType, TensorType, Tolerance};

use super::{Attention, AttentionRope, BiasForm, SeparableBias, Windows};
use crate::Case;
use crate::cases::{CaseInput, bools, noise, values};

/// Every case.
pub(super) fn all() -> Vec<Case> {
    let cases =
        [plain(), masked(), biased(), rotated(), windowed(), many_keys()].into_iter().flatten();
    // Softmax amplifies the error of the fast exponentials.
    cases.map(|case| case.within(Tolerance::FastMath)).collect()
}

/// Lengths of a case: batch, queries, keys, and the channels of one head of keys and of values.
struct Lengths {
    batch: usize,
    queries: usize,
    keys: usize,
    width: usize,
    value_width: usize,
}

/// Queries, keys and values, then `extra`.
fn inputs(op: &Attention, lengths: Lengths, extra: Vec<CaseInput>) -> Vec<CaseInput> {
    let Lengths { batch, queries, keys, width, value_width } = lengths;
    let mut inputs = vec![
        noise([batch, queries, op.heads * width]),
        noise([batch, keys, op.heads * width]),
        noise([batch, keys, op.heads * value_width]),
    ];
    inputs.extend(extra);
    inputs
}

fn lengths([batch, queries, keys, width, value_width]: [usize; 5]) -> Lengths {
    Lengths { batch, queries, keys, width, value_width }
}

fn case(name: &'static str, op: Attention, sizes: [usize; 5], extra: Vec<CaseInput>) -> Case {
    Case::new(name, op, inputs(&op, lengths(sizes), extra))
}

fn plain() -> Vec<Case> {
    vec![
        case("one_head", Attention::new(1, 0.4), [1, 7, 9, 8, 8], vec![]),
        case("odd_widths", Attention::new(3, 0.45), [2, 19, 33, 5, 7], vec![]),
        case("wider_than_tiles", Attention::new(2, 0.125), [1, 70, 131, 64, 64], vec![]),
        case("memory", Attention::new(1, 0.0625), [1, 33, 300, 256, 64], vec![]),
        case("few_queries", Attention::new(8, 0.25), [2, 7, 260, 16, 16], vec![]),
        case("one_key", Attention::new(2, 1.0), [2, 3, 1, 4, 4], vec![]),
        case("large_scores", Attention::new(2, 2.0), [1, 9, 40, 16, 16], vec![]),
        case("no_queries", Attention::new(2, 1.0), [1, 0, 5, 4, 4], vec![]),
        case("no_batch", Attention::new(2, 1.0), [0, 3, 5, 4, 4], vec![]),
    ]
}

fn masked() -> Vec<Case> {
    let mask = Attention { key_mask: true, ..Attention::new(2, 0.3) };
    let causal = Attention { causal: true, ..Attention::new(2, 0.3) };
    let truths = |truths: &[bool]| {
        let numbers: Vec<f64> = truths.iter().map(|&truth| f64::from(u8::from(truth))).collect();
        values(TensorType::new(DType::Bool, [2, truths.len() / 2]), &numbers)
    };
    let first_has_none: Vec<bool> = (0..10).map(|i| i > 6).collect();
    let first_stays: Vec<bool> = (0..46).map(|i| i % 23 == 0 || i % 3 == 1).collect();
    vec![
        case("key_mask", mask, [3, 11, 37, 12, 12], vec![bools([3, 37])]),
        case("every_key_masked", mask, [2, 3, 5, 4, 4], vec![truths(&first_has_none)]),
        case("causal", causal, [2, 33, 33, 9, 9], vec![]),
        case("causal_more_keys", causal, [1, 6, 77, 16, 16], vec![]),
        case(
            "causal_key_mask",
            Attention { key_mask: true, ..causal },
            [2, 23, 23, 8, 8],
            vec![truths(&first_stays)],
        ),
    ]
}

fn biased() -> Vec<Case> {
    let with = |heads, form, grid| Attention {
        bias: Some(SeparableBias { form, grid }),
        ..Attention::new(heads, 0.35)
    };
    let bias = |lines: [usize; 3], [rows, columns]: [usize; 2]| {
        let [batch, queries, heads] = lines;
        vec![noise([batch, queries, heads, rows]), noise([batch, queries, heads, columns])]
    };
    let mut with_mask = bias([2, 5, 2], [3, 6]);
    with_mask.insert(0, bools([2, 18]));
    vec![
        case(
            "absolute_bias",
            with(3, BiasForm::Absolute, [5, 7]),
            [2, 4, 35, 8, 8],
            bias([2, 4, 3], [5, 7]),
        ),
        case(
            "relative_bias",
            with(2, BiasForm::Relative, [5, 7]),
            [2, 35, 35, 8, 8],
            bias([2, 35, 2], [9, 13]),
        ),
        case(
            "relative_bias_one_row",
            with(1, BiasForm::Relative, [1, 19]),
            [1, 19, 19, 4, 6],
            bias([1, 19, 1], [1, 37]),
        ),
        case(
            "absolute_bias_key_mask",
            Attention { key_mask: true, ..with(2, BiasForm::Absolute, [3, 6]) },
            [2, 5, 18, 4, 4],
            with_mask,
        ),
    ]
}

/// Many keys for few queries: a backend may split the keys between threads.
fn many_keys() -> Vec<Case> {
    let mask = Attention { key_mask: true, ..Attention::new(2, 0.3) };
    let causal = Attention { causal: true, ..Attention::new(1, 0.3) };
    let grid = SeparableBias { form: BiasForm::Absolute, grid: [30, 40] };
    let bias = Attention { bias: Some(grid), ..Attention::new(1, 0.3) };
    let late = (0..2200).map(|i| if i % 1100 < 700 { 0.0 } else { 1.0 }).collect::<Vec<f64>>();
    let late = values(TensorType::new(DType::Bool, [2, 1100]), &late);
    vec![
        case("many_keys", Attention::new(1, 0.2), [1, 56, 1100, 24, 16], vec![]),
        case("many_keys_by_head", Attention::new(8, 0.25), [1, 7, 2100, 16, 16], vec![]),
        case("many_keys_late", mask, [2, 5, 1100, 12, 9], vec![late]),
        case("many_keys_causal", causal, [1, 40, 1100, 8, 8], vec![]),
        case(
            "many_keys_bias",
            bias,
            [1, 5, 1200, 8, 8],
            vec![noise([1, 5, 1, 30]), noise([1, 5, 1, 40])],
        ),
    ]
}

/// Query and key tables for heads of `width` channels.
fn tables(positions: [usize; 2], width: usize) -> Vec<CaseInput> {
    let [query, key] = positions.map(|positions| [positions, width / 2]);
    vec![noise(query), noise(query), noise(key), noise(key)]
}

fn rotated() -> Vec<Case> {
    let with = |heads, key_tail| Attention {
        rope: Some(AttentionRope { key_tail }),
        ..Attention::new(heads, 0.1)
    };
    let mut with_bias = vec![noise([1, 12, 2, 7]), noise([1, 12, 2, 5])];
    with_bias.extend(tables([4, 12], 6));
    let relative = SeparableBias { form: BiasForm::Relative, grid: [4, 3] };
    vec![
        case("rope", with(3, 0), [2, 17, 17, 10, 10], tables([17, 17], 10)),
        case("rope_repeated_keys", with(1, 0), [1, 9, 27, 64, 32], tables([9, 9], 64)),
        case("rope_tail", with(1, 5), [2, 9, 41, 32, 16], tables([9, 18], 32)),
        case("rope_repeated_queries", with(2, 1), [1, 12, 7, 6, 4], tables([4, 2], 6)),
        case(
            "rope_relative_bias",
            Attention { bias: Some(relative), ..with(2, 0) },
            [1, 12, 12, 6, 6],
            with_bias,
        ),
    ]
}

fn windowed() -> Vec<Case> {
    let with = |heads, query: [[usize; 2]; 2], key: [[usize; 2]; 2]| Attention {
        windows: Some(Windows {
            query_grid: query[0],
            query_window: query[1],
            key_grid: key[0],
            key_window: key[1],
        }),
        ..Attention::new(heads, 0.3)
    };
    let same = |heads, grid, window| with(heads, [grid, window], [grid, window]);
    let padding = |channels: [usize; 2]| channels.map(|channels| noise([channels]));
    let relative = Some(SeparableBias { form: BiasForm::Relative, grid: [3, 4] });
    let absolute = Some(SeparableBias { form: BiasForm::Absolute, grid: [4, 4] });
    let rope = Some(AttentionRope { key_tail: 0 });
    let mut biased = vec![noise([2, 35, 2, 5]), noise([2, 35, 2, 7])];
    biased.extend(padding([12, 10]));
    let mut every = vec![noise([1, 9, 2, 4]), noise([1, 9, 2, 4])];
    every.extend(tables([4, 16], 8));
    every.extend(padding([16, 8]));
    vec![
        case("windows", same(2, [6, 8], [3, 4]), [2, 48, 48, 7, 7], vec![]),
        case("windows_one", same(1, [5, 3], [5, 3]), [1, 15, 15, 4, 4], vec![]),
        case(
            "windows_padding",
            same(3, [5, 7], [3, 3]),
            [2, 35, 35, 6, 5],
            padding([18, 15]).into(),
        ),
        case(
            "windows_larger_than_grid",
            same(1, [3, 2], [4, 5]),
            [1, 6, 6, 8, 8],
            padding([8, 8]).into(),
        ),
        case(
            "windows_pooled_queries",
            with(2, [[4, 6], [2, 2]], [[8, 12], [4, 4]]),
            [1, 24, 96, 9, 9],
            vec![],
        ),
        case(
            "windows_rope",
            Attention { rope, ..same(2, [6, 6], [3, 3]) },
            [2, 36, 36, 8, 8],
            tables([9, 9], 8),
        ),
        case(
            "windows_padding_relative_bias",
            Attention { bias: relative, ..same(2, [5, 7], [3, 4]) },
            [2, 35, 35, 6, 5],
            biased,
        ),
        case(
            "windows_everything",
            Attention { bias: absolute, rope, ..with(2, [[3, 3], [2, 2]], [[6, 7], [4, 4]]) },
            [1, 9, 42, 8, 4],
            every,
        ),
    ]
}
