//! The labelling configuration: which control takes the masks, and where its picture is.

/// What a mask becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlKind {
    Brush,
    Polygon,
    Bitmask,
}

/// The control that takes the masks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) kind: ControlKind,
    pub(super) name: String,
    /// Name of the picture's tag.
    pub(super) to_name: String,
    /// Key of the picture in the data of a task.
    pub(super) data_key: String,
}

/// Longest configuration that is read, in bytes.
const LONGEST: usize = 1 << 20;

impl Control {
    /// The first control of the configuration that can hold a mask; `None` if there is none.
    pub(super) fn find(config: &str) -> Option<Self> {
        let tags = tags(config.get(..config.len().min(LONGEST)).unwrap_or_default());
        let (kind, control) = tags.iter().find_map(|tag| {
            let kind = match tag.name {
                "BrushLabels" => ControlKind::Brush,
                "PolygonLabels" => ControlKind::Polygon,
                "BitmaskLabels" => ControlKind::Bitmask,
                _ => return None,
            };
            Some((kind, tag))
        })?;
        let (name, to_name) = (control.attribute("name")?, control.attribute("toName")?);
        let is_picture = |tag: &&Tag<'_>| {
            tag.name == "Image" && tag.attribute("name").as_ref() == Some(&to_name)
        };
        let value = tags.iter().find(is_picture)?.attribute("value")?;
        let data_key = value.strip_prefix('$')?.to_owned();
        Some(Control { kind, name, to_name, data_key })
    }
}

/// A tag with its attributes.
struct Tag<'a> {
    name: &'a str,
    attributes: Vec<(&'a str, &'a str)>,
}

impl Tag<'_> {
    fn attribute(&self, name: &str) -> Option<String> {
        let (_, value) = self.attributes.iter().find(|(own, _)| *own == name)?;
        let plain = value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
        Some(plain.replace("&apos;", "'").replace("&amp;", "&"))
    }
}

/// The opening tags of XML, without comments.
fn tags(mut text: &str) -> Vec<Tag<'_>> {
    let mut tags = Vec::new();
    while let Some((_, rest)) = text.split_once('<') {
        if let Some(comment) = rest.strip_prefix("!--") {
            text = comment.split_once("-->").map_or("", |(_, rest)| rest);
            continue;
        }
        let end = rest.find(|c: char| c.is_whitespace() || c == '>' || c == '/');
        let (name, mut rest) = rest.split_at(end.unwrap_or(rest.len()));
        let mut attributes = Vec::new();
        while let Some((attribute, after)) = attribute(rest) {
            attributes.push(attribute);
            rest = after;
        }
        tags.push(Tag { name, attributes });
        text = rest;
    }
    tags
}

/// The next `name="value"` of a tag, and what follows it.
fn attribute(text: &str) -> Option<((&str, &str), &str)> {
    let text = text.trim_start();
    let (name, rest) = text.split_once('=')?;
    let name = name.trim_end();
    if name.is_empty()
        || name.contains(|c: char| c == '>' || c == '<' || c == '/' || c.is_whitespace())
    {
        return None;
    }
    let rest = rest.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (value, rest) = rest[1..].split_once(quote)?;
    Some(((name, value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_and_its_picture_are_found() {
        let config = "<View><!-- <PolygonLabels name=\"no\" toName=\"no\"/> --><Style> a > b </Style>
            <Image name='img' value=\"$photo\" zoom=\"true\"/>
            <KeyPointLabels name=\"points\" toName=\"img\" smart=\"true\"><Label value=\"a/b\"/></KeyPointLabels>
            <BrushLabels toName=\"img\" name = \"brush &amp; co\"><Label value=\"Cat\"/></BrushLabels></View>";
        let control = Control::find(config).unwrap();
        assert_eq!(control.kind, ControlKind::Brush);
        assert_eq!((&*control.name, &*control.to_name), ("brush & co", "img"));
        assert_eq!(control.data_key, "photo");
        assert_eq!(Control::find("<View><Image name=\"a\" value=\"$a\"/></View>"), None);
    }

    #[test]
    fn broken_configurations_are_no_control() {
        for broken in [
            "<",
            "<BrushLabels",
            "<BrushLabels name=",
            "<BrushLabels name=\"a",
            "<!--",
            "<a b='ä' c=\"=\"/><",
        ] {
            assert_eq!(Control::find(broken), None, "{broken}");
        }
    }
}
