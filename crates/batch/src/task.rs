//! What is asked of every picture.

use std::ops::ControlFlow;

use cutout_imaging::{Image, ImageError, Rle, RleError, Size, polygons, simplify, to_wkb};
use cutout_sam::{
    Candidates, Everything, EverythingError, Fault, Faulty, Find, FindError, Prompt, Sam,
    SegmentError,
};

use crate::input::Item;
use crate::rows::Row;

/// What is asked of every picture.
#[derive(Clone, Debug)]
pub enum Task {
    /// Automatic masks.
    Everything(Box<Everything>),
    /// One mask for each box of the item.
    Boxes,
    /// Every object of phrases.
    Find(Find),
}

/// Why a picture has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    #[error(transparent)]
    Everything(#[from] EverythingError),
    #[error(transparent)]
    Segment(#[from] SegmentError),
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Rle(#[from] RleError),
}

impl Faulty for TaskError {
    fn fault(&self) -> Fault {
        match self {
            TaskError::Everything(error) => error.fault(),
            TaskError::Segment(error) => error.fault(),
            TaskError::Find(error) => error.fault(),
            TaskError::Image(_) | TaskError::Rle(_) => Fault::Item,
        }
    }
}

impl Task {
    /// The options, as text that is the same for the same options.
    pub(crate) fn text(&self) -> String {
        format!("{self:?}")
    }

    /// The rows of a picture: one for each instance, or one that says there is none.
    pub(crate) fn rows(
        &self,
        sam: &Sam,
        item: &Item,
        image: &Image,
    ) -> Result<Vec<Row>, TaskError> {
        let instances = match self {
            Task::Everything(options) => everything(sam, image, options)?,
            Task::Boxes => boxes(sam, item, image)?,
            Task::Find(find) => found(sam, image, find)?,
        };
        let Size { width, height } = image.size();
        let whole = |length: usize| i32::try_from(length).ok();
        let empty = || vec![Row { instance: -1, ..Row::default() }];
        let rows = if instances.is_empty() { empty() } else { instances };
        let place = |(index, row): (usize, Row)| Row {
            id: item.id.clone(),
            instance: if row.instance < 0 { -1 } else { i32::try_from(index).unwrap_or(i32::MAX) },
            height: whole(height),
            width: whole(width),
            ..row
        };
        Ok(rows.into_iter().enumerate().map(place).collect())
    }
}

/// Adds outlines to the rows of a picture of this size. They leave the border of the pixels by at most `tolerance` pixels.
pub(crate) fn add_outlines(rows: &mut [Row], size: Size, tolerance: f64) -> Result<(), TaskError> {
    for row in rows {
        let Some(text) = &row.rle else { continue };
        let mask = Rle::from_coco_string(size, text)?.to_mask()?;
        let outlines = polygons(&mask).map_err(ImageError::from)?;
        row.polygon = Some(to_wkb(&simplify(&outlines, tolerance)));
    }
    Ok(())
}

/// The row of a mask.
fn instance(rle: &Rle) -> Row {
    Row {
        area: i64::try_from(rle.area()).ok(),
        bbox: Some(rle.coco_box().map(|number| number as f32)),
        rle: Some(rle.to_coco_string()),
        ..Row::default()
    }
}

fn everything(sam: &Sam, image: &Image, options: &Everything) -> Result<Vec<Row>, TaskError> {
    let masks = sam.everything(image, options, &mut |_| ControlFlow::Continue(()))?;
    let row = |mask: &cutout_sam::AutoMask| Row {
        score: Some(mask.predicted_iou),
        predicted_iou: Some(mask.predicted_iou),
        stability: Some(mask.stability_score),
        ..instance(&mask.rle)
    };
    Ok(masks.iter().map(row).collect())
}

fn boxes(sam: &Sam, item: &Item, image: &Image) -> Result<Vec<Row>, TaskError> {
    if item.boxes.is_empty() {
        return Ok(Vec::new());
    }
    let prompt =
        |&[x0, y0, x1, y1]: &[f32; 4]| Prompt::rect(x0, y0, x1, y1).candidates(Candidates::One);
    let prompts: Vec<Prompt> = item.boxes.iter().map(prompt).collect();
    prompts.iter().try_for_each(|prompt| sam.check_prompt(prompt, image.size()))?;
    let answers = sam.embed(image)?.segment_all(&prompts)?;
    let row = |masks: &cutout_sam::Masks| {
        let best = masks.best();
        let iou = Some(best.iou());
        Ok(Row { score: iou, predicted_iou: iou, ..instance(&best.rle()?) })
    };
    answers.iter().map(row).collect()
}

fn found(sam: &Sam, image: &Image, find: &Find) -> Result<Vec<Row>, TaskError> {
    let mut rows = Vec::new();
    for detection in sam.embed(image)?.find(find)?.iter() {
        rows.push(Row {
            phrase: detection.phrase().map(str::to_owned),
            score: Some(detection.score()),
            presence: Some(detection.presence()),
            ..instance(&detection.rle()?)
        });
    }
    Ok(rows)
}
