//! Pictures that a device brings to the model's size, against those of the host, bit for bit.

use std::sync::Arc;

use cutout_graph::{Backend, Profile, Weights, flatten};
use cutout_parallel::Pool;
use cutout_sam::device;
use cutout_sam::imaging::{Fit, Image, Preprocess, Size};
use cutout_sam::model::config::ModelConfig;
use cutout_sam::model::part::{Stages, graph_of};
use cutout_sam::parts::{FitPicture, Picture};
use cutout_tensor::Tensor;
use cutout_testing::{Interpreted, Random};

const FITS: [Fit; 4] = [Fit::LongSide, Fit::SquareFloats, Fit::SquareBytes, Fit::SquareBicubic];

/// Width and height of pictures and the side of the input: smaller, larger and as large, single pixels, and very narrow ones.
const SIZES: [[usize; 3]; 10] = [
    [40, 30, 64],
    [131, 200, 64],
    [64, 64, 64],
    [64, 17, 64],
    [1, 1, 32],
    [1, 900, 32],
    [777, 2, 32],
    [500, 333, 7],
    [3, 5, 97],
    [97, 55, 1],
];

fn picture(size: Size, random: &mut Random) -> Image {
    // Full contrast, so that rounding and clamping show.
    let bytes = (0..3 * size.width * size.height).map(|_| match random.below(4) {
        0 => 0,
        1 => 255,
        _ => random.below(256) as u8,
    });
    Image::from_rgb(size, bytes.collect()).unwrap()
}

/// The model's input as a backend makes it.
fn fitted(backend: &dyn Backend, preprocess: &Preprocess, image: &Image) -> Vec<f32> {
    let mapping = preprocess.mapping(image.size()).unwrap();
    let (part, tables) = FitPicture::new(preprocess, &mapping).unwrap();
    let config = ModelConfig::sam1_vit_b();
    let (graph, _) = graph_of(&part, &config, Stages::Hidden).unwrap();
    let weights = Weights::new(Default::default());
    let program = backend.compile(&graph, &weights, &Profile::default()).unwrap();
    let shape = [image.height(), image.width(), 3];
    let bytes = Tensor::from_vec(shape, image.as_rgb().to_vec()).unwrap();
    let inputs = flatten::<Picture<()>, _>(Picture { bytes, tables });
    let values: Vec<_> = inputs.iter().map(|input| program.upload(input).unwrap()).collect();
    let mut outputs = program.run(&values.iter().collect::<Vec<_>>()).unwrap();
    outputs.remove(0).fetch().unwrap().to_vec::<f32>().unwrap()
}

#[test]
fn a_device_makes_the_input_that_the_host_makes() {
    let mut backends = device::backends(2);
    backends.push(Arc::new(Interpreted::default()));
    let (mut random, pool) = (Random::new(5), Pool::new(2));
    for [width, height, side] in SIZES {
        let image = picture(Size::new(width, height), &mut random);
        for fit in FITS {
            let (mean, std) = match fit {
                Fit::LongSide => ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375]),
                Fit::SquareFloats => ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
                Fit::SquareBytes | Fit::SquareBicubic => ([0.5; 3], [0.5; 3]),
            };
            let preprocess = Preprocess { side, mean, std, fit };
            let (expected, _) = preprocess.run(&image, &pool).unwrap();
            let expected = expected.to_vec::<f32>().unwrap();
            for backend in &backends {
                let found = fitted(&**backend, &preprocess, &image);
                let differ =
                    |(found, expected): &(&f32, &f32)| found.to_bits() != expected.to_bits();
                let wrong = found.iter().zip(&expected).filter(differ).count();
                let what = format!("{}, {width}x{height} to {side}, {fit:?}", backend.name());
                assert_eq!(found.len(), expected.len(), "{what}");
                assert_eq!(wrong, 0, "{what}: of {} numbers", found.len());
            }
        }
    }
}
