//! A plain model of the program in XDP: the verdict for a frame, and the frame afterwards.

use std::collections::HashMap;

use multimqc::wire::{Datagram, Kind, PullRequest, Status, reply_limit};
use multimqc::{Epoch, TopicId};
use multimqc_kernel::{MAX_MESSAGE_BYTES, Ports};

use super::packet::{HEADERS, sum, udp_sum};
use super::{DROP, PASS, TX};

/// A topic: its whole log, of which a ring's length can be read.
pub struct ModelTopic {
    pub id: TopicId,
    pub ports: Ports,
    pub epoch: Epoch,
    pub start: u64,
    pub log: Vec<u8>,
}

pub struct Model {
    pub topics: Vec<ModelTopic>,
    pub ring_bytes: usize,
    pub max_reply: usize,
    pub trusted: bool,
    /// Datagrams that went up, by reason.
    pub reasons: HashMap<&'static str, u64>,
}

enum Request {
    Push { topic: usize, message: Vec<u8> },
    Pull { topic: usize, start: u64, length: u64, head: Option<multimqc::wire::Header> },
}

impl Model {
    /// The verdict on a frame, and the frame that follows from it.
    pub fn expect(&mut self, frame: &[u8]) -> (u32, Vec<u8>) {
        match self.reply(frame) {
            Ok(None) => (DROP, frame.to_vec()),
            Ok(Some(reply)) => (TX, reply),
            Err(why) => {
                *self.reasons.entry(why).or_default() += 1;
                (PASS, frame.to_vec())
            }
        }
    }

    fn reply(&mut self, frame: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
        may_be_for_a_topic(frame)?;
        let port = u16::from_be_bytes([frame[36], frame[37]]);
        self.has_port(port)?;
        let payload = datagram(frame)?;
        let request = self.request(port, payload)?;
        if let Request::Push { message, .. } = &request {
            if message.is_empty() {
                return Err("empty");
            }
            if message.len() > MAX_MESSAGE_BYTES {
                return Err("oversize");
            }
        }
        if !checksums_are_right(frame) {
            return Err("corrupt");
        }
        match request {
            Request::Push { topic, message } => {
                self.topics[topic].log.extend(message);
                Ok(None)
            }
            Request::Pull { topic, start, length, head } => {
                self.pull(frame, payload.len(), topic, start, length, head).map(Some)
            }
        }
    }

    fn has_port(&self, port: u16) -> Result<(), &'static str> {
        let has = |ports: &Ports| [ports.push, ports.pull, ports.header].contains(&port);
        if port != 0 && self.topics.iter().any(|topic| has(&topic.ports)) {
            Ok(())
        } else {
            Err("another port")
        }
    }

    fn request(&self, port: u16, payload: &[u8]) -> Result<Request, &'static str> {
        let of = |with: fn(&Ports) -> u16| {
            self.topics.iter().position(|topic| port != 0 && with(&topic.ports) == port)
        };
        if let Some(topic) = of(|ports| ports.push) {
            return Ok(Request::Push { topic, message: payload.to_vec() });
        }
        if let Some(topic) = of(|ports| ports.pull) {
            let pull = PullRequest::parse(payload).ok_or("malformed")?;
            return Ok(Request::Pull { topic, start: pull.start, length: pull.length, head: None });
        }
        let Datagram { header, body } = Datagram::parse(payload).map_err(|_| "malformed")?;
        let topic = self.topics.iter().position(|topic| topic.id == header.topic).ok_or("malformed")?;
        match header.kind {
            Kind::Push => Ok(Request::Push { topic, message: body.to_vec() }),
            Kind::Pull => {
                let (start, length) = (header.offset, header.length.into());
                Ok(Request::Pull { topic, start, length, head: Some(header) })
            }
            _ => Err("malformed"),
        }
    }

    fn pull(
        &self,
        frame: &[u8],
        payload: usize,
        topic: usize,
        start: u64,
        length: u64,
        head: Option<multimqc::wire::Header>,
    ) -> Result<Vec<u8>, &'static str> {
        let topic = &self.topics[topic];
        let own = head.map_or(0, |_| multimqc::wire::HEADER_BYTES);
        let limit = reply_limit(payload, self.trusted, self.max_reply).saturating_sub(own);
        let n = length.min(limit as u64) as usize;
        let source_port = u16::from_be_bytes([frame[34], frame[35]]);
        let ours = |ports: &Ports| [ports.push, ports.pull, ports.header].contains(&source_port);
        if n == 0 || self.topics.iter().any(|topic| ours(&topic.ports)) {
            return Err("refused");
        }
        if head.is_some_and(|head| !head.epoch.admits(topic.epoch)) {
            return Err("other epoch");
        }
        let end = topic.start + topic.log.len() as u64;
        if start + n as u64 > end {
            return Err("miss");
        }
        let first = end.saturating_sub(self.ring_bytes as u64).max(topic.start);
        if start < first {
            return Err("overwritten");
        }
        let at = (start - topic.start) as usize;
        let mut reply = match head {
            Some(head) => head.reply(Status::Data, n as u64, topic.epoch).encode().to_vec(),
            None => Vec::new(),
        };
        reply.extend(&topic.log[at..at + n]);
        Ok(answer(frame, &reply))
    }
}

