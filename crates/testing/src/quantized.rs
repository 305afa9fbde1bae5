//! What precision int8 means for convolutions, as plain loops: patches and weights are rounded to bytes, everything else is exact.

use cutout_graph::ops::{Conv2d, ConvTranspose2d, Epilogue, LONGEST_GROUP, QuantizedLinear};
use cutout_graph::{DenseTensor, Graph, Kind, Named, Op, OpDef, RunError, Weights, interpret_with};
use cutout_tensor::{QuantizedMatrix, Scales, Shape, Tensor};

type Dense = DenseTensor<f64>;

/// Runs `graph` by the definition of each op, in double precision, with quantised convolutions: those that are not depthwise and whose
/// weight is not computed by the graph. Each is a [`QuantizedLinear`] of its patches, with one scale per patch and one per output, and
/// then its epilogue. Where kernels of a transposed convolution do not overlap, a patch is one pixel, and each element of the kernel has
/// a scale per output.
pub fn interpret_quantized(
    graph: &Graph,
    weights: &Weights,
    inputs: &[(&str, &Tensor)],
) -> Result<Vec<Named>, RunError> {
    interpret_with::<f64>(graph, weights, inputs, |node, op, operands| {
        let known = match node.inputs.get(1).map(|&id| &graph.node(id).kind) {
            Some(Kind::Parameter(_) | Kind::Constant(_)) => true,
            Some(Kind::Input(_) | Kind::Op(_)) | None => false,
        };
        let quantized = known.then(|| quantized(op, operands, &node.ty.shape)).flatten();
        quantized.unwrap_or_else(|| op.reference(operands))
    })
}

/// The result of an op whose weight is known, if the op is quantised. `shape` is that of the output.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other ops compute as they are defined")]
fn quantized(op: &Op, operands: &[&Dense], shape: &Shape) -> Option<Dense> {
    let (sums, epilogue) = match op {
        Op::Conv2d(op) => (convolution(op, operands[0], operands[1], shape)?, op.epilogue),
        Op::ConvTranspose2d(op) => (transposed(op, operands[0], operands[1], shape)?, op.epilogue),
        _ => return None,
    };
    // A depthwise convolution by one is the epilogue alone.
    let channels = shape.last_axis();
    let ones = Dense::from_real([channels, 1, 1, 1], vec![1.0; channels]);
    let identity = Conv2d { groups: channels, epilogue, ..Conv2d::new(1, 0) };
    Some(identity.reference(&[&[&sums, &ones], &operands[2..]].concat()))
}

/// The sums of a convolution, if it is quantised.
fn convolution(op: &Conv2d, x: &Dense, weight: &Dense, shape: &Shape) -> Option<Dense> {
    let &[outputs, channels, height, width] = &weight.shape[..] else { panic!("four axes") };
    let depthwise = op.groups > 1 && op.groups == outputs && channels == 1;
    if depthwise || channels * height * width > LONGEST_GROUP {
        return None;
    }
    let source = |axis: usize, position: usize, tap: usize| {
        (position * op.stride[axis] + tap).checked_sub(op.padding[axis][0])
    };
    let own = outputs / op.groups;
    let products: Vec<Dense> = (0..op.groups)
        .map(|group| {
            let places = Places { output: shape, kernel: [height, width], source: &source };
            let patches = places.patches(x, group * channels, channels);
            let element = |output: usize, tap: usize, channel: usize| {
                let row = (group * own + output) * channels + channel;
                weight.real()[row * height * width + tap]
            };
            product(&patches, own, [height * width, channels], element)
        })
        .collect();
    let products: Vec<&Dense> = products.iter().collect();
    Some(Dense::choose(&products, shape.clone(), |i| {
        let (pixel, output) = (i / outputs, i % outputs);
        (output / own, pixel * own + output % own)
    }))
}

