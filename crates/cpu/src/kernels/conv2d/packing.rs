//! The precision of a convolution, and its weight packed for that.

use cutout_parallel::Pool;
use cutout_tensor::{Tensor, TensorError};

use super::weights::WEIGHT;
use crate::gemm::int8::MAX_DEPTH;
use crate::gemm::{Arithmetic, ByteConvolutions, Matrix};
use crate::lower::Site;

/// Least number of input channels of a convolution of bytes. Those with fewer read a picture or a mask itself, whose rounding all later
/// layers would see, in short runs that take long to gather.
const LEAST_CHANNELS: usize = 16;
/// Least length of the sums, and least number of sums for each patch. The time to quantise a patch grows with its depth, as the time of its
/// products does for each output, so few outputs do not pay for it; a short depth leaves most of the time to reading and storing. On two
/// threads of Zen 5, bytes were 1.91 times as fast as bf16 at a depth of 2304 with 256 outputs, 1.23 times at 256 with 64, 1.18 at 288 with
/// 64, 1.01 at 256 with 32, 0.98 at 144 with 64, 0.97 at 64 with 128, 0.75 at 64 with 64.
const LEAST_DEPTH: usize = 256;
const LEAST_OUTPUTS: usize = 32;

/// How the weight of a convolution is packed: quantised, or in the precision of other products.
#[derive(Clone, Copy)]
pub(crate) struct Packing {
    arithmetic: Arithmetic,
    quantizes: bool,
}

impl Packing {
    /// What the convolution at `site` multiplies, which reads `channels` of each pixel by a matrix `[outputs, depth]`.
    ///
    /// A weight that the program computes is packed in every run and not quantised: that would take longer than it saves, and a NaN
    /// in it would be an error instead of a result.
    pub(crate) fn new(site: &Site<'_>, channels: usize, [outputs, depth]: [usize; 2]) -> Packing {
        let arithmetic = site.arithmetic;
        let wanted = match arithmetic.byte_convolutions {
            ByteConvolutions::None => false,
            ByteConvolutions::Faster => {
                channels >= LEAST_CHANNELS && depth >= LEAST_DEPTH && outputs >= LEAST_OUTPUTS
            }
            ByteConvolutions::All => true,
        };
        let quantizes = wanted && depth <= MAX_DEPTH && site.statics[WEIGHT].is_some();
        Packing { arithmetic, quantizes }
    }

    /// Whether products are in `f32`.
    pub(super) fn is_single(&self) -> bool {
        !self.quantizes && self.arithmetic.half.is_none()
    }

    /// Name for packed forms.
    pub(crate) fn name(&self) -> String {
        let Arithmetic { isa, bytes, .. } = self.arithmetic;
        if self.quantizes {
            format!("{} int8 {}", isa.name(), bytes.name())
        } else {
            self.arithmetic.name()
        }
    }

    /// Packs a weight of any float type and layout, whose first axes have `outputs` elements together.
    pub(crate) fn pack(
        &self,
        pool: &Pool,
        weight: Tensor,
        outputs: usize,
    ) -> Result<Matrix, TensorError> {
        if self.quantizes {
            Matrix::quantize(pool, self.arithmetic, &weight, outputs)
        } else {
            Matrix::pack(pool, self.arithmetic, &weight.into(), outputs)
        }
    }
}
