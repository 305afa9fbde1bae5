//! JPEG files to RGB pixels, byte for byte as libjpeg-turbo with its default settings, and Pillow's `convert("RGB")`.
//!
//! ```text
//! bytes ──Header──▶ tables, Frame, Scan ──Entropy──▶ blocks of coefficients ──idct──▶ samples ──upsample, colour──▶ RGB
//!                     one scan of all components: row of units by row of units
//!                     several scans: all blocks are kept, and those of incomplete progressive files estimated
//! ```
//!
//! Baseline, extended and progressive files of 8 bits per sample, Huffman and arithmetic coding, 1, 3 or 4 channels with any
//! whole-numbered sampling factors. Damaged and cut files are shown as far as libjpeg-turbo shows them, with a [`Damage`].
//!
//! The accurate integer transform ("islow"), interpolated upsampling ("fancy") and 16-bit colour constants are defined by
//! their results, which are part of what models were trained on. `unsafe` are only the calls into vector code, which uses
//! what every x86-64 processor has.

mod arithmetic;
mod bits;
mod coefficients;
mod colour;
mod decoder;
mod entropy;
mod error;
mod frame;
mod header;
mod huffman;
mod idct;
mod input;
mod output;
mod progressive;
mod sequential;
mod smoothing;
mod upsample;

pub use decoder::{Decoder, MOST_SCANS, Picture};
pub use error::{Damage, JpegError};
