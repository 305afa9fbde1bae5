//! Pictures brought to the size and range of the image encoder's input, on the device.

use cutout_graph::ops::Resample;
use cutout_graph::{Scope, Value, ports};
use cutout_imaging::{Fit, FitWindows, Mapping, Preprocess, Size, WindowTable, WindowWeights};
use cutout_tensor::{DType, Element, Tensor, TensorError, TensorType};

use super::image::Pixels;
use crate::model::ModelError;
use crate::model::config::ModelConfig;
use crate::model::part::Part;

ports! {
    /// How one axis of a picture is resized: inputs of [`Resample`].
    pub struct AxisWindows {
        /// The first input position of each output position, `i32[positions]`.
        starts,
        /// The weights of the positions from there on, `i32` or `f32[positions, taps]`.
        weights,
    }
}

ports! {
    /// What pictures of one size need besides their bytes.
    pub struct PictureTables {
        /// Windows of the columns, where they are resized.
        columns: optional AxisWindows,
        /// Windows of the rows, where they are resized.
        rows: optional AxisWindows,
        /// Divisor, mean and standard deviation of the three channels, `f32[3, 3]`: pixels are divided, and normalised then.
        range,
    }
}

ports! {
    /// A picture.
    pub struct Picture {
        /// Its bytes, `u8[height, width, 3]`.
        bytes,
        /// What depends on its size alone.
        tables: group PictureTables,
    }
}

/// Resizes a picture and normalises it. Beside and below it there are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FitPicture {
    /// Height and width of the input.
    pub side: usize,
    /// Height and width of the picture.
    pub size: [usize; 2],
    /// Height and width of its place in the input.
    pub content: [usize; 2],
    /// How its columns are resized; `None` if they are not.
    pub columns: Option<AxisWeights>,
    /// How its rows are resized, after the columns.
    pub rows: Option<AxisWeights>,
}

/// Weights of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisWeights {
    /// Weights of each position.
    pub taps: usize,
    /// Fractional bits of whole weights; `None` for weights in single precision.
    pub bits: Option<u32>,
}

impl FitPicture {
    /// What [`Preprocess::run`] does with pictures of one size, and the tables for it.
    pub fn new(
        preprocess: &Preprocess,
        mapping: &Mapping,
    ) -> Result<(Self, PictureTables<Tensor>), ModelError> {
        let wrong = |error: cutout_imaging::ImageError| TensorError::Shape(error.to_string());
        let FitWindows { columns, rows } = preprocess.windows(mapping.original).map_err(wrong)?;
        let sides = |size: Size| [size.height, size.width];
        let part = FitPicture {
            side: preprocess.side,
            size: sides(mapping.original),
            content: sides(mapping.content),
            columns: columns.as_ref().map(AxisWeights::of),
            rows: rows.as_ref().map(AxisWeights::of),
        };
        // Floats are divided while they are resized.
        let divisor = match preprocess.fit {
            Fit::LongSide | Fit::SquareFloats => 1.0,
            Fit::SquareBytes | Fit::SquareBicubic => 255.0,
        };
        let range = [[divisor; 3], preprocess.mean, preprocess.std].concat();
        let tables = PictureTables {
            columns: columns.as_ref().map(tensors).transpose()?,
            rows: rows.as_ref().map(tensors).transpose()?,
            range: Tensor::from_vec([3, 3], range)?,
        };
        Ok((part, tables))
    }
}

/// The windows of an axis as inputs.
fn tensors(table: &WindowTable) -> Result<AxisWindows<Tensor>, TensorError> {
    fn rows<T: Element>(positions: usize, weights: &[T]) -> Result<Tensor, TensorError> {
        Tensor::from_vec([positions, weights.len() / positions.max(1)], weights.to_vec())
    }
    let positions = table.starts.len();
    Ok(AxisWindows {
        starts: Tensor::from_vec([positions], table.starts.clone())?,
        weights: match &table.weights {
            WindowWeights::Fixed { weights, .. } => rows(positions, weights)?,
            WindowWeights::Single(weights) => rows(positions, weights)?,
        },
    })
}

