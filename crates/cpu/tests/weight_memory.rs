//! Each weight is in memory once: its source tensor is dropped after packing and not read again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cutout_cpu::{ByteConvolutions, Cpu, Isa, Units};
use cutout_graph::ops::{Conv2d, ConvTranspose2d};
use cutout_graph::{Backend, Builder, Graph, Precision, Profile, WeightMemory, Weights};
use cutout_tensor::{Bytes, DType, LazyTensor, Rows, Tensor, TensorError, TensorType};

const SIDE: usize = 64;
const MATRIX: usize = SIDE * SIDE * 4;

/// Counts what happens to the memory that weights are read from.
#[derive(Default)]
struct Watch {
    /// Number of tensors created.
    made: AtomicUsize,
    /// Bytes of the tensors that are alive.
    alive: AtomicUsize,
    /// Bytes released although their tensor is alive.
    released: AtomicUsize,
}

struct Watched {
    words: Vec<u64>,
    watch: Arc<Watch>,
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }
}

impl Bytes for Watched {
    fn release(&self, range: Range<usize>) {
        self.watch.released.fetch_add(range.len(), Ordering::Relaxed);
    }

    fn is_mapped(&self) -> bool {
        true
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watch.alive.fetch_sub(8 * self.words.len(), Ordering::Relaxed);
    }
}

impl Watch {
    fn counts(&self) -> (usize, usize, usize) {
        let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (of(&self.made), of(&self.alive), of(&self.released))
    }
}

/// A tensor that reports to `watch`.
fn watched(watch: &Arc<Watch>, ty: TensorType) -> Tensor {
    let values: Vec<f32> = (0..ty.shape.elements()).map(|i| (i * 7 % 13) as f32 - 6.0).collect();
    let plain = Tensor::from_vec(&ty.shape[..], values).unwrap().cast(ty.dtype).unwrap();
    let mut words = vec![0u64; ty.bytes() / 8];
    bytemuck::cast_slice_mut(&mut words).copy_from_slice(plain.as_bytes().unwrap());
    watch.made.fetch_add(1, Ordering::Relaxed);
    watch.alive.fetch_add(ty.bytes(), Ordering::Relaxed);
    Tensor::from_bytes(ty, Arc::new(Watched { words, watch: Arc::clone(watch) }), 0).unwrap()
}

/// A graph that multiplies with one whole weight, its transpose and two parts of another, and adds a bias.
fn graph(rows: usize) -> Graph {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [rows, SIDE]);
    let w = builder.weights();
    let (whole, joined) =
        (w.parameter("whole", [SIDE, SIDE]), w.parameter("joined", [2 * SIDE, SIDE]));
    let [first, second] = [0, SIDE].map(|start| joined.slice(0, start..start + SIDE));
    let y = x.linear(whole).linear(whole.permute([1, 0])).linear(first).linear(second);
    builder.output("y", y + w.parameter("bias", [SIDE]));
    builder.finish().unwrap()
}

fn shapes(dtype: DType) -> [(&'static str, TensorType); 3] {
    let of = |shape: &[usize]| TensorType::new(dtype, shape);
    [("whole", of(&[SIDE, SIDE])), ("joined", of(&[2 * SIDE, SIDE])), ("bias", of(&[SIDE]))]
}

/// Weights that are created on demand, like those that are concatenated from parts of a file.
fn lazy_weights(watch: &Arc<Watch>, dtype: DType) -> Weights {
    let lazy = shapes(dtype).map(|(name, ty)| {
        let watch = Arc::clone(watch);
        (name.to_owned(), LazyTensor::new(ty.clone(), move || Ok(watched(&watch, ty.clone()))))
    });
    Weights::lazy(HashMap::from(lazy))
}

#[test]
fn a_lazy_tensor_is_dropped_once_it_is_packed() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let watch = Arc::default();
        let weights = lazy_weights(&watch, dtype);
        let cpu = Cpu::new(1);
        let first = cpu.compile(&graph(3), &weights, &Profile::default()).unwrap();
        let (made, alive, _) = watch.counts();
        assert_eq!(alive, 0, "{dtype}: sources of packed weights are alive");
        // Four packed matrices, in the type of the file, and a copy of the bias in f32.
        let packed = 4 * SIDE * SIDE * dtype.size();
        let memory = WeightMemory { packed, plain: SIDE * 4, folded: 0 };
        assert_eq!(weights.memory(), memory, "{dtype}");
        let second = cpu.compile(&graph(5), &weights, &Profile::default()).unwrap();
        assert_eq!(watch.counts().0, made, "{dtype}: the second program reads no weight again");
        assert_eq!(weights.memory(), memory, "{dtype}");
        drop((first, second));
    }
}

