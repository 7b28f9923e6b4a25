//! The questions of a server of the stateless era: which the caller's client answers, which the gateway, and what is kept
//! until the caller has answered.

use json::write::ObjectWriter;
use json::{Json, Node};
use spile_core::{InputRequest, InputRequests, Outcome, ToolErrorCode};
use wire::client::InputReply;

use crate::local_answers::{Answered, Answerer, is_allowed};
use crate::remote_server::{CallToForward, RemoteServer};
use crate::results;

/// What was asked, by the server's keys. It is part of a memo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OpenQuestions {
    /// What the caller's client answers itself.
    pub(crate) keys: Vec<String>,
    /// What the gateway has answered already.
    answered: Vec<(String, Json)>,
    /// The parameters of samplings that the user must allow.
    samplings: Vec<(String, Json)>,
}

/// What follows from questions.
pub(crate) enum Answers {
    /// All answers are there: they go to the server.
    Complete(Vec<(String, Json)>),
    /// The caller must be asked first.
    Ask(InputRequests, OpenQuestions),
}

impl OpenQuestions {
    pub(crate) fn write(&self, out: &mut ObjectWriter<'_>) {
        out.array("keys", &self.keys, |out, key| json::write::string(out, key));
        for (name, values) in [("answered", &self.answered), ("samplings", &self.samplings)] {
            if !values.is_empty() {
                out.object(name, |out| {
                    for (key, value) in values {
                        out.raw(key, value.as_str());
                    }
                });
            }
        }
    }

    pub(crate) fn read(memo: Node<'_>) -> Option<Self> {
        let keys = memo.get("keys")?.elements().filter_map(|key| Some(key.str()?.into_owned())).collect();
        let values = |name: &str| -> Vec<(String, Json)> {
            let members = memo.get(name).into_iter().flat_map(|values| values.members());
            members.filter_map(|(key, value)| Some((key.str()?.into_owned(), Json::from(value)))).collect()
        };
        Some(Self { keys, answered: values("answered"), samplings: values("samplings") })
    }
}

impl RemoteServer {
    /// Answers what the gateway answers itself, and collects the rest for the caller.
    pub(crate) async fn answer_questions(
        &self,
        call: &CallToForward,
        requests: InputRequests,
    ) -> Result<Answers, Outcome> {
        let mut open = OpenQuestions::default();
        let mut asked = InputRequests::default();
        for (key, request) in requests.iter() {
            match (self.local.answerer(&self.name, call.capabilities, request), request) {
                (Answerer::Roots, _) => match self.local.roots(&self.name) {
                    InputReply::Result(roots) => open.answered.push((key.to_owned(), roots)),
                    InputReply::Declined(reason) => return Err(self.refused(call, &reason)),
                },
                (Answerer::Model, InputRequest::Sampling { params }) => {
                    let caller = call.sampling_caller();
                    let answer = self.local.answer(&self.name, &caller, call.capabilities, params).await;
                    match answer.map_err(|reason| self.refused(call, reason))? {
                        Answered::Result(result) => open.answered.push((key.to_owned(), result)),
                        Answered::Ask(form) => {
                            asked = asked.with(key, form);
                            open.samplings.push((key.to_owned(), params.clone()));
                        }
                    }
                }
                (Answerer::Client | Answerer::Model, request) => {
                    asked = asked.with(key, request.clone());
                    open.keys.push(key.to_owned());
                }
            }
        }
        if asked.is_empty() {
            return Ok(Answers::Complete(open.answered));
        }
        // What was not really asked does not allow anything.
        let asked = if open.samplings.is_empty() { asked } else { asked.as_consent() };
        Ok(Answers::Ask(asked, open))
    }

    /// The answers after the caller was asked. The host asks again for what is missing.
    pub(crate) async fn collect_answers(
        &self,
        call: &CallToForward,
        open: &OpenQuestions,
    ) -> Result<Vec<(String, Json)>, Outcome> {
        let mut responses = call.responses(&open.keys);
        for (key, params) in &open.samplings {
            let response = call.response(key).ok_or_else(|| self.refused(call, "nobody was asked"))?;
            let (caller, allowed) = (call.sampling_caller(), is_allowed(&response));
            let answer = self.local.answer_if_allowed(&self.name, &caller, params, allowed).await;
            responses.push((key.clone(), answer.map_err(|reason| self.refused(call, reason))?));
        }
        responses.extend(open.answered.iter().cloned());
        Ok(responses)
    }

    /// A server of the stateless era has no way to hear that it gets no answer: the call ends.
    fn refused(&self, call: &CallToForward, reason: &str) -> Outcome {
        let message = format!("server `{}` asked for input, and got none: {reason}", self.name);
        results::unavailable(call.target, ToolErrorCode::InputRefused, false, message)
    }
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::OpenQuestions;

    #[test]
    fn what_is_kept_comes_back() {
        let one = |key: &str, value: &str| vec![(key.to_owned(), Json::parse(value).expect("JSON"))];
        for open in [
            OpenQuestions::default(),
            OpenQuestions { keys: vec!["a\"b".into(), "c".into()], ..OpenQuestions::default() },
            OpenQuestions {
                keys: vec!["a".into()],
                answered: one("b", r#"{"roots":[]}"#),
                samplings: one("c", r#"{"messages":[]}"#),
            },
        ] {
            let memo = Json::object(|out| open.write(out));
            assert_eq!(OpenQuestions::read(memo.to_doc().root()), Some(open), "{memo}");
        }
    }
}
