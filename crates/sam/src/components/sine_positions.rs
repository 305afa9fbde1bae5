//! Positions as sines and cosines of several wavelengths.

use std::f64::consts::TAU;

use cutout_graph::{Builder, Value};
use cutout_tensor::Tensor;

/// Wavelengths go up to this multiple of the shortest.
const TEMPERATURE: f64 = 10_000.0;

/// What a position in 0..1 is multiplied with for a pair of neighbouring channels, of `count` channels.
fn frequency(pair: usize, count: usize) -> f64 {
    TAU * TEMPERATURE.powf(-((2 * pair) as f64) / count as f64)
}

/// Positions of the cells of a square grid, `[1, side * side, width]`: the first half of the channels encodes the row,
/// the second half the column, each from just above 0 to a full turn, sine and cosine in turn.
pub(crate) fn grid_positions(builder: &Builder, side: usize, width: usize) -> Value<'_> {
    let half = (width / 2).max(1);
    let element = |index: usize| {
        let (cell, channel) = (index / width, index % width);
        let place = if channel < half { cell / side } else { cell % side };
        let position = (place + 1) as f64 / (side as f64 + 1e-6);
        let angle = position * frequency(channel % half / 2, half);
        (if (channel % half).is_multiple_of(2) { angle.sin() } else { angle.cos() }) as f32
    };
    let elements: Vec<f32> = (0..side * side * width).map(element).collect();
    builder.computed(Tensor::from_vec([1, side * side, width], elements))
}

/// Numbers in 0..1, `[.., numbers]`, as `[.., numbers, count]`: sine and cosine in turn.
pub(crate) fn sine_positions(x: Value<'_>, count: usize) -> Value<'_> {
    let pairs = count / 2;
    let frequencies: Vec<f32> = (0..pairs).map(|pair| frequency(pair, count) as f32).collect();
    let frequencies = x.builder().computed(Tensor::from_vec([pairs, 1], frequencies));
    let mut shape = x.shape().to_vec();
    shape.extend([1, 1]);
    let angles = x.reshape(&shape[..]) * frequencies; // [.., numbers, pairs, 1]
    let turns = Value::concat(&[angles.sin(), angles.cos()], shape.len() - 1);
    shape.truncate(shape.len() - 2);
    shape.push(count);
    turns.reshape(&shape[..])
}
