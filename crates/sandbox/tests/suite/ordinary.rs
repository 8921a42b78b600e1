//! Repeats the suite as an ordinary user where it runs as root: nothing may rest on root's powers.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn everything_works_for_an_ordinary_user_as_well() {
    if !crate::bench::is_root() {
        return;
    }
    let folder =
        tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let own = folder.path().join("own");
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65_534), Some(65_534)).unwrap();
    let suite = folder.path().join("suite");
    std::fs::copy(std::env::current_exe().unwrap(), &suite).unwrap();
    let output = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
            "--bounding-set=-all",
            "--",
        ])
        .arg(&suite)
        .args(["--test-threads=4", "--skip", "ordinary::"])
        .env("TMPDIR", &own)
        .current_dir(&own)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let passed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    assert!(passed > 100, "{passed} tests ran");
    assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0, "temporary folders are left");
}
