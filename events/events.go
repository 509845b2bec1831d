// Package events is what crosses a wire between the parts of the product
// besides HTTP requests: the wake-up in a queue, the signed job spec, and the
// domain events that every change of the table carries. Each is versioned;
// the JSON of each version is held by golden files in testdata.
package events

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Wake is the message in a runner's queue. It says that a job may want
// attention, and nothing more: the table holds the truth.
type Wake struct {
	V   int            `json:"v"` // 1
	Job fairlead.JobID `json:"job"`
}

// Encode returns the message's bytes.
func (w Wake) Encode() []byte {
	w.V = 1
	b, err := json.Marshal(w)
	if err != nil {
		panic(err) // two scalar fields: cannot fail
	}
	return b
}

// DecodeWake reads a message. Anything that is not a wake-up of a version we
// know is an error: it is dead-lettered, never acted on.
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

// Domain is what happened to one object. It is written in the same item as
// the change itself, so a commit can never have the one without the other.
type Domain struct {
	V       int               `json:"v"` // 1
	Type    string            `json:"type"`
	Org     string            `json:"org,omitempty"` // the tenant; "": none may hear of it
	Subject string            `json:"subject"`       // the object's identifier
	Version int64             `json:"version"`       // of the object after the change; orders the events of one subject
	Time    time.Time         `json:"time"`
	Data    map[string]string `json:"data,omitempty"`
}
