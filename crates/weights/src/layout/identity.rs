//! Which model a set of tensors belongs to.

use std::collections::HashMap;
use std::fmt;

/// A generation of Segment Anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Segment Anything (2023).
    Sam1,
    /// SAM 2 as first published.
    Sam2,
    /// SAM 2.1: positions for object pointers, an embedding for hidden objects.
    Sam2_1,
    /// The image part of SAM 2 or 2.1, in which they do not differ.
    Sam2Image,
    /// SAM 3.
    Sam3,
    /// SAM 3.1: the detector of SAM 3, beside a tracker of many objects at once; clicks have parts of their own.
    Sam3_1,
}

/// The size of a model, by the width and depth of its image encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// SAM 2: Hiera-T.
    Tiny,
    /// SAM 2: Hiera-S.
    Small,
    /// SAM 1: ViT-B.
    Base,
    /// SAM 2: Hiera-B+.
    BasePlus,
    /// SAM 1: ViT-L; SAM 2: Hiera-L.
    Large,
    /// SAM 1: ViT-H.
    Huge,
    /// SAM 3 and 3.1, of which there is one size.
    Only,
    /// A model of known structure that nobody published.
    Custom {
        /// Channels after the patch embedding.
        width: usize,
        /// Blocks of the image encoder.
        depth: usize,
    },
}

/// Whose names a checkpoint uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The names of Meta's repositories, which are canonical here.
    Meta,
    /// The names of `transformers`.
    HuggingFace,
}

/// Family and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The generation.
    pub family: Family,
    /// The size within it.
    pub size: Size,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.family {
            Family::Sam1 => "SAM 1",
            Family::Sam2 => "SAM 2",
            Family::Sam2_1 => "SAM 2.1",
            Family::Sam2Image => "SAM 2 (image part)",
            Family::Sam3 => "SAM 3",
            Family::Sam3_1 => "SAM 3.1",
        })?;
        match self.size {
            Size::Tiny => f.write_str(" tiny"),
            Size::Small => f.write_str(" small"),
            Size::Base => f.write_str(" ViT-B"),
            Size::BasePlus => f.write_str(" base plus"),
            Size::Large if self.family == Family::Sam1 => f.write_str(" ViT-L"),
            Size::Large => f.write_str(" large"),
            Size::Huge => f.write_str(" ViT-H"),
            Size::Only => Ok(()),
            Size::Custom { width, depth } => write!(f, ", {width} channels, {depth} blocks"),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dialect::Meta => "Meta",
            Dialect::HuggingFace => "Hugging Face",
        })
    }
}

/// What training scripts and wrappers put in front of every name.
const PREFIXES: &[&str] =
    &["module.", "model.", "sam_model.", "_orig_mod.", "detector.", "tracker.", "tracker_model."];

/// The prefixes that all names have in common, as one text.
pub(super) fn shared_prefix<'n>(names: impl Iterator<Item = &'n str> + Clone) -> &'n str {
    let Some(first) = names.clone().next() else { return "" };
    let mut length = 0;
    while let Some(prefix) = PREFIXES.iter().find(|prefix| first[length..].starts_with(**prefix)) {
        let longer = &first[..length + prefix.len()];
        if !names.clone().all(|name| name.starts_with(longer)) {
            break;
        }
        length = longer.len();
    }
    &first[..length]
}

/// The tensors that give an image encoder away.
struct Mark {
    family: Family,
    dialect: Dialect,
    /// Weight of the patch embedding, `[width, 3, side, side]`.
    patch: &'static str,
    /// What stands in front of the number of a block.
    blocks: &'static str,
}

const MARKS: &[Mark] = &[
    Mark {
        family: Family::Sam1,
        dialect: Dialect::Meta,
        patch: "image_encoder.patch_embed.proj.weight",
        blocks: "image_encoder.blocks.",
    },
    Mark {
        family: Family::Sam1,
        dialect: Dialect::HuggingFace,
        patch: "vision_encoder.patch_embed.projection.weight",
        blocks: "vision_encoder.layers.",
    },
    Mark {
        family: Family::Sam2,
        dialect: Dialect::Meta,
        patch: "image_encoder.trunk.patch_embed.proj.weight",
        blocks: "image_encoder.trunk.blocks.",
    },
    Mark {
        family: Family::Sam2,
        dialect: Dialect::HuggingFace,
        patch: "vision_encoder.backbone.patch_embed.projection.weight",
        blocks: "vision_encoder.backbone.blocks.",
    },
    Mark {
        family: Family::Sam3,
        dialect: Dialect::Meta,
        patch: "detector.backbone.vision_backbone.trunk.patch_embed.proj.weight",
        blocks: "detector.backbone.vision_backbone.trunk.blocks.",
    },
    Mark {
        family: Family::Sam3,
        dialect: Dialect::Meta,
        patch: "backbone.vision_backbone.trunk.patch_embed.proj.weight",
        blocks: "backbone.vision_backbone.trunk.blocks.",
    },
    Mark {
        family: Family::Sam3,
        dialect: Dialect::HuggingFace,
        patch: "vision_encoder.backbone.embeddings.patch_embeddings.projection.weight",
        blocks: "vision_encoder.backbone.layers.",
    },
    Mark {
        family: Family::Sam3,
        dialect: Dialect::HuggingFace,
        patch: "detector_model.vision_encoder.backbone.embeddings.patch_embeddings.projection.weight",
        blocks: "detector_model.vision_encoder.backbone.layers.",
    },
];