/// The same for a transposed convolution.
fn transposed(op: &ConvTranspose2d, x: &Dense, weight: &Dense, shape: &Shape) -> Option<Dense> {
    let &[channels, outputs, height, width] = &weight.shape[..] else { panic!("four axes") };
    let taps = height * width;
    let element = |output: usize, tap: usize, channel: usize| {
        weight.real()[(channel * outputs + output) * taps + tap]
    };
    if [height, width] != op.stride || op.padding != [0, 0] {
        if channels * taps > LONGEST_GROUP {
            return None;
        }
        let source = |axis: usize, position: usize, tap: usize| {
            let offset = (position + op.padding[axis]).checked_sub(tap)?;
            offset.is_multiple_of(op.stride[axis]).then_some(offset / op.stride[axis])
        };
        let places = Places { output: shape, kernel: [height, width], source: &source };
        let patches = places.patches(x, 0, channels);
        let mut sums = product(&patches, outputs, [taps, channels], element);
        sums.shape = shape.clone();
        return Some(sums);
    }
    let pixels = Dense::from_real([x.shape.rows(), channels], x.real().to_vec());
    let of_tap = |tap: usize| {
        product(&pixels, outputs, [1, channels], |output, _, channel| element(output, tap, channel))
    };
    let products: Vec<Dense> = (0..taps).map(of_tap).collect();
    let products: Vec<&Dense> = products.iter().collect();
    let (lines, columns) = (shape[1], shape[2]);
    Some(Dense::choose(&products, shape.clone(), |i| {
        let (pixel, output) = (i / outputs, i % outputs);
        let (line, column) = (pixel / columns, pixel % columns);
        let (image, line) = (line / lines, line % lines);
        let source = (image * x.shape[1] + line / height) * x.shape[2] + column / width;
        (line % height * width + column % width, source * outputs + output)
    }))
}

/// Where the pixels under a kernel are.
struct Places<'a> {
    /// Shape of the output.
    output: &'a [usize],
    kernel: [usize; 2],
    /// Along an axis, the position in the input for one in the output and one in the kernel; it may be outside.
    source: &'a dyn Fn(usize, usize, usize) -> Option<usize>,
}

impl Places<'_> {
    /// A row `[tap][channel]` for each pixel of the output, of some channels of the input.
    fn patches(&self, x: &Dense, first: usize, channels: usize) -> Dense {
        let &[images, height, width, _] = self.output else { panic!("four axes") };
        let taps = self.kernel[0] * self.kernel[1];
        let rows = images * height * width;
        let mut patches = Vec::with_capacity(rows * taps * channels);
        for row in 0..rows {
            let (line, column) = (row / width, row % width);
            for tap in 0..taps {
                let down = (self.source)(0, line % height, tap / self.kernel[1]);
                let right = (self.source)(1, column, tap % self.kernel[1]);
                let down = down.filter(|&down| down < x.shape[1]);
                let place = down.zip(right.filter(|&right| right < x.shape[2]));
                let start = place.map(|(down, right)| {
                    ((line / height * x.shape[1] + down) * x.shape[2] + right) * x.shape[3] + first
                });
                match start {
                    Some(start) => patches.extend(&x.real()[start..start + channels]),
                    None => patches.resize(patches.len() + channels, 0.0),
                }
            }
        }
        Dense::from_real([rows, taps * channels], patches)
    }
}

/// Quantised rows by the weight with the element `element(output, tap, channel)`, quantised too.
fn product(
    rows: &Dense,
    outputs: usize,
    [taps, channels]: [usize; 2],
    element: impl Fn(usize, usize, usize) -> f64,
) -> Dense {
    let depth = taps * channels;
    let matrix = (0..outputs * depth).map(|i| {
        let (output, place) = (i / depth, i % depth);
        element(output, place / channels, place % channels) as f32
    });
    let matrix = Tensor::from_vec([outputs, depth], matrix.collect()).expect("of that length");
    let matrix = QuantizedMatrix::quantize(&matrix, Scales::PerRow).expect("weights are finite");
    let dense = |tensor: &Tensor| Dense::from_tensor(tensor).expect("numbers");
    let op = QuantizedLinear { scales: Scales::PerRow, epilogue: Epilogue::NONE };
    op.reference(&[rows, &dense(&matrix.values), &dense(&matrix.scales)])
}
