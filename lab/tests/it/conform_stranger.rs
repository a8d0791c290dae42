// SPDX-License-Identifier: Apache-2.0
//! For a gNMI server that is not an optical switch, the suite must report one finding and stop.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lightloom_gnmi::message::{
    CapabilityResponse, Encoding, GetRequest, GetResponse, ModelData, SetRequest, SetResponse,
    SubscribeRequest,
};
use lightloom_gnmi::model::MODULES;
use lightloom_gnmi::server::{Boxed, Connection, SubscriptionItem, Target};
use lightloom_gnmi::{Status, Streaming};
use lightloom_lab::conform;
use lightloom_lab::conform::link::{ExchangeError, Link};
use lightloom_lab::conform::report::SuiteReport;
use lightloom_lab::conform::target::{Options, Protocol};

/// A server that supports these models, but none of a switch's paths.
struct Router(Vec<&'static str>);

impl Target for Router {
    fn capabilities(&self) -> Boxed<Result<CapabilityResponse, Status>> {
        let model = |name: &&str| ModelData {
            name: (*name).into(),
            organization: "OpenConfig working group".into(),
            version: "2.0.0".into(),
        };
        let said = CapabilityResponse {
            supported_models: self.0.iter().map(model).collect(),
            supported_encodings: vec![Encoding::JsonIetf as i32],
            gnmi_version: "0.7.0".into(),
        };
        Box::pin(async move { Ok(said) })
    }

    fn get(&self, _: GetRequest) -> Boxed<Result<GetResponse, Status>> {
        Box::pin(async { Err(Status::not_found("no such path")) })
    }

    fn set(&self, _: SetRequest) -> Boxed<Result<SetResponse, Status>> {
        panic!("nothing is set on a device that is no switch")
    }

    fn subscribe(&self, _: Streaming<SubscribeRequest>) -> Boxed<Result<SubscriptionItem, Status>> {
        panic!("a device that is no switch is not subscribed to")
    }
}

struct Direct(Arc<Router>, Rc<RefCell<Connection>>);

impl Link for Direct {
    fn open(&mut self) -> Result<(), ExchangeError> {
        self.1.replace(Connection::new(Arc::clone(&self.0)));
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ExchangeError> {
        self.1.borrow_mut().receive(bytes);
        Ok(())
    }

    fn receive(&mut self, _: Duration) -> Result<Vec<u8>, ExchangeError> {
        Ok(self.1.borrow_mut().run())
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn shield(&mut self) {}
}

fn report(models: &[&'static str]) -> SuiteReport {
    let router = Arc::new(Router(models.to_vec()));
    let connection = Rc::new(RefCell::new(Connection::new(Arc::clone(&router))));
    let may_move = ["in-1", "in-2", "out-1", "out-2"].map(str::to_owned).to_vec();
    let options = Options { target: "gnmi:router:9339".into(), may_move, ..Options::default() };
    conform::run(Protocol::Gnmi, Box::new(Direct(router, connection)), &options).unwrap()
}

#[test]
fn server_without_the_model_is_one_finding_naming_its_models() {
    for (models, words) in [
        (
            &["openconfig-interfaces", "openconfig-platform"][..],
            [
                "lacks the model",
                MODULES[1],
                "NotFound (no such path)",
                "openconfig-interfaces 2.0.0",
            ],
        ),
        (&[][..], ["lacks the model", MODULES[0], "NotFound", "its 0 models"]),
        (&MODULES[..], ["lacks the model", "Capabilities lists it", "NotFound", MODULES[2]]),
    ] {
        let report = report(models);
        assert!(!report.is_good() && report.cases.len() == 1, "{}", report.text());
        for word in words {
            assert!(report.cases[0].detail.contains(word), "{word}: {}", report.text());
        }
    }
}
