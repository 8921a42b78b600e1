//! What this host gives, proved by trying it: opens a workspace in a scratch folder and attempts to escape.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coldframe_core::{
    BlobStore, BoxFuture, ByteStream, OpenWorkspace, RunParams, SnapshotManifest, SourceError, SourceRef,
    Stored, collect, once,
};

use crate::policy::{Isolation, Policy, Strategy};
use crate::sandbox::Sandbox;
use crate::workspace::SandboxWorkspace;

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// What was tried.
    pub name: String,
    /// Whether the host held, or could do, what it should.
    pub passed: bool,
    /// What was seen.
    pub detail: String,
}

/// What this host gives.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct HostReport {
    /// What was tried, in order.
    pub checks: Vec<Check>,
    /// `full` or `none`.
    pub isolation: String,
    /// `overlay` or `copy`.
    pub strategy: String,
}

/// A shell script and what proves that it did not escape.
struct Attempt {
    name: &'static str,
    script: &'static str,
    /// The standard output that a host that holds gives.
    expected: &'static str,
}

const ATTEMPTS: [Attempt; 9] = [
    Attempt {
        name: "host files are out of sight",
        script: "test -e /root -o -e /home -o -e /var && echo seen; test -e /etc/shadow && echo seen; echo done",
        expected: "done",
    },
    Attempt {
        name: "the system is read-only",
        script: "(: > /usr/x) 2>/dev/null && echo written; (: > /etc/passwd) 2>/dev/null && echo written; (: > /x) 2>/dev/null && echo written; echo done",
        expected: "done",
    },
    Attempt {
        name: "kernel settings are read-only",
        script: "(echo x > /proc/sys/kernel/core_pattern) 2>/dev/null && echo written; (echo b > /proc/sysrq-trigger) 2>/dev/null && echo written; echo done",
        expected: "done",
    },
    Attempt {
        name: "no capability is left",
        script: "while read -r name value; do case $name in CapEff:|CapPrm:|CapInh:|CapAmb:) echo $value;; esac; done < /proc/self/status | sort -u",
        expected: "0000000000000000",
    },
    Attempt {
        name: "no new privileges",
        script: "while read -r name value; do case $name in NoNewPrivs:) echo $value;; esac; done < /proc/self/status",
        expected: "1",
    },
    Attempt {
        name: "no user namespace can be made",
        script: "unshare -U true 2>/dev/null && echo made; echo done",
        expected: "done",
    },
    Attempt {
        name: "other processes are out of sight",
        // No pipe and no subshell, so that the shell and the init process are all there is.
        script: "set -- /proc/[0-9]*; echo $#",
        expected: "1",
    },
    Attempt {
        name: "only loopback is there",
        script: "while read -r name rest; do case $name in *:) echo $name;; esac; done < /proc/net/dev",
        expected: "lo:",
    },
    Attempt {
        name: "the environment is not inherited",
        script: "env | cut -d= -f1 | grep -v -x -e HOME -e LANG -e PATH -e PWD -e TMPDIR -e OLDPWD -e _ -e SHLVL; echo done",
        expected: "done",
    },
];

/// Tries on this host, in a scratch folder below `cache_dir`, what workspaces need and what they must prevent.
pub async fn probe(cache_dir: &Path) -> HostReport {
    let mut report =
        HostReport { checks: Vec::new(), isolation: Isolation::None.to_string(), strategy: String::new() };
    let policy = Policy::allowing(["sh"])
        .with_timeout(Duration::from_secs(10))
        .with_required_isolation(Isolation::None);
    let opened = open(cache_dir, policy).await;
    let workspace = match opened {
        Ok(workspace) => workspace,
        Err(detail) => {
            report.checks.push(Check { name: "a workspace opens".to_owned(), passed: false, detail });
            return report;
        }
    };
    report.strategy = workspace.strategy().to_string();
    let overlay = workspace.strategy() == Strategy::Overlay;
    let detail =
        if overlay { "mounted without a visible mount point" } else { "refused here; base trees are copied" };
    report.checks.push(Check { name: "overlay".to_owned(), passed: overlay, detail: detail.to_owned() });
    let contained = workspace.isolation() == Isolation::Full;
    let detail = if contained {
        "user, mount, PID, network, IPC and UTS"
    } else {
        "this host refuses user namespaces"
    };
    report.checks.push(Check { name: "namespaces".to_owned(), passed: contained, detail: detail.to_owned() });
    if contained {
        for attempt in &ATTEMPTS {
            report.checks.push(attempt.run(&workspace).await);
        }
        report.checks.push(leftover(&workspace).await);
        if report.checks.iter().skip(1).all(|check| check.passed) {
            report.isolation = Isolation::Full.to_string();
        }
    }
    if let Err(error) = workspace.close().await {
        report.checks.push(Check { name: "clean-up".to_owned(), passed: false, detail: error.to_string() });
    }
    report
}

async fn open(cache_dir: &Path, policy: Policy) -> Result<SandboxWorkspace, String> {
    let source = SourceRef::new("probe", "empty", "").map_err(|error| error.to_string())?;
    let manifest =
        SnapshotManifest { source, resolved_revision: String::new(), entries: vec![], omitted: vec![] };
    let snapshot = manifest.seal().map_err(|error| error.to_string())?;
    let sandbox = Sandbox::open(cache_dir, Arc::new(Discard), policy).map_err(|error| error.to_string())?;
    let request = OpenWorkspace { snapshot: &snapshot, delta: None };
    sandbox.open_workspace(request).await.map_err(|error| error.to_string())
}

impl Attempt {
    async fn run(&self, workspace: &SandboxWorkspace) -> Check {
        let command = ["sh", "-c", self.script].map(str::to_owned).to_vec();
        let (passed, detail) = match workspace.run(RunParams { command, cwd: ".".to_owned() }).await {
            Ok(observed) => {
                let seen = observed.stdout.text.trim().to_owned();
                (seen == self.expected, format!("saw {seen:?}"))
            }
            Err(error) => (false, error.to_string()),
        };
        Check { name: self.name.to_owned(), passed, detail }
    }
}

/// A background process that ignores signals must not outlive its command.
async fn leftover(workspace: &SandboxWorkspace) -> Check {
    let script = "trap '' TERM HUP INT; (setsid sleep 60 & ) ; echo started";
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let started = std::time::Instant::now();
    let outcome = workspace.run(RunParams { command, cwd: ".".to_owned() }).await;
    let passed = outcome.is_ok_and(|observed| observed.exit_code == Some(0))
        && started.elapsed() < Duration::from_secs(5);
    let detail = format!(
        "the call returned after {} ms, and only once its PID namespace was empty",
        started.elapsed().as_millis()
    );
    Check { name: "no process outlives its command".to_owned(), passed, detail }
}

/// Takes the output of the attempts; an empty snapshot needs nothing else.
struct Discard;

impl BlobStore for Discard {
    fn write<'a>(&'a self, content: ByteStream<'a>) -> BoxFuture<'a, Result<Stored, SourceError>> {
        Box::pin(async move {
            let content = collect(content).await?;
            Ok(Stored { digest: coldframe_core::Digest::of(&content), size: content.len() as u64 })
        })
    }

    fn read<'a>(&'a self, _blob: Stored) -> BoxFuture<'a, Result<ByteStream<'a>, SourceError>> {
        Box::pin(async { Ok(once(Vec::new())) })
    }

    fn contains<'a>(&'a self, _blob: Stored) -> BoxFuture<'a, Result<bool, SourceError>> {
        Box::pin(async { Ok(false) })
    }
}