#[test]
fn mapped_weights_are_released_once_they_are_packed() {
    let watch = Arc::default();
    let tensors = shapes(DType::F32).map(|(name, ty)| (name.to_owned(), watched(&watch, ty)));
    let weights = Weights::new(HashMap::from(tensors));
    let program = Cpu::new(1).compile(&graph(3), &weights, &Profile::default()).unwrap();
    // The whole matrix twice, plain and transposed; each part once. The bias is copied: reading it in place would keep pages
    // of its neighbours in memory.
    assert_eq!(watch.counts(), (3, 3 * MATRIX + SIDE * 4, 4 * MATRIX + SIDE * 4));
    let memory = WeightMemory { packed: 4 * MATRIX, plain: SIDE * 4, folded: 0 };
    assert_eq!(weights.memory(), memory);
    drop(program);
}

/// Multiplies with a matrix that is computed from a weight and, if asked for, adds that matrix; then adds a table.
fn computed_graph(rows: usize, adds: bool) -> Graph {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [rows, SIDE]);
    let scaled = builder.weights().parameter("whole", [SIDE, SIDE]) * builder.scalar(0.5);
    let table: Vec<f32> = (0..SIDE).map(|i| i as f32).collect();
    let y = x.linear(scaled) + builder.computed(Tensor::from_vec([SIDE], table));
    builder.output("y", if adds { y + scaled } else { y });
    builder.finish().unwrap()
}

#[test]
fn computed_constants_are_computed_once_and_again_for_another_form() {
    let watch: Arc<Watch> = Arc::default();
    let weights = lazy_weights(&watch, DType::F32);
    let cpu = Cpu::new(1);
    let first = cpu.compile(&computed_graph(3, false), &weights, &Profile::default()).unwrap();
    let memory = WeightMemory { packed: MATRIX, plain: 0, folded: SIDE * 4 };
    assert_eq!(weights.memory(), memory, "the packed product, and the table of all graphs");
    let counts = || (watch.counts().0, watch.counts().1);
    assert_eq!(counts(), (1, 0), "the weight is read once");
    let second = cpu.compile(&computed_graph(5, false), &weights, &Profile::default()).unwrap();
    assert_eq!(counts(), (1, 0), "the second program computes nothing");
    assert_eq!(weights.memory(), memory);
    let third = cpu.compile(&computed_graph(SIDE, true), &weights, &Profile::default()).unwrap();
    assert_eq!(counts(), (2, 0), "the matrix itself is computed again");
    assert_eq!(weights.memory(), WeightMemory { plain: MATRIX, ..memory });
    let x = Tensor::zeros(&TensorType::f32([SIDE, SIDE])).unwrap();
    let found = third.run_named(&[("x", &x)]).unwrap().remove(0).1.to_vec::<f32>().unwrap();
    let whole = watched(&watch, TensorType::f32([SIDE, SIDE])).to_vec::<f32>().unwrap();
    let expected = whole.iter().enumerate().map(|(i, value)| value * 0.5 + (i % SIDE) as f32);
    assert_eq!(found, expected.collect::<Vec<_>>());
    drop((first, second));
}

