//! Canonical JSON: one spelling for each value, so that a hash of the text is a hash of the value.
//!
//! Keys are sorted by their bytes whatever order the map keeps, since another crate of the build may have
//! switched `serde_json` to insertion order.

use serde_json::Value;

/// The value without a space, keys sorted, no line end.
pub(crate) fn canonical(value: &Value) -> Vec<u8> {
    let mut text = Vec::with_capacity(512);
    push(value, &mut text);
    text
}

fn push(value: &Value, text: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| key.as_str());
            text.push(b'{');
            for (index, (key, child)) in entries.into_iter().enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                push_string(key, text);
                text.push(b':');
                push(child, text);
            }
            text.push(b'}');
        }
        Value::Array(items) => {
            text.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                push(item, text);
            }
            text.push(b']');
        }
        Value::String(string) => push_string(string, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            text.extend_from_slice(value.to_string().as_bytes())
        }
    }
}

/// Escapes what JSON demands and nothing else.
fn push_string(string: &str, text: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    text.push(b'"');
    for byte in string.bytes() {
        match byte {
            b'"' => text.extend_from_slice(b"\\\""),
            b'\\' => text.extend_from_slice(b"\\\\"),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\r' => text.extend_from_slice(b"\\r"),
            b'\t' => text.extend_from_slice(b"\\t"),
            0x08 => text.extend_from_slice(b"\\b"),
            0x0c => text.extend_from_slice(b"\\f"),
            0..=0x1f => {
                text.extend_from_slice(b"\\u00");
                text.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            other => text.push(other),
        }
    }
    text.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn keys_are_sorted_and_nothing_is_spaced() {
        let value = json!({"b": [1, null, true], "a": {"z": "\u{7f}é\n\u{1}\"\\", "y": -3}, "": "/"});
        let expected =
            "{\"\":\"/\",\"a\":{\"y\":-3,\"z\":\"\u{7f}é\\n\\u0001\\\"\\\\\"},\"b\":[1,null,true]}";
        assert_eq!(String::from_utf8(canonical(&value)).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn the_text_reads_back_as_the_value(texts in proptest::collection::vec(".{0,12}", 0..5), number: i64) {
            let value = json!({"texts": texts, "number": number});
            let text = canonical(&value);
            prop_assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), value);
            prop_assert!(!text.contains(&b'\n'));
        }
    }
}
