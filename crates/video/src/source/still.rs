//! A still image as a clip of one frame.

use cutout_imaging::Image;

use crate::{FrameSource, VideoError};

pub(super) struct Still {
    name: String,
    image: Option<Image>,
}

impl Still {
    pub(super) fn new(image: Image, name: &str) -> Self {
        Still { name: name.into(), image: Some(image) }
    }
}

impl Iterator for Still {
    type Item = Result<Image, VideoError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.image.take().map(Ok)
    }
}

impl FrameSource for Still {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> Option<usize> {
        Some(1)
    }

    fn frame_rate(&self) -> Option<f64> {
        None
    }
}
