//! What a command may try against the host, and what it finds.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use coldframe_sandbox::{Strategy, probe};

use crate::bench::{Bench, both, file, python, run, shell};

both!(
    a_command_has_three_descriptors_and_nothing_of_the_caller,
    the_host_is_out_of_reach,
    host_devices_keep_their_modes,
    host_sockets_are_out_of_reach,
    other_processes_are_out_of_reach,
    privileges_cannot_be_gained,
    the_temporary_folder_is_private_and_bounded,
);

async fn a_command_has_three_descriptors_and_nothing_of_the_caller(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    // An open file without the close-on-exec mark, as careless callers have them.
    let leaky = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leaky, rustix::io::FdFlags::empty()).unwrap();
    let code = "import os\nprint(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1])\n\
                print([os.readlink('/proc/self/fd/%d' % n).split(':')[0] for n in range(3)])\n\
                print(os.getpid() != 1, os.getppid() == 1, os.getsid(0) == os.getpid())";
    let expected = "[0, 1, 2]\n['/dev/null', 'pipe', 'pipe']\nTrue True True\n";
    for _ in 0..3 {
        assert_eq!(python(&workspace, code).await, expected);
    }
    drop(leaky);
}

async fn the_host_is_out_of_reach(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    let secret = bench.folder.path().join("secret");
    std::fs::write(&secret, "secret\n").unwrap();
    let at = secret.display();
    let script = format!(
        "for p in {at} /proc/self/root{at} /proc/1/root{at} /proc/self/cwd/../..{at} /workspace/..{at} /etc/shadow \
         /etc/hostname /root /home /var /sys /run /boot /proc/1/environ /proc/1/root/root /dev/mem /dev/kvm /dev/sda; do \
         cat $p 2>/dev/null; ls $p >/dev/null 2>&1 && echo seen $p; done; \
         for p in / /usr /etc /proc/sys /proc/self /dev /bin; do (: > $p/x) 2>/dev/null && echo wrote $p; done; \
         (: > /etc/passwd) 2>/dev/null && echo wrote passwd; (echo > /proc/self/oom_score_adj) 2>/dev/null && echo oom; \
         rm -rf /usr/bin/env 2>/dev/null; test -e /usr/bin/env || echo removed; echo done"
    );
    assert_eq!(shell(&workspace, &script).await, "done\n");
    let mounts = shell(&workspace, "cat /proc/self/mountinfo /proc/mounts").await;
    if strategy == Strategy::Overlay {
        assert!(!mounts.contains(bench.folder.path().to_str().unwrap()), "{mounts}");
    }
}

async fn host_devices_keep_their_modes(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    let before = std::fs::metadata("/dev/null").unwrap().permissions().mode();
    let script = "chmod 600 /dev/null /dev/zero 2>/dev/null && echo changed; touch -d @1 /dev/null 2>/dev/null && echo timed; \
                  rm -f /dev/null 2>/dev/null; echo x > /dev/null && head -c 3 /dev/zero | wc -c; head -c 2 /dev/urandom | wc -c";
    assert_eq!(shell(&workspace, script).await, "3\n2\n");
    assert_eq!(std::fs::metadata("/dev/null").unwrap().permissions().mode(), before);
}

async fn host_sockets_are_out_of_reach(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    let name = format!("coldframe-{strategy}-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&abstract_name).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let code = format!(
        "import socket\ndef attempt(what, *a):\n    try:\n        s = socket.socket(*a); s.settimeout(2); s.connect(what); print('connected', what)\n    \
         except OSError as e: pass\n\
         attempt('\\0{name}', socket.AF_UNIX)\nattempt(('127.0.0.1', {port}))\nattempt(('8.8.8.8', 53))\n\
         attempt((2, {port}), 40, socket.SOCK_STREAM)\n\
         for family in (16, 38, 40, 17, 31):\n    try: socket.socket(family, socket.SOCK_RAW if family == 17 else socket.SOCK_STREAM if family == 40 else socket.SOCK_SEQPACKET if family == 38 else socket.SOCK_RAW); print('family', family)\n    \
         except OSError: pass\n\
         print(open('/proc/net/unix').read().count('{name}'))\n\
         s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); c = socket.create_connection(s.getsockname()); print('own loopback')"
    );
    assert_eq!(python(&workspace, &code).await, "family 16\n0\nown loopback\n");
}

