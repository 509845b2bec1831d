// Package events defines the messages between the parts of the product, except for HTTP requests: the wake-up in a
// queue, the signed job spec, and the domain event that every change of the table contains. Each kind of message has a
// version. Golden files in testdata fix the JSON of each version.
package events

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Wake is the message in a runner's queue. It only names a job that may be ready to be claimed. The table has the
// job's state.
type Wake struct {
	V   int            `json:"v"` // 1
	Job fairlead.JobID `json:"job"`
}

// WakeForKeys is in place of a job in a wake-up that asks the agent for the public keys of installs: the agent sends a
// heartbeat, whose answer names them. An older agent claims it as a job, finds none, and drops the message.
const WakeForKeys fairlead.JobID = "install-keys"

// Encode returns the message's bytes.
func (w Wake) Encode() []byte {
	w.V = 1
	b, err := json.Marshal(w)
	if err != nil {
		panic(err) // encoding two scalar fields cannot fail
	}
	return b
}

// DecodeWake decodes a message. It returns an error for everything that is not a wake-up of a known version. The
// caller leaves such a message to become a dead letter.
func DecodeWake(body []byte) (Wake, error) {
	var w Wake
	if err := json.Unmarshal(body, &w); err != nil {
		return Wake{}, fmt.Errorf("decode wake-up: %w", err)
	}
	if w.V != 1 || w.Job == "" {
		return Wake{}, fmt.Errorf("decode wake-up: version %d with job %q", w.V, w.Job)
	}
	return w, nil
}

// Domain is a domain event: a change of one object. The event is stored in the same item as the change. So a commit
// contains the change and the event, or neither of them.
type Domain struct {
	V       int               `json:"v"` // 1
	Type    string            `json:"type"`
	Org     string            `json:"org,omitempty"` // the tenant; "": the event is sent to no tenant
	Subject string            `json:"subject"`       // the object's identifier
	Version int64             `json:"version"`       // version of the object after the change; orders the events of a subject
	Time    time.Time         `json:"time"`
	Data    map[string]string `json:"data,omitempty"`
}
