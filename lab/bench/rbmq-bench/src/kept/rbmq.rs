//! RBMQ: a kept topic.

use rbmq::{ConfirmLevel, Publisher, StartFrom, Subscriber};

use super::parts::{ANSWER_WITHIN, Kept, Load, UNCONFIRMED};
use crate::{error::BenchError, peers::Guard, rbmq_peers::failed};

pub(super) struct Rbmq;

impl Kept for Rbmq {
    fn write(&self, server: &Guard, load: &mut Load) -> Result<(), BenchError> {
        let publisher = Publisher::connect(&server.addr()).map_err(failed)?;
        let mut writer = publisher.topic("m").map_err(failed)?;
        let mut asked = std::collections::VecDeque::new();
        for number in 0..load.count {
            writer.publish(load.messages.numbered(number)).map_err(failed)?;
            if number % (UNCONFIRMED / 4) == 0 {
                asked.push_back(writer.position());
            }
            if asked.len() == 4
                && let Some(position) = asked.pop_front()
            {
                writer.confirm(position, ConfirmLevel::Accepted, Some(ANSWER_WITHIN)).map_err(failed)?;
            }
        }
        let end = writer.position();
        writer.confirm(end, ConfirmLevel::Accepted, Some(ANSWER_WITHIN)).map_err(failed)?;
        Ok(())
    }

    fn replay(&self, server: &Guard, load: &Load) -> Result<(), BenchError> {
        let mut subscriber = Subscriber::connect(&server.addr()).map_err(failed)?;
        subscriber.subscribe_from("m", StartFrom::Oldest).map_err(failed)?;
        for number in 0..load.count {
            let message = subscriber.recv(Some(ANSWER_WITHIN)).map_err(failed)?;
            load.check(number, message.as_ref().map_or(&[], |message| &message.bytes))?;
        }
        Ok(())
    }
}
