//! Strided layouts: where the elements of a value lie in memory.

use cutout_tensor::{Shape, contiguous_strides};

/// A strided layout: element `index` lies at `offset + Σ index[i] * strides[i]`, counted in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Lengths of the axes.
    pub shape: Shape,
    /// Distance between neighbours along each axis; 0 where an axis is broadcast.
    pub strides: Vec<usize>,
    /// Position of the first element.
    pub offset: usize,
}

impl Layout {
    /// Row-major order from the start.
    pub fn contiguous(shape: &Shape) -> Self {
        Layout { shape: shape.clone(), strides: contiguous_strides(shape), offset: 0 }
    }

    /// Whether the elements lie one after another in row-major order (from any offset).
    pub fn is_contiguous(&self) -> bool {
        let expected = contiguous_strides(&self.shape);
        let mut axes = self.shape.iter().zip(self.strides.iter().zip(&expected));
        self.shape.contains(&0)
            || axes.all(|(&length, (stride, want))| length == 1 || stride == want)
    }

    /// `(rows, row stride)`, if the last axis is dense and one stride covers all others. A vector is one row.
    pub fn as_rows(&self) -> Option<(usize, usize)> {
        let width = self.shape.last_axis();
        if width > 1 && self.strides.last().is_some_and(|&stride| stride != 1) {
            return None;
        }
        let rows = self.shape.rows();
        let merged = self.reshape(&[rows, width])?;
        Some((rows, if rows > 1 && width > 0 { merged.strides[0] } else { width }))
    }

    /// Axis `i` of the result is axis `axes[i]`.
    pub(crate) fn permute(&self, axes: &[usize]) -> Layout {
        Layout {
            shape: axes.iter().map(|&axis| self.shape[axis]).collect(),
            strides: axes.iter().map(|&axis| self.strides[axis]).collect(),
            offset: self.offset,
        }
    }

    /// Every `steps[axis]`-th index of `starts[axis]..ends[axis]`, for each axis.
    pub(crate) fn slice(&self, starts: &[usize], ends: &[usize], steps: &[usize]) -> Layout {
        let lengths = (0..starts.len()).map(|i| (ends[i] - starts[i]).div_ceil(steps[i]));
        Layout {
            shape: lengths.collect(),
            strides: self.strides.iter().zip(steps).map(|(stride, step)| stride * step).collect(),
            offset: self.offset
                + starts
                    .iter()
                    .zip(&self.strides)
                    .map(|(start, stride)| start * stride)
                    .sum::<usize>(),
        }
    }

    /// Axes of length one and missing leading axes repeated to `shape`, with stride 0.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> Layout {
        let missing = shape.len() - self.shape.rank();
        let stride = |axis: usize| match axis.checked_sub(missing) {
            Some(own) if self.shape[own] == shape[axis] => self.strides[own],
            Some(_) | None => 0,
        };
        let strides = (0..shape.len()).map(stride).collect();
        Layout { shape: Shape::new(shape), strides, offset: self.offset }
    }

    /// Another shape over the same elements; `None` if an axis would need two strides.
    pub(crate) fn reshape(&self, shape: &[usize]) -> Option<Layout> {
        if shape.contains(&0) {
            return Some(Layout { offset: self.offset, ..Layout::contiguous(&Shape::new(shape)) });
        }
        // Groups of axes that one stride covers, innermost first: (elements, stride).
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (&length, &stride) in self.shape.iter().zip(&self.strides).rev() {
            match runs.last_mut() {
                _ if length == 1 => {}
                Some((elements, inner)) if stride == *inner * *elements => *elements *= length,
                Some(_) | None => runs.push((length, stride)),
            }
        }
        let mut strides = vec![0; shape.len()];
        let mut runs = runs.into_iter();
        let (mut left, mut stride) = (1, 1);
        for axis in (0..shape.len()).rev() {
            if shape[axis] == 1 {
                strides[axis] = stride;
                continue;
            }
            if left == 1 {
                (left, stride) = runs.next()?;
            }
            if left % shape[axis] != 0 {
                return None;
            }
            strides[axis] = stride;
            stride *= shape[axis];
            left /= shape[axis];
        }
        Some(Layout { shape: Shape::new(shape), strides, offset: self.offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::unravel;

    fn positions(layout: &Layout) -> Vec<usize> {
        (0..layout.shape.elements())
            .map(|i| {
                let index = unravel(i, &layout.shape);
                layout.offset + index.iter().zip(&layout.strides).map(|(i, s)| i * s).sum::<usize>()
            })
            .collect()
    }

    #[test]
    fn reshape_keeps_the_order_of_elements() {
        let base = Layout::contiguous(&Shape::new(&[4, 6, 10]));
        let sliced = base.slice(&[1, 0, 2], &[3, 6, 8], &[1, 1, 2]);
        for (layout, shape) in [
            (base.clone(), vec![24, 2, 5]),
            (base.permute(&[2, 0, 1]), vec![5, 2, 24]),
            (sliced.clone(), vec![12, 3]),
            (sliced.clone(), vec![2, 1, 2, 3, 3, 1]),
            (base.broadcast(&[3, 4, 6, 10]), vec![3, 240]),
        ] {
            let reshaped = layout.reshape(&shape).unwrap_or_else(|| panic!("{shape:?}"));
            assert_eq!(positions(&reshaped), positions(&layout), "{shape:?}");
        }
    }

    #[test]
    fn reshapes_that_need_a_copy_are_refused() {
        let transposed = Layout::contiguous(&Shape::new(&[4, 6])).permute(&[1, 0]);
        assert_eq!(transposed.reshape(&[24]), None);
        assert_eq!(Layout::contiguous(&Shape::new(&[6])).broadcast(&[4, 6]).reshape(&[24]), None);
    }

    #[test]
    fn rows_of_a_slice_keep_the_wide_stride() {
        let qkv = Layout::contiguous(&Shape::new(&[2, 9, 30]));
        let key = qkv.slice(&[0, 0, 10], &[2, 9, 20], &[1, 1, 1]);
        assert_eq!(key.as_rows(), Some((18, 30)));
        assert_eq!(key.offset, 10);
        assert_eq!(qkv.permute(&[0, 2, 1]).as_rows(), None);
        assert_eq!(qkv.slice(&[0, 0, 0], &[2, 9, 30], &[1, 2, 1]).as_rows(), None);
    }
}
