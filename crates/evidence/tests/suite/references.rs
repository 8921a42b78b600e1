//! Referring to other steps' outputs: copies, refusals, required places.

use std::collections::{BTreeMap, BTreeSet};

use coldframe_core::Id;
use coldframe_evidence::{
    EvidenceError, FaultReason, ReferencePattern, ReferenceRules, hydrate_artifact_references,
};
use serde_json::{Value, json};

use crate::fixture::id;

fn outputs() -> BTreeMap<Id, Value> {
    BTreeMap::from([
        (id("reproduce"), json!({"evidence": {"exit_code": 1, "list": [10, {"x": null}]}, "": "empty key"})),
        (id("hidden"), json!("secret")),
        (id("chain"), json!({"next": {"artifact_ref": {"step_id": "reproduce", "path": ["evidence"]}}})),
        (id("loop"), json!({"self": {"artifact_ref": {"step_id": "loop", "path": ["self"]}}})),
        (id("whole"), json!([{"artifact_ref": {"step_id": "whole"}}])),
    ])
}

fn rules(required: &[&str]) -> ReferenceRules {
    let visible_steps: BTreeSet<Id> = ["reproduce", "chain", "loop", "whole", "gone"].map(id).into();
    let required = required.iter().map(|text| ReferencePattern::parse(text).unwrap()).collect();
    ReferenceRules { visible_steps, required }
}

fn resolve(value: Value) -> Result<Value, EvidenceError> {
    hydrate_artifact_references(value, &outputs(), &rules(&[]))
}

fn to(step: &str, path: Value) -> Value {
    json!({"artifact_ref": {"step_id": step, "path": path}})
}

fn faults(result: Result<Value, EvidenceError>) -> Vec<(String, FaultReason)> {
    let error = result.expect_err("the reference was accepted");
    error.faults().iter().map(|fault| (fault.place.clone(), fault.reason)).collect()
}

#[test]
fn a_reference_becomes_an_exact_copy() {
    let value = json!({"failure": to("reproduce", json!(["evidence"])), "kept": [1, {"path": "x"}]});
    let expected = json!({"failure": outputs()[&id("reproduce")]["evidence"], "kept": [1, {"path": "x"}]});
    assert_eq!(resolve(value).unwrap(), expected);
    assert_eq!(resolve(to("reproduce", json!(["evidence", "list", 0]))).unwrap(), 10);
    assert_eq!(resolve(to("reproduce", json!(["evidence", "list", 1, "x"]))).unwrap(), Value::Null);
    assert_eq!(resolve(to("reproduce", json!([""]))).unwrap(), "empty key");
    let whole = json!([{"artifact_ref": {"step_id": "reproduce"}}]);
    assert_eq!(resolve(whole).unwrap()[0], outputs()[&id("reproduce")]);
}

#[test]
fn a_reference_inside_a_copy_is_followed() {
    assert_eq!(resolve(to("chain", json!([]))).unwrap()["next"]["exit_code"], 1);
}

#[test]
fn a_malformed_reference_is_refused_and_never_taken_as_a_literal() {
    for bad in [
        json!(null),
        json!("reproduce"),
        json!(["reproduce", []]),
        json!({}),
        json!({"path": []}),
        json!({"step_id": "reproduce", "path": [], "extra": 1}),
        json!({"step_id": "reproduce", "path": "evidence"}),
        json!({"step_id": "reproduce", "path": null}),
        json!({"step_id": "reproduce", "path": [null]}),
        json!({"step_id": "reproduce", "path": [1.5]}),
        json!({"step_id": "reproduce", "path": [["evidence"]]}),
        json!({"step_id": "reproduce", "path": ["evidence", "list", -1]}),
        json!({"step_id": "../reproduce", "path": []}),
        json!({"step_id": "", "path": []}),
        json!({"step_id": 1, "path": []}),
    ] {
        let result = resolve(json!({"a": [{"artifact_ref": bad}]}));
        assert_eq!(faults(result), [("/a/0".to_owned(), FaultReason::InvalidReference)], "{bad}");
    }
    let mut sibling = to("reproduce", json!([]));
    sibling["note"] = json!("x");
    assert_eq!(faults(resolve(sibling)), [(String::new(), FaultReason::InvalidReference)]);
}

