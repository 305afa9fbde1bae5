//! Every op's reference gives PyTorch's numbers.

use cutout_testing::check_reference_against_fixtures;

#[test]
fn references_agree_with_pytorch() {
    if let Err(report) = check_reference_against_fixtures() {
        panic!("{report}");
    }
}
