//! Resizes of pictures by windows that are given.

use cutout_graph::CompileError;
use cutout_graph::ops::Resample;
use cutout_tensor::DType;

use super::Site;
use super::parameters::{self, code};
use crate::launch::Argument;

pub(crate) fn resample(op: &Resample, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    let [x, starts, weights] = [0, 1, 2].map(|index| site.inputs[index].clone());
    let sizes = op.sizes(&x.ty.shape, &weights.ty.shape);
    site.count(x.ty.shape.elements())?;
    let parameters = parameters::Resample {
        total: site.count(site.ty.shape.elements())?,
        length: site.count(sizes.length)?,
        inner: site.count(sizes.inner)?,
        positions: site.count(sizes.positions)?,
        taps: site.count(sizes.taps)?,
        half: op.half(),
        bits: op.bits.cast_signed(),
        from: code(x.stored),
        to: code(site.stored),
    };
    let fixed = weights.ty.dtype == DType::I32;
    let kernel = if fixed { "resample_fixed" } else { "resample_single" };
    let read = [x.read(), starts.read(), weights.read()];
    let arguments = read.into_iter().chain([site.write(), Argument::of(&parameters)]).collect();
    site.launch_each(kernel, parameters.total, arguments);
    Ok(())
}
