//! Objects by phrase and exemplar.

use anyhow::Result;
use cutout_imaging::{Rle, Threshold};
use cutout_sam::{Answer, Find, Scene};

use crate::output::{Annotation, Category, Finding, Place, write_raw_detections};
use crate::screen;

use super::Segment;

/// What is written of objects.
pub(super) struct Objects {
    pub(super) categories: Vec<Category>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) shown: Vec<Rle>,
    /// What an overlay says of each.
    pub(super) labels: Vec<String>,
}

impl Segment {
    /// Looks for what is asked, writes the model's own tensors if they are wanted, and makes the records.
    pub(super) fn find(&self, scene: &Scene, find: &Find) -> Result<Objects> {
        let answers = match &self.raw {
            None => scene.find(find)?.into_answers(),
            Some(path) => {
                let detections = scene.detect(find)?;
                write_raw_detections(path, &detections)?;
                detections
                    .iter()
                    .map(|detection| Ok(detection.answer(find)?))
                    .collect::<Result<_>>()?
            }
        };
        let mut objects = Objects {
            categories: Vec::new(),
            annotations: Vec::new(),
            shown: Vec::new(),
            labels: Vec::new(),
        };
        for (index, answer) in answers.iter().enumerate() {
            self.add(&mut objects, index, answer);
        }
        Ok(objects)
    }

    fn add(&self, objects: &mut Objects, prompt: usize, answer: &Answer) {
        let name = answer.phrase().unwrap_or("exemplars");
        if answer.phrase_was_cut() {
            screen::note(&format!("{name:?} is longer than the model reads: its end is left out"));
        }
        // As in COCO, from 1 on.
        let category_id = prompt + 1;
        objects.categories.push(Category { id: category_id, name: name.to_owned() });
        let presence = answer.presence();
        let finding = |score: f32, box_of: Option<[f64; 4]>| Finding {
            phrase: answer.phrase().map(str::to_owned),
            category_id,
            score,
            presence,
            detected_bbox: box_of,
        };
        let threshold = Threshold { value: self.mask_threshold, ..Threshold::default() };
        let mut enter = |segment: &cutout_sam::Segment, finding: Finding| {
            let place = Place { id: objects.annotations.len(), prompt, best: true };
            objects.labels.push(format!("{name} {:.2}", finding.score));
            let (annotation, rle) = Annotation::found(&place, segment, threshold, finding);
            objects.annotations.push(annotation);
            objects.shown.push(rle);
        };
        if self.finding.semantic() {
            enter(answer.semantic(), finding(presence, None));
            return;
        }
        for instance in answer.instances() {
            let rect = instance.rect();
            let xywh = [rect.x0, rect.y0, rect.x1 - rect.x0, rect.y1 - rect.y0];
            enter(instance.segment(), finding(instance.score(), Some(xywh)));
        }
        if answer.instances().is_empty() {
            screen::note(&format!("{name}: nothing found (presence {presence:.2})"));
        }
    }
}
