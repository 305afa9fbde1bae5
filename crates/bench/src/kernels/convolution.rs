//! The convolutions of the encoders, the necks and the decoders, on channel-last images.

use anyhow::Result;
use cutout_graph::ops::{Conv2d, ConvTranspose2d};

use crate::goal::Goal;
use crate::kernels::compiled::{Model, ModelBuilder, Scenario};
use crate::outcome::Unit;

pub(crate) fn scenarios() -> Vec<Scenario> {
    let neck = Scenario {
        kernel: "conv2d",
        shape: "3x3, 256 to 256, 64x64".to_owned(),
        unit: Unit::Gflops,
        goal: Goal::None,
        axis: 3,
        whole: 256,
        excerpt: 16,
        build: neck,
    };
    let patches = Scenario {
        shape: "16x16 s16, 3 to 768, 1024x1024".to_owned(),
        whole: 768,
        build: patches,
        ..neck.clone()
    };
    let hiera = Scenario {
        shape: "7x7 s4, 3 to 96, 1024x1024".to_owned(),
        whole: 96,
        build: hiera,
        ..neck.clone()
    };
    let upscale = Scenario {
        kernel: "conv_transpose2d",
        shape: "2x2 s2, 256 to 64, 64x64".to_owned(),
        axis: 1,
        whole: 128,
        excerpt: 8,
        build: upscale,
        ..neck.clone()
    };
    vec![neck, patches, hiera, upscale]
}

/// Width (and height) and channels of the image, and the kernel.
struct Image {
    side: usize,
    inputs: usize,
    kernel: usize,
    op: Conv2d,
}

/// A convolution with a bias and this many outputs.
fn convolution(image: &Image, outputs: usize) -> Result<Model> {
    let model = ModelBuilder::default();
    let x = model.input("x", [1, image.side, image.side, image.inputs])?;
    let weight = model.weight("weight", [outputs, image.inputs, image.kernel, image.kernel])?;
    let bias = model.weight("bias", [outputs])?;
    model.graph.output("y", x.conv2d(weight, image.op) + bias);
    model.finish()
}

fn neck(outputs: usize) -> Result<Model> {
    convolution(&Image { side: 64, inputs: 256, kernel: 3, op: Conv2d::new(1, 1) }, outputs)
}

fn patches(outputs: usize) -> Result<Model> {
    convolution(&Image { side: 1024, inputs: 3, kernel: 16, op: Conv2d::new(16, 0) }, outputs)
}

fn hiera(outputs: usize) -> Result<Model> {
    convolution(&Image { side: 1024, inputs: 3, kernel: 7, op: Conv2d::new(4, 3) }, outputs)
}

/// The decoder's first upscaling; the excerpt has fewer rows.
fn upscale(output_rows: usize) -> Result<Model> {
    let model = ModelBuilder::default();
    let x = model.input("x", [1, output_rows / 2, 64, 256])?;
    let weight = model.weight("weight", [256, 64, 2, 2])?;
    let bias = model.weight("bias", [64])?;
    model.graph.output("y", x.conv_transpose2d(weight, ConvTranspose2d::new(2, 0)) + bias);
    model.finish()
}
