//! Developer tasks: ci, arm, bench, clients, fuzz, explain, fixtures, kernels, deps, size, licences.
#![allow(clippy::print_stdout, reason = "a command line program prints")]

mod arm;
mod bench;
mod ci;
mod clients;
mod deps;
mod explain;
mod fixtures;
mod fuzz;
mod kernels;
mod licences;
mod metadata;
mod size;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Developer tasks of the workspace.
#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run everything a change must pass: format, lints, tests, documentation, dependencies, sizes, licences.
    Ci,
    /// Run the tests of the kernels for 64-bit ARM, under user-mode emulation.
    Arm,
    /// Drive real annotation tools, installed from PyPI, against `cutout serve`; `--help` lists the options.
    #[command(disable_help_flag = true)]
    Clients {
        /// Options of fixtures/check_clients.py.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Check the dependencies between the crates.
    Deps,
    /// Print the lines per crate; fails if a file is too long.
    Size,
    /// Check the licences of everything the programs are built from.
    Licences,
    /// Print how an example graph is compiled: `cargo xtask explain mlp --after fuse_epilogues`.
    Explain {
        /// The graph.
        example: explain::Example,
        /// Print the graph after this pass instead of after all.
        #[arg(long)]
        after: Option<String>,
        /// A profile in TOML.
        #[arg(long)]
        profile: Option<PathBuf>,
    },
    /// Write what the scripts in fixtures/ read.
    #[command(subcommand)]
    Fixtures(Fixtures),
    /// Read mutated inputs of every reader, a million of each; `--help` lists its options.
    #[command(disable_help_flag = true)]
    Fuzz {
        /// Targets and options of the fuzzer.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Compile the CUDA kernels with NVRTC and write the bundles of the crate `cuda`.
    Kernels {
        /// Folder with libnvrtc.so and libnvrtc-builtins.so, of an unpacked nvidia-cuda-nvrtc-cu12 wheel.
        #[arg(long)]
        nvrtc: PathBuf,
        /// Compile the units whose name contains this, and write nothing.
        #[arg(long)]
        only: Option<String>,
    },
    /// Run the benchmarks, with the machine's peak and other crates for comparison.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// Time every kernel on the models' shapes; `--help` lists its options.
    #[command(disable_help_flag = true)]
    Kernels {
        /// Options of the benchmark.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Time kernels and models on the first GPU, beside PyTorch if asked; `--help` lists its options.
    #[command(disable_help_flag = true)]
    Cuda {
        /// Options of the benchmark.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
}

#[derive(Subcommand)]
enum Fixtures {
    /// Writes the cases of every op, for fixtures/make.py: cases.json and inputs.safetensors.
    Cases {
        /// Where to write; made if missing.
        directory: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    match Options::parse().task {
        Task::Ci => ci::run(),
        Task::Arm => arm::test(),
        Task::Clients { options } => clients::drive(&options),
        Task::Deps => deps::check(),
        Task::Size => size::check(),
        Task::Licences => licences::check(),
        Task::Explain { example, after, profile } => {
            explain::run(example, after.as_deref(), profile.as_deref())
        }
        Task::Fixtures(Fixtures::Cases { directory }) => fixtures::write_cases(&directory),
        Task::Fuzz { options } => fuzz::run(&options),
        Task::Kernels { nvrtc, only } => kernels::build(&nvrtc, only.as_deref()),
        Task::Bench(Bench::Kernels { options }) => bench::kernels(&options),
        Task::Bench(Bench::Cuda { options }) => bench::cuda(&options),
    }
}
