//! Text cleaning of Meta's tokenizer: `ftfy.fix_text`, HTML entities, spaces, lower case.
//!
//! One step of `ftfy` is left out: mojibake (`cafÃ©`) is not repaired.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

/// Cleans a phrase.
pub(super) fn clean(phrase: &str) -> String {
    let fixed = fix_text(phrase);
    let unescaped = htmlize::unescape(htmlize::unescape(fixed.as_str())).into_owned();
    let words: Vec<&str> = unescaped.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

/// Lines are fixed one by one; entities are left unchanged from the first line with `<` on, as in `ftfy`.
fn fix_text(phrase: &str) -> String {
    let mut entities = Entities::Replace;
    let mut fixed = String::new();
    for line in phrase.split_inclusive('\n') {
        if line.contains('<') {
            entities = Entities::Leave;
        }
        fixed.push_str(&fix_line(line, entities));
    }
    fixed
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Entities {
    Replace,
    Leave,
}

/// Applies all fixes until they change nothing any more. Each round but the last makes the line shorter or plainer, so
/// there are at most as many as it has characters.
fn fix_line(line: &str, entities: Entities) -> String {
    let mut line = line.to_owned();
    loop {
        let replaced = match entities {
            Entities::Replace => replace_entities(&line),
            Entities::Leave => Cow::Borrowed(line.as_str()),
        };
        let mut characters = String::with_capacity(replaced.len());
        replaced.chars().for_each(|character| plain(character, &mut characters));
        let characters = characters.replace("\r\n", "\n").replace(LINE_BREAKS, "\n");
        let characters = without_terminal_escapes(&characters);
        let fixed: String = characters.chars().filter(|&c| !is_control(c)).nfc().collect();
        if fixed == line {
            return fixed;
        }
        line = fixed;
    }
}

/// Longest name of an entity.
const LONGEST_ENTITY: usize = 24;

/// Replaces whole entities, `&name;` and `&#number;`.
fn replace_entities(text: &str) -> Cow<'_, str> {
    let mut fixed = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let name = rest[at + 1..].strip_prefix('#').unwrap_or(&rest[at + 1..]);
        let length = name.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let end = rest.len() - name.len() + length;
        let whole = (1..=LONGEST_ENTITY).contains(&length) && rest[end..].starts_with(';');
        let end = if whole { end + 1 } else { at + 1 };
        fixed.push_str(&rest[..at]);
        fixed.push_str(&if whole { entity(&rest[at..end]) } else { "&".into() });
        rest = &rest[end..];
    }
    fixed.push_str(rest);
    if fixed == text { Cow::Borrowed(text) } else { Cow::Owned(fixed) }
}

/// Decodes an entity; unknown entities are unchanged. Unknown upper-case names are looked up in lower case and the
/// result is upper-cased.
fn entity(text: &str) -> Cow<'_, str> {
    let replaced = htmlize::unescape(text);
    if replaced != text {
        // Names with only a known prefix are left unchanged.
        let partly = replaced.contains(';') && replaced != ";";
        return if partly { Cow::Borrowed(text) } else { replaced };
    }
    let small = text.to_ascii_lowercase();
    if text.starts_with("&#") || text != text.to_ascii_uppercase() {
        return Cow::Borrowed(text);
    }
    match entity_of_small(&small) {
        Some(meaning) => Cow::Owned(meaning.to_uppercase()),
        None => Cow::Borrowed(text),
    }
}

/// Decodes a lower-case entity; `None` unless the whole name is known.
fn entity_of_small(text: &str) -> Option<Cow<'_, str>> {
    let replaced = htmlize::unescape(text);
    let whole = replaced != text && (!replaced.contains(';') || replaced == ";");
    whole.then_some(replaced)
}

/// Line breaks that are not a line feed. U+0085 has been replaced by an ellipsis before this step.
const LINE_BREAKS: [char; 3] = ['\r', '\u{2028}', '\u{2029}'];

/// Windows' characters in the places of control characters 0x80 to 0x9F; five of them are not in use.
const WINDOWS_1252: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}',
    '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// One character in plainer ones: letters instead of ligatures, usual width, straight quotes.
fn plain(character: char, out: &mut String) {
    let character = match character {
        '\u{80}'..='\u{9f}' => WINDOWS_1252[character as usize - 0x80],
        other => other,
    };
    match character {
        'Ĳ' => out.push_str("IJ"),
        'ĳ' => out.push_str("ij"),
        'ŉ' => out.push_str("'n"),
        'Ǳ' => out.push_str("DZ"),
        'ǲ' => out.push_str("Dz"),
        'ǳ' => out.push_str("dz"),
        'Ǆ' => out.push_str("DŽ"),
        'ǅ' => out.push_str("Dž"),
        'ǆ' => out.push_str("dž"),
        'Ǉ' => out.push_str("LJ"),
        'ǈ' => out.push_str("Lj"),
        'ǉ' => out.push_str("lj"),
        'Ǌ' => out.push_str("NJ"),
        'ǋ' => out.push_str("Nj"),
        'ǌ' => out.push_str("nj"),
        'ﬀ' => out.push_str("ff"),
        'ﬁ' => out.push_str("fi"),
        'ﬂ' => out.push_str("fl"),
        'ﬃ' => out.push_str("ffi"),
        'ﬄ' => out.push_str("ffl"),
        'ﬅ' => out.push_str("ſt"),
        'ﬆ' => out.push_str("st"),
        '\u{3000}' => out.push(' '),
        '\u{ff01}'..='\u{ffef}' => out.extend(std::iter::once(character).nfkc()),
        '\u{2bc}' | '\u{2018}'..='\u{201b}' => out.push('\''),
        '\u{201c}'..='\u{201f}' => out.push('"'),
        other => out.push(other),
    }
}

/// Without the sequences that colour text on a terminal: escape, `[`, numbers and semicolons, a letter.
fn without_terminal_escapes(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\u{1b}[") {
        let numbers = &rest[at + 2..];
        let end = numbers.find(|c: char| !(c.is_numeric() || c == ';')).unwrap_or(numbers.len());
        let closed = numbers[end..].starts_with(|c: char| c.is_ascii_alphabetic());
        kept.push_str(&rest[..at]);
        if !closed {
            kept.push_str(&rest[at..at + 2]);
        }
        rest = if closed { &numbers[end + 1..] } else { numbers };
    }
    kept.push_str(rest);
    kept
}

/// Control characters that are removed.
fn is_control(character: char) -> bool {
    matches!(
        character,
        '\0'..='\u{8}'
            | '\u{b}'
            | '\u{e}'..='\u{1f}'
            | '\u{7f}'
            | '\u{206a}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffc}'
    )
}