fn may_be_for_a_topic(frame: &[u8]) -> Result<(), &'static str> {
    let udp = frame.len() >= HEADERS && frame[12..15] == [0x08, 0x00, 0x45] && frame[23] == 17;
    let group = udp && (frame[0] & 1 != 0 || frame[30] >= 224);
    let later_fragment = udp && u16::from_be_bytes([frame[20], frame[21]]) & 0x1fff != 0;
    if udp && !group && !later_fragment { Ok(()) } else { Err("other traffic") }
}

/// The payload of a frame to a topic's port.
fn datagram(frame: &[u8]) -> Result<&[u8], &'static str> {
    if frame[20] & 0x20 != 0 {
        return Err("fragment");
    }
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let length = usize::from(u16::from_be_bytes([frame[38], frame[39]]));
    if length < 8 || total != length + 20 || frame.len() < total + 14 {
        return Err("malformed");
    }
    Ok(&frame[HEADERS..total + 14])
}

fn checksums_are_right(frame: &[u8]) -> bool {
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let datagram = &frame[..total + 14];
    let length = (total - 20) as u16;
    let field = u16::from_be_bytes([frame[40], frame[41]]);
    let mut pseudo = frame[26..34].to_vec();
    pseudo.extend([0, 17]);
    pseudo.extend(length.to_be_bytes());
    let partial = sum(&pseudo);
    pseudo.extend(&datagram[34..]);
    sum(&frame[14..34]) == 0xffff && (field == 0 || sum(&pseudo) == 0xffff || partial == field)
}

/// The reply to a frame.
fn answer(frame: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut f = frame[..HEADERS].to_vec();
    f[..6].copy_from_slice(&frame[6..12]);
    f[6..12].copy_from_slice(&frame[..6]);
    f[15] = 0;
    f[16..18].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
    f[18..26].copy_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    f[26..30].copy_from_slice(&frame[30..34]);
    f[30..34].copy_from_slice(&frame[26..30]);
    let check = !sum(&f[14..34]);
    f[24..26].copy_from_slice(&check.to_be_bytes());
    f[34..36].copy_from_slice(&frame[36..38]);
    f[36..38].copy_from_slice(&frame[34..36]);
    let length = 8 + payload.len() as u16;
    f[38..40].copy_from_slice(&length.to_be_bytes());
    f[40..42].copy_from_slice(&[0, 0]);
    f.extend(payload);
    let check = udp_sum(&f, length);
    f[40..42].copy_from_slice(&check.to_be_bytes());
    f
}
