package events

import "encoding/json"

// DirectRequest asks the control plane's function `direct` for what an agent beside a
// serverless control plane must know. Exactly one field is set. The function is invoked by
// IAM: no request over HTTP can have this form.
type DirectRequest struct {
	Runners       bool   `json:"runners,omitempty"`       // list the runners to serve
	Configuration string `json:"configuration,omitempty"` // ID of the runner whose configuration is wanted
	Enrolment     string `json:"enrolment,omitempty"`     // ID of the runner that an agent enrols for
}

// DirectAnswer is the answer to a DirectRequest. It can contain secrets, so it must not be
// written to a disk or a log.
type DirectAnswer struct {
	Runners  map[string]string `json:"runners,omitempty"` // names by ID
	Revision string            `json:"revision,omitempty"`
	Runner   json.RawMessage   `json:"runner,omitempty"` // configuration, with its secrets
	Token    string            `json:"token,omitempty"`  // enrols one agent
}
