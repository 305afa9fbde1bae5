//! The reference definition of attention.

use super::{Attention, AttentionInputs, BiasForm, Windows};
use crate::ops::rope::RopeTable;
use crate::ops::softmax::softmax_row;
use crate::{DenseTensor, Real};

/// A key that a query meets.
#[derive(Clone, Copy)]
struct Met {
    /// Its token, or none where a window reaches beyond the grid.
    token: Option<usize>,
    /// Its index in the window; without windows, its token.
    index: usize,
}

/// Queries and keys after rotation, beside what else the scores need.
struct Operands<'a, T> {
    op: &'a Attention,
    inputs: &'a AttentionInputs<&'a DenseTensor<T>>,
    queries: usize,
    keys: usize,
    width: usize,
    /// `[batch, queries, heads * width]`.
    query: Vec<T>,
    /// `[batch, keys, heads * width]`.
    key: Vec<T>,
    /// `[keys of a window, heads * width]`: the padding key as rotated at each index; empty without padding.
    padding: Vec<T>,
}

/// Attention of inputs that inference accepts.
pub(super) fn attention<T: Real>(
    op: &Attention,
    inputs: &AttentionInputs<&DenseTensor<T>>,
) -> DenseTensor<T> {
    let operands = prepare(op, inputs);
    let &[batch, queries, _] = &inputs.query.shape[..] else {
        panic!("inference checked the rank")
    };
    let value_channels = inputs.value.shape.last_axis();
    let value_width = value_channels / op.heads;
    let tokens = inputs.query.shape.rows();
    let mut output = Vec::with_capacity(tokens * value_channels);
    for (image, query) in (0..tokens).map(|token| (token / queries, token % queries)) {
        let met = operands.met(query);
        for head in 0..op.heads {
            let mut weights = operands.scores([image, query, head], &met);
            softmax_row(&mut weights);
            for channel in head * value_width..(head + 1) * value_width {
                let mut sum = T::ZERO;
                for (&weight, &met) in weights.iter().zip(&met) {
                    sum += weight * operands.value(image, met, channel);
                }
                output.push(sum);
            }
        }
    }
    DenseTensor::from_real([batch, queries, value_channels], output)
}

/// Rotates queries, keys and padding where the op asks for it.
fn prepare<'a, T: Real>(
    op: &'a Attention,
    inputs: &'a AttentionInputs<&'a DenseTensor<T>>,
) -> Operands<'a, T> {
    let (queries, keys) = (inputs.query.shape[1], inputs.key.shape[1]);
    let channels = inputs.query.shape.last_axis();
    let mut query = inputs.query.real().to_vec();
    let mut key = inputs.key.real().to_vec();
    let mut padding = inputs
        .padding
        .map_or_else(Vec::new, |[padding, _]| padding.real().repeat(op.keys_met(keys)));
    if let (Some(rope), Some([query_cos, query_sin, key_cos, key_sin])) = (op.rope, inputs.rope) {
        let table = RopeTable::new(query_cos, query_sin);
        for (row, query) in query.chunks_mut(channels).enumerate() {
            let index =
                op.windows.map_or(row % queries, |windows| windows.query_index(row % queries));
            table.rotate(query, index);
        }
        let table = RopeTable::new(key_cos, key_sin);
        for (row, key) in key.chunks_mut(channels).enumerate() {
            let token = row % keys;
            if token < keys - rope.key_tail {
                table.rotate(key, op.windows.map_or(token, |windows| windows.key_index(token)));
            }
        }
        for (index, padding) in padding.chunks_mut(channels).enumerate() {
            table.rotate(padding, index);
        }
    }
    Operands { op, inputs, queries, keys, width: channels / op.heads, query, key, padding }
}