async fn other_processes_are_out_of_reach(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    let code = format!(
        "import os, ctypes\nprint([p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()])\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         print(libc.ptrace(16, 1, 0, 0), libc.ptrace(0x4206, 1, 0, 0))\n\
         for pid in (1, {0}, os.getppid()):\n    \
         try: os.kill(pid, 9); print('signalled', pid) if pid != 1 else None\n    \
         except OSError: pass\n    \
         try: print(len(open('/proc/%d/mem' % pid, 'rb').read(1)))\n    \
         except OSError: pass\n\
         print('alive')",
        std::process::id()
    );
    let printed = python(&workspace, &code).await;
    assert_eq!(printed, "[]\n-1 -1\nalive\n");
    let group = run(&workspace, &["sh", "-c", "kill -9 0"]).await;
    assert_eq!(group.signal, Some(9), "only its own group dies");
    assert_eq!(
        run(&workspace, &["sh", "-c", "kill -9 -1; kill -STOP 1; echo still"]).await.stdout.text,
        "still\n"
    );
}

async fn privileges_cannot_be_gained(strategy: Strategy) {
    let bench = Bench::new(strategy, [("a", file(""))]).await;
    let workspace = bench.open().await;
    let script = "grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status | tr -s '\\t' ' ' | sort -u; \
                  unshare -U true 2>/dev/null && echo user; unshare -m true 2>/dev/null && echo mount; \
                  mount -t tmpfs x /tmp 2>/dev/null && echo mounted; umount /workspace 2>/dev/null && echo gone; \
                  mount -o remount,rw / 2>/dev/null && echo remounted; mknod b b 8 0 2>/dev/null && echo node; \
                  chown 0 a 2>/dev/null && echo owner; cp /usr/bin/id . && chmod 6755 id && ./id -u; \
                  chroot / true 2>/dev/null && echo root; ulimit -c";
    let expected = "CapAmb: 0000000000000000\nCapEff: 0000000000000000\nCapInh: 0000000000000000\n\
                    CapPrm: 0000000000000000\nNoNewPrivs: 1\n1000\n0\n";
    assert_eq!(shell(&workspace, script).await, expected);
}

async fn the_temporary_folder_is_private_and_bounded(strategy: Strategy) {
    let policy = crate::bench::policy(strategy).with_max_temporary_bytes(1 << 20);
    let bench = Bench::with_policy(policy, [("a", file(""))]).await;
    let (one, two) = (bench.open().await, bench.open().await);
    let filled = shell(
        &one,
        "echo mark > /tmp/home/mark; head -c 5000000 /dev/zero > /tmp/big 2>/dev/null || echo full",
    )
    .await;
    assert_eq!(filled, "full\n");
    assert_eq!(
        shell(&one, "echo works > here; cat here; rm /tmp/big; cat /tmp/home/mark").await,
        "works\nmark\n"
    );
    assert_eq!(shell(&two, "ls -A /tmp /tmp/home").await, "/tmp:\nhome\n\n/tmp/home:\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_probe_finds_full_isolation_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let report = probe(folder.path()).await;
    for check in &report.checks {
        assert!(check.passed, "{}: {}", check.name, check.detail);
    }
    assert_eq!((report.isolation.as_str(), report.strategy.as_str()), ("full", "overlay"));
    assert!(report.checks.len() > 10);
    assert!(crate::bench::names(&folder.path().join("work")).is_empty());
}
