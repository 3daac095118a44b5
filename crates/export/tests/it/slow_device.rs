//! A device that answers late, from another thread, in another order, or not at all.

use std::sync::Arc;

use onefold_volume::{BlockDevice, Error, ExtentKind, Geometry, Op, Request, Result, Visit};
use parking_lot::Mutex;

use crate::client::{FLUSH, READ, Rig};

/// Keeps requests until a flush comes, and answers them all then, the last one first.
#[derive(Default)]
struct Keeping(Mutex<Vec<Request>>);

impl BlockDevice for Keeping {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: 1 << 20,
            chunk_bytes: 4096,
            io_bytes_max: 1 << 20,
            is_writable: true,
            name: "disk".into(),
        }
    }

    fn submit(&self, requests: &mut Vec<Request>) {
        let mut kept = self.0.lock();
        kept.append(requests);
        if kept.iter().any(|request| request.op == Op::Flush) {
            let all = std::mem::take(&mut *kept);
            std::thread::spawn(move || {
                for mut request in all.into_iter().rev() {
                    let fill = (request.offset / 4096) as u8;
                    match request.op {
                        Op::Read => request.buffer.fill(fill),
                        Op::Discard => continue, // Dropped: that answers, too.
                        _ => {}
                    }
                    request.completion.done(match fill {
                        99 => Err(Error::Damaged {
                            place: "chunk".into(),
                            what: "it is not what was written".into(),
                        }),
                        _ => Ok(request.buffer),
                    });
                }
            });
        }
    }

    fn extents(&self, range: std::ops::Range<u64>, visit: Visit<'_>) -> Result<()> {
        visit(range, ExtentKind::Data);
        Ok(())
    }
}

#[test]
fn late_answers_come_and_each_to_its_request() {
    let rig = Rig::over(Arc::new(Keeping::default()));
    let mut client = rig.client();
    for block in [1u64, 2, 99] {
        client.request(READ, 0, block, block * 4096, 4096);
    }
    client.request(4, 0, 50, 0, 4096); // A discard, which the device drops.
    client.request(FLUSH, 0, 60, 0, 0);
    let mut replies: Vec<_> = (0..5).map(|_| client.reply()).collect();
    replies.sort_by_key(|reply| reply.cookie);
    let errors: Vec<_> = replies
        .iter()
        .map(|reply| (reply.cookie, reply.error))
        .collect();
    assert_eq!(errors, [(1, 0), (2, 0), (50, 108), (60, 0), (99, 5)]);
    assert_eq!(replies[0].data, [1; 4096]);
    assert_eq!(replies[1].data, [2; 4096]);
}

#[test]
fn the_server_waits_for_answers_before_it_ends_a_connection() {
    let device = Arc::new(Keeping::default());
    let rig = Rig::over(device.clone());
    let mut client = rig.client();
    client.request(READ, 0, 1, 4096, 4096);
    client.request(FLUSH, 0, 2, 0, 0);
    client.request(2, 0, 3, 0, 0);
    let mut cookies = [client.reply().cookie, client.reply().cookie];
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 2]);
    assert!(client.is_cut());
}
