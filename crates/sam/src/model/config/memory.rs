//! Memory encoder and memory attention: their versions and sizes.

use cutout_graph::Scope;
use serde::Serialize;

use super::{DecoderConfig, DecoderForm};
use crate::model::load::{ConfigError, Shapes};

/// Which version of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum MemoryForm {
    /// SAM 2: object pointers have no position in time.
    Sam2,
    /// SAM 2.1: object pointers have one; memories of hidden objects get an embedding.
    Sam2_1,
    /// The same in SAM 3, under other names.
    Sam3,
    /// SAM 3.1: several objects share a memory, and memories come with the features of their frame.
    Sam3_1,
}

impl MemoryForm {
    /// Where memory, object pointers and mask prompts have their weights, from the root of the weights.
    pub(crate) fn weights<'g>(self, w: &Scope<'g>) -> Scope<'g> {
        match self {
            MemoryForm::Sam2 | MemoryForm::Sam2_1 => w.clone(),
            MemoryForm::Sam3 => w.at("tracker"),
            MemoryForm::Sam3_1 => w.at("tracker.model"),
        }
    }

    /// Where memory attention is in those.
    pub(crate) fn attention(self) -> &'static str {
        match self {
            MemoryForm::Sam2 | MemoryForm::Sam2_1 => "memory_attention",
            MemoryForm::Sam3 | MemoryForm::Sam3_1 => "transformer.encoder",
        }
    }

    /// Where the memory encoder is in those.
    pub(crate) fn encoder(self) -> &'static str {
        match self {
            MemoryForm::Sam2 | MemoryForm::Sam2_1 => "memory_encoder",
            MemoryForm::Sam3 | MemoryForm::Sam3_1 => "maskmem_backbone",
        }
    }

    /// The pointer of hidden objects; `None` where it is computed from the object's own.
    pub(crate) fn hidden_pointer(self) -> Option<&'static str> {
        match self {
            MemoryForm::Sam2 | MemoryForm::Sam2_1 => Some("no_obj_ptr"),
            MemoryForm::Sam3 => Some("tracker.no_obj_ptr"),
            MemoryForm::Sam3_1 => None,
        }
    }

    /// What the layers of object pointers and mask prompts that a user gives begin with: SAM 3.1 has others for objects that are
    /// followed.
    pub(crate) fn prompted(self) -> &'static str {
        match self {
            MemoryForm::Sam2 | MemoryForm::Sam2_1 | MemoryForm::Sam3 => "",
            MemoryForm::Sam3_1 => "interactive_",
        }
    }

    /// Whether object pointers have positions in time and memories of hidden objects an embedding.
    pub(crate) fn has_pointer_positions(self) -> bool {
        match self {
            MemoryForm::Sam2 => false,
            MemoryForm::Sam2_1 | MemoryForm::Sam3 | MemoryForm::Sam3_1 => true,
        }
    }
}

/// Memory encoder and memory attention.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryConfig {
    /// Which version.
    pub form: MemoryForm,
    /// Channels of a memory.
    pub width: usize,
    /// Rows of the temporal position table: one for all conditioning frames and one for each recent frame.
    pub frames: usize,
    /// Frames that object pointers reach back to, the current one included.
    pub pointer_frames: usize,
    /// Layers of memory attention.
    pub layers: usize,
    /// Heads of memory attention.
    pub heads: usize,
    /// Channels between the two layers of memory attention's MLP.
    pub mlp_width: usize,
    /// Layers that mix image and mask in the memory encoder.
    pub fuser_layers: usize,
    /// Channels between the two linear layers of each.
    pub fuser_width: usize,
    /// Objects that share a memory: SAM 3.1.
    pub multiplex: Option<MultiplexConfig>,
}

/// Buckets of objects that share a memory and are followed together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MultiplexConfig {
    /// Most objects of a bucket, each in a slot of its own.
    pub slots: usize,
    /// Channels after the first of the memory encoder's mask convolutions.
    pub mask_channels: usize,
    /// The mask decoder of objects that are followed. Its mask tokens are the candidates of one slot.
    pub decoder: DecoderConfig,
}

impl MultiplexConfig {
    /// Where the decoder's weights are.
    pub(crate) const DECODER: &str = "tracker.model.sam_mask_decoder";

    /// Of the published model.
    pub(crate) fn published() -> Self {
        let decoder =
            DecoderConfig { mask_tokens: 3, ..DecoderConfig::published(DecoderForm::Sam3_1) };
        MultiplexConfig { slots: 16, mask_channels: 16, decoder }
    }
}

impl MemoryConfig {
    /// The memory that all published models have.
    pub(crate) fn published(form: MemoryForm) -> Self {
        let multiplex = (form == MemoryForm::Sam3_1).then(MultiplexConfig::published);
        MemoryConfig {
            form,
            width: if multiplex.is_some() { 256 } else { 64 },
            frames: 7,
            pointer_frames: 16,
            layers: 4,
            heads: if multiplex.is_some() { 8 } else { 1 },
            mlp_width: 2048,
            fuser_layers: 2,
            fuser_width: 1024,
            multiplex,
        }
    }

    /// Channels of what points at the objects of a memory on one frame: a pointer for each.
    pub(crate) fn pointer_width(&self, width: usize) -> usize {
        width * self.multiplex.as_ref().map_or(1, |multiplex| multiplex.slots)
    }

    /// Layers of the fuser and the channels inside, from the tensors of a memory encoder.
    pub(super) fn read_fuser(
        shapes: &Shapes<'_>,
        encoder: &str,
    ) -> Result<[usize; 2], ConfigError> {
        let layers = format!("{encoder}.fuser.layers");
        match shapes.count(&layers, "gamma") {
            0 => Ok([0, 1]),
            count => {
                let [width] = shapes.axes(&format!("{layers}.0.pwconv1.bias"))?;
                Ok([count, width])
            }
        }
    }
}