/// Rounded and quantised weights are read once and then released, and no rounded or quantised copy is kept beside the packed one.
#[test]
fn weights_of_lower_precision_are_read_once_and_in_memory_once() {
    for (precision, bytes) in [(Precision::Bf16, 2), (Precision::Int8, 1)] {
        let watch = Arc::default();
        let weights = lazy_weights(&watch, DType::F32);
        let profile = Profile { precision, ..Profile::default() };
        let cpu = Cpu::new(2);
        let program = cpu.compile(&graph(3), &weights, &profile).unwrap();
        // The whole matrix, its transpose, two parts, the bias.
        assert_eq!((watch.counts().0, watch.counts().1), (5, 0), "{precision:?}");
        let memory = weights.memory();
        assert_eq!((memory.plain, memory.folded), (SIDE * 4, 0), "{precision:?}: {memory:?}");
        // With int8 the plain matrix is quantised; its transpose and the parts are not.
        assert!(memory.packed <= 4 * MATRIX - MATRIX / 4 * (4 - bytes) + SIDE * 8, "{memory:?}");
        let again = cpu.compile(&graph(5), &weights, &profile).unwrap();
        assert_eq!(watch.counts().0, 5, "{precision:?}: the second program reads nothing again");
        drop((program, again));
    }
}

/// Weights of convolutions take a byte per element, and what they were made of is not kept.
#[test]
fn quantised_convolutions_keep_bytes_alone() {
    let builder = Builder::new();
    let x = builder.input("x", DType::F32, [1, 4, 4, SIDE]);
    let shape = [SIDE, SIDE, 2, 2];
    let names = ["conv", "apart", "overlapping"];
    let [conv, apart, overlapping] = names.map(|name| builder.weights().parameter(name, shape));
    let y = x.conv2d(conv, Conv2d::new(1, 0));
    let y = y.conv_transpose2d(apart, ConvTranspose2d::new(2, 0));
    builder.output("y", y.conv_transpose2d(overlapping, ConvTranspose2d::new(1, 0)));
    let graph = builder.finish().unwrap();
    let watch: Arc<Watch> = Arc::default();
    let lazy = names.map(|name| {
        let (ty, watch) = (TensorType::f32(shape), Arc::clone(&watch));
        (name.to_owned(), LazyTensor::new(ty.clone(), move || Ok(watched(&watch, ty.clone()))))
    });
    let weights = Weights::lazy(HashMap::from(lazy));
    let byte_convolutions = ByteConvolutions::All;
    let units = Units { byte_convolutions, ..Units::detect(Isa::detect()) };
    let cpu = Cpu::with_units(Isa::detect(), units, 2);
    let profile = Profile { precision: Precision::Int8, ..Profile::default() };
    let program = cpu.compile(&graph, &weights, &profile).unwrap();
    assert_eq!((watch.counts().0, watch.counts().1), (3, 0), "each is read once and dropped");
    let memory = weights.memory();
    assert_eq!((memory.plain, memory.folded), (0, 0));
    // Of 64 outputs two vectors of padding at most, and 8 bytes with each column for its scale and the start of its sums.
    let columns = [96, 4 * SIDE + 32, 96];
    let depths = [4 * SIDE, SIDE, 4 * SIDE];
    let most: usize =
        columns.iter().zip(depths).map(|(columns, depth)| columns * (depth + 8)).sum();
    assert!(memory.packed <= most, "{memory:?}, at most {most}");
    drop(program);
}

/// The peak of resident memory: compiling reads one weight after the other, and none stays resident until the next is read.
#[test]
fn no_mapped_weight_stays_resident_while_another_is_packed() {
    for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
        let watch: Arc<Watch> = Arc::default();
        let reads = Arc::new(AtomicUsize::new(0));
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [3, SIDE]);
        let names = ["first", "second", "third"];
        let products = names
            .into_iter()
            .fold(x, |x, name| x.linear(builder.weights().parameter(name, [SIDE, SIDE])));
        builder.output("y", products);
        let graph = builder.finish().unwrap();
        let lazy = names.map(|name| {
            let ty = TensorType::f32([SIDE, SIDE]);
            let (watch, reads) = (Arc::clone(&watch), Arc::clone(&reads));
            let tensor = watched(&watch, ty.clone());
            let lazy = LazyTensor::new(ty, move || {
                // All that was read before is released by now.
                let read = reads.fetch_add(tensor.ty().bytes(), Ordering::Relaxed);
                let released = watch.released.load(Ordering::Relaxed);
                assert!(released >= read, "{released} of {read} bytes");
                Ok(tensor.clone())
            });
            (name.to_owned(), lazy)
        });
        let weights = Weights::lazy(HashMap::from(lazy));
        let profile = Profile { precision, ..Profile::default() };
        Cpu::new(2).compile(&graph, &weights, &profile).map(drop).unwrap();
        assert_eq!(reads.load(Ordering::Relaxed), 3 * MATRIX, "{precision:?}: each is read once");
    }
}