/// Published sizes: family, width, depth.
const SIZES: &[(Family, usize, usize, Size)] = &[
    (Family::Sam1, 768, 12, Size::Base),
    (Family::Sam1, 1024, 24, Size::Large),
    (Family::Sam1, 1280, 32, Size::Huge),
    (Family::Sam2, 96, 12, Size::Tiny),
    (Family::Sam2, 96, 16, Size::Small),
    (Family::Sam2, 112, 24, Size::BasePlus),
    (Family::Sam2, 144, 48, Size::Large),
    (Family::Sam3, 1024, 32, Size::Only),
];

/// Family and size of a set of tensors, given their names (in either dialect, with or without prefixes) and shapes.
pub fn identify<'n>(tensors: impl IntoIterator<Item = (&'n str, &'n [usize])>) -> Option<Identity> {
    let tensors: Vec<_> = tensors.into_iter().collect();
    recognise(tensors.iter().copied()).map(|(identity, _)| identity)
}

/// Identity and dialect of a set of tensors.
pub(super) fn recognise<'n>(
    tensors: impl Iterator<Item = (&'n str, &'n [usize])> + Clone,
) -> Option<(Identity, Dialect)> {
    let prefix = shared_prefix(tensors.clone().map(|(name, _)| name)).len();
    let shapes: HashMap<&str, &[usize]> =
        tensors.map(|(name, shape)| (&name[prefix..], shape)).collect();
    let (mark, width) = MARKS.iter().find_map(|mark| match shapes.get(mark.patch) {
        Some(&&[width, 3, side, other]) if side == other => Some((mark, width)),
        Some(_) | None => None,
    })?;
    let depth = depth(shapes.keys().copied(), mark.blocks);
    let published = SIZES.iter().find(|(family, known, blocks, _)| {
        (*family, *known, *blocks) == (mark.family, width, depth)
    });
    let size = published.map_or(Size::Custom { width, depth }, |(.., size)| *size);
    let family = match mark.family {
        Family::Sam2 => sam2_version(|name| shapes.contains_key(name)),
        Family::Sam3 => sam3_version(shapes.keys().copied()),
        Family::Sam1 | Family::Sam2_1 | Family::Sam2Image | Family::Sam3_1 => mark.family,
    };
    Some((Identity { family, size }, mark.dialect))
}

/// Number of blocks: one more than the largest number behind `prefix`.
fn depth<'n>(names: impl Iterator<Item = &'n str>, prefix: &str) -> usize {
    let numbers = names.filter_map(|name| {
        let (number, _) = name.strip_prefix(prefix)?.split_once('.')?;
        number.parse::<u16>().ok()
    });
    numbers.max().map_or(0, |largest| usize::from(largest) + 1)
}

/// 2.1 brought the projection of the pointers' positions; without any memory the two are the same.
fn sam2_version(has: impl Fn(&str) -> bool) -> Family {
    let either = |meta: &str, hugging_face: &str| has(meta) || has(hugging_face);
    if either("obj_ptr_tpos_proj.weight", "temporal_positional_encoding_projection_layer.weight") {
        Family::Sam2_1
    } else if either("maskmem_tpos_enc", "memory_temporal_positional_encoding") {
        Family::Sam2
    } else {
        Family::Sam2Image
    }
}

/// What 3.1 calls its other two necks and the model inside its tracker.
const SAM3_1_PARTS: &[&str] =
    &["vision_backbone.interactive_convs.", "vision_backbone.propagation_convs.", "tracker.model."];

/// 3.1 has three necks and a tracker around another model. Its detector alone is that of SAM 3, and is called so.
fn sam3_version<'n>(mut names: impl Iterator<Item = &'n str>) -> Family {
    if names.any(|name| SAM3_1_PARTS.iter().any(|part| name.contains(part))) {
        Family::Sam3_1
    } else {
        Family::Sam3
    }
}
