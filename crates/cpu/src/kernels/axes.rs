//! Strides of the inputs of an op along the axes of its output, with axes merged where possible, and readers along them.

use cutout_graph::Layout;
use cutout_tensor::Shape;

/// The output's axes, merged as far as all inputs allow, and the strides of each input along them.
#[derive(Debug)]
pub(crate) struct Axes {
    /// Lengths, outermost first; the last is the row. Never empty.
    lengths: Vec<usize>,
    /// For each input, its stride along each axis.
    strides: Vec<Vec<usize>>,
}

impl Axes {
    /// The axes of `output`, to which all inputs broadcast.
    pub(crate) fn new(inputs: &[&Layout], output: &Shape) -> Self {
        let spread = |layout: &&Layout| -> Vec<usize> {
            let missing = output.rank() - layout.shape.rank();
            let stride = |axis: usize| match axis.checked_sub(missing) {
                Some(own) if layout.shape[own] == output[axis] => layout.strides[own],
                Some(_) | None => 0,
            };
            (0..output.rank()).map(stride).collect()
        };
        let every: Vec<Vec<usize>> = inputs.iter().map(spread).collect();
        let mut axes = Axes { lengths: Vec::new(), strides: vec![Vec::new(); inputs.len()] };
        for axis in (0..output.rank()).rev().filter(|&axis| output[axis] != 1) {
            axes.prepend(output[axis], &every, axis);
        }
        if axes.lengths.is_empty() {
            axes.lengths.push(1);
            axes.strides.iter_mut().for_each(|strides| strides.push(0));
        }
        axes.lengths.reverse();
        axes.strides.iter_mut().for_each(|strides| strides.reverse());
        axes
    }

    /// Adds the next outer axis, or merges it with the axis inside it if all inputs have matching strides.
    fn prepend(&mut self, length: usize, every: &[Vec<usize>], axis: usize) {
        let even = self.lengths.last().is_some_and(|inner| {
            let mut pairs = self.strides.iter().zip(every);
            pairs.all(|(strides, own)| {
                Some(&own[axis]) == strides.last().map(|s| s * inner).as_ref()
            })
        });
        match self.lengths.last_mut() {
            Some(inner) if even => *inner *= length,
            Some(_) | None => {
                self.lengths.push(length);
                for (strides, own) in self.strides.iter_mut().zip(every) {
                    strides.push(own[axis]);
                }
            }
        }
    }

    /// Elements of a row.
    pub(crate) fn row_length(&self) -> usize {
        *self.lengths.last().expect("there is always a row")
    }

    /// Stride of an input along the row; 0 if it repeats one element.
    pub(crate) fn row_stride(&self, input: usize) -> usize {
        *self.strides[input].last().expect("there is always a row")
    }

    /// Whether an input reads one element for the whole output.
    pub(crate) fn is_constant(&self, input: usize) -> bool {
        self.strides[input].iter().all(|&stride| stride == 0)
    }

    /// Whether an input reads the same elements for every row.
    pub(crate) fn repeats_rows(&self, input: usize) -> bool {
        let (_row, outer) = self.strides[input].split_last().expect("there is always a row");
        outer.iter().all(|&stride| stride == 0)
    }

    /// Whether an input is contiguous in the order of the output.
    pub(crate) fn is_flat(&self, input: usize) -> bool {
        let mut expected = 1;
        self.lengths.iter().zip(&self.strides[input]).rev().all(|(length, &stride)| {
            let fits = *length == 1 || stride == expected;
            expected *= length;
            fits
        })
    }

    /// Offset in an input of the element at `position` of the output.
    pub(crate) fn offset(&self, input: usize, position: usize) -> usize {
        let (mut left, mut offset) = (position, 0);
        for (length, stride) in self.lengths.iter().zip(&self.strides[input]).rev() {
            offset += left % length * stride;
            left /= length;
        }
        offset
    }

    /// Elements of an input from its first to the last that is read.
    pub(crate) fn reach(&self, input: usize) -> usize {
        if self.lengths.contains(&0) {
            return 0;
        }
        let axes = self.lengths.iter().zip(&self.strides[input]);
        1 + axes.map(|(length, stride)| (length - 1) * stride).sum::<usize>()
    }
}

/// Reads one input in the order of the output.
pub(crate) struct Reader<'a> {
    axes: &'a Axes,
    input: usize,
    /// Index along each axis but the row.
    index: Vec<usize>,
    /// Offset of the row in the input.
    start: usize,
    /// Position in the row.
    column: usize,
}

