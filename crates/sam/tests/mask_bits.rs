//! Masks as bits on every backend against the upsampling of the host, bit for bit.

use cutout_graph::ops::{MaskBits, ModelSquare};
use cutout_graph::{Builder, Profile, Weights};
use cutout_sam::device;
use cutout_sam::imaging::{Mapping, Size, Threshold, Upsampler, summarize, summarize_bits};
use cutout_tensor::{DType, Tensor};
use cutout_testing::Random;

const LOW: usize = 24;

/// Width and height of pictures, and of what they fill in the model's square.
const SIZES: [[usize; 4]; 6] = [
    [1, 1, 96, 96],
    [97, 33, 96, 33],
    [64, 150, 41, 96],
    [150, 64, 96, 41],
    [31, 31, 96, 96],
    [300, 7, 96, 2],
];

#[test]
fn bits_are_those_of_the_host() {
    let mut random = Random::new(16);
    let threshold = Threshold { value: 0.125, offset: 0.5 };
    for backend in device::backends(2) {
        for [width, height, content_width, content_height] in SIZES {
            let [original, content] =
                [Size::new(width, height), Size::new(content_width, content_height)];
            let (low, model) = (Size::square(LOW), Size::square(96));
            let mapping = Mapping { original, content, model };
            let square = ModelSquare { size: [96, 96], content: [content_height, content_width] };
            let ways = [
                (None, Upsampler::direct(low, original).unwrap()),
                (Some(square), Upsampler::through_model(low, &mapping).unwrap()),
            ];
            for (through, upsampler) in ways {
                let size = [height, width];
                let Threshold { value, offset } = threshold;
                let op = MaskBits { through, size, threshold: value, offset };
                let builder = Builder::new();
                let logits = builder.input("logits", DType::F32, [3, LOW, LOW]);
                builder.output("words", logits.mask_bits(op));
                let graph = builder.finish().unwrap();
                let weights = Weights::new(Default::default());
                let program = backend.compile(&graph, &weights, &Profile::default()).unwrap();
                let values: Vec<f32> = (0..3 * LOW * LOW).map(|_| random.normal() as f32).collect();
                let input = Tensor::from_vec([3, LOW, LOW], values.clone()).unwrap();
                let outputs = program.run_named(&[("logits", &input)]).unwrap();
                let words = outputs[0].1.to_vec::<i32>().unwrap();
                let rows = words.chunks_exact(words.len() / 3);
                for (row, values) in rows.zip(values.chunks_exact(LOW * LOW)) {
                    let expected = summarize(&upsampler, values, threshold, None).unwrap();
                    let found = summarize_bits(original, row, None).unwrap();
                    assert_eq!(found, expected, "{}: {op:?}", backend.name());
                }
            }
        }
    }
}
