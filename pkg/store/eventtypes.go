package store

import (
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/job"
)

// EventType describes one type of domain event that a webhook can select.
type EventType struct {
	Type    string   // such as "fairlead.job.failed"
	Subject string   // what the event's subject identifies
	When    string   // says when the event is published; it completes a sentence
	Data    []string // keys of the event's data, except "version"
}

// EventTypes returns all types that a webhook can select, in the order of the
// reference page. Internal events, such as RedeliveryEvent, are not among them.
func EventTypes() []EventType {
	const ofJob, ofDeployment, ofRunner, ofState = "the job", "the deployment", "the runner", "install and component, as ins_…/component"
	var types []EventType
	for _, s := range job.States() {
		types = append(types, EventType{Type: eventPrefix + "job." + string(s), Subject: ofJob, When: map[job.State]string{
			job.Queued:    "the job was created, or queued again for its next attempt",
			job.Claimed:   "an agent claimed the job",
			job.Running:   "its step started",
			job.Canceling: "a person or a time limit asked the running job to stop",
			job.Succeeded: "its step reported success",
			job.Failed:    "its step reported a failure, or the last attempt failed",
			job.Canceled:  "the job was canceled",
			job.Lost:      "its step ended without a report while its tool may have made changes",
		}[s]})
	}
	types = append(types, EventType{Type: eventPrefix + "job.stuck", Subject: ofJob, When: "no agent claimed the queued job for ten minutes; once each time it is queued", Data: []string{"runner"}})
	for _, s := range deployment.States() {
		types = append(types, EventType{Type: eventPrefix + "deployment." + string(s), Subject: ofDeployment, When: map[deployment.State]string{
			deployment.Queued:    "the deployment was created, and waits for another deployment of its install, or for the customer's stack to grant what its version uses",
			deployment.Running:   "the deployment started, or continues after an approval",
			deployment.Waiting:   "plans wait for approval",
			deployment.Canceling: "the deployment was canceled, and a job still runs",
			deployment.Succeeded: "every component is as planned",
			deployment.Failed:    "a component failed",
			deployment.Canceled:  "the deployment was canceled, and no job runs",
		}[s]})
	}
	return append(types,
		EventType{Type: eventPrefix + "runner.online", Subject: ofRunner, When: "the first agent of the runner came online", Data: []string{"runner"}},
		EventType{Type: eventPrefix + "runner.lost", Subject: ofRunner, When: "the last agent of the runner stopped or was lost", Data: []string{"runner"}},
		EventType{Type: eventPrefix + "runner.dead-letter", Subject: ofRunner, When: "messages of the runner's queue were received five times and removed", Data: []string{"jobs", "letters", "runner"}},
		EventType{Type: eventPrefix + "state.pushed", Subject: ofState, When: "a person uploaded a state"},
		EventType{Type: eventPrefix + "state.unlocked", Subject: ofState, When: "a person broke a state lock"},
	)
}
