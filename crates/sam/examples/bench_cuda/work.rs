//! A piece of work, and how it is timed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cutout_graph::{Backend, DeviceValue, Graph, Profile, Program, Weights};
use cutout_tensor::{DType, Shape, Tensor};
use cutout_testing::Random;
use serde_json::{Value, json};

/// Single runs, of which the median counts; and as many back to back.
const RUNS: usize = 20;

/// One line of the table; times in milliseconds.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) alone: f64,
    pub(crate) together: Option<f64>,
    pub(crate) eager: Option<f64>,
    pub(crate) compiled: Option<f64>,
    /// What the script for PyTorch must know of it.
    pub(crate) described: Value,
}

impl Row {
    pub(crate) fn new(name: &str, times: [f64; 2], described: Value) -> Row {
        let name = name.to_owned();
        println!("{name}: {:.3} ms, back to back {:.3} ms", times[0], times[1]);
        let together = Some(times[1]);
        Row { name, alone: times[0], together, eager: None, compiled: None, described }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "name": self.name, "alone_ms": self.alone, "back_to_back_ms": self.together,
            "torch_eager_ms": self.eager, "torch_compiled_ms": self.compiled, "work": self.described,
        })
    }
}

/// Compiles and times graphs on a backend.
pub(crate) struct Timer<'a> {
    pub(crate) backend: &'a dyn Backend,
    pub(crate) profile: &'a Profile,
}

/// A compiled graph with inputs on the device.
pub(crate) struct Ready {
    program: Box<dyn Program>,
    inputs: Vec<DeviceValue>,
}

impl Ready {
    fn run(&self) {
        let inputs: Vec<&DeviceValue> = self.inputs.iter().collect();
        drop(self.program.run(&inputs).unwrap());
    }
}

impl Timer<'_> {
    /// A graph with random weights and inputs, compiled with a profile.
    pub(crate) fn ready(&self, graph: &Graph, profile: &Profile) -> Ready {
        let mut numbers = Random::new(1);
        let mut tensors = HashMap::new();
        for (path, id) in graph.parameters() {
            tensors.insert(path.to_owned(), random(&graph.ty(id).shape, 0.1, &mut numbers));
        }
        let weights = Weights::new(tensors);
        let program = self.backend.compile(graph, &weights, profile).unwrap();
        let values = graph.inputs().map(|(_, id)| {
            let ty = graph.ty(id);
            let tensor = if ty.dtype == DType::I64 {
                Tensor::from_vec(ty.shape.clone(), vec![2i64; ty.shape.elements()])
            } else {
                random(&ty.shape, 2.0, &mut numbers).cast(ty.dtype)
            };
            program.upload(&tensor.unwrap()).unwrap()
        });
        let inputs = values.collect();
        Ready { program, inputs }
    }

    /// Milliseconds of one run alone, and of one of many, of programs that run one after another as often as given.
    pub(crate) fn time(&self, programs: &[(&Ready, usize)]) -> [f64; 2] {
        let once =
            || programs.iter().for_each(|(ready, count)| (0..*count).for_each(|_| ready.run()));
        once();
        self.backend.synchronize().unwrap();
        let mut times: Vec<Duration> = (0..RUNS)
            .map(|_| {
                let start = Instant::now();
                once();
                self.backend.synchronize().unwrap();
                start.elapsed()
            })
            .collect();
        times.sort();
        let start = Instant::now();
        (0..RUNS).for_each(|_| once());
        self.backend.synchronize().unwrap();
        let together = start.elapsed() / RUNS as u32;
        [times[RUNS / 2], together].map(|time| time.as_secs_f64() * 1e3)
    }
}

fn random(shape: &Shape, scale: f64, random: &mut Random) -> Tensor {
    let values = (0..shape.elements()).map(|_| ((random.unit() - 0.5) * scale) as f32).collect();
    Tensor::from_vec(shape.clone(), values).unwrap()
}
