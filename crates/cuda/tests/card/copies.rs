//! Copies between host and card, beside what the card computes.

use std::collections::HashMap;
use std::time::Instant;

use cutout_graph::{Backend, Builder, Precision, Weights};
use cutout_tensor::{DType, Shape, Tensor};
use cutout_testing::Random;

use super::{card, noise, profile};

/// More than the locked memory holds, in one piece and in many, come back as they went.
#[test]
fn what_goes_to_the_card_comes_back() {
    let Some(cuda) = card() else { return };
    let mut random = Random::new(3);
    let large: Vec<u8> = (0..90_000_001).map(|i: usize| (i ^ (i >> 9)) as u8).collect();
    let value = cuda.upload_bytes(&Shape::from([large.len()]), &large).unwrap();
    let many: Vec<Tensor> =
        (0..3000).map(|number| noise(&mut random, &[1 + number * 7 % 5000], 1.0)).collect();
    let values: Vec<_> = many.iter().map(|tensor| cuda.upload(tensor).unwrap()).collect();
    assert!(value.fetch().unwrap().to_vec::<u8>().unwrap() == large);
    let middle = value.fetch_range(4_194_300..4_194_310).unwrap().to_vec::<u8>().unwrap();
    assert_eq!(middle, large[4_194_300..4_194_310]);
    for (tensor, value) in many.iter().zip(&values) {
        assert_eq!(value.fetch().unwrap().as_bytes().unwrap(), tensor.as_bytes().unwrap());
    }
}

/// A value is there while work goes on that was enqueued after it, also behind further uploads.
#[test]
fn a_fetch_does_not_wait_for_later_work() {
    let Some(cuda) = card() else { return };
    let mut random = Random::new(4);
    let builder = Builder::new();
    let mut x = builder.input("x", DType::F32, [4096, 1024]);
    for layer in 0..8 {
        x = x.linear(builder.weights().parameter(&format!("weight{layer}"), [1024, 1024]));
    }
    builder.output("y", x);
    let weights = (0..8)
        .map(|layer| (format!("weight{layer}"), noise(&mut random, &[1024, 1024], 0.03)))
        .collect::<HashMap<_, _>>();
    let graph = builder.finish().unwrap();
    let program = cuda.compile(&graph, &Weights::new(weights), &profile(Precision::F32)).unwrap();
    let inputs: Vec<Tensor> = (0..40).map(|_| noise(&mut random, &[4096, 1024], 1.0)).collect();
    let alone = |input: &Tensor| {
        let value = program.upload(input).unwrap();
        program.run(&[&value]).unwrap().remove(0).fetch().unwrap()
    };
    let expected = [alone(&inputs[0]), alone(&inputs[39])];
    cuda.synchronize().unwrap();
    let start = Instant::now();
    let run = |input| program.run(&[&program.upload(input).unwrap()]).unwrap().remove(0);
    let values: Vec<_> = inputs.iter().map(run).collect();
    let found = values[0].fetch().unwrap();
    let fetched = start.elapsed();
    cuda.synchronize().unwrap();
    let all = start.elapsed();
    assert_eq!(found.as_bytes().unwrap(), expected[0].as_bytes().unwrap());
    let last = values[39].fetch().unwrap();
    assert_eq!(last.as_bytes().unwrap(), expected[1].as_bytes().unwrap());
    println!("the first of 40 after {fetched:?}, all after {all:?}");
}
