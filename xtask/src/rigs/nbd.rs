//! Rig `nbd`: clients of other projects against `onefold volume serve`, over a raw file and over a depot.
//!
//! Packages: libnbd-bin python3-libnbd qemu-utils fio openssl.

use std::path::Path;

use super::steps::Steps;
use xtask::serving::TestServer;

/// Wrong requests by libnbd, whose own checks are off; two connections.
const WRONG: &str = r#"
import nbd, sys
h = nbd.NBD(); h.set_strict_mode(0); h.connect_uri(sys.argv[1]); size = h.get_size(); bad = []
def want(name, errors, f):
    try: f(); bad.append(name + ': accepted')
    except nbd.Error as e:
        if e.errno not in errors: bad.append('%s: %s' % (name, e.errno))
want('write past end', ('ENOSPC', 'EINVAL'), lambda: h.pwrite(b'x' * 4096, size - 512))
want('read past end', ('EINVAL',), lambda: h.pread(4096, size))
want('trim past end', ('ENOSPC', 'EINVAL'), lambda: h.trim(4096, size))
want('unknown flag', ('EINVAL',), lambda: h.pwrite(b'x' * 512, 0, 1 << 9))
assert h.pread(4096, 0) is not None and not h.aio_is_dead()
other = nbd.NBD(); other.connect_uri(sys.argv[1])
h.pwrite(b'Q' * 4096, 0); h.flush(); assert other.pread(4096, 0) == b'Q' * 4096
print(bad); sys.exit(bool(bad))
"#;

/// Eight connections write; a flush on one of them covers all answered writes.
const EIGHT: &str = r#"
import nbd, sys
all = [nbd.NBD() for _ in range(8)]
for h in all: h.connect_uri(sys.argv[1])
assert all[0].can_multi_conn()
for round in range(20):
    for i, h in enumerate(all): h.pwrite(bytes([round + i]) * 65536, i * 65536)
    all[round % 8].flush()
    for i in range(8): assert all[(i + 3) % 8].pread(65536, i * 65536) == bytes([round + i]) * 65536
for h in all: h.shutdown()
"#;

/// Runs all steps; returns the number of failed ones.
pub fn run(program: &Path) -> Result<usize, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut steps = Steps::default();
    let disk = folder.path().join("disk.img");
    let made = std::fs::File::create(&disk).and_then(|file| file.set_len(256 << 20));
    made.map_err(|error| error.to_string())?;
    let server = TestServer::onefold(program, &disk, folder.path())?;
    println!("   over a raw file");
    clients(&mut steps, &server.uri, folder.path());
    let pid = server.pid();
    steps.shell("SIGTERM ends it, and its socket is gone", &format!(
        "kill -TERM {pid}; for i in $(seq 200); do [ -S {0} ] || exit 0; sleep .05; done; exit 1",
        folder.path().join("onefold.sock").display()
    ));
    drop(server);
    println!("   over a depot");
    let server = TestServer::depot(program, 256, folder.path())?;
    clients(&mut steps, &server.uri, folder.path());
    drop(server);
    steps.shell(
        "volume check --read-data",
        &format!(
            "{} volume check {}/depot --read-data",
            program.display(),
            folder.path().display()
        ),
    );
    println!("   over TLS");
    tls(&mut steps, program, &disk, folder.path());
    Ok(steps.failed)
}