impl<T: Real> Operands<'_, T> {
    /// The keys a query meets, in the order of their index.
    fn met(&self, query: usize) -> Vec<Met> {
        match &self.op.windows {
            None => (0..self.keys).map(|token| Met { token: Some(token), index: token }).collect(),
            Some(windows) => windows.met(query),
        }
    }

    /// The scores of the keys that a query of an image meets in one head.
    fn scores(&self, [image, query, head]: [usize; 3], met: &[Met]) -> Vec<T> {
        let channels = self.op.heads * self.width;
        let start = (image * self.queries + query) * channels + head * self.width;
        let query_channels = &self.query[start..start + self.width];
        let scale = T::of(f64::from(self.op.scale));
        let score = |&met: &Met| {
            if met.token.is_some_and(|token| self.is_masked(image, query, token)) {
                return T::LOWEST;
            }
            let (keys, row) = match met.token {
                Some(token) => (&self.key, image * self.keys + token),
                None => (&self.padding, met.index),
            };
            let mut sum = T::ZERO;
            for (i, &channel) in query_channels.iter().enumerate() {
                sum += channel * keys[row * channels + head * self.width + i];
            }
            sum * scale + self.bias([image, query, head], met.index)
        };
        met.iter().map(score).collect()
    }

    fn is_masked(&self, image: usize, query: usize, token: usize) -> bool {
        let excluded = |mask: &DenseTensor<T>| !mask.bool()[image * self.keys + token];
        let later = self.op.causal && token > query + (self.keys - self.queries);
        later || self.inputs.key_mask.is_some_and(excluded)
    }

    /// Row and column bias of the key at `index`; 0 without bias.
    fn bias(&self, [image, query, head]: [usize; 3], index: usize) -> T {
        let (Some(bias), Some([rows, columns])) = (&self.op.bias, self.inputs.bias) else {
            return T::ZERO;
        };
        let [height, width] = bias.grid;
        let (y, x) = (index / width, index % width);
        let [row, column] = match bias.form {
            BiasForm::Absolute => [y, x],
            BiasForm::Relative => {
                let own = self.op.windows.map_or(query, |windows| windows.query_index(query));
                [y + height - 1 - own / width, x + width - 1 - own % width]
            }
        };
        let line = (image * self.queries + query) * self.op.heads + head;
        rows.real()[line * rows.shape.last_axis() + row]
            + columns.real()[line * columns.shape.last_axis() + column]
    }

    fn value(&self, image: usize, met: Met, channel: usize) -> T {
        let channels = self.inputs.value.shape.last_axis();
        match (met.token, self.inputs.padding) {
            (Some(token), _) => {
                self.inputs.value.real()[(image * self.keys + token) * channels + channel]
            }
            (None, Some([_, padding])) => padding.real()[channel],
            (None, None) => panic!("only a window with padding meets a key without token"),
        }
    }
}

impl Windows {
    /// Index of a query in its window.
    fn query_index(&self, token: usize) -> usize {
        index_in_window(token, self.query_grid, self.query_window)
    }

    /// Index of a key in its window.
    fn key_index(&self, token: usize) -> usize {
        index_in_window(token, self.key_grid, self.key_window)
    }

    /// The keys, real and padding, of the window that a query lies in.
    fn met(&self, query: usize) -> Vec<Met> {
        let window = [
            query / self.query_grid[1] / self.query_window[0],
            query % self.query_grid[1] / self.query_window[1],
        ];
        let key = |index: usize| {
            let y = window[0] * self.key_window[0] + index / self.key_window[1];
            let x = window[1] * self.key_window[1] + index % self.key_window[1];
            let inside = y < self.key_grid[0] && x < self.key_grid[1];
            Met { token: inside.then_some(y * self.key_grid[1] + x), index }
        };
        (0..self.keys()).map(key).collect()
    }
}

fn index_in_window(token: usize, grid: [usize; 2], window: [usize; 2]) -> usize {
    let (y, x) = (token / grid[1], token % grid[1]);
    y % window[0] * window[1] + x % window[1]
}
