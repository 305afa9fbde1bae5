//! Checks of the inputs and attributes of attention.

use cutout_tensor::TensorType;

use super::{Attention, AttentionInputs, BiasForm, SeparableBias, Windows};
use crate::OpError;
use crate::op::{axes, expect_bool, expect_f32, expect_shape};
use crate::ops::checks::{countable, expect_positive};
use crate::ops::rope::{check_table, check_tokens};

/// Lengths of the axes of queries, keys and values.
struct Sizes {
    batch: usize,
    queries: usize,
    keys: usize,
    width: usize,
    value_channels: usize,
}

/// The type of the output, or what is wrong.
pub(super) fn infer(op: &Attention, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
    check_attributes(op)?;
    let inputs = op.name_inputs(inputs)?;
    let sizes = check_tokens_of(op, &inputs)?;
    if let Some(mask) = inputs.key_mask {
        expect_bool("key mask", mask)?;
        expect_shape("key mask", mask, &[sizes.batch, sizes.keys])?;
    }
    if let (Some(bias), Some(inputs)) = (&op.bias, inputs.bias) {
        check_bias(op, bias, inputs, &sizes)?;
    }
    if let (Some(rope), Some([query_cos, query_sin, key_cos, key_sin])) = (&op.rope, inputs.rope) {
        let queries = [("query cos", query_cos), ("query sin", query_sin)];
        let keys = [("key cos", key_cos), ("key sin", key_sin)];
        let [query_positions, key_positions] =
            [check_table(queries, sizes.width)?, check_table(keys, sizes.width)?];
        let queries = op.windows.map_or(sizes.queries, |windows| tokens(windows.query_window));
        check_tokens("queries", queries, 0, query_positions)?;
        check_tokens("keys", op.keys_met(sizes.keys), rope.key_tail, key_positions)?;
    }
    if let Some([key, value]) = inputs.padding {
        expect_f32("padding key", key)?;
        expect_f32("padding value", value)?;
        expect_shape("padding key", key, &[inputs.key.shape.last_axis()])?;
        expect_shape("padding value", value, &[sizes.value_channels])?;
    }
    countable(TensorType::f32([sizes.batch, sizes.queries, sizes.value_channels]))
}

fn tokens(grid: [usize; 2]) -> usize {
    grid[0].saturating_mul(grid[1])
}

fn check_attributes(op: &Attention) -> Result<(), OpError> {
    expect_positive("heads", op.heads)?;
    if !op.scale.is_finite() {
        return Err(OpError::Attribute(format!("the scale must be finite, got {}", op.scale)));
    }
    if let Some(bias) = &op.bias {
        check_grid("the grid of the bias", bias.grid)?;
    }
    let Some(windows) = &op.windows else { return Ok(()) };
    check_windows(windows)?;
    let tail = op.rope.map_or(0, |rope| rope.key_tail);
    if op.key_mask || op.causal || tail > 0 {
        let (mask, causal) = (op.key_mask, op.causal);
        return Err(OpError::Attribute(format!(
            "windows exclude a key mask, causal order and a key tail, \
             got key_mask {mask}, causal {causal}, key_tail {tail}"
        )));
    }
    let Some(bias) = &op.bias else { return Ok(()) };
    if bias.grid != windows.key_window {
        let (grid, window) = (bias.grid, windows.key_window);
        return Err(OpError::Attribute(format!(
            "the grid of the bias must be the key window {window:?}, got {grid:?}"
        )));
    }
    match bias.form {
        BiasForm::Relative if windows.query_window != windows.key_window => {
            let Windows { query_window, key_window, .. } = windows;
            Err(OpError::Attribute(format!(
                "a relative bias needs equal windows, got {query_window:?} and {key_window:?}"
            )))
        }
        BiasForm::Relative | BiasForm::Absolute => Ok(()),
    }
}

