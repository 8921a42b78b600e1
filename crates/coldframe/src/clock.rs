//! The time, as journals and reports write it.

/// Now, RFC 3339 in UTC with milliseconds.
pub(crate) fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_time_has_one_width() {
        let text = super::now();
        assert_eq!((text.len(), text.as_bytes()[10], text.ends_with('Z')), (24, b'T', true), "{text}");
    }
}
