package helm

import (
	"bytes"
	"encoding/json"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// savedVersion is the version of the saved plan's form.
const savedVersion = 1

// What an apply does.
const (
	opInstall = "install"
	opUpgrade = "upgrade"
	opDestroy = "destroy"
)

// saved is a saved plan. It holds everything that the apply uses, so the apply needs neither the chart nor the values.
type saved struct {
	V         int    `json:"v"`
	Release   string `json:"release"`
	Namespace string `json:"namespace"`
	Owner     Owner  `json:"owner"`
	Operation string `json:"operation"`
	NoOp      bool   `json:"no_op"`

	Base      *savedBase    `json:"base,omitempty"` // absent: there was no record
	Recover   bool          `json:"recover,omitempty"`
	Objects   []savedObject `json:"objects,omitempty"`
	Leftovers []savedObject `json:"leftovers,omitempty"` // objects of failed revisions that no revision has any more; to delete

	Rendering       *rendering     `json:"rendering,omitempty"` // absent for a destroy
	Values          map[string]any `json:"values,omitempty"`
	ChartDigest     string         `json:"chart_digest,omitempty"`
	ValuesDigest    string         `json:"values_digest,omitempty"`
	CreateNamespace bool           `json:"create_namespace,omitempty"`
	CreateCRDs      []string       `json:"create_crds,omitempty"`

	Timeout           int64 `json:"timeout_ns"`
	RollbackOnFailure bool  `json:"rollback_on_failure,omitempty"`
	WaitForJobs       bool  `json:"wait_for_jobs,omitempty"`
	History           int   `json:"history"`
}

// savedBase is the newest record at the time of the plan.
type savedBase struct {
	Revision int    `json:"revision"`
	UID      string `json:"uid"`
	Digest   string `json:"digest"`
}

// savedObject is a live object on which the plan relies.
type savedObject struct {
	id
	Version    string `json:"version"`
	Resource   string `json:"resource"`
	Digest     string `json:"digest"`                // "": the object did not exist
	AnyReplica bool   `json:"any_replica,omitempty"` // the manifest does not set the number of replicas
}

func (s *saved) encode() ([]byte, error) { return json.Marshal(s) }

func decodeSaved(text []byte) (*saved, error) {
	var s saved
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&s); err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonPlanDigest, Message: "The saved plan is not readable: plan again.", Err: err}
	}
	if s.V != savedVersion {
		return nil, plugin.Errorf(fairlead.ReasonPlanDigest, "The saved plan has the form %d, and this runner reads form %d: plan again.", s.V, savedVersion)
	}
	if s.Rendering != nil {
		if err := s.Rendering.sort(); err != nil {
			return nil, err
		}
	}
	return &s, nil
}
