//! Every case of every op, on every instruction set of this machine, against the plain-loop definition.

use std::io::Write;

use cutout_cpu::{ByteConvolutions, ByteUnit, Cpu, HalfUnit, Isa, Units};
use cutout_graph::{Op, Precision, Profile};
use cutout_testing::{check_backend, check_quantized};

#[test]
fn every_case_matches_its_definition_on_every_instruction_set() {
    let names: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
    // Not `println!`, which the test harness captures.
    let line = format!("covered: {} on {}\n", names.join(", "), std::env::consts::ARCH);
    std::io::stdout().write_all(line.as_bytes()).expect("stdout is open");
    for isa in Isa::available() {
        match check_backend(isa.name(), &Cpu::with_isa(isa, 2), &Profile::default()) {
            Ok(checks) => assert!(checks > Op::all_cases().len()),
            Err(report) => panic!("{report}"),
        }
    }
}

#[test]
fn every_case_in_bf16_matches_the_definition_of_its_rounded_inputs() {
    let profile = Profile { precision: Precision::Bf16, ..Profile::default() };
    for isa in Isa::available() {
        for half in HalfUnit::ALL.into_iter().filter(|unit| unit.is_available()) {
            let name = format!("{} bf16 {}", isa.name(), half.name());
            let bytes = match half {
                HalfUnit::TileTwin => ByteUnit::TileTwin,
                HalfUnit::Tiles | HalfUnit::Dots | HalfUnit::Widened => ByteUnit::detect(isa),
            };
            let byte_convolutions = ByteConvolutions::None;
            let units = Units { half, bytes, byte_attention: false, byte_convolutions };
            match check_backend(&name, &Cpu::with_units(isa, units, 2), &profile) {
                Ok(checks) => assert!(checks > Op::all_cases().len()),
                Err(report) => panic!("{report}"),
            }
        }
    }
}

#[test]
fn every_case_in_int8_matches_the_definition_of_its_quantised_weights() {
    for isa in Isa::available() {
        for bytes in ByteUnit::ALL.into_iter().filter(|unit| unit.is_available()) {
            let name = format!("{} int8 {}", isa.name(), bytes.name());
            let units = Units {
                // Convolutions whose weights are inputs are in `f32` then.
                half: HalfUnit::Widened,
                bytes,
                byte_attention: true,
                byte_convolutions: ByteConvolutions::All,
            };
            match check_quantized(&name, &Cpu::with_units(isa, units, 2)) {
                Ok(checks) => assert!(checks > Op::all_cases().len()),
                Err(report) => panic!("{report}"),
            }
        }
    }
}