#[test]
fn unknown_steps_steps_out_of_sight_and_bad_paths_are_told_apart() {
    for (reference, reason) in [
        (to("gone", json!([])), FaultReason::UnknownStep),
        (to("nowhere", json!([])), FaultReason::UnknownStep),
        (to("hidden", json!([])), FaultReason::InvisibleStep),
        (to("reproduce", json!(["missing"])), FaultReason::BadPath),
        (to("reproduce", json!([0])), FaultReason::BadPath),
        (to("reproduce", json!(["evidence", "list", 2])), FaultReason::BadPath),
        (to("reproduce", json!(["evidence", "list", u64::MAX])), FaultReason::BadPath),
        (to("reproduce", json!(["evidence", "list", "0"])), FaultReason::BadPath),
        (to("reproduce", json!(["evidence", "exit_code", "x"])), FaultReason::BadPath),
        (to("loop", json!(["self"])), FaultReason::Cycle),
        (to("whole", json!([])), FaultReason::Cycle),
    ] {
        let found = faults(resolve(json!({"k": reference})));
        assert_eq!(found.len(), 1, "{reference}");
        assert_eq!(found[0].1, reason, "{reference}");
        assert!(found[0].0.starts_with("/k"), "{found:?}");
    }
}

#[test]
fn a_literal_or_nothing_at_a_required_place_is_refused() {
    let good = to("reproduce", json!(["evidence"]));
    let check = |value: Value, pattern: &str| {
        hydrate_artifact_references(value, &outputs(), &rules(&[pattern])).map(|_| ()).map_err(|error| {
            error.faults().iter().map(|fault| (fault.place.clone(), fault.reason)).collect::<Vec<_>>()
        })
    };
    let one = |place: &str, reason| Err(vec![(place.to_owned(), reason)]);
    let list = "/steps/*/evidence";
    assert_eq!(check(json!({"steps": [{"evidence": good}, {"evidence": good}]}), list), Ok(()));
    assert_eq!(check(json!({"steps": good}), list), Ok(()), "a reference covers what lies below it");
    assert_eq!(check(json!({"steps": []}), list), Ok(()));
    assert_eq!(
        check(json!({"steps": [{"evidence": good}, {"evidence": {"exit_code": 1}}]}), list),
        one("/steps/1/evidence", FaultReason::LiteralAtRequired)
    );
    assert_eq!(
        check(json!({"steps": [{"evidence": null}]}), list),
        one("/steps/0/evidence", FaultReason::MissingRequired)
    );
    assert_eq!(check(json!({"steps": [{}]}), list), one("/steps/0/evidence", FaultReason::MissingRequired));
    assert_eq!(check(json!({}), list), one("/steps", FaultReason::MissingRequired));
    assert_eq!(check(json!({"steps": {"0": 1}}), list), one("/steps/*", FaultReason::MissingRequired));
    assert_eq!(check(json!({"steps": "none"}), list), one("/steps", FaultReason::LiteralAtRequired));
    assert_eq!(check(json!([1, good]), "/1"), Ok(()));
    assert_eq!(check(json!([good]), "/1"), one("/1", FaultReason::MissingRequired));
    assert_eq!(check(json!({"a/b": good}), "/a~1b"), Ok(()));
    assert_eq!(check(json!(1), ""), one("", FaultReason::LiteralAtRequired));
    assert!(ReferencePattern::parse("steps").is_err());
}

#[test]
fn a_copy_that_doubles_at_each_step_is_stopped() {
    let mut outputs = BTreeMap::from([(id("s0"), json!("x".repeat(1000)))]);
    for level in 1..25 {
        let below = to(&format!("s{}", level - 1), json!([]));
        outputs.insert(id(&format!("s{level}")), json!([below, below]));
    }
    let rules = ReferenceRules { visible_steps: outputs.keys().cloned().collect(), required: vec![] };
    let error = hydrate_artifact_references(to("s24", json!([])), &outputs, &rules).unwrap_err();
    assert!(error.faults().iter().all(|fault| fault.reason == FaultReason::TooLarge), "{error}");
}

#[test]
fn a_long_chain_of_references_is_an_error_and_no_stack_overflow() {
    let mut outputs = BTreeMap::from([(id("s0"), json!(1))]);
    for level in 1..20_000 {
        outputs.insert(id(&format!("s{level}")), to(&format!("s{}", level - 1), json!([])));
    }
    let rules = ReferenceRules { visible_steps: outputs.keys().cloned().collect(), required: vec![] };
    let resolve = |step: &str| hydrate_artifact_references(to(step, json!([])), &outputs, &rules);
    assert_eq!(resolve("s30").unwrap(), 1);
    assert_eq!(faults(resolve("s19999"))[0].1, FaultReason::TooDeep);
    let deep = (0..100_000).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
    assert_eq!(faults(hydrate_artifact_references(deep, &outputs, &rules))[0].1, FaultReason::TooDeep);
}