fn check_windows(windows: &Windows) -> Result<(), OpError> {
    check_grid("query_grid", windows.query_grid)?;
    check_grid("key_grid", windows.key_grid)?;
    check_grid("query_window", windows.query_window)?;
    check_grid("key_window", windows.key_window)?;
    let count = |grid: [usize; 2], window: [usize; 2]| {
        [grid[0].div_ceil(window[0]), grid[1].div_ceil(window[1])]
    };
    let queries = count(windows.query_grid, windows.query_window);
    let keys = count(windows.key_grid, windows.key_window);
    if queries == keys {
        return Ok(());
    }
    Err(OpError::Attribute(format!(
        "queries and keys must have as many windows, got {queries:?} and {keys:?}"
    )))
}

fn check_grid(name: &str, [height, width]: [usize; 2]) -> Result<(), OpError> {
    if height > 0 && width > 0 && height.checked_mul(width).is_some() {
        return Ok(());
    }
    Err(OpError::Attribute(format!(
        "{name} must be above 0 and countable along both axes, got [{height}, {width}]"
    )))
}

/// Checks queries, keys and values, and the grids they lie on.
fn check_tokens_of(
    op: &Attention,
    inputs: &AttentionInputs<&TensorType>,
) -> Result<Sizes, OpError> {
    let named = [("query", inputs.query), ("key", inputs.key), ("value", inputs.value)];
    for (name, ty) in named {
        expect_f32(name, ty)?;
        let [_, _, channels] = axes(name, ty)?;
        if channels == 0 || !channels.is_multiple_of(op.heads) {
            let heads = op.heads;
            return Err(OpError::Shape(format!(
                "{name} needs channels for {heads} heads, got {ty}"
            )));
        }
    }
    let [batch, queries, channels] = axes("query", inputs.query)?;
    let [_, keys, _] = axes("key", inputs.key)?;
    let [_, _, value_channels] = axes("value", inputs.value)?;
    expect_shape("key", inputs.key, &[batch, keys, channels])?;
    expect_shape("value", inputs.value, &[batch, keys, value_channels])?;
    if keys == 0 {
        return Err(OpError::Shape(format!("key needs at least one token, got {}", inputs.key)));
    }
    if op.causal && keys < queries {
        return Err(OpError::Shape(format!(
            "causal order needs as many keys as queries, got {queries} queries and {keys} keys"
        )));
    }
    if let Some(windows) = &op.windows {
        for (name, grid, found) in
            [("query", windows.query_grid, queries), ("key", windows.key_grid, keys)]
        {
            if tokens(grid) != found {
                return Err(OpError::Shape(format!("{found} {name} tokens do not fill {grid:?}")));
            }
        }
    }
    Ok(Sizes { batch, queries, keys, width: channels / op.heads, value_channels })
}

fn check_bias(
    op: &Attention,
    bias: &SeparableBias,
    [rows, columns]: [&TensorType; 2],
    sizes: &Sizes,
) -> Result<(), OpError> {
    let on_grid = tokens(bias.grid);
    let keys = op.keys_met(sizes.keys);
    if on_grid != keys {
        let grid = bias.grid;
        return Err(OpError::Shape(format!("{keys} keys do not fill the bias's grid {grid:?}")));
    }
    let lengths = match bias.form {
        BiasForm::Absolute => bias.grid,
        BiasForm::Relative => bias.grid.map(|length| length.saturating_mul(2) - 1),
    };
    match bias.form {
        BiasForm::Relative if op.windows.is_none() && sizes.queries != keys => {
            let queries = sizes.queries;
            return Err(OpError::Shape(format!(
                "a relative bias needs as many queries as keys, got {queries} and {keys}"
            )));
        }
        BiasForm::Relative | BiasForm::Absolute => {}
    }
    for (name, ty, length) in
        [("bias rows", rows, lengths[0]), ("bias columns", columns, lengths[1])]
    {
        expect_f32(name, ty)?;
        expect_shape(name, ty, &[sizes.batch, sizes.queries, op.heads, length])?;
    }
    Ok(())
}
