//! Text for a terminal: names that cannot steer it, sizes, durations and counts.

use std::borrow::Cow;
use std::time::Duration;

/// `text` with every character that could steer a terminal or reorder the line written as an escape.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| steers(letter) || letter == '\n' || letter == '\t')
}

/// As [`shown`], for text of several lines.
pub(crate) fn shown_lines(text: &str) -> Cow<'_, str> {
    escaped(text, steers)
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\n' if is_escaped('\n') => result.push_str("\\n"),
            '\t' if is_escaped('\t') => result.push_str("\\t"),
            _ if is_escaped(letter) => result.extend(letter.escape_unicode()),
            _ => result.push(letter),
        }
    }
    Cow::Owned(result)
}

fn steers(letter: char) -> bool {
    let reorders =
        matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (letter.is_control() && letter != '\n' && letter != '\t')
        || reorders
        || letter == '\u{2028}'
        || letter == '\u{2029}'
}

/// What a command wrote, for a terminal: colours stay, every other control sequence is made visible.
pub(crate) fn tamed(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let mut result = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(letter) = rest.chars().next() {
        if let Some(length) = colour(rest) {
            result.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        // A carriage return before a line end is harmless; alone it lets a line overwrite itself.
        if steers(letter) && !rest.starts_with("\r\n") {
            result.extend(letter.escape_unicode());
        } else {
            result.push(letter);
        }
        rest = &rest[letter.len_utf8()..];
    }
    result
}

/// The bytes of a colour sequence at the start of `text`.
fn colour(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let length =
        parameters.find(|letter: char| !(letter.is_ascii_digit() || letter == ';' || letter == ':'))?;
    (parameters[length..].starts_with('m') && length < 32).then_some(length + 3)
}

/// `29 MB`, `1.2 kB`, `12 B`.
pub(crate) fn size(bytes: u64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if amount < 999.5 {
            let digits = usize::from(amount < 9.95 && unit != "B");
            return format!("{amount:.digits$} {unit}");
        }
        amount /= 1000.0;
    }
    format!("{amount:.1} TB")
}

/// `4 ms`, `0.11 s`, `8.2 s`, `3 min 20 s`.
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match duration.as_millis() {
        0..100 => format!("{} ms", duration.as_millis()),
        100..1000 => format!("{seconds:.2} s"),
        1000..60_000 => format!("{seconds:.1} s"),
        _ => format!("{} min {} s", duration.as_secs() / 60, duration.as_secs() % 60),
    }
}

/// `2,334`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut result = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            result.push(',');
        }
        result.push(digit);
    }
    result
}

/// `1 file`, `2,334 files`.
pub(crate) fn counted(number: u64, one: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {one}{ending}", grouped(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(shown("a/b é.txt"), "a/b é.txt");
        assert_eq!(shown("a\u{1b}[2Jb\nc\td"), "a\\u{1b}[2Jb\\nc\\td");
        assert_eq!(shown("gpj.\u{202e}exe\u{9b}31m"), "gpj.\\u{202e}exe\\u{9b}31m");
        assert_eq!(shown_lines("+a\n\u{1b}]0;t\u{7}"), "+a\n\\u{1b}]0;t\\u{7}");
    }

    #[test]
    fn command_output_keeps_its_colours_alone() {
        assert_eq!(tamed(b"\x1b[1;31mred\x1b[0m\r\n\tx"), "\u{1b}[1;31mred\u{1b}[0m\r\n\tx");
        assert_eq!(tamed(b"\x1b[2J\x1b]52;c;eA==\x07"), "\\u{1b}[2J\\u{1b}]52;c;eA==\\u{7}");
        assert_eq!(tamed(b"good\rbad\x1b["), "good\\u{d}bad\\u{1b}[");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([size(0), size(999), size(1200), size(29_123_456)], ["0 B", "999 B", "1.2 kB", "29 MB"]);
        let times = [4, 110, 8_240, 200_000].map(|ms| time(Duration::from_millis(ms)));
        assert_eq!(times, ["4 ms", "0.11 s", "8.2 s", "3 min 20 s"]);
        assert_eq!([counted(1, "file"), counted(1_234_567, "file")], ["1 file", "1,234,567 files"]);
    }
}