/// Only the gathered rows of a table in half precision are widened, never the whole table.
#[test]
fn tables_in_half_precision_are_read_in_place() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        // Smaller tables are copied.
        const ROWS: usize = 1024;
        let builder = Builder::new();
        let table = builder.weights().parameter("table", [ROWS, SIDE]);
        let rows = builder.input("rows", DType::I64, [3]);
        builder.output("y", table.gather(rows));
        let graph = builder.finish().unwrap();
        let watch = Arc::default();
        let table = watched(&watch, TensorType::new(dtype, [ROWS, SIDE]));
        let weights = Weights::new(HashMap::from([("table".to_owned(), table.clone())]));
        let program = Cpu::new(2).compile(&graph, &weights, &Profile::default()).unwrap();
        assert_eq!(weights.memory(), WeightMemory::default(), "{dtype}");
        let rows = Tensor::from_vec([3], vec![63i64, 0, 7]).unwrap();
        let found = program.run_named(&[("rows", &rows)]).unwrap().remove(0).1;
        let table: Vec<f32> = table.cast(DType::F32).unwrap().to_vec().unwrap();
        let expected = [63, 0, 7].map(|row| table[row * SIDE..][..SIDE].to_vec()).concat();
        assert_eq!(found.to_vec::<f32>().unwrap(), expected, "{dtype}");
    }
}

/// A table whose rows are decoded on request.
struct DecodedRows {
    watch: Arc<Watch>,
    dtype: DType,
}

impl Rows for DecodedRows {
    fn rows(&self, range: Range<usize>) -> Result<Tensor, TensorError> {
        self.watch.made.fetch_add(range.len(), Ordering::Relaxed);
        let values = range.flat_map(|row| (0..SIDE).map(move |column| (row * 3 + column) as f32));
        Tensor::from_vec([values.clone().count() / SIDE, SIDE], values.collect())?.cast(self.dtype)
    }

    fn release(&self) {}
}

/// A gather from a table in quantised blocks decodes only the rows that it needs, and keeps none.
#[test]
fn a_gather_decodes_the_rows_it_needs() {
    for dtype in [DType::F32, DType::F16] {
        let watch = Arc::<Watch>::default();
        let ty = TensorType::new(dtype, [1000, SIDE]);
        let rows = DecodedRows { watch: Arc::clone(&watch), dtype };
        let table = LazyTensor::from_rows(ty, rows);
        let weights = Weights::lazy(HashMap::from([("table".to_owned(), table)]));
        let builder = Builder::new();
        let indices = builder.input("indices", DType::I64, [3]);
        builder.output("y", builder.weights().parameter("table", [1000, SIDE]).gather(indices));
        let graph = builder.finish().unwrap();
        let program = Cpu::new(2).compile(&graph, &weights, &Profile::default()).unwrap();
        let indices = Tensor::from_vec([3], vec![7i64, 400, 7]).unwrap();
        let found = program.run_named(&[("indices", &indices)]).unwrap().remove(0).1;
        let expected =
            [7, 400, 7].map(|row| (0..SIDE).map(move |column| (row * 3 + column) as f32));
        let expected: Vec<f32> = expected.into_iter().flatten().collect();
        assert_eq!(found.to_vec::<f32>().unwrap(), expected, "{dtype}");
        assert_eq!(watch.counts().0, 3, "{dtype}: rows that were decoded");
        assert_eq!(weights.memory(), WeightMemory::default(), "{dtype}");
    }
}
