//! Positions in space and time as sines and cosines.

use std::f64::consts::TAU;

use cutout_graph::{Builder, Value};
use cutout_tensor::Tensor;

/// Wavelengths of positions go up to this multiple of the shortest.
const TEMPERATURE: f64 = 10_000.0;

/// What a position is multiplied with for channel `index` of `count`; two neighbours share it.
fn frequency(index: usize, count: usize) -> f64 {
    TEMPERATURE.powf(-((2 * (index / 2)) as f64) / count as f64)
}

/// Positions of the cells of a square grid, `[1, side * side, width]`: the first half of the channels encodes the row,
/// the second half the column, each from just above 0 to a full turn, sine and cosine in turn.
pub(super) fn grid_positions(builder: &Builder, side: usize, width: usize) -> Value<'_> {
    let half = (width / 2).max(1);
    let element = |index: usize| {
        let (cell, channel) = (index / width, index % width);
        let place = if channel < half { cell / side } else { cell % side };
        let angle = (place + 1) as f64 / (side as f64 + 1e-6) * TAU;
        let angle = angle * frequency(channel % half, half);
        (if (channel % half).is_multiple_of(2) { angle.sin() } else { angle.cos() }) as f32
    };
    let elements: Vec<f32> = (0..side * side * width).map(element).collect();
    builder.computed(Tensor::from_vec([1, side * side, width], elements))
}

/// Positions in time of distances `[.., count]`: `[.., count, width]`, all sines, then all cosines.
pub(super) fn distance_positions(distances: Value<'_>, width: usize) -> Value<'_> {
    let half = width / 2;
    let frequencies: Vec<f32> = (0..half).map(|index| frequency(index, half) as f32).collect();
    let frequencies = distances.builder().computed(Tensor::from_vec([half], frequencies));
    let mut shape = distances.shape().to_vec();
    shape.push(1);
    let angles = distances.reshape(&shape[..]) * frequencies;
    Value::concat(&[angles.sin(), angles.cos()], shape.len() - 1)
}