impl<'a> Reader<'a> {
    /// Reads input number `input` from `position` of the output on.
    pub(crate) fn new(axes: &'a Axes, input: usize, position: usize) -> Self {
        let row_length = axes.row_length();
        let column = position % row_length;
        let outer = &axes.lengths[..axes.lengths.len() - 1];
        let mut index = vec![0; outer.len()];
        let mut left = position / row_length;
        for (index, length) in index.iter_mut().zip(outer).rev() {
            *index = left % length;
            left /= length;
        }
        let start = axes.offset(input, position - column);
        Reader { axes, input, index, start, column }
    }

    /// The next `length` elements in the order of the output: borrowed, or copied into `scratch`, which is as long.
    #[inline]
    pub(crate) fn next<'s, T: Copy>(
        &mut self,
        source: &'s [T],
        length: usize,
        scratch: &'s mut [T],
    ) -> &'s [T] {
        let (row_length, stride) = (self.axes.row_length(), self.axes.row_stride(self.input));
        if stride == 1 && length <= row_length - self.column {
            let first = self.start + self.column;
            self.advance(length);
            return &source[first..first + length];
        }
        let mut done = 0;
        while done < length {
            let count = (row_length - self.column).min(length - done);
            let first = self.start + self.column * stride;
            spread(source, first, stride, &mut scratch[done..done + count]);
            self.advance(count);
            done += count;
        }
        &scratch[..length]
    }

    /// Whether the next `length` elements are the same element.
    #[inline]
    pub(crate) fn repeats(&self, length: usize) -> bool {
        let axes = self.axes;
        axes.row_stride(self.input) == 0 && length <= axes.row_length() - self.column
    }

    /// Offset of the next element.
    #[inline]
    pub(crate) fn here(&self) -> usize {
        self.start + self.column * self.axes.row_stride(self.input)
    }

    /// Advances by `count` elements, at most to the end of the row.
    #[inline]
    pub(crate) fn advance(&mut self, count: usize) {
        self.column += count;
        if self.column < self.axes.row_length() {
            return;
        }
        self.column = 0;
        let strides = &self.axes.strides[self.input];
        for (axis, index) in self.index.iter_mut().enumerate().rev() {
            *index += 1;
            if *index < self.axes.lengths[axis] {
                self.start += strides[axis];
                return;
            }
            *index = 0;
            self.start -= (self.axes.lengths[axis] - 1) * strides[axis];
        }
    }
}

/// `target[i] = source[first + i * stride]`.
#[inline]
fn spread<T: Copy>(source: &[T], first: usize, stride: usize, target: &mut [T]) {
    match stride {
        0 => target.fill(source[first]),
        1 => target.copy_from_slice(&source[first..first + target.len()]),
        _ => {
            for (i, element) in target.iter_mut().enumerate() {
                *element = source[first + i * stride];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layouts of one buffer and the shape they broadcast to.
    fn example() -> (Vec<Layout>, Shape) {
        let layout = |shape: &[usize], strides: &[usize]| Layout {
            shape: Shape::new(shape),
            strides: strides.to_vec(),
            offset: 0,
        };
        let layouts = vec![
            layout(&[2, 3, 5], &[15, 5, 1]),
            layout(&[3, 1], &[7, 1]),
            layout(&[5], &[1]),
            layout(&[2, 3, 5], &[1, 20, 2]),
            layout(&[], &[]),
        ];
        (layouts, Shape::new(&[2, 3, 5]))
    }

    #[test]
    fn readers_agree_with_offsets_from_any_position_in_any_steps() {
        let (layouts, shape) = example();
        let axes = Axes::new(&layouts.iter().collect::<Vec<_>>(), &shape);
        let memory: Vec<usize> = (0..100).collect();
        for input in 0..layouts.len() {
            for (start, step) in [(0, 1), (0, 30), (3, 4), (7, 11), (29, 1)] {
                let mut reader = Reader::new(&axes, input, start);
                let mut position = start;
                while position < 30 {
                    let length = step.min(30 - position);
                    let mut scratch = vec![0; length];
                    let expected: Vec<usize> =
                        (position..position + length).map(|p| axes.offset(input, p)).collect();
                    assert_eq!(reader.next(&memory, length, &mut scratch), expected);
                    position += length;
                }
            }
            let furthest = (0..30).map(|p| axes.offset(input, p)).max().unwrap();
            assert_eq!(axes.reach(input), furthest + 1);
        }
    }

    #[test]
    fn kinds_of_walks_are_recognised() {
        let (layouts, shape) = example();
        let axes = Axes::new(&layouts.iter().collect::<Vec<_>>(), &shape);
        let kinds: Vec<[bool; 3]> = (0..layouts.len())
            .map(|i| [axes.is_flat(i), axes.repeats_rows(i), axes.is_constant(i)])
            .collect();
        let expected = [
            [true, false, false],
            [false, false, false],
            [false, true, false],
            [false, false, false],
            [false, true, true],
        ];
        assert_eq!(kinds, expected);
        assert_eq!(Axes::new(&[&layouts[0]], &shape).row_length(), 30);
    }
}