impl AxisWeights {
    fn of(table: &WindowTable) -> Self {
        let (weights, bits) = match &table.weights {
            WindowWeights::Fixed { weights, bits } => (weights.len(), Some(*bits)),
            WindowWeights::Single(weights) => (weights.len(), None),
        };
        AxisWeights { taps: weights / table.starts.len().max(1), bits }
    }

    fn types(self, positions: usize) -> AxisWindows<TensorType> {
        let dtype = if self.bits.is_some() { DType::I32 } else { DType::F32 };
        AxisWindows {
            starts: TensorType::new(DType::I32, [positions]),
            weights: TensorType::new(dtype, [positions, self.taps]),
        }
    }

    fn resized<'g>(
        self,
        picture: Value<'g>,
        axis: usize,
        windows: Option<AxisWindows<Value<'g>>>,
    ) -> Value<'g> {
        let op = Resample { axis, bits: self.bits.unwrap_or(0) };
        match windows {
            Some(AxisWindows { starts, weights }) => picture.resample(op, starts, weights),
            None => picture,
        }
    }
}

impl Part for FitPicture {
    type Inputs = Picture<()>;
    type Outputs = Pixels<()>;

    fn inputs(&self, _: &ModelConfig) -> Result<Picture<TensorType>, ModelError> {
        let [height, width] = self.content;
        Ok(Picture {
            bytes: TensorType::new(DType::U8, [self.size[0], self.size[1], 3]),
            tables: PictureTables {
                columns: self.columns.map(|columns| columns.types(width)),
                rows: self.rows.map(|rows| rows.types(height)),
                range: TensorType::f32([3, 3]),
            },
        })
    }

    fn build<'g>(
        &self,
        _: &ModelConfig,
        Picture { bytes, tables }: Picture<Value<'g>>,
        _: &Scope<'g>,
    ) -> Result<Pixels<Value<'g>>, ModelError> {
        let (side, mut pixels) = (self.side, bytes);
        if let Some(columns) = self.columns {
            pixels = columns.resized(pixels, 1, tables.columns);
        }
        if let Some(rows) = self.rows {
            pixels = rows.resized(pixels, 0, tables.rows);
        }
        pixels = pixels.cast(DType::F32);
        let [divisor, mean, deviation] = [0, 1, 2].map(|row| tables.range.slice(0, row..row + 1));
        let normal = (pixels / divisor - mean) / deviation;
        let [height, width] = self.content;
        let padded = normal.pad([0, 0, 0], [side - height, side - width, 0], 0.0);
        Ok(Pixels { pixels: padded.reshape([1, side, side, 3]) })
    }
}

ports! {
    /// Pictures that are ready to be encoded.
    pub struct SinglePixels {
        /// The input of each, `f32[1, side, side, 3]`.
        pictures: list Pixels,
    }
}

/// Puts pictures side by side, so that they are encoded at once.
#[derive(Clone, Copy, Debug)]
pub struct StackPictures {
    /// How many.
    pub pictures: usize,
}

impl Part for StackPictures {
    type Inputs = SinglePixels<()>;
    type Outputs = Pixels<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<SinglePixels<TensorType>, ModelError> {
        let side = config.encoder.image_size();
        let one = || Pixels { pixels: TensorType::f32([1, side, side, 3]) };
        Ok(SinglePixels { pictures: (0..self.pictures).map(|_| one()).collect() })
    }

    fn build<'g>(
        &self,
        _: &ModelConfig,
        inputs: SinglePixels<Value<'g>>,
        _: &Scope<'g>,
    ) -> Result<Pixels<Value<'g>>, ModelError> {
        let all: Vec<Value<'g>> = inputs.pictures.into_iter().map(|one| one.pixels).collect();
        Ok(Pixels { pixels: Value::concat(&all, 0) })
    }
}
