//! Positions in space and time as sines and cosines of several wavelengths.

use std::f64::consts::TAU;

use cutout_graph::{Builder, Value};
use cutout_tensor::Tensor;

/// Wavelengths go up to this multiple of the shortest.
const TEMPERATURE: f64 = 10_000.0;

/// What a position is multiplied with for a pair of neighbouring channels, of `count` channels.
fn frequency(pair: usize, count: usize) -> f64 {
    TEMPERATURE.powf(-((2 * pair) as f64) / count as f64)
}

/// Positions of the cells of a square grid, `[1, side * side, width]`: the first half of the channels encodes the row,
/// the second half the column, each from just above 0 to a full turn, sine and cosine in turn.
pub(crate) fn grid_positions(builder: &Builder, side: usize, width: usize) -> Value<'_> {
    let half = width / 2;
    let turns: Vec<f64> = (0..half).map(|channel| TAU * frequency(channel / 2, half)).collect();
    let place = |place: usize| -> Vec<f32> {
        let position = (place + 1) as f64 / (side as f64 + 1e-6);
        let angles = turns.iter().map(|turn| position * turn).enumerate();
        angles.map(|(i, a)| (if i % 2 == 0 { a.sin() } else { a.cos() }) as f32).collect()
    };
    let places: Vec<Vec<f32>> = (0..side).map(place).collect();
    let mut elements = Vec::<f32>::with_capacity(side * side * width);
    for row in &places {
        for column in &places {
            elements.extend(row);
            elements.extend(column);
        }
    }
    builder.computed(Tensor::from_vec([1, side * side, width], elements))
}

/// Numbers in 0..1, `[.., numbers]`, as `[.., numbers, count]`: sine and cosine in turn.
pub(crate) fn sine_positions(x: Value<'_>, count: usize) -> Value<'_> {
    let pairs = count / 2;
    let turns: Vec<f32> = (0..pairs).map(|pair| (TAU * frequency(pair, count)) as f32).collect();
    let turns = x.builder().computed(Tensor::from_vec([pairs, 1], turns));
    let mut shape = x.shape().to_vec();
    shape.extend([1, 1]);
    let angles = x.reshape(&shape[..]) * turns; // [.., numbers, pairs, 1]
    let waves = Value::concat(&[angles.sin(), angles.cos()], shape.len() - 1);
    shape.truncate(shape.len() - 2);
    shape.push(count);
    waves.reshape(&shape[..])
}

/// Positions in time of distances `[.., count]`: `[.., count, width]`, all sines, then all cosines.
pub(crate) fn distance_positions(distances: Value<'_>, width: usize) -> Value<'_> {
    let half = width / 2;
    let turns: Vec<f32> = (0..half).map(|index| frequency(index / 2, half) as f32).collect();
    let turns = distances.builder().computed(Tensor::from_vec([half], turns));
    let mut shape = distances.shape().to_vec();
    shape.push(1);
    let angles = distances.reshape(&shape[..]) * turns;
    Value::concat(&[angles.sin(), angles.cos()], shape.len() - 1)
}
