//! Every case of every op, on every instruction set of this machine, against the plain-loop definition.

use cutout_cpu::{Cpu, Isa};
use cutout_graph::{Op, Profile};
use cutout_testing::check_backend;

#[test]
fn every_case_matches_its_definition_on_every_path() {
    for isa in Isa::available() {
        match check_backend(isa.name(), &Cpu::with_isa(isa, 2), &Profile::default()) {
            Ok(checks) => assert!(checks > Op::all_cases().len()),
            Err(report) => panic!("{report}"),
        }
    }
}