fn clients(steps: &mut Steps, uri: &str, folder: &Path) {
    let work = folder.display();
    steps.shell(
        "nbdinfo",
        &format!("nbdinfo --size '{uri}' && nbdinfo --json '{uri}' >/dev/null"),
    );
    for ability in [
        "write",
        "flush",
        "fua",
        "trim",
        "zero",
        "cache",
        "df",
        "fast-zero",
        "multi-conn",
        "structured-reply",
    ] {
        steps.shell(
            &format!("nbdinfo --can {ability}"),
            &format!("nbdinfo --can {ability} '{uri}'"),
        );
    }
    steps.shell(
        "nbdinfo --list",
        &format!("nbdinfo --list '{uri}' | grep -Eq 'export=\"(raw|main)\"'"),
    );
    steps.shell(
        "qemu-io: patterns, FUA, zero, discard, unaligned",
        &format!(
            "qemu-io -f raw '{uri}' -c 'write -P 0xa5 0 64k' -c 'write -f -P 0x5a 8k 4k' -c flush \
             -c 'read -P 0xa5 0 8k' -c 'read -P 0x5a 8k 4k' -c 'write -z 16k 8k' -c 'read -P 0 16k 8k' \
             -c 'discard 32k 4k' -c 'write -P 3 4093 7' -c 'read -P 3 4093 7' | tee {work}/io; \
             ! grep -qi 'fail\\|error' {work}/io"
        ),
    );
    steps.shell(
        "nbdinfo --map tells data and holes",
        &format!("nbdinfo --map '{uri}' | tee {work}/map; grep -q data {work}/map; grep -q hole {work}/map"),
    );
    steps.shell(
        "qemu-img bench: 4k writes, 32 in flight",
        &format!("qemu-img bench -f raw -w -c 20000 -d 32 -s 4096 '{uri}'"),
    );
    steps.shell(
        "qemu-img bench: reads with flushes",
        &format!("qemu-img bench -f raw -c 20000 -d 32 -s 4096 '{uri}' && qemu-img bench -f raw -w --flush-interval 32 -c 2000 -d 8 -s 4096 '{uri}'"),
    );
    steps.shell(
        "fio verify: 4k, 32 in flight",
        &format!("cd {work}; fio --name=v --ioengine=nbd --uri='{uri}' --rw=randwrite --bs=4k --iodepth=32 --size=64M --verify=crc32c --do_verify=1 --verify_fatal=1"),
    );
    steps.shell(
        "fio verify: 512 bytes to 9 KiB, unaligned",
        &format!("cd {work}; fio --name=v --ioengine=nbd --uri='{uri}' --rw=randwrite --bsrange=512-9k --bs_unaligned=1 --iodepth=8 --size=16M --io_size=16M --verify=crc32c --verify_fatal=1"),
    );
    steps.shell(
        "nbdcopy there and back",
        &format!("head -c 32M /dev/urandom >{work}/in; nbdcopy {work}/in '{uri}' && nbdcopy '{uri}' {work}/out && cmp -n $((32<<20)) {work}/in {work}/out"),
    );
    steps.shell(
        "libnbd, strict mode off: wrong requests",
        &python(WRONG, uri),
    );
    steps.shell("eight connections, flush on one", &python(EIGHT, uri));
}

fn python(script: &str, uri: &str) -> String {
    format!("/usr/bin/python3 - '{uri}' <<'PYTHON'{script}PYTHON")
}

/// A certificate authority, a server's certificate and a client's, with the names that libnbd expects.
const CERTIFICATES: &str = r#"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=authority -keyout ca.key -out ca-cert.pem
for who in server client; do
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout $who-key.pem -out $who.csr
  openssl x509 -req -in $who.csr -CA ca-cert.pem -CAkey ca.key -CAcreateserial -days 3650 -out $who-cert.pem \
    -extfile <(printf 'subjectAltName=DNS:localhost,IP:127.0.0.1')
done
"#;

fn tls(steps: &mut Steps, program: &Path, disk: &Path, folder: &Path) {
    let work = folder.display();
    steps.shell(
        "openssl: certificates",
        &format!("cd {work}; {CERTIFICATES}"),
    );
    let server = match TestServer::onefold_tls(program, disk, folder) {
        Ok(server) => server,
        Err(why) => return steps.tell("serve with TLS", Err(why)),
    };
    let port = server.port;
    let uri = format!("nbds://localhost:{port}/raw?tls-certificates={work}");
    steps.shell("TLS: nbdinfo", &format!("nbdinfo --size '{uri}'"));
    steps.shell(
        "TLS: nbdcopy there and back",
        &format!("head -c 8M /dev/urandom >{work}/in; nbdcopy {work}/in '{uri}' && nbdcopy '{uri}' {work}/out && cmp -n $((8<<20)) {work}/in {work}/out"),
    );
    steps.shell(
        "TLS: QEMU",
        &format!("qemu-io --object tls-creds-x509,id=t,dir={work},endpoint=client --image-opts driver=nbd,host=localhost,port={port},export=raw,tls-creds=t -c 'write -P 7 0 64k' -c 'read -P 7 0 64k'"),
    );
    steps.shell(
        "TLS: a client without TLS is refused",
        &format!("! nbdinfo --size nbd://localhost:{port}/raw"),
    );
    steps.shell(
        "TLS: a client without a certificate is refused",
        &format!("mkdir -p {work}/bare; cp {work}/ca-cert.pem {work}/bare; ! nbdinfo --size 'nbds://localhost:{port}/raw?tls-certificates={work}/bare'"),
    );
}
