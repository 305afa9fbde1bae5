//! Prints the contents of a checkpoint and the time to open it; with a second path, converts it to GGUF or safetensors.
//!
//! `cargo run --release -p cutout-weights --example inspect -- model.pt [model.gguf]`
#![allow(clippy::print_stdout, reason = "an example that prints")]

use std::time::Instant;

use cutout_weights::{Checkpoint, Encoding, Outgoing, layout, write_gguf, write_safetensors};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let input = arguments.next().ok_or("usage: inspect CHECKPOINT [OUTPUT.gguf|.safetensors]")?;
    let start = Instant::now();
    let checkpoint = Checkpoint::open(&input)?;
    let opened = start.elapsed();
    let start = Instant::now();
    let names: Vec<&str> = checkpoint.tensors().iter().map(|info| info.name.as_str()).collect();
    for name in &names {
        let _ = checkpoint.tensor(name);
    }
    let listed = start.elapsed();
    let bytes: u64 = checkpoint.tensors().iter().map(|info| info.bytes).sum();
    println!("{}: {} tensors, {bytes} bytes", checkpoint.format(), names.len());
    println!("opened in {opened:?}, a view of every tensor in {listed:?}");
    match layout::Model::of(&checkpoint) {
        Ok(model) => println!("{}, names of {}", model.identity(), model.dialect()),
        Err(error) => println!("{error}"),
    }
    if let Some(output) = arguments.next() {
        let outgoing = Outgoing::of(&checkpoint);
        for lost in &outgoing.left_out {
            println!("left out: {lost}");
        }
        if output.ends_with(".gguf") {
            write_gguf(&output, &outgoing.tensors, checkpoint.metadata(), Encoding::Q8_0)?;
        } else {
            write_safetensors(&output, &outgoing.tensors, checkpoint.metadata())?;
        }
    }
    Ok(())
}
