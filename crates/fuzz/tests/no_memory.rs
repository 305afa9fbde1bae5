//! No memory at the n-th large allocation, for every n until the work succeeds: each run is an error, none aborts.
//!
//! An allocation that is not checked ends the process of this test. Decoders and encoders of other crates allocate without
//! checking; their memory is probed before they start, which `crates/cli/tests/limits.rs` tests with a limited process.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;
use std::fmt::Display;

use cutout_cpu::Cpu;
use cutout_fuzz::CountingAllocator;
use cutout_graph::ops::Conv2d;
use cutout_graph::{Backend, Builder, Graph, Precision, Profile, Weights};
use cutout_imaging::{
    Filter, Image, Mask, Size, SmallRegions, cut_out, label_map, overlay, polygons, read_npy,
    remove_small_regions, resize_pillow,
};
use cutout_parallel::Pool;
use cutout_tensor::{DType, QuantizedMatrix, Scales, Tensor};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Most large allocations of one piece of work.
const MOST: usize = 500;

type Work<'a> = (&'static str, Box<dyn Fn() -> Result<(), String> + 'a>);

fn text<E: Display>(error: E) -> String {
    error.to_string()
}

/// A picture, cropped and resized.
fn picture() -> Result<(), String> {
    let image = Image::filled(Size::new(400, 300), [1, 2, 3]).map_err(text)?;
    let image = image.crop(3, 4, Size::new(390, 290)).map_err(text)?;
    let pool = Pool::new(1);
    resize_pillow(&image, Size::new(300, 500), Filter::Bilinear, &pool).map_err(text)?;
    Ok(())
}

/// A mask in all its forms.
fn mask(image: &Image, logits: &[f32]) -> Result<(), String> {
    let size = image.size();
    let mask = Mask::from_logits(size, logits, 0.0).map_err(text)?;
    let rle = mask.to_rle().map_err(text)?;
    rle.to_mask().map_err(text)?;
    overlay(image, std::slice::from_ref(&rle)).map_err(text)?;
    cut_out(image, &mask).map_err(text)?;
    label_map(size, &[rle]).map_err(text)?;
    Ok(())
}

/// Outlines and components of a mask with many of both.
fn outlines(logits: &[f32]) -> Result<(), String> {
    let mut mask = Mask::from_logits(Size::new(400, 300), logits, 0.0).map_err(text)?;
    mask.to_rle().map_err(text)?;
    polygons(&mask).map_err(text)?;
    remove_small_regions(&mut mask, 9, SmallRegions::Islands).map_err(text)?;
    Ok(())
}

/// A tensor in all its forms.
fn tensor(source: &Tensor) -> Result<(), String> {
    source.permute(&[1, 0]).and_then(|view| view.to_contiguous()).map_err(text)?;
    let half = source.cast(DType::F16).map_err(text)?;
    half.detached().and_then(|half| half.to_f64_vec().map(drop)).map_err(text)?;
    let matrix = QuantizedMatrix::quantize(source, Scales::PerBlock).map_err(text)?;
    matrix.dequantize().map(drop).map_err(text)
}

const CHANNELS: usize = 512;

/// A linear layer and a depthwise convolution.
fn graph() -> Graph {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [1, 8, 8, CHANNELS]);
    let w = builder.weights();
    let x = x.linear(w.parameter("linear", [CHANNELS, CHANNELS]));
    let op = Conv2d { groups: CHANNELS, ..Conv2d::new(1, 3) };
    builder.output("y", x.conv2d(w.parameter("depthwise", [CHANNELS, 1, 7, 7]), op));
    builder.finish().unwrap()
}

/// Compiles and runs, with weights that are packed anew.
fn program(graph: &Graph, weights: &Weights, precision: Precision) -> Result<(), String> {
    weights.evict();
    let profile = Profile { precision, ..Profile::default() };
    let program = Cpu::new(1).compile(graph, weights, &profile).map_err(text)?;
    let x = Tensor::zeros(&graph.inputs().map(|(_, id)| graph.ty(id).clone()).next().unwrap());
    let x = x.map_err(text)?;
    program.run_named(&[("x", &x)]).map(drop).map_err(text)
}

fn counted(shape: &[usize]) -> Tensor {
    let elements: usize = shape.iter().product();
    let values = (0..elements).map(|i| (i * 7 % 13) as f32 / 60.0 - 0.1).collect();
    Tensor::from_vec::<f32>(shape, values).unwrap()
}

/// A single test, because the allocator is shared by the whole process.
#[test]
fn every_allocation_may_fail() {
    let image = Image::filled(Size::new(400, 300), [9, 9, 9]).unwrap();
    let logits: Vec<f32> = (0..400 * 300).map(|i| (i % 400) as f32 - 150.0).collect();
    let scattered: Vec<f32> =
        (0..400 * 300).map(|i| (i % 400 * (i / 400) % 7) as f32 - 1.0).collect();
    let source = counted(&[512, 512]);
    let graph = graph();
    let weights = Weights::new(HashMap::from([
        ("linear".to_owned(), counted(&[CHANNELS, CHANNELS])),
        ("depthwise".to_owned(), counted(&[CHANNELS, 1, 7, 7])),
    ]));
    let mut npy = b"\x93NUMPY\x01\0\x40\0".to_vec();
    npy.extend(
        format!("{:<63}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (40000,)}").bytes(),
    );
    npy.extend(vec![0; 160_000]);
    let work: [Work<'_>; 7] = [
        ("picture", Box::new(picture)),
        ("mask", Box::new(|| mask(&image, &logits))),
        ("outlines", Box::new(|| outlines(&scattered))),
        ("tensor", Box::new(|| tensor(&source))),
        ("npy", Box::new(|| read_npy(&npy[..]).map(drop).map_err(text))),
        ("f32 program", Box::new(|| program(&graph, &weights, Precision::F32))),
        ("int8 program", Box::new(|| program(&graph, &weights, Precision::Int8))),
    ];
    for (name, work) in work {
        work().unwrap_or_else(|error| panic!("{name}: {error}"));
        let fails = |number: &usize| {
            let result = CountingAllocator::failing_at(*number, &work);
            if let Err(error) = &result {
                assert!(error.contains("allocate") || error.contains("memory"), "{name}: {error}");
            }
            result.is_err()
        };
        let failed = (0..MOST).take_while(fails).count();
        assert!((1..MOST).contains(&failed), "{name}: {failed} allocations can fail");
    }
}
